"""SQLite backend: `sqlite:///relative.db`, `sqlite:////absolute.db`. No driver beyond the standard library.

One writer thread per backend object, whose waiting appends share a commit, and a few readers (see
`agentstore_sqlite_lanes`). Many processes may use one file: writers wait in line for up to `timeout` seconds.
The file's layout is in `agentstore_sqlite_schema`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec

import agentstore_sqlite_catalog as catalog
import agentstore_sqlite_forks as forks
import agentstore_sqlite_log as log
import agentstore_sqlite_schema as schema
from agentstore.backend import (
    Append,
    Finding,
    Limits,
    Readiness,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
    Written,
)
from agentstore.errors import ClosedError, ConfigurationError
from agentstore.keys import SessionKey
from agentstore.urls import StoreURL, read_options
from agentstore_sqlite_append import Appending, append_all
from agentstore_sqlite_lanes import Lane, Work, translated

T = TypeVar("T")

LONG_READ = 1000
"""Reads of more messages than this, or of all, go to a thread of their own, so that short ones need not wait."""


_FINDINGS = {
    "full": Finding("ok", "An acknowledged turn is on the disk: a crash or a power cut loses none."),
    "normal": Finding("warning", "A power cut may lose the last acknowledged turns; a killed process loses none."),
}
_FULL_DISK = Finding("ok", "When the disk is full, writes fail with an error and nothing is half-written.")


class SQLiteOptions(msgspec.Struct, frozen=True):
    synchronous: Literal["full", "normal"] = "full"
    """`full`: an acknowledged write survives a power cut. `normal`: it survives a killed process."""
    timeout: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """Seconds to wait while another process holds the file."""
    max_message_bytes: Annotated[int, msgspec.Meta(gt=0, le=900 * 2**20)] = 100 * 2**20
    max_append_bytes: Annotated[int, msgspec.Meta(gt=0)] = 400 * 2**20


class _Lanes:
    """The threads of one backend in one process."""

    def __init__(self, path: str, options: SQLiteOptions) -> None:
        writing = f"synchronous = {options.synchronous}", "cache_size = -8192"
        writer, reader = [
            partial(schema.connect, path, options.timeout, *pragmas) for pragmas in (writing, ("query_only = ON",))
        ]
        identify = partial(schema.identify, path)
        self.writer = Lane("agentstore-sqlite-writer", writer, identify, writes=True, together={Appending: append_all})
        self.reader = Lane("agentstore-sqlite-reader", reader, identify, writes=False)
        self.long_reader = Lane("agentstore-sqlite-long-reader", reader, identify, writes=False)

    def stop(self) -> None:
        for lane in (self.writer, self.reader, self.long_reader):
            lane.stop()

    def join(self) -> None:
        for lane in (self.writer, self.reader, self.long_reader):
            lane.join()


class SQLiteBackend:
    """The whole waist on one SQLite file in write-ahead-log mode."""

    def __init__(self, path: str | os.PathLike[str], *, options: SQLiteOptions | None = None) -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigurationError("a SQLite store needs a file: sqlite:///chat.db; use memory:// for none")
        self._path = os.path.abspath(path)
        self._options = options or SQLiteOptions()
        self.limits = Limits(self._options.max_message_bytes, self._options.max_append_bytes)
        self._closed = False
        self._lock = threading.Lock()
        self._aside_lock = threading.Lock()  # held while a connection beside those of the lanes is open
        self._lanes: _Lanes | None = None
        forks.join(self)

    @classmethod
    def from_url(cls, url: StoreURL, options: Mapping[str, Any]) -> SQLiteBackend:
        """`sqlite:///relative.db` or `sqlite:////absolute.db`; options as in `SQLiteOptions`."""
        if url.host or url.user:
            raise ConfigurationError("a SQLite URL has no host: sqlite:///relative.db or sqlite:////absolute.db")
        return cls(url.path, options=read_options(SQLiteOptions, url, options))

    def __repr__(self) -> str:
        return f"SQLiteBackend({self._path!r})"

    async def readiness(self) -> Readiness:
        return await self._aside(partial(schema.inspect, self._path, self._options.timeout))

    async def setup(self) -> None:
        await self._aside(partial(schema.set_up, self._path, self._options.timeout))

    async def ping(self) -> None:
        await self.readiness()

    async def check(self) -> Sequence[Finding]:
        await self.readiness()
        return [_FINDINGS[self._options.synchronous], _FULL_DISK]

    async def aclose(self) -> None:
        self._closed = True
        with self._lock:
            lanes, self._lanes = self._lanes, None
        if lanes:
            lanes.stop()
            await asyncio.to_thread(lanes.join)

    def append(self, key: SessionKey, append: Append) -> Future[Written | Refused]:
        return self._write(Appending(key, append))

    def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Future[list[StoredRecord]]:
        lanes = self._ours()
        lane = lanes.long_reader if limit is None or limit > LONG_READ else lanes.reader
        return lane.do(partial(log.read, key=key, after=after, before=before, limit=limit, newest=newest))

    def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> Future[int]:
        return self._write(partial(log.truncate, key=key, after=after, before=before))

    def replace(self, key: SessionKey, replace: Replace) -> Future[Written | Refused]:
        return self._write(partial(log.replace, key=key, replace=replace))

    def update(self, key: SessionKey, record: Record) -> Future[bool]:
        return self._write(partial(log.update, key=key, record=record))

    def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> Future[bool]:
        return self._write(partial(log.remove_newest, key=key, seq=seq, digest=digest))

    async def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> bool:
        staged = await self._write(partial(log.stage, key=key))
        async for page in pages:
            await self._write(partial(log.fill, session=staged, page=page))
        return await self._write(partial(log.link, session=staged, key=key, ttl=begin_ttl))

    def info(self, key: SessionKey) -> Future[StoredInfo | None]:
        return self._read(partial(catalog.info, key=key))

    def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Future[Sequence[StoredInfo]]:
        return self._read(partial(catalog.listing, namespace=namespace, source=source_id, limit=limit, start=start))

    def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> Future[bool]:
        return self._write(partial(catalog.annotate, key=key, old=old, new=new, ttl=begin_ttl))

    def expire(self, key: SessionKey, at: int | None) -> Future[None]:
        return self._write(partial(catalog.expire, key=key, at=at))

    def delete(self, key: SessionKey) -> Future[bool]:
        return self._write(partial(catalog.delete, key=key))

    async def purge(self, namespace: str | None) -> int:
        purged, last = 0, 0
        while page := await self._read(partial(catalog.expired, namespace=namespace, after=last)):
            for session in page:
                purged += await self._write(partial(catalog.purge, session=session))
            last = page[-1]
        return purged

    def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> Future[int | Refused]:
        return self._write(partial(catalog.save_snapshot, key=key, snapshot=snapshot, ttl=begin_ttl))

    def load_snapshot(self, key: SessionKey) -> Future[StoredSnapshot | None]:
        return self._read(partial(catalog.load_snapshot, key=key))

    def _write(self, step: Work[T]) -> Future[T]:
        return self._ours().writer.do(step)

    def _read(self, step: Work[T]) -> Future[T]:
        return self._ours().reader.do(step)

    async def _aside(self, step: Callable[[], T]) -> T:
        """Run what needs its own connection, once in a while, in a thread of its own."""
        if self._closed:
            raise ClosedError("the SQLite backend is closed")

        def guarded() -> T:
            with self._aside_lock:
                return step()

        try:
            return await asyncio.to_thread(guarded)
        except sqlite3.Error as error:
            raise translated(error) from error
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be made or read: {error.strerror}") from error

    def _ours(self) -> _Lanes:
        with self._lock:
            if self._closed:
                raise ClosedError("the SQLite backend is closed")
            if self._lanes is None:
                self._lanes = _Lanes(self._path, self._options)
                weakref.finalize(self, self._lanes.stop)
            return self._lanes

    def hold(self) -> None:
        """Before a fork: finish what is done aside."""
        self._aside_lock.acquire()

    def go_on(self) -> None:
        """After it, in the parent."""
        self._aside_lock.release()

    def begin_anew(self) -> None:
        """After it, in the child, where the parent's threads are not."""
        self._aside_lock.release()
        self._lock = threading.Lock()
        self._lanes = None
