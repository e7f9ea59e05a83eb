"""How the SDK's compaction shortens a session: by a tail, or whole; never by what was not read, or cannot be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any, NamedTuple

from agentstore.adapters.openai_agents_codec import Unreadable
from agentstore.adapters.openai_agents_rows import Row, row_of, swap
from agentstore.backend import StoredRecord
from agentstore.errors import ConflictError, CorruptRecordError
from agentstore.history import SessionHistory

IsOld = Callable[[Any], bool]


class Tail(NamedTuple):
    """The newest records, up to the first that is to stay: one that cannot be read, or that is no item of the SDK."""

    rows: list[Row]
    complete: bool
    """Whether they are all records of the session."""

    @property
    def items(self) -> list[Any]:
        return [item for row in self.rows for item in row.items]


class Whole(SessionHistory):
    """A history whose reads leave nothing out, whatever the store's `on_corrupt`."""

    @classmethod
    def of(cls, chat: SessionHistory) -> Whole:
        """The same session."""
        return cls(chat._gate, chat.key, chat._codec, ttl=chat._ttl)

    def _decode(self, record: StoredRecord) -> Any:
        try:
            return super()._decode(record)
        except CorruptRecordError:
            return Unreadable(record.payload)

    async def tail(self, limit: int) -> Tail:
        """What may be replaced of the newest `limit` records."""
        newest = await self.records(limit=limit)
        complete = len(newest) < limit or not await self.records(limit=1, before=newest[0].seq)
        rows = list(takewhile(lambda row: row is not None and row.items, map(row_of, reversed(newest))))
        return Tail([row for row in reversed(rows) if row], complete and len(rows) == len(newest))

    async def replace_suffix(self, rows: list[Row], start: int, output: list[Any], is_old: IsOld | None) -> bool:
        """Replace the rows' items from place `start` on, and drop the oldest items, if they are to go."""
        for row in rows:
            if start < len(row.items):
                replaced = await swap(self, row.seq, row.items[:start] + output, rows[-1].seq)
                if replaced and is_old is not None:
                    await self._prune(row.seq, is_old)
                return replaced
            start -= len(row.items)
        return False

    async def _prune(self, before: int, is_old: IsOld) -> None:
        """Remove the oldest items, up to the first that stays or the record `before`."""
        async for stored in self.iterate():
            row = row_of(stored)
            if stored.seq >= before or row is None or not row.items or not all(map(is_old, row.items)):
                before = min(before, stored.seq)
                break
        await self.truncate(before=before)

    async def check_replaceable(self) -> None:
        """Raise `CorruptRecordError` or `ConflictError` where a record would be lost by replacing all items."""
        async for stored in self.iterate():
            row = row_of(stored)
            where = f"record {stored.seq} of session {self.key}"
            if row is None:
                raise CorruptRecordError(f"{where} cannot be read; nothing changed")
            if not row.items:
                raise ConflictError(f"{where} is no item of this SDK; nothing changed")
