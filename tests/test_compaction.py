"""Compaction: the history is the old one or the new one, and every original is in one of them or in the archive."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import azblob_scene
import pytest
import redis_server
from adapter_stores import STORES

from agentstore import (
    Agent,
    Appended,
    ConflictError,
    Content,
    CorruptRecordError,
    HistoryStore,
    Message,
    PayloadTooLargeError,
    ScriptedChatClient,
    SessionHistory,
    StoreHistoryProvider,
    UnavailableError,
    compact,
    keep_newest,
    open_store,
    summarize,
)
from agentstore.backend import StoredRecord
from agentstore.codec import MessageCodec
from agentstore.testing.scenes import said

Scene = Callable[[HistoryStore], Awaitable[None]]
Reducer = Callable[[list[Message]], Awaitable[list[Message]]]

URLS = {**STORES, "redis": lambda folder: f"{redis_server.server_url()}?prefix=compaction-{uuid4().hex}"}


@asynccontextmanager
async def opened(kind: str, folder: Path, **options: Any) -> AsyncGenerator[HistoryStore]:
    if kind == "azblob":
        with azblob_scene.new_container() as container:
            async with azblob_scene.opened(container.container_name, **options) as store:
                yield store
    else:
        async with open_store(URLS[kind](folder), namespace=uuid4().hex, **options) as store:
            yield store
            if kind != "memory":
                await store.delete_namespace(store.namespace)


@pytest.fixture(params=[*URLS, "azblob"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Plays a scene on one of the backends."""

    def run(scene: Scene, **options: Any) -> None:
        async def main() -> None:
            async with opened(request.param, tmp_path, **options) as store:
                await scene(store)

        asyncio.run(asyncio.wait_for(main(), 60))

    return run


def in_memory(scene: Scene, **options: Any) -> None:
    async def main() -> None:
        async with open_store("memory://", **options) as store:
            await scene(store)

    asyncio.run(asyncio.wait_for(main(), 60))


async def texts(chat: SessionHistory) -> list[str]:
    return [message.text for message in await chat.messages()]


def archive_of(store: HistoryStore) -> SessionHistory:
    return store.session("s", source_id="history~archive")


async def begun(store: HistoryStore, *said_texts: str) -> SessionHistory:
    chat = store.session("s")
    await chat.append(said(*said_texts))
    return chat


def summary(older: Sequence[Message]) -> str:
    return "+".join([message.text for message in older])


def meanwhile(work: Callable[[], Awaitable[Any]], *, keep: int = 2) -> Reducer:
    """A reducer during which something else is done to the history, the first time."""
    done: list[bool] = []

    async def reduce(messages: list[Message]) -> list[Message]:
        if not done:
            done.append(True)
            await work()
        return await summarize(summary, keep)(messages)

    return reduce


def test_the_newest_stay_and_the_originals_are_archived(play: Callable[..., None]) -> None:
    """What stays keeps ids and values; what goes is in the archive, exactly as it was, in its order."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        odd = Message("user", ["\0\ud83d", Content("thing", value=(float("inf"), b"\xff", None))])
        odd.additional_properties["kept"] = {"b": 1, "a": 2**70}
        given = [Message("system", ["be kind"]), odd, *said("a", "b", "c")]
        await chat.append(given)
        done = await compact(chat, keep_newest(3))
        assert (done.before, done.after, done.archived) == (5, 3, 2)
        assert await chat.messages() == [given[0], *given[3:]]
        assert await done.archive.messages() == await archive_of(store).messages() == given[1:3]
        await chat.append(said("d"))
        assert await texts(chat) == ["be kind", "b", "c", "d"]

    play(scene)


def test_an_append_during_the_summary_survives_in_order(play: Callable[..., None]) -> None:
    """It stands behind the summary and what it left, and is in no archive (B52)."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcd")
        done = await compact(chat, meanwhile(lambda: chat.append(said("e", "f"))))
        assert await texts(chat) == ["a+b", "c", "d", "e", "f"]
        assert await texts(done.archive) == ["a", "b"]
        assert (done.before, done.after) == (6, 5)

    play(scene)


