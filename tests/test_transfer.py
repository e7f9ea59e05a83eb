"""Sessions from store to store and through a file: all of it, exactly, or nothing."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from transfer_scene import KINDS, counted, fill, held, opened, play, strange

from agentstore import (
    ConfigurationError,
    ConflictError,
    CorruptRecordError,
    HistoryStore,
    PayloadTooLargeError,
    SessionHistory,
    open_store,
)
from agentstore.backend import UNREADABLE, StoredRecord
from agentstore.moving import LEASE
from agentstore.testing.faults import bare
from agentstore.testing.scenes import FAR_AHEAD, said
from agentstore.transfer import (
    ExportFileError,
    Moved,
    Transferred,
    copy_session,
    copy_sessions,
    export_sessions,
    import_sessions,
)
from agentstore_memory import MemoryBackend

PAIRS = [(first, second) for first in KINDS for second in KINDS]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_copy_and_its_copy_back_are_equal(first: str, second: str, tmp_path: Path) -> None:
    """A to B to A: equal lists, ids, times, formats, payloads, metadata, snapshots and expiry (B135, B03)."""

    async def scene() -> None:
        async with opened(first, tmp_path) as a, opened(second, tmp_path) as b:
            await fill(a)
            before = await held(a)
            assert await copy_sessions(a, b) == Transferred(len(before), 0)
            assert await held(b) == before
            assert await a.delete_namespace("default") == len(before)
            assert await copy_sessions(b, a) == Transferred(len(before), 0)
            assert await held(a) == before
            assert await copy_sessions(a, b) == Transferred(0, len(before))

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_back_what_was_exported(kind: str, tmp_path: Path) -> None:
    """Export, import into an empty store, export again: equal sessions, and the file as a set of lines (B135)."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as store, opened("memory", tmp_path) as other:
            await fill(store)
            before = await held(store)
            file = await exported(store)
            assert await import_sessions(other, io.BytesIO(file)) == Transferred(len(before), 0)
            assert await held(other) == before
            assert set((await exported(other)).splitlines()) == set(file.splitlines())
            await store.delete_namespace("default")
            assert await import_sessions(store, io.BytesIO(file)) == Transferred(len(before), 0)
            assert await held(store) == before
            assert await import_sessions(store, io.BytesIO(file)) == Transferred(0, len(before))

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_goes_on_as_a_history(kind: str, tmp_path: Path) -> None:
    """What is appended to it stands behind the rest, a repeated turn is known, and the original is left alone."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened(kind, tmp_path) as b:
            chat, copy = a.session("s"), b.session("t", source_id="other", namespace="elsewhere")
            await chat.append(said("one", "two"), idempotency_key="turn")
            await chat.save_snapshot({"n": 1})
            assert await copy_session(chat, copy)
            assert (await copy.append(said("one", "two"), idempotency_key="turn")).written == 0
            assert (await copy.append(said("three"))).seqs == [3]
            assert await copy.save_snapshot({"n": 2}, expected_version=1) == 2
            assert await texts(chat) == ["one", "two"]
            assert await texts(copy) == ["one", "two", "three"]

    play(scene())


def test_another_session_under_the_key_is_a_conflict(tmp_path: Path) -> None:
    """It is left as it is, whatever differs; the other sessions are copied, and each is told about."""

    async def scene() -> None:
        async with opened("sqlite", tmp_path) as a, opened("memory", tmp_path) as b:
            for name in ("same", "longer", "shorter", "titled", "saved", "expiring"):
                await a.session(name).append(said("x"), idempotency_key=name)
            await copy_sessions(a, b)
            await a.session("longer").append(said("y"))
            await b.session("shorter").append(said("y"))
            await b.session("titled").annotate({"a": 1})
            await b.session("saved").save_snapshot({"a": 1})
            await b.session("expiring").expire(FAR_AHEAD)
            await a.session("new").append(said("z"))
            before = await held(b)
            told: list[Moved] = []
            with pytest.raises(ConflictError, match="default/history/"):
                await copy_sessions(a, b, report=told.append)
            assert {(moved.key.session_id, moved.outcome) for moved in told} == {
                *[(name, "failed") for name in ("longer", "shorter", "titled", "saved", "expiring")],
                ("same", "equal"),
                ("new", "copied"),
            }
            after = await held(b)
            assert {key: after[key] for key in before} == before
            with pytest.raises(ConflictError, match="another session"):
                await import_sessions(b, io.BytesIO(await exported(a, session_id="longer")))

    play(scene())


def test_failures_without_a_report_are_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Only one error can be raised; none is lost."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened("memory", tmp_path) as b:
            for store in (a, b):
                for name in ("s", "t"):
                    await store.session(name).append(said("x"))
            with pytest.raises(ConflictError):
                await copy_sessions(a, b)

    with caplog.at_level(logging.WARNING, "agentstore"):
        play(scene())
    assert {name for name in ("history/s ", "history/t ") if name in caplog.text} == {"history/s ", "history/t "}


def test_what_is_copied_can_be_chosen(tmp_path: Path) -> None:
    """Namespaces, a source, a session id in all sources, or one session; none of it begins what is not there."""

    async def chosen(a: HistoryStore, **choice: Any) -> set[str]:
        async with opened("memory", tmp_path) as b:
            told: list[Moved] = []
            done = await copy_sessions(a, b, report=told.append, **choice)
            assert done.copied == len(told)
            assert await export_sessions(a, io.BytesIO(), **choice) == len(told)
            return {str(moved.key) for moved in told}

    async def scene() -> None:
        async with opened("sqlite", tmp_path) as a:
            for namespace, source, session in ("n1", "x", "s"), ("n1", "y", "s"), ("n1", "x", "t"), ("n2", "x", "s"):
                await a.session(session, source_id=source, namespace=namespace).append(said("x"))
            assert await chosen(a) == set()
            assert await chosen(a, namespaces=["n1", "n2", "n1", "n3"]) == {"n1/x/s", "n1/y/s", "n1/x/t", "n2/x/s"}
            assert await chosen(a, namespaces=["n1"], source_id="x") == {"n1/x/s", "n1/x/t"}
            assert await chosen(a, namespaces=["n1"], session_id="s") == {"n1/x/s", "n1/y/s"}
            assert await chosen(a, namespaces=["n1"], source_id="x", session_id="s") == {"n1/x/s"}
            assert await chosen(a, namespaces=["n1"], source_id="x", session_id="none") == set()
            for wrong in {"namespaces": [""]}, {"source_id": ""}, {"session_id": "x" * 2000}:
                with pytest.raises(ValueError, match=r"must not be empty|more than 1024"):
                    await copy_sessions(a, a, **wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a list"):
                await copy_sessions(a, a, namespaces="n1")
            assert await copy_session(a.session("none"), a.session("new")) is False
            assert await a.session("new").info() is None

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_that_of_a_page(kind: str, tmp_path: Path) -> None:
    """10,000 messages are copied, exported and imported without ever being held at once."""

    async def scene() -> None:
        async with opened("sqlite", tmp_path) as a, opened(kind, tmp_path) as b, opened("sqlite", tmp_path) as c:
            chat = a.session("s")
            for turn in range(20):
                await chat.append(said(*[f"{turn}.{part} {'x' * 2000}" for part in range(500)]))
            await b.setup()
            await c.setup()
            limit = 45e6 if kind == "memory" else 12e6  # this one keeps its 22 MB in the process that is measured
            assert await peak(lambda: copy_session(chat, b.session("s"))) < limit
            with (tmp_path / "export").open("wb") as file:
                assert await peak(lambda: export_sessions(b, file)) < 12e6
            with (tmp_path / "export").open("rb") as file:
                assert await peak(lambda: import_sessions(c, file)) < 12e6
            assert await c._gate.backend.read(chat.key) == await a._gate.backend.read(chat.key)

    play(scene())


async def peak(work: Callable[[], Any]) -> int:
    """The most bytes of Python's that the work held at once."""
    tracemalloc.start()
    try:
        await work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_copy_leaves_nothing_or_all(kind: str, tmp_path: Path) -> None:
    """Wherever the cancellation comes; in the end the same call completes it."""

    async def scene() -> None:
        async with opened("sqlite", tmp_path) as a, opened(kind, tmp_path) as b:
            chat = a.session("s")
            await chat.append(said(*["x" * 5000] * 2000), snapshot={"n": 1})
            await chat.annotate({"a": 1})
            whole = await held(a)
            await b.setup()
            for delay in (0.0, 0.005, 0.02, 0.05, 0.1):
                task = asyncio.create_task(copy_session(chat, b.session("s")))
                await asyncio.sleep(delay)
                task.cancel()
                (done,) = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(done, asyncio.CancelledError | bool)
                assert await held(b) in ({}, whole)
                await b.session("s").delete()
            assert await copy_session(chat, b.session("s"))
            assert await held(b) == whole

    play(scene())


