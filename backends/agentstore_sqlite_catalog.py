"""What each operation on sessions and snapshots does inside one SQLite transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from agentstore.backend import Current, Refused, SnapshotWrite, StoredInfo, StoredSnapshot, check_snapshot
from agentstore.errors import CorruptRecordError
from agentstore.keys import SessionKey
from agentstore_sqlite_rows import REMOVE_METADATA, SAVE_SNAPSHOT, TOP, Change, begin, find, now, remove_session, touch

PURGE_PAGE = 100
SET_EXPIRY = "UPDATE session SET expires_at = ? WHERE id = ?"
METADATA = "SELECT CAST(payload AS BLOB) FROM metadata WHERE session = ?"
SAVE_METADATA = "INSERT OR REPLACE INTO metadata (session, payload) VALUES (?, CAST(? AS TEXT))"
LOAD_SNAPSHOT = """
    SELECT n.version, n.format, CAST(n.payload AS BLOB) FROM session s JOIN snapshot n ON n.session = s.id
    WHERE s.hash = ? AND (s.expires_at IS NULL OR s.expires_at > ?)
"""
INFO = """
    SELECT s.namespace, s.source, s.session, s.count, s.created_at, s.updated_at, s.expires_at, s.bytes,
        (SELECT CAST(payload AS BLOB) FROM metadata WHERE session = s.id),
        (SELECT id & 4294967295 FROM message WHERE id >= s.id << 32 AND id < s.id + 1 << 32 ORDER BY id LIMIT 1),
        (SELECT id & 4294967295 FROM message WHERE id >= s.id << 32 AND id < s.id + 1 << 32 ORDER BY id DESC LIMIT 1)
    FROM session s WHERE (s.expires_at IS NULL OR s.expires_at > ?)
"""
INFO_ONE = INFO + " AND s.hash = ?"
LIST = (
    INFO
    + """
    AND s.hash IS NOT NULL AND s.namespace = ? AND (? IS NULL OR s.source = ?) AND s.minute <= ?
    AND (s.minute < ? OR (s.source, s.session) > (?, ?))
    ORDER BY s.minute DESC, s.source, s.session LIMIT ?
"""
)
EXPIRED = """
    SELECT id FROM session WHERE id > ?1 AND (?3 IS NULL OR namespace = ?3)
      AND (expires_at <= ?2 OR (hash IS NULL AND ?3 IS NOT NULL)) ORDER BY id LIMIT ?4
"""
STILL_EXPIRED = "SELECT 1 FROM session WHERE id = ? AND (expires_at <= ? OR hash IS NULL)"
UNLINKED = "SELECT id FROM session WHERE hash IS NULL AND namespace = ? AND source = ? AND session = ?"


def info(connection: sqlite3.Connection, key: SessionKey) -> StoredInfo | None:
    row = connection.execute(INFO_ONE, (now(), key.hash)).fetchone()
    return _stored_info(row) if row else None


def listing(
    connection: sqlite3.Connection, namespace: str, source: str | None, limit: int, start: tuple[int, str, str] | None
) -> list[StoredInfo]:
    minute, behind_source, behind_session = start or (1 << 62, "", "")
    bounds = (minute, minute, behind_source, behind_session)
    return [
        _stored_info(row)
        for row in connection.execute(LIST, (now(), namespace, source, source, *bounds, min(limit, TOP)))
    ]


def _stored_info(row: Sequence[Any]) -> StoredInfo:
    namespace, source, session, count, created_at, updated_at, expires_at, size, metadata, first, last = row
    try:
        key = SessionKey(namespace, source, session)
    except (TypeError, ValueError) as error:
        raise CorruptRecordError(f"a session's row has no valid ids: {error}") from error
    return StoredInfo(
        key=key,
        count=count,
        first_seq=first or 0,
        last_seq=last or 0,
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        size=size,
        metadata=metadata,
    )


def annotate(
    connection: sqlite3.Connection, key: SessionKey, old: bytes | None, new: bytes | None, ttl: int | None
) -> bool:
    found = find(connection, key)
    stored = connection.execute(METADATA, (found.id,)).fetchone() if found else None
    if (stored[0] if stored else None) != old:
        return False
    found = found or begin(connection, key, key.hash, ttl)
    if new is None:
        connection.execute(REMOVE_METADATA, (found.id,))
    else:
        connection.execute(SAVE_METADATA, (found.id, new))
    touch(connection, Change(found))
    return True


def expire(connection: sqlite3.Connection, key: SessionKey, at: int | None) -> None:
    if found := find(connection, key):
        connection.execute(SET_EXPIRY, (at, found.id))


def delete(connection: sqlite3.Connection, key: SessionKey) -> bool:
    found = find(connection, key)
    remains = connection.execute(UNLINKED, (key.namespace, key.source_id, key.session_id)).fetchall()
    for session in [session for (session,) in remains] + ([found.id] if found else []):
        remove_session(connection, session)
    return found is not None


def expired(connection: sqlite3.Connection, namespace: str | None, after: int) -> list[int]:
    rows = connection.execute(EXPIRED, (after, now(), namespace, PURGE_PAGE)).fetchall()
    return [session for (session,) in rows]


def purge(connection: sqlite3.Connection, session: int) -> bool:
    # Looked at again: since it was found, an append may have moved its expiry.
    if connection.execute(STILL_EXPIRED, (session, now())).fetchone() is None:
        return False
    remove_session(connection, session)
    return True


def save_snapshot(
    connection: sqlite3.Connection, key: SessionKey, snapshot: SnapshotWrite, ttl: int | None
) -> int | Refused:
    found = find(connection, key)
    current = Current(0, {}, found.snapshot_version, found.snapshot_format) if found else Current()
    if refused := check_snapshot(snapshot, current):
        return refused
    found = found or begin(connection, key, key.hash, ttl)
    connection.execute(SAVE_SNAPSHOT, (found.id, snapshot.format, snapshot.payload))
    touch(connection, Change(found))
    return current.snapshot_version + 1


def load_snapshot(connection: sqlite3.Connection, key: SessionKey) -> StoredSnapshot | None:
    row = connection.execute(LOAD_SNAPSHOT, (key.hash, now())).fetchone()
    return StoredSnapshot(*row) if row else None