def test_what_changes_during_the_summary_is_seen(play: Callable[..., None]) -> None:
    """An update, a truncation, a pop: the reducer starts again, and the old version never reaches the archive."""

    async def scene(store: HistoryStore) -> None:
        for number, (work, kept, archived) in enumerate(
            [
                (lambda chat: chat.update(Message("user", ["A"], message_id="id-a")), ["A+b", "c", "d"], ["A", "b"]),
                (lambda chat: chat.truncate(before=2), ["b", "c", "d"], ["b"]),
                (lambda chat: chat.pop(), ["a", "b", "c"], ["a"]),
                (lambda chat: chat.clear(), [], []),
                (lambda chat: chat.delete(), [], []),
            ]
        ):
            chat = store.session(f"s{number}")
            await chat.append([Message("user", [text], message_id=f"id-{text}") for text in "abcd"])
            done = await compact(chat, meanwhile(lambda chat=chat, work=work: work(chat)))  # type: ignore[misc]
            assert (await texts(chat), await texts(done.archive)) == (kept, archived)

    play(scene)


def test_an_append_just_before_the_swap_survives(play: Callable[..., None]) -> None:
    """The swap is refused and made again with it, without another summary."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcd")
        summaries: list[str] = []

        def counted(older: Sequence[Message]) -> str:
            summaries.append(summary(older))
            return summaries[-1]

        late = [*"efg"]
        backend: Any = store._gate.backend
        replace = backend.replace

        async def raced(*args: Any) -> Any:
            if late:
                await chat.append(said(late.pop(0)))
            return await replace(*args)

        with patch.object(backend, "replace", raced):
            done = await compact(chat, summarize(counted, 2))
        assert await texts(chat) == ["a+b", *"cdefg"]
        assert (summaries, await texts(done.archive), done.archived) == (["a+b"], ["a", "b"], 2)

    play(scene)


def test_compactions_at_once_archive_nothing_twice(play: Callable[..., None]) -> None:
    """One swaps, the others find nothing left to do, or go on from there; each original is somewhere once."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcdef")
        await asyncio.gather(*[compact(store.session("s"), summarize(summary, 2)) for _ in range(4)])
        assert await texts(chat) == ["a+b+c+d", "e", "f"]
        assert sorted(await texts(archive_of(store))) == [*"abcd"]

    play(scene)


def test_appends_during_many_compactions_are_all_kept(play: Callable[..., None]) -> None:
    """Writers never stop; what they wrote is in the history or in the archive, once, and in order."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, "start")
        written = [f"{number:02}" for number in range(24)]

        async def write() -> None:
            for text in written:
                await chat.append(said(text))

        async def shorten() -> None:
            for _ in range(6):
                await compact(store.session("s"), keep_newest(3))

        await asyncio.gather(write(), shorten())
        archived = await texts(archive_of(store))
        assert [*archived, *await texts(chat)] == ["start", *written]

    play(scene)


class Stop(Exception):  # noqa: N818
    """Something that goes wrong, somewhere."""


async def disturbed(store: HistoryStore, step: int, disturb: Callable[[asyncio.Task[Any]], Awaitable[None]]) -> int:
    """Compact while something disturbs its n-th call of the backend; how many calls there were."""
    backend: Any = store._gate.backend
    calls = 0

    def watched(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                await disturb(task)
            return await call(*args, **kwargs)

        return counted

    names = ("read", "append", "replace")
    patches = [patch.object(backend, name, watched(getattr(backend, name))) for name in names]
    for one in patches:
        one.start()
    try:
        task = asyncio.ensure_future(compact(store.session("s"), summarize(summary, 2)))
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), Stop)
    finally:
        for one in patches:
            one.stop()
    return calls


async def fail(task: asyncio.Task[Any]) -> None:
    raise Stop


async def cancel(task: asyncio.Task[Any]) -> None:
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("disturb", [fail, cancel])
def test_a_failure_or_cancellation_at_any_step_leaves_the_old_history_or_the_new(
    play: Callable[..., None], disturb: Callable[..., Awaitable[None]]
) -> None:
    """Never neither, whichever call it meets, cancelled even twice; and the next try archives nothing twice (B52)."""

    async def scene(store: HistoryStore) -> None:
        for step in range(1, 20):
            await store.session("s").delete()
            await archive_of(store).delete()
            chat = await begun(store, *"abcd")
            calls = await disturbed(store, step, disturb)
            assert await texts(chat) in ([*"abcd"], ["a+b", "c", "d"])
            await chat.append(said("e"))
            await compact(chat, summarize(summary, 3))
            assert await texts(chat) == ["a+b", *"cde"]
            assert await texts(archive_of(store)) == [*"ab"]
            if step > calls:
                return
        raise AssertionError("compaction takes more calls than were disturbed")

    play(scene)


KILLED = """
import asyncio, os, sys
from agentstore import compact, keep_newest, open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        await store.ping()
        store._gate.backend.replace = lambda *args: os._exit(9)
        await compact(store.session("s"), keep_newest(2))

