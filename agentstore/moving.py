"""A session as a whole, as it leaves one place and appears in another: its records, and what lies beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agentstore.backend import (
    UNREADABLE,
    Catalog,
    Limits,
    Log,
    Refused,
    Rewriting,
    Snapshots,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
)
from agentstore.batch import check_size
from agentstore.errors import AgentStoreError, ConflictError, CorruptRecordError, UnavailableError
from agentstore.gate import Gate
from agentstore.history import CONTENTION_SECONDS
from agentstore.keys import SessionKey
from agentstore.settle import settled

Pages = AsyncIterator[Sequence[StoredRecord]]

LEASE = 600_000_707
"""Microseconds that a copy lives before metadata, snapshot and expiry are in: what dies there leaves nothing for long.

The odd number is the mark by which the next try knows it, and completes it.
"""

_PAGE_BYTES = 2 * 2**20  # about, so that memory is the same for any session
_PAGE_RECORDS = 500


@dataclass(frozen=True)
class Beside:
    """What a session has beside its messages."""

    metadata: bytes | None = None
    snapshot: tuple[str, bytes] | None = None
    """Format and payload."""
    expires_at: int | None = None


@dataclass(frozen=True)
class Whole:
    """One session as it was at one moment."""

    beside: Beside
    pages: Pages
    """Its records, oldest first. Raises where they turn out not to be those of that moment."""
    unfinished: bool = False
    """Whether it is a copy that its writer did not complete."""


async def read_whole(gate: Gate, key: SessionKey) -> Whole | None:
    """The session as it is now; `None` where there is none. What is appended while its pages are read is not in them.

    The pages raise `CorruptRecordError` for a record that cannot be given back, and `ConflictError` where records were
    removed, or the session began anew, while they were read. Raises `UnavailableError` where new snapshots kept coming
    in between for 30 s.
    """
    if not await gate.readable():
        return None
    snapshot, info = await _moment(gate.backend, key)
    if info is None:
        return None
    beside = Beside(info.metadata, (snapshot.format, snapshot.payload) if snapshot else None, info.expires_at)
    unfinished = info.expires_at is not None and info.expires_at - info.created_at == LEASE
    return Whole(beside, _read_pages(gate.backend, info), unfinished)


async def put_whole(gate: Gate, key: SessionKey, whole: Whole) -> bool:
    """Let the session appear under that key, at once or not at all; `False`: an equal one is there already.

    Raises `ConflictError` where another one is there, `PayloadTooLargeError`, `ConfigurationError` where the backend
    lacks an ability that it takes, and what the pages raise; then nothing is written.
    """
    gate.able(Rewriting, "copying a session")
    if whole.beside.snapshot is not None:
        gate.able(Snapshots, "copying a snapshot")
        check_size(whole.beside.snapshot[1], gate.backend.limits, f"the snapshot of session {key}")
    if whole.beside.metadata is not None or whole.beside.expires_at is not None:
        gate.able(Catalog, "copying metadata and expiry")
    await gate.writable()
    there = await read_whole(gate, key)
    if there is None:
        return await _restored(gate.backend, key, whole)
    if not await _same_records(there.pages, whole.pages):
        raise ConflictError(f"another session {key} is there already; nothing was written")
    if there.beside == whole.beside:
        return False
    if there.unfinished and _is_part(there.beside, whole.beside):
        await settled(_finished(gate.backend, key, whole.beside, there.beside))
        return True
    raise ConflictError(
        f"a session {key} with other metadata, snapshot or expiry is there already; nothing was written"
    )


async def _moment(backend: Log, key: SessionKey) -> tuple[StoredSnapshot | None, StoredInfo | None]:
    """Snapshot and info of one moment: the info is read between two looks at a snapshot that did not change."""
    deadline = time.monotonic() + CONTENTION_SECONDS
    snapshot = await _snapshot(backend, key)
    while True:
        info = await _info(backend, key, snapshot)
        if (again := await _snapshot(backend, key)) == snapshot:
            return snapshot, info
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"session {key}: its snapshot kept changing for {CONTENTION_SECONDS:.0f} s; not read"
            )
        snapshot = again


async def _snapshot(backend: Log, key: SessionKey) -> StoredSnapshot | None:
    return await backend.load_snapshot(key) if isinstance(backend, Snapshots) else None


async def _info(backend: Log, key: SessionKey, snapshot: StoredSnapshot | None) -> StoredInfo | None:
    if isinstance(backend, Catalog):
        return await backend.info(key)
    newest = await backend.read(key, limit=1, newest=True)
    if not newest and snapshot is None:
        return None
    last = newest[0].seq if newest else 0
    return StoredInfo(key, last, 0, last, 0, 0, None, 0, None)


async def _read_pages(backend: Log, info: StoredInfo) -> Pages:
    after, count, limit = 0, 0, _fitting(info.size, info.count)
    while after < info.last_seq:
        page = await backend.read(info.key, after=after, before=info.last_seq + 1, limit=limit)
        if not page:
            break
        _check_readable(info.key, page)
        yield page
        after, count = page[-1].seq, count + len(page)
        limit = _fitting(sum([len(record.payload) for record in page]), len(page))
    if isinstance(backend, Catalog):
        now = await backend.info(info.key)
        if count != info.count or now is None or now.created_at != info.created_at:
            raise ConflictError(f"messages of session {info.key} were removed while it was read; nothing was written")


def _fitting(size: int, count: int) -> int:
    """How many records of that average size make a page."""
    return max(1, min(_PAGE_RECORDS, _PAGE_BYTES * max(count, 1) // max(size, 1)))


def _check_readable(key: SessionKey, page: Sequence[StoredRecord]) -> None:
    for record in page:
        if record.format == UNREADABLE:
            raise CorruptRecordError(
                f"record {record.seq} of session {key} cannot be read: {record.payload.decode(errors='replace')}"
            )


async def _same_records(pages: Pages, others: Pages) -> bool:
    expected = _records(others)
    async for record in _records(pages):
        if await anext(expected, None) != record:
            return False
    return await anext(expected, None) is None


async def _records(pages: Pages) -> AsyncIterator[StoredRecord]:
    async for page in pages:
        for record in page:
            yield record


def _is_part(part: Beside, whole: Beside) -> bool:
    return part.metadata in (None, whole.metadata) and part.snapshot in (None, whole.snapshot)


class _AbandonedError(AgentStoreError):
    """The call was cancelled: no more pages come."""


async def _restored(backend: Log, key: SessionKey, whole: Whole) -> bool:
    """Restore the session in a task of its own: a cancellation ends its pages, or waits until all is there."""
    cancelled = asyncio.Event()

    async def given() -> Pages:
        async for page in whole.pages:
            if cancelled.is_set():
                raise _AbandonedError(f"session {key}: cancelled; nothing was written")
            _check_sizes(key, page, backend.limits)
            yield page

    work = asyncio.ensure_future(_appeared(backend, key, given(), whole.beside))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled.set()
        with suppress(AgentStoreError):  # who cancelled is told of the cancellation
            await settled(work)
        raise


def _check_sizes(key: SessionKey, page: Sequence[StoredRecord], limits: Limits) -> None:
    for record in page:
        check_size(record.payload, limits, f"message {record.seq} of session {key}")


async def _appeared(backend: Log, key: SessionKey, pages: Pages, beside: Beside) -> bool:
    assert isinstance(backend, Rewriting)
    more = beside != Beside()
    lease = LEASE if more and isinstance(backend, Catalog) else None
    if not await backend.restore(key, pages, begin_ttl=lease):
        raise ConflictError(f"a session {key} began meanwhile; nothing was written")
    if more:
        await _finished(backend, key, beside, Beside())
    return True


async def _finished(backend: Log, key: SessionKey, beside: Beside, there: Beside) -> None:
    """Add what is not there yet; the expiry comes last, in place of the lease."""
    kept = True
    if isinstance(backend, Catalog) and beside.metadata != there.metadata:
        kept = await backend.annotate(key, None, beside.metadata)
    if isinstance(backend, Snapshots) and beside.snapshot is not None and there.snapshot is None:
        format, payload = beside.snapshot
        write = SnapshotWrite(format, payload, frozenset({format}), expected_version=0)
        kept = not isinstance(await backend.save_snapshot(key, write), Refused) and kept
    if isinstance(backend, Catalog):
        await backend.expire(key, beside.expires_at)
    if not kept:
        raise ConflictError(f"session {key}: its messages are there, and metadata or snapshot that another one wrote")
