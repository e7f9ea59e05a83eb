"""Agents of the Microsoft Agent Framework with an offline chat client, for its adapter's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

from agentstore.adapters.agent_framework import StoreHistoryProvider

Step = str | Content | Message | list[Message] | BaseException


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers with the next step of its script, then with "done"; remembers what it was sent."""

    def __init__(self, *script: Step, conversation_id: str | None = None) -> None:
        super().__init__()
        self.script = list(script)
        self.conversation_id = conversation_id
        self.calls: list[list[Message]] = []

    @property
    def seen(self) -> list[list[str]]:
        return [[show(message) for message in call] for call in self.calls]

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, **kwargs: Any) -> Any:
        self.calls.append(list(messages))
        step = self.script.pop(0) if self.script else "done"
        if stream:
            return ResponseStream(self._updates(step), finalizer=self._whole)
        return self._answer(step)

    async def _answer(self, step: Step) -> ChatResponse:
        return ChatResponse(messages=self._messages(step), conversation_id=self.conversation_id)

    async def _updates(self, step: Step) -> AsyncIterator[ChatResponseUpdate]:
        for message in self._messages(step):
            for content in message.contents:
                yield ChatResponseUpdate(role="assistant", contents=[content], message_id=message.message_id)

    def _whole(self, updates: Sequence[ChatResponseUpdate]) -> ChatResponse:
        response: ChatResponse = ChatResponse.from_updates(updates)
        response.conversation_id = self.conversation_id
        return response

    def _messages(self, step: Step) -> list[Message]:
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, list):
            return step
        return [step if isinstance(step, Message) else Message("assistant", [step])]


@tool(approval_mode="never_require")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Rag(ContextProvider):
    """Adds a message to each run, as a memory or a search does."""

    def __init__(self) -> None:
        super().__init__("rag")

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        context.extend_messages(self, [Message("user", ["fact"])])


def call(name: str = "add", call_id: str = "c1", **arguments: Any) -> Content:
    return Content.from_function_call(call_id, name, arguments=arguments or {"a": 1, "b": 2})


def show(message: Any) -> str:
    """A message in short: its texts, `name(…)` for a call, `=…` for a result, `?` and `!` for approvals."""
    marks = {"function_approval_request": "?", "function_approval_response": "!"}
    parts = []
    for content in message.contents:
        if content.type == "function_call":
            parts.append(f"{content.name}()")
        elif content.type == "function_result":
            parts.append(f"={content.result}")
        else:
            parts.append(marks.get(content.type) or content.text)
    return " ".join(parts)


async def kept(provider: StoreHistoryProvider, session_id: str = "s") -> list[str]:
    """Everything stored of the session."""
    return [show(message) for message in await provider.history(session_id).messages()]


@asynccontextmanager
async def opened(
    url: str = "memory://", source_id: str = "history", **flags: Any
) -> AsyncIterator[StoreHistoryProvider]:
    provider = StoreHistoryProvider(url, source_id, **flags)
    try:
        yield provider
    finally:
        await provider.aclose()


def agent(provider: Any, *script: Step, client: Scripted | None = None, **options: Any) -> Any:
    providers = list(provider) if isinstance(provider, list | tuple) else [provider]
    return Agent(client=client or Scripted(*script), context_providers=providers, **options)


def session(session_id: str = "s") -> AgentSession:
    return AgentSession(session_id=session_id)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "agentstore"]


async def run(one: Agent[Any], text: Any, chat: AgentSession | None, stream: bool) -> str:
    if not stream:
        return (await one.run(text, session=chat)).text
    running = one.run(text, session=chat, stream=True)
    async for _ in running:
        pass
    return (await running.get_final_response()).text