asyncio.run(main())
"""


def test_a_crash_between_archive_and_swap_leaves_the_whole_history(tmp_path: Path) -> None:
    """The process is gone after the archive was written; the next one finishes, and archives nothing twice (B52)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> None:
        async with open_store(url) as store:
            chat = await begun(store, *"abcd")
            killed = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", KILLED, url], timeout=60, check=False
            )
            assert killed.returncode == 9
            assert await texts(chat) == [*"abcd"]
            assert await texts(archive_of(store)) == ["a", "b"]
            done = await compact(chat, keep_newest(2))
            assert (done.archived, await texts(chat), await texts(done.archive)) == (0, ["c", "d"], ["a", "b"])

    asyncio.run(main())


def test_a_summary_of_a_summary_keeps_every_original() -> None:
    """The second one is given the first; the archive has originals and the replaced summary, in order."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcd")
        await compact(chat, summarize(summary, 2))
        await chat.append(said("e", "f"))
        await compact(chat, summarize(summary, 2))
        assert await texts(chat) == ["a+b+c+d", "e", "f"]
        assert await texts(archive_of(store)) == ["a", "b", "a+b", "c", "d"]

    in_memory(scene)


def test_nothing_is_written_where_nothing_changes() -> None:
    """A history within the limits, and one that does not exist: no write, no archive, no reducer for nothing."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"ab")
        before = await chat.info()
        done = await compact(chat, keep_newest(5))
        assert (done.before, done.after, done.archived) == (2, 2, 0)
        assert await chat.info() == before
        nobody = await compact(store.session("nobody"), lambda messages: [messages[0]])
        assert (nobody.before, nobody.after) == (0, 0)
        assert [info.key for info in (await store.sessions()).items] == [chat.key]

    in_memory(scene)


def test_the_beginning_that_stays_is_not_written_again() -> None:
    """Its records keep seq and time; only what is behind it is swapped."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        await chat.append([Message("system", ["be kind"]), *said(*"abcd")])
        first = (await chat.records(limit=5))[0]
        await compact(chat, keep_newest(3))
        kept = await chat.records()
        assert kept[0] == first
        assert [record.seq for record in kept] == [1, 6, 7]

    in_memory(scene)


def test_a_reducer_that_leaves_nothing_is_refused() -> None:
    """A compacted history is never empty, unless it was (B68)."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"ab")
        for reducer in (lambda messages: [], keep_newest(0)):
            with pytest.raises(ValueError, match="left nothing"):
                await compact(chat, reducer)
        assert await texts(chat) == ["a", "b"]
        assert await archive_of(store).info() is None

    in_memory(scene)


def test_a_reducer_that_fails_changes_nothing() -> None:
    """What it raises is raised."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abc")

        async def down(older: list[Message]) -> str:
            raise Stop

        with pytest.raises(Stop):
            await compact(chat, summarize(down, 1))
        for nothing in (None, "text", [None], ["text"]):
            with pytest.raises(TypeError):
                await compact(chat, lambda messages, nothing=nothing: nothing)  # type: ignore[misc, return-value]
        assert await texts(chat) == [*"abc"]
        assert await archive_of(store).info() is None

    in_memory(scene)


def test_a_changed_message_keeps_its_original_in_the_archive() -> None:
    """Changed in a copy or, against the rules, in place; the rest stays where it was."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, "a", "long", "longer", "d")

        def shorten(messages: list[Message]) -> list[Message]:
            messages[2].contents = [Content.from_dict({"type": "text", "text": "l."})]
            copy = Message("user", ["l"], message_id=messages[1].message_id)
            return [messages[0], copy, *messages[2:]]

        done = await compact(chat, shorten)
        assert await texts(chat) == ["a", "l", "l.", "d"]
        assert await texts(done.archive) == ["long", "longer"]

    in_memory(scene)


def test_two_different_messages_under_one_id_are_refused() -> None:
    """Neither could be told from the other; nothing changes. The same message twice is one."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abc")

        def mixed(messages: list[Message]) -> list[Message]:
            return [messages[1], messages[2], Message("user", ["x"], message_id=messages[1].message_id)]

        with pytest.raises(ConflictError, match="one id"):
            await compact(chat, mixed)
        assert await texts(chat) == [*"abc"]
        await compact(chat, lambda messages: [messages[2], messages[1], messages[1]])
        assert await texts(chat) == ["c", "b"]

    in_memory(scene)


def test_an_archived_id_with_other_contents_gets_a_derived_one(play: Callable[..., None]) -> None:
    """Both originals are kept, whatever comes back under the id, and however often it is tried."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        for text in ("one", "two", "three", "two"):
            await chat.append([Message("user", [text], message_id="same"), *said("last")])
            await compact(chat, keep_newest(1))
        kept = await archive_of(store).messages()
        changing = [message for message in kept if message.text != "last"]
        assert [message.text for message in changing] == ["one", "two", "three"]
        assert len({message.message_id for message in changing}) == 3
        assert changing[0].message_id == "same"
        assert await archive_of(store).update(changing[1]) is True

    play(scene)


