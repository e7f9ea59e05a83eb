"""Providers: what an agent calls before and after each run; and the rules that every history provider keeps."""

from __future__ import annotations

import copy
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable
from uuid import uuid4

from agentstore.codec import Codec, MessageCodec
from agentstore.errors import ConfigurationError, SaveError
from agentstore.keys import check_id
from agentstore.messages import Message
from agentstore.replay import ANSWER_ROLES, replayed, seen
from agentstore.session import AgentSession, SessionContext, attributed_to, without_attribution
from agentstore.units import without_open_calls, without_orphans
from agentstore.windows import Window

Filter = Callable[[list[Message]], Iterable[Message] | Awaitable[Iterable[Message]]]
"""Gives back the messages to go on with, sync or async; leaves those that it is given as they are."""

OnServiceManaged = Literal["skip", "store_only", "error"]
OnSaveError = Literal["raise", "log"]

INTERRUPTED = "interrupted"
"""In the `additional_properties` of the last message of an unfinished turn, and in the metadata of its run."""

_LOADED = "agentstore.loaded"  # in a context's metadata: by source id, the window that its provider loaded
_logger = logging.getLogger("agentstore")


class BaseContextProvider:
    """Adds to the context before the model is called, and looks at the answer after. Override either.

    An instance serves any number of sessions and keeps nothing of theirs; what belongs to a session goes into `state`,
    which is the session's `state[source_id]`.
    """

    def __init__(self, source_id: str) -> None:
        check_id("source_id", source_id)
        self.source_id = source_id

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Called in the order of the agent's providers, before the model."""

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Called in the reverse order, once the model has answered; not at all if the run failed."""


@runtime_checkable
class HistoryProvider(Protocol):
    """A context provider that keeps histories; at most one of an agent's may have `load_messages`."""

    source_id: str
    load_messages: bool

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None: ...

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None: ...

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The session's history, as far as the model is to see it, oldest first."""
        ...

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the messages at the end of the session's history."""
        ...


class BaseHistoryProvider(BaseContextProvider, ABC):
    """Loads a session's history before a run and saves the new turn after it.

    A subclass writes `get_messages` and `save_messages` (see `HistoryProvider`); everything else is here:

    * What is loaded is stamped with its source, and neither it nor a replay of it in the input is saved again. An input
      that replays it stands for it: the model does not see it twice.
    * `store_inputs`, `store_outputs` and `store_context_messages` say what is saved. Context is what other providers
      added: those named in `store_context_from`, else all but what another history provider loaded.
    * `provide_output_filter` sees what was loaded, `store_input_filter` and `store_output_filter` what is to be saved.
    * A session with a `service_session_id` has its history elsewhere: `on_service_managed="skip"` leaves it alone,
      `"store_only"` saves without loading, `"error"` raises `ConfigurationError`.
    * A run that fails, is cancelled or is left half-way stores nothing; with `store_partial=True` its input and what
      was shown of the answer, the last of these messages with `additional_properties["interrupted"]`.
    * A failing save raises `SaveError`, which holds the answer; `on_save_error="log"` logs it instead.
    """

    codec: Codec = MessageCodec()
    """How the provider's kind of message is stored and compared."""

    def __init__(
        self,
        source_id: str,
        *,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_outputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: Collection[str] | None = None,
        provide_output_filter: Filter | None = None,
        store_input_filter: Filter | None = None,
        store_output_filter: Filter | None = None,
        on_service_managed: OnServiceManaged = "skip",
        on_save_error: OnSaveError = "raise",
        store_partial: bool = False,
    ) -> None:
        super().__init__(source_id)
        if on_service_managed not in ("skip", "store_only", "error"):
            raise ValueError("on_service_managed must be 'skip', 'store_only' or 'error'")
        if on_save_error not in ("raise", "log"):
            raise ValueError("on_save_error must be 'raise' or 'log'")
        if isinstance(store_context_from, str):
            raise TypeError("store_context_from must be a collection of source ids, not one str")
        self.load_messages = load_messages
        self.store_inputs = store_inputs
        self.store_outputs = store_outputs
        self.store_context_messages = store_context_messages
        self.store_context_from = None if store_context_from is None else frozenset(store_context_from)
        self.provide_output_filter = provide_output_filter
        self.store_input_filter = store_input_filter
        self.store_output_filter = store_output_filter
        self.on_service_managed = on_service_managed
        self.on_save_error = on_save_error
        self.store_partial = store_partial

    @abstractmethod
    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The session's history, as far as the model is to see it, oldest first."""

    @abstractmethod
    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the messages at the end of the session's history."""

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        managed = _service_session(session, context)
        if managed and self.on_service_managed == "error":
            raise ConfigurationError(
                f"provider {self.source_id!r} keeps a local history, and session {session.session_id!r} has one "
                f"at the service ({managed!r}): use one of them, or on_service_managed='skip'"
            )
        if managed or not self.load_messages:
            return
        loaded = await self.get_messages(context.session_id, state=state)
        context.metadata.setdefault(_LOADED, {})[self.source_id] = loaded
        if not self._replayed(context, context.input_messages):
            shown = await filtered(self.provide_output_filter, loaded)
            context.extend_messages(self, await self.for_model(shown, context.input_messages))

    async def for_model(self, messages: list[Message], inputs: Sequence[Message] = ()) -> list[Message]:
        """What of the loaded messages the model is to see before these inputs.

        No result without its call, no call without a result (unless it waits for an approval), nothing unreadable.
        """
        return without_open_calls(without_orphans(messages), inputs)

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        async def save(messages: list[Message]) -> None:
            if messages:
                await self.save_messages(context.session_id, messages, state=state)

        await self._save_turn(save, agent, session, context)

    async def answer_to_store(self, session: AgentSession, context: SessionContext) -> Sequence[Message]:
        """What of the answer belongs into the history, before `store_output_filter`: all of it, here."""
        return [] if context.response is None else context.response.messages

    async def _save_turn(
        self,
        save: Callable[[list[Message]], Awaitable[None]],
        agent: Any,
        session: AgentSession,
        context: SessionContext,
    ) -> None:
        try:
            await save(await self._turn(agent, session, context))
        except Exception as error:  # a stranger's save can raise anything, and the answer must not be lost with it
            text = f"provider {self.source_id!r} could not save a turn of session {context.session_id!r}"
            if self.on_save_error == "raise":
                raise SaveError(f"{text}: {error}", response=context.response) from error
            _logger.error(text, exc_info=error)

    async def _turn(self, agent: Any, session: AgentSession, context: SessionContext) -> list[Message]:
        """What this run adds to the history: context, the new part of the input, the answer."""
        if _service_session(session, context) and self.on_service_managed != "store_only":
            return []
        skipped = {self.source_id, *(_loading_sources(agent, context) - (self.store_context_from or frozenset()))}
        turn: list[Message] = []
        if self.store_context_messages:
            turn += context.get_messages(sources=self.store_context_from, exclude_sources=skipped)
        if self.store_inputs:
            inputs = [message for message in context.input_messages if attributed_to(message) not in skipped]
            inputs = await filtered(self.store_input_filter, inputs)
            turn += inputs[self._replayed(context, inputs) :]
        if self.store_outputs:
            turn += await filtered(self.store_output_filter, list(await self.answer_to_store(session, context)))
        stored = [without_attribution(message) for message in turn]
        return [*stored[:-1], _marked(stored[-1])] if stored and context.metadata.get(INTERRUPTED) else stored

    def _replayed(self, context: SessionContext, inputs: Sequence[Message]) -> int:
        """How many of the inputs, from the first one on, repeat the window that was loaded for this run."""
        windows = list(context.metadata.get(_LOADED, {}).values())
        if not windows or not any(message.role in ANSWER_ROLES for message in inputs):
            return 0
        loaded = windows[0]
        stored, whole = (loaded.stored, loaded.whole) if isinstance(loaded, Window) else (loaded, True)
        return replayed(seen(self.codec, stored), seen(self.codec, inputs), whole=whole)


