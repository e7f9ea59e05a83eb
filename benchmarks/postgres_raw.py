"""The bar for PostgreSQL: asyncpg, doing bare inserts and selects; what one writes by hand.

A turn is one statement. The table has nothing but a key and the JSON: no ids, no digests, no session row. Connections
wait on a stack: asyncpg's own pool asks the server to reset each one that comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from benchmarks.sample import Shape, shapes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_CREATE = """
CREATE TABLE raw_message (session bigint, seq bigint, payload bytea NOT NULL, PRIMARY KEY (session, seq))
"""
_INSERT = """
INSERT INTO raw_message SELECT $1, $2 + r.at, r.payload FROM unnest($3::bytea[]) WITH ORDINALITY AS r (payload, at)
"""
_SELECT = "SELECT payload FROM raw_message WHERE session = $1 ORDER BY seq DESC LIMIT $2"


class RawPool:
    """Statements that commit by themselves, on connections that keep them prepared."""

    def __init__(self, connections: list[asyncpg.Connection]) -> None:
        self._all = connections
        self._idle: asyncio.LifoQueue[asyncpg.Connection] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)
        self._last: dict[int, int] = {}

    @classmethod
    async def open(cls, url: str, size: int) -> RawPool:
        """With a new table."""
        connections = [await asyncpg.connect(url) for _ in range(size)]
        await connections[0].execute(_CREATE)
        return cls(connections)

    async def append(self, session: int, messages: Sequence[Shape]) -> None:
        last = self._last.get(session, 0)
        self._last[session] = last + len(messages)
        await self._fetch(_INSERT, session, last, [_encode(message) for message in messages])

    async def newest(self, session: int, limit: int) -> list[Shape]:
        rows = await self._fetch(_SELECT, session, limit)
        return [_decode(payload) for (payload,) in reversed(rows)]

    async def fill(self, session: int, count: int) -> None:
        await self.append(session, shapes(count))

    async def close(self) -> None:
        for connection in self._all:
            await connection.close()

    async def _fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        connection = await self._idle.get()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        finally:
            self._idle.put_nowait(connection)
        return rows
