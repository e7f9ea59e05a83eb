"""A thin agent: input and remembered context to a chat client, the answer back, providers around it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, overload

from agentstore.chat import ChatClient
from agentstore.errors import ConfigurationError
from agentstore.fingerprint import recognise
from agentstore.history_providers import InMemoryHistoryProvider
from agentstore.messages import Message
from agentstore.providers import BaseContextProvider, HistoryProvider, check_one_loads
from agentstore.remembering import Provider, session_keeper
from agentstore.responses import AgentResponse, AgentResponseUpdate
from agentstore.runs import FOR_THE_AGENT, Run
from agentstore.session import AgentSession, SessionContext
from agentstore.store import HistoryStore
from agentstore.streaming import ResponseStream
from agentstore.tools import as_tools

AgentInput = str | Message | Sequence[str | Message]


class Agent:
    """Answers with a chat client, and remembers through its context providers. Keeps nothing between runs itself.

    * `instructions` go before everything else, as a system message that is never stored.
    * `tools` are plain callables (or `FunctionTool`s); what they return or raise goes back to the model, until it asks
      for no more, `max_iterations` times at most. Calls of one answer run at once, sync functions in threads.
    * Without any history provider, a session remembers in its own state (`InMemoryHistoryProvider`).
    * `session_store` keeps the whole session too: after all providers are done, its state is saved in one transaction
      with the turn, beside the messages of the loading `StoreHistoryProvider`, whose store it must be. `load_session`
      gets it back. Of two runs at once both turns are kept, and the state of the one that ends last.
    * `require_per_service_call_history_persistence` lets history providers load and save around each call of the model
      instead of around the run. It does not go with a conversation that the model's service keeps.
    * `store_partial` is as if every history provider had it.

    Raises `ConfigurationError` for two providers of one source id, or two that load history, or what is no provider, or
    a `session_store` that no provider fits.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        name: str | None = None,
        instructions: str | None = None,
        context_providers: Iterable[Provider] = (),
        tools: Any = (),
        session_store: HistoryStore | None = None,
        require_per_service_call_history_persistence: bool = False,
        store_partial: bool = False,
        max_iterations: int = 40,
    ) -> None:
        if type(max_iterations) is not int or max_iterations < 1:
            raise ValueError("max_iterations must be an int of at least 1")
        if not callable(getattr(client, "get_response", None)):
            raise TypeError(f"an agent needs a chat client, which has get_response, not {client!r}")
        self.client = client
        self.name = name
        self.instructions = instructions
        self.context_providers: list[Provider] = list(context_providers)
        self.tools: list[Any] = as_tools(tools)
        self.session_store = session_store
        self.require_per_service_call_history_persistence = require_per_service_call_history_persistence
        self.store_partial = store_partial
        self.max_iterations = max_iterations
        self._check(self.context_providers)

    def create_session(self, session_id: str | None = None) -> AgentSession:
        """A new session, with a random id unless one is given."""
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id: str, *, session_id: str | None = None) -> AgentSession:
        """A session whose history the model's service keeps, under this id of the service's.

        Raises `ValueError` without one.
        """
        if not service_session_id:
            raise ValueError("a session of the service's needs its id; create_session makes one that is kept here")
        return AgentSession(session_id=session_id, service_session_id=service_session_id)

    async def load_session(self, session_id: str) -> AgentSession:
        """The session as the `session_store` has it after its last turn; a new one of this id where it has none.

        Running it logs a warning if it was kept by an agent with other providers. Raises `ConfigurationError` without
        a `session_store`.
        """
        if self.session_store is None:
            raise ConfigurationError("load_session needs an agent with a session_store")
        snapshot = await session_keeper(self.context_providers, self.session_store).history(session_id).load_snapshot()
        if snapshot is None:
            return self.create_session(session_id)
        if not isinstance(snapshot.session, AgentSession):
            raise ConfigurationError(f"what is kept beside session {session_id!r} is no AgentSession")
        return snapshot.session

    @overload
    def run(
        self,
        input: AgentInput,
        session: AgentSession | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        tools: Any = None,
        stream: Literal[False] = False,
    ) -> Coroutine[Any, Any, AgentResponse]: ...
    @overload
    def run(
        self,
        input: AgentInput,
        session: AgentSession | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        tools: Any = None,
        stream: Literal[True],
    ) -> ResponseStream[AgentResponseUpdate, AgentResponse]: ...
    def run(
        self,
        input: AgentInput,
        session: AgentSession | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        tools: Any = None,
        stream: bool = False,
    ) -> Coroutine[Any, Any, AgentResponse] | ResponseStream[AgentResponseUpdate, AgentResponse]:
        """Answer the input; with a session, in the light of what it remembers.

        `options` are the chat client's (`agentstore.chat.CHAT_OPTIONS`, and its own), and `tools` and `instructions`
        for this run. With `stream=True` it is `run_stream`.

        A run that fails or is cancelled stores nothing, unless a provider has `store_partial`. Raises what the client
        raises; `ConfigurationError` for unknown options, before anything is done; and `SaveError`, which holds the
        answer, where a provider could not save the turn: then all others had their chance to.
        """
        if stream:
            return self.run_stream(input, session, options, tools=tools)
        return self._answer(input, session, options, tools)

    def run_stream(
        self,
        input: AgentInput,
        session: AgentSession | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        tools: Any = None,
    ) -> ResponseStream[AgentResponseUpdate, AgentResponse]:
        """As `run`, update by update: iterate over it, then `await stream.get_final_response()`.

        Results of tools are among the updates. The turn is saved before the iteration ends: a stream that is left
        before stores what a cancelled run does. Leave it with `await stream.aclose()` or an `async with`.
        """
        runs: list[Run] = []

        async def updates() -> Any:
            runs.append(self._run(input, session, options, tools, stream=True))
            async with aclosing(runs[0].updates()) as given:
                async for update in given:
                    yield update

        return ResponseStream(updates(), finalizer=lambda _: runs[0].response)

    async def _answer(
        self, input: AgentInput, session: AgentSession | None, options: Mapping[str, Any] | None, tools: Any
    ) -> AgentResponse:
        run = self._run(input, session, options, tools, stream=False)
        async with aclosing(run.updates()) as updates:
            async for _ in updates:
                pass
        return run.response

    def _run(
        self,
        input: AgentInput,
        session: AgentSession | None,
        options: Mapping[str, Any] | None,
        tools: Any,
        *,
        stream: bool,
    ) -> Run:
        if not isinstance(session, AgentSession | None):
            raise TypeError(f"a run's session is an AgentSession, as create_session makes it, not {session!r}")
        self._check_options(options or {})
        service_id = self._service_session(session, options or {})
        providers = self._providers(remembers=session is not None and service_id is None)
        session = AgentSession() if session is None else session
        context = SessionContext(
            session_id=session.session_id,
            service_session_id=service_id,
            input_messages=_as_messages(input),
            options=options,
        )
        recognise(session, self.context_providers)
        return Run(self, session, context, providers, tools=tools, stream=stream)

    def _providers(self, *, remembers: bool) -> list[Provider]:
        self._check(self.context_providers)
        if not remembers or any(isinstance(provider, HistoryProvider) for provider in self.context_providers):
            return list(self.context_providers)
        providers = [InMemoryHistoryProvider(), *self.context_providers]
        self._check(providers)
        return providers

    def _service_session(self, session: AgentSession | None, options: Mapping[str, Any]) -> str | None:
        kept = None if session is None else session.service_session_id
        given: str | None = options.get("conversation_id")
        if kept and given and kept != given:
            raise ConfigurationError(f"the session has the conversation {kept!r}, the options name {given!r}")
        service_id = kept or given or None
        if service_id and self.require_per_service_call_history_persistence:
            raise ConfigurationError(
                f"the service keeps this conversation ({service_id!r}), and the agent requires its history to be saved "
                "here around each call: use a session without it, or an agent that does not require it"
            )
        return service_id

    def _check_options(self, options: Mapping[str, Any]) -> None:
        known = FOR_THE_AGENT.union(getattr(self.client, "known_options", options))
        if unknown := set(options) - known:
            raise ConfigurationError(
                f"unknown options {', '.join(sorted(map(repr, unknown)))}; {type(self.client).__name__} knows "
                f"{', '.join(sorted(known))}"
            )

    def _check(self, providers: Sequence[Provider]) -> None:
        for provider in providers:
            known = isinstance(provider, BaseContextProvider | HistoryProvider)
            if not known or not hasattr(provider, "source_id"):
                raise ConfigurationError(
                    f"{provider!r} is no provider: subclass BaseContextProvider or BaseHistoryProvider, and call "
                    "super().__init__(source_id)"
                )
        sources = [provider.source_id for provider in providers]
        if twice := {source for source in sources if sources.count(source) > 1}:
            raise ConfigurationError(f"more than one provider has the source id {', '.join(map(repr, sorted(twice)))}")
        check_one_loads(providers)
        if self.session_store is not None:
            session_keeper(providers, self.session_store)


def _as_messages(input: object) -> list[Message]:
    given = [input] if isinstance(input, str | Message) else input
    if not isinstance(given, list | tuple):
        raise TypeError(f"an agent's input is a str, a Message, or a list of those, not {type(input).__name__}")
    return [_as_message(item) for item in given]


def _as_message(item: object) -> Message:
    if isinstance(item, str | Message):
        return Message("user", [item]) if isinstance(item, str) else item
    raise TypeError(f"an agent's input holds str and Message, not {type(item).__name__}")
