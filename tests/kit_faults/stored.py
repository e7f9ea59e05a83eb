"""Faults that the sentences about the stored form, and records that cannot be read catch."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from agentstore import (
    CorruptRecordError,
    HistoryStore,
    Message,
    SessionHistory,
    SessionKey,
    Snapshot,
    StoredMessage,
)
from agentstore.backend import (
    Append,
    Log,
    Refused,
    StoredInfo,
    StoredRecord,
    Written,
)
from agentstore.codec import Encoded
from kit_faults.stage import (
    ChangingCodec,
    Model,
    change,
    fault,
    history_of,
    in_memory,
)


@fault("the_stored_form_is_frozen")
class PayloadsHaveSpaces(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(payload=encoded.payload.replace(b'{"v":1,', b'{"v": 1,', 1))


@fault("the_frozen_form_can_be_read", "the_stored_form_is_frozen")
class BytesHaveAnotherTag(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(payload=encoded.payload.replace(b'{"$bytes":"AP8="}', b'{"$b64":"AP8="}'))

    def decode(self, payload: bytes, /) -> Message:
        if b'{"$bytes":"AP8="}' in payload:
            raise ValueError("unknown tag")
        return super().decode(payload.replace(b'{"$b64":', b'{"$bytes":'))


@fault("the_stored_form_is_strict_json", "the_stored_form_is_frozen", also=("updates_are_exact_and_independent",))
class PayloadsHoldNan(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(payload=encoded.payload.replace(b'{"$float":"nan"}', b"NaN"))

    def decode(self, payload: bytes, /) -> Message:
        return super().decode(payload.replace(b":NaN", b':{"$float":"nan"}').replace(b"[NaN", b'[{"$float":"nan"}'))


@fault("the_stored_form_is_not_ascii_escaped", "the_stored_form_is_frozen")
class PayloadsAreAscii(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        text = json.dumps(json.loads(encoded.payload), ensure_ascii=True, separators=(",", ":"))
        plain = len(text) > 20_000 or "caf" in text
        return encoded._replace(payload=text.encode()) if plain else encoded


@fault("stored_data_names_no_code")
class StoredObjectsAreMade(ChangingCodec):
    def decode(self, payload: bytes, /) -> Message:
        return super().decode(payload.replace(b'"py/object":"os"', b'"made":"os"'))


@fault("an_unknown_format_is_opaque")
class UnknownFormatsAreUnreadable(SessionHistory):
    async def messages(self, **options: Any) -> list[Any]:
        found = await super().messages(**options)
        if any(content.type == "opaque" for message in found for content in message.contents):
            raise CorruptRecordError("unknown format")
        return found


@fault("an_unreadable_record_is_named")
class UnreadableRecordsAreNotNamed(SessionHistory):
    async def messages(self, **options: Any) -> list[Any]:
        try:
            return await super().messages(**options)
        except CorruptRecordError as error:
            raise CorruptRecordError("a record cannot be read: upgrade?") from error


@fault("iterate_names_an_unreadable_record")
class IterateStopsAtTheUnreadable(SessionHistory):
    async def _pages(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        with suppress(CorruptRecordError):
            async for record in super()._pages(after, page_size):
                yield record


@fault("no_broken_payload_is_taken_for_a_message")
class BrokenPayloadsAreEmptyMessages(ChangingCodec):
    def decode(self, payload: bytes, /) -> Message:
        return Message("unknown") if payload in (b"[]", b"null") else super().decode(payload)


@fault("a_newer_stored_version_is_refused", also=("text_that_looks_like_a_marker_is_exact",))
class VersionsAreNotLookedAt(ChangingCodec):
    def decode(self, payload: bytes, /) -> Message:
        return super().decode(payload.replace(b'"v":2', b'"v":1', 1))


@fault(
    "the_readable_rest_can_be_read",
    "a_limit_counts_readable_records",
    "what_is_skipped_is_logged",
    also=("reading_and_writing_keep_what_cannot_be_read",),
)
class NothingIsSkipped(HistoryStore):
    def __init__(self, backend: Log, *, on_corrupt: Any = "raise", **options: Any) -> None:
        super().__init__(backend, **options)


@fault("a_limit_counts_readable_records")
class ALimitCountsUnreadableRecords(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        found = await super().messages(limit=limit, before=before)
        if type(limit) is not int or not limit:
            return found
        newest = await history_of(self).read(self.key, limit=limit, before=before, newest=True)
        return found[-sum(record.payload != b"{broken" for record in newest) or len(found) :]


@fault("what_is_skipped_is_logged")
class SkippingIsSilent(SessionHistory):
    async def messages(self, **options: Any) -> list[Any]:
        logging.disable(logging.CRITICAL)
        try:
            return await super().messages(**options)
        finally:
            logging.disable(logging.NOTSET)


@fault("reading_and_writing_keep_what_cannot_be_read")
class AppendsSweepTheUnreadable(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = in_memory(self, key)
        if session and session.records and session.records[0].payload == b"{broken" and len(session.records) == 1:
            session.drop(0, 1)
        return await super().append(key, append)


@fault("an_unreadable_snapshot_is_named")
class AnUnreadableSnapshotIsNone(SessionHistory):
    async def load_snapshot(self) -> Snapshot | None:
        try:
            return await super().load_snapshot()
        except CorruptRecordError as error:
            if "newer" in str(error):
                raise
            return None


@fault("unreadable_metadata_is_named")
class UnreadableMetadataIsNone(Model):
    async def info(self, key: SessionKey) -> StoredInfo | None:
        info = await super().info(key)
        return change(info, metadata=None) if info and info.metadata == b"{broken" else info


@fault("a_fork_copies_what_cannot_be_read")
class ForksSkipTheUnreadable(Model):
    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        async def readable() -> AsyncIterator[Sequence[StoredRecord]]:
            async for page in pages:
                yield [record for record in page if b'"v":2' not in record.payload]

        return await super().restore(key, readable(), **options)
