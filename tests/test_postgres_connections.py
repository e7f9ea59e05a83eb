"""No connection to PostgreSQL is left open, whenever a caller leaves or a loop ends."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from contextlib import suppress

import pytest
from postgres_server import LocalServer, debian_server, local_server

from agentstore_postgres import PostgresBackend


def with_tls() -> LocalServer:
    server = debian_server()  # the wheel's is built without TLS
    server.use_tls()
    return server


PAUSES = [step * 0.0004 for step in range(60)]
"""Seconds after which a caller leaves: they reach from before the connection into the first statement."""


@pytest.mark.parametrize("server", [local_server, with_tls])
def test_a_caller_that_leaves_while_connecting_leaves_nothing_open(server: Callable[[], LocalServer]) -> None:
    """Cancelled at any moment of the first call, with or without TLS, before the loop ends: no socket is left."""
    url = server().url

    async def leave(pause: float) -> None:
        backend = PostgresBackend(url)
        call = asyncio.ensure_future(backend.ping())
        await asyncio.sleep(pause)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await backend.aclose()

    assert _left_open(lambda: [asyncio.run(leave(pause)) for pause in PAUSES]) == []


def test_a_loop_that_ends_while_connecting_leaves_nothing_open() -> None:
    """`asyncio.run` tears down a first call at any moment, and nobody closes the backend."""
    url = local_server().url

    async def end(pause: float) -> None:
        backend = PostgresBackend(url)
        call = asyncio.ensure_future(backend.ping())
        await asyncio.sleep(pause)
        del call

    assert _left_open(lambda: [asyncio.run(end(pause)) for pause in PAUSES]) == []


def test_a_caller_that_left_while_connecting_leaves_the_connection_to_the_next() -> None:
    """A pool of one: the next caller takes what was made for the one that left."""
    url = local_server().url

    async def main() -> None:
        backend = PostgresBackend(url, pool_size=1)
        for pause in PAUSES[:20]:
            call = asyncio.ensure_future(backend.ping())
            await asyncio.sleep(pause)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            await asyncio.wait_for(backend.ping(), 5)
        await backend.aclose()

    assert _left_open(lambda: asyncio.run(main())) == []


def _left_open(work: Callable[[], object]) -> list[str]:
    """What the collector had to say about connections, transports and sockets that nobody closed."""
    gc.collect()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        work()
        gc.collect()
    return [str(warning.message) for warning in said if issubclass(warning.category, ResourceWarning)]