def test_the_archive_expires_by_a_ttl_of_its_own(play: Callable[..., None]) -> None:
    """A store's ttl holds for the archive from what is appended to it; the history's own is not prolonged."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcd")
        before = await chat.info()
        await asyncio.sleep(0.01)
        await compact(chat, keep_newest(2))
        history, archive = await chat.info(), await archive_of(store).info()
        assert before is not None
        assert history is not None
        assert archive is not None
        assert history.expires_at == before.expires_at
        assert archive.expires_at is not None
        assert abs(archive.expires_at - archive.updated_at - timedelta(hours=1)) < timedelta(seconds=10)

    play(scene, ttl=3600)


def test_a_corrupt_record_stops_a_compaction(tmp_path: Path) -> None:
    """Also where the store skips such records: what nobody has read is not thrown away."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abc")
        record = await corrupted(store, chat)
        with pytest.raises(CorruptRecordError, match=f"record {record.seq}"):
            await compact(chat, keep_newest(1))
        assert await texts(chat) == ["a", "c"]
        assert await archive_of(store).info() is None

    in_memory(scene, on_corrupt="skip")


async def corrupted(store: HistoryStore, chat: SessionHistory) -> StoredRecord:
    """The session's second record, with a payload that nobody can read."""
    backend: Any = store._gate.backend
    record = (await backend.read(chat.key))[1]
    broken = type(record)(record.seq, record.created_at, record.id_hash, record.digest, record.format, b"?")
    read = backend.read

    async def reading(*args: Any, **kwargs: Any) -> list[StoredRecord]:
        return [broken if found.seq == broken.seq else found for found in await read(*args, **kwargs)]

    backend.read = reading
    return broken


class Foreign(MessageCodec):
    """Another framework's form, which the core cannot read."""

    format = "foreign/1"


def test_records_of_another_form_are_moved_as_they_are(play: Callable[..., None]) -> None:
    """Kept or archived, they are what they were to the framework that wrote them."""

    async def scene(store: HistoryStore) -> None:
        foreign = store.session("s", codec=Foreign())
        given = said("theirs", "theirs too")
        await foreign.append(given)
        chat = await begun(store, "ours", "ours too")
        await compact(chat, lambda messages: messages[1:3])
        assert (await foreign.messages())[0] == given[1]
        archive = store.session("s", source_id="history~archive", codec=Foreign())
        assert [message.text for message in await archive.messages()] == ["theirs", "ours too"]
        assert (await archive.messages())[0] == given[0]

    play(scene)


class Lines:
    """Plain strings, which have no place for an id, and are equal when they repeat."""

    format = "lines/1"

    def encode(self, obj: str, /) -> tuple[None, Any, bytes]:
        return None, ["user", obj], obj.encode()

    def decode(self, payload: bytes, /) -> str:
        return sys.intern(payload.decode())

    def assign_id(self, obj: str, message_id: str, /) -> bool:
        return False


def test_honest_repeats_of_objects_without_ids_are_all_kept() -> None:
    """Equal strings are one object; each still stands for a record of its own, kept or archived once."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Lines())
        await chat.append(["yes", "done"] * 3)
        for _ in range(2):
            done = await compact(chat, lambda lines: lines[:3])
        assert await chat.messages() == ["yes", "done", "yes"]
        assert await done.archive.messages() == ["done", "yes", "done"]

    in_memory(scene)


def test_endless_contention_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded by time, and the history is whole."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abc")
        backend: Any = store._gate.backend
        replace = backend.replace

        async def raced(*args: Any) -> Any:
            await chat.append(said("more"))
            return await replace(*args)

        monkeypatch.setattr(backend, "replace", raced)
        monkeypatch.setattr("agentstore.compaction.CONTENTION_SECONDS", 0.2)
        with pytest.raises(UnavailableError, match="other writers"):
            await compact(chat, keep_newest(1))
        assert (await texts(chat))[:4] == [*"abc", "more"]

    in_memory(scene)


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("shorten", ["truncate", "newest", "system", "summary"])
def test_a_full_replay_after_a_compaction_adds_only_its_new_part(shorten: str, with_ids: bool) -> None:
    """Whatever was cut off, and whether the transcript has its ids or was rebuilt without them."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        opening = [Message("system", ["be kind"]), Message("user", ["a"])]
        agent = Agent(ScriptedChatClient(["one", "two", "three"]), context_providers=[StoreHistoryProvider(store)])
        await agent.run(opening, agent.create_session("s"))
        await agent.run("b", agent.create_session("s"))
        transcript = await chat.messages()
        shorter: dict[str, Callable[[], Awaitable[Any]]] = {
            "truncate": lambda: chat.truncate(before=4),
            "newest": lambda: compact(chat, keep_newest(2, keep_system=False)),
            "system": lambda: compact(chat, keep_newest(3)),
            "summary": lambda: compact(chat, summarize(summary, 3)),
        }
        await shorter[shorten]()
        kept = await texts(chat)
        assert kept[-2:] == ["b", "two"]
        again = transcript if with_ids else [Message(message.role, [message.text]) for message in transcript]
        await agent.run([*again, Message("user", ["c"])], agent.create_session("s"))
        assert await texts(chat) == [*kept, "c", "three"]

    in_memory(scene)


