"""In-memory backend: `memory://` lives in the store object, `memory://name` is shared in the process.

The reference for what every operation does: plain lists and dicts under one lock; what goes in or out is immutable.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from agentstore.backend import (
    ANSWERS_KEPT,
    Append,
    Current,
    Finding,
    Limits,
    Plan,
    Readiness,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
    Written,
    activity_minute,
    check_snapshot,
    plan_append,
)
from agentstore.errors import ClosedError, ConfigurationError
from agentstore.keys import SessionKey
from agentstore.urls import StoreURL, read_options


class MemoryOptions(msgspec.Struct, frozen=True):
    max_message_bytes: Annotated[int, msgspec.Meta(gt=0)] = 100 * 2**20
    max_append_bytes: Annotated[int, msgspec.Meta(gt=0)] = 400 * 2**20


@dataclass
class _Session:
    created_at: int
    updated_at: int
    expires_at: int | None = None
    next_seq: int = 1
    records: list[StoredRecord] = field(default_factory=list[StoredRecord])  # ascending by seq
    seqs: dict[bytes, int] = field(default_factory=dict[bytes, int])  # by id hash
    answers: dict[bytes, Written] = field(default_factory=dict[bytes, Written])  # by token, oldest first
    metadata: bytes | None = None
    snapshot: StoredSnapshot | None = None
    size: int = 0  # sum of the payloads' bytes

    @property
    def last(self) -> int:
        return self.records[-1].seq if self.records else 0

    def place(self, seq: int) -> int:
        """Where the first record with at least that seq is, or would be."""
        return bisect_left(self.records, seq, key=attrgetter("seq"))

    def put(self, record: StoredRecord) -> None:
        self.records.append(record)
        self.seqs[record.id_hash] = record.seq
        self.size += len(record.payload)

    def drop(self, start: int, stop: int) -> int:
        """Drop the records at these places; how many."""
        for record in (gone := self.records[start:stop]):
            del self.seqs[record.id_hash]
            self.size -= len(record.payload)
        del self.records[start:stop]
        return len(gone)


Sessions = dict[SessionKey, _Session]

_named: dict[str, Sessions] = {}
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not inherit the lock while another thread holds it
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class MemoryBackend:
    """The whole waist in plain lists and dicts: for tests and prototypes, and the model that the others agree with."""

    def __init__(self, name: str | None = None, *, options: MemoryOptions | None = None) -> None:
        options = options or MemoryOptions()
        self.limits = Limits(options.max_message_bytes, options.max_append_bytes)
        self._shared: Sessions = {} if name is None else _named.setdefault(name, {})
        self._closed = False

    @classmethod
    def from_url(cls, url: StoreURL, options: Mapping[str, Any]) -> MemoryBackend:
        """`memory://` or `memory://name`; options: `max_message_bytes`, `max_append_bytes`."""
        if url.path or url.user is not None:
            raise ConfigurationError("an in-memory URL is memory:// or memory://name, nothing more")
        return cls(url.host or None, options=read_options(MemoryOptions, url, options))

    def __repr__(self) -> str:
        return "MemoryBackend()"

    async def readiness(self) -> Readiness:
        return "ready"

    async def setup(self) -> None:
        pass  # there is nothing to create

    async def ping(self) -> None:
        pass  # it always answers

    async def check(self) -> Sequence[Finding]:
        return [Finding("warning", "Everything is in this process's memory, and gone when the process ends.")]

    async def aclose(self) -> None:
        self._closed = True

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        with self._sessions() as sessions:
            session = _living(sessions, key) or _Session(_now(), _now())
            if append.retry and (answer := session.answers.get(append.token)):
                return answer
            plan = plan_append(append, _current(session, append.records))
            if isinstance(plan, Refused):
                return plan
            answer = _write(session, append, plan)
            session.answers[append.token] = answer
            while len(session.answers) > ANSWERS_KEPT:
                del session.answers[next(iter(session.answers))]
            if append.ttl is not None:
                session.expires_at = _now() + append.ttl
            _touch(sessions, key, session)
            return answer

    async def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[StoredRecord]:
        with self._sessions() as sessions:
            if (session := _living(sessions, key)) is None:
                return []
            start = session.place(after + 1)
            stop = len(session.records) if before is None else session.place(before)
            if limit is not None and newest:
                start = max(start, stop - limit)
            elif limit is not None:
                stop = min(stop, start + limit)
            return session.records[start:stop]

    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        with self._sessions() as sessions:
            if (session := _living(sessions, key)) is None:
                return 0
            start = 0 if after is None else session.place(after + 1)
            stop = len(session.records) if before is None else session.place(before)
            _touch(sessions, key, session)
            return session.drop(start, stop)

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        with self._sessions() as sessions:
            session = _living(sessions, key) or _begun(replace.begin_ttl)
            current = _current(session, replace.records)
            kept = {id_hash: found for id_hash, found in current.known.items() if found[0] <= replace.after}
            plan = plan_append(replace, msgspec.structs.replace(current, known=kept))
            if isinstance(plan, Refused):
                return plan
            session.drop(session.place(replace.after + 1), len(session.records))
            answer = _write(session, replace, plan)
            if replace.records or _living(sessions, key):
                _touch(sessions, key, session)
            return answer

    async def update(self, key: SessionKey, record: Record) -> bool:
        with self._sessions() as sessions:
            session = _living(sessions, key)
            if session is None or (seq := session.seqs.get(record.id_hash)) is None:
                return False
            place = session.place(seq)
            old = session.records[place]
            session.records[place] = _stored(record, seq, old.created_at)
            session.size += len(record.payload) - len(old.payload)
            _touch(sessions, key, session)
            return True

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        with self._sessions() as sessions:
            session = _living(sessions, key)
            if session is None or not session.records or session.records[-1].seq != seq:
                return False
            if session.records[-1].digest != digest:
                return False
            session.drop(len(session.records) - 1, len(session.records))
            _touch(sessions, key, session)
            return True

    async def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> bool:
        session = _begun(begin_ttl)
        async for page in pages:
            for record in page:
                session.put(record)
        session.next_seq = session.last + 1
        with self._sessions() as sessions:
            if _living(sessions, key):
                return False
            _touch(sessions, key, session)
            return True

    async def info(self, key: SessionKey) -> StoredInfo | None:
        with self._sessions() as sessions:
            session = _living(sessions, key)
            return None if session is None else _info(key, session)

    async def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Sequence[StoredInfo]:
        with self._sessions() as sessions:
            wanted = [key for key in sessions if key.namespace == namespace and source_id in (None, key.source_id)]
            infos = [_info(key, session) for key in wanted if (session := _living(sessions, key))]
        places = sorted((-activity_minute(i.updated_at), i.key.source_id, i.key.session_id, i) for i in infos)
        behind = (-start[0], *start[1:]) if start else None
        return [place[3] for place in places if behind is None or place[:3] > behind][:limit]

    async def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> bool:
        with self._sessions() as sessions:
            session = _living(sessions, key) or _begun(begin_ttl)
            if session.metadata != old:
                return False
            session.metadata = new
            _touch(sessions, key, session)
            return True

    async def expire(self, key: SessionKey, at: int | None) -> None:
        with self._sessions() as sessions:
            if session := _living(sessions, key):
                session.expires_at = at

    async def delete(self, key: SessionKey) -> bool:
        with self._sessions() as sessions:
            existed = _living(sessions, key) is not None
            sessions.pop(key, None)
            return existed

    async def purge(self, namespace: str | None) -> int:
        with self._sessions() as sessions:
            gone = [k for k in sessions if namespace in (None, k.namespace) and not _living(sessions, k)]
            for key in gone:
                del sessions[key]
            return len(gone)

    async def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> int | Refused:
        with self._sessions() as sessions:
            session = _living(sessions, key) or _begun(begin_ttl)
            if refused := check_snapshot(snapshot, _current(session, ())):
                return refused
            version = _save(session, snapshot)
            _touch(sessions, key, session)
            return version

    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        with self._sessions() as sessions:
            session = _living(sessions, key)
            return session.snapshot if session else None

    @contextmanager
    def _sessions(self) -> Generator[Sessions]:
        if self._closed:
            raise ClosedError("the in-memory backend is closed")
        with _lock:
            yield self._shared


def _now() -> int:
    return time.time_ns() // 1000


def _begun(ttl: int | None) -> _Session:
    now = _now()
    return _Session(now, now, None if ttl is None else now + ttl)


def _living(sessions: Sessions, key: SessionKey) -> _Session | None:
    session = sessions.get(key)
    return session if session and (session.expires_at is None or session.expires_at > _now()) else None


def _touch(sessions: Sessions, key: SessionKey, session: _Session) -> None:
    """Put a changed session, or one that just began, in its place."""
    session.updated_at = _now()
    sessions[key] = session


def _current(session: _Session, records: Sequence[Record]) -> Current:
    known = {r.id_hash: seq for r in records if (seq := session.seqs.get(r.id_hash))}
    return Current(
        last=session.last,
        known={id_hash: (seq, session.records[session.place(seq)].digest) for id_hash, seq in known.items()},
        snapshot_version=session.snapshot.version if session.snapshot else 0,
        snapshot_format=session.snapshot.format if session.snapshot else None,
    )


def _write(session: _Session, write: Append | Replace, plan: Plan) -> Written:
    current = _current(session, write.records)
    first, now = session.next_seq, _now()
    for seq, record in enumerate(plan.new, first):
        session.put(_stored(record, seq, now))
    session.next_seq = first + len(plan.new)
    if plan.snapshot:
        _save(session, plan.snapshot)
    return plan.answer(write, current, first)


def _save(session: _Session, snapshot: SnapshotWrite) -> int:
    version = (session.snapshot.version if session.snapshot else 0) + 1
    session.snapshot = StoredSnapshot(version, snapshot.format, snapshot.payload)
    return version


def _stored(record: Record, seq: int, created_at: int) -> StoredRecord:
    return StoredRecord(seq, created_at, record.id_hash, record.digest, record.format, record.payload)


def _info(key: SessionKey, session: _Session) -> StoredInfo:
    return StoredInfo(
        key=key,
        count=len(session.records),
        first_seq=session.records[0].seq if session.records else 0,
        last_seq=session.last,
        created_at=session.created_at,
        updated_at=session.updated_at,
        expires_at=session.expires_at,
        size=session.size,
        metadata=session.metadata,
    )
