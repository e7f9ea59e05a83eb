"""What every chat client of this library can do besides answering."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from agentstore.agent import Agent
from agentstore.chat import CHAT_OPTIONS, checked_answer
from agentstore.messages import Message
from agentstore.remembering import Provider
from agentstore.responses import ChatResponse, ChatResponseUpdate


class BaseChatClient:
    """A chat client needs `get_response`; one that cannot stream gives its whole answer at once where it should."""

    known_options: ClassVar[frozenset[str]] = CHAT_OPTIONS
    """The names that a run's options may have; an agent refuses others before it calls the model."""

    stores_by_default: bool = False
    """Whether the model's service keeps the conversation, unless a run's option `store` is `False`.

    An agent with a local history then refuses a run before it calls the model.
    """

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The model's answer to the conversation; must not change the messages. See `ChatClient`."""
        raise NotImplementedError(f"{type(self).__name__} has no get_response")

    async def stream_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        """The answer in one update for each message, once it is complete."""
        response = checked_answer(self, await self.get_response(messages, tools=tools, options=options))
        for update in response.to_updates():
            yield update

    def as_agent(
        self,
        *,
        name: str | None = None,
        instructions: str | None = None,
        context_providers: Iterable[Provider] = (),
        **settings: Any,
    ) -> Agent:
        """An agent that talks to this client; `settings` are the other keywords of `Agent`."""
        return Agent(self, name=name, instructions=instructions, context_providers=context_providers, **settings)
