"""How the Redis backend reaches its servers: URLs and options, names of keys, event loops, shared connections."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from redis_groups import cluster_url
from redis_server import LocalServer, local_server, started, unlink, valkey

from agentstore import ConfigurationError, HistoryStore, UnavailableError, open_store
from agentstore.backend import StoredRecord
from agentstore.keys import SessionKey
from agentstore.testing.scenes import heard, said
from agentstore.urls import parse_url
from agentstore_redis import RedisBackend
from agentstore_redis_names import Names, behind, member, parse_member
from agentstore_redis_options import ServerOptions, addresses, connect_arguments

SECRET = "s3cr3t"

ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.sampled_from(["{", "}", "{}", "a{b}c", "\0"])


def fresh_prefix() -> str:
    return f"client-{uuid4().hex}"


def connections(server: LocalServer, name: str) -> int:
    """How many connections with that name the server has."""
    return sum(f"name={name} " in line for line in server.command("CLIENT", "LIST").splitlines())


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://", [("localhost", 6379)]),
        ("redis://h", [("h", 6379)]),
        ("rediss://h:7", [("h", 7)]),
        ("redis://[::1]:7", [("::1", 7)]),
        ("redis+cluster://a:1,b,[::1]", [("a", 1), ("b", 6379), ("::1", 6379)]),
        ("redis+sentinel://a,b:5/chat", [("a", 26379), ("b", 5)]),
    ],
)
def test_a_url_names_its_hosts(url: str, found: list[tuple[str, int]]) -> None:
    """Each with its port, or the port that is usual."""
    assert addresses(parse_url(url)) == found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", (None, None, 0)),
        ("redis://h/3", (None, None, 3)),
        ("redis://app:pw@h/3", ("app", "pw", 3)),
        ("redis://:pw@h?db=2", (None, "pw", 2)),
        ("redis://h?username=app&password=pw", ("app", "pw", 0)),
        ("redis+sentinel://h/chat?db=2", (None, None, 2)),
        ("redis+cluster://h/0", (None, None, 0)),
    ],
)
def test_a_url_names_user_and_database(url: str, expected: tuple[Any, ...]) -> None:
    """In its usual places, or as options."""
    parsed = parse_url(url)
    options = ServerOptions(
        **{**parsed.options, "db": int(parsed.options["db"])} if "db" in parsed.options else parsed.options
    )
    arguments = connect_arguments(parsed, options)
    assert (arguments["username"], arguments["password"], arguments["db"]) == expected


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@h:0",
        f"redis://:{SECRET}@h:port",
        f"redis://:{SECRET}@h,",
        f"redis://:{SECRET}@h/name",
        f"redis://:{SECRET}@h/1?db=1",
        f"redis://:{SECRET}@h?password=x",
        f"redis://app:{SECRET}@h?username=x",
        f"redis://:{SECRET}@h1,h2",
        f"redis://:{SECRET}@h?pool_size=0",
        f"redis://:{SECRET}@h?timeout=0",
        f"redis://:{SECRET}@h?prefix=",
        f"redis://:{SECRET}@h?prefix=a%7Bb%7D",
        f"redis://:{SECRET}@h?prefix=a*",
        f"redis://:{SECRET}@h?ssl_ca_certs=ca.pem",
        f"redis://:{SECRET}@h?surprise=1",
        f"redis+cluster://:{SECRET}@h/1",
        f"redis+sentinel://:{SECRET}@h",
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str) -> None:
    """When the store is made, without repeating what may be secret."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    shown = [line for line in traceback.format_exception(caught.value) if "open_store(" not in line]
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel"])
def test_a_store_never_shows_a_secret(scheme: str) -> None:
    """Neither user nor password nor option."""
    store = open_store(f"{scheme}://{SECRET}:{SECRET}@h/{'chat' if scheme == 'redis+sentinel' else 0}")
    assert SECRET not in repr(store)
    assert "h" in repr(store)


@given(ids, ids, ids)
def test_all_keys_of_a_session_share_a_slot(namespace: str, source: str, session: str) -> None:
    """Also for ids with `{`, `}` or `{}` in them (B65)."""
    names, key = Names("agentstore"), SessionKey(namespace, source, session)
    keys = [*names.session(key), names.burnt(key, b"i" * 16), *names.staged(key, b"i" * 16)]
    assert len({key_slot(name) for name in keys}) == 1
    assert len(set(keys)) == len(keys)


@given(ids, ids, ids)
def test_an_index_entry_names_its_session(namespace: str, source: str, session: str) -> None:
    """Exactly, NUL included, and so does the index's name its namespace."""
    names, key = Names("agentstore"), SessionKey(namespace, source, session)
    assert parse_member(member(key, b"\x7f" * 16)) == (source, session, b"\x7f" * 16)
    assert {names.namespace(shard) for shard in names.shards(namespace)} == {namespace}
    assert names.index(key) in names.shards(namespace)


@given(ids, ids, ids, ids, st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_index_entries_stand_in_the_order_of_sessions(
    source: str, session: str, other_source: str, other_session: str, one: bytes, two: bytes
) -> None:
    """By source, then session, whatever the incarnations are."""
    incarnations = [bytes([random[0] & 0x7F]) + random[1:] for random in (one, two)]
    first, second = SessionKey("n", source, session), SessionKey("n", other_source, other_session)
    entries = member(first, incarnations[0]), member(second, incarnations[1])
    if first != second:
        assert (entries[0] < entries[1]) == (first < second)
    assert (behind(source, session) < entries[1]) == (first < second)


def test_each_event_loop_closes_its_connections() -> None:
    """Successive `asyncio.run()` calls leave nothing open at the server, without `aclose` (B119)."""
    server, name = local_server(), fresh_prefix()
    store = open_store(server.url, prefix=name, client_name=name)
    for text in ("a", "b"):
        asyncio.run(store.session("s").append(said(text)))
        assert connections(server, name) == 0
    assert asyncio.run(heard(store.session("s"))) == ["a", "b"]
    unlink(server.url, name)


def test_calls_at_once_share_two_connections_and_large_ones_take_another() -> None:
    """Small calls never wait for the answer to a large one, and connections are few."""
    server, name = local_server(), fresh_prefix()

    async def main() -> None:
        async with open_store(server.url, prefix=name, client_name=name, pool_size=3) as store:
            chats = [store.session(str(number)) for number in range(50)]
            await asyncio.gather(*[chat.append(said("x")) for chat in chats])
            assert connections(server, name) == 2
            await asyncio.gather(*[chat.messages() for chat in chats])
            assert connections(server, name) == 3

    asyncio.run(main())
    unlink(server.url, name)


def test_a_cancelled_read_costs_no_connection() -> None:
    """Its answer is read and dropped; the next call has the same connection and its own answer (B105)."""
    server, name = local_server(), fresh_prefix()

    async def main() -> None:
        async with open_store(server.url, prefix=name, client_name=name) as store:
            await store.session("s").append(said("a"))
            before = server.info("stats")["total_connections_received"]
            for steps in range(12):
                reading = asyncio.ensure_future(store.session("s").messages(limit=5))
                for _ in range(steps):
                    await asyncio.sleep(0)
                reading.cancel()
                assert await heard(store.session("s"), limit=5) == ["a"]
            opened = int(server.info("stats")["total_connections_received"]) - int(before)
            assert opened <= 1  # the one that asks here

    asyncio.run(main())
    unlink(server.url, name)


def test_what_is_under_way_when_the_loop_ends_is_brought_home() -> None:
    """A write that `asyncio.run` tears down is settled, and nothing stays open (B45)."""
    server, name = local_server(), fresh_prefix()
    store = open_store(server.url, prefix=name, client_name=name)
    tasks: list[asyncio.Task[Any]] = []

    async def main() -> None:
        await store.session("s").append(said("first"))
        tasks.extend(asyncio.create_task(store.session("s").append(said(str(number)))) for number in range(8))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert connections(server, name) == 0
    assert sorted(asyncio.run(heard(store.session("s")))) == [*map(str, range(8)), "first"]
    unlink(server.url, name)


def test_closing_from_another_loop_closes_all() -> None:
    """`aclose()` closes the connections of loops that run in other threads."""
    server, name = local_server(), fresh_prefix()
    store = open_store(server.url, prefix=name, client_name=name)

    async def main() -> None:
        await store.session("s").append(said("a"))
        await asyncio.to_thread(lambda: asyncio.run(store.aclose()))
        for _ in range(100):
            if not connections(server, name):
                return
            await asyncio.sleep(0.02)
        pytest.fail("a connection stayed open")

    asyncio.run(main())
    unlink(server.url, name)


def test_the_wrong_kind_of_server_is_a_clear_error() -> None:
    """A URL of a cluster for a single server, and the other way round."""
    for url, words in (
        (local_server().url.replace("redis:", "redis+cluster:"), "use redis://"),
        (_node_url(), "cluster://"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            asyncio.run(_written(url))


def _node_url() -> str:
    return f"redis://{parse_url(cluster_url()).host.partition(',')[0]}"


def test_a_database_that_the_server_has_not_is_a_clear_error() -> None:
    """Its number is in the URL: that is a setting, not a failure."""
    with pytest.raises(ConfigurationError, match="db="):
        asyncio.run(_written(local_server().url.replace("/0", "/9999")))


async def _written(url: str) -> None:
    async with open_store(url, prefix=fresh_prefix()) as store:
        for number in range(10):  # not all are on the one node
            await store.session(str(number)).append(said("a"))


WRITES: dict[str, Callable[[HistoryStore], Awaitable[Any]]] = {
    "pop": lambda store: store.session("s").pop(),
    "clear": lambda store: store.session("s").clear(),
    "annotate": lambda store: store.session("s").annotate({"a": 1}),
}


@pytest.mark.parametrize("work", WRITES)
def test_a_server_that_stops_in_the_middle_is_given_up_in_time(work: str) -> None:
    """The call that got no answer says so; the next ones work when the server does."""
    server = started(valkey())

    async def main() -> None:
        async with open_store(server.url, timeout=0.3, connect_timeout=0.3) as store:
            await store.session("s").append(said("a", "b"))
            server.pause()
            try:
                with pytest.raises(UnavailableError):
                    await asyncio.wait_for(WRITES[work](store), 5)
            finally:
                server.resume()
            await store.session("other").append(said("c"))
            assert await heard(store.session("other")) == ["c"]

    asyncio.run(main())
    server.remove()


def test_what_redis_did_not_free_yet_is_gone_all_the_same() -> None:
    """Where the server may not expire keys, a session that expired begins anew: no old id, no old condition (B94)."""
    server, name = local_server(), fresh_prefix()
    server.command("ACL", "SETUSER", name, "on", f">{name}", f"~{name}:*", "+@all", "-pexpireat", "-pexpire")

    async def main() -> None:
        async with open_store(server.url.replace("//", f"//{name}:{name}@"), prefix=name, ttl=0.05) as store:
            chat = store.session("s")
            await chat.append(said("a", "b"), idempotency_key="k")
            await asyncio.sleep(0.1)
            assert await heard(chat) == []
            assert await heard(chat, limit=5) == []
            again = await chat.append(said("a", "b"), idempotency_key="k", expected_last=0)
            assert (again.seqs, again.written) == ([1, 2], 2)

    asyncio.run(main())
    server.command("ACL", "DELUSER", name)
    unlink(server.url, name)


def test_a_restore_that_is_purged_fails_and_leaves_nothing() -> None:
    """The waist: a purge of one namespace ends its restores under way; one of all namespaces does not."""
    server, name = local_server(), fresh_prefix()
    key, other = SessionKey("n", "s", "restored"), SessionKey("n", "s", "kept")

    async def main() -> None:
        backend = RedisBackend(server.url, prefix=name)

        async def pages(purged: str | None) -> Any:
            yield [StoredRecord(1, 1, b"i" * 16, b"d" * 16, "x", b"{}")]
            assert await backend.purge(purged) == 0
            yield [StoredRecord(2, 1, b"j" * 16, b"d" * 16, "x", b"{}")]

        with pytest.raises(UnavailableError, match="purged"):
            await backend.restore(key, pages("n"))
        assert (await backend.read(key), await backend.info(key)) == ([], None)
        assert await backend.restore(other, pages(None))
        assert [record.seq for record in await backend.read(other)] == [1, 2]
        await backend.delete(other)
        await backend.aclose()

    asyncio.run(main())
    assert server.command("KEYS", f"{name}*") == [f"{name}:1:layout"]
    unlink(server.url, name)


def test_the_layout_is_written_again_where_it_was_lost() -> None:
    """A server that evicts keys may drop it: then whoever opens the store next would find nothing."""
    server, name = local_server(), fresh_prefix()

    async def main() -> None:
        async with open_store(server.url, prefix=name) as store:
            await store.session("s").append(said("a"))
            server.command("DEL", f"{name}:1:layout")
            await store.session("another").append(said("b"))
        async with open_store(server.url, prefix=name) as store:
            assert await heard(store.session("s")) == ["a"]

    asyncio.run(main())
    unlink(server.url, name)
