"""The statements that the backend sends, with the real names in them."""

from __future__ import annotations

from agentstore_postgres_schema import Names

# Not agentstore_now(): these are on the way of every turn, and a call of a function costs as much as a look-up.
_ALIVE = "linked AND (expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) IS NOT FALSE"

# The turn of a session that lives: its ids are new and it has no condition. `agentstore_append` does the same in twice
# the time, and does it here where the session must begin. An id that is there all the same breaks the unique index.
# First the row is locked: the wait may be long, and the clock is read behind it, once (`OFFSET 0`). The last two
# columns have asyncpg learn the types that are in the record before them.
_APPEND_NEW = f"""
WITH turn AS (
  UPDATE agentstore_session s SET
    last_seq = s.last_seq + $10, count = s.count + $10, bytes = s.bytes + $11::bigint, calls = s.calls + 1,
    answers = agentstore_noted(s.answers, s.calls, $5::bytea, s.last_seq + 1, $10, s.snapshot_version),
    (updated_at, minute, expires_at) = (
      SELECT n.now_us, n.now_us / 60000000, coalesce(n.now_us + $6::bigint, s.expires_at)
      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us OFFSET 0) n)
  WHERE s.id = (SELECT k.id FROM agentstore_session k WHERE k.hash = $1 AND k.linked FOR NO KEY UPDATE) AND s.{_ALIVE}
  RETURNING s.id, s.last_seq - $10::int AS last, s.snapshot_version AS version, s.updated_at),
record AS (
  INSERT INTO agentstore_message (session, seq, created_at, id_hash, digest, format, payload)
  SELECT t.id, t.last + r.at, t.updated_at, substr(r.head, 1, 16), substr(r.head, 17), $9, r.payload
  FROM turn t CROSS JOIN unnest($7::bytea[], $8::bytea[]) WITH ORDINALITY AS r (head, payload, at))
SELECT (SELECT t.last + 1 FROM turn t), (SELECT t.version FROM turn t),
  CASE WHEN NOT EXISTS (SELECT FROM turn) THEN agentstore_append(
      $1, $2, $3, $4, $5, false, NULL, $6, $7, array_fill($9::text, ARRAY[$10::int]), $8, $11, NULL, NULL, NULL, NULL)
    END, NULL::int[], NULL::bigint[]
"""

# A sub-select makes the session a constant: so the primary key gives the order from either end, and the limit stops it.
_READ = f"""
SELECT seq, created_at, id_hash, digest, format, payload FROM agentstore_message
WHERE session = (SELECT id FROM agentstore_session WHERE hash = $1 AND {_ALIVE})
  AND seq > $2 AND seq < $3 ORDER BY seq {{direction}} LIMIT $4
"""

# The newest of several sessions; the place in the list comes last.
_READ_ALL = f"""
SELECT m.seq, m.created_at, m.id_hash, m.digest, m.format, m.payload, q.place
FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[])
  WITH ORDINALITY AS q (hash, after, before, most, place)
CROSS JOIN LATERAL (
  SELECT k.seq, k.created_at, k.id_hash, k.digest, k.format, k.payload FROM agentstore_message k
  WHERE k.session = (SELECT s.id FROM agentstore_session s WHERE s.hash = q.hash AND {_ALIVE})
    AND k.seq > q.after AND k.seq < q.before ORDER BY k.seq DESC LIMIT q.most) m
"""

_INFO = """
  s.count, coalesce(f.seq, 0), coalesce(l.seq, 0), s.created_at, s.updated_at, s.expires_at, s.bytes, d.payload
FROM agentstore_session s
LEFT JOIN LATERAL (SELECT seq FROM agentstore_message m WHERE m.session = s.id ORDER BY seq LIMIT 1) f ON true
LEFT JOIN LATERAL (SELECT seq FROM agentstore_message m WHERE m.session = s.id ORDER BY seq DESC LIMIT 1) l ON true
LEFT JOIN agentstore_metadata d ON d.session = s.id
"""

_LIST = f"""
SELECT s.source, s.session, {_INFO}
WHERE sha256(s.namespace) = sha256($1) AND s.linked AND (s.expires_at > agentstore_now()) IS NOT FALSE
  AND s.minute <= $2 AND (s.minute < $2 OR (s.source, s.session) > ($3, $4)) AND ($5::bytea IS NULL OR s.source = $5)
ORDER BY s.minute DESC, s.source, s.session LIMIT $6
"""

_LOAD_SNAPSHOT = """
SELECT s.snapshot_version, s.snapshot_format, n.payload
FROM agentstore_session s JOIN agentstore_snapshot n ON n.session = s.id
WHERE s.hash = $1 AND s.linked AND (s.expires_at > agentstore_now()) IS NOT FALSE
"""

_EXPIRE = """
UPDATE agentstore_session SET expires_at = $2
WHERE hash = $1 AND linked AND (expires_at > agentstore_now()) IS NOT FALSE
"""

_WRITTEN = "refused, positions, actual, first, seqs, written, version"


class Statements:
    """One text per operation of the waist."""

    def __init__(self, names: Names) -> None:
        def call(function: str, arguments: int, columns: str = "*") -> str:
            places = ", ".join(f"${place}" for place in range(1, arguments + 1))
            return names.sql(f"SELECT {columns} FROM {function}({places})")

        self.append = call("agentstore_append", 16, _WRITTEN)
        self.append_new = names.sql(_APPEND_NEW)
        self.append_all = call("agentstore_append_all", 10)
        self.read = names.sql(_READ.format(direction="ASC"))
        self.read_newest = names.sql(_READ.format(direction="DESC"))
        self.read_all = names.sql(_READ_ALL)
        self.truncate = call("agentstore_truncate", 3)
        self.replace = call("agentstore_replace", 10, _WRITTEN)
        self.update = call("agentstore_update", 5)
        self.remove_newest = call("agentstore_remove_newest", 3)
        self.stage = call("agentstore_stage", 4)
        self.stage_page = call("agentstore_stage_page", 6)
        self.link = call("agentstore_link", 3)
        self.info = names.sql(
            f"SELECT {_INFO} WHERE s.hash = $1 AND s.linked AND (s.expires_at > agentstore_now()) IS NOT FALSE"
        )
        self.list = names.sql(_LIST)
        self.annotate = call("agentstore_annotate", 7)
        self.expire = names.sql(_EXPIRE)
        self.delete = call("agentstore_delete", 1)
        self.purge = call("agentstore_purge", 1)
        self.save_snapshot = call("agentstore_save_snapshot", 9, "refused, actual, version")
        self.load_snapshot = names.sql(_LOAD_SNAPSHOT)
