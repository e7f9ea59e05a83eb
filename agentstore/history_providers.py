"""The two history providers: in the session's own state, and in a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agentstore.codec import MessageCodec, digest
from agentstore.history import SessionHistory
from agentstore.messages import Message, same
from agentstore.providers import BaseHistoryProvider, Filter, filtered
from agentstore.registry import store_of
from agentstore.replay import append_distinct, other_id
from agentstore.session import AgentSession, SessionContext
from agentstore.store import HistoryStore
from agentstore.units import without_orphans
from agentstore.windows import Budget, Window, read_window

_codec = MessageCodec()


class InMemoryHistoryProvider(BaseHistoryProvider):
    """Keeps the messages in the session itself, in `session.state[source_id]["messages"]`.

    They live as long as the session does: keep it (`AgentSession.to_dict`) to keep them. A `reducer`, sync or async,
    gets the messages at each load and gives back those that the model is to see. `flags` are those of
    `BaseHistoryProvider`.
    """

    def __init__(self, source_id: str = "memory", *, reducer: Filter | None = None, **flags: Any) -> None:
        super().__init__(source_id, **flags)
        self.reducer = reducer

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> Window[Message]:
        """Copies of what the state holds, reduced; empty without a state."""
        messages = [_copied(message) for message in _kept(state or {})]
        return Window(await filtered(self.reducer, messages), stored=messages, whole=True)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add copies of the messages; one without id is given one on the object, one that is there is not added.

        Raises `ValueError` without a state.
        """
        if state is None:
            raise ValueError(f"provider {self.source_id!r} keeps messages in the session's state: pass it as state=")
        kept = _kept(state)
        known = {message.message_id: message for message in kept}
        for message in messages:
            if (new := _distinct(message, known)) is not None:
                known[new.message_id] = new
                kept.append(new)

    async def clear(self, session: AgentSession) -> int:
        """Drop the messages of the session; returns how many."""
        return len(session.state.get(self.source_id, {}).pop("messages", ()))


class StoreHistoryProvider(BaseHistoryProvider):
    """Keeps histories in a store, under its `source_id`, and shows the model their newest part.

    The window holds the newest whole units (see `agentstore.units`) that fit `max_messages` and `max_tokens`;
    tokens are counted per message by `count_tokens(message) -> int`, by default a rough estimate of the real text
    (`agentstore.windows.estimate_tokens`). `keep_system` keeps, and counts, the system messages with which the history
    begins. A `reducer`, sync or async, gets the window at each load. `flags` are those of `BaseHistoryProvider`.

    Of a URL it makes a store, which connects on first use and which `aclose` closes; a store given is never closed.
    """

    def __init__(
        self,
        store_or_url: HistoryStore | str,
        source_id: str = "history",
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[Message], int] | None = None,
        keep_system: bool = False,
        reducer: Filter | None = None,
        **flags: Any,
    ) -> None:
        super().__init__(source_id, **flags)
        self.store, self._owns_store = store_of(store_or_url)
        self.budget = Budget(max_messages, max_tokens, count_tokens)
        self.keep_system = keep_system
        self.reducer = reducer

    def history(self, session: AgentSession | str) -> SessionHistory:
        """Everything that is stored of the session (or session id) under this provider's source."""
        session_id: str = getattr(session, "session_id", session)  # type: ignore[arg-type]
        return self.store.session(session_id, source_id=self.source_id, codec=self.codec)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> Window[Message]:
        """The session's window; reads no more of the history than it needs."""
        window = await read_window(self._chat(session_id), self.budget, keep_system=self.keep_system)
        if self.reducer is None:
            return window
        reduced = without_orphans(await filtered(self.reducer, window))
        return Window(reduced, stored=window.stored, whole=window.whole)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        snapshot: AgentSession | None = None,
        **kwargs: Any,
    ) -> None:
        """Append the messages, all or none, without reading the history (see `agentstore.replay.append_distinct`).

        A `snapshot` of the session is saved in the same transaction.
        """
        await append_distinct(self._chat(session_id), self.codec, messages, snapshot=snapshot)

    async def after_run_with_session(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """As `after_run`, and saves the session in the same transaction, also where the turn adds no message."""

        async def save(messages: list[Message]) -> None:
            await self.save_messages(context.session_id, messages, state=state, snapshot=session)

        await self._save_turn(save, agent, session, context)

    async def clear(self, session: AgentSession | str) -> int:
        """Drop the messages of the session (or session id) under this source; returns how many."""
        return await self.history(session).clear()

    async def list_sessions(self) -> list[str]:
        """The ids of all sessions under this source, newest activity first; `store.sessions` gives them in pages."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.store.sessions(source_id=self.source_id, cursor=cursor)
            found += [info.key.session_id for info in page.items]
            if (cursor := page.cursor) is None:
                return found

    async def aclose(self) -> None:
        """Close the store that was made of a URL; idempotent."""
        if self._owns_store:
            await self.store.aclose()

    def _chat(self, session_id: str | None) -> SessionHistory:
        if session_id is None:
            raise ValueError(f"provider {self.source_id!r} needs a session id: there is no session for everybody")
        return self.history(session_id)


def _kept(state: dict[str, Any]) -> list[Message]:
    """The state's own list; what a restored session holds as dicts becomes messages in place."""
    kept: list[Any] = state.setdefault("messages", [])
    for place, message in enumerate(kept):
        if isinstance(message, Mapping):
            kept[place] = Message.from_dict(message)
    return kept


def _copied(message: Message) -> Message:
    return Message.adopt(message.to_dict())


def _distinct(message: Message, known: Mapping[str | None, Message]) -> Message | None:
    """A copy of the message under an id that is free; `None` where it is known already."""
    if message.message_id is None:
        message.message_id = uuid4().hex
    new = _copied(message)
    while (other := known.get(new.message_id)) is not None:
        if _is_same(other, new):
            return None
        new.message_id = other_id(new.message_id or "", digest(_codec.encode(message).identity))
    return new


def _is_same(left: Message, right: Message) -> bool:
    return left.role == right.role and same(left.to_dict()["contents"], right.to_dict()["contents"])
