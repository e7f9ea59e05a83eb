"""Records as columns of a statement, and rows as the waist's answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import asyncpg

from agentstore.backend import Append, Record, Refused, StoredRecord, Written
from agentstore.keys import SessionKey

SMALL = 32
"""Most records of a turn that shares a statement with others."""

Turn = tuple[SessionKey, Append]
Columns = tuple[list[bytes], list[str], list[bytes]]


def names(key: SessionKey) -> tuple[bytes, bytes, bytes, bytes]:
    """The key's hash, and its parts."""
    return key.hash, key.namespace.encode(), key.source_id.encode(), key.session_id.encode()


def columns(records: Sequence[Record | StoredRecord]) -> Columns:
    """Heads (id hash and digest), formats and payloads."""
    return (
        [record.id_hash + record.digest for record in records],
        [record.format for record in records],
        [record.payload for record in records],
    )


def size(records: Sequence[Record]) -> int:
    """Bytes of the payloads."""
    return sum([len(record.payload) for record in records])


def is_shared(append: Append) -> bool:
    """Whether it may share a statement with others: it is small, and nothing but its ids could be in its way."""
    return not append.is_conditional() and 0 < len(append.records) <= SMALL


def is_plain(append: Append) -> bool:
    """Whether one plain statement writes it, if its session lives: it is small and new, and has one format."""
    if len(append.records) > SMALL or not append.is_new():
        return False
    return len({record.format for record in append.records}) == 1


def together(turns: Sequence[Turn]) -> tuple[Any, ...]:
    """The arguments of `agentstore_append_all`."""
    appends = [append for _, append in turns]
    counts = [len(append.records) for append in appends]
    return (
        [key.hash for key, _ in turns],
        [append.token for append in appends],
        [append.ttl for append in appends],
        counts,
        [size(append.records) for append in appends],
        list(accumulate(counts, initial=0))[:-1],
        [place for place, count in enumerate(counts, start=1) for _ in range(count)],
        *columns([record for append in appends for record in append.records]),
    )


def written(first: int, count: int, version: int) -> Written:
    """The answer where all records are new: their seqs count up."""
    return Written(list(range(first, first + count)), count, version)


def written_together(rows: Sequence[asyncpg.Record], turns: Sequence[Turn]) -> list[Written | None]:
    """For each turn its answer; `None` for one that was not written."""
    answers: list[Written | None] = [None] * len(turns)
    for place, last, version in rows:
        count = len(turns[place - 1][1].records)
        answers[place - 1] = written(last - count + 1, count, version)
    return answers


def read_together(rows: Sequence[asyncpg.Record], count: int) -> list[list[StoredRecord]]:
    """For each session its records, ascending."""
    found: list[list[StoredRecord]] = [[] for _ in range(count)]
    for row in rows:
        found[row[6] - 1].append(StoredRecord(*row[:6]))
    for records in found:
        records.sort(key=_seq)
    return found


def _seq(record: StoredRecord) -> int:
    return record.seq


def answer(row: asyncpg.Record) -> Written | Refused:
    """What `agentstore_append` or `agentstore_replace` said."""
    refused, positions, actual, first, seqs, count, version = row
    if refused is not None:
        return Refused(refused, tuple(positions or ()) if refused == "ids" else (), _actual(refused, actual))
    return written(first, count, version) if seqs is None else Written(seqs, count, version)


def _actual(refused: str, actual: int | None) -> int:
    return actual or 0 if refused in ("last", "version") else 0
