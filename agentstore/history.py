"""`SessionHistory`: everything that can be done with one session, and every rule that all backends share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from agentstore import snapshots, values
from agentstore.backend import (
    Append,
    Catalog,
    Current,
    Refused,
    Replace,
    Rewriting,
    Snapshots,
    StoredRecord,
    Written,
    plan_append,
)
from agentstore.batch import Batch, check_messages, encode_batch, encode_one, give_ids
from agentstore.catalog import merge_metadata, session_info
from agentstore.codec import Codec, decode_record
from agentstore.errors import ConflictError, CorruptRecordError, UnavailableError
from agentstore.gate import Gate
from agentstore.keys import SessionKey
from agentstore.session import AgentSession
from agentstore.settle import settled
from agentstore.shapes import Appended, SessionInfo, Snapshot, StoredMessage, to_datetime, to_microseconds

T = TypeVar("T")

CONTENTION_SECONDS = 30.0
"""How long `pop` and `annotate` try again while other writers keep coming in between."""

OnCorrupt = Literal["raise", "skip"]

_WORK_AT_ONCE = 1_000_000  # bytes decoded before the event loop gets a turn: a few milliseconds
_DECODING = 2_000  # what a record costs beside its bytes
_MANY = 100  # messages of a batch that is encoded in a thread, so that the event loop gets turns
_logger = logging.getLogger("agentstore")


class SessionHistory:
    """The durable history of one session. Made by `HistoryStore.session`; holds no data and needs no closing.

    Every method raises `ClosedError` after the store is closed, and `UnavailableError` where it cannot be reached.
    Writes are all or nothing, also when the calling task is cancelled.
    """

    def __init__(
        self, gate: Gate, key: SessionKey, codec: Codec, *, ttl: int | None = None, on_corrupt: OnCorrupt = "raise"
    ) -> None:
        self.key = key
        self._gate = gate
        self._log = gate.backend
        self._codec = codec
        self._ttl = ttl
        self._on_corrupt = on_corrupt

    def __repr__(self) -> str:
        return f"SessionHistory({self.key!r})"

    async def append(
        self,
        messages: Iterable[Any],
        *,
        idempotency_key: str | None = None,
        expected_last: int | None = None,
        snapshot: AgentSession | Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        """Add the messages at the end, all or none, in their order; returns their seqs.

        A message whose id, role and contents are already there is not written again. A message without an id is given
        one on the object, before the write: so the same call can be made again after an error. With `idempotency_key`
        that id is a fixed function of key and position (`agentstore.batch.derived_id`), so that also another process
        can make it again.

        `expected_last` is the seq that must be the newest living record's (0: none). `snapshot` is saved in the same
        transaction, under `expected_version` as in `save_snapshot`.

        Raises `ConflictError` (an id with other contents, or a condition that does not hold), `UnsupportedValueError`
        or `PayloadTooLargeError`: then nothing was written.
        """
        self._gate.check_open()
        _check_seq("expected_last", expected_last)
        if idempotency_key is not None and (type(idempotency_key) is not str or not idempotency_key):
            raise ValueError("idempotency_key must be a non-empty str")
        if expected_version is not None and snapshot is None:
            raise ValueError("expected_version is a condition on the snapshot: give one")
        batch = await self._encoded(messages, idempotency_key)
        write = None
        if snapshot is not None:
            self._gate.able(Snapshots, "append(snapshot=...)")
            write = snapshots.encode(snapshot, expected_version, self._log.limits)
        if not batch.records and write is None:
            return Appended([], 0, None)
        append = Append(batch.records, batch.token, expected_last=expected_last, snapshot=write, ttl=self._ttl)
        await self._gate.writable()
        return self._appended(batch, await self._append(append))

    async def messages(self, *, limit: int | None = None, before: int | None = None) -> list[Any]:
        """The newest `limit` messages (`None`: all), oldest first; with `before`, of those with a lower seq."""
        return [message for _, message in await self._newest(limit, before)]

    async def records(self, *, limit: int | None = None, before: int | None = None) -> list[StoredMessage]:
        """As `messages`, each with its seq and time."""
        return [_stored(record, message) for record, message in await self._newest(limit, before)]

    def iterate(self, *, after: int = 0, page_size: int = 500) -> AsyncIterator[StoredMessage]:
        """All messages with a seq above `after`, oldest first, in constant memory; each page is one consistent read."""
        self._gate.check_open()
        _check_seq("after", after, optional=False)
        if type(page_size) is not int or page_size < 1:
            raise ValueError("page_size must be an int of at least 1")
        return self._pages(after, page_size)

    async def pop(self) -> StoredMessage | None:
        """Remove the newest message and return it; `None` where there is none. Concurrent callers never get the same.

        Raises `CorruptRecordError`, and removes nothing, if it cannot be read.
        """
        rewriting = self._gate.able(Rewriting, "pop")
        if not await self._gate.readable():
            return None

        async def attempt() -> tuple[StoredMessage | None, bool]:
            newest = await self._log.read(self.key, limit=1, newest=True)
            if not newest:
                return None, True
            stored = _stored(newest[0], self._decode(newest[0]))
            return stored, await settled(rewriting.remove_newest(self.key, newest[0].seq, newest[0].digest))

        return await _until_done("pop", attempt)

    async def truncate(self, *, after: int | None = None, before: int | None = None) -> int:
        """Drop the messages with a seq above `after`, or below `before` (give exactly one); returns how many."""
        self._gate.check_open()
        _check_seq("after", after)
        _check_seq("before", before)
        if (after is None) == (before is None):
            raise ValueError("truncate takes exactly one of after and before")
        if not await self._gate.readable():
            return 0
        return await settled(self._log.truncate(self.key, after=after, before=before))

    async def clear(self) -> int:
        """Drop all messages; returns how many. Seq counter, metadata, snapshot and expiry stay."""
        return await self.truncate(after=0)

    async def replace(self, messages: Iterable[Any], *, after: int = 0, expected_last: int | None = None) -> Appended:
        """Swap every message with a seq above `after` for these, in one step, with new seqs.

        Pass the last seq that you read as `expected_last`: if anything was appended since, `ConflictError` is raised
        and nothing changes. Ids may repeat those that are replaced.
        """
        rewriting = self._gate.able(Rewriting, "replace")
        _check_seq("after", after, optional=False)
        _check_seq("expected_last", expected_last)
        batch = await self._encoded(messages)
        replace = Replace(batch.records, after=after, expected_last=expected_last, begin_ttl=self._ttl)
        if batch.records:
            await self._gate.writable()
        elif not await self._gate.readable():
            plan = plan_append(replace, Current())
            return self._appended(batch, plan if isinstance(plan, Refused) else plan.answer(replace, Current(), 1))
        return self._appended(batch, await settled(rewriting.replace(self.key, replace)))

    async def update(self, message: Any) -> bool:
        """Give the message with this `message_id` new contents, at the same seq; `False` if there is none."""
        rewriting = self._gate.able(Rewriting, "update")
        record = encode_one(self._codec, message, self._log.limits)
        if not await self._gate.readable():
            return False
        return await settled(rewriting.update(self.key, record))

    async def delete(self) -> None:
        """Remove every trace of the session."""
        catalog = self._gate.able(Catalog, "delete")
        if await self._gate.readable():
            await settled(catalog.delete(self.key))

    async def info(self) -> SessionInfo | None:
        """What the store knows about the session; `None` where there is none."""
        catalog = self._gate.able(Catalog, "info")
        if not await self._gate.readable():
            return None
        stored = await catalog.info(self.key)
        return None if stored is None else session_info(stored, skip_corrupt=self._on_corrupt == "skip")

    async def annotate(self, metadata: Mapping[str, Any]) -> None:
        """Merge the top-level keys into the session's metadata; `None` removes a key.

        Disturbs no other writer. Raises `PayloadTooLargeError` where the whole would exceed 16 KiB.
        """
        catalog = self._gate.able(Catalog, "annotate")
        if not isinstance(metadata, Mapping):
            raise TypeError(f"metadata must be a mapping, not {type(metadata).__name__}")
        changes = values.load(values.dump(dict(metadata)))
        if not changes:
            return
        await self._gate.writable()

        async def attempt() -> tuple[None, bool]:
            stored = await catalog.info(self.key)
            old = stored.metadata if stored else None
            new = merge_metadata(self.key, old, changes)
            done = new == old or await settled(catalog.annotate(self.key, old, new, begin_ttl=self._ttl))
            return None, done

        await _until_done("annotate", attempt)

    async def expire(self, at: datetime | None) -> None:
        """Let the session expire at an aware time, or (`None`) never; until the next append of a store with a ttl."""
        catalog = self._gate.able(Catalog, "expire")
        moment = None if at is None else to_microseconds(at)
        if await self._gate.readable():
            await settled(catalog.expire(self.key, moment))

    async def fork(self, new_session_id: str, *, at: int | None = None) -> SessionHistory:
        """Copy the messages up to seq `at` (`None`: all), with seqs, ids and times, into a new session.

        It appears whole or not at all; metadata, snapshot and expiry are not copied. Raises `ConflictError` if it
        exists. A session that does not exist has nothing to copy: none begins.
        """
        rewriting = self._gate.able(Rewriting, "fork")
        _check_seq("at", at)
        key = SessionKey(self.key.namespace, self.key.source_id, new_session_id)
        target = SessionHistory(self._gate, key, self._codec, ttl=self._ttl, on_corrupt=self._on_corrupt)
        if not await self._gate.readable():
            return target
        records = await self._log.read(self.key, before=None if at is None else at + 1)
        if not records and await self.info() is None and await target.info() is None:
            return target
        if not await settled(rewriting.restore(key, _single(records), begin_ttl=self._ttl)):
            raise ConflictError(f"the session {key} exists already; nothing was written")
        return target

    async def save_snapshot(
        self, session: AgentSession | Mapping[str, Any], *, expected_version: int | None = None
    ) -> int:
        """Keep the session (or an adapter's mapping) beside the messages; returns its new version.

        Raises `ConflictError` unless `expected_version` (0: none yet) is the current one, and where the stored one is
        of a newer or unknown format.
        """
        ability = self._gate.able(Snapshots, "save_snapshot")
        _check_seq("expected_version", expected_version)
        write = snapshots.encode(session, expected_version, self._log.limits)
        await self._gate.writable()
        answer = await settled(ability.save_snapshot(self.key, write, begin_ttl=self._ttl))
        return self._accepted(answer, ())

    async def load_snapshot(self) -> Snapshot | None:
        """The snapshot and its version; `None` where there is none. Raises `CorruptRecordError` if unreadable."""
        ability = self._gate.able(Snapshots, "load_snapshot")
        stored = await ability.load_snapshot(self.key) if await self._gate.readable() else None
        if stored is None:
            return None
        try:
            return Snapshot(snapshots.decode(stored), stored.version)
        except ValueError as error:
            raise CorruptRecordError(f"the snapshot of session {self.key} cannot be read: {error}") from error

    async def _encoded(self, messages: Iterable[Any], idempotency_key: str | None = None) -> Batch:
        given = check_messages(messages)
        arguments = self._codec, given, self._log.limits
        if len(given) < _MANY or not give_ids(self._codec, given, idempotency_key):
            return encode_batch(*arguments, idempotency_key=idempotency_key)
        return await asyncio.to_thread(encode_batch, *arguments, idempotency_key=idempotency_key)

    async def _append(self, append: Append) -> Written | Refused:
        try:
            return await settled(self._log.append(self.key, append))
        except UnavailableError as error:
            if not error.maybe_done:
                raise
            _logger.warning("the answer to an append to %s was lost: asking once more", self.key)
        known = tuple([msgspec.structs.replace(record, fresh=False) for record in append.records])
        try:
            return await settled(self._log.append(self.key, msgspec.structs.replace(append, records=known, retry=True)))
        except UnavailableError as error:
            if error.maybe_done:
                raise
            raise UnavailableError(str(error), maybe_done=True) from error  # the first one may have been

    def _appended(self, batch: Batch, answer: Written | Refused) -> Appended:
        written = self._accepted(answer, batch.ids)
        return Appended(
            [written.seqs[place] for place in batch.places], written.written, written.snapshot_version or None
        )

    def _accepted(self, answer: T | Refused, ids: Sequence[str]) -> T:
        """The answer, unless it is a refusal: that becomes a `ConflictError`."""
        if not isinstance(answer, Refused):
            return answer
        clashing = [ids[place] for place in answer.positions]
        reasons = {
            "ids": f"other contents are stored under {', '.join(map(repr, clashing))}",
            "last": f"the newest record is {answer.actual}, not the expected one",
            "version": f"the snapshot's version is {answer.actual}, not the expected one",
            "format": "the stored snapshot has a newer or unknown format: upgrade agentstore to overwrite it",
        }
        raise ConflictError(f"session {self.key}: {reasons[answer.why]}; nothing was written", ids=clashing)

    async def _newest(self, limit: int | None, before: int | None) -> list[tuple[StoredRecord, Any]]:
        self._gate.check_open()
        _check_seq("limit", limit)
        _check_seq("before", before)
        found: list[tuple[StoredRecord, Any]] = []
        if limit == 0 or not await self._gate.readable():
            return found
        while True:
            wanted = None if limit is None else limit - len(found)
            page = await self._log.read(self.key, before=before, limit=wanted, newest=True)
            found = await self._decoded(page) + found
            # Unreadable records that were skipped leave the page short: older ones take their place.
            if wanted is None or len(found) == limit or len(page) < wanted:
                return found
            before = page[0].seq

    async def _pages(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        while await self._gate.readable():
            page = await self._log.read(self.key, after=after, limit=page_size)
            for record, message in await self._decoded(page):
                yield _stored(record, message)
            if len(page) < page_size:
                return
            after = page[-1].seq

    async def _decoded(self, page: Sequence[StoredRecord]) -> list[tuple[StoredRecord, Any]]:
        decoded: list[tuple[StoredRecord, Any]] = []
        work = 0
        for record in page:
            try:
                decoded.append((record, self._decode(record)))
            except CorruptRecordError as error:
                if self._on_corrupt == "raise":
                    raise
                _logger.warning("skipped: %s", error)
            work += _DECODING + len(record.payload)
            if work > _WORK_AT_ONCE:
                work = 0
                await asyncio.sleep(0)
        return decoded

    def _decode(self, record: StoredRecord) -> Any:
        try:
            return decode_record(self._codec, record.format, record.payload)
        except Exception as error:  # a stranger's codec can raise anything where it meets a broken payload
            raise CorruptRecordError(f"record {record.seq} of session {self.key} cannot be read: {error}") from error


async def _until_done(method: str, attempt: Callable[[], Awaitable[tuple[T, bool]]]) -> T:
    """Try a read-then-swap until no other writer came in between; bounded by time, not by a count of tries."""
    deadline = time.monotonic() + CONTENTION_SECONDS
    while True:
        result, done = await attempt()
        if done:
            return result
        if time.monotonic() > deadline:
            raise UnavailableError(f"{method}: other writers came in between for {CONTENTION_SECONDS:.0f} s; not done")


async def _single(records: Sequence[StoredRecord]) -> AsyncIterator[Sequence[StoredRecord]]:
    yield records


def _stored(record: StoredRecord, message: Any) -> StoredMessage:
    try:
        return StoredMessage(record.seq, to_datetime(record.created_at), message)
    except (TypeError, OverflowError) as error:
        raise CorruptRecordError(f"the time of record {record.seq} cannot be read: {error}") from error


def _check_seq(name: str, value: object, *, optional: bool = True) -> None:
    if value is None and optional:
        return
    if type(value) is not int or not 0 <= value < 2**63:
        none = "None or " if optional else ""
        raise ValueError(f"{name} must be {none}an int of at least 0 with at most 63 bits, not {value!r}")
