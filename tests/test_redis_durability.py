"""What survives a killed Redis, a full memory, a full disk, and a master that is none."""

from __future__ import annotations

import asyncio
import shutil
import signal

import pytest
from redis_scenes import chatting, own_server, run
from redis_server import eventually

from agentstore import SessionHistory, StorageError, UnavailableError, open_store
from agentstore.testing.scenes import heard, said


def test_a_killed_server_loses_nothing_that_was_acknowledged() -> None:
    """Append-only file, always synced: killed and started again, all is there; calls meanwhile fail clearly (B103)."""

    async def main() -> None:
        with own_server(appendfsync="always") as server:
            async with chatting(server.url) as chat:
                await chat.append(said("before"))
                server.stop(signal.SIGKILL)
                for call in (chat.messages, lambda: chat.append(said("lost")), chat.clear):
                    with pytest.raises(UnavailableError):
                        await call()
                server.start()
                await chat.append(said("after"))
                assert await heard(chat) == ["first", "before", "after"]

    run(main())


def test_a_server_killed_in_the_middle_of_appends_doubles_and_loses_nothing() -> None:
    """Writers that try again by key: every turn whole, once, in its writer's order."""

    async def main() -> None:
        with own_server(appendfsync="always") as server:
            async with chatting(server.url) as chat:
                writers = [asyncio.ensure_future(_write_turns(chat, name, 60)) for name in "abc"]
                for _ in range(3):
                    await asyncio.sleep(0.1)
                    server.stop(signal.SIGKILL)
                    await asyncio.sleep(0.05)
                    server.start()
                await asyncio.gather(*writers)
                await _see_every_turn_once(chat, "abc", 60)

    run(main())


async def _write_turns(chat: SessionHistory, name: str, count: int) -> None:
    for number in range(count):
        turn = said(f"{name}{number} question", f"{name}{number} answer")
        for _ in range(200):
            try:
                await chat.append(turn, idempotency_key=f"{name}{number}")
                break
            except UnavailableError:
                await asyncio.sleep(0.05)
        else:
            pytest.fail("never written")


async def _see_every_turn_once(chat: SessionHistory, names: str, count: int) -> None:
    texts = [text.split()[0] for text in (await heard(chat))[1:]]
    assert texts[::2] == texts[1::2]
    for name in names:
        assert [text for text in texts[::2] if text[0] == name] == [f"{name}{number}" for number in range(count)]


def test_a_full_memory_is_a_clear_error_and_nothing_is_half_written() -> None:
    """`noeviction`: every acknowledged turn is there, whole, and the refused ones are not; then it goes on."""

    async def main() -> None:
        with own_server(maxmemory="6mb", maxmemory_policy="noeviction") as server:
            async with chatting(server.url) as chat:
                written, refusal = await _fill_up(chat)
                assert "memory" in str(refusal)
                assert not isinstance(refusal, UnavailableError) or not refusal.maybe_done
                for refused in (chat.annotate({"a": "b" * 1000}), chat.save_snapshot({"a": "b" * 1000})):
                    with pytest.raises(StorageError, match="memory"):
                        await refused
                assert written > 10
                assert len(await chat.messages()) == 1 + 2 * written
                info = await chat.info()
                assert info
                assert info.count == 1 + 2 * written
                assert info.metadata == {}
                with pytest.raises(StorageError, match="memory"):
                    await open_store(server.url).session("another").append(said("a"))
                server.command("CONFIG", "SET", "maxmemory", "0")
                await chat.append(said("after"))
                assert (await heard(chat, limit=1)) == ["after"]

    run(main())


async def _fill_up(chat: SessionHistory) -> tuple[int, StorageError]:
    """How many turns it took, and with what error the next one was refused."""
    written = 0
    while True:
        try:
            await chat.append(said(f"{written}" + "x" * 20_000, f"{written}" + "y" * 20_000))
        except StorageError as error:
            return written, error
        written += 1


def test_a_server_that_cannot_save_is_a_clear_error() -> None:
    """MISCONF: the disk is full or gone, and the server refuses writes; reads go on (B103)."""

    async def main() -> None:
        with own_server(appendonly="no", save="3600 1") as server:
            async with chatting(server.url) as chat:
                shutil.rmtree(server.folder)
                server.command("BGSAVE")
                eventually(lambda: server.info("persistence")["rdb_last_bgsave_status"] != "ok", "it could save")
                with pytest.raises(StorageError, match="MISCONF") as caught:
                    await chat.append(said("refused"))
                assert not isinstance(caught.value, UnavailableError) or not caught.value.maybe_done
                assert await heard(chat) == ["first"]
                server.folder.mkdir()
                server.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
                await chat.append(said("after"))
                assert await heard(chat) == ["first", "after"]

    run(main())


def test_a_replica_is_a_clear_error() -> None:
    """A URL that names a replica: reads work, a write is refused clearly and changes nothing."""

    async def main() -> None:
        with own_server() as server, own_server(replicaof=f"127.0.0.1 {server.port}") as replica:
            async with (
                chatting(server.url) as chat,
                open_store(replica.url, namespace=chat.key.namespace, timeout=1) as store,
            ):
                there = store.session(chat.key.session_id)
                eventually(lambda: replica.command("DBSIZE") == server.command("DBSIZE"), "no replica")
                assert await heard(there) == ["first"]
                with pytest.raises(UnavailableError, match=r"(?i)read.?only|replica") as caught:
                    await there.append(said("a"))
                assert not caught.value.maybe_done
                assert await heard(chat) == ["first"]

    run(main())
