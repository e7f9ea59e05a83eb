"""Faults that the sentences about values catch."""

from __future__ import annotations

import unicodedata
from base64 import b64decode, b64encode
from datetime import datetime, timezone
from typing import Any, ClassVar

from agentstore import (
    AgentSession,
    Appended,
    Message,
    SessionHistory,
    Snapshot,
    UnsupportedValueError,
)
from agentstore.codec import Encoded
from kit_faults.stage import (
    ChangingCodec,
    changed,
    downcast,
    fault,
)


class LossyCodec(ChangingCodec):
    """Changes the contents' values before they are stored."""

    def change(self, value: Any) -> Any:
        raise NotImplementedError

    def encode(self, obj: Message, /) -> Encoded:
        super().encode(obj)
        data = obj.to_dict()
        data["contents"] = [
            {name: changed(item, self.change) if name == "result" else item for name, item in content.items()}
            for content in data["contents"]
        ]
        return super().encode(Message.from_dict(data))


@fault("nul_is_exact", "any_contents_are_exact")
class NulIsDropped(LossyCodec):
    def change(self, value: Any) -> Any:
        return value.replace("\x00", "") if type(value) is str else value


@fault("lone_surrogates_are_exact", "any_contents_are_exact")
class SurrogatesAreReplaced(LossyCodec):
    def change(self, value: Any) -> Any:
        return value.encode("utf-8", "replace").decode() if type(value) is str else value


@fault("text_that_looks_like_a_marker_is_exact", "any_contents_are_exact")
class MarkersAreRead(LossyCodec):
    def change(self, value: Any) -> Any:
        return b"" if type(value) is dict and list(value) == ["$bytes"] else value


@fault("floats_are_exact")
class NanIsNone(LossyCodec):
    def change(self, value: Any) -> Any:
        return None if type(value) is float and value != value else value


@fault("ints_are_exact")
class BigIntsAreFloats(LossyCodec):
    def change(self, value: Any) -> Any:
        return float(value) if type(value) is int and 2**53 < value < 2**70 else value


@fault(
    "bytes_are_exact",
    "any_contents_are_exact",
    also=(
        "deep_values_are_exact",
        "tuples_are_exact",
    ),
)
class BytesAreText(LossyCodec):
    def change(self, value: Any) -> Any:
        return b64encode(value).decode() if type(value) is bytes else value


@fault(
    "tuples_are_exact",
    "any_contents_are_exact",
    also=(
        "datetimes_are_exact",
        "floats_are_exact",
        "ints_are_exact",
        "text_that_looks_like_a_marker_is_exact",
    ),
)
class TuplesAreLists(LossyCodec):
    def change(self, value: Any) -> Any:
        return list(value) if type(value) is tuple else value


@fault("datetimes_are_exact", "any_contents_are_exact")
class TimesAreUtc(LossyCodec):
    def change(self, value: Any) -> Any:
        aware = isinstance(value, datetime) and value.utcoffset()
        return value.astimezone(timezone.utc) if aware else value


@fault("shapes_are_exact", "any_contents_are_exact")
class NoneIsAbsent(LossyCodec):
    def change(self, value: Any) -> Any:
        return {n: item for n, item in value.items() if item is not None} if type(value) is dict else value


@fault("text_of_any_script_is_exact")
class TextIsNormalised(LossyCodec):
    def change(self, value: Any) -> Any:
        plain = type(value) is str and value.isprintable()
        return unicodedata.normalize("NFC", value) if plain else value


@fault("deep_values_are_exact")
class DeepValuesAreCut(LossyCodec):
    def change(self, value: Any) -> Any:
        return "..." if str(value).count("{") > 30 else value


