"""What each operation does inside one SQLite transaction: the statements, and the functions that run them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from agentstore.backend import (
    ANSWERS_KEPT,
    Append,
    Current,
    Plan,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
    Written,
    activity_minute,
    check_snapshot,
    plan_append,
)
from agentstore.errors import StorageError, UnavailableError
from agentstore.keys import SessionKey

STAGED_MICROSECONDS = 24 * 3600 * 1_000_000
"""How long a restore may take; what one leaves behind after that is purged."""
PURGE_PAGE = 100
ROWS_TOGETHER = 16
"""Most messages that one statement inserts."""

_TOP = 1 << 32  # one above the highest seq

FIND = """
    SELECT s.id, s.last_seq, s.calls, s.minute, s.expires_at, n.version, n.format
    FROM session s LEFT JOIN snapshot n ON n.session = s.id WHERE s.hash = ?
"""
BEGIN = """
    INSERT INTO session (hash, namespace, source, session, created_at, updated_at, minute, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
UNLINK = "UPDATE session SET hash = NULL WHERE id = ?"
LINK = "UPDATE session SET hash = ?, created_at = ?, updated_at = ?, minute = ?, expires_at = ? WHERE id = ?"
TOUCH = """
    UPDATE session SET last_seq = ?, count = count + ?, bytes = bytes + ?, calls = calls + ?, updated_at = ?,
        expires_at = coalesce(?, expires_at) WHERE id = ?
"""
SET_MINUTE = "UPDATE session SET minute = ? WHERE id = ?"  # it stands in an index: written only when it changes
SET_EXPIRY = "UPDATE session SET expires_at = ? WHERE id = ?"

KNOWN = "SELECT id & 4294967295, digest FROM message WHERE id >> 32 = ? AND id_hash = ?"
NEWEST = """
    SELECT id & 4294967295, digest, length(CAST(payload AS BLOB)) FROM message
    WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1
"""
INSERT = "INSERT INTO message (id, id_hash, digest, created_at, format, payload) VALUES "
ROW = "(?, ?, ?, ?, ?, CAST(? AS TEXT))"
MEASURE = "SELECT count(*), coalesce(sum(length(CAST(payload AS BLOB))), 0) FROM message WHERE id >= ? AND id < ?"
REMOVE = "DELETE FROM message WHERE id >= ? AND id < ?"
REWRITE = "UPDATE message SET digest = ?, format = ?, payload = CAST(? AS TEXT) WHERE id = ?"
READ = """
    SELECT m.id & 4294967295, m.created_at, m.id_hash, m.digest, m.format, CAST(m.payload AS BLOB)
    FROM session s CROSS JOIN message m
    WHERE s.hash = ? AND (s.expires_at IS NULL OR s.expires_at > ?)
      AND m.id > (s.id << 32) + ? AND m.id < (s.id << 32) + ?
    ORDER BY m.id {order} LIMIT ?
"""
READ_OLDEST, READ_NEWEST = READ.format(order="ASC"), READ.format(order="DESC")

ANSWER = "SELECT answer FROM answer WHERE session = ? AND token = ?"
REMEMBER = "INSERT OR REPLACE INTO answer (session, slot, token, answer) VALUES (?, ?, ?, ?)"

SAVE_SNAPSHOT = """
    INSERT INTO snapshot (session, version, format, payload) VALUES (?, 1, ?, CAST(? AS TEXT))
    ON CONFLICT (session) DO UPDATE SET version = version + 1, format = excluded.format, payload = excluded.payload
"""
LOAD_SNAPSHOT = """
    SELECT n.version, n.format, CAST(n.payload AS BLOB) FROM session s JOIN snapshot n ON n.session = s.id
    WHERE s.hash = ? AND (s.expires_at IS NULL OR s.expires_at > ?)
"""
METADATA = "SELECT CAST(payload AS BLOB) FROM metadata WHERE session = ?"
SAVE_METADATA = "INSERT OR REPLACE INTO metadata (session, payload) VALUES (?, CAST(? AS TEXT))"
REMOVE_METADATA = "DELETE FROM metadata WHERE session = ?"

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
    SELECT id FROM session WHERE id > ? AND expires_at <= ? AND (? IS NULL OR namespace = ?) ORDER BY id LIMIT ?
"""
UNLINKED = "SELECT id FROM session WHERE hash IS NULL AND namespace = ? AND source = ? AND session = ?"
STILL_EXPIRED = "SELECT 1 FROM session WHERE id = ? AND expires_at <= ?"
REMOVE_PARTS = (
    "DELETE FROM answer WHERE session = ?",
    "DELETE FROM snapshot WHERE session = ?",
    REMOVE_METADATA,
    "DELETE FROM session WHERE id = ?",
)


class _Found(msgspec.Struct, frozen=True):
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


def _now() -> int:
    return time.time_ns() // 1000


def _find(connection: sqlite3.Connection, key: SessionKey) -> _Found | None:
    """The living session; one that has expired is unlinked from its key."""
    row = connection.execute(FIND, (key.hash,)).fetchone()
    if row is None:
        return None
    session, last_seq, calls, minute, expires_at, version, format = row
    if expires_at is not None and expires_at <= _now():
        connection.execute(UNLINK, (session,))
        return None
    return _Found(session, last_seq, calls, minute, version or 0, format)


def _begin(connection: sqlite3.Connection, key: SessionKey, hash: bytes | None, ttl: int | None) -> _Found:
    now = _now()
    expires_at = None if ttl is None else now + ttl
    row = (hash, key.namespace, key.source_id, key.session_id, now, now, activity_minute(now), expires_at)
    session = connection.execute(BEGIN, row).lastrowid
    assert session is not None
    return _Found(session, 0, 0, activity_minute(now), 0, None)


def _touch(
    connection: sqlite3.Connection,
    found: _Found,
    *,
    last_seq: int | None = None,
    count: int = 0,
    bytes: int = 0,
    calls: int = 0,
    ttl: int | None = None,
) -> None:
    """Bring the session's row up to date; `count`, `bytes` and `calls` are what came or went."""
    now = _now()
    expires_at = None if ttl is None else now + ttl
    last_seq = found.last_seq if last_seq is None else last_seq
    connection.execute(TOUCH, (last_seq, count, bytes, calls, now, expires_at, found.id))
    if activity_minute(now) != found.minute:
        connection.execute(SET_MINUTE, (activity_minute(now), found.id))


def append(connection: sqlite3.Connection, key: SessionKey, append: Append) -> Written | Refused:
    found = _find(connection, key)
    if append.retry and found and (row := connection.execute(ANSWER, (found.id, append.token)).fetchone()):
        return msgspec.msgpack.decode(row[0], type=Written)
    current = _current(connection, found, append) if found else Current()
    plan = plan_append(append, current)
    if isinstance(plan, Refused):
        return plan
    found = found or _begin(connection, key, key.hash, append.ttl)
    answer = _write(connection, found, append, plan, current)
    remembered = (found.id, found.calls % ANSWERS_KEPT, append.token, msgspec.msgpack.encode(answer))
    connection.execute(REMEMBER, remembered)
    return answer


def replace(connection: sqlite3.Connection, key: SessionKey, replace: Replace) -> Written | Refused:
    found = _find(connection, key)
    current = _current(connection, found, replace) if found else Current()
    kept = {id_hash: known for id_hash, known in current.known.items() if known[0] <= replace.after}
    current = msgspec.structs.replace(current, known=kept)
    plan = plan_append(replace, current)
    if isinstance(plan, Refused):
        return plan
    if found:
        _remove(connection, found, found.bounds[0] + replace.after + 1, found.bounds[1])
    elif not replace.records:
        return plan.answer(replace, current, 1)
    return _write(connection, found or _begin(connection, key, key.hash, replace.begin_ttl), replace, plan, current)


def _current(connection: sqlite3.Connection, found: _Found, write: Append | Replace) -> Current:
    known = {
        record.id_hash: row
        for record in write.records
        if not record.fresh and (row := connection.execute(KNOWN, (found.id, record.id_hash)).fetchone())
    }
    newest = connection.execute(NEWEST, found.bounds).fetchone() if write.expected_last is not None else None
    return Current(newest[0] if newest else 0, known, found.snapshot_version, found.snapshot_format)


def _write(
    connection: sqlite3.Connection, found: _Found, write: Append | Replace, plan: Plan, current: Current
) -> Written:
    first, now = found.last_seq + 1, _now()
    last_seq = found.last_seq + len(plan.new)
    if last_seq >= _TOP:
        raise StorageError("the session has used up its 2**32 seqs: fork it to go on")
    rows = [(seq, r.id_hash, r.digest, now, r.format, r.payload) for seq, r in enumerate(plan.new, first)]
    _insert(connection, found.id, rows)
    size = sum([len(record.payload) for record in plan.new])
    calls, ttl = (1, write.ttl) if isinstance(write, Append) else (0, None)
    _touch(connection, found, last_seq=last_seq, count=len(rows), bytes=size, calls=calls, ttl=ttl)
    if plan.snapshot:
        connection.execute(SAVE_SNAPSHOT, (found.id, plan.snapshot.format, plan.snapshot.payload))
    return plan.answer(write, current, first)


def _insert(connection: sqlite3.Connection, session: int, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows that start with their seq, several with each statement."""
    for start in range(0, len(rows), ROWS_TOGETHER):
        some = rows[start : start + ROWS_TOGETHER]
        values = [value for row in some for value in ((session << 32) + row[0], *row[1:])]
        connection.execute(INSERT + ", ".join([ROW] * len(some)), values)


def _remove(connection: sqlite3.Connection, found: _Found, start: int, end: int) -> int:
    count: int
    count, size = connection.execute(MEASURE, (start, end)).fetchone()
    connection.execute(REMOVE, (start, end))
    _touch(connection, found, count=-count, bytes=-size)
    return count


def read(
    connection: sqlite3.Connection, key: SessionKey, after: int, before: int | None, limit: int | None, newest: bool
) -> list[StoredRecord]:
    bounds = min(after, _TOP), _TOP if before is None else min(before, _TOP)
    values = key.hash, _now(), *bounds, -1 if limit is None else min(limit, _TOP)
    rows = connection.execute(READ_NEWEST if newest else READ_OLDEST, values).fetchall()
    if newest:
        rows.reverse()
    return [StoredRecord(*row) for row in rows]


def truncate(connection: sqlite3.Connection, key: SessionKey, after: int | None, before: int | None) -> int:
    if (found := _find(connection, key)) is None:
        return 0
    start, end = found.bounds
    if after is not None:
        return _remove(connection, found, start + min(after, _TOP - 1) + 1, end)
    return _remove(connection, found, start, min(start + (before or 0), end))


def update(connection: sqlite3.Connection, key: SessionKey, record: Record) -> bool:
    found = _find(connection, key)
    known = connection.execute(KNOWN, (found.id, record.id_hash)).fetchone() if found else None
    if found is None or known is None:
        return False
    place = (found.id << 32) + known[0]
    _, size = connection.execute(MEASURE, (place, place + 1)).fetchone()
    connection.execute(REWRITE, (record.digest, record.format, record.payload, place))
    _touch(connection, found, bytes=len(record.payload) - size)
    return True


def remove_newest(connection: sqlite3.Connection, key: SessionKey, seq: int, digest: bytes) -> bool:
    found = _find(connection, key)
    newest = connection.execute(NEWEST, found.bounds).fetchone() if found else None
    if found is None or newest is None or newest[:2] != (seq, digest):
        return False
    place = (found.id << 32) + seq
    connection.execute(REMOVE, (place, place + 1))
    _touch(connection, found, count=-1, bytes=-newest[2])
    return True


def stage(connection: sqlite3.Connection, key: SessionKey) -> int:
    return _begin(connection, key, None, STAGED_MICROSECONDS).id


def fill(connection: sqlite3.Connection, session: int, page: Sequence[StoredRecord]) -> None:
    _insert(connection, session, [(r.seq, r.id_hash, r.digest, r.created_at, r.format, r.payload) for r in page])


def link(connection: sqlite3.Connection, session: int, key: SessionKey, ttl: int | None) -> bool:
    if _find(connection, key):
        _remove_session(connection, session)
        return False
    now = _now()
    linked = (key.hash, now, now, activity_minute(now), None if ttl is None else now + ttl, session)
    if connection.execute(LINK, linked).rowcount != 1:
        raise UnavailableError(
            "the restore was deleted, or purged after a day, before it was finished; nothing was written"
        )
    start, end = session << 32, (session + 1) << 32
    newest = connection.execute(NEWEST, (start, end)).fetchone()
    count, size = connection.execute(MEASURE, (start, end)).fetchone()
    connection.execute(TOUCH, (newest[0] if newest else 0, count, size, 0, now, None, session))
    return True


def info(connection: sqlite3.Connection, key: SessionKey) -> StoredInfo | None:
    row = connection.execute(INFO_ONE, (_now(), key.hash)).fetchone()
    return _stored_info(row) if row else None


def listing(
    connection: sqlite3.Connection, namespace: str, source: str | None, limit: int, start: tuple[int, str, str] | None
) -> list[StoredInfo]:
    minute, behind_source, behind_session = start or (1 << 62, "", "")
    bounds = (minute, minute, behind_source, behind_session)
    return [
        _stored_info(row)
        for row in connection.execute(LIST, (_now(), namespace, source, source, *bounds, min(limit, _TOP)))
    ]


def _stored_info(row: Sequence[Any]) -> StoredInfo:
    namespace, source, session, count, created_at, updated_at, expires_at, size, metadata, first, last = row
    return StoredInfo(
        key=SessionKey(namespace, source, session),
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
    found = _find(connection, key)
    stored = connection.execute(METADATA, (found.id,)).fetchone() if found else None
    if (stored[0] if stored else None) != old:
        return False
    found = found or _begin(connection, key, key.hash, ttl)
    if new is None:
        connection.execute(REMOVE_METADATA, (found.id,))
    else:
        connection.execute(SAVE_METADATA, (found.id, new))
    _touch(connection, found)
    return True


def expire(connection: sqlite3.Connection, key: SessionKey, at: int | None) -> None:
    if found := _find(connection, key):
        connection.execute(SET_EXPIRY, (at, found.id))


def delete(connection: sqlite3.Connection, key: SessionKey) -> bool:
    found = _find(connection, key)
    remains = connection.execute(UNLINKED, (key.namespace, key.source_id, key.session_id)).fetchall()
    for session in [session for (session,) in remains] + ([found.id] if found else []):
        _remove_session(connection, session)
    return found is not None


def _remove_session(connection: sqlite3.Connection, session: int) -> None:
    connection.execute(REMOVE, (session << 32, (session + 1) << 32))
    for statement in REMOVE_PARTS:
        connection.execute(statement, (session,))


def expired(connection: sqlite3.Connection, namespace: str | None, after: int) -> list[int]:
    rows = connection.execute(EXPIRED, (after, _now(), namespace, namespace, PURGE_PAGE)).fetchall()
    return [session for (session,) in rows]


def purge(connection: sqlite3.Connection, session: int) -> bool:
    # Looked at again: since it was found, an append may have moved its expiry.
    if connection.execute(STILL_EXPIRED, (session, _now())).fetchone() is None:
        return False
    _remove_session(connection, session)
    return True


def save_snapshot(
    connection: sqlite3.Connection, key: SessionKey, snapshot: SnapshotWrite, ttl: int | None
) -> int | Refused:
    found = _find(connection, key)
    current = Current(0, {}, found.snapshot_version, found.snapshot_format) if found else Current()
    if refused := check_snapshot(snapshot, current):
        return refused
    found = found or _begin(connection, key, key.hash, ttl)
    connection.execute(SAVE_SNAPSHOT, (found.id, snapshot.format, snapshot.payload))
    _touch(connection, found)
    return current.snapshot_version + 1


def load_snapshot(connection: sqlite3.Connection, key: SessionKey) -> StoredSnapshot | None:
    row = connection.execute(LOAD_SNAPSHOT, (key.hash, _now())).fetchone()
    return StoredSnapshot(*row) if row else None
