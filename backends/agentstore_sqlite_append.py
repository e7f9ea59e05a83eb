"""Appending inside one SQLite transaction: turns that wait together are written with the same few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentstore.backend import (
    Append,
    Current,
    Plan,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    Written,
    activity_minute,
    plan_append,
)
from agentstore.errors import StorageError
from agentstore.keys import SessionKey
from agentstore_sqlite_answers import note, noted, remembered
from agentstore_sqlite_rows import SAVE_SNAPSHOT, SET_MINUTE, TOP, Change, Found, begin, find_all, many, now, touch

ROWS_TOGETHER = 128
"""Most messages that one statement inserts."""

KNOWN = """
    SELECT m.id >> 32, m.id_hash, m.id & 4294967295, m.digest FROM (VALUES {}) v
    JOIN message m ON m.id >> 32 = v.column1 AND m.id_hash = v.column2
"""
NEWEST = """
    SELECT id & 4294967295, digest, length(CAST(payload AS BLOB)) FROM message
    WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1
"""
INSERT = "INSERT INTO message (id, id_hash, digest, created_at, format, payload) VALUES {}"
ROW = "(?, ?, ?, ?, ?, CAST(? AS TEXT))"
FIND_ONE = """
    SELECT id, last_seq, calls, answers, minute, expires_at, (SELECT version FROM snapshot n WHERE n.session = s.id)
    FROM session s WHERE hash = ?
"""
TOUCH_ONE = """
    UPDATE session SET last_seq = ?, count = count + ?, bytes = bytes + ?, calls = calls + 1, answers = ?,
        updated_at = ?, expires_at = ? WHERE id = ?
"""

Row = tuple[int, bytes, bytes, int, str, bytes]
KnownIds = Mapping[tuple[int, bytes], tuple[int, bytes]]  # session row and id hash: seq and digest


class Appending(msgspec.Struct, frozen=True):
    """An append as a piece of work that can be done together with others."""

    key: SessionKey
    append: Append

    def __call__(self, connection: sqlite3.Connection, /) -> Written | Refused:
        return append_all(connection, [self])[0]


class Write(msgspec.Struct, frozen=True):
    """What a session gets."""

    found: Found
    new: tuple[Record, ...]
    answer: Written
    snapshot: SnapshotWrite | None
    token: bytes | None = None
    """The call to be remembered with the answer."""
    ttl: int | None = None


def append_all(connection: sqlite3.Connection, works: Sequence[Appending]) -> list[Written | Refused]:
    """Do the appends one after another, those to different sessions at once."""
    if len(works) == 1 and works[0].append.is_new() and (written := _append_new(connection, *works)):
        return [written]
    return [answer for some in _rounds(works) for answer in _append_round(connection, some)]


def known_ids(connection: sqlite3.Connection, asked: Sequence[tuple[int, bytes]]) -> KnownIds:
    """Of these sessions' id hashes, those that are there, with seq and digest."""
    known: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    for start in range(0, len(asked), ROWS_TOGETHER):
        some = asked[start : start + ROWS_TOGETHER]
        values = [value for pair in some for value in pair]
        for session, id_hash, seq, digest in connection.execute(many(KNOWN, "(?, ?)", len(some)), values).fetchall():
            known[session, id_hash] = seq, digest
    return known


def current_state(
    connection: sqlite3.Connection,
    found: Found | None,
    write: Append | Replace,
    known: KnownIds,
) -> Current:
    """What `plan_append` needs to know about the session."""
    if found is None:
        return Current()
    there = {r.id_hash: known[found.id, r.id_hash] for r in write.records if (found.id, r.id_hash) in known}
    newest = connection.execute(NEWEST, found.bounds).fetchone() if write.expected_last is not None else None
    return Current(newest[0] if newest else 0, there, found.snapshot_version, found.snapshot_format)


def planned(found: Found, write: Append | Replace, plan: Plan, current: Current) -> Write:
    """The plan as what the session gets."""
    if found.last_seq + len(plan.new) >= TOP:
        raise StorageError("the session has used up its 2**32 seqs: begin another one")
    answer = plan.answer(write, current, found.last_seq + 1)
    if isinstance(write, Replace):
        return Write(found, plan.new, answer, plan.snapshot)
    return Write(found, plan.new, answer, plan.snapshot, write.token, write.ttl)


