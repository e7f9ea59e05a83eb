"""`compact`: makes a stored history shorter for good, and keeps the originals in an archive beside it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from agentstore.backend import Append, Record, Refused, Replace, Rewriting, StoredRecord
from agentstore.batch import check_messages, check_size, check_total, encode_batch, hash_id, new_call
from agentstore.codec import digest
from agentstore.errors import ConflictError, UnavailableError
from agentstore.history import CONTENTION_SECONDS, SessionHistory
from agentstore.keys import SessionKey
from agentstore.replay import other_id
from agentstore.settle import settled

Reducer = Callable[[list[Any]], Iterable[Any] | Awaitable[Iterable[Any]]]
"""Gives back the messages that are to be kept, sync or async; those that it is given it leaves as they are."""

ARCHIVE = "~archive"
"""What a source's id is followed by in that of its archive."""

_ARCHIVED_AT_ONCE = 200  # records; in turns, so that no limit on one write is met


@dataclass(frozen=True)
class Compacted:
    """The answer to `compact`."""

    before: int
    """How many messages the history had when it was swapped."""
    after: int
    """How many it has since."""
    archived: int
    """How many originals are new in the archive."""
    archive: SessionHistory


async def compact(chat: SessionHistory, reducer: Reducer) -> Compacted:
    """Swap the stored history for what the reducer, sync or async, makes of it; the originals go to an archive.

    That is the session of the same id under the source `<source_id>~archive`: what the swap removes is appended to it
    first, each original once, whatever is interrupted and made again. It gets the store's ttl by that, is never read
    for the model, and is not deleted with the history.

    Readers see the old history or the new one. What is appended while the reducer works stands behind its result; what
    is changed or removed meanwhile makes it start again. Messages that stay keep ids and contents, but for those at
    the beginning not their seqs and times. A history that the reducer leaves as it is, is not written.

    Raises what the reducer raises, `TypeError` where it gives back no messages, `ValueError` where it leaves none (for
    that there is `clear`), `CorruptRecordError` for a record that cannot be read (also where the store skips such), and
    `UnavailableError` where other writers came in between for 30 s. The history is whole then.
    """
    history, archive = _Raw.of(chat), _Raw.of(chat, chat.key.source_id + ARCHIVE)
    draft = await history.draft(reducer)
    deadline = time.monotonic() + CONTENTION_SECONDS
    archived, appended = 0, None
    while not draft.unchanged:
        if await history.since(draft) is None:  # what was changed or removed must not reach the archive
            draft = await history.draft(reducer)
        else:
            archived += await archive.keep(draft.removed)
            if (appended := await history.swap(draft)) is not None:
                break
        if time.monotonic() > deadline:
            raise UnavailableError(f"compact: other writers came in between for {CONTENTION_SECONDS:.0f} s; not done")
    more = appended or 0
    return Compacted(len(draft.originals) + more, len(draft.records) + more, archived, archive)


class _Draft(NamedTuple):
    """What was read of a history, and what is to take its place."""

    originals: list[StoredRecord]
    records: list[Record]

    @property
    def stays(self) -> int:
        """How many at the beginning stay where they are."""
        pairs = zip(self.originals, self.records, strict=False)
        return len(list(takewhile(lambda pair: _as_given(pair[0]) == pair[1], pairs)))

    @property
    def unchanged(self) -> bool:
        return len(self.originals) == len(self.records) == self.stays

    @property
    def removed(self) -> list[StoredRecord]:
        kept = {(record.id_hash, record.digest) for record in self.records}
        return [record for record in self.originals if (record.id_hash, record.digest) not in kept]


