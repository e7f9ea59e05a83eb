"""An HTTP proxy on loopback before a blob service: it writes requests down, and answers or loses them as told."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from azurite_server import connection_string

Fate = Literal["pass", "lose", "tear", "cut", "hold", "babble"] | int
"""What becomes of a request: `lose` forwards it and cuts the connection where its answer should be, `tear` does so amid
the answer's body, `cut` before it is forwarded, `hold` never answers it, `babble` answers with what is no HTTP, and a
number is answered as that status without asking the service."""


@dataclass
class Request:
    """One request that came by."""

    method: str
    path: str
    query: dict[str, str]
    sent: int
    """Bytes of its body."""
    status: int = 0
    received: int = 0
    """Bytes of the answer's body."""

    @property
    def writes(self) -> bool:
        return self.method in ("PUT", "DELETE")

    @property
    def lists(self) -> bool:
        return self.query.get("comp") == "list"

    def __str__(self) -> str:
        name = unquote(self.path).rpartition("/v1/")[2]
        return f"{self.method} {name} {self.query.get('comp', '')} -> {self.status} ({self.sent}, {self.received})"


@dataclass
class Proxy:
    """Requests are dealt with by `fate`; those that pass are counted in `requests` when they arrive."""

    upstream: str
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    fate: Callable[[Request], Fate] = lambda request: "pass"
    delay: float = 0.0
    """Seconds before each request goes on."""
    ahead: float = 0.0
    """Seconds by which the service's clock seems to be ahead."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request is held."""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def connection_string(self) -> str:
        """The account's, with this proxy as its endpoint."""
        parts = [part for part in connection_string().split(";") if part and not _is_endpoint(part)]
        return ";".join([*parts, f"BlobEndpoint=http://127.0.0.1:{self.port}{urlsplit(self.upstream).path}", ""])

    def next(self, *fates: Fate, of: Callable[[Request], bool] = lambda request: request.writes) -> None:
        """The fates of the next requests of a kind, one after another; all others pass."""
        left = list(fates)
        self.fate = lambda request: left.pop(0) if left and of(request) else "pass"

    def last(self, since: int = 0) -> list[str]:
        """The requests, as text, from that number on."""
        return [str(request) for request in self.requests[since:]]

    def cut(self) -> None:
        """End every connection at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, with one of its own to the service."""
        host = urlsplit(self.upstream)
        secure = ssl.create_default_context() if host.scheme == "https" else None
        above, below = await asyncio.open_connection(
            host.hostname, host.port or (443 if secure else 80), ssl=secure, limit=1 << 20
        )
        self._writers |= {writer, below}
        try:
            while await self._exchange(reader, writer, above, below):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side left
        finally:
            self._writers -= {writer, below}
            writer.transport.abort()
            below.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        above: asyncio.StreamReader,
        below: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection lives on."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _body(reader, head)
        request = _request(head, body)
        self.requests.append(request)
        await asyncio.sleep(self.delay)
        fate = self.fate(request)
        if isinstance(fate, int):
            request.status = fate
            writer.write(f"HTTP/1.1 {fate} Told\r\nContent-Length: 0\r\nx-ms-error-code: ServerBusy\r\n\r\n".encode())
            return True
        if fate == "babble":
            writer.write(b"babble\r\n\r\n")
            await writer.drain()
            return False
        if fate == "hold":
            self.held.set()
            await reader.read()  # until the client leaves
        if fate in ("hold", "cut"):
            return False
        below.write(_for(self.upstream, head) + body)
        answer = await above.readuntil(b"\r\n\r\n")
        request.status = int(answer.split(b" ", 2)[1])
        content = b"" if request.method == "HEAD" or request.status in (204, 304) else await _body(above, answer)
        request.received = len(content)
        if fate == "lose":
            return False
        if fate == "tear":
            writer.write(answer + content[: len(content) // 2])
            await writer.drain()
            writer.close()
            return False
        writer.write(_at_another_time(answer, self.ahead) + content)
        return True


def _is_endpoint(part: str) -> bool:
    return part.partition("=")[0] in ("BlobEndpoint", "DefaultEndpointsProtocol", "EndpointSuffix")


def _for(upstream: str, head: bytes) -> bytes:
    """The head of a request with the service as its host."""
    lines = head.split(b"\r\n")
    host = urlsplit(upstream).netloc.encode()
    return b"\r\n".join([b"Host: " + host if line.lower().startswith(b"host:") else line for line in lines])


def _at_another_time(head: bytes, ahead: float) -> bytes:
    """The head of an answer, as if it were given so many seconds later."""
    date = b"\r\nDate: " + formatdate(time.time() + ahead, usegmt=True).encode()
    return re.sub(rb"(?i)\r\ndate: [^\r]*", date, head) if ahead else head


def _request(head: bytes, body: bytes) -> Request:
    method, target, _ = head.decode("latin-1").split(" ", 2)
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Request(method, parts.path, query, len(body))


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """What follows a head, as it came."""
    fields = dict(line.lower().partition(b":")[::2] for line in head.split(b"\r\n")[1:] if line)
    if fields.get(b"transfer-encoding", b"").strip() != b"chunked":
        return await reader.readexactly(int(fields.get(b"content-length", b"0")))
    chunks = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size, 16) + 2)
        chunks += size + chunk
        if int(size, 16) == 0:
            return chunks


@asynccontextmanager
async def proxied() -> AsyncGenerator[Proxy]:
    """A proxy before the blob service of this run."""
    proxy = Proxy(_endpoint(connection_string()))
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        proxy.cut()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(listening.wait_closed(), 1)
        await asyncio.sleep(0.01)


def _endpoint(connection: str) -> str:
    """The blob service's URL in a connection string."""
    parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
    if found := parts.get("BlobEndpoint"):
        return found.rstrip("/")
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    return f"{parts.get('DefaultEndpointsProtocol', 'https')}://{parts['AccountName']}.blob.{suffix}"
