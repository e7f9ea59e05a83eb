"""Blobs of Azure Blob sessions that somebody else wrote to: torn, foreign and broken blocks hide nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from uuid import uuid4

import pytest
from azblob_scene import backend, blobs, cost, new_container, opened, proxied_chat, run, turn
from azure.storage.blob import BlobClient, ContainerClient

from agentstore import AgentStoreError, CorruptRecordError, HistoryStore, SessionHistory
from agentstore.backend import UNREADABLE
from agentstore.testing.scenes import LONG_AGO, heard, said


@pytest.fixture
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


def log_of(container: ContainerClient) -> BlobClient:
    """The newest log of the only session."""
    logs = [name for name in blobs(container) if not name.endswith(".ids")]
    return container.get_blob_client(
        max(logs, key=lambda name: container.get_blob_client(name).get_blob_properties().last_modified)
    )


def rewritten(log: BlobClient, change: Callable[[bytes], bytes]) -> None:
    """Somebody replaced the blob by one with other bytes."""
    content = change(log.download_blob().readall())
    metadata = log.get_blob_properties().metadata
    log.delete_blob()
    log.create_append_blob(metadata=metadata)
    log.append_block(content)


FOREIGN = {
    "text": b"2026-11-30 somebody else's log line\n" * 3,
    "random": os.urandom(5_000),
    "nothing but zeros": bytes(70_000),
    "a single byte": b"x",
}


@pytest.mark.parametrize("block", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_block_at_the_end_is_named_and_hides_nothing(container: ContainerClient, block: bytes) -> None:
    """Strict readers raise `CorruptRecordError`, which names the blob; the others get every record."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            chat = store.session("s")
            await chat.append(turn(0))
            log = log_of(container)
            log.append_block(block)
        await _hides_nothing(container, log, [f"0.{part}" for part in range(4)])

    run(main())


