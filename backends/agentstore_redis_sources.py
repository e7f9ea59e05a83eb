"""Where lanes have their connections from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPoolInterface


class OwnSource:
    """Connections of ours."""

    keeps = True

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self.connect = connect

    async def release(self, connection: AbstractConnection, *, broken: bool) -> None:
        await connection.disconnect(nowait=broken)


class PoolSource:
    """Connections of a client that was handed in: each goes back to its pool when nothing is left to ask."""

    keeps = False

    def __init__(self, pool: ConnectionPoolInterface) -> None:
        self._pool = pool

    async def connect(self) -> AbstractConnection:
        return await self._pool.get_connection()

    async def release(self, connection: AbstractConnection, *, broken: bool) -> None:
        if broken:
            await connection.disconnect(nowait=True)
        await self._pool.release(connection)
