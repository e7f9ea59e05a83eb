"""A redis-py client that is handed in: used, left open, whatever it decodes, and bound to its loop."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis_groups import cluster_url
from redis_server import server_url

from agentstore import ConfigurationError, HistoryStore
from agentstore.testing.cancellation import CancellationSentences
from agentstore.testing.concurrency import ConcurrencySentences
from agentstore.testing.log import LogSentences
from agentstore.testing.rewriting import ForkSentences, PopSentences, ReplaceSentences, UpdateSentences
from agentstore.testing.scenes import heard, said
from agentstore_redis import RedisBackend

KINDS = (
    "client",
    "decoding client",
    "RESP3 client",
    "decoding RESP3 client",
    "small pool",
    "cluster",
    "decoding cluster",
)

Client = Redis | RedisCluster


def made(kind: str) -> Client:
    decodes = kind.startswith("decoding")
    if kind.endswith("cluster"):
        places = [ClusterNode(*place.rsplit(":", 1)) for place in urlsplit(cluster_url()).netloc.split(",")]
        return RedisCluster(startup_nodes=places, decode_responses=decodes)
    if kind == "small pool":
        return Redis.from_pool(BlockingConnectionPool.from_url(server_url(), max_connections=2))
    return Redis.from_url(server_url(), decode_responses=decodes, protocol=3 if "RESP3" in kind else 2)


class _Lent(RedisBackend):
    """Closes what it was lent, when the scene is over."""

    lent: Client

    async def aclose(self) -> None:
        await super().aclose()
        await self.lent.aclose()


class _Borrowed(
    LogSentences,
    PopSentences,
    ReplaceSentences,
    UpdateSentences,
    ForkSentences,
    ConcurrencySentences,
    CancellationSentences,
):
    kind = "client"

    async def open_backend(self) -> RedisBackend:
        client = made(self.kind)
        backend = _Lent(client=client)
        backend.lent = client
        return backend


class TestOnADecodingClient(_Borrowed):
    """The sentences about writes hold on a client that decodes answers."""

    kind = "decoding client"


class TestOnADecodingCluster(_Borrowed):
    """... and on one of a cluster."""

    kind = "decoding cluster"


async def _works(client: Client) -> None:
    """The owner can still use it, as it was."""
    key = f"owner:{uuid4().hex}"
    decodes = bool(await client.set(key, "x")) and await client.get(key)
    assert decodes in ("x", b"x")
    await client.delete(key)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_in_is_used_and_left_open(kind: str) -> None:
    """Bring your own: it is used, and left open as it was."""

    async def main() -> None:
        client = made(kind)
        namespace = f"borrowed-{uuid4().hex}"
        await client.ping()
        for number in range(2):
            async with HistoryStore(RedisBackend(client=client), namespace=namespace) as store:
                chat = store.session(kind)
                await asyncio.gather(*[chat.append(said(str(number))) for _ in range(8)])
                assert len(await chat.messages()) == 8 * (number + 1)
                assert len((await store.sessions()).items) == 1
                assert await store.check()
            await _works(client)
        async with HistoryStore(RedisBackend(client=client)) as store:
            await store.delete_namespace(namespace)
        await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["client", "cluster"])
def test_it_belongs_to_the_loop_of_its_first_use(kind: str) -> None:
    """Another loop gets `ConfigurationError`; the first goes on."""
    client = made(kind)
    loop = asyncio.new_event_loop()
    store = HistoryStore(RedisBackend(client=client))
    chat = store.session(uuid4().hex)
    loop.run_until_complete(chat.append(said("a")))
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(_read(store))
    assert loop.run_until_complete(heard(chat)) == ["a"]
    loop.run_until_complete(chat.delete())
    loop.run_until_complete(store.aclose())
    loop.run_until_complete(client.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _read(store: HistoryStore) -> None:
    await store.session("s").messages()


@pytest.mark.parametrize("options", [{}, {"url": "redis://localhost", "client": object()}])
def test_one_way_to_reach_the_server_is_given(options: Any) -> None:
    """A URL or a client."""
    with pytest.raises(ConfigurationError):
        RedisBackend(**options)


def test_a_client_without_asyncio_is_refused() -> None:
    """A synchronous client would block the loop: it is refused at once."""
    import redis

    with redis.Redis() as client, pytest.raises(ConfigurationError, match="asyncio"):
        RedisBackend(client=client)
