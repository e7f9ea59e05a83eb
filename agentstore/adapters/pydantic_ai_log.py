"""The entries of one conversation as they lie in its session: in the order in which they were saved.

A history is a chain of parents. As long as nobody branches, that is the order of the records, and the end of a history
is the end of the session. An entry whose parent is not the record before it says where its parent is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from pydantic_ai.conversation_store import ConversationEntry

from agentstore.adapters.pydantic_ai_codec import Link, messages_of
from agentstore.adapters.pydantic_ai_native import Reader
from agentstore.errors import CorruptRecordError
from agentstore.history import SessionHistory
from agentstore.keys import check_id
from agentstore.messages import Message
from agentstore.shapes import StoredMessage

PAGE = 1000
"""Records that are read at once."""

_logger = logging.getLogger("agentstore")


class Found(NamedTuple):
    """A record on the chain."""

    id: str
    stored: StoredMessage


async def follow(chat: SessionHistory, head_id: str, *, at: int | None, limit: int | None = None) -> list[Found]:
    """The chain that ends in `head_id`, oldest first, or its last `limit` records; `at` is the head's seq, if known.

    Raises `LookupError` where a record of it is missing. A page holds 1,000 records; each place where the history left
    a branch begins a new one.
    """
    walk = _Walk(chat, head_id, limit)
    before = None if at is None else at + 1
    size = PAGE if limit is None else min(limit, PAGE)
    while not walk.is_done and (page := await chat.records(limit=size, before=before)):
        before, size = walk.go_over(page), min(2 * size, PAGE)
    if not walk.is_done and walk.wanted != ANY:
        raise LookupError(f"entry {walk.wanted!r} is not in session {chat.key}")
    return walk.chain[::-1]


class _Walk:
    """From a head to its ancestors, over pages of records."""

    def __init__(self, chat: SessionHistory, head_id: str, limit: int | None) -> None:
        self.chain: list[Found] = []
        self.wanted: str | None = head_id
        self._chat = chat
        self._limit = limit

    @property
    def is_done(self) -> bool:
        return self.wanted is None or len(self.chain) == self._limit

    def go_over(self, page: Sequence[StoredMessage]) -> int:
        """Take what belongs to the chain; returns the seq before which it goes on."""
        passed = 0
        for stored in reversed(page):
            own_id = _id(self._chat, stored)
            if self.wanted not in (own_id, ANY):
                passed += isinstance(stored.message, Message)
            elif (after := self._take(own_id, stored)) is not None:
                return after + 1
            if self.is_done:
                break
        if passed and self.chain:
            _logger.warning("%d messages of others in session %s are not in this history", passed, self._chat.key)
        return page[0].seq

    def _take(self, own_id: str, stored: StoredMessage) -> int | None:
        """The seq of the parent, if it lies elsewhere."""
        self.chain.append(Found(own_id, stored))
        link = stored.message
        self.wanted = link.parent_id if isinstance(link, Link) else ANY
        return link.after if isinstance(link, Link) else None


async def find(chat: SessionHistory, entry_id: str) -> int | None:
    """The seq of the entry, looked for from the end; `None` where the session has none."""
    before = None
    while page := await chat.records(limit=PAGE, before=before):
        for stored in reversed(page):
            if _id(chat, stored) == entry_id:
                return stored.seq
        before = page[0].seq
    return None


async def entries_of(chat: SessionHistory, chain: Sequence[Found]) -> list[ConversationEntry]:
    """The entries; of another framework's messages, those that this one has a counterpart for."""
    links = [found.stored.message for found in chain if isinstance(found.stored.message, Link)]
    try:
        own = iter(messages_of([link.message for link in links]))
    except ValueError as error:
        raise CorruptRecordError(f"an entry of session {chat.key} cannot be read: {error}") from error
    reader = Reader()
    parent_id = await _parent_of(chat, chain[0]) if chain else None
    entries: list[ConversationEntry] = []
    for found in chain:
        stored = found.stored
        is_own = isinstance(stored.message, Link)
        message = next(own) if is_own else reader.read(stored.message, stored.created_at)
        if message is not None:
            entries.append(ConversationEntry(id=found.id, parent_id=parent_id, message=message))
        parent_id = found.id
    return entries


def foreign_id(chat: SessionHistory, seq: int) -> str:
    """The entry id of a record that another framework wrote."""
    return f"{chat.key.session_id}#{seq}"


def parse_foreign_id(entry_id: str) -> tuple[str, int] | None:
    """Session id and seq of such an entry id."""
    session_id, _, seq = entry_id.rpartition("#")
    with suppress(ValueError):  # it may be any text
        check_id("session_id", session_id)
        return (session_id, int(seq)) if seq.isascii() and seq.isdecimal() else None
    return None


def _id(chat: SessionHistory, stored: StoredMessage) -> str:
    return stored.message.id if isinstance(stored.message, Link) else foreign_id(chat, stored.seq)


async def _parent_of(chat: SessionHistory, first: Found) -> str | None:
    if isinstance(first.stored.message, Link):
        return first.stored.message.parent_id
    older = await chat.records(limit=1, before=first.stored.seq)
    return _id(chat, older[0]) if older else None


ANY = ""
"""Wanted where a record of another framework leads to whatever lies before it; no entry has an empty id."""
