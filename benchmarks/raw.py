"""The bar for SQLite: one connection on its own thread, doing bare inserts and selects; what one writes by hand.

A job is one hop to the thread. The table has nothing but a key and the JSON: no ids, no digests, no session row.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from benchmarks.sample import Shape, shapes

T = TypeVar("T")
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class RawConnection:
    """Write-ahead log, `synchronous = FULL`, a commit for each append."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA page_size = 8192",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
        ):
            self._connection.execute(statement)
        newest = self._connection.execute("SELECT id >> 32, max(id) & 4294967295 FROM message GROUP BY id >> 32")
        self._last: dict[int, int] = dict(newest.fetchall())
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    async def append(self, session: int, messages: Sequence[Shape]) -> None:
        first = self._last.get(session, 0) + 1
        self._last[session] = first + len(messages) - 1
        start = (session << 32) + first
        rows = [(start + index, _encode(message)) for index, message in enumerate(messages)]
        await self._do(lambda: self._insert(rows))

    async def newest(self, session: int, limit: int) -> list[Shape]:
        rows = await self._do(lambda: self._select(session, limit))
        return [_decode(payload) for (payload,) in reversed(rows)]

    async def fill(self, session: int, count: int) -> None:
        await self.append(session, shapes(count))

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def _insert(self, rows: list[tuple[int, bytes]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO message (id, payload) VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def _select(self, session: int, limit: int) -> list[tuple[bytes]]:
        query = "SELECT payload FROM message WHERE id > ? AND id < ? ORDER BY id DESC LIMIT ?"
        return self._connection.execute(query, (session << 32, (session + 1) << 32, limit)).fetchall()

    async def _do(self, job: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((job, loop, future))
        return await future

    def _work(self) -> None:
        while (todo := self._jobs.get()) is not None:
            job, loop, future = todo
            loop.call_soon_threadsafe(future.set_result, job())
