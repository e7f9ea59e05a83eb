"""Faults that the sentences about cancelled calls catch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import agentstore_memory
from agentstore import (
    Appended,
    SessionHistory,
    SessionKey,
    UnavailableError,
)
from agentstore.backend import (
    Append,
    Record,
    Refused,
    Replace,
    StoredRecord,
    Written,
)
from kit_faults.stage import (
    Model,
    TwoSteps,
    change,
    fault,
    in_memory,
)


async def unsettled(write: Any) -> Any:
    """What `settled` would be without its promise."""
    return await write


UNSETTLED = {"agentstore.history.settled": unsettled}


@fault(
    "a_cancelled_append_is_whole_or_nothing",
    "a_cancelled_truncation_is_whole_or_nothing",
    "a_cancelled_replace_is_whole_or_nothing",
    "a_cancelled_update_is_whole_or_nothing",
    "a_cancelled_pop_is_whole_or_nothing",
    "a_cancelled_fork_is_whole_or_nothing",
    "a_cancelled_annotation_is_whole_or_nothing",
    "a_cancelled_delete_is_whole_or_nothing",
    "a_cancelled_turn_with_snapshot_is_whole_or_nothing",
    "a_cancelled_write_settles_before_the_error_leaves",
    also=(
        "a_session_remembers_its_last_tokens",
        "concurrent_pops_hand_each_message_out_once",
        "info_counts_the_messages",
        "info_names_first_and_last_seq",
        "past_a_bound_the_error_leaves_with_a_warning",
        "truncate_before_drops_the_older",
        "truncate_beyond_the_ends_drops_all_or_none",
    ),
    patches=UNSETTLED,
)
class CancelledWritesAreTorn(TwoSteps):
    """Every write is two steps, and a cancellation comes in between."""

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.records and append.records[0].payload.count(b'"x"'):
            if append.snapshot:
                await super().append(key, Append((), uuid4().bytes, snapshot=append.snapshot))
                append = change(append, snapshot=None)
            else:
                await super().append(key, change(append, records=append.records[:1], token=uuid4().bytes))
            await asyncio.sleep(0)
        return await super().append(key, append)

    async def truncate(self, key: SessionKey, **options: Any) -> int:
        newest = await self.read(key, limit=1, newest=True)
        gone = await super().truncate(key, after=newest[0].seq - 1) if newest else 0
        await asyncio.sleep(0)
        return gone + await super().truncate(key, **options)

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if any(b'"x"' in record.payload for record in replace.records):
            await super().truncate(key, after=replace.after)
            await asyncio.sleep(0)
        return await super().replace(key, replace)

    async def update(self, key: SessionKey, record: Record) -> bool:
        if b'"x"' in record.payload:
            await super().update(key, change(record, payload=record.payload.replace(b'"x"', b'"half"')))
            await asyncio.sleep(0)
        return await super().update(key, record)

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        session = in_memory(self, key)
        two = session.records[-2:] if session and len(session.records) == 3 else []
        if two:
            session.drop(1, 3)
            await asyncio.sleep(0)
            for record in two:
                session.put(record)
        return await super().remove_newest(key, seq, digest)

    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        records = [record async for page in pages for record in page]
        if len(records) == 3 and key not in self._shared:
            session = agentstore_memory._begun(None)
            session.put(records[0])
            self._shared[key] = session
            await asyncio.sleep(0)
            del self._shared[key]

        async def again() -> AsyncIterator[Sequence[StoredRecord]]:
            yield records

        return await super().restore(key, again(), **options)

    async def annotate(self, key: SessionKey, old: Any, new: Any, **options: Any) -> bool:
        if new == b'{"a":1,"b":2}' and old is None:
            await super().annotate(key, None, b'{"a":1}', **options)
            await asyncio.sleep(0)
            old = b'{"a":1}'
        return await super().annotate(key, old, new, **options)

    async def delete(self, key: SessionKey) -> bool:
        if (session := in_memory(self, key)) and len(session.records) == 3:
            session.drop(0, 3)
            await asyncio.sleep(0)
        return await super().delete(key)


@fault(
    "a_cancelled_append_leaves_no_rows_for_others",
    also=(
        "a_cancelled_append_is_whole_or_nothing",
        "a_cancelled_turn_with_snapshot_is_whole_or_nothing",
        "a_cancelled_write_settles_before_the_error_leaves",
        "past_a_bound_the_error_leaves_with_a_warning",
    ),
    patches=UNSETTLED,
)
class CancelledRowsWaitForTheNextCommit(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        for other, rows in LEFT_OVER.pop(self.name, []):
            await super().append(other, rows)
        if append.records and b'"x"' in append.records[0].payload and not append.retry:
            LEFT_OVER.setdefault(self.name, []).append((key, append))
            await asyncio.sleep(0)
            LEFT_OVER.pop(self.name, None)
        return await super().append(key, append)


LEFT_OVER: dict[str, list[tuple[SessionKey, Append]]] = {}


@fault("a_cancelled_append_can_be_made_again")
class ACancelledCallForgetsItsIds(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        try:
            return await super().append(messages, **options)
        except asyncio.CancelledError:
            for message in messages:
                message.message_id = None
            raise


@fault(
    "a_cancelled_write_settles_before_the_error_leaves",
    also=("past_a_bound_the_error_leaves_with_a_warning",),
    patches=UNSETTLED,
)
class CancellationsLeaveAtOnce(Model):
    pass


@fault("past_a_bound_the_error_leaves_with_a_warning", patches={"agentstore.settle._logger": logging.Logger("none")})
class GivingUpIsSilent(Model):
    pass


@fault(
    "a_cancelled_read_changes_nothing",
    also=(
        "a_cancelled_fork_is_whole_or_nothing",
        "a_cancelled_pop_is_whole_or_nothing",
    ),
    patches={},
)
class CancelledReadsStopTheStore(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        if getattr(self, "stopped", False):
            raise UnavailableError("a cursor is still open")
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.stopped = True
            raise
        return await super().read(key, **options)
