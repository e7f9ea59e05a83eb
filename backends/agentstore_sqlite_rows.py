"""A session's row in the SQLite file: found, begun, brought up to date and removed, inside a transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from functools import cache

import msgspec

from agentstore.backend import activity_minute
from agentstore.keys import SessionKey

TOP = 1 << 32  # one above the highest seq
FIND = """
    SELECT s.hash, s.id, s.last_seq, s.calls, s.answers, s.minute, s.expires_at, n.version, n.format
    FROM session s LEFT JOIN snapshot n ON n.session = s.id WHERE s.hash IN ({})
"""
BEGIN = """
    INSERT INTO session (hash, namespace, source, session, created_at, updated_at, minute, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
UNLINK = "UPDATE session SET hash = NULL WHERE id = ?"
TOUCH = """
    UPDATE session SET last_seq = v.column2, count = count + v.column3, bytes = bytes + v.column4,
        calls = calls + v.column5, answers = coalesce(v.column6, answers), updated_at = v.column7,
        expires_at = coalesce(v.column8, expires_at)
    FROM (VALUES {}) v WHERE id = v.column1
"""
SET_MINUTE = "UPDATE session SET minute = ? WHERE id = ?"  # it stands in an index: written only when it changes
REMOVE = "DELETE FROM message WHERE id >= ? AND id < ?"
SAVE_SNAPSHOT = """
    INSERT INTO snapshot (session, version, format, payload) VALUES (?, 1, ?, CAST(? AS TEXT))
    ON CONFLICT (session) DO UPDATE SET version = version + 1, format = excluded.format, payload = excluded.payload
"""
REMOVE_METADATA = "DELETE FROM metadata WHERE session = ?"
REMOVE_PARTS = (
    "DELETE FROM answer WHERE session = ?",
    "DELETE FROM snapshot WHERE session = ?",
    REMOVE_METADATA,
    "DELETE FROM session WHERE id = ?",
)


class Found(msgspec.Struct, frozen=True):
    """A living session's row."""

    id: int
    last_seq: int
    calls: int
    answers: bytes
    """To the last appends: see `agentstore_sqlite_answers`."""
    minute: int
    snapshot_version: int
    snapshot_format: str | None

    @property
    def bounds(self) -> tuple[int, int]:
        """Where its messages' rowids start, and where they end."""
        return self.id << 32, (self.id + 1) << 32


def now() -> int:
    """Microseconds since 1970 by this machine's clock, which is the file's."""
    return time.time_ns() // 1000


class Change(msgspec.Struct, frozen=True):
    """What a write does to its session's row: what came or went, and (`None`: no change) the new bounds."""

    found: Found
    last_seq: int | None = None
    count: int = 0
    size: int = 0
    answers: bytes | None = None
    """With the answer to one more call."""
    ttl: int | None = None


def find(connection: sqlite3.Connection, key: SessionKey) -> Found | None:
    """The living session; one that has expired is unlinked from its key."""
    return find_all(connection, [key]).get(key.hash)


def find_all(connection: sqlite3.Connection, keys: Sequence[SessionKey]) -> dict[bytes, Found]:
    """As `find`, by the keys' hashes."""
    living: dict[bytes, Found] = {}
    for row in connection.execute(many(FIND, "?", len(keys)), [key.hash for key in keys]).fetchall():
        hash, session, last_seq, calls, answers, minute, expires_at, version, format = row
        if expires_at is not None and expires_at <= now():
            connection.execute(UNLINK, (session,))
        else:
            living[hash] = Found(session, last_seq, calls, answers, minute, version or 0, format)
    return living


def begin(connection: sqlite3.Connection, key: SessionKey, hash: bytes | None, ttl: int | None) -> Found:
    """A new row, linked to the key's `hash`, or (`None`) to no key yet."""
    moment = now()
    expires_at = None if ttl is None else moment + ttl
    row = (hash, key.namespace, key.source_id, key.session_id, moment, moment, activity_minute(moment), expires_at)
    session = connection.execute(BEGIN, row).lastrowid
    assert session is not None
    return Found(session, 0, 0, b"", activity_minute(moment), 0, None)


def touch(connection: sqlite3.Connection, *changes: Change) -> None:
    """Bring the rows of different sessions up to date."""
    moment = now()
    values: list[int | bytes | None] = []
    for found, last_seq, count, size, answers, ttl in map(msgspec.structs.astuple, changes):
        last, expires_at = found.last_seq if last_seq is None else last_seq, None if ttl is None else moment + ttl
        values += (found.id, last, count, size, int(answers is not None), answers, moment, expires_at)
    connection.execute(many(TOUCH, "(?, ?, ?, ?, ?, ?, ?, ?)", len(changes)), values)
    minute = activity_minute(moment)
    if moved := [(minute, change.found.id) for change in changes if change.found.minute != minute]:
        connection.executemany(SET_MINUTE, moved)


@cache
def many(statement: str, item: str, count: int) -> str:
    """The statement with that many items in its `{}`."""
    return statement.format(", ".join([item] * count))


def remove_session(connection: sqlite3.Connection, session: int) -> None:
    """Remove the row and everything that belongs to it."""
    connection.execute(REMOVE, (session << 32, (session + 1) << 32))
    for statement in REMOVE_PARTS:
        connection.execute(statement, (session,))
