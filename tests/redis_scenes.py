"""How a scene on Redis begins: a session on the run's server, or on one that the test may break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

from redis_server import LocalServer, server_url, started, valkey
from tcp_proxy import Proxy, proxied

from agentstore import SessionHistory, open_store
from agentstore.testing.scenes import named

Work = Callable[[SessionHistory], Awaitable[Any]]


@asynccontextmanager
async def chatting(url: str | None = None, **options: Any) -> AsyncGenerator[SessionHistory]:
    """A new session, whose store has used its connection once."""
    async with open_store(url or server_url(), namespace=f"server-{uuid4().hex}", **options) as store:
        chat = store.session(uuid4().hex)
        await chat.append([named("first", "first")])
        await chat.messages(limit=1)
        yield chat
        await chat.delete()


@asynccontextmanager
async def proxied_chat(**options: Any) -> AsyncGenerator[tuple[Proxy, SessionHistory]]:
    """The same through a proxy."""
    async with proxied(server_url()) as proxy, chatting(proxy.url, **options) as chat:
        yield proxy, chat


@contextmanager
def own_server(**settings: str) -> Generator[LocalServer]:
    """A server that the test may break."""
    server = started(valkey(), **settings)
    try:
        yield server
    finally:
        server.remove()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def keys_of(server: LocalServer, chat: SessionHistory) -> list[str]:
    """Every key on the server with the session's tag in its name."""
    found, cursor = [], "0"
    while True:
        cursor, page = server.command("SCAN", cursor, "MATCH", f"*{chat.key.hash.hex()}*", "COUNT", 1000)
        found += page
        if cursor == "0":
            return found
