"""The demo's agent as one of the Microsoft Agent Framework, with an offline chat client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore.cli.demo_model import SESSION, reply


class _Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        return self._respond([message.text for message in messages if message.role == "user"])

    async def _respond(self, user_texts: Sequence[str]) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message("assistant", [reply(user_texts)])])


def make_agent(url: str) -> Callable[[str], Awaitable[str]]:
    """An agent with its history in the store at the URL, as a function from text to answer."""
    agent = Agent(client=_Client(), context_providers=[StoreHistoryProvider(url)])
    session = agent.create_session(session_id=SESSION)

    async def ask(text: str) -> str:
        return (await agent.run(text, session=session)).text

    return ask
