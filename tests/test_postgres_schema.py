"""What agentstore makes in a PostgreSQL database: set-up, migrations, names, rights, and what operators see."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import execute, query, server_url

from agentstore import ConfigurationError, Content, HistoryStore, Message
from agentstore.testing.answers import AnswerSentences
from agentstore.testing.catalog import DeleteSentences, InfoSentences, ListingSentences, MetadataSentences
from agentstore.testing.expiry import ExpirySentences
from agentstore.testing.log import LogSentences
from agentstore.testing.rewriting import ForkSentences, PopSentences, ReplaceSentences, UpdateSentences
from agentstore.testing.scenes import heard, said
from agentstore.testing.snapshots import SnapshotSentences
from agentstore_postgres import PostgresBackend
from agentstore_postgres_schema import MIGRATIONS, OLDEST, Names

PROCESSES, ROUNDS = 8, 20
DOCUMENT = Path(__file__).parents[1] / "docs" / "postgres.md"

_SETTING_UP = """
import asyncio, sys
from agentstore_postgres import PostgresBackend

async def set_up(url):
    backend = PostgresBackend(url, schema="new", prefix=sys.argv[1])
    await backend.setup()
    print(await backend.readiness(), flush=True)
    await backend.aclose()

for url in sys.stdin:
    asyncio.run(set_up(url.strip()))
"""


@pytest.fixture
def database() -> Generator[str]:
    """The URL of an empty database."""
    name = f"d{uuid4().hex}"
    execute(f"CREATE DATABASE {name}")
    yield re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", server_url())
    execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_eight_processes_set_up_an_empty_database_at_once() -> None:
    """`setup()` is safe for eight processes at once, twenty times over; half of them with another prefix (B29)."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _SETTING_UP, "one_" if number % 2 else "two_"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for _ in range(ROUNDS):
            assert _race(processes) == ["ready\n"] * PROCESSES
    finally:
        for process in processes:
            process.communicate(timeout=30)


def _race(processes: list[subprocess.Popen[str]]) -> list[str]:
    name = f"race{uuid4().hex}"
    execute(f"CREATE DATABASE {name}")
    url = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", server_url())
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{url}\n")
        process.stdin.flush()
    answers = [process.stdout.readline() for process in processes if process.stdout is not None]
    execute(f"DROP DATABASE {name} WITH (FORCE)")
    return answers


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_every_earlier_schema_is_brought_up_to_date(database: str, version: int) -> None:
    """Numbered migrations from every earlier schema lead to the same one, twice too."""
    names = Names("public", "agentstore_")
    for migration in MIGRATIONS[:version]:
        execute(names.sql(migration), url=database)
    if version:
        execute(names.sql(f"INSERT INTO agentstore_schema VALUES ({version}, {version})"), url=database)

    async def main() -> None:
        backend = PostgresBackend(database)
        assert await backend.readiness() == ("outdated" if version else "absent")
        async with HistoryStore(backend) as store:
            await store.session("s").append(said("a"))
            await store.setup()
            assert await heard(store.session("s")) == ["a"]
            assert await backend.readiness() == "ready"
            fresh = PostgresBackend(database, schema="fresh")
            await fresh.setup()
            await fresh.aclose()

    asyncio.run(main())
    assert query(lambda connection: _definitions(connection, "public"), database) == query(
        lambda connection: _definitions(connection, "fresh"), database
    )


async def _definitions(connection: asyncpg.Connection, schema: str) -> list[str]:
    """Columns, indexes, functions and views of a schema, without its name."""
    rows = await connection.fetch(
        """
        SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) AS text
        FROM information_schema.columns WHERE table_schema = $1
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1
        UNION ALL SELECT definition FROM pg_views WHERE schemaname = $1
        UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
          WHERE nspname = $1
        """,
        schema,
    )
    return sorted(re.sub(rf'"?\b{schema}\b"?\.', "", row["text"]) for row in rows)


def test_an_older_release_works_on_a_newer_schema_that_allows_it(database: str) -> None:
    """While a newer release rolls out, an older one keeps working."""
    asyncio.run(_opened(database))
    execute(f"UPDATE agentstore_schema SET version = 99, oldest = {OLDEST}", url=database)
    asyncio.run(_opened(database))


def test_an_older_release_fails_clearly_on_a_schema_that_is_too_new(database: str) -> None:
    """... or fails clearly, and changes nothing."""
    asyncio.run(_opened(database))
    execute("UPDATE agentstore_schema SET version = 99, oldest = 98", url=database)
    with pytest.raises(ConfigurationError, match="upgrade agentstore"):
        asyncio.run(_opened(database))


@pytest.mark.parametrize(
    "table", ["agentstore_session (a int)", "agentstore_schema (a int)", "agentstore_answer (a int)"]
)
def test_what_is_not_ours_is_left_untouched(database: str, table: str) -> None:
    """A table of the same name is another application's: `ConfigurationError`, nothing made."""
    execute(f"CREATE TABLE {table}", url=database)
    with pytest.raises(ConfigurationError):
        asyncio.run(_opened(database))
    tables = query(lambda c: c.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), database)
    assert tables == 1


async def _opened(url: str) -> None:
    async with HistoryStore(PostgresBackend(url)) as store:
        await store.session("s").append(said("a"))


NAMES = [
    ("plain", "agentstore_"),
    ('we"ird; DROP TABLE x; --', 'pre"fix$$ $body$\n\\ %s {0} $1 '),
    ("Großbuchstaben", "SELECT "),
    ("x" * 63, ""),
    ("s", "é" * 22),
]