@pytest.mark.parametrize("block", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_block_in_the_middle_is_named_and_hides_nothing(container: ContainerClient, block: bytes) -> None:
    """What came before it and after it is there; whoever was at work goes on."""

    async def main() -> None:
        async with opened(container.container_name, on_corrupt="skip") as store:
            chat = store.session("s")
            await chat.append(turn(0))
            log = log_of(container)
            log.append_block(block)
            await chat.append(turn(1))
            await chat.append(turn(2))
            expected = [f"{number}.{part}" for number in range(3) for part in range(4)]
            assert await heard(chat) == expected
        async with opened(container.container_name, on_corrupt="skip") as store:
            chat = store.session("s")
            assert await heard(chat, limit=6) == expected[-6:]
            assert await heard(chat) == expected
            await chat.append(said("more"))
            assert await heard(chat) == [*expected, "more"]

    run(main())


async def _hides_nothing(container: ContainerClient, log: BlobClient, expected: list[str]) -> None:
    name = log.blob_name.rpartition("/")[2]
    async with opened(container.container_name) as strict:
        with pytest.raises(CorruptRecordError, match=name):
            await heard(strict.session("s"))
    async with opened(container.container_name, on_corrupt="skip") as lenient:
        assert await heard(lenient.session("s")) == expected


def test_a_torn_block_at_the_end_is_named_and_hides_nothing(container: ContainerClient) -> None:
    """Half of a turn is no turn: what was acknowledged before it is there (B124)."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            chat = store.session("s")
            await chat.append(turn(0))
            await chat.append(turn(1))
            log = log_of(container)
            rewritten(log, lambda content: content[:-40])
        await _hides_nothing(container, log, [f"0.{part}" for part in range(4)])

    run(main())


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_broken_record_is_named_and_hides_nothing(container: ContainerClient, place: str) -> None:
    """One byte of one message flipped: reads raise, naming the session; the others come back (B123)."""
    number = {"first": 0, "middle": 3, "last": 6}[place]
    text = f"text of {number}".encode()

    async def main() -> None:
        async with opened(container.container_name) as store:
            for n in range(7):
                await store.session("s").append(said(f"text of {n}"))
            log = log_of(container)
            rewritten(log, lambda content: content.replace(text, b"TEXT" + text[4:]))
        rest = [f"text of {n}" for n in range(7) if n != number]
        async with opened(container.container_name) as strict:
            chat = strict.session("s")
            with pytest.raises(CorruptRecordError):
                await heard(chat)
            if place == "last":
                with pytest.raises(CorruptRecordError):
                    await chat.pop()
            else:
                assert await heard(chat, limit=1) == ["text of 6"]
        async with opened(container.container_name, on_corrupt="skip") as lenient:
            chat = lenient.session("s")
            assert await heard(chat) == rest
            assert await heard(chat, limit=3) == rest[-3:]
            assert [stored.message.text async for stored in chat.iterate(page_size=2)] == rest
            await chat.append(said("more"))
            assert await heard(chat, limit=2) == [rest[-1], "more"]

    run(main())


def test_what_cannot_be_read_says_so_in_its_format(container: ContainerClient) -> None:
    """Below every codec: its payload is the reason as text, with the blob's name and the place in it."""

    async def main() -> None:
        ours = backend(container.container_name)
        async with HistoryStore(ours) as store:
            chat = store.session("s")
            await chat.append(said("sound", "broken"))
            log = log_of(container)
            rewritten(log, lambda content: content.replace(b"broken", b"BROKEN"))
            found = await ours.read(chat.key)
        assert [record.seq for record in found] == [1, 2]
        assert found[1].format == UNREADABLE
        assert log.blob_name in found[1].payload.decode()
        assert found[0].format != UNREADABLE

    run(main())


def test_a_session_that_cannot_be_read_hides_no_other(
    container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Listings leave it out, with a warning; `purge` does the rest of its work and then names it; it can be deleted."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            await store.session("broken").append(turn(0))
            log = log_of(container)
            rewritten(log, lambda content: b"?" * len(content))
            for name in ("a", "z", "kept"):
                await store.session(name).append(turn(0))
            for name in ("a", "z"):
                await store.session(name).expire(LONG_AGO)
        async with opened(container.container_name) as store:
            assert [info.key.session_id for info in (await store.sessions()).items] == ["kept"]
            assert log.blob_name in caplog.text
            with pytest.raises(CorruptRecordError, match=log.blob_name):
                await store.purge_expired()
            assert len(blobs(container)) == 2
            await store.session("broken").delete()
            await store.purge_expired()
            assert [info.key.session_id for info in (await store.sessions()).items] == ["kept"]
            assert len(blobs(container)) == 1

    run(main())


def test_a_log_with_a_torn_snapshot_is_not_copied_again_and_again(container: ContainerClient) -> None:
    """It stays as it is, and a write costs what it costs elsewhere."""

    async def main() -> None:
        async with proxied_chat(container.container_name, rewrite_bytes=0) as (proxy, chat):
            await chat.save_snapshot({"a": "to be torn"})
            rewritten(log_of(container), lambda content: content.replace(b"to be torn", b"TO BE TORN"))
            await chat.append(said("x" * 5_000))
            for _ in range(3):
                await chat.pop()
                await chat.append(said("x" * 5_000))
            assert len(await cost(proxy, lambda: chat.append(said("more")))) == 1
            with pytest.raises(CorruptRecordError):
                await chat.load_snapshot()

    run(main())


def test_a_log_of_which_nothing_is_ours_is_corrupt(container: ContainerClient) -> None:
    """All of it overwritten: an error that names it, on reads and on writes; nothing of it is overwritten by us."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            await store.session("s").append(turn(0))
        log = log_of(container)
        rewritten(log, lambda content: b"?" * len(content))
        for on_corrupt in ("raise", "skip"):
            async with opened(container.container_name, on_corrupt=on_corrupt) as store:
                for call in (lambda: heard(store.session("s")), lambda: store.session("s").append(said("a"))):
                    with pytest.raises(CorruptRecordError, match=log.blob_name.rpartition("/")[2]):
                        await call()
        assert log.download_blob().readall().count(b"?") == log.get_blob_properties().size

    run(main())


def test_a_blob_of_another_kind_in_the_place_of_a_session_is_an_error(container: ContainerClient) -> None:
    """What somebody put there is never taken for no session: nothing is begun over it."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            await store.session("s").append(turn(0))
        log = log_of(container)
        log.delete_blob()
        log.upload_blob(b"theirs")
        async with opened(container.container_name) as store:
            for call in (lambda: heard(store.session("s")), lambda: store.session("s").append(said("a"))):
                with pytest.raises(AgentStoreError):
                    await call()
        assert log.download_blob().readall() == b"theirs"

    run(main())


def test_blobs_of_others_in_the_container_are_left_alone(container: ContainerClient) -> None:
    """Under the prefix and beside it: they are not listed, not purged, and disturb nobody."""
    theirs = ["readme.txt", "v1/stray", f"v1/{uuid4().hex}/head2", "v1/a/b/c/d", "v2/x/y/head"]
    for name in theirs:
        container.upload_blob(name, b"theirs")

    async def main() -> None:
        async with opened(container.container_name) as store:
            chat: SessionHistory = store.session("s")
            await chat.append(turn(0))
            assert [info.key.session_id for info in (await store.sessions()).items] == ["s"]
            await store.purge_expired()
            await store.delete_namespace("default")
        assert set(theirs) <= {blob.name for blob in container.list_blobs()}

    run(main())
