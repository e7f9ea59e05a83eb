"""What each other operation on messages does inside one SQLite transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import starmap

import msgspec

from agentstore.backend import Record, Refused, Replace, StoredRecord, Written, activity_minute, plan_append
from agentstore.errors import UnavailableError
from agentstore.keys import SessionKey
from agentstore_sqlite_append import NEWEST, current_state, insert, known_ids, planned, write_all
from agentstore_sqlite_rows import REMOVE, TOP, Change, Found, begin, find, now, remove_session, touch

STAGED_MICROSECONDS = 24 * 3600 * 1_000_000
"""How long a restore may take; what one leaves behind after that is purged."""
MEASURE = "SELECT count(*), coalesce(sum(length(CAST(payload AS BLOB))), 0) FROM message WHERE id >= ? AND id < ?"
REWRITE = "UPDATE message SET digest = ?, format = ?, payload = CAST(? AS TEXT) WHERE id = ?"
READ = """
    SELECT m.id & 4294967295, m.created_at, m.id_hash, m.digest, m.format, CAST(m.payload AS BLOB)
    FROM session s CROSS JOIN message m
    WHERE s.hash = ? AND (s.expires_at IS NULL OR s.expires_at > ?)
      AND m.id > (s.id << 32) + ? AND m.id < (s.id << 32) + ?
    ORDER BY m.id {order} LIMIT ?
"""
READ_OLDEST, READ_NEWEST = READ.format(order="ASC"), READ.format(order="DESC")
LINK = "UPDATE session SET hash = ?, created_at = ?, updated_at = ?, minute = ?, expires_at = ? WHERE id = ?"


def replace(connection: sqlite3.Connection, key: SessionKey, replace: Replace) -> Written | Refused:
    found = find(connection, key)
    known = known_ids(connection, [(found.id, record.id_hash) for record in replace.records]) if found else {}
    current = current_state(connection, found, replace, known)
    kept = {id_hash: there for id_hash, there in current.known.items() if there[0] <= replace.after}
    current = msgspec.structs.replace(current, known=kept)
    plan = plan_append(replace, current)
    if isinstance(plan, Refused):
        return plan
    if found:
        _remove(connection, found, found.bounds[0] + replace.after + 1, found.bounds[1])
    elif not replace.records:
        return plan.answer(replace, current, 1)
    write = planned(found or begin(connection, key, key.hash, replace.begin_ttl), replace, plan, current)
    write_all(connection, [write])
    return write.answer


def _remove(connection: sqlite3.Connection, found: Found, start: int, end: int) -> int:
    count: int
    count, size = connection.execute(MEASURE, (start, end)).fetchone()
    connection.execute(REMOVE, (start, end))
    touch(connection, Change(found, count=-count, size=-size))
    return count


def read(
    connection: sqlite3.Connection, key: SessionKey, after: int, before: int | None, limit: int | None, newest: bool
) -> list[StoredRecord]:
    bounds = min(after, TOP), TOP if before is None else min(before, TOP)
    values = key.hash, now(), *bounds, -1 if limit is None else min(limit, TOP)
    records = list(starmap(StoredRecord, connection.execute(READ_NEWEST if newest else READ_OLDEST, values).fetchall()))
    if newest:
        records.reverse()
    return records


def truncate(connection: sqlite3.Connection, key: SessionKey, after: int | None, before: int | None) -> int:
    if (found := find(connection, key)) is None:
        return 0
    start, end = found.bounds
    if after is not None:
        return _remove(connection, found, start + min(after, TOP - 1) + 1, end)
    return _remove(connection, found, start, min(start + (before or 0), end))


def update(connection: sqlite3.Connection, key: SessionKey, record: Record) -> bool:
    found = find(connection, key)
    known = known_ids(connection, [(found.id, record.id_hash)]) if found else {}
    if found is None or not known:
        return False
    place = (found.id << 32) + known[found.id, record.id_hash][0]
    _, size = connection.execute(MEASURE, (place, place + 1)).fetchone()
    connection.execute(REWRITE, (record.digest, record.format, record.payload, place))
    touch(connection, Change(found, size=len(record.payload) - size))
    return True


def remove_newest(connection: sqlite3.Connection, key: SessionKey, seq: int, digest: bytes) -> bool:
    found = find(connection, key)
    newest = connection.execute(NEWEST, found.bounds).fetchone() if found else None
    if found is None or newest is None or newest[:2] != (seq, digest):
        return False
    place = (found.id << 32) + seq
    connection.execute(REMOVE, (place, place + 1))
    touch(connection, Change(found, count=-1, size=-newest[2]))
    return True


def stage(connection: sqlite3.Connection, key: SessionKey) -> int:
    return begin(connection, key, None, STAGED_MICROSECONDS).id


def fill(connection: sqlite3.Connection, session: int, page: Sequence[StoredRecord]) -> None:
    base = session << 32
    insert(connection, [(base + r.seq, r.id_hash, r.digest, r.created_at, r.format, r.payload) for r in page])


def link(connection: sqlite3.Connection, session: int, key: SessionKey, ttl: int | None) -> bool:
    if find(connection, key):
        remove_session(connection, session)
        return False
    moment = now()
    linked = (key.hash, moment, moment, activity_minute(moment), None if ttl is None else moment + ttl, session)
    if connection.execute(LINK, linked).rowcount != 1:
        raise UnavailableError(
            "the restore was deleted, or purged after a day, before it was finished; nothing was written"
        )
    start, end = session << 32, (session + 1) << 32
    newest = connection.execute(NEWEST, (start, end)).fetchone()
    count, size = connection.execute(MEASURE, (start, end)).fetchone()
    row = Found(session, newest[0] if newest else 0, 0, b"", activity_minute(moment), 0, None)
    touch(connection, Change(row, count=count, size=size))
    return True
