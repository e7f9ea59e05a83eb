"""The demo's agent as one of agentstore's core, with an offline chat client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agentstore.agent import Agent
from agentstore.cli.demo_model import SESSION, reply
from agentstore.clients.base import BaseChatClient
from agentstore.history_providers import StoreHistoryProvider
from agentstore.messages import Message
from agentstore.responses import ChatResponse


class _Client(BaseChatClient):
    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        texts = [message.text for message in messages if message.role == "user"]
        return ChatResponse(Message("assistant", [reply(texts)]))


def make_agent(url: str) -> Callable[[str], Awaitable[str]]:
    """An agent with its history in the store at the URL, as a function from text to answer."""
    agent = Agent(_Client(), context_providers=[StoreHistoryProvider(url)])
    session = agent.create_session(session_id=SESSION)

    async def ask(text: str) -> str:
        return (await agent.run(text, session=session)).text

    return ask
