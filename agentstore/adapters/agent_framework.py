"""Durable history for agents of the Microsoft Agent Framework (extra `agent-framework`).

from agent_framework import Agent
from agentstore.adapters.agent_framework import StoreHistoryProvider

agent = Agent(client=client, context_providers=[StoreHistoryProvider("sqlite:///chat.db")])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from agentstore import history_providers
from agentstore.errors import MissingDependencyError
from agentstore.providers import check_one_loads
from agentstore.session import without_attribution

try:
    import agent_framework
except ImportError as error:
    raise MissingDependencyError(
        f"the adapter needs the module {error.name!r}: pip install 'agentstore-history[agent-framework]'"
    ) from error

from agentstore.adapters.agent_framework_codec import AgentFrameworkCodec

__all__ = ["AgentFrameworkCodec", "StoreHistoryProvider"]


APPROVALS = frozenset({"function_approval_request", "function_approval_response"})


class StoreHistoryProvider(history_providers.StoreHistoryProvider, agent_framework.HistoryProvider):  # type: ignore[misc]
    """The core's `StoreHistoryProvider` as a history provider of the framework: same constructor, same rules.

    Its records are the core's (`agentstore/1`): an agent of either library goes on with the other's sessions. What it
    stores is exact, also where the framework's own `to_dict()` is not; what a newer framework wrote, and this one does
    not know, stays in the store. Ids are given to the live objects, so a replay of them is never stored twice.
    """

    codec = AgentFrameworkCodec()

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """As the core has it; raises `ConfigurationError` where another of the agent's providers loads history too."""
        check_one_loads(getattr(agent, "context_providers", ()))  # the framework does not look
        await super().before_run(agent=agent, session=session, context=context, state=state)

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

    if TYPE_CHECKING:  # the core's, for the framework's messages

        async def get_messages(  # type: ignore[override]
            self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
        ) -> list[agent_framework.Message]: ...

        async def save_messages(  # type: ignore[override]
            self,
            session_id: str | None,
            messages: Sequence[agent_framework.Message],
            *,
            state: dict[str, Any] | None = None,
            **kwargs: Any,
        ) -> None: ...

    async def for_model(self, messages: list[Any], inputs: Sequence[Any] = ()) -> list[Any]:
        """As the core has it, without empty messages and approvals that are settled, by the framework's own rule."""
        shown = [message for message in await super().for_model(messages, inputs) if message.contents]
        if not any(content.type in APPROVALS for message in shown for content in message.contents):
            return shown
        context = agent_framework.SessionContext(input_messages=[])
        await _Loader(self.source_id, shown).before_run(agent=_ANY, session=_ANY, context=context, state={})
        kept: list[Any] = context.get_messages()
        return [without_attribution(message) for message in kept]


class _Loader(agent_framework.HistoryProvider):
    """Loads given messages as the framework's own providers do: that is the public door to its rule."""

    def __init__(self, source_id: str, messages: list[Any]) -> None:
        super().__init__(source_id)
        self._messages = messages

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Any]:
        return self._messages

    async def save_messages(self, session_id: str | None, messages: Any, **kwargs: Any) -> None:
        """Never called."""


_ANY: Any = None