def write_all(connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
    """Give different sessions what they get."""
    moment = now()
    rows: list[Row] = []
    for write in writes:
        first = (write.found.id << 32) + write.found.last_seq + 1
        rows += [(i, r.id_hash, r.digest, moment, r.format, r.payload) for i, r in enumerate(write.new, first)]
    insert(connection, rows)
    for write in writes:
        if write.snapshot:
            connection.execute(SAVE_SNAPSHOT, (write.found.id, write.snapshot.format, write.snapshot.payload))
    touch(connection, *[_change(connection, write) for write in writes])


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert messages' rows, many with each statement."""
    for start in range(0, len(rows), ROWS_TOGETHER):
        some = rows[start : start + ROWS_TOGETHER]
        values = [value for row in some for value in row]
        connection.execute(many(INSERT, ROW, len(some)), values)


def _append_new(connection: sqlite3.Connection, work: Appending) -> Written | None:
    """Append new messages to a session that lives, in the fewest steps.

    `None`, and no change, where there is more to it: the careful path meets the same again, and copes or raises.
    """
    append, count, moment = work.append, len(work.append.records), now()
    row = connection.execute(FIND_ONE, (work.key.hash,)).fetchone() if count <= ROWS_TOGETHER else None
    if row is None:
        return None
    session, last_seq, calls, answers, minute, expires_at, version = row
    first = last_seq + 1
    if (expires_at is not None and expires_at <= moment) or last_seq + count >= TOP:
        return None
    values: list[Any] = []
    for place, r in enumerate(append.records, (session << 32) + first):
        values += (place, r.id_hash, r.digest, moment, r.format, r.payload)
    try:
        connection.execute(many(INSERT, ROW, count), values)
    except sqlite3.IntegrityError:  # most likely another call with the same objects wrote them first
        return None
    answers = noted(answers, calls, append.token, first, count, version or 0)
    ends = expires_at if append.ttl is None else moment + append.ttl
    size = sum([len(record.payload) for record in append.records])
    connection.execute(TOUCH_ONE, (last_seq + count, count, size, answers, moment, ends, session))
    if minute != activity_minute(moment):
        connection.execute(SET_MINUTE, (activity_minute(moment), session))
    return Written(list(range(first, first + count)), count, version or 0)


def _rounds(works: Sequence[Appending]) -> Iterator[list[Appending]]:
    """The works in their order, cut where a session comes again."""
    some: dict[bytes, Appending] = {}
    for work in works:
        if work.key.hash in some:
            yield list(some.values())
            some = {}
        some[work.key.hash] = work
    yield list(some.values())


def _append_round(connection: sqlite3.Connection, works: Sequence[Appending]) -> list[Written | Refused]:
    found = find_all(connection, [work.key for work in works])
    there = [(row.id, work.append) for work in works if (row := found.get(work.key.hash))]
    known = known_ids(connection, [(session, record.id_hash) for session, append in there for record in append.records])
    steps = [_decide(connection, found.get(work.key.hash), work, known) for work in works]
    if writes := [step for step in steps if isinstance(step, Write)]:
        write_all(connection, writes)
    return [step.answer if isinstance(step, Write) else step for step in steps]


def _decide(
    connection: sqlite3.Connection, found: Found | None, work: Appending, known: KnownIds
) -> Write | Written | Refused:
    key, append = work.key, work.append
    if append.retry and found and (answer := remembered(connection, found, append.token)):
        return answer
    current = current_state(connection, found, append, known)
    plan = plan_append(append, current)
    if isinstance(plan, Refused):
        return plan
    return planned(found or begin(connection, key, key.hash, append.ttl), append, plan, current)


def _change(connection: sqlite3.Connection, write: Write) -> Change:
    size = sum([len(record.payload) for record in write.new])
    answers = note(connection, write.found, write.token, write.answer) if write.token else None
    return Change(write.found, write.found.last_seq + len(write.new), len(write.new), size, answers, write.ttl)
