"""One statement, one transaction: sent alone on a direct connection, in four round trips behind a pooler."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from agentstore.errors import UnavailableError
from agentstore_postgres_clients import Client, Clients, Connection
from agentstore_postgres_errors import DRIVER_ERRORS, is_doubtful, translated, was_lost, was_never_sent


class Calls:
    """Runs the statements of one backend."""

    def __init__(self, clients: Clients, settings: dict[str, str]) -> None:
        """`settings` hold for each call that is made in a transaction of its own."""
        self._clients = clients
        local = [f"SET LOCAL {name} = '{value}'" for name, value in settings.items()]
        self._begin = "; ".join(["BEGIN ISOLATION LEVEL READ COMMITTED", *local])

    async def write(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """The statement's rows. Where no answer came, `UnavailableError` says whether it may have taken effect."""
        return await self._call(await self._clients.here(), True, statement, values)

    async def read(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """The rows of a statement that changes nothing; asked once more where the connection was lost."""
        client = await self._clients.here()
        try:
            return await self._call(client, False, statement, values)
        except UnavailableError as error:
            if not was_lost(error.__cause__):
                raise
        return await self._call(client, False, statement, values)

    async def _call(
        self, client: Client, writes: bool, statement: str, values: tuple[Any, ...]
    ) -> list[asyncpg.Record]:
        once = _alone if client.direct else self._in_transaction
        for _ in range(2):
            connection = await client.take()
            try:
                return await once(connection, writes, statement, values)
            except asyncpg.InternalClientError as error:
                connection.terminate()
                if not was_never_sent(error):
                    raise translated(error, maybe_done=writes) from error
            except UnavailableError as error:
                if is_doubtful(error.__cause__):
                    client.renew()
                raise
            finally:
                await client.give_back(connection)
            client.renew()
        raise UnavailableError("PostgreSQL ended a connection that was just made")

    async def _in_transaction(
        self, connection: Connection, writes: bool, statement: str, values: tuple[Any, ...]
    ) -> list[asyncpg.Record]:
        committing = False
        try:
            await connection.execute(self._begin)
            rows = await connection.fetch(statement, *values)
            committing = True
            await connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            connection.terminate()
            raise translated(error, maybe_done=writes and committing) from error
        except BaseException:
            connection.terminate()
            raise
        return rows


async def _alone(connection: Connection, writes: bool, statement: str, values: tuple[Any, ...]) -> list[asyncpg.Record]:
    try:
        rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
    except DRIVER_ERRORS as error:
        if isinstance(error, asyncio.TimeoutError):
            connection.terminate()  # it would wait for a server that is silent
        raise translated(error, maybe_done=writes) from error
    except (asyncio.CancelledError, GeneratorExit):
        connection.terminate()  # the next caller must not wait for what nobody wants
        raise
    return rows