class _Raw(SessionHistory):
    """A history whose records are moved as they are, whatever their format."""

    @classmethod
    def of(cls, chat: SessionHistory, source_id: str | None = None) -> _Raw:
        """The same session, or the one of another source, read strictly."""
        key = SessionKey(chat.key.namespace, source_id or chat.key.source_id, chat.key.session_id)
        return cls(chat._gate, key, chat._codec, ttl=chat._ttl)

    async def draft(self, reducer: Reducer) -> _Draft:
        """Read the history, and let the reducer work on it."""
        self._gate.able(Rewriting, "compact")
        found = await self._newest(None, None)
        originals = [record for record, _ in found]
        if not found:
            return _Draft([], [])
        result = reducer([message for _, message in found])
        reduced = check_messages(await result if inspect.isawaitable(result) else result)
        if not reduced:
            raise ValueError(f"the reducer left nothing of session {self.key}: to empty it, clear() it")
        return _Draft(originals, await asyncio.to_thread(self._records, reduced, found))

    async def since(self, draft: _Draft) -> list[StoredRecord] | None:
        """What was appended since the draft was read; `None` where something else was done."""
        now = await self._log.read(self.key) if await self._gate.readable() else []
        read = len(draft.originals)
        return now[read:] if now[:read] == draft.originals else None

    async def keep(self, originals: Sequence[StoredRecord]) -> int:
        """Append the records, each unless it is there; how many were not."""
        await self._gate.writable()
        written = 0
        for page in _pages(originals, self._log.limits.append_bytes):
            append = Append(page, new_call().to_bytes(16, "big"), ttl=self._ttl)
            while isinstance(answer := await self._append(append), Refused):
                renamed = [self._renamed(r) if i in answer.positions else r for i, r in enumerate(append.records)]
                append = msgspec.structs.replace(append, records=tuple(renamed))
            written += answer.written
        return written

    async def swap(self, draft: _Draft) -> int | None:
        """Swap what was read, and nothing else; how many were appended since, or `None` where that cannot be."""
        rewriting = self._gate.able(Rewriting, "compact")
        if (appended := await self.since(draft)) is None:
            return None
        stays = draft.stays
        records = _distinct([*draft.records[stays:], *map(_as_given, appended)])
        after = draft.originals[stays - 1].seq if stays else 0
        last = (appended or draft.originals)[-1].seq
        swap = Replace(tuple(records), after=after, expected_last=last)
        answer = await settled(rewriting.replace(self.key, swap))
        return None if isinstance(answer, Refused) else len(appended)

    def _records(self, reduced: Sequence[Any], found: Iterable[tuple[StoredRecord, Any]]) -> list[Record]:
        """The records of what the reducer gave; a message that it got and gave back has its own."""
        known: dict[int, list[StoredRecord]] = defaultdict(list)
        for record, message in found:
            known[id(message)].append(record)
        new = [message for message in reduced if id(message) not in known]
        batch = encode_batch(self._codec, new, self._log.limits)
        places = iter(batch.places)
        records = [
            self._given_back(message, known[id(message)]) if id(message) in known else batch.records[next(places)]
            for message in reduced
        ]
        distinct = _distinct(records)
        check_total(distinct, self._log.limits)
        return distinct

    def _given_back(self, message: Any, originals: list[StoredRecord]) -> Record:
        # A codec may decode equal payloads to one object: then each time it comes stands for the next record.
        original = originals.pop(0) if len(originals) > 1 else originals[0]
        if original.format != self._codec.format or self._codec.decode(original.payload) == message:
            return _as_given(original)
        message_id, identity, payload = self._codec.encode(message)  # it was changed in place
        check_size(payload, self._log.limits, "a message of the reducer's")
        id_hash = hash_id(message_id) if message_id else original.id_hash
        return Record(id_hash, digest(identity), self._codec.format, payload)

    def _renamed(self, record: Record) -> Record:
        """The record under an id derived from its own, as another message has that."""
        if record.format == self._codec.format:
            message = self._codec.decode(record.payload)
            own = self._codec.encode(message)[0]
            if own and self._codec.assign_id(message, derived := other_id(own, record.digest)):
                payload = self._codec.encode(message)[2]
                return msgspec.structs.replace(record, id_hash=hash_id(derived), payload=payload)
        return msgspec.structs.replace(record, id_hash=hash_id(other_id(record.id_hash.hex(), record.digest)))


def _as_given(stored: StoredRecord) -> Record:
    return Record(stored.id_hash, stored.digest, stored.format, stored.payload)


def _distinct(records: Iterable[Record]) -> list[Record]:
    """Each record once; raises `ConflictError` where one id stands for two different messages."""
    found: dict[bytes, Record] = {}
    for record in records:
        if found.setdefault(record.id_hash, record).digest != record.digest:
            raise ConflictError("the reducer gave two different messages one id; the history is unchanged")
    return list(found.values())


def _pages(originals: Iterable[StoredRecord], most_bytes: int) -> Iterator[tuple[Record, ...]]:
    """The records in as many writes as it takes."""
    page: list[Record] = []
    size = 0
    for original in originals:
        size += len(original.payload)
        if page and (len(page) == _ARCHIVED_AT_ONCE or size > most_bytes):
            yield tuple(page)
            page, size = [], len(original.payload)
        page.append(_as_given(original))
    if page:
        yield tuple(page)