@pytest.mark.parametrize(("name", "prefix"), NAMES)
def test_any_legal_identifier_is_schema_and_prefix(database: str, name: str, prefix: str) -> None:
    """Quoted properly, wherever it stands."""

    async def main() -> None:
        async with HistoryStore(PostgresBackend(database, schema=name, prefix=prefix), ttl=60) as store:
            chat = store.session("s")
            await chat.append(said("a", "b"), snapshot={"a": 1})
            await chat.annotate({"a": 1})
            await chat.fork("other")
            await chat.replace(said("c"))
            assert await heard(chat) == ["c"]
            assert len((await store.sessions()).items) == 2
            assert (await chat.pop(), await chat.clear()) is not None
            await chat.delete()
            assert await store.purge_expired() == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "prefix"), [("x" * 64, ""), ("é" * 32, ""), ("", "a"), ("a\0", ""), ("\ud800", ""), ("s", "p" * 45)]
)
def test_a_name_that_would_be_cut_off_is_refused(name: str, prefix: str) -> None:
    """PostgreSQL would silently shorten it."""
    with pytest.raises(ConfigurationError):
        PostgresBackend("postgresql://db/chat", schema=name, prefix=prefix)


def test_two_prefixes_stay_apart(database: str) -> None:
    """Two prefixes in one database share nothing."""

    async def main() -> None:
        for prefix in ("a_", "a_session_", "A_", ""):
            async with HistoryStore(PostgresBackend(database, prefix=prefix)) as store:
                assert await store.session("s").messages() == []
                await store.session("s").append(said(prefix))
        for prefix in ("a_", "a_session_", "A_", ""):
            async with HistoryStore(PostgresBackend(database, prefix=prefix)) as store:
                assert await heard(store.session("s")) == [prefix]

    asyncio.run(main())


def test_a_role_that_may_not_create_works_where_nothing_is_missing(database: str) -> None:
    """... and fails clearly where something is."""
    role = f"r{uuid4().hex}"
    execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", url=database)
    theirs = re.sub(r"//[^@]*@", f"//{role}:x@", database)
    try:
        with pytest.raises(ConfigurationError, match="grant"):
            asyncio.run(_opened(theirs))
        asyncio.run(_opened(database))
        for grant in _grants(role, "public"):
            execute(grant, url=database)
        asyncio.run(_opened(theirs))
    finally:
        execute(f"DROP OWNED BY {role}", url=database)
        execute(f"DROP ROLE {role}")


def _grants(role: str, schema: str) -> list[str]:
    """The statements that the documentation grants a role's rights with."""
    (block,) = [block for block in re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "GRANT" in block]
    text = re.sub(r"\bpublic\b", f'"{schema}"', re.sub(r"\bapp\b", role, block))
    return [Names(schema, "agentstore_").sql(statement) for statement in text.split(";") if statement.strip()]


class TestLeastPrivilege(
    LogSentences,
    AnswerSentences,
    PopSentences,
    ReplaceSentences,
    UpdateSentences,
    ForkSentences,
    SnapshotSentences,
    InfoSentences,
    MetadataSentences,
    DeleteSentences,
    ListingSentences,
    ExpirySentences,
):
    """Every operation works for a role with only what the documentation grants."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _role(cls) -> Generator[None]:
        cls.role, cls.schema = f"r{uuid4().hex}", f"s-{uuid4().hex}"
        backend = PostgresBackend(server_url(), schema=cls.schema)
        asyncio.run(_set_up(backend))
        execute(f"CREATE ROLE {cls.role} LOGIN PASSWORD 'x'", *_grants(cls.role, cls.schema))
        yield
        execute(f'DROP SCHEMA "{cls.schema}" CASCADE', f"DROP OWNED BY {cls.role}", f"DROP ROLE {cls.role}")

    async def open_backend(self) -> PostgresBackend:
        return PostgresBackend(re.sub(r"//[^@]*@", f"//{self.role}:x@", server_url()), schema=self.schema)


async def _set_up(backend: PostgresBackend) -> None:
    await backend.setup()
    await backend.aclose()


def test_an_operator_reads_role_text_and_time(database: str) -> None:
    """Stored bodies are readable in SQL, whatever is in them or beside them, and still round-trip exactly (B01)."""
    odd = [Message("user", ["nul \0 and \ud800"]), Message("assistant", ["a", Content("other", x=float("nan")), "b"])]

    async def main() -> list[Any]:
        async with HistoryStore(PostgresBackend(database), namespace="n\0") as store:
            chat = store.session("user-42")
            await chat.append([*odd, *said("grüße")])
            await store.session("expired").append(said("gone"))
            return await chat.messages()

    assert asyncio.run(main())[:2] == odd
    execute(
        "UPDATE agentstore_session SET expires_at = 1 WHERE session = 'expired'",
        "INSERT INTO agentstore_message SELECT id, 9, 0, '9', '9', f.format, f.payload FROM agentstore_session,"
        " (VALUES ('agentstore/1', '{broken'::bytea)) f (format, payload) WHERE session = 'user-42'",
        "INSERT INTO agentstore_message SELECT id, 10, 0, '10', '10', 'mine/1', '\\xff' FROM agentstore_session"
        " WHERE session = 'user-42'",
        url=database,
    )
    rows = query(lambda c: c.fetch("SELECT * FROM agentstore_conversation ORDER BY seq"), database)
    assert [(row["role"], row["text"]) for row in rows] == [
        ("user", "nul %00 and %uD800"),
        ("assistant", "a b"),
        ("user", "grüße"),
        (None, None),
        (None, None),
    ]
    assert {(row["namespace"], row["session"]) for row in rows} == {("n\\000", "user-42")}
    assert rows[0]["created_at"].year >= 2024
