"""Sessions from store to store, or to a file and back, exactly: seqs, times, ids, formats and payloads as they are.

Metadata, snapshot and expiry come along. Not kept are the times at which a session began and was last written to (its
messages keep theirs), its snapshot's version, its seq counter beyond the newest message, and remembered answers.

A session is taken as it is at one moment; what is appended to it afterwards is not in the copy, and a message that is
updated meanwhile is there in its old or new form. It appears at once or not at all. One with metadata, snapshot or
expiry appears on a lease of ten minutes, which ends when these are in: after a crash in between it is completed by the
next try, or goes by itself. Memory is that of a page, and of 16 bytes for each session of a listing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

from agentstore.backend import Catalog, StoredInfo, activity_minute
from agentstore.catalog import start_after
from agentstore.errors import ConflictError, CorruptRecordError, PayloadTooLargeError, StorageError
from agentstore.export_file import ExportFileError as ExportFileError
from agentstore.export_file import ExportReader, ExportWriter
from agentstore.gate import Gate
from agentstore.history import SessionHistory
from agentstore.keys import SessionKey, check_id
from agentstore.moving import put_whole, read_whole
from agentstore.store import HistoryStore

_LISTED_AT_ONCE = 200
_OF_ONE_SESSION = (ConflictError, CorruptRecordError, PayloadTooLargeError)  # others can still be moved
_logger = logging.getLogger("agentstore")


@dataclass(frozen=True)
class Moved:
    """What became of one session."""

    key: SessionKey
    outcome: Literal["copied", "equal", "failed"]
    """`equal`: the very same is there already."""
    error: StorageError | None = None


@dataclass(frozen=True)
class Transferred:
    """The answer to `copy_sessions` and `import_sessions`: how many sessions."""

    copied: int
    equal: int
    """Those that were there already, the very same."""


Report = Callable[[Moved], None]


async def copy_session(chat: SessionHistory, target: SessionHistory) -> bool:
    """Copy one session to another key or store; `False` where there is none, or the very same is there already.

    Raises `ConflictError` where another one is there, or messages were removed while it was read,
    `CorruptRecordError`, `PayloadTooLargeError`, and `ConfigurationError` where the target's backend lacks an ability
    that this takes. Then nothing was written.
    """
    return bool(await _copied(chat._gate, target._gate, chat.key, target.key))


async def copy_sessions(
    store: HistoryStore,
    target: HistoryStore,
    *,
    namespaces: Sequence[str] | None = None,
    source_id: str | None = None,
    session_id: str | None = None,
    report: Report | None = None,
) -> Transferred:
    """Copy the sessions of the namespaces (`None`: the store's own) under the same keys to another store.

    With `source_id` and `session_id` only those of that name. Each is tried, as by `copy_session`, and told to
    `report` (without it, failures are logged); then the first one's error is raised. The same call can be made again:
    what is there already is left alone. A session that was there before the call began is not missed because somebody
    writes to it.
    """
    count = _Count(report)
    async for key in _keys(store, namespaces, source_id, session_id):
        await count.add(key, _copied(store._gate, target._gate, key))
    return count.result()


async def export_sessions(
    store: HistoryStore,
    file: BinaryIO,
    *,
    namespaces: Sequence[str] | None = None,
    source_id: str | None = None,
    session_id: str | None = None,
) -> int:
    """Write the sessions, chosen as in `copy_sessions`, to a file open for writing; returns how many.

    Raises `CorruptRecordError` for a record that cannot be given back and `ConflictError` where messages were removed
    while a session was read: the file is of no use then.
    """
    writer, count = ExportWriter(file), 0
    await writer.begin()
    async for key in _keys(store, namespaces, source_id, session_id):
        if (whole := await read_whole(store._gate, key)) is not None:
            await writer.add(key, whole)
            count += 1
    await writer.finish()
    return count


async def import_sessions(store: HistoryStore, file: BinaryIO, *, report: Report | None = None) -> Transferred:
    """Bring in the sessions of a file that `export_sessions` wrote, under the keys that they had.

    Reports and errors are those of `copy_sessions`, and `ExportFileError` for a file that is torn or changed: no part
    of the session in question is there then, those before it are. The same call can be made again.
    """
    count = _Count(report)
    async for key, whole in ExportReader(file).sessions():
        await count.add(key, put_whole(store._gate, key, whole))
    return count.result()


class _Count:
    """What became of the sessions so far."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._copied = self._equal = 0
        self._first: StorageError | None = None

    async def add(self, key: SessionKey, move: Awaitable[bool | None]) -> None:
        try:
            if (copied := await move) is None:
                return
        except _OF_ONE_SESSION as error:
            self._first = self._first or error
            self._tell(Moved(key, "failed", error))
            return
        self._copied += copied
        self._equal += not copied
        self._tell(Moved(key, "copied" if copied else "equal"))

    def result(self) -> Transferred:
        if self._first is not None:
            raise self._first
        return Transferred(self._copied, self._equal)

    def _tell(self, moved: Moved) -> None:
        if self._report is not None:
            self._report(moved)
        elif moved.error is not None:
            _logger.warning("not copied: %s", moved.error)


async def _copied(source: Gate, target: Gate, key: SessionKey, new: SessionKey | None = None) -> bool | None:
    """Whether it was copied; `None` where there is none."""
    whole = await read_whole(source, key)
    return None if whole is None else await put_whole(target, new or key, whole)


async def _keys(
    store: HistoryStore, namespaces: Sequence[str] | None, source_id: str | None, session_id: str | None
) -> AsyncIterator[SessionKey]:
    """The keys of the sessions that are wanted."""
    if isinstance(namespaces, str):
        raise TypeError("namespaces must be a list of str, not a str")
    wanted = [store.namespace] if namespaces is None else list(dict.fromkeys(namespaces))
    for name, value in (*[("namespace", n) for n in wanted], ("source_id", source_id), ("session_id", session_id)):
        if value is not None:
            check_id(name, value)
    for namespace in wanted:
        if source_id is not None and session_id is not None:
            yield SessionKey(namespace, source_id, session_id)
            continue
        async for key in _listed(store, namespace, source_id):
            if session_id in (None, key.session_id):
                yield key


async def _listed(store: HistoryStore, namespace: str, source_id: str | None) -> AsyncIterator[SessionKey]:
    """Each session that was there when this began, also one that is written to, which moves it to the front."""
    catalog = store._gate.able(Catalog, "listing sessions")
    if not await store._gate.readable():
        return
    seen: set[bytes] = set()
    since, began = 0, None
    while True:
        newest, before = since, len(seen)
        async for info in _listing(catalog, namespace, source_id, since):
            newest = max(newest, activity_minute(info.updated_at))
            is_later = began is not None and activity_minute(info.created_at) > began
            if info.key.hash not in seen and not is_later:
                seen.add(info.key.hash)
                yield info.key
        if len(seen) == before:
            return
        since, began = newest, newest if began is None else began


async def _listing(catalog: Catalog, namespace: str, source_id: str | None, since: int) -> AsyncIterator[StoredInfo]:
    """The sessions of the namespace that were active in that minute or later."""
    start = None
    while page := await catalog.list(namespace, source_id=source_id, limit=_LISTED_AT_ONCE, start=start):
        for info in page:
            if activity_minute(info.updated_at) < since:
                return
            yield info
        start = start_after(page[-1])
