"""When an agent's providers are asked: around each run, or the history providers around each call of the model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from agentstore.codec import MessageCodec
from agentstore.errors import ConfigurationError, SaveError
from agentstore.history_providers import StoreHistoryProvider
from agentstore.messages import Message
from agentstore.owed import owed
from agentstore.providers import INTERRUPTED, BaseContextProvider, HistoryProvider
from agentstore.replay import is_same, seen
from agentstore.responses import AgentResponse
from agentstore.session import AgentSession, SessionContext
from agentstore.store import HistoryStore

Provider = BaseContextProvider | HistoryProvider

_codec = MessageCodec()
_logger = logging.getLogger("agentstore")


class PerTurn:
    """Loads before a run and saves after it. `added` are the messages that the run added so far."""

    def __init__(
        self,
        agent: Any,
        session: AgentSession,
        context: SessionContext,
        providers: Sequence[Provider],
        response: AgentResponse,
    ) -> None:
        self.added = response.messages
        self._agent = agent
        self._session = session
        self._context = context
        self._providers = providers
        self._response = response
        store: HistoryStore | None = agent.session_store
        self._keeper = None if store is None else session_keeper(providers, store)
        self._sent = 0  # how many of `added` a service has, once it keeps the conversation

    async def begin(self) -> None:
        """Let the providers add to the context, in their order."""
        for provider in self._providers:
            await self._before(provider, self._context)

    async def conversation(self) -> list[Message]:
        """What the model is to see in the next call."""
        if self._sent and self._context.service_session_id:
            return self.added[self._sent :]
        return owed(self._session) + self._context.get_messages(include_input=True) + self.added

    async def answered(self) -> None:
        """The model has seen the conversation; its answer is the end of `added`."""
        self._sent = len(self.added)

    async def end(self) -> None:
        """Let the providers see the answer, in reverse order.

        Raises what the first one raised that failed, once all had their turn: a `SaveError` for a history provider.
        """
        self._context.response = self._response
        await self._finish(reversed(self._providers), self._context)

    async def interrupted(self, shown: Sequence[Message]) -> None:
        """Keep what a failed, cancelled or abandoned run leaves, where that is wanted; `shown` is not in `added`."""
        keeping = [provider for provider in self._providers if self._keeps_partial(provider)]
        if keeping:
            try:
                left = self._left(shown)
                left.metadata[INTERRUPTED] = True
                await self._finish(reversed(keeping), left)
            except SaveError as error:  # why the run ended is what the caller must learn
                _logger.error("an interrupted turn was lost: %s", error, exc_info=error)

    def _left(self, shown: Sequence[Message]) -> SessionContext:
        self._context.response = AgentResponse([*self.added, *shown])
        return self._context

    def _keeps_partial(self, provider: Provider) -> bool:
        wanted = getattr(provider, "store_partial", False) or self._agent.store_partial
        return isinstance(provider, HistoryProvider) and bool(wanted)

    async def _before(self, provider: Provider, context: SessionContext) -> None:
        await provider.before_run(
            agent=self._agent, session=self._session, context=context, state=self._state(provider)
        )

    async def _finish(
        self, providers: Iterable[Provider], context: SessionContext, *, with_session: bool = True
    ) -> None:
        given = list(providers)
        keeper = self._keeper if with_session and self._keeper in given else None
        failures = [
            await self._after(provider.after_run, provider, context) for provider in given if provider is not keeper
        ]
        if keeper is not None:  # last: the session that it saves holds what all others put into its state
            failures.append(await self._after(keeper.after_run_with_session, keeper, context))
        for failure in failures:
            if failure is not None:
                raise failure

    async def _after(
        self, after_run: Callable[..., Awaitable[None]], provider: Provider, context: SessionContext
    ) -> Exception | None:
        try:
            await after_run(agent=self._agent, session=self._session, context=context, state=self._state(provider))
        except SaveError as error:
            return error
        except Exception as error:  # a stranger's provider can raise anything, and the others are to save the turn
            if not isinstance(provider, HistoryProvider):
                return error
            failure = SaveError(f"provider {provider.source_id!r} failed: {error}", response=context.response)
            failure.__cause__ = error
            return failure
        return None

    def _state(self, provider: Provider) -> dict[str, Any]:
        state: dict[str, Any] = self._session.state.setdefault(provider.source_id, {})
        return state


class PerCall(PerTurn):
    """Loads and saves the history around each call of the model, as a service would that keeps it.

    What the model did not get to see is not saved: results of tools behind which the run ended.
    """

    def __init__(
        self,
        agent: Any,
        session: AgentSession,
        context: SessionContext,
        providers: Sequence[Provider],
        response: AgentResponse,
    ) -> None:
        super().__init__(agent, session, context, providers, response)
        self._histories = [provider for provider in providers if isinstance(provider, HistoryProvider)]
        self._sources = {provider.source_id for provider in self._histories}
        self._call = context
        self._asked = 0  # where in `added` the answer to this call begins

    async def conversation(self) -> list[Message]:
        if not self._sent:
            return await super().conversation()
        self._asked = len(self.added)
        self._call = self._context_of_call(self.added[self._sent :])
        for provider in self._histories:
            await self._before(provider, self._call)
        return self._view()

    async def answered(self) -> None:
        self._call.response = AgentResponse(self.added[self._asked :])
        await self._save(reversed(self._histories), self._call, with_session=False)
        await super().answered()

    async def end(self) -> None:
        self._context.response = self._response
        others = [provider for provider in self._providers if provider not in self._histories]
        await self._finish(reversed(others), self._context)
        if self._keeper is not None:
            await self._save([self._keeper], self._context_of_call(()))

    async def _save(self, providers: Iterable[Provider], context: SessionContext, *, with_session: bool = True) -> None:
        try:
            await self._finish(providers, context, with_session=with_session)
        except SaveError as error:
            error.response = self._response
            raise

    def _left(self, shown: Sequence[Message]) -> SessionContext:
        if not self._sent:
            return super()._left(shown)
        context = self._context_of_call(())
        context.response = AgentResponse([*self.added[self._sent :], *shown])
        return context

    def _context_of_call(self, inputs: Sequence[Message]) -> SessionContext:
        return SessionContext(session_id=self._context.session_id, input_messages=inputs, options=self._context.options)

    def _view(self) -> list[Message]:
        """The history as it is now, at its place between what other providers added; then this run.

        The run is in view whole and at the end, whatever of it the providers stored, filtered or cut.
        """
        run = [*self._context.input_messages, *self.added]
        view: list[Message] = []
        for source in {**self._context.context_messages, **self._call.context_messages}:
            if source in self._sources:
                view += _without(self._call.context_messages.get(source, []), run)
            else:
                view += self._context.context_messages[source]
        return view + run


def session_keeper(providers: Iterable[Provider], store: HistoryStore) -> StoreHistoryProvider:
    """The provider whose history the session is saved with; raises `ConfigurationError` where none is fit."""
    for provider in providers:
        if isinstance(provider, StoreHistoryProvider) and provider.load_messages:
            if provider.store is store:
                return provider
            raise ConfigurationError(
                f"session_store must be the store of provider {provider.source_id!r}: a turn and its session are saved "
                "in one transaction"
            )
    raise ConfigurationError("session_store needs a StoreHistoryProvider that loads messages from that store")


def _without(loaded: Sequence[Message], run: Sequence[Message]) -> list[Message]:
    """The loaded messages but for those of this run: each is taken out once, from the end."""
    own = seen(_codec, run)
    rest: list[Message] = []
    for message, item in zip(reversed(loaded), reversed(seen(_codec, loaded)), strict=True):
        match = next((place for place in reversed(range(len(own))) if is_same(item, own[place])), None)
        if match is None:
            rest.append(message)
        else:
            del own[match]
    return rest[::-1]
