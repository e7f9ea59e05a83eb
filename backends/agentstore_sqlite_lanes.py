"""Threads that own a SQLite connection each, so that no event loop ever waits for a disk.

A lane works off its queue in order. The writer's lane puts what is waiting into one transaction: many turns share one
commit. If a piece of work fails, the transaction is rolled back and each is done again in one of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from queue import SimpleQueue
from typing import Any, TypeVar

import agentstore_sqlite_forks as forks
from agentstore.errors import (
    AgentStoreError,
    ClosedError,
    ConfigurationError,
    PayloadTooLargeError,
    StorageError,
    UnavailableError,
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MAX_TOGETHER = 128
"""Most pieces of work that share one commit."""
TOGETHER_SECONDS = 0.005
"""How long a result waits for others to leave with."""


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Hand the outcome to the waiting task; runs in its loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Lane:
    """One thread with one connection, opened at the first work. It holds still at a fork."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        identify: Callable[[], object],
        *,
        writes: bool,
        together: Mapping[type, Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]] | None = None,
    ) -> None:
        """`identify` tells one file from another; `together` has, by kind of work, how neighbours are done at once."""
        self._connect = connect
        self._identify = identify
        self._file: object = None
        self._together = together or {}
        self._connection: sqlite3.Connection | None = None
        self._run = self._commit_together if writes else self._run_each
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()  # nothing may be queued behind the end
        self._working = threading.Lock()  # held while the connection is in use
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        forks.join(self)

    @property
    def waiting(self) -> int:
        """How many pieces of work wait in line."""
        return self._queue.qsize()

    def do(self, work: Work[T]) -> asyncio.Future[T]:
        """The result of the work, done in the lane's thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise ClosedError("the SQLite backend is closed")
            self._queue.put(_Job(work, loop, future))
        return future

    def stop(self) -> None:
        """Let the lane finish what waits, then close its connection and end. Does not wait for it."""
        with self._lock:
            self._closed = True
            self._queue.put(None)

    def join(self) -> None:
        """Wait until a stopped lane has ended."""
        self._thread.join()

    def hold(self) -> None:
        """Finish the piece of work at hand, close the connection, and wait for `go_on`."""
        self._working.acquire()
        self._disconnect()

    def go_on(self) -> None:
        """Work again."""
        self._working.release()

    begin_anew = go_on  # nobody waits in a child: its backend makes new lanes

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            wanted = [job for job in jobs if not job.future.cancelled()]
            if wanted:
                with self._working:
                    self._run(wanted)
            del jobs, wanted  # an idle lane must not keep the last results alive
        with self._working:
            self._disconnect()

    def _next(self) -> list[_Job] | None:
        jobs: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MAX_TOGETHER:
                return jobs
            if self._queue.empty():  # nobody else takes from it
                return jobs
            job = self._queue.get()
        if jobs:
            self._queue.put(None)  # work first, then stop
            return jobs
        return None

    def _run_each(self, jobs: Sequence[_Job]) -> None:
        # Results that waited together leave together, unless that would keep one waiting: each hand-over costs a switch
        # between threads.
        done: list[_Job] = []
        begun = time.monotonic()
        for job in jobs:
            try:
                job.result = job.work(self._connected())
            except Exception as error:  # whatever it is, it belongs to who waits
                job.error = translated(error)
            done.append(job)
            if time.monotonic() - begun > TOGETHER_SECONDS:
                _deliver(done)
                done, begun = [], time.monotonic()
        _deliver(done)

    def _commit_together(self, jobs: Sequence[_Job]) -> None:
        if not self._commit(jobs) and len(jobs) > 1:
            for job in jobs:  # one of them failed, which must not cost the others their turn
                self._commit([job])
        _deliver(jobs)

    def _commit(self, jobs: Sequence[_Job]) -> bool:
        """Do the jobs in one transaction; `False` if one of them failed and none is done."""
        working = committing = False
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            working = True
            for kind, some in groupby(jobs, key=lambda job: type(job.work)):
                self._do(connection, kind, list(some))
            working, committing = False, True
            connection.execute("COMMIT")
        except Exception as error:  # whatever it is, it belongs to those who wait
            for job in jobs:
                job.error = translated(error, maybe_done=committing)
            self._roll_back()
        return not working

    def _do(self, connection: sqlite3.Connection, kind: type, jobs: Sequence[_Job]) -> None:
        do_all = self._together.get(kind)
        works = [job.work for job in jobs]
        results = do_all(connection, works) if do_all else [work(connection) for work in works]
        for job, result in zip(jobs, results, strict=True):
            job.error, job.result = None, result

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._file != self._identify():
            self._disconnect()  # the file was replaced or removed: what is written to the old one nobody would see
        if self._connection is None:
            self._file = self._identify()
            self._connection = self._connect()
        return self._connection

    def _roll_back(self) -> None:
        try:
            if self._connection and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()  # one that cannot roll back would lock out every other writer

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def translated(error: Exception, *, maybe_done: bool = False) -> Exception:
    """The driver's error as one of ours, with the driver's as its cause; any other as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    ours = _kind(error, maybe_done)
    ours.__cause__ = error
    return ours


def _kind(error: sqlite3.Error, maybe_done: bool) -> AgentStoreError:
    name: str = getattr(error, "sqlite_errorname", "") or _NAMES.get(str(error), "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return ConfigurationError(
            f"SQLite cannot use the file: {error}; check its path, its kind, and the permission to write it and its "
            "folder, which is needed to read, too (for the write-ahead log)"
        )
    if name.startswith("SQLITE_TOOBIG"):
        return PayloadTooLargeError(f"SQLite: {error}; nothing was written")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return UnavailableError(
            f"another process held the SQLite file for the whole of timeout: {error}", maybe_done=maybe_done
        )
    if isinstance(error, sqlite3.OperationalError):
        return UnavailableError(f"SQLite: {error}", maybe_done=maybe_done)
    return StorageError(f"SQLite: {error}")


# What SQLite says, for Python 3.10, which does not give the name.
_NAMES = {
    "file is not a database": "SQLITE_NOTADB",
    "attempt to write a readonly database": "SQLITE_READONLY",
    "unable to open database file": "SQLITE_CANTOPEN",
    "string or blob too big": "SQLITE_TOOBIG",
    "database is locked": "SQLITE_BUSY",
    "database table is locked": "SQLITE_LOCKED",
}


def _deliver(jobs: Sequence[_Job]) -> None:
    for loop in {job.loop for job in jobs}:
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_settle, mine)
        except RuntimeError:
            continue  # the loop is closed: nobody waits any more


def _settle(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.settle()