def test_an_agent_goes_on_behind_a_compaction() -> None:
    """The model sees the summary, what was kept, and its input; call and result stay together (B67)."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        call = Message("assistant", [Content("function_call", call_id="1", name="noon", arguments="{}")])
        result = Message("tool", [Content("function_result", call_id="1", result="12:00")])
        await chat.append([*said("a", "b"), call, result, Message("assistant", ["noon"])])
        await compact(chat, summarize(summary, 3))
        client = ScriptedChatClient(["fine"])
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        await agent.run("and?", agent.create_session("s"))
        assert [message.role for message in client.calls[0]] == ["system", "assistant", "tool", "assistant", "user"]
        assert client.calls[0][0].text == "a+b"

    in_memory(scene)


def test_an_archive_can_be_compacted_like_any_history() -> None:
    """It is a session as others are, with an archive of its own."""

    async def scene(store: HistoryStore) -> None:
        chat = await begun(store, *"abcd")
        await compact(chat, keep_newest(1))
        done = await compact(archive_of(store), keep_newest(1))
        assert done.archive.key.source_id == "history~archive~archive"
        assert [await texts(one) for one in (chat, archive_of(store), done.archive)] == [["d"], ["c"], ["a", "b"]]
        appended = await chat.append(said("e"))
        assert isinstance(appended, Appended)

    in_memory(scene)


def test_a_large_archive_is_written_in_parts() -> None:
    """What came in many appends goes in many, each within the limits of one; all of it, in order."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        await chat.append(said(*[f"{number}" for number in range(450)]))
        for number in range(3):
            await chat.append(said(f"{number}" * 900_000))
        backend: Any = store._gate.backend
        append, sizes = backend.append, list[tuple[int, int]]()

        async def watched(key: Any, given: Any) -> Any:
            sizes.append((len(given.records), sum(len(record.payload) for record in given.records)))
            return await append(key, given)

        before = await chat.messages()
        with patch.object(backend, "append", watched):
            done = await compact(chat, summarize(lambda older: "short", max_tokens=100))
        assert [count for count, _ in sizes] == [200, 200, 51, 1]
        assert all(size <= 1_000_000 for _, size in sizes)
        assert await done.archive.messages() == before[:-1]
        assert done.after == 2

    in_memory(scene, max_message_bytes=1_000_000, max_append_bytes=1_000_000)


def test_a_history_that_is_too_large_to_be_written_is_refused_before_anything_is() -> None:
    """The result of the reducer has the limits of one write."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        for number in range(3):
            await chat.append(said(f"{number}" * 400_000))
        with pytest.raises(PayloadTooLargeError):
            await compact(chat, lambda messages: messages[::-1])
        assert len(await chat.messages()) == 3
        assert await archive_of(store).info() is None

    in_memory(scene, max_message_bytes=1_000_000, max_append_bytes=1_000_000)


class Boxed(Lines):
    """An adapter's codec that takes its objects in a box and gives them back without."""

    format = "boxed/1"

    def encode(self, obj: Any, /) -> tuple[None, Any, bytes]:
        return super().encode(obj.text)


def test_what_is_given_back_needs_no_encoding() -> None:
    """A codec whose two directions do not meet still has its histories compacted."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Boxed())
        await chat.append(said("a", "b", "c"))
        done = await compact(chat, lambda lines: [lines[2], lines[0]])
        assert (await chat.messages(), await done.archive.messages()) == (["c", "a"], ["b"])

    in_memory(scene)
