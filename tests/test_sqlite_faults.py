"""SQLite where the world around it misbehaves: forks at a bad moment, files of others, files that go away."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agentstore import (
    AgentStoreError,
    ConfigurationError,
    CorruptRecordError,
    HistoryStore,
    Message,
    SessionKey,
    UnavailableError,
    open_store,
)
from agentstore.backend import StoredRecord
from agentstore_sqlite import SQLiteBackend


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


async def say(store: HistoryStore, text: str) -> None:
    await store.session("s").append([Message("user", [text])])


async def texts(url: str) -> list[str]:
    async with open_store(url) as store:
        return [message.text for message in await store.session("s").messages()]


def in_child(work: Callable[[], None]) -> int:
    """Do the work in a forked child, whose id is returned; the child's exit code tells whether it failed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def test_a_forked_childs_turns_survive_the_parents_close(url: str) -> None:
    """The child writes on after the parent closed, and all of its turns are there."""
    store = open_store(url)
    asyncio.run(say(store, "parent"))
    closed, opened = os.pipe()

    def child() -> None:
        asyncio.run(say(store, "child, before"))
        os.read(closed, 1)
        asyncio.run(say(store, "child, after"))

    pid = in_child(child)
    asyncio.run(say(store, "parent again"))
    asyncio.run(store.aclose())
    os.write(opened, b".")
    assert os.waitpid(pid, 0)[1] == 0
    assert sorted(asyncio.run(texts(url))) == ["child, after", "child, before", "parent", "parent again"]


def test_a_fork_in_the_middle_of_appends_leaves_both_sides_writing(url: str) -> None:
    """Whatever the parent's threads do at the moment of the fork, the child can write, and so can the parent."""
    store = open_store(url)
    stop = threading.Event()
    written: list[str] = []

    async def go_on() -> None:
        while not stop.is_set():
            await say(store, f"parent {len(written)}")
            written.append("parent")

    thread = threading.Thread(target=lambda: asyncio.run(go_on()))
    thread.start()
    try:
        for number in range(8):
            pid = in_child(lambda number=number: asyncio.run(say(store, f"child {number}")))  # type: ignore[misc]
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    asyncio.run(store.aclose())
    assert len(asyncio.run(texts(url))) == len(written) + 8


def test_one_object_in_several_appends_at_once_is_one_message(url: str) -> None:
    """The call that gave the object its id need not be the first to write it."""

    async def scene() -> None:
        for _ in range(40):
            store = open_store(url)
            message = Message("user", ["x"])
            answers = await asyncio.gather(*[store.session("s").append([message]) for _ in range(4)])
            assert sum(answer.written for answer in answers) == 1
            assert len({answer.seqs[0] for answer in answers}) == 1
            await store.aclose()

    asyncio.run(scene())


def test_a_foreign_file_with_a_log_is_left_as_it_is(tmp_path: Path, url: str) -> None:
    """Another application's file whose owner crashed keeps its log: not a byte of either changes."""
    owner = sqlite3.connect(tmp_path / "theirs.db", isolation_level=None)
    owner.execute("PRAGMA journal_mode = WAL")
    owner.execute("CREATE TABLE theirs (x)")
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"theirs.db{end}", tmp_path / f"chat.db{end}")
    owner.close()
    before = {end: (tmp_path / f"chat.db{end}").read_bytes() for end in ("", "-wal")}

    async def scene() -> None:
        store = open_store(url)
        with pytest.raises(ConfigurationError, match="untouched"):
            await store.open()
        with pytest.raises(ConfigurationError, match="untouched"):
            await say(store, "x")
        await store.aclose()

    asyncio.run(scene())
    assert {end: (tmp_path / f"chat.db{end}").read_bytes() for end in ("", "-wal")} == before


def test_no_turn_is_acknowledged_into_a_removed_file(tmp_path: Path, url: str) -> None:
    """A file that is removed, or replaced by one that is not set up, is an error at the next call."""

    async def scene() -> None:
        store = open_store(url)
        await say(store, "first")
        for end in ("", "-wal", "-shm"):
            os.remove(f"{tmp_path}/chat.db{end}")
        with pytest.raises(AgentStoreError):
            await say(store, "second")
        (tmp_path / "chat.db").touch()
        with pytest.raises(ConfigurationError, match="replaced"):
            await say(store, "third")
        await store.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/etc/hostname/x/chat.db", "/proc/nowhere/chat.db"])
