"""A thin agent: input and remembered context to a chat client, the answer back, providers around it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentstore.errors import ConfigurationError, SaveError
from agentstore.history_providers import InMemoryHistoryProvider
from agentstore.messages import Message
from agentstore.providers import BaseContextProvider, HistoryProvider, check_one_loads
from agentstore.responses import AgentResponse, ChatResponse
from agentstore.session import AgentSession, SessionContext

Provider = BaseContextProvider | HistoryProvider
AgentInput = str | Message | Sequence[str | Message]


@runtime_checkable
class ChatClient(Protocol):
    """A model, or what stands for one."""

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The model's answer to the whole conversation; must not change the messages."""
        ...


class BaseChatClient:
    """What every chat client of this library can do besides answering."""

    def as_agent(
        self: ChatClient,
        *,
        name: str | None = None,
        instructions: str | None = None,
        context_providers: Iterable[Provider] = (),
    ) -> Agent:
        """An agent that talks to this client."""
        return Agent(self, name=name, instructions=instructions, context_providers=context_providers)


class Agent:
    """Answers with a chat client, and remembers through its context providers. Keeps nothing between runs itself.

    `instructions` go before everything else, as a system message that is never stored. Without any history provider, a
    session remembers in its own state (`InMemoryHistoryProvider`). Raises `ConfigurationError` for two providers of
    one source id, or two that load history.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        name: str | None = None,
        instructions: str | None = None,
        context_providers: Iterable[Provider] = (),
    ) -> None:
        self.client = client
        self.name = name
        self.instructions = instructions
        self.context_providers: list[Provider] = list(context_providers)
        _check(self.context_providers)

    def create_session(self, session_id: str | None = None) -> AgentSession:
        """A new session, with a random id unless one is given."""
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id: str, *, session_id: str | None = None) -> AgentSession:
        """A session whose history the model's service keeps, under this id of the service's."""
        return AgentSession(session_id=session_id, service_session_id=service_session_id)

    async def run(
        self, input: AgentInput, session: AgentSession | None = None, options: Mapping[str, Any] | None = None
    ) -> AgentResponse:
        """Answer the input; with a session, in the light of what it remembers.

        A run that fails or is cancelled stores nothing. Raises `SaveError`, which holds the answer, where a provider
        could not save the turn; then all other providers had their chance to.
        """
        providers = self._providers(session)
        session = AgentSession() if session is None else session
        context = SessionContext(
            session_id=session.session_id,
            service_session_id=session.service_session_id,
            input_messages=_as_messages(input),
            options=options,
        )
        for provider in providers:
            await provider.before_run(agent=self, session=session, context=context, state=_state(session, provider))
        answer = await self.client.get_response(
            self._conversation(context), tools=tuple(context.tools), options=dict(context.options)
        )
        # Copies: a client may answer with one object again and again, and each turn's gets an id of its own.
        context.response = AgentResponse([copy.copy(message) for message in answer.messages])
        await self._after_run(providers, session, context)
        return context.response

    def _providers(self, session: AgentSession | None) -> list[Provider]:
        _check(self.context_providers)
        remembers = any(isinstance(provider, HistoryProvider) for provider in self.context_providers)
        if remembers or session is None or session.service_session_id:
            return list(self.context_providers)
        memory = InMemoryHistoryProvider()
        _check([*self.context_providers, memory])
        return [memory, *self.context_providers]

    def _conversation(self, context: SessionContext) -> list[Message]:
        instructions = [text for text in (self.instructions, *context.instructions) if text]
        system = [Message("system", ["\n".join(instructions)])] if instructions else []
        return system + context.get_messages(include_input=True)

    async def _after_run(self, providers: list[Provider], session: AgentSession, context: SessionContext) -> None:
        failures = [await self._finish(provider, session, context) for provider in reversed(providers)]
        for failure in failures:
            if failure is not None:
                raise failure

    async def _finish(self, provider: Provider, session: AgentSession, context: SessionContext) -> SaveError | None:
        try:
            await provider.after_run(agent=self, session=session, context=context, state=_state(session, provider))
        except SaveError as error:
            return error
        return None


def _state(session: AgentSession, provider: Provider) -> dict[str, Any]:
    state: dict[str, Any] = session.state.setdefault(provider.source_id, {})
    return state


def _as_messages(input: object) -> list[Message]:
    given = [input] if isinstance(input, str | Message) else input
    if not isinstance(given, list | tuple):
        raise TypeError(f"an agent's input is a str, a Message, or a list of those, not {type(input).__name__}")
    return [_as_message(item) for item in given]


def _as_message(item: object) -> Message:
    if isinstance(item, str | Message):
        return Message("user", [item]) if isinstance(item, str) else item
    raise TypeError(f"an agent's input holds str and Message, not {type(item).__name__}")


def _check(providers: Sequence[Provider]) -> None:
    sources = [provider.source_id for provider in providers]
    if twice := {source for source in sources if sources.count(source) > 1}:
        raise ConfigurationError(f"more than one provider has the source id {', '.join(map(repr, sorted(twice)))}")
    check_one_loads(providers)
