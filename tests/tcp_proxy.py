"""A TCP proxy on loopback before a server: it counts round trips, and loses answers where it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """What passes: one round trip is something sent after something came back."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self.url = ""
        self.round_trips = 0
        self.passing = 0
        """So many answers pass before the next ones get lost."""
        self.losing = 0
        """So many of the next answers get lost: the server does its work, then the connection is cut."""
        self.refusing = False
        """Connections are cut as soon as they are made."""
        self._asked = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> asyncio.Server:
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        credentials, at, _ = self._server.netloc.rpartition("@")
        self.url = urlunsplit(self._server._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))
        return listening

    def cut(self) -> None:
        """End every connection at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        above, below = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._writers |= {writer, below}
        await asyncio.gather(self._up(reader, below), self._down(above, writer))
        self._writers -= {writer, below}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            self.round_trips += not self._asked
            self._asked = True
            writer.write(data)
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            self._asked = False
            if self.losing and self.passing:
                self.passing -= 1
            elif self.losing:
                self.losing -= 1
                writer.transport.abort()
                break
            writer.write(data)
        writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except OSError:
        return b""


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[Proxy]:
    """A proxy before the server of the URL."""
    proxy = Proxy(url)
    listening = await proxy.open()
    try:
        yield proxy
    finally:
        listening.close()
        proxy.cut()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(listening.wait_closed(), 1)
        await asyncio.sleep(0.01)
