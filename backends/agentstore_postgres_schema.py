"""What agentstore has in a database: its names, numbered migrations, and whether what is there is ours.

The SQL files are written with the default names, `agentstore_session` and so on. `Names` puts schema and prefix in
their place, quoted. Each file is one migration.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentstore.backend import Readiness
from agentstore.errors import ConfigurationError
from agentstore_postgres_clients import Connection

MIGRATIONS: tuple[str, ...] = tuple(
    Path(__file__).with_name(f"agentstore_postgres_{name}.sql").read_text("utf-8")
    for name in ("1_tables", "2_functions", "3_view")
)
"""Each leads from the version before it; a released one is never changed."""

OLDEST = 3
"""Releases that know at least so many migrations work with this schema. It rises when something they call is dropped.

A function that changes gets a new name, so that an older release goes on calling its own while a newer one rolls out.
"""

SETUP_SECONDS = 600.0
"""How long a set-up may take, others' that it waits for included."""

_NAME_BYTES = 63  # PostgreSQL silently cuts off what is longer
_LONGEST = "session_by_activity"
_NAME = re.compile(r"(?P<index>INDEX )?\bagentstore_(?P<name>\w+)")

_FIND = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY ($2)
"""


class Names:
    """Puts the real names into SQL that is written with the default ones."""

    def __init__(self, schema: str, prefix: str) -> None:
        """Raises `ConfigurationError` for what PostgreSQL could not keep as it is."""
        if not schema:
            raise ConfigurationError("schema must not be empty")
        for option, text, room in (("schema", schema, 0), ("prefix", prefix, len(_LONGEST))):
            _check_name(option, text, _NAME_BYTES - room)
        self.schema = schema
        self._prefix = prefix
        self._tag = "$body$"
        while self._tag in schema + prefix:
            self._tag = f"$_{self._tag[1:]}"

    def sql(self, text: str) -> str:
        """The SQL with the real names."""
        return _NAME.sub(self._named, text.replace("$$", self._tag))

    def quoted(self, name: str) -> str:
        """`"schema"."prefix_name"`."""
        return f"{_quote(self.schema)}.{_quote(self.plain(name))}"

    def plain(self, name: str) -> str:
        """`prefix_name`, as the catalog has it."""
        return self._prefix + name

    def _named(self, found: re.Match[str]) -> str:
        if found["index"]:  # an index lies in its table's schema, which may not be said
            return found["index"] + _quote(self.plain(found["name"]))
        return self.quoted(found["name"])


def _check_name(option: str, text: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{option} is not valid Unicode text") from error
    if "\0" in text or size > most:
        raise ConfigurationError(f"{option} must be at most {most} UTF-8 bytes without NUL")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


async def inspect(connection: Connection, names: Names) -> Readiness:
    """Whether our schema is there; changes nothing. Raises `ConfigurationError` for one not ours, or newer."""
    version, oldest = await _version(connection, names)
    if version > len(MIGRATIONS) < oldest:
        raise ConfigurationError(
            f"the schema has version {version}, and needs a release that knows {oldest}; this one knows"
            f" {len(MIGRATIONS)}: upgrade agentstore to use it"
        )
    if not version:
        return "absent"
    return "ready" if version >= len(MIGRATIONS) else "outdated"


async def set_up(connection: Connection, names: Names) -> None:
    """Make the migrations that are missing, in one transaction; safe when many processes do it at once."""
    async with connection.transaction(isolation="read_committed"):
        # One lock for all prefixes: two of them may lack the same schema. It is the transaction's, so poolers are fine.
        await connection.execute(
            f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {int(SETUP_SECONDS * 1000)};"
            "SELECT pg_advisory_xact_lock(hashtextextended('agentstore setup', 0))",
            timeout=SETUP_SECONDS,
        )
        if await inspect(connection, names) == "ready":
            return
        version, _ = await _version(connection, names)
        if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", names.schema):
            await connection.execute(f"CREATE SCHEMA {_quote(names.schema)}")
        for migration in MIGRATIONS[version:]:
            await connection.execute(names.sql(migration), timeout=SETUP_SECONDS)
        await connection.execute(names.sql("DELETE FROM agentstore_schema"))
        await connection.execute(names.sql(f"INSERT INTO agentstore_schema VALUES ({len(MIGRATIONS)}, {OLDEST})"))


async def _version(connection: Connection, names: Names) -> tuple[int, int]:
    """How many migrations were made, and how many a release must know; 0 where nothing is there."""
    # Not `to_regclass`: it may answer from a cache that is older than the lock.
    found = await connection.fetch(_FIND, names.schema, [names.plain("schema"), names.plain("session")])
    there = {row["relname"] for row in found}
    if there == {names.plain("session")}:
        raise ConfigurationError(f"{names.quoted('session')} is not agentstore's: name another prefix= or schema=")
    row = there and await connection.fetchrow(names.sql("SELECT version, oldest FROM agentstore_schema"))
    return (row["version"], row["oldest"]) if row else (0, 0)
