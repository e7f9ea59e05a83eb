"""Saving a turn exactly once: what of the input is a replay, and two different messages under one id.

Written against roles, ids and digests, so that every kind of message with a codec can use it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agentstore.batch import derived_id
from agentstore.codec import Codec, digest
from agentstore.errors import ConflictError
from agentstore.history import SessionHistory
from agentstore.session import AgentSession
from agentstore.shapes import Appended

ANSWER_ROLES = frozenset({"assistant", "tool"})
"""Roles that a caller does not write: only with one of them does a repeat of the window mean a replay."""


class Seen(NamedTuple):
    """What makes a message the same one again."""

    role: str
    message_id: str | None
    digest: bytes


Refusals = set[tuple[str, bytes]]


def seen(codec: Codec, messages: Iterable[Any]) -> list[Seen]:
    """Role, id and digest of each message; raises what the codec raises for one that it cannot encode."""
    items: list[Seen] = []
    for message in messages:
        message_id, identity, _ = codec.encode(message)
        items.append(Seen(str(message.role), message_id, digest(identity)))
    return items


def replayed(window: Sequence[Seen], inputs: Sequence[Seen], *, whole: bool) -> int:
    """How many of the inputs, from the first one on, are stored already.

    They are if the loaded window, holding at least one assistant or tool message, stands inside them: a `whole` history
    as their beginning, a window cut from a longer one anywhere, at its last occurrence. An input without id is compared
    by role and contents; one with an id must have the stored message's.
    """
    if not any(item.role in ANSWER_ROLES for item in window):
        return 0
    last = len(inputs) - len(window)
    for start in range(min(last, 0) if whole else last, -1, -1):
        if all(map(is_same, window, inputs[start : start + len(window)])):
            return start + len(window)
    return 0


async def append_distinct(
    chat: SessionHistory, codec: Codec, messages: Sequence[Any], *, snapshot: AgentSession | None = None
) -> Appended:
    """Append the messages; two different ones under one id, here or in the store, are both kept.

    The later one is stored under `other_id(its id, its digest)`, and the caller's object keeps its own: so a replay of
    either finds itself. Nothing is read, and another try costs something only where ids clash. A `snapshot` is saved
    with them.
    """
    try:
        return await chat.append(messages, snapshot=snapshot)
    except ConflictError as error:
        clash = error
    items = seen(codec, messages)
    tried = [item.message_id for item in items]
    refused: Refusals = set()
    while clash.ids:
        names = distinct_ids(items, refused)
        if names == tried:  # the ids differ among themselves: what clashed is in the store
            refused |= _lost(items, tried, clash)
            names = distinct_ids(items, refused)
        if names == tried:
            break
        try:
            named = [_named(codec, *pair) for pair in zip(messages, names, strict=True)]
            return await chat.append(named, snapshot=snapshot)
        except ConflictError as error:
            clash, tried = error, names
    raise clash


def distinct_ids(items: Iterable[Seen], refused: Refusals) -> list[str | None]:
    """An id for each message, its own if it can be: none for two different ones, none that was `refused` to it."""
    taken: dict[str, bytes] = {}
    names: list[str | None] = []
    for _, name, made in items:
        while name is not None and ((name, made) in refused or taken.setdefault(name, made) != made):
            name = other_id(name, made)
        names.append(name)
    return names


def other_id(message_id: str, made: bytes) -> str:
    """The id for a message with this digest whose own id stands for another message already."""
    return derived_id(message_id, made.hex())


def is_same(stored: Seen, given: Seen) -> bool:
    """Whether the stored message is the given one: by role and contents, and by id where the given one has one."""
    if stored.digest != given.digest:
        return False
    own = given.message_id
    return own is None or stored.message_id in (own, other_id(own, given.digest))


def _lost(items: Sequence[Seen], names: Sequence[str | None], clash: ConflictError) -> Refusals:
    return {(name, item.digest) for item, name in zip(items, names, strict=True) if name and name in clash.ids}


def _named(codec: Codec, message: Any, name: str | None) -> Any:
    if name is None or codec.encode(message)[0] == name:
        return message
    renamed = copy.copy(message)
    codec.assign_id(renamed, name)
    return renamed