@fault("any_additional_properties_are_exact", "every_field_of_a_message_comes_back")
class PropertiesAreJson(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        super().encode(obj)
        data = obj.to_dict()
        if "deep" not in data["additional_properties"]:
            data["additional_properties"] = changed(
                data["additional_properties"], lambda value: list(value) if type(value) is tuple else value
            )
        return super().encode(Message.from_dict(data))


@fault("any_metadata_is_exact")
class MetadataHasNoTuples(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        await super().annotate(changed(metadata, lambda value: list(value) if type(value) is tuple else value))


@fault("any_snapshot_is_exact", also=("a_session_comes_back",))
class SnapshotsHaveNoBytes(SessionHistory):
    async def save_snapshot(self, session: Any, **options: Any) -> int:
        if isinstance(session, AgentSession) and "deep" not in session.state:
            session = AgentSession.from_dict(
                changed(session.to_dict(), lambda value: value.hex() if type(value) is bytes else value)
            )
        return await super().save_snapshot(session, **options)


class ShapeCodec(ChangingCodec):
    """Changes the message's dict before it is stored."""

    def change(self, data: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def encode(self, obj: Message, /) -> Encoded:
        super().encode(obj)
        return super().encode(Message.from_dict(self.change(obj.to_dict())))


@fault("every_field_of_a_message_comes_back")
class AuthorsWithNulAreDropped(ShapeCodec):
    def change(self, data: dict[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in data.items() if name != "author_name" or item != "Ann\x00"}


@fault("unknown_fields_and_types_come_back")
class OnlyKnownFieldsAreKept(ShapeCodec):
    def change(self, data: dict[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in data.items() if name not in ("conversation_id", "usage_details")}


@fault("a_second_cycle_changes_nothing")
class WhatLooksLikeBase64IsBytes(ChangingCodec):
    def decode(self, payload: bytes, /) -> Message:
        message = super().decode(payload)
        for content in message.contents:
            if content.get("looks_like"):
                content.looks_like = b64decode(content.looks_like)
        return message


@fault("a_raw_representation_is_left_out")
class RawObjectsMustBePlain(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        if obj.raw_representation is not None:
            raise UnsupportedValueError("raw_representation")
        return super().encode(obj)


@fault("contents_refuse_what_they_cannot_keep", "updates_are_exact_and_independent")
class ContentsAreDowncast(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        try:
            return super().encode(obj)
        except UnsupportedValueError:
            if type(obj) is not Message or not obj.contents or "deep" in obj.additional_properties:
                raise
            data = obj.to_dict()
            return super().encode(Message.from_dict({**data, "contents": downcast(data["contents"])}))


@fault("properties_refuse_what_they_cannot_keep")
class PropertiesAreDowncast(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        try:
            return super().encode(obj)
        except UnsupportedValueError:
            if type(obj) is not Message or not obj.additional_properties:
                raise
            data = obj.to_dict()
            properties = downcast(data["additional_properties"])
            return super().encode(Message.from_dict({**data, "additional_properties": properties}))


@fault("snapshots_refuse_what_they_cannot_keep")
class StatesAreDowncast(SessionHistory):
    async def append(self, messages: Any, *, snapshot: Any = None, **options: Any) -> Appended:
        if isinstance(snapshot, AgentSession):
            snapshot = AgentSession.from_dict(downcast(snapshot.to_dict()))
        return await super().append(messages, snapshot=snapshot, **options)


@fault("only_messages_are_taken")
class TextsAreTakenForMessages(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        if isinstance(messages, list):
            messages = [Message("user", [m]) if isinstance(m, str) else m for m in messages]
        return await super().append(messages, **options)


@fault(
    "changing_a_saved_object_changes_nothing_stored",
    "changing_a_loaded_object_changes_nothing_stored",
    also=("updates_are_exact_and_independent",),
)
class ObjectsAreShared(ChangingCodec):
    def __init__(self) -> None:
        self.kept: dict[bytes, Message] = {}

    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        if any(content.type == "data" for content in obj.contents):
            self.kept[encoded.payload] = obj
        return encoded

    def decode(self, payload: bytes, /) -> Message:
        return self.kept.get(payload) or super().decode(payload)


@fault("changing_a_loaded_object_changes_nothing_stored")
class DecodedObjectsAreShared(ChangingCodec):
    def __init__(self) -> None:
        self.kept: dict[bytes, Message] = {}

    def decode(self, payload: bytes, /) -> Message:
        return self.kept.setdefault(payload, super().decode(payload))


@fault("metadata_and_snapshots_are_independent")
class LoadedSnapshotsAreShared(SessionHistory):
    loaded: ClassVar[dict[Any, Any]] = {}

    async def load_snapshot(self) -> Snapshot | None:
        found = await super().load_snapshot()
        place = found and (self.key, found.version, repr(getattr(found.session, "session_id", found.session)))
        return self.loaded.setdefault(place, found) if isinstance(getattr(found, "session", 0), AgentSession) else found
