"""The records of a session as items of the OpenAI Agents SDK."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from agentstore.adapters.openai_agents_codec import Given, Unreadable
from agentstore.adapters.openai_agents_messages import items_of
from agentstore.errors import ConflictError
from agentstore.history import SessionHistory
from agentstore.messages import Message
from agentstore.shapes import StoredMessage

_logger = logging.getLogger("agentstore")


class Row(NamedTuple):
    """A record that can be read."""

    seq: int
    items: list[Any]
    """One, unless another framework wrote the record."""


def items_in(messages: list[Any]) -> list[Any]:
    """The items in what was read of a session."""
    if {Message, Unreadable}.isdisjoint(map(type, messages)):
        return messages
    rows = [_items(message, "") for message in messages]
    return [item for items in rows for item in items or ()]


def items_on(page: list[StoredMessage]) -> list[Any]:
    """The items in the records that can be read."""
    messages = [stored.message for stored in page]
    if {Message, Unreadable}.isdisjoint(map(type, messages)):
        return messages
    return [item for stored in page if (row := row_of(stored)) is not None for item in row.items]


def row_of(stored: StoredMessage) -> Row | None:
    """`None`, and a warning, for an item that cannot be read."""
    items = _items(stored.message, f" {stored.seq}")
    return None if items is None else Row(stored.seq, items)


def _items(message: Any, name: str) -> list[Any] | None:
    if isinstance(message, Unreadable):
        _logger.warning("skipped: item%s cannot be read", name)
        return None
    return items_of(message) if isinstance(message, Message) else [message]


async def swap(chat: SessionHistory, seq: int, items: list[Any], newest: int) -> bool:
    """Put the items in the place of record `seq` and those behind it; `False` if `newest` is no longer the newest."""
    try:
        await chat.replace([Given(item) for item in items], after=seq - 1, expected_last=newest)
    except ConflictError:
        return False
    return True