def test_a_cancelled_copy_stops_at_the_next_page(tmp_path: Path) -> None:
    """It does not go on to the end of a long session."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened("sqlite", tmp_path) as b:
            chat = a.session("s")
            await chat.append(said(*["x"] * 5000))
            reads = Reads(a)
            task = asyncio.create_task(copy_session(chat, b.session("s")))
            await reads.second.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert reads.count < 5
            assert await held(b) == {}
            assert await b.purge_expired() in (0, 1)

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_delete_leaves_nothing_of_copies(kind: str, tmp_path: Path) -> None:
    """Not of whole ones nor of one that was broken off: the count of rows, keys or blobs is that before (B129)."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, counted(kind, tmp_path) as (b, count):
            await b.setup()
            empty = count()
            await fill(a)
            await a.session("s").append(said(*["x"] * 2000))
            await copy_sessions(a, b)
            assert count() > empty
            assert await b.session("s").truncate(before=1501) == 1500
            assert await b.session("s").records() == await a.session("s").records(limit=500)
            await b.delete_namespace("default")
            assert count() == empty
            reads = Reads(a)
            task = asyncio.create_task(copy_session(a.session("s"), b.session("s")))
            await reads.second.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await b.delete_namespace("default")
            assert count() == empty

    play(scene())


