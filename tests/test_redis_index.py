"""A session on Redis and its index entry lie in different slots: whatever dies between the two, listings are right."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from uuid import uuid4

import pytest
from redis_server import LocalServer, started, valkey

from agentstore import HistoryStore, open_store
from agentstore.testing.scenes import heard, said

# Begins sessions one after another, and tells of each that was acknowledged, until it is killed.
WRITER = """
import asyncio, sys
from agentstore import Message, open_store

async def main():
    async with open_store(sys.argv[1], namespace=sys.argv[2]) as store:
        for number in range(100_000):
            await store.session(f"{sys.argv[3]}-{number}").append([Message("user", ["hi"])])
            print(f"{sys.argv[3]}-{number}", flush=True)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server() -> Generator[LocalServer]:
    made = started(valkey())
    yield made
    made.remove()


async def listed(store: HistoryStore) -> list[str]:
    found, cursor = [], None
    while True:
        page = await store.sessions(cursor=cursor, limit=200)
        found += [info.key.session_id for info in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


def _entries(server: LocalServer) -> dict[str, list[str]]:
    """The members of each shard of the index."""
    _, keys = server.command("SCAN", "0", "MATCH", "*:index:*", "COUNT", 10_000)
    return {key: server.command("ZRANGE", key, 0, -1) for key in keys}


def test_a_killed_writer_leaves_no_session_that_cannot_be_found(server: LocalServer) -> None:
    """SIGKILL at any moment: every acknowledged session is listed once, and every listed one can be read."""
    namespace = f"killed-{uuid4().hex}"
    acknowledged: list[str] = []
    for number in range(6):
        command = [sys.executable, "-c", WRITER, server.url, namespace, str(number)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline().strip() for _ in range(10 + number)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.communicate()[0].split()

    async def main() -> None:
        async with open_store(server.url, namespace=namespace) as store:
            found = await listed(store)
            assert len(found) == len(set(found))
            assert set(acknowledged) <= set(found)
            for session in found:
                assert await heard(store.session(session)) == ["hi"]

    asyncio.run(main())


def test_an_entry_without_its_session_is_healed(server: LocalServer) -> None:
    """A writer that died after the entry: it is not listed; once it is old, listing removes it; a begin goes on."""
    namespace = f"healed-{uuid4().hex}"

    async def main() -> None:
        async with open_store(server.url, namespace=namespace) as store:
            chat = store.session("s")
            await chat.append(said("a"))
            ((shard, (member,)),) = [(key, members) for key, members in _entries(server).items() if namespace in key]
            for key in server.command("KEYS", f"*{chat.key.hash.hex()}*"):
                server.command("DEL", key)  # as if the session's step had never come
            assert await listed(store) == []
            assert server.command("ZCARD", shard) == 1  # its writer may still be on its way
            score = float(server.command("ZSCORE", shard, member))
            server.command("ZADD", shard, score + 11, member)
            assert await listed(store) == []
            assert server.command("EXISTS", shard) == 0
            await chat.append(said("b"))
            assert await listed(store) == ["s"]
            assert await heard(chat) == ["b"]

    asyncio.run(main())


def test_purge_removes_such_an_entry_at_once(server: LocalServer) -> None:
    """... also a young one; the sessions that live stay."""
    namespace = f"purged-{uuid4().hex}"

    async def main() -> None:
        async with open_store(server.url, namespace=namespace) as store:
            for name in ("gone", "lives"):
                await store.session(name).append(said("a"))
            for key in server.command("KEYS", f"*{store.session('gone').key.hash.hex()}*"):
                server.command("DEL", key)
            await store.purge_expired()
            assert sum(len(members) for key, members in _entries(server).items() if namespace in key) == 1
            assert await listed(store) == ["lives"]

    asyncio.run(main())


def test_an_entry_ahead_of_its_session_is_caught_up_with(server: LocalServer) -> None:
    """A writer that died after moving the entry of a living session: it is listed, once, with the entry's minute."""
    namespace = f"ahead-{uuid4().hex}"

    async def main() -> None:
        async with open_store(server.url, namespace=namespace) as store:
            chat = store.session("s")
            await chat.append(said("a"))
            before = await chat.info()
            ((shard, (member,)),) = [(key, members) for key, members in _entries(server).items() if namespace in key]
            server.command("ZADD", shard, float(server.command("ZSCORE", shard, member)) - 2, member)
            assert await listed(store) == ["s"]
            after = await chat.info()
            assert before
            assert after
            assert 0 < (after.updated_at - before.updated_at).total_seconds() <= 120
            await chat.append(said("b"))
            assert await listed(store) == ["s"]

    asyncio.run(main())


def test_a_deleted_session_leaves_the_entry_of_the_next_one(server: LocalServer) -> None:
    """Deleted and begun again at once, many times by many: it is listed exactly once, with its own messages."""
    namespace = f"again-{uuid4().hex}"

    async def one(number: int) -> None:
        async with open_store(server.url, namespace=namespace) as store:
            chat = store.session("s")
            for _ in range(10):
                await chat.append(said(str(number)))
                await chat.delete()

    async def main() -> None:
        await asyncio.gather(*[one(number) for number in range(4)])
        async with open_store(server.url, namespace=namespace) as store:
            assert await listed(store) == []
            await store.session("s").append(said("last"))
            assert await listed(store) == ["s"]
            assert sum(len(members) for key, members in _entries(server).items() if namespace in key) == 1

    asyncio.run(main())