def check_one_loads(providers: Iterable[Any]) -> None:
    """Raise `ConfigurationError`, naming them, where more than one history provider loads messages."""
    loading = [p.source_id for p in providers if isinstance(p, HistoryProvider) and p.load_messages]
    if len(loading) > 1:
        raise ConfigurationError(
            f"more than one history provider has load_messages=True: {', '.join(map(repr, loading))}; the model would "
            "see everything twice"
        )


def check_not_mixed(providers: Iterable[Any], context: SessionContext, conversation: str) -> None:
    """Raise `ConfigurationError` where a provider has a local history of this `conversation` of the service's."""
    loaded = context.metadata.get(_LOADED, {})
    for provider in providers:
        mode = getattr(provider, "on_service_managed", "skip")
        if mode == "error" or (mode == "skip" and loaded.get(provider.source_id)):
            raise ConfigurationError(
                f"session {context.session_id!r} has a local history (provider {provider.source_id!r}), and the "
                f"service would keep it too ({conversation}): use one of them, a new session, or a client that does "
                "not store"
            )


async def filtered(change: Filter | None, messages: list[Message]) -> list[Message]:
    """The messages as a filter or reducer, sync or async, gives them back; all of them without one.

    Raises what it raises, and `TypeError` where it gives back anything else.
    """
    if change is None:
        return messages
    given: Any = change(list(messages))
    result = await given if inspect.isawaitable(given) else given
    changed: list[Any] = list(result) if isinstance(result, Iterable) else [None]
    if not all(hasattr(message, "contents") for message in changed):
        raise TypeError(f"a filter or reducer must give back messages, and {change!r} gave a {type(result).__name__}")
    return changed


def _marked(message: Message) -> Message:
    """A marked copy under the message's own id, which it is given if it has none: the same again is the same one."""
    message.message_id = message.message_id or uuid4().hex
    marked = copy.copy(message)
    marked.additional_properties = {**message.additional_properties, INTERRUPTED: True}
    return marked


def _service_session(session: AgentSession, context: SessionContext) -> str | None:
    return context.service_session_id or session.service_session_id


def _loading_sources(agent: Any, context: SessionContext) -> set[str]:
    """Sources whose messages are a history already."""
    providers = getattr(agent, "context_providers", ())
    configured = {provider.source_id for provider in providers if isinstance(provider, HistoryProvider)}
    return configured | set(context.metadata.get(_LOADED, ()))