class Reads:
    """Counts the pages that are read from a store, and does something before each."""

    def __init__(self, store: HistoryStore, before: Callable[[int], Any] | None = None) -> None:
        self.count = 0
        self.second = asyncio.Event()
        self._before = before
        self._log: Any = store._gate.backend
        self._read = self._log.read
        self._log.read = self.read

    async def read(self, *given: Any, **more: Any) -> list[StoredRecord]:
        self.count += 1
        if self.count == 2:
            self.second.set()
        await asyncio.sleep(0)
        if self._before is not None and (work := self._before(self.count)) is not None:
            await work
        found: list[StoredRecord] = await self._read(*given, **more)
        return found


KILLED = """
import asyncio, os, signal, sys
from agentstore import open_store
from agentstore.transfer import copy_session

async def main():
    async with open_store(sys.argv[1]) as a, open_store(sys.argv[2]) as b:
        backend = (a if sys.argv[3] == "read" else b)._gate.backend
        plain, calls = getattr(backend, sys.argv[3]), []

        def killed(*given, **more):
            calls.append(given)
            if len(calls) == int(sys.argv[4]):
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*given, **more)

        setattr(backend, sys.argv[3], killed)
        await copy_session(a.session("s"), b.session("s"))

asyncio.run(main())
"""


async def killed(source: str, target: str, step: str, call: int) -> None:
    """A process that copies the session and is killed when it makes that call for the n-th time."""
    command = [sys.executable, "-c", KILLED, source, target, step, str(call)]
    done = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("step", ["annotate", "save_snapshot", "expire"])
