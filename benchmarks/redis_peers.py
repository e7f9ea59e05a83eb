"""Peers' histories on Redis, each fed the objects of its framework. They come with `make bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.sample import Shape


class OpenAISession:
    name = "OpenAI Agents SDK's RedisSession"

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    async def open(cls, url: str) -> OpenAISession:
        from agents.extensions.memory import RedisSession

        return cls(RedisSession.from_url("long", url=url))

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        return list(shapes)  # it keeps any dict as it is

    async def append(self, messages: list[Any]) -> object:
        return await self._session.add_items(messages)

    async def newest(self, limit: int) -> Sequence[Any]:
        items: list[Any] = await self._session.get_items(limit=limit)
        return items

    async def close(self) -> None:
        await self._session.close()


class FrameworkHistory:
    name = "Agent Framework's RedisHistoryProvider"

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    @classmethod
    async def open(cls, url: str) -> FrameworkHistory:
        from agent_framework_redis import RedisHistoryProvider

        return cls(RedisHistoryProvider(redis_url=url, application_id="bench"))

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        from agent_framework import Message

        return [Message.from_dict(shape) for shape in shapes]

    async def append(self, messages: list[Any]) -> object:
        return await self._provider.save_messages("long", messages)

    async def newest(self, limit: int) -> Sequence[Any]:
        messages: list[Any] = await self._provider.get_messages("long")  # it has no bounded read
        return messages[-limit:]

    async def close(self) -> None:
        await self._provider.aclose()
