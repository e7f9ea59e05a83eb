"""Messages and records of Pydantic AI as plain values and back, and an entry's form `pydantic-ai/1`.

An entry's payload: `id`, `parent_id`, `after` (the seq of the parent, where that is not the record just before),
`kind`, and `message`, the dict that pydantic makes of it in Python mode: so bytes, times and NaN in tool results, which
pydantic's JSON would change, stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timezone
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequestAttempt

from agentstore import values
from agentstore.adapters.downcast import downcast, log_downcast
from agentstore.adapters.pydantic_ai_messages import FORMAT, Shape
from agentstore.codec import Encoded
from agentstore.errors import UnsupportedValueError

_records = TypeAdapter(ConversationRecord)
_attempts = TypeAdapter(list[ModelRequestAttempt])
_logger = logging.getLogger("agentstore")


class Link(NamedTuple):
    """An entry as it is stored."""

    id: str
    parent_id: str | None
    after: int | None
    """Seq of the parent, where that is not the record just before."""
    message: Any
    """The message to be stored; where it was read, its JSON, or its dict."""

    @classmethod
    def of(cls, entry: ConversationEntry, after: int | None = None) -> Link:
        return cls(entry.id, entry.parent_id, after, entry.message)


class EntryCodec:
    """Takes and gives `Link` objects; of what it gives, only those that are needed become messages of the framework."""

    format = FORMAT

    def encode(self, obj: Link, /) -> Encoded:
        stored: Shape = {"id": obj.id, "parent_id": obj.parent_id, "kind": "message"}
        if obj.after is not None:
            stored["after"] = obj.after
        if type(obj.message) is bytes:
            payload = values.plain_json({**values.tag(stored), "message": msgspec.Raw(obj.message)})
        else:
            message = obj.message if type(obj.message) is dict else shape_of(obj.message)
            payload = values.plain_json(_tagged({**stored, "message": message}))
        return Encoded(obj.id, payload, payload)

    def decode(self, payload: bytes, /) -> Link:
        try:
            stored = _read(payload)
        except msgspec.DecodeError:  # odd text in an id, or no entry at all
            return _read_odd(values.load(payload))
        _check_kind(stored.kind)
        return Link(stored.id, stored.parent_id, stored.after, bytes(stored.message))

    def assign_id(self, obj: Link, message_id: str, /) -> bool:
        return False

    def find_id(self, obj: Link, /) -> str:
        return obj.id


class _Stored(msgspec.Struct):
    """An entry's payload, its message left as it is: most of what is read is only passed by."""

    id: str
    parent_id: str | None
    kind: str
    message: msgspec.Raw
    after: int | None = None


_read = msgspec.json.Decoder(_Stored).decode


def _read_odd(stored: Any) -> Link:
    if type(stored) is not dict or type(stored.get("id")) is not str or type(stored.get("message")) is not dict:
        raise ValueError("not an entry of Pydantic AI")
    _check_kind(stored.get("kind"))
    return Link(stored["id"], stored.get("parent_id"), stored.get("after"), stored["message"])


def _check_kind(kind: Any) -> None:
    if kind != "message":
        raise ValueError(f"an entry of the kind {kind!r}: upgrade agentstore to read it")


def shape_of(message: ModelMessage) -> Shape:
    """The message as a dict of mostly plain values: what a tool gave is in it as it was."""
    try:
        (shape,) = ModelMessagesTypeAdapter.dump_python([message])
    except ValueError as error:  # a value that contains itself, for one
        _logger.warning("stored with plain values: %s", error)
        shape = downcast({"message": message})["message"]
    _plain_fields(shape)
    for part in shape["parts"]:
        _plain_time(part)
    return shape  # type: ignore[no-any-return]


def messages_of(stored: Sequence[Shape | bytes]) -> list[ModelMessage]:
    """The messages; parts that this version of the framework does not know are left out, and stay in the store.

    Raises `ValueError` for what is no message.
    """
    texts = [message for message in stored if type(message) is bytes]
    if len(texts) == len(stored) and not any(b'"$' in text for text in texts):
        with suppress(ValidationError):  # no tag in it: quickest without Python's values in between
            return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(texts) + b"]")
    shapes = [values.load(message) if isinstance(message, bytes) else message for message in stored]
    try:
        return ModelMessagesTypeAdapter.validate_python(shapes)
    except ValidationError:
        return ModelMessagesTypeAdapter.validate_python([_known(shape) for shape in shapes])


def record_shape(record: ConversationRecord) -> Shape:
    """The record as plain values."""
    shape: Shape = _records.dump_python(record)
    _plain_cost(shape.get("usage"))
    try:
        values.tag(shape)
    except UnsupportedValueError as error:
        log_downcast(error)
        return downcast(shape)
    return shape


def record_of(shape: Shape) -> ConversationRecord:
    """Raises `ValueError` for a dict that is no record."""
    return _records.validate_python(shape)


def _plain_fields(shape: Shape) -> None:
    """The fields of the framework's own that are no plain values, as text that it reads."""
    _plain_time(shape)
    _plain_cost(shape.get("usage"))
    if shape.get("failed_attempts"):
        shape["failed_attempts"] = _attempts.dump_python(
            _attempts.validate_python(shape["failed_attempts"]), mode="json"
        )


def _plain_time(fields: Shape) -> None:
    # Text is read many times faster than a tagged time, and says the same.
    if (time := fields.get("timestamp")) is not None and time.tzinfo is timezone.utc:
        fields["timestamp"] = time.isoformat()


def _plain_cost(usage: Shape | None) -> None:
    if usage is not None and isinstance(cost := usage.get("cost"), Decimal):
        usage["cost"] = str(cost)


def _tagged(stored: Shape) -> Any:
    try:
        return values.tag(stored)
    except UnsupportedValueError as error:
        log_downcast(error)
    return values.tag(downcast(stored))


def _known(shape: Shape) -> Shape:
    """The message without the parts that cannot be read."""
    if _is_readable(shape) or type(shape.get("parts")) is not list:
        return shape
    parts = [part for part in shape["parts"] if _is_readable({**shape, "parts": [part]})]
    kinds = sorted({str(part.get("part_kind")) for part in shape["parts"] if part not in parts})
    _logger.warning(
        "left out of a loaded message, kept in the store: parts %s, unknown to this pydantic_ai", ", ".join(kinds)
    )
    return {**shape, "parts": parts}


def _is_readable(shape: Shape) -> bool:
    try:
        ModelMessagesTypeAdapter.validate_python([shape])
    except ValidationError:
        return False
    return True