def test_what_a_killed_copy_left_is_completed_or_goes(step: str, tmp_path: Path) -> None:
    """Killed between the messages and what lies beside them: it lives ten minutes, and the next try completes it."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"

    async def scene() -> None:
        async with open_store(source) as a, open_store(target) as b:
            await a.session("s").append(said("x"), snapshot={"n": 1})
            await a.session("s").annotate({"a": 1})
            await killed(source, target, step, 1)
            (left,) = (await held(b)).values()
            assert left.expires_at is not None
            assert await copy_session(a.session("s"), b.session("s"))
            assert await held(b) == await held(a)

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_was_broken_off_is_known_on_every_store(kind: str, tmp_path: Path) -> None:
    """By its lease, to the microsecond; one that is merely like it, with an expiry of its own, is a conflict."""

    async def pages(found: Sequence[StoredRecord]) -> AsyncIterator[Sequence[StoredRecord]]:
        yield found

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened(kind, tmp_path) as b:
            chat, backend = a.session("s"), b._gate.backend
            await chat.append(said("x"))
            await chat.annotate({"a": 1})
            records = await a._gate.backend.read(chat.key)
            await b.setup()
            for lease, known in ((LEASE, True), (LEASE + 1, False)):
                assert await backend.restore(chat.key, pages(records), begin_ttl=lease)  # type: ignore[attr-defined]
                if known:
                    assert await copy_session(chat, b.session("s"))
                    assert await held(b) == await held(a)
                    await b.session("s").delete()
                else:
                    with pytest.raises(ConflictError, match="other metadata"):
                        await copy_session(chat, b.session("s"))

    play(scene())


def test_a_crash_amid_the_pages_leaves_nothing(tmp_path: Path) -> None:
    """Killed while messages are under way: no session is there, and the next try copies it."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"

    async def scene() -> None:
        async with open_store(source) as a, open_store(target) as b:
            await a.session("s").append(said(*["x"] * 2000))
            await killed(source, target, "read", 3)
            assert await held(b) == {}
            assert await copy_session(a.session("s"), b.session("s"))
            assert await held(b) == await held(a)

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_meanwhile_leaves_a_prefix(kind: str, tmp_path: Path) -> None:
    """The copy is the session as it was when it was begun to be read, whatever is appended; snapshot included."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as a, opened("memory", tmp_path) as b:
            chat = a.session("s")
            await chat.append(said(*["x"] * 1200), snapshot={"turn": 0})
            before = await held(a)
            writer = asyncio.create_task(write_turns(chat))
            Reads(a, lambda page: asyncio.sleep(0.1))
            assert await copy_session(chat, b.session("s"))
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            (copy,) = (await held(b)).values()
            now = (await held(a))[chat.key]
            (first,) = before.values()
            assert copy.records == now.records[: len(copy.records)]
            assert len(first.records) <= len(copy.records) < len(now.records)
            turns = len(copy.records) - len(first.records)
            assert copy.snapshot is not None
            assert json.loads(copy.snapshot[1]) == {"turn": turns}

    play(scene())


@pytest.mark.parametrize("kind", KINDS)
def test_snapshot_and_messages_are_of_one_moment(kind: str, tmp_path: Path) -> None:
    """A turn that comes between reading the one and the other is in both or in none."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as a, opened("memory", tmp_path) as b:
            chat, turns = a.session("s"), [0]
            await chat.append(said("turn 0"), snapshot={"turn": 0})
            backend: Any = a._gate.backend
            plain = backend.info

            async def info(key: Any) -> Any:
                if turns[0] < 3:
                    turns[0] += 1
                    await chat.append(said(f"turn {turns[0]}"), snapshot={"turn": turns[0]})
                return await plain(key)

            backend.info = info
            assert await copy_session(chat, b.session("s"))
            copied = await b.session("s").load_snapshot()
            assert copied is not None
            assert copied.session == {"turn": len(await texts(b.session("s"))) - 1}

    play(scene())


async def write_turns(chat: SessionHistory) -> None:
    for turn in range(1, 1000):
        await chat.append(said("during the copy"), snapshot={"turn": turn})
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["truncate", "clear", "delete", "replace", "pop", "begin anew"])
def test_a_removal_meanwhile_is_a_conflict(kind: str, change: str, tmp_path: Path) -> None:
    """A copy never mixes two states: it is not made, and the next one is whole."""

    async def remove(chat: SessionHistory) -> None:
        match change:
            case "truncate":
                await chat.truncate(after=900)
            case "clear":
                await chat.clear()
            case "pop":
                await chat.pop()
            case "replace":
                await chat.replace(said("new"), after=700)
            case "delete":
                await chat.delete()
            case _:
                await chat.delete()
                await chat.append(said(*["other"] * 1200))

    async def scene() -> None:
        async with opened(kind, tmp_path) as a, opened("memory", tmp_path) as b:
            chat = a.session("s")
            await chat.append(said(*["x"] * 1200))
            Reads(a, lambda page: remove(chat) if page == 2 else None)
            with pytest.raises(ConflictError, match="were removed while it was read"):
                await copy_session(chat, b.session("s"))
            assert await held(b) == {}
            await copy_session(chat, b.session("s"))
            assert await held(b) == await held(a)

    play(scene())


