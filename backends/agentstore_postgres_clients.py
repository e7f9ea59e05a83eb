"""Connections: one pool per event loop and process, or the one that was handed in.

A pool of ours ends with its loop: `asyncio.run` closes asynchronous generators last, and each pool has one that waits
for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from agentstore.errors import ConfigurationError, UnavailableError
from agentstore.loops import PerLoop
from agentstore_postgres_errors import DRIVER_ERRORS, translated
from agentstore_postgres_pool import Pool

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection | PoolConnectionProxy"

# The process that answers is the one that was connected to: no pooler stands between, or one that gives whole sessions.
_DIRECT = (
    "SELECT 1 WHERE pg_backend_pid() = {pid} AND current_setting('default_transaction_isolation') = 'read committed'"
)


class Client(Protocol):
    """The connections of one event loop."""

    ready: bool
    """Whether it was opened."""
    direct: bool
    """Whether a statement alone is one transaction in READ COMMITTED, on a connection that keeps its statements."""

    async def open(self) -> None:
        """Make ready, and find out whether connections are direct; does nothing the second time."""
        ...

    async def take(self, patience: float | None = None) -> Connection:
        """A connection; raises our errors where there is none to be had. `patience` is for what takes long."""
        ...

    async def give_back(self, connection: Connection) -> None:
        """A connection that was closed is replaced."""
        ...

    def renew(self) -> None:
        """Let go of connections to a server that may no longer be the right one."""
        ...

    async def close(self) -> None: ...


class OwnPool:
    """A pool of ours."""

    def __init__(
        self,
        connect: dict[str, Any],
        *,
        size: int,
        timeout: float,
        patience: float | None,
        settings: dict[str, str],
        direct: bool | None,
    ) -> None:
        """`connect` is for `asyncpg.connect`; `settings` are a direct connection's; `direct=None` finds out.

        `timeout` and `patience` are a `Pool`'s.
        """
        self.ready = False
        self.direct = direct is not False
        self._known = direct is not None
        self._arguments = connect
        self._settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        self._opening = asyncio.Lock()
        self._patience = patience
        self._pool = Pool(self._connect, size=size, timeout=timeout, patience=patience)
        self._keeper: AsyncGenerator[None] | None = None
        self.take = self._pool.take

    async def open(self) -> None:
        async with self._opening:
            if self.ready:
                return
            if self._keeper is None:
                self._keeper = self._keep()
                await self._keeper.asend(None)
            await self.give_back(await self.take())
            self.ready = True

    async def give_back(self, connection: Connection) -> None:
        self._pool.give_back(cast("asyncpg.Connection", connection))

    def renew(self) -> None:
        self._pool.renew()

    async def close(self) -> None:
        await self._pool.close()  # not by the keeper: the loop may be ending it at this moment
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.aclose()

    async def _connect(self) -> asyncpg.Connection:
        connection = await self._made()
        try:
            if not self.direct or await self._prepared(connection):
                return connection
        except BaseException:
            connection.terminate()
            raise
        # Somebody stands between. A connection must be told from the start to keep no statements.
        connection.terminate()
        self.direct = False
        return await self._made()

    async def _made(self) -> asyncpg.Connection:
        return await asyncpg.connect(**self._arguments, statement_cache_size=100 if self.direct else 0)

    async def _prepared(self, connection: asyncpg.Connection) -> bool:
        """Whether it is direct; then its settings are made."""
        statement = f"SELECT {self._settings}"
        if not self._known:
            statement += f" WHERE pg_backend_pid() = {connection.get_server_pid()}"
        return await connection.execute(statement, timeout=self._patience) == "SELECT 1"

    async def _keep(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._keeper = None
            await self._pool.close()


class BorrowedPool:
    """An asyncpg pool that was handed in; it is left open."""

    def __init__(self, pool: asyncpg.Pool, *, timeout: float, direct: bool | None) -> None:
        self.ready = direct is not None
        self.direct = bool(direct)
        self._pool = pool
        self._timeout = timeout

    async def open(self) -> None:
        self.direct = await _is_direct(self)
        self.ready = True

    async def take(self, patience: float | None = None) -> Connection:
        if self._pool.is_closing():
            raise ConfigurationError("the asyncpg pool that was handed in is closed")
        try:
            return await self._pool.acquire(timeout=self._timeout)
        except asyncio.TimeoutError as error:
            raise UnavailableError(f"no connection to PostgreSQL within {self._timeout:g} s") from error
        except DRIVER_ERRORS as error:
            raise translated(error, maybe_done=False) from error

    async def give_back(self, connection: Connection) -> None:
        with suppress(*DRIVER_ERRORS):  # it was cut, and is given back all the same
            await self._pool.release(cast("PoolConnectionProxy", connection))

    def renew(self) -> None:
        """Nothing: its owner knows when to let go."""

    async def close(self) -> None:
        """Nothing: whoever made it closes it."""


class BorrowedEngine:
    """A SQLAlchemy `AsyncEngine` on asyncpg that was handed in; it is left open. Calls run on the raw connection."""

    def __init__(self, engine: AsyncEngine, *, direct: bool | None) -> None:
        if engine.dialect.driver != "asyncpg":
            raise ConfigurationError(
                f"the engine that was handed in must use asyncpg, not {engine.dialect.driver}: postgresql+asyncpg://"
            )
        self.ready = direct is not None
        self.direct = bool(direct)
        self._engine = engine
        self._taken: dict[Connection, AsyncConnection] = {}

    async def open(self) -> None:
        self.direct = await _is_direct(self)
        self.ready = True

    async def take(self, patience: float | None = None) -> Connection:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            checked_out = await self._engine.connect()
        except SQLAlchemyError as error:
            raise _unwrapped(error) from error
        except DRIVER_ERRORS as error:
            raise translated(error, maybe_done=False) from error
        raw = (await checked_out.get_raw_connection()).driver_connection
        connection = cast("asyncpg.Connection", raw)
        self._taken[connection] = checked_out
        return connection

    async def give_back(self, connection: Connection) -> None:
        await asyncio.shield(self._given_back(self._taken.pop(connection), connection.is_closed()))

    async def _given_back(self, checked_out: AsyncConnection, dead: bool) -> None:
        if dead:
            await checked_out.invalidate()
        await checked_out.close()

    def renew(self) -> None:
        """Nothing: its owner knows when to let go."""

    async def close(self) -> None:
        """Nothing: whoever made it closes it."""


def _unwrapped(error: Exception) -> Exception:
    """What SQLAlchemy wraps, as one of ours."""
    from sqlalchemy.exc import DBAPIError

    driver = error.orig.__cause__ if isinstance(error, DBAPIError) and error.orig else None
    if isinstance(driver, Exception):
        return translated(driver, maybe_done=False)
    return UnavailableError(f"the engine gave no connection: {type(error).__name__}")


async def on_connection(client: Client, work: Callable[[Connection], Awaitable[T]], patience: float | None = None) -> T:
    """What is done once in a while, not by a call of the waist. A connection on which it fails is ended."""
    connection = await client.take(patience)
    try:
        return await work(connection)
    except DRIVER_ERRORS as error:
        connection.terminate()
        raise translated(error, maybe_done=False) from error
    except BaseException:
        connection.terminate()
        raise
    finally:
        await client.give_back(connection)


async def _is_direct(client: Client) -> bool:
    """Whether no transaction pooler stands between, and READ COMMITTED is the default."""

    async def asked(connection: Connection) -> bool:
        return await connection.execute(_DIRECT.format(pid=connection.get_server_pid())) == "SELECT 1"

    return await on_connection(client, asked)


class Clients(PerLoop[Client]):
    """The client of each event loop of this process."""

    async def here(self) -> Client:
        """The running loop's, open."""
        client = self.client()
        if not client.ready:
            await client.open()
        return client
