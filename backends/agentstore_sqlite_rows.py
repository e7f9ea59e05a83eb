"""A session's row in the SQLite file: found, begun, brought up to date and removed, inside a transaction."""

from __future__ import annotations

import sqlite3
import time

import msgspec

from agentstore.backend import activity_minute
from agentstore.keys import SessionKey

TOP = 1 << 32  # one above the highest seq
FIND = """
    SELECT s.id, s.last_seq, s.calls, s.minute, s.expires_at, n.version, n.format
    FROM session s LEFT JOIN snapshot n ON n.session = s.id WHERE s.hash = ?
"""
BEGIN = """
    INSERT INTO session (hash, namespace, source, session, created_at, updated_at, minute, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
UNLINK = "UPDATE session SET hash = NULL WHERE id = ?"
TOUCH = """
    UPDATE session SET last_seq = ?, count = count + ?, bytes = bytes + ?, calls = calls + ?, updated_at = ?,
        expires_at = coalesce(?, expires_at) WHERE id = ?
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


def find(connection: sqlite3.Connection, key: SessionKey) -> Found | None:
    """The living session; one that has expired is unlinked from its key."""
    row = connection.execute(FIND, (key.hash,)).fetchone()
    if row is None:
        return None
    session, last_seq, calls, minute, expires_at, version, format = row
    if expires_at is not None and expires_at <= now():
        connection.execute(UNLINK, (session,))
        return None
    return Found(session, last_seq, calls, minute, version or 0, format)


def begin(connection: sqlite3.Connection, key: SessionKey, hash: bytes | None, ttl: int | None) -> Found:
    """A new row, linked to the key's `hash`, or (`None`) to no key yet."""
    moment = now()
    expires_at = None if ttl is None else moment + ttl
    row = (hash, key.namespace, key.source_id, key.session_id, moment, moment, activity_minute(moment), expires_at)
    session = connection.execute(BEGIN, row).lastrowid
    assert session is not None
    return Found(session, 0, 0, activity_minute(moment), 0, None)


def touch(
    connection: sqlite3.Connection,
    found: Found,
    *,
    last_seq: int | None = None,
    count: int = 0,
    bytes: int = 0,
    calls: int = 0,
    ttl: int | None = None,
) -> None:
    """Bring the session's row up to date; `count`, `bytes` and `calls` are what came or went."""
    moment = now()
    expires_at = None if ttl is None else moment + ttl
    last_seq = found.last_seq if last_seq is None else last_seq
    connection.execute(TOUCH, (last_seq, count, bytes, calls, moment, expires_at, found.id))
    if activity_minute(moment) != found.minute:
        connection.execute(SET_MINUTE, (activity_minute(moment), found.id))


def remove_session(connection: sqlite3.Connection, session: int) -> None:
    """Remove the row and everything that belongs to it."""
    connection.execute(REMOVE, (session << 32, (session + 1) << 32))
    for statement in REMOVE_PARTS:
        connection.execute(statement, (session,))