def test_a_session_that_is_written_to_is_not_missed(tmp_path: Path) -> None:
    """It moves to the front of the listing while its page is under way: it is copied all the same, once."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened("memory", tmp_path) as b:
            backend: Any = a._gate.backend
            for number in range(450):
                await a.session(f"{number:03}").append(said("x"))
            with backend._sessions() as sessions:  # all of them last written to an hour ago
                for session in sessions.values():
                    session.updated_at -= 3_600_000_000
                    session.created_at -= 3_600_000_000
            plain, pages = backend.list, []

            async def listed(*given: Any, **more: Any) -> Any:
                pages.append(1)
                if len(pages) == 2:
                    await a.session("449").append(said("moved to the front"))
                return await plain(*given, **more)

            backend.list = listed
            assert await copy_sessions(a, b) == Transferred(450, 0)
            assert await held(b) == await held(a)

    play(scene())


def test_a_record_that_cannot_be_given_back_is_named(tmp_path: Path) -> None:
    """It is no part of a copy; the other sessions are copied."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened("memory", tmp_path) as b:
            await strange(a, "good", b"x")
            await a.session("bad").append(said("x", "y"))
            plain = a._gate.backend.read

            async def read(key: Any, **more: Any) -> list[StoredRecord]:
                found = await plain(key, **more)
                broken = StoredRecord(2, 1, bytes(16), bytes(16), UNREADABLE, b"torn")
                return [broken if record.seq == 2 else record for record in found]

            a._gate.backend.read = read  # type: ignore[method-assign]
            with pytest.raises(CorruptRecordError, match="record 2 of session default/history/bad"):
                await copy_sessions(a, b)
            assert {key.session_id for key in await held(b)} == {"good"}

    play(scene())


def test_a_payload_over_the_targets_limit_is_refused(tmp_path: Path) -> None:
    """With its seq, and nothing of the session is there."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as a, opened("sqlite", tmp_path, max_message_bytes=1000) as b:
            await a.session("s").append(said("small", "x" * 2000))
            with pytest.raises(PayloadTooLargeError, match="message 2 of session"):
                await copy_session(a.session("s"), b.session("s"))
            await a.session("t").save_snapshot({"x": "x" * 2000})
            with pytest.raises(PayloadTooLargeError, match="the snapshot of session"):
                await copy_session(a.session("t"), b.session("t"))
            assert await held(b) == {}

    play(scene())


def test_a_backend_that_lacks_an_ability_says_so() -> None:
    """Messages need Rewriting in the target; the rest its own ability; a source needs none for one session."""

    async def scene() -> None:
        log = HistoryStore(bare(MemoryBackend()))
        async with open_store("memory://") as whole:
            await log.session("s").append(said("x", "y"))
            assert await copy_session(log.session("s"), whole.session("s"))
            assert await texts(whole.session("s")) == ["x", "y"]
            assert await copy_session(log.session("none"), whole.session("none")) is False
            assert await whole.session("none").info() is None
            with pytest.raises(ConfigurationError, match="Rewriting"):
                await copy_session(whole.session("s"), log.session("t"))
            with pytest.raises(ConfigurationError, match="Catalog"):
                await copy_sessions(log, whole)

    play(scene())


def test_the_file_is_readable(tmp_path: Path) -> None:
    """Strict JSON Lines in the documented form: a message's payload is the JSON that it is, or base64."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as store:
            await store.session("s").append(said("héllo"), snapshot={"n": 1})
            await store.session("s").annotate({"title": "t"})
            await strange(store, "t", b"\xff")
            lines = [json.loads(line) for line in (await exported(store)).decode().splitlines()]
        assert lines[0] == {"line": "export", "format": "agentstore.export/1"}
        assert [line["line"] for line in lines[1:-1]] == ["session", "message", "end"] * 2
        assert lines[-1] == {"line": "last", "sessions": 2}
        assert (lines[1]["namespace"], lines[1]["source"], lines[1]["session"]) == ("default", "history", "s")
        assert lines[1]["metadata"] == {"json": {"title": "t"}}
        assert lines[1]["snapshot"] == {"format": "agentstore.mapping/1", "payload": {"json": {"n": 1}}}
        assert lines[2]["payload"]["json"]["contents"] == [{"type": "text", "text": "héllo"}]
        assert lines[5]["payload"] == {"base64": "/w=="}

    play(scene())


