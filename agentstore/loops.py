"""One client per event loop: what every backend with a driver needs, and the rules that are the same for all.

A store works from several event loops, one after another or at once, in threads that each run one, and in a forked
child. A driver's client belongs to one loop. So each loop has its own; that of a dead loop is discarded at the next
use; and in a forked child the parent's are forgotten, without touching their connections.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from agentstore.errors import ClosedError, ConfigurationError

CLOSE_SECONDS = 11.0
"""How long `aclose` waits for the loop of another thread to close its client."""


class Closable(Protocol):
    """A client of one event loop."""

    def close(self) -> Awaitable[None]:
        """Let go of what is its own; called in its loop."""
        ...


C = TypeVar("C", bound=Closable)


class PerLoop(Generic[C]):
    """The client of each event loop of this process."""

    def __init__(self, make: Callable[[], C], *, of: str, borrowed: str | None = None) -> None:
        """`make` is called in the loop. `of` names the technology in errors.

        `borrowed` names what was handed in, if anything: it belongs to the loop of its first use.
        """
        self._make = make
        self._of = of
        self._borrowed = borrowed
        self._lock = threading.Lock()
        self._closed = False
        self._by_loop: dict[asyncio.AbstractEventLoop, C] = {}
        _all.add(self)

    def find(self) -> C | None:
        """The running loop's client, if it has one."""
        return self._by_loop.get(asyncio.get_running_loop())

    def client(self) -> C:
        """The running loop's client. Raises `ClosedError`, or `ConfigurationError` in a loop that is not its own."""
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop) or self._made(loop)
        if self._closed:
            raise self._is_closed()
        return client

    async def aclose(self) -> None:
        """Close the clients of all loops. Those of loops that stand still are closed when these go on, or end."""
        with self._lock:
            self._closed = True
            by_loop, self._by_loop = self._by_loop, {}
        here = asyncio.get_running_loop()
        for loop, client in by_loop.items():
            if loop is here:
                await client.close()
            elif not loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    await self._close_there(loop, client)

    def leave_parent(self) -> None:
        """In a forked child: forget the parent's clients."""
        self._lock = threading.Lock()
        _abandoned.append(self._by_loop)
        if self._borrowed is None:  # what was handed in still belongs to the parent's loop
            self._by_loop = {}

    def _made(self, loop: asyncio.AbstractEventLoop) -> C:
        with self._lock:
            if self._closed:
                raise self._is_closed()
            if self._borrowed is not None and self._by_loop:
                raise ConfigurationError(
                    f"the {self._borrowed} that was handed in belongs to another event loop: give each loop its own, or"
                    " let the backend make its own from a URL"
                )
            for dead in [other for other in self._by_loop if other.is_closed()]:
                del self._by_loop[dead]
            return self._by_loop.setdefault(loop, self._make())

    async def _close_there(self, loop: asyncio.AbstractEventLoop, client: C) -> None:
        done = threading.Event()
        tasks: set[asyncio.Future[None]] = set()

        def close() -> None:
            closing = asyncio.ensure_future(client.close(), loop=loop)
            tasks.add(closing)
            closing.add_done_callback(lambda _: done.set())

        loop.call_soon_threadsafe(close)
        if loop.is_running():
            await asyncio.to_thread(done.wait, CLOSE_SECONDS)

    def _is_closed(self) -> ClosedError:
        return ClosedError(f"the {self._of} backend is closed")


_all: weakref.WeakSet[PerLoop[Any]] = weakref.WeakSet()
_abandoned: list[object] = []  # a parent's connections in a forked child: closing them would harm the parent


def _after_fork() -> None:
    for clients in _all:
        clients.leave_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
