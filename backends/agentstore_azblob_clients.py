"""The client of each event loop, and what the loop knows of the sessions it works on.

A client of ours ends with its loop: `asyncio.run` closes asynchronous generators last, and each client has one that
waits for that. In a forked child the parent's clients are forgotten, untouched.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress

from azure.core.credentials_async import AsyncTokenCredential
from azure.storage.blob.aio import ContainerClient

from agentstore.errors import ClosedError, ConfigurationError
from agentstore_azblob_container import Clock, Container
from agentstore_azblob_sessions import Sessions

CLOSE_SECONDS = 5.0
"""How long closing waits for calls under way before it cuts their connections."""


class Client:
    """One event loop's."""

    def __init__(
        self, client: ContainerClient, credential: AsyncTokenCredential | None, clock: Clock, timeout: float, own: bool
    ) -> None:
        self.container = Container(client, clock, timeout)
        self.sessions = Sessions()
        self._client = client
        self._credential = credential
        self._own = own
        self._keeper: AsyncGenerator[None] | None = None
        self._ended = False
        self._calls = 0
        self._idle = asyncio.Event()

    @contextmanager
    def busy(self) -> Generator[None]:
        """A call is under way: closing waits for it. Raises `ClosedError` after that."""
        if self._ended:
            raise ClosedError("the event loop comes to its end, or the Azure Blob backend was closed meanwhile")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def open(self) -> None:
        if self._own and self._keeper is None:
            self._keeper = self._keep()
            await self._keeper.asend(None)

    async def close(self) -> None:
        """Close what is ours; calls under way have a while to finish."""
        await self._end()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.aclose()

    async def _keep(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._keeper = None
            await self._end()

    async def _end(self) -> None:
        """Once: when the loop ends amid a `close`, both come here."""
        if not self._ended:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._drained(), CLOSE_SECONDS)
        if self._ended:
            return
        self._ended = True
        if self._own:
            await self._client.close()
        if self._credential is not None:
            await self._credential.close()

    async def _drained(self) -> None:
        while self._calls:
            self._idle.clear()
            await self._idle.wait()


class Clients:
    """Those of this process."""

    def __init__(self, make: Callable[[], Client], *, borrowed: bool) -> None:
        """`make` is called in the loop; a `borrowed` one belongs to the loop of its first use."""
        self._make = make
        self._borrowed = borrowed
        self._lock = threading.Lock()
        self._closed = False
        self._by_loop: dict[asyncio.AbstractEventLoop, Client] = {}
        _all.add(self)

    async def here(self) -> Client:
        """The running loop's. Raises `ClosedError`, or `ConfigurationError` in a loop that is not the client's."""
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            client = self._made(loop)
            await client.open()
        return client

    async def aclose(self) -> None:
        """Close the clients of all loops. Those of loops that stand still are closed when these go on, or end."""
        with self._lock:
            self._closed = True
            clients, self._by_loop = self._by_loop, {}
        here = asyncio.get_running_loop()
        for loop, client in clients.items():
            if loop is here:
                await client.close()
            elif not loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    await _close_there(loop, client)

    def leave_parent(self) -> None:
        """In a forked child: forget the parent's clients, without touching their connections."""
        self._lock = threading.Lock()
        _abandoned.append(self._by_loop)
        if not self._borrowed:  # what was handed in still belongs to the parent's loop
            self._by_loop = {}

    def _made(self, loop: asyncio.AbstractEventLoop) -> Client:
        with self._lock:
            if self._closed:
                raise ClosedError("the Azure Blob backend is closed")
            if self._borrowed and self._by_loop:
                raise ConfigurationError(
                    "the ContainerClient that was handed in belongs to another event loop: give each loop its own,"
                    " or let the backend make its clients from a URL"
                )
            for dead in [other for other in self._by_loop if other.is_closed()]:
                del self._by_loop[dead]
            return self._by_loop.setdefault(loop, self._make())


async def _close_there(loop: asyncio.AbstractEventLoop, client: Client) -> None:
    done = threading.Event()
    tasks: set[asyncio.Task[None]] = set()

    def close() -> None:
        task = loop.create_task(client.close())
        tasks.add(task)
        task.add_done_callback(lambda _: done.set())

    loop.call_soon_threadsafe(close)
    if loop.is_running():
        await asyncio.to_thread(done.wait, CLOSE_SECONDS + 1)


_all: weakref.WeakSet[Clients] = weakref.WeakSet()
_abandoned: list[object] = []  # a parent's connections in a forked child: closing them would harm the parent


def _after_fork() -> None:
    for clients in _all:
        clients.leave_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