def test_a_torn_file_is_named_by_its_line(tmp_path: Path) -> None:
    """Cut anywhere: the sessions before the cut are there, whole, no part of the one in it; the whole file mends it."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as store:
            for name in ("a", "b"):
                await store.session(name).append(said("one", "two"), snapshot={"n": 1})
            file, before = await exported(store), await held(store)
        ends = [place + 1 for place, byte in enumerate(file) if byte == 10]
        for cut in [*range(0, len(file) - 1, 17), *ends[:-1]]:
            async with open_store("memory://") as store:
                with pytest.raises(ExportFileError, match=f"line {1 + len([end for end in ends if end <= cut])} of "):
                    await import_sessions(store, io.BytesIO(file[:cut]))
                found = await held(store)
                assert len(found) == (cut >= ends[4]) + (cut >= ends[8])
                assert found == {key: before[key] for key in found}
                done = await import_sessions(store, io.BytesIO(file))
                assert done == Transferred(2 - len(found), len(found))

    play(scene())


def _swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


@pytest.mark.parametrize(
    ("change", "said_of_it"),
    [
        (lambda lines: [b"SQLite format 3\0" + b"x" * 10_000], "line 1 of the export: the file ends within"),
        (lambda lines: [b"hello"], "line 1 of the export: no line of an export"),
        (lambda lines: [b'{"a":1}'], "line 1 of the export: no line of an export"),
        (lambda lines: lines[1:], "line 1 of the export: it does not begin as an export"),
        (lambda lines: [lines[0].replace(b"/1", b"/2"), *lines[1:]], "line 1 .*upgrade it"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 4 .*checksum"),
        (lambda lines: _swapped(lines), "line 4 .*seq 1"),
        (lambda lines: [*lines[:2], lines[2].replace(b"one", b"ONE"), *lines[3:]], "line 5 .*checksum"),
        (lambda lines: [lines[0], lines[1].replace(b'"s"', b'"t"'), *lines[2:]], "line 5 .*checksum"),
        (lambda lines: [lines[0], lines[1].replace(b'"s"', b'""'), *lines[2:]], "line 2 .*must not be empty"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"id":"', b'"id":"zz'), *lines[3:]], "line 3 "),
        (lambda lines: [*lines[:2], lines[2].replace(b'"json"', b'"xml"'), *lines[3:]], "line 3 "),
        (lambda lines: [*lines[:2], b"", *lines[2:]], "line 3 "),
        (lambda lines: [*lines[:3], lines[1], *lines[3:]], "line 4 .*a message or the end"),
        (lambda lines: [*lines[:-1], lines[-1].replace(b"1", b"2")], "line 6 .*after 1 sessions"),
        (lambda lines: [*lines, b"{}"], "line 7 .*behind the last line"),
    ],
)
def test_a_foreign_or_changed_file_is_named_by_its_line(
    change: Callable[[list[bytes]], list[bytes]], said_of_it: str, tmp_path: Path
) -> None:
    """What was not exported like this is not imported, unless the session is proven whole."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as store, opened("memory", tmp_path) as other:
            await store.session("s").append(said("one", "two"))
            before = await held(store)
            lines = (await exported(store)).splitlines()
            changed = b"\n".join(change(lines)) + b"\n" * (len(lines) > 1 and change(lines)[0][:6] != b"SQLite")
            with pytest.raises(ExportFileError, match=said_of_it):
                await import_sessions(other, io.BytesIO(changed))
            assert await held(other) in ({}, before)

    play(scene())


def test_a_long_session_in_a_torn_file_leaves_nothing(tmp_path: Path) -> None:
    """Many pages are under way before the tear is met."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as store, opened("sqlite", tmp_path) as other:
            await store.session("s").append(said(*["x"] * 3000))
            file = await exported(store)
            with pytest.raises(ExportFileError, match="line 3001 of the export"):
                await import_sessions(other, io.BytesIO(b"".join(file.splitlines(keepends=True)[:3000])))
            assert await held(other) == {}

    play(scene())


def test_a_file_in_text_mode_is_refused(tmp_path: Path) -> None:
    """Its lines would not be the bytes that were written."""

    async def scene() -> None:
        async with opened("memory", tmp_path) as store:
            with pytest.raises(TypeError, match="binary"):
                await import_sessions(store, io.StringIO("{}\n"))  # type: ignore[arg-type]

    play(scene())


async def exported(store: HistoryStore, **choice: Any) -> bytes:
    file = io.BytesIO()
    await export_sessions(store, file, **choice)
    return file.getvalue()


async def texts(chat: SessionHistory) -> list[str]:
    return [message.text for message in await chat.messages()]
