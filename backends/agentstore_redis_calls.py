"""One call, one answer: asked again only where it is certain that nothing happened, until the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import AskError, MovedError, NoScriptError, SlotNotCoveredError

from agentstore_redis_clients import Clients
from agentstore_redis_errors import (
    DRIVER_ERRORS,
    LostError,
    NotSentError,
    is_refused_login,
    ran_nothing,
    translated,
)
from agentstore_redis_lanes import Answer, Server
from agentstore_redis_scripts import Script
from agentstore_redis_servers import Servers

PAUSE, LONGEST_PAUSE = 0.01, 0.3
"""Seconds between tries."""

_FAILURES = (LostError, NotSentError, *DRIVER_ERRORS)
_ASKING = b"*1\r\n$6\r\nASKING\r\n"


class Nobody:
    """Waits for no answer."""

    def done(self) -> bool:
        return True

    def set_result(self, result: Any, /) -> None:
        """Nothing: nobody waits."""

    def set_exception(self, exception: Exception, /) -> None:
        """Nothing: nobody waits."""


class Calls:
    """Runs the calls of one backend."""

    def __init__(self, clients: Clients, timeout: float) -> None:
        """`timeout`: seconds that a call may take, with all its tries."""
        self._clients = clients
        self._timeout = timeout

    def deadline(self) -> float:
        """When a call that begins now must have its answer, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._timeout

    async def script(
        self,
        script: Script,
        keys: Sequence[bytes],
        *values: bytes,
        writes: bool = True,
        large: bool = False,
        deadline: float | None = None,
    ) -> Any:
        """The script's answer. Where no answer came, `UnavailableError` says whether it may have taken effect.

        `deadline`: that of the call of which it is a part.
        """
        until = self.deadline() if deadline is None else deadline
        servers = await self._clients.here()
        try:
            return await _by(deadline, servers.of(keys[0]).ask(_evalsha(script, keys, values), large=large))
        except _FAILURES as error:
            failure = error
        return await self.script_again(servers, script, keys, values, failure, until, writes=writes, large=large)

    async def together(
        self, commands: Sequence[bytes], script: Script, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> list[Any]:
        """The answers to commands that change nothing, in one request; if one fails, in their place the script's."""
        deadline = self.deadline()
        servers = await self._clients.here()
        try:
            return list(await servers.of(keys[0]).ask(b"".join(commands), len(commands)))
        except _FAILURES as error:
            failure = error
        return [await self.script_again(servers, script, keys, values, failure, deadline, writes=False)]

    def tell(
        self, script: Script, keys: Sequence[bytes], values: Sequence[bytes], answer: Answer, *, large: bool
    ) -> Servers | None:
        """Ask at once, and let `answer` have the answer or the failure; `None`, and nothing, where that cannot be."""
        servers = self._clients.ready()
        if servers is None:
            return None
        try:
            servers.of(keys[0]).tell(_evalsha(script, keys, values), answer, large=large)
        except SlotNotCoveredError:
            return None
        return servers

    async def script_again(
        self,
        servers: Servers,
        script: Script,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        failure: Exception,
        deadline: float,
        *,
        writes: bool = True,
        large: bool = False,
    ) -> Any:
        """As `script`, after a first try that failed."""
        command = encoded(b"EVAL", script.text, b"%d" % len(keys), *keys, *values)
        return await self._again(servers, keys[0], command, writes, large, failure, deadline)

    async def command(self, key: bytes, *words: bytes, writes: bool, deadline: float | None = None) -> Any:
        """The answer to a plain command on that key; `deadline` as in `script`."""
        until = self.deadline() if deadline is None else deadline
        servers = await self._clients.here()
        command = encoded(*words)
        try:
            return await _by(deadline, servers.of(key).ask(command))
        except _FAILURES as error:
            failure = error
        return await self._again(servers, key, command, writes, False, failure, until)

    def remind(self, key: bytes, *words: bytes) -> None:
        """Send a plain command without waiting: what comes of it does not matter now."""
        servers = self._clients.ready()
        if servers is not None:
            with suppress(SlotNotCoveredError):
                servers.of(key).tell(encoded(*words), Nobody())

    async def everywhere(self, *words: bytes) -> list[Any]:
        """The answers of all masters to a command that changes nothing; it is not asked again."""
        servers = await self._clients.here()
        command = encoded(*words)
        try:
            return list(await asyncio.gather(*[server.ask(command) for server in servers.all()]))
        except _FAILURES as error:
            raise translated(error, writes=False) from error

    async def scan(self, pattern: bytes) -> list[bytes]:
        """All keys with such a name, of all masters."""
        servers = await self._clients.here()
        try:
            return [key for server in servers.all() for key in await _scanned(server, pattern)]
        except _FAILURES as error:
            raise translated(error, writes=False) from error

    async def _again(
        self,
        servers: Servers,
        key: bytes,
        command: bytes,
        writes: bool,
        large: bool,
        failure: Exception,
        deadline: float,
    ) -> Any:
        pause, loop = 0.0, asyncio.get_running_loop()
        while _may_be_tried(failure, servers, writes) and loop.time() + pause < deadline:
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2 or PAUSE)
            try:
                return await _by(deadline, _redirected(failure, servers, key, command, large))
            except _FAILURES as error:
                failure = error
        raise translated(failure, writes=writes) from failure


async def _by(deadline: float | None, answer: Awaitable[Any]) -> Any:
    """The answer; `LostError` when the time is up."""
    if deadline is None:
        return await answer
    try:
        return await asyncio.wait_for(answer, deadline - asyncio.get_running_loop().time())
    except asyncio.TimeoutError as error:
        raise LostError from error


async def _scanned(server: Server, pattern: bytes) -> list[bytes]:
    keys: set[bytes] = set()  # a scan may show one twice
    cursor = b"0"
    while True:
        cursor, found = await server.ask(encoded(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"1000"))
        keys.update(found)
        if cursor == b"0":
            return sorted(keys)


async def _redirected(failure: Exception, servers: Servers, key: bytes, command: bytes, large: bool) -> Any:
    """Ask where the failure says, else where the key is by now."""
    if not isinstance(failure, AskError):
        if not isinstance(failure, NoScriptError):
            await servers.renew()
        return await servers.of(key).ask(command, large=large)
    if isinstance(failure, MovedError):
        await servers.renew()
    server = servers.at(failure.host, failure.port) or servers.of(key)
    if isinstance(failure, MovedError):
        return await server.ask(command, large=large)
    return (await server.ask(_ASKING + command, 2, large=large))[-1]


def _may_be_tried(failure: Exception, servers: Servers, writes: bool) -> bool:
    if isinstance(failure, LostError):
        return not writes and not isinstance(failure.__cause__, asyncio.TimeoutError)  # that took all the time
    if isinstance(failure, AskError):
        return servers.is_cluster
    cause = failure.__cause__ if isinstance(failure, NotSentError) else failure
    if isinstance(failure, NotSentError) and servers.fails_over:
        return not is_refused_login(cause)
    return isinstance(cause, NoScriptError) or ran_nothing(cause)


def _evalsha(script: Script, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    return encoded(b"EVALSHA", script.sha, b"%d" % len(keys), *keys, *values)


def encoded(*words: bytes) -> bytes:
    """A request in the server's protocol."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)
