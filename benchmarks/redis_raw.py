"""The bar for Redis: redis-py with hiredis, a bare script that pushes, a bare range; what one writes by hand.

A turn is one call of the script. A session is one list of JSON: no ids, no digests, no counters, no index.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from redis.asyncio import Redis

from benchmarks.sample import Shape, shapes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_PUSH = "return redis.call('RPUSH', KEYS[1], unpack(ARGV))"
_FILL = 500  # messages per call while a session is filled


class RawRedis:
    """One client in default settings: a smaller pool that waits was slower with 64 sessions at once."""

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(url)
        self._script = ""

    async def open(self) -> RawRedis:
        self._script = await self._client.script_load(_PUSH)
        return self

    async def append(self, session: int, messages: Sequence[Shape]) -> None:
        payloads = [_encode(message) for message in messages]
        await self._client.evalsha(self._script, 1, f"raw:{session}", *payloads)

    async def newest(self, session: int, limit: int) -> list[Shape]:
        return [_decode(payload) for payload in await self._client.lrange(f"raw:{session}", -limit, -1)]

    async def fill(self, session: int, count: int) -> None:
        messages = shapes(count)
        for start in range(0, count, _FILL):
            await self.append(session, messages[start : start + _FILL])

    async def close(self) -> None:
        await self._client.aclose()
