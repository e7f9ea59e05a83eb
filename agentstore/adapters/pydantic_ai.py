"""Durable conversations for agents of Pydantic AI (extra `pydantic-ai`; Python 3.11 or newer).

from pydantic_ai import Agent, Conversation
from agentstore.adapters.pydantic_ai import StoreConversationStore

store = StoreConversationStore("sqlite:///chat.db")
conversation = await store.load("user-42") or Conversation(conversation_id="user-42")
result = await Agent(model).run("Hello", conversation=conversation)
await store.save(result)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from agentstore.errors import ConfigurationError, ConflictError, MissingDependencyError
from agentstore.history import SessionHistory
from agentstore.registry import store_of
from agentstore.settle import settled
from agentstore.shapes import SessionInfo, SessionPage
from agentstore.store import HistoryStore

try:
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
except ImportError as error:
    raise MissingDependencyError(
        f"the adapter needs the module {error.name!r}: pip install 'agentstore-history[pydantic-ai]' (Python >= 3.11)"
    ) from error

from agentstore.adapters.pydantic_ai_codec import EntryCodec, Link
from agentstore.adapters.pydantic_ai_log import Found, entries_of, find, follow, parse_foreign_id
from agentstore.adapters.pydantic_ai_messages import FORMAT
from agentstore.adapters.pydantic_ai_record import Saved, commit, load

__all__ = ["EntryCodec", "StoreConversationStore"]

V = TypeVar("V")

_codec = EntryCodec()
_REMEMBERED = 10_000
_PAGE = 50


class StoreConversationStore(ConversationStore):
    """A conversation store of the framework in a store: one session a conversation, its record the snapshot.

    A save is one transaction, and a load reads the end of the session (see docs/pydantic-ai.md). A fork has copies of
    the entries that it starts from, under the same ids: so `delete` removes a conversation's messages for good, and
    harms no fork. What other frameworks' agents wrote in a session is a conversation too.

    Of a URL it makes a store, which connects on first use and which `aclose` closes; a store given is never closed.
    """

    def __init__(
        self, store_or_url: HistoryStore | str, *, source_id: str = "history", namespace: str | None = None
    ) -> None:
        """`namespace` is by default the store's."""
        self.store, self._owns_store = store_of(store_or_url)
        self.source_id = source_id
        self.namespace = namespace
        self._saved: _Recent[Saved] = _Recent()
        self._places: _Recent[tuple[str, int | None]] = _Recent()  # where the ends of histories lie, by entry id

    def __repr__(self) -> str:
        return f"StoreConversationStore({self.store!r}, source_id={self.source_id!r})"

    async def aclose(self) -> None:
        """Close the store that was made of a URL; idempotent."""
        if self._owns_store:
            await self.store.aclose()

    async def __aenter__(self) -> StoreConversationStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The conversation's record, or `None`. Raises `CorruptRecordError` for one that cannot be read."""
        record, saved = await load(self._chat(conversation_id))
        self._remember(conversation_id, saved)
        if record is not None:
            for tip in record.branches:
                self._places.put(tip, (conversation_id, None))
        return record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, newest `updated_at` first; which are the newest, the store's clock decides, to the minute."""
        if limit == 0:
            return []
        size = _PAGE if limit is None or scope is not None else min(limit + 1, _PAGE)
        records: list[ConversationRecord] = []
        minute, page = 0, await self._page(size)
        while page.items:
            full = limit is not None and len(records) >= limit
            wanted = [info for info in page.items if not full or _minute(info) == minute]
            records += await self._records(wanted, scope)
            if page.cursor is None or len(wanted) < len(page.items):
                break
            minute, page = _minute(page.items[-1]), await self._page(size, page.cursor)
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Save record and entries in one transaction. A cancelled call finishes it first.

        Raises `ConversationConflict` unless `expected_revision` is the stored one, and where the record's head or the
        first entry's parent is nowhere; then nothing changed.
        """
        await settled(self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Remove the record and all entries of the conversation, those of branches too; forks have copies of theirs.

        Raises `ConversationConflict` unless `expected_revision` is the stored one.
        """
        await settled(self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry; raises `LookupError` where there is none.

        One that no history ends with is looked for in one conversation after another: `load_entries` is the quick way.
        """
        chat, chain = await self._follow(entry_id, limit=1)
        if not (entries := await entries_of(chat, chain)):
            raise LookupError(f"entry {entry_id!r} has no counterpart in Pydantic AI")
        return entries[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last `limit` of them; 1,000 records a read. Raises `LookupError`."""
        if head_id is None or limit == 0:
            return []
        return await entries_of(*await self._follow(head_id, limit=limit))

    def _chat(self, conversation_id: str) -> SessionHistory:
        return self.store.session(conversation_id, source_id=self.source_id, namespace=self.namespace, codec=_codec)

    def _remember(self, conversation_id: str, saved: Saved) -> None:
        self._saved.put(conversation_id, saved)
        if saved.head_id is not None:
            self._places.put(saved.head_id, (conversation_id, saved.head))

    async def _write(
        self, record: ConversationRecord, new: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        chat, conversation_id = self._chat(record.conversation_id), record.conversation_id
        saved = self._saved.get(conversation_id)
        if saved is None or saved.revision != expected_revision:
            _, saved = await load(chat)
        if saved.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        if saved.is_foreign:
            raise ConfigurationError(
                f"session {chat.key} holds a snapshot that is no conversation: give the store a source_id of its own"
            )
        copied, links, head = await self._plan(chat, saved, record, new)
        if record.scope not in (None, saved.scope):
            await chat.annotate({_note(record.scope): True})  # before the record: no listing may miss it
        self._saved.pop(conversation_id, None)
        version = await commit(chat, copied, links, head, saved, record)
        self._remember(conversation_id, Saved(version, record.revision, record.head_id, head=head, scope=record.scope))

    async def _plan(
        self, chat: SessionHistory, saved: Saved, record: ConversationRecord, new: Sequence[ConversationEntry]
    ) -> tuple[list[Link], list[Link], int | None]:
        """Entries to copy, entries to write, and the head's seq where it will not be the newest record."""
        parent_id = new[0].parent_id if new else record.head_id
        after = saved.head
        copied: list[Link] = []
        if parent_id is not None and parent_id != saved.head_id:
            after = await find(chat, parent_id)
            copied = await self._copy(record, parent_id) if after is None else []
        links = [Link.of(entry) for entry in new]
        if links and parent_id is not None:
            links[0] = links[0]._replace(after=after)
        head_id = record.head_id
        if head_id not in (None, parent_id, *[link.id for link in links]) and await find(chat, str(head_id)) is None:
            raise ConversationConflict(record.conversation_id)
        return copied, links, None if copied or links or head_id is None else after

    async def _copy(self, record: ConversationRecord, entry_id: str) -> list[Link]:
        """The history that ends in another conversation's entry."""
        try:
            chat, chain = await self._follow(entry_id, near=record.forked_from)
        except LookupError as error:
            raise ConversationConflict(record.conversation_id) from error
        kept = {found.id: found.stored.message.message for found in chain if isinstance(found.stored.message, Link)}
        entries = await entries_of(chat, chain)
        return [Link.of(entry)._replace(message=kept.get(entry.id, entry.message)) for entry in entries]

    async def _delete(self, conversation_id: str, expected_revision: str) -> None:
        chat = self._chat(conversation_id)
        self._saved.pop(conversation_id, None)
        record, saved = await load(chat)
        info = await chat.info()
        if record is None or info is None or saved.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            # The version counts on, so that no copy that was loaded before can be saved over a new conversation.
            await chat.save_snapshot({FORMAT: None}, expected_version=saved.version)
        except ConflictError as error:
            raise ConversationConflict(conversation_id) from error
        await chat.truncate(before=info.last_seq + 1)

    async def _follow(
        self, entry_id: str, *, limit: int | None = None, near: str | None = None
    ) -> tuple[SessionHistory, list[Found]]:
        """The history that ends in the entry, wherever it is; raises `LookupError` where it is nowhere."""
        places = (self._places.get(entry_id), near and (near, None), parse_foreign_id(entry_id))
        for place in places:
            if place and (found := await self._try(entry_id, place, limit)) is not None:
                return found
        self._places.pop(entry_id, None)
        page = await self._page(_PAGE)
        while True:
            for info in page.items:
                if (found := await self._try(entry_id, (info.key.session_id, None), limit)) is not None:
                    return found
            if page.cursor is None:
                raise LookupError(f"no entry {entry_id!r}")
            page = await self._page(_PAGE, page.cursor)

    async def _try(
        self, entry_id: str, place: tuple[str, int | None], limit: int | None
    ) -> tuple[SessionHistory, list[Found]] | None:
        chat = self._chat(place[0])
        try:
            return chat, await follow(chat, entry_id, at=place[1], limit=limit)
        except LookupError:
            return None

    async def _page(self, size: int, cursor: str | None = None) -> SessionPage:
        """Conversations, newest activity first."""
        return await self.store.sessions(namespace=self.namespace, source_id=self.source_id, limit=size, cursor=cursor)

    async def _records(self, infos: Sequence[SessionInfo], scope: str | None) -> list[ConversationRecord]:
        chats = [self._chat(info.key.session_id) for info in infos if scope is None or _note(scope) in info.metadata]
        records = [record for record, _ in await asyncio.gather(*map(load, chats))]
        return [record for record in records if record is not None and scope in (None, record.scope)]


class _Recent(OrderedDict[str, V]):
    """A dict that forgets what was put first."""

    def put(self, key: str, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


def _minute(info: SessionInfo) -> int:
    return int(info.updated_at.timestamp()) // 60


def _note(scope: str | None) -> str:
    """What a session's metadata hold for a conversation that has the scope, or had it: a listing reads no others."""
    return f"{FORMAT} scope {scope}"
