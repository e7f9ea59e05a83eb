"""What only a file can break: files that are not ours, locks, killed processes, rows left behind, migrations."""

from __future__ import annotations

import asyncio
import gc
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import agentstore_sqlite_schema as schema
from agentstore import (
    AgentStoreError,
    ConfigurationError,
    HistoryStore,
    Message,
    StorageError,
    UnavailableError,
    open_store,
)
from agentstore.backend import Append
from agentstore.settle import settled
from agentstore.testing.faults import records_of
from agentstore_sqlite import SQLiteBackend

ASSETS = Path(__file__).parent / "assets"
LONG_AGO = datetime(2001, 1, 1, tzinfo=timezone.utc)

WRITE_MANY = """
import asyncio, sys
from agentstore import Message, open_store
async def main(url, name, count):
    async with open_store(url) as store:
        for number in range(int(count)):
            await store.session("shared").append([Message("user", [f"{name}-{number}"])])
asyncio.run(main(*sys.argv[1:]))
"""
SET_UP_MANY = """
import asyncio, sys, time
from agentstore import Message, open_store
async def main(folder, name, start, rounds):
    for number in range(int(rounds)):
        time.sleep(max(0, float(start) + number * 0.15 - time.time()))
        async with open_store(f"sqlite:///{folder}/{number}.db") as store:
            await store.session(name).append([Message("user", [name])])
asyncio.run(main(*sys.argv[1:]))
"""
APPEND_AND_WAIT = """
import asyncio, sys
from agentstore import Message, open_store
async def main(url):
    await open_store(url).session("s").append([Message("user", ["acknowledged"])])
    print("done", flush=True)
    await asyncio.sleep(60)
asyncio.run(main(*sys.argv[1:]))
"""


