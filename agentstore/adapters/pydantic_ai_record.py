"""A conversation's record, as the snapshot of its session: read and written with what makes its revision exact."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord

from agentstore.adapters.pydantic_ai_codec import Link, record_of, record_shape
from agentstore.adapters.pydantic_ai_log import foreign_id
from agentstore.adapters.pydantic_ai_messages import FORMAT
from agentstore.errors import ConflictError, CorruptRecordError
from agentstore.history import SessionHistory
from agentstore.messages import Message

COPIED_AT_ONCE = 1000
"""Entries of a fork that are written in one step with its record; of a longer one, the last so many."""


class Saved(NamedTuple):
    """What is known of a conversation in the store."""

    version: int
    """Of the snapshot."""
    revision: str | None = None
    """`None` where there is no conversation."""
    head_id: str | None = None
    head: int | None = None
    """Seq of the head, where that is not the newest record."""
    scope: str | None = None
    last: int | None = None
    """Seq of the newest record, where that stands for the revision."""
    is_foreign: bool = False
    """Whether the snapshot is another framework's."""


async def load(chat: SessionHistory) -> tuple[ConversationRecord | None, Saved]:
    """The record, and what the store knows about it; raises `CorruptRecordError` for one that cannot be read."""
    stored = await chat.load_snapshot()
    if stored is None:
        return await _load_foreign(chat, Saved(0))
    snapshot: Any = stored.session
    if not isinstance(snapshot, dict) or FORMAT not in snapshot:
        return await _load_foreign(chat, Saved(stored.version, is_foreign=True))
    if snapshot[FORMAT] is None:
        return await _load_foreign(chat, Saved(stored.version))
    try:
        record = record_of(snapshot[FORMAT])
    except ValueError as error:
        raise CorruptRecordError(f"the record of conversation {chat.key} cannot be read: {error}") from error
    return record, Saved(stored.version, record.revision, record.head_id, snapshot.get("head"), record.scope)


async def _load_foreign(chat: SessionHistory, saved: Saved) -> tuple[ConversationRecord | None, Saved]:
    """A record for messages that others wrote, if there are any; its revision: seq and time of the last."""
    newest = await chat.records(limit=1)
    if not newest or not isinstance(newest[0].message, Message):
        return None, saved
    seq = newest[0].seq
    record = ConversationRecord(
        conversation_id=chat.key.session_id,
        head_id=foreign_id(chat, seq),
        revision=f"{seq} {newest[0].created_at.isoformat()}",
        updated_at=newest[0].created_at,
    )
    return record, saved._replace(revision=record.revision, head_id=record.head_id, last=seq)


async def commit(
    chat: SessionHistory,
    copied: list[Link],
    new: list[Link],
    head: int | None,
    saved: Saved,
    record: ConversationRecord,
) -> int:
    """Write entries and record in one step; returns the new version. Raises `ConversationConflict`.

    Nobody sees the beginning of a long fork before its record is there.
    """
    snapshot = {FORMAT: record_shape(record), "head": head}
    links = copied[-COPIED_AT_ONCE:] + new
    try:
        for start in range(0, len(copied) - COPIED_AT_ONCE, COPIED_AT_ONCE):
            await chat.append(copied[:-COPIED_AT_ONCE][start : start + COPIED_AT_ONCE])
        done = await chat.append(links, snapshot=snapshot, expected_version=saved.version, expected_last=saved.last)
        if not links or done.written:
            return done.snapshot_version or 0
        # All entries were there: then the store did not write the snapshot again.
        _, now = await load(chat)
        if now.revision == record.revision:
            return now.version
        return await chat.save_snapshot(snapshot, expected_version=saved.version)
    except ConflictError as error:
        raise ConversationConflict(record.conversation_id) from error
