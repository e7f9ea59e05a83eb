"""Durable history for agents of the Microsoft Agent Framework (extra `agent-framework`).

from agent_framework import Agent
from agentstore.adapters.agent_framework import StoreHistoryProvider

agent = Agent(client=client, context_providers=[StoreHistoryProvider("sqlite:///chat.db")])
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from agentstore import history_providers
from agentstore.errors import MissingDependencyError
from agentstore.providers import check_one_loads, filtered
from agentstore.session import without_attribution
from agentstore.store import HistoryStore
from agentstore.units import without_orphans
from agentstore.windows import Window, read_window

try:
    import agent_framework
except ImportError as error:
    raise MissingDependencyError(
        f"the adapter needs the module {error.name!r}: pip install 'agentstore-history[agent-framework]'"
    ) from error

from agentstore.adapters.agent_framework_codec import AgentFrameworkCodec, native
from agentstore.adapters.agent_framework_marks import included

if TYPE_CHECKING:
    from agentstore.adapters.agent_framework_sessions import StoreSessionStore

__all__ = ["AgentFrameworkCodec", "StoreHistoryProvider", "StoreSessionStore"]

APPROVALS = frozenset({"function_approval_request", "function_approval_response"})

_logger = logging.getLogger("agentstore")


def __getattr__(name: str) -> Any:
    """`StoreSessionStore` on demand: the framework warns of its experimental base whoever only defines a subclass."""
    if name != "StoreSessionStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentstore.adapters.agent_framework_sessions import StoreSessionStore

    return StoreSessionStore


class StoreHistoryProvider(history_providers.StoreHistoryProvider, agent_framework.HistoryProvider):  # type: ignore[misc]
    """The core's `StoreHistoryProvider` as a history provider of the framework: same constructor, same rules.

    Its records are the core's (`agentstore/1`): an agent of either library goes on with the other's sessions. What it
    stores is exact, also where the framework's own `to_dict()` is not; what a newer framework wrote, and this one does
    not know, stays in the store. Ids are given to the live objects, so a replay of them is never stored twice.

    The marks of the framework's compaction are stored with the messages. An excluded one is not loaded where its
    summary is; with `skip_excluded`, neither are those that were excluded without one.
    """

    codec = AgentFrameworkCodec()

    def __init__(
        self,
        store_or_url: HistoryStore | str,
        source_id: str = "history",
        *,
        skip_excluded: bool = False,
        **options: Any,
    ) -> None:
        """`options` are those of the core's provider."""
        super().__init__(store_or_url, source_id, **options)
        self.skip_excluded = skip_excluded
        self._told = False

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> Window[Any]:
        """As the core has it, all of them the framework's messages, without what its compaction excluded."""
        window = await read_window(self._chat(session_id), self.budget, keep_system=self.keep_system)
        shown: list[Any] = included([native(message) for message in window], all_marks=self.skip_excluded)
        whole = len(shown) == len(window) and self.reducer is None
        if not whole:
            shown = without_orphans(await filtered(self.reducer, shown))
        return Window(shown, stored=window.stored, whole=window.whole)

    if TYPE_CHECKING:  # the core's, for the framework's messages

        async def save_messages(  # type: ignore[override]
            self,
            session_id: str | None,
            messages: Sequence[agent_framework.Message],
            *,
            state: dict[str, Any] | None = None,
            **kwargs: Any,
        ) -> None: ...

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """As the core has it; raises `ConfigurationError` where another of the agent's providers loads history too."""
        providers = getattr(agent, "context_providers", ())
        check_one_loads(providers)  # the framework does not look
        self._tell_of_compaction(providers)
        await super().before_run(agent=agent, session=session, context=context, state=state)

    def _tell_of_compaction(self, providers: Sequence[Any]) -> None:
        mine = [
            provider.source_id
            for provider in providers
            if isinstance(provider, agent_framework.CompactionProvider)
            and provider.after_strategy is not None
            and provider.history_source_id == self.source_id
        ]
        if mine and not self._told:
            self._told = True
            _logger.warning(
                "the after_strategy of %r changes nothing: it works on a list in the session's state; "
                "agentstore.compact makes a stored history shorter",
                mine[0],
            )

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """As the core has it. A client may answer with one object again: each turn's gets an id of its own."""
        answers: list[agent_framework.Message] = context.response.messages if context.response else []
        for message in answers:
            if message in self._given:
                message.message_id = None
        new = [message for message in answers if message.message_id is None]
        await super().after_run(agent=agent, session=session, context=context, state=state)
        self._given.update(new)

    @cached_property
    def _given(self) -> WeakSet[agent_framework.Message]:
        """Answers of the model whose id is of this provider's making."""
        return WeakSet()

    async def answer_to_store(self, session: Any, context: Any) -> Sequence[Any]:
        """As the framework has it: without results that a workflow holds back for its resumption."""
        answer = await super().answer_to_store(session, context)
        if not (answer and self.load_messages and self.store_inputs):
            return answer
        framework = _Framework(self.source_id)
        await framework.after_run(agent=_ANY, session=session, context=context, state={})
        return framework.messages[len(context.input_messages) :]

    async def for_model(self, messages: list[Any], inputs: Sequence[Any] = ()) -> list[Any]:
        """As the core has it, without empty messages and approvals that are settled, by the framework's own rule."""
        shown = [message for message in await super().for_model(messages, inputs) if message.contents]
        if not any(content.type in APPROVALS for message in shown for content in message.contents):
            return shown
        context = agent_framework.SessionContext(input_messages=[])
        await _Framework(self.source_id, shown).before_run(agent=_ANY, session=_ANY, context=context, state={})
        kept: list[Any] = context.get_messages()
        return [without_attribution(message) for message in kept]


class _Framework(agent_framework.HistoryProvider):
    """Loads and saves as the framework's own providers do: that is the public door to its rules."""

    def __init__(self, source_id: str, messages: Sequence[Any] = ()) -> None:
        super().__init__(source_id)
        self.messages = list(messages)

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Any]:
        return self.messages

    async def save_messages(self, session_id: str | None, messages: Any, **kwargs: Any) -> None:
        self.messages += messages


_ANY: Any = None
