"""The servers as each event loop asks them: connections of its own, or the client that was handed in.

In a forked child the parent's connections are forgotten, untouched.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from agentstore.errors import ClosedError, ConfigurationError
from agentstore_redis_errors import NotSentError, translated
from agentstore_redis_lanes import CLOSE_SECONDS
from agentstore_redis_servers import Servers


class Clients:
    """The `Servers` of each event loop of this process."""

    def __init__(self, make: Callable[[], Servers], *, borrowed: bool) -> None:
        """`make` is called in the loop; a `borrowed` client belongs to the loop of its first use."""
        self._make = make
        self._borrowed = borrowed
        self._lock = threading.Lock()
        self._closed = False
        self._by_loop: dict[asyncio.AbstractEventLoop, Servers] = {}
        _all.add(self)

    def ready(self) -> Servers | None:
        """The running loop's, if they are open."""
        servers = self._by_loop.get(asyncio.get_running_loop())
        return servers if servers is not None and servers.opened else None

    async def here(self) -> Servers:
        """The running loop's, open. Raises `ClosedError`, or `ConfigurationError` in a loop not the client's."""
        loop = asyncio.get_running_loop()
        servers = self._by_loop.get(loop) or self._made(loop)
        if self._closed:
            raise ClosedError("the Redis backend is closed")
        try:
            await servers.open()
        except NotSentError as error:
            raise translated(error, writes=False) from error
        return servers

    async def aclose(self) -> None:
        """Close those of all loops. Those of loops that stand still are closed when these go on, or end."""
        with self._lock:
            self._closed = True
            by_loop, self._by_loop = self._by_loop, {}
        here = asyncio.get_running_loop()
        for loop, servers in by_loop.items():
            if loop is here:
                await servers.close()
            elif not loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    await _close_there(loop, servers)

    def leave_parent(self) -> None:
        """In a forked child: forget the parent's connections, without touching them."""
        self._lock = threading.Lock()
        _abandoned.append(self._by_loop)
        if not self._borrowed:  # what was handed in still belongs to the parent's loop
            self._by_loop = {}

    def _made(self, loop: asyncio.AbstractEventLoop) -> Servers:
        with self._lock:
            if self._closed:
                raise ClosedError("the Redis backend is closed")
            if self._borrowed and self._by_loop:
                raise ConfigurationError(
                    "the client that was handed in belongs to another event loop: give each loop its own, or let the"
                    " backend make its connections from a URL"
                )
            for dead in [other for other in self._by_loop if other.is_closed()]:
                del self._by_loop[dead]
            return self._by_loop.setdefault(loop, self._make())


async def _close_there(loop: asyncio.AbstractEventLoop, servers: Servers) -> None:
    done = threading.Event()
    tasks: set[asyncio.Task[None]] = set()

    def close() -> None:
        task = loop.create_task(servers.close())
        tasks.add(task)
        task.add_done_callback(lambda _: done.set())

    loop.call_soon_threadsafe(close)
    if loop.is_running():
        await asyncio.to_thread(done.wait, CLOSE_SECONDS * 2 + 1)


_all: weakref.WeakSet[Clients] = weakref.WeakSet()
_abandoned: list[object] = []  # a parent's connections in a forked child: closing them would harm the parent


def _after_fork() -> None:
    for clients in _all:
        clients.leave_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
