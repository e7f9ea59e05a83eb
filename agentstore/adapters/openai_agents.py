"""Durable sessions for agents of the OpenAI Agents SDK (extra `openai-agents`).

from agents import Agent, Runner
from agentstore.adapters.openai_agents import StoreSession

session = StoreSession("sqlite:///chat.db", "user-42")
result = await Runner.run(Agent(name="Assistant"), "Hello", session=session)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from agentstore.errors import (
    ClosedError,
    ConflictError,
    CorruptRecordError,
    MissingDependencyError,
    UnavailableError,
)
from agentstore.history import CONTENTION_SECONDS, SessionHistory
from agentstore.registry import store_of
from agentstore.settle import settled
from agentstore.shapes import StoredMessage
from agentstore.store import HistoryStore

try:
    from agents.memory import SessionSettings
    from agents.memory.session import _CompactionSnapshot
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError as error:
    raise MissingDependencyError(
        f"the adapter needs the module {error.name!r}: pip install 'agentstore-history[openai-agents]'"
    ) from error

from agentstore.adapters.openai_agents_codec import Given, ItemCodec
from agentstore.adapters.openai_agents_compaction import Whole
from agentstore.adapters.openai_agents_rows import items_in, items_on, row_of, swap

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem

__all__ = ["ItemCodec", "StoreSession"]

ASIDE = "~unreadable"
"""Ends the source under which `pop_item` keeps the items that it removed and could not read."""

_codec = ItemCodec()
_logger = logging.getLogger("agentstore")


class StoreSession:
    """A session of the SDK (its `Session` protocol) in a store: each call is one transaction, all or nothing.

    Of a URL it makes a store, which connects on first use and which `close` closes; a store given is never closed.
    Items are kept exactly as given. An id in an item says nothing about it being new: what is added twice is there
    twice. What other frameworks' agents wrote in the session is read as items, as far as the SDK has a counterpart.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        store_or_url: HistoryStore | str,
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        source_id: str = "history",
        namespace: str | None = None,
    ) -> None:
        """`session_settings.limit` is the limit of reads that name none; `namespace` is by default the store's."""
        self.store, self._owns_store = store_of(store_or_url)
        self.session_id = session_id
        self.source_id = source_id
        self.namespace = namespace
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._closed = False
        self._newest_read: int | None = None
        self._chat = self._history(source_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r}, {self.session_id!r}, source_id={self.source_id!r})"

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """The newest `limit` items (`None`: the settings' limit, else all), oldest first; none for 0 or less.

        Items that cannot be read are left out, logged, and do not count.
        """
        limit = resolve_session_limit(limit, self.session_settings)
        with self._open() as chat:
            if limit is None:
                self._newest_read = None
                return items_in(await chat.messages())
            if limit <= 0:
                return await chat.messages(limit=0)
            items = await self._read(chat, limit)
        return items[-limit:]

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add the items, all or none. A cancelled call that began its write finishes it; so do the other writes."""
        with self._open() as chat:
            await chat.append([Given(item) for item in items])

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Remove the newest item and return it; `None` where there is none. No two callers get the same one.

        Items that cannot be read are passed over: they leave the session, and are kept under the source
        `<source_id>~unreadable` as they are.
        """
        return await self._pop_item_with_validation()

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items."""
        with self._open() as chat:
            await chat.clear()

    async def close(self) -> None:
        """Close the store that was made of a URL; idempotent. Afterwards every call raises `RuntimeError`."""
        self._closed = True
        if self._owns_store:
            await self.store.aclose()

    async def __aenter__(self) -> StoreSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the SDK's wrappers look for in a session, by these names

    async def _pop_item_with_validation(
        self, validate: Callable[[TResponseInputItem], None] | None = None
    ) -> TResponseInputItem | None:
        """As `pop_item`; what `validate` raises leaves the item in its place."""
        with self._open() as chat:
            return await settled(self._pop(chat, validate))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """The newest items, and the way to replace a tail of them unless anything was written since.

        `None` for subclasses, which may keep items in a way of their own. A record that cannot be read stays, with all
        before it. `prune_prefix` chooses the oldest items that go too, in a second step.
        """
        if type(self) is not StoreSession:
            return None
        with self._open() as chat:
            tail = await Whole.of(chat).tail(limit)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            with self._open() as chat:
                return await settled(Whole.of(chat).replace_suffix(tail.rows, start, output, prune_prefix))

        return _CompactionSnapshot(tail.items, tail.complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step; the SDK reads them just before, with a limit.

        Raises `ConflictError`, and changes nothing, if anything was written since that read or a record is no item of
        the SDK, and `CorruptRecordError` if one cannot be read.
        `False`, and no change, for subclasses, which may keep items in a way of their own.
        """
        if type(self) is not StoreSession:
            return False
        with self._open() as chat:
            await Whole.of(chat).check_replaceable()
            await chat.replace([Given(item) for item in items], expected_last=self._newest_read)
        return True

    def _history(self, source_id: str) -> SessionHistory:
        return self.store.session(self.session_id, source_id=source_id, namespace=self.namespace, codec=_codec)

    def _open(self) -> _Open:
        """The session's history; raises the SDK's `RuntimeError` where session or store is closed."""
        if self._closed:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return _Open(self._chat)

    async def _read(self, chat: SessionHistory, limit: int) -> list[Any]:
        """The items of the newest records that hold so many."""
        page = await chat.records(limit=limit)
        self._newest_read = page[-1].seq if page else 0
        items, wanted = items_on(page), limit
        while len(page) == wanted and (wanted := limit - len(items)) > 0:
            page = await chat.records(limit=wanted, before=page[0].seq)
            items = items_on(page) + items
        return items

    async def _pop(self, chat: SessionHistory, validate: Callable[[Any], None] | None) -> Any:
        failed, deadline = 0, time.monotonic() + CONTENTION_SECONDS
        while newest := await chat.records(limit=1):
            if (row := row_of(newest[0])) is None:
                await self._set_aside(chat, newest[0])
                continue
            if not row.items:
                raise ConflictError(f"record {row.seq} of session {chat.key} is no item of this SDK; it stays")
            *rest, item = row.items
            if validate is not None:
                validate(item)
            if await swap(chat, row.seq, rest, row.seq):
                return item
            if failed == row.seq:
                await _check_newest(chat, row.seq)
            if time.monotonic() > deadline:
                raise UnavailableError(f"pop_item: others wrote to {chat.key} for {CONTENTION_SECONDS:.0f} s; not done")
            failed = row.seq
        return None

    async def _set_aside(self, chat: SessionHistory, stored: StoredMessage) -> None:
        # Kept first: if the process dies in between it is there twice, never not at all.
        await self._history(self.source_id + ASIDE).append([stored.message])
        if await swap(chat, stored.seq, [], stored.seq):
            _logger.warning("moved to source %r: item %d of session %s", self.source_id + ASIDE, stored.seq, chat.key)


class _Open:
    """Closed stores raise what the SDK's sessions do. A class, since `contextmanager` costs as much as a look-up."""

    __slots__ = ("_chat",)

    def __init__(self, chat: SessionHistory) -> None:
        self._chat = chat

    def __enter__(self) -> SessionHistory:
        return self._chat

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ClosedError):
            raise RuntimeError("the store of this session is closed") from error


async def _check_newest(chat: SessionHistory, seq: int) -> None:
    """Raise `CorruptRecordError` where another framework's record lies behind `seq` that reads leave out."""
    info = await chat.info()
    if info is not None and info.last_seq > seq:
        raise CorruptRecordError(f"record {info.last_seq} of session {chat.key} cannot be read; it stays")