def test_a_place_where_no_file_can_be_is_named(path: str) -> None:
    """What the operating system says comes as an error of ours, with the path."""

    async def scene() -> None:
        async with open_store(f"sqlite:///{path}") as store:
            with pytest.raises((ConfigurationError, UnavailableError), match=path):
                await say(store, "x")

    asyncio.run(scene())


def test_a_fork_of_nothing_onto_something_conflicts(url: str) -> None:
    """`fork` never answers with a handle on another conversation."""

    async def scene() -> None:
        async with open_store(url) as store:
            await say(store, "kept")
            with pytest.raises(AgentStoreError, match="exists"):
                await store.session("nowhere").fork("s")

    asyncio.run(scene())


def test_a_sessions_broken_metadata_hide_no_other_session(tmp_path: Path, url: str) -> None:
    """`on_corrupt="skip"` lists the session without them; else the error names it."""

    async def scene() -> None:
        async with open_store(url) as store:
            for name in ("a", "b"):
                await store.session(name).annotate({"kept": name})
            with sqlite3.connect(tmp_path / "chat.db") as connection:
                connection.execute("UPDATE metadata SET payload = '[1]' WHERE session = 1")
            with pytest.raises(CorruptRecordError, match="history/a"):
                await store.sessions()
        async with open_store(url, on_corrupt="skip") as store:
            found = {info.key.session_id: info.metadata for info in (await store.sessions()).items}
            assert found == {"a": {}, "b": {"kept": "b"}}

    asyncio.run(scene())


def test_a_record_with_a_broken_time_is_corrupt(tmp_path: Path, url: str) -> None:
    """Columns that hold something else raise an error of ours too."""

    async def scene() -> None:
        async with open_store(url) as store:
            await say(store, "x")
            with sqlite3.connect(tmp_path / "chat.db") as connection:
                connection.execute("UPDATE message SET created_at = 'noon'")
            with pytest.raises(CorruptRecordError, match="time of record 1"):
                await store.session("s").records()

    asyncio.run(scene())


def test_a_second_look_at_the_file_keeps_the_locks_of_the_first(url: str) -> None:
    """Turns of two processes survive each other, also after a ping and a second store object on the file.

    POSIX locks go when any descriptor of the file is closed (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """

    async def scene() -> list[str]:
        store = open_store(url)
        await say(store, "ours 1")
        await store.session("s").messages()
        await store.ping()
        async with open_store(url) as second:
            await second.session("s").messages()
        other_process(url, "theirs 1")
        await say(store, "ours 2")
        other_process(url, "theirs 2")
        await say(store, "ours 3")
        await store.aclose()
        return await texts(url)

    assert asyncio.run(scene()) == ["ours 1", "theirs 1", "ours 2", "theirs 2", "ours 3"]


def other_process(url: str, text: str) -> None:
    code = (
        "import asyncio, sys\nfrom agentstore import Message, open_store\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]) as store:\n"
        "        await store.session('s').append([Message('user', [sys.argv[2]])])\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code, url, text], check=True, timeout=60)


def test_threads_that_fork_at_once_leave_the_stores_working(url: str) -> None:
    """Forks wait for each other, and everybody goes on after the last."""
    store = open_store(url)
    asyncio.run(say(store, "before"))
    codes: list[int] = []

    def fork_often() -> None:
        codes.extend(os.waitpid(in_child(lambda: None), 0)[1] for _ in range(10))

    threads = [threading.Thread(target=fork_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        asyncio.run(say(store, str(number)))
    for thread in threads:
        thread.join()
    asyncio.run(store.aclose())
    assert codes == [0] * 30
    assert len(asyncio.run(texts(url))) == 21


def test_a_namespace_keeps_no_part_of_an_unfinished_restore(tmp_path: Path, url: str) -> None:
    """`delete_namespace` takes what a fork that died left behind, however young it is (B129)."""

    async def pages() -> AsyncIterator[list[StoredRecord]]:
        yield [StoredRecord(1, 1, b"i" * 16, b"d" * 16, "agentstore/1", b"{}")]
        raise KeyboardInterrupt

    async def scene() -> None:
        async with open_store(url) as store:
            await say(store, "x")
            backend = SQLiteBackend(tmp_path / "chat.db")
            with pytest.raises(KeyboardInterrupt):
                await backend.restore(SessionKey("default", "history", "half"), pages())
            await backend.aclose()
            await store.delete_namespace("default")

    asyncio.run(scene())
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        assert connection.execute(
            "SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM message)"
        ).fetchone() == (0, 0)
