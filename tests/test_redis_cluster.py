"""A cluster of three masters with replicas: slots that move and masters that die in the middle of appends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator

import pytest
from redis_failover import losses, written_until_it_heals
from redis_groups import LocalCluster, cluster_url, local_cluster
from redis_server import LocalServer, valkey

from agentstore import HistoryStore, SessionHistory, open_store
from agentstore.testing.scenes import heard, said

CONFUSABLE = ["{", "}", "{}", "}{", "{a}b", "a{b}", "{}{a}", "{{a}}", "a:{b}:c", "{\x00}", "plain"]


@pytest.fixture(scope="module")
def cluster() -> Generator[LocalCluster]:
    """One that the tests may break: they stand in the order in which it can bear them."""
    made = LocalCluster(valkey(), node_timeout=1000)
    made.start()
    yield made
    made.remove()


def slot_of(chat: SessionHistory, node: LocalServer) -> int:
    return int(node.command("CLUSTER", "KEYSLOT", f"{{{chat.key.hash.hex()}}}"))


def keys_of(chat: SessionHistory, nodes: list[LocalServer]) -> list[str]:
    return [key for node in nodes for key in node.command("KEYS", f"*{chat.key.hash.hex()}*")]


@pytest.mark.parametrize("session_id", CONFUSABLE)
def test_all_keys_of_a_session_share_a_slot(session_id: str) -> None:
    """Whatever braces are in its ids; and after delete no node holds a key of it (B108)."""
    nodes = local_cluster().masters

    async def main() -> None:
        async with open_store(local_cluster().url, namespace="{n}" + session_id, ttl=1000) as store:
            chat = store.session(session_id, source_id=session_id)
            await chat.append(said("a"), snapshot={"a": 1})
            await chat.annotate({"a": 1})
            keys = keys_of(chat, nodes)
            assert len(keys) >= 3
            assert {nodes[0].command("CLUSTER", "KEYSLOT", key) for key in keys} == {slot_of(chat, nodes[0])}
            assert [info.key for info in (await store.sessions()).items] == [chat.key]
            await chat.delete()
            assert keys_of(chat, nodes) == []

    asyncio.run(main())


def test_sessions_spread_over_the_masters() -> None:
    """No master has all the work, and a listing finds the sessions of all."""

    async def main() -> None:
        async with open_store(cluster_url(), namespace="spread") as store:
            chats = [store.session(f"s{number}") for number in range(60)]
            await asyncio.gather(*[chat.append(said("a")) for chat in chats])
            found = (await store.sessions(limit=100)).items
            assert {info.key.session_id for info in found} == {chat.key.session_id for chat in chats}
            assert await store.delete_namespace("spread") == 60

    asyncio.run(main())


def test_a_slot_migrates_in_the_middle_of_appends(cluster: LocalCluster) -> None:
    """There and back, key by key, while it is written to and read: all is there, once, in order."""

    async def main() -> None:
        async with open_store(cluster.url) as store:
            chat = store.session("moving")
            await chat.append(said("first"), snapshot={"a": 1})
            slot = slot_of(chat, cluster.nodes[0])
            home = cluster.owner(slot)
            away = next(node for node in cluster.masters if node is not home)
            stop = asyncio.Event()
            writer = asyncio.ensure_future(_write_until(chat, stop))
            for source, target in ((home, away), (away, home)):
                await asyncio.sleep(0.1)
                await _migrate(cluster, slot, source, target)
            await asyncio.sleep(0.1)
            stop.set()
            written = await writer
            assert written > 10
            assert await heard(chat) == ["first", *map(str, range(written))]
            assert cluster.owner(slot) is home

    asyncio.run(main())


async def _write_until(chat: SessionHistory, stop: asyncio.Event) -> int:
    written = 0
    while not stop.is_set():
        await chat.append(said(str(written)), expected_last=None)
        assert await heard(chat, limit=1) == [str(written)]
        written += 1
        await asyncio.sleep(0.002)
    return written


async def _migrate(cluster: LocalCluster, slot: int, source: LocalServer, target: LocalServer) -> None:
    """As `redis-cli --cluster reshard` does it, with time for calls between its steps."""
    source_id, target_id = source.command("CLUSTER", "MYID"), target.command("CLUSTER", "MYID")
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 1):
        await asyncio.sleep(0.05)
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    await asyncio.sleep(0.05)
    for node in (target, source):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def test_a_master_is_killed_in_the_middle_of_appends(cluster: LocalCluster) -> None:
    """Clear errors or success, whole turns, none doubled, and lost is at most what the server had not replicated."""

    async def main() -> None:
        async with open_store(cluster.url) as store:
            chats = _on(store, cluster, cluster.masters[0], 3) + _on(store, cluster, cluster.masters[1], 1)
            written = await written_until_it_heals(chats, lambda: cluster.masters[0].stop(signal.SIGKILL))
            for chat, turns in zip(chats, written, strict=True):
                assert losses(turns, await heard(chat)) == []
            assert {chat.key for chat in chats} <= {info.key for info in (await store.sessions(limit=500)).items}

    asyncio.run(main())


def _on(store: HistoryStore, cluster: LocalCluster, node: LocalServer, count: int) -> list[SessionHistory]:
    """New sessions whose slots the node serves."""
    chats = (store.session(f"on-{node.port}-{number}") for number in range(1000))
    return [chat for chat in chats if cluster.owner(slot_of(chat, cluster.nodes[1])) is node][:count]
