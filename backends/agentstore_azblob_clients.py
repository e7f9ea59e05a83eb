"""The client of each event loop, and what the loop knows of the sessions it works on.

A client of ours ends with its loop: `asyncio.run` closes asynchronous generators last, and each client has one that
waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress

from azure.core.credentials_async import AsyncTokenCredential
from azure.storage.blob.aio import ContainerClient

from agentstore.errors import ClosedError
from agentstore.loops import PerLoop
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


class Clients(PerLoop[Client]):
    """The client of each event loop of this process."""

    async def here(self) -> Client:
        """The running loop's, open."""
        if (client := self.find()) is None:
            client = self.client()
            await client.open()
        return client