def said(*texts: str) -> list[Message]:
    return [Message("user", [text]) for text in texts]


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(processes: list[subprocess.Popen[str]]) -> list[int]:
    """The processes' exit statuses."""
    for process in processes:
        process.communicate(timeout=60)
    return [process.returncode for process in processes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


async def refusals(url: str) -> list[type[AgentStoreError]]:
    """How opening, reading and writing are refused."""
    refused: list[type[AgentStoreError]] = []
    store = open_store(url)
    for call in (store.open, store.session("s").messages, lambda: store.session("s").append(said("a")), store.setup):
        with pytest.raises(AgentStoreError) as caught:
            await call()
        refused.append(caught.type)
    await store.aclose()
    return refused


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestFilesThatAreNotOurs:
    def test_a_file_of_another_application_is_refused_untouched(self, path: Path, url: str) -> None:
        """A file that is not ours is refused, its bytes untouched."""
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE theirs (a)")
        before = files(path.parent)
        assert asyncio.run(refusals(url)) == [ConfigurationError] * 4
        assert files(path.parent) == before

    def test_a_file_with_another_application_id_is_refused_untouched(self, path: Path, url: str) -> None:
        """... also where it has no table yet."""
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA application_id = 77")
        before = files(path.parent)
        assert asyncio.run(refusals(url)) == [ConfigurationError] * 4
        assert files(path.parent) == before

    def test_a_newer_file_is_refused_untouched(self, path: Path, url: str) -> None:
        """A file of a newer schema is refused, its bytes untouched (B132)."""
        schema.set_up(str(path), 1)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
        before = path.read_bytes()
        assert asyncio.run(refusals(url)) == [ConfigurationError] * 4
        assert path.read_bytes() == before

    def test_a_file_that_is_no_database_is_refused_untouched(self, path: Path, url: str) -> None:
        """What is no database at all is refused, its bytes untouched."""
        path.write_bytes(b"dear diary, " * 1000)
        before = files(path.parent)
        assert asyncio.run(refusals(url)) == [ConfigurationError] * 4
        assert files(path.parent) == before

    def test_a_folder_is_no_file(self, path: Path, url: str) -> None:
        """A path that cannot be a file is a `ConfigurationError`."""
        path.mkdir()
        assert asyncio.run(refusals(url)) == [ConfigurationError] * 4

    def test_a_store_in_memory_is_refused(self) -> None:
        """A SQLite store needs a file."""
        for url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
            with pytest.raises(ConfigurationError, match="file"):
                open_store(url)


class TestPlaces:
    def test_reading_a_missing_file_creates_nothing(self, path: Path, url: str) -> None:
        """Before set-up, reads find nothing and create nothing: no file, no log beside it, no folder."""

        async def read() -> Any:
            async with open_store(f"sqlite:///{path.parent}/deep/er/chat.db") as missing, open_store(url) as store:
                return await missing.session("s").messages(), await store.session("s").messages()

        assert asyncio.run(read()) == ([], [])
        assert list(path.parent.iterdir()) == []

    def test_the_first_write_makes_missing_folders(self, path: Path) -> None:
        """The first write creates only what is missing."""
        asyncio.run(write(f"sqlite:///{path.parent}/deep/er/chat.db", "a"))
        assert (path.parent / "deep/er/chat.db").exists()

    def test_closing_leaves_one_file(self, path: Path, url: str) -> None:
        """A closed store is one file that can be copied."""
        asyncio.run(write(url, "a"))
        assert [file.name for file in path.parent.iterdir()] == ["chat.db"]

    def test_odd_paths_are_paths(self, path: Path) -> None:
        """A path may hold any sign that a URL must escape."""
        odd = path.parent / "a b%20?#é.db"
        asyncio.run(write("sqlite:///" + str(odd).replace("%", "%25").replace("?", "%3F").replace("#", "%23"), "a"))
        assert odd.exists()


async def write(url: str, *texts: str, **options: Any) -> None:
    async with open_store(url, **options) as store:
        await store.session("s").append(said(*texts))


async def read(url: str) -> list[str]:
    async with open_store(url) as store:
        return [message.text for message in await store.session("s").messages()]


@contextmanager
def locked(path: Path) -> Generator[sqlite3.Connection]:
    """Another process' write lock, for all that we can tell."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


class TestLocks:
    def test_a_writer_waits_no_longer_than_the_timeout(self, path: Path, url: str) -> None:
        """Bounded wait when locked, then `UnavailableError`; nothing was written (B100)."""
        asyncio.run(write(url, "a"))
        with locked(path):
            start = time.monotonic()
            with pytest.raises(UnavailableError) as caught:
                asyncio.run(write(url, "b", timeout=0.2))
            assert 0.15 < time.monotonic() - start < 2
            assert not caught.value.maybe_done
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert asyncio.run(read(url)) == ["a"]

    def test_a_writer_waits_for_a_lock(self, path: Path, url: str) -> None:
        """Another process holds the lock for two seconds: the save succeeds (B100)."""
        asyncio.run(write(url, "a"))
        with locked(path) as connection:
            timer = threading.Timer(2, lambda: connection.execute("COMMIT"))
            timer.start()
            asyncio.run(write(url, "b"))
            timer.join()
        assert asyncio.run(read(url)) == ["a", "b"]

    def test_a_locked_file_stops_neither_readers_nor_the_loop(self, path: Path, url: str) -> None:
        """Readers never wait for a writer, and no event loop waits for a disk (B102)."""

        async def probe() -> tuple[float, list[Message]]:
            async with open_store(url, timeout=0.5) as store:
                chat = store.session("s")
                task, lag = asyncio.ensure_future(chat.append(said("b"))), 0.0
                seen = await chat.messages()
                while not task.done():
                    before = time.monotonic()
                    await asyncio.sleep(0.005)
                    lag = max(lag, time.monotonic() - before - 0.005)
                with pytest.raises(UnavailableError):
                    await task
                return lag, seen

        asyncio.run(write(url, "a"))
        with locked(path):
            lag, seen = asyncio.run(probe())
        assert lag < 0.15
        assert [message.text for message in seen] == ["a"]

    def test_threads_and_processes_write_one_file(self, url: str) -> None:
        """Eight threads and two processes, two hundred writes each: no error, none lost (B42)."""

        async def write_many(store: HistoryStore, name: int) -> None:
            for number in range(200):
                await store.session("shared").append(said(f"{name}-{number}"))

        store = open_store(url)
        asyncio.run(store.setup())
        processes = [started(WRITE_MANY, url, name, 200) for name in (8, 9)]
        threads = [threading.Thread(target=lambda n=n: asyncio.run(write_many(store, n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ended(processes) == [0, 0]
        texts = [message.text for message in asyncio.run(store.session("shared").messages())]
        assert sorted(texts) == sorted(f"{name}-{number}" for name in range(10) for number in range(200))
        asyncio.run(store.aclose())

    def test_eight_processes_set_up_at_once(self, tmp_path: Path) -> None:
        """Several replicas start on nothing, a few times: all start (B29)."""
        start, rounds = time.time() + 1.0, 6
        processes = [started(SET_UP_MANY, tmp_path, name, start, rounds) for name in range(8)]
        assert ended(processes) == [0] * 8
        for number in range(rounds):
            with closing(sqlite3.connect(tmp_path / f"{number}.db")) as connection:
                assert connection.execute("SELECT count(*) FROM message").fetchone() == (8,)

    def test_a_set_up_that_commits_meanwhile_is_no_strangers_file(self, path: Path) -> None:
        """What another process makes while we look is ours, or not there yet (B29)."""
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # as far as the other process got
        version = schema._version

        def late(connection: sqlite3.Connection) -> int:
            with patch.object(schema, "_version", version):
                schema.set_up(str(path), 5)
            return version(connection)

        with patch.object(schema, "_version", late):
            assert schema.inspect(str(path), 5) in ("absent", "ready")


class TestDurability:
    def test_an_acknowledged_append_survives_a_kill(self, url: str) -> None:
        """Durable after return: kill -9 right after the answer, reopen, read (B103)."""
        with started(APPEND_AND_WAIT, url) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            process.send_signal(signal.SIGKILL)
        assert asyncio.run(read(url)) == ["acknowledged"]

    @pytest.mark.parametrize(("options", "expected"), [({}, 2), ({"synchronous": "normal"}, 1)])
    def test_writes_are_synchronous_as_asked(self, url: str, options: dict[str, Any], expected: int) -> None:
        """Full durability by default, `synchronous=normal` for those who want it."""
        writers: set[sqlite3.Connection] = set()

        class Watched(sqlite3.Connection):
            def __init__(self, *args: Any, **keywords: Any) -> None:
                super().__init__(*args, **keywords)
                self.set_trace_callback(lambda sql: writers.add(self) if "INSERT INTO message" in sql else None)

        async def levels() -> list[int]:
            async with open_store(url, **options) as store:
                await store.session("s").append(said("a"))
                return [writer.execute("PRAGMA synchronous").fetchone()[0] for writer in writers]

        connect = sqlite3.connect
        with patch("sqlite3.connect", lambda *args, **keywords: connect(*args, factory=Watched, **keywords)):
            assert asyncio.run(levels()) == [expected]
        writers.clear()


class TestFailures:
    def test_a_failed_insert_leaves_no_open_transaction(self, path: Path, url: str) -> None:
        """A failed insert leaves nothing, and locks no other writer out (B43, B44)."""

        async def fail() -> None:
            async with open_store(url) as store:
                with pytest.raises(StorageError):
                    await store.session("s").append(said("b", "bad", "c"))
                with closing(sqlite3.connect(path, timeout=0.1)) as other, other:
                    other.execute("UPDATE session SET updated_at = updated_at")
                await store.session("s").append(said("d"))

        asyncio.run(write(url, "a"))
        plant_trigger(path)
        asyncio.run(fail())
        assert asyncio.run(read(url)) == ["a", "d"]

    def test_one_that_fails_hurts_no_other_in_its_commit(self, path: Path, url: str) -> None:
        """Appends that wait for the writer may share a commit, each still all or nothing."""

        async def crowd() -> list[Any]:
            async with open_store(url) as store:
                calls = [store.session("s").append(said(f"{n}", "bad" if n % 3 == 0 else "good")) for n in range(12)]
                return await asyncio.gather(*calls, return_exceptions=True)

        asyncio.run(write(url))
        plant_trigger(path)
        answers = asyncio.run(crowd())
        assert [isinstance(answer, StorageError) for answer in answers] == [n % 3 == 0 for n in range(12)]
        expected = [text for n in range(12) if n % 3 for text in (str(n), "good")]
        assert asyncio.run(read(url)) == expected

    def test_a_store_that_is_forgotten_leaves_no_thread(self, url: str) -> None:
        """A store object that is garbage-collected without `aclose` leaks no thread."""

        async def use() -> None:
            store = open_store(url)
            await store.session("s").append(said("a"))
            await store.session("s").messages()

        before = threading.active_count()
        asyncio.run(use())
        gc.collect()
        deadline = time.monotonic() + 5
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() <= before


def plant_trigger(path: Path) -> None:
    """From now on a message with the text "bad" cannot be inserted."""
    schema.set_up(str(path), 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON message WHEN new.payload LIKE '%\"bad\"%' "
            "BEGIN SELECT raise(ABORT, 'refused'); END"
        )


class TestTables:
    def test_hot_statements_use_their_indexes(self, path: Path, url: str) -> None:
        """No statement of a call scans a table or sorts in a temporary tree (B74)."""
        schema.set_up(str(path), 1)
        statements: set[str] = set()
        with traced(statements):
            asyncio.run(use_everything(url))
        plans = asyncio.run(explained(url, statements))
        assert len(plans) > 15
        assert [(sql, step) for sql, steps in plans.items() for step in steps if bad_step(step)] == []

    def test_delete_removes_every_row(self, path: Path, url: str) -> None:
        """After delete the count of rows is 0, in every table (B129, B130)."""

        async def use_and_delete() -> None:
            await use_everything(url)
            async with open_store(url) as store:
                await store.session("s").delete()
                await store.session("fork").delete()

        asyncio.run(use_and_delete())
        assert counts(path) == dict.fromkeys(counts(path), 0)

    def test_deleting_a_namespace_removes_every_row(self, path: Path, url: str) -> None:
        """... and after the deletion of a namespace (B129)."""

        async def use_and_delete() -> None:
            await use_everything(url)
            async with open_store(url) as store:
                await store.delete_namespace("default")

        asyncio.run(use_and_delete())
        assert counts(path) == dict.fromkeys(counts(path), 0)

    def test_purging_removes_every_row(self, path: Path, url: str) -> None:
        """What expired leaves no row once it is purged."""

        async def use_and_purge() -> int:
            await use_everything(url)
            async with open_store(url) as store:
                for name in ("s", "fork"):
                    await store.session(name).expire(LONG_AGO)
                return await store.purge_expired()

        assert asyncio.run(use_and_purge()) >= 2
        assert counts(path) == dict.fromkeys(counts(path), 0)

    def test_a_session_keeps_a_bounded_number_of_answers(self, path: Path, url: str) -> None:
        """The session remembers its last 32 tokens, not more."""

        async def write_many() -> None:
            async with open_store(url) as store:
                for number in range(40):
                    await store.session("s").append(said(str(number)))
                    both = [Message("user", ["hi"], message_id=name) for name in ("known", f"new {number}")]
                    await store.session("s").append(both)

        asyncio.run(write_many())
        assert 16 <= counts(path)["answer"] <= 32
        with closing(sqlite3.connect(path)) as reader:
            assert reader.execute("SELECT length(answers) FROM session").fetchone() == (32 * 36,)


async def use_everything(url: str) -> None:
    """Every operation of the waist, at least once."""
    async with open_store(url, ttl=3600) as store:
        chat = store.session("s")
        await chat.append(said("expired"))
        await chat.expire(LONG_AGO)
        for number in range(3):
            await chat.append([Message("user", ["a"], message_id=f"m{number}")], snapshot={"step": number})
        await chat.append(said("b"), expected_last=(await chat.records(limit=1))[0].seq)
        await chat.update(Message("user", ["new"], message_id="m1"))
        await chat.replace(said("c", "d"), after=2)
        await chat.pop()
        await chat.truncate(before=2)
        await chat.annotate({"title": "T"})
        await chat.annotate({"title": None})
        await chat.annotate({"title": "T"})
        await chat.save_snapshot({"step": 9})
        await chat.fork("fork")
        await store.sessions(limit=1)
        await store.sessions(source_id="history")
        assert await chat.info()
        assert await chat.load_snapshot()
        assert [record async for record in chat.iterate(page_size=1)]


@contextmanager
def traced(statements: set[str]) -> Generator[None]:
    class Traced(sqlite3.Connection):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.set_trace_callback(statements.add)

    connect = sqlite3.connect
    with patch("sqlite3.connect", lambda *args, **keywords: connect(*args, factory=Traced, **keywords)):
        yield


async def explained(url: str, statements: set[str]) -> dict[str, list[str]]:
    """The steps of each statement's query plan."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        wanted = [sql for sql in statements if sql.split()[0] in ("SELECT", "UPDATE", "DELETE")]
        return {
            sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            for sql in wanted
            if "sqlite_master" not in sql
        }


def bad_step(step: str) -> bool:
    given = step.endswith(("CONSTANT ROW", "CONSTANT ROWS", "SCAN v"))  # the values of the call itself
    return (step.startswith("SCAN") and not given) or "TEMP B-TREE" in step


def counts(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def layout(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Names and texts of all that the file defines, without the blanks."""
    rows = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_master")
    return {(name, " ".join(sql.split())) for name, sql in rows}


class TestMigrations:
    def test_the_schema_is_the_sum_of_the_migrations(self, path: Path) -> None:
        """Migrations are numbered, and a new file is their sum."""
        schema.set_up(str(path), 1)
        with closing(sqlite3.connect(path)) as made, closing(sqlite3.connect(":memory:")) as summed:
            for migration in schema.MIGRATIONS:
                for statement in migration:
                    summed.execute(statement)
            assert layout(made) == layout(summed)
            assert made.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)

    def test_a_file_of_version_1_opens_reads_and_writes(self, path: Path, url: str) -> None:
        """An old file opens with new code, without manual SQL (B131)."""
        shutil.copy(ASSETS / "sqlite-v1.db", path)

        async def use() -> None:
            async with open_store(url, namespace="acme") as store:
                chat = store.session("user-42")
                first, second = await chat.records()
                assert (first.seq, first.message.text, second.message.contents[0].data) == (1, "hi", b"\x00")
                snapshot, info = await chat.load_snapshot(), await chat.info()
                assert snapshot is not None
                assert info is not None
                assert (snapshot.session, snapshot.version, info.metadata) == ({"step": 1}, 1, {"title": "kept"})
                assert (await chat.append([Message("user", ["hi"], message_id="m1")])).written == 0
                assert (await chat.append(said("new"))).seqs == [3]
                assert len((await store.sessions()).items) == 2

        asyncio.run(use())

    def test_a_session_of_a_file_of_version_1_remembers_its_new_answers(self, path: Path, url: str) -> None:
        """Each of the last 32 calls since then, also of batches that were partly there."""
        shutil.copy(ASSETS / "sqlite-v1.db", path)

        async def use() -> None:
            async with open_store(url, namespace="acme") as store:
                key, backend = store.session("user-42").key, SQLiteBackend(path)
                await store.setup()
                calls: list[tuple[Append, Any]] = []
                for number in range(45):
                    known = Message("user", ["known"], message_id="known")
                    batch = [Message("user", [str(number)]), *([known] if number % 3 else [])]
                    append = Append(records_of(batch), number.to_bytes(16, "big"), retry=True)
                    calls.append((append, await settled(backend.append(key, append))))
                    assert [await settled(backend.append(key, made)) for made, _ in calls[-32:]] == [
                        answer for _, answer in calls[-32:]
                    ]
                await backend.aclose()

        asyncio.run(use())

    def test_an_older_file_is_migrated_in_one_step(self, path: Path) -> None:
        """A migration that fails leaves the file as it was; one that works leaves it ready."""
        schema.set_up(str(path), 1)
        good, bad = ("CREATE TABLE extra (a)",), ("CREATE TABLE more (a)", "SELECT broken FROM nowhere")
        with patch.object(schema, "MIGRATIONS", (*schema.MIGRATIONS, good, bad)):
            assert asyncio.run(SQLiteBackend(path).readiness()) == "outdated"
            with pytest.raises(StorageError):
                asyncio.run(SQLiteBackend(path).setup())
        with patch.object(schema, "MIGRATIONS", (*schema.MIGRATIONS, good)):
            assert asyncio.run(SQLiteBackend(path).readiness()) == "outdated"
            asyncio.run(write(f"sqlite:///{path}", "a"))
            assert asyncio.run(SQLiteBackend(path).readiness()) == "ready"
            assert counts(path)["extra"] == 0
