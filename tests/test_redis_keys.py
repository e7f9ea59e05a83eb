"""What stands on the server: keys of one session, their expiry, and nothing after a delete."""

from __future__ import annotations

import asyncio

from redis_scenes import Work, chatting, keys_of, own_server, run
from redis_server import local_server

from agentstore import open_store
from agentstore.testing.scenes import heard, said


def test_all_keys_of_a_session_expire_together() -> None:
    """Whatever was written last, every key has the session's expiry (B111)."""
    server = local_server()

    async def main() -> None:
        async with chatting(server.url, ttl=1000) as chat:
            calls: list[Work] = [
                lambda chat: chat.append(said("a", "b")),
                lambda chat: chat.save_snapshot({"a": 1}),
                lambda chat: chat.annotate({"a": 1}),
                lambda chat: chat.pop(),
                lambda chat: chat.clear(),
                lambda chat: chat.append(said("c")),
                lambda chat: chat.replace(said("d")),
            ]
            for call in calls:
                await call(chat)
                info = await chat.info()
                assert info
                assert info.expires_at
                expiries = {server.command("PEXPIRETIME", key) for key in keys_of(server, chat)}
                assert {round(expiry / 1000 - info.expires_at.timestamp()) for expiry in expiries} == {0}
            await chat.expire(None)
            assert {server.command("PEXPIRETIME", key) for key in keys_of(server, chat)} == {-1}

    run(main())


def test_a_refused_expiry_loses_no_data_and_is_repaired() -> None:
    """A user who may not PEXPIREAT: the turn is kept, invisible in time, and the next write sets the expiry (B109,
    B110).
    """

    async def main() -> None:
        with own_server() as server:
            server.command("ACL", "SETUSER", "hindered", "on", ">pass", "~*", "+@all", "-pexpireat", "-pexpire")
            hindered = server.url.replace("//", "//hindered:pass@")
            async with open_store(hindered, ttl=1000) as store, open_store(server.url) as other:
                chat = store.session("s")
                await chat.append(said("a"))
                await chat.append(said("b"))
                assert await heard(chat) == ["a", "b"]
                info = await chat.info()
                assert info
                assert info.expires_at
                assert {server.command("PTTL", key) for key in keys_of(server, chat)} == {-1}
                await other.session("s").append(said("c"))
                assert min(server.command("PTTL", key) for key in keys_of(server, chat)) > 900_000
                assert await heard(chat) == ["a", "b", "c"]
            async with open_store(hindered, ttl=0.2) as store:
                short = store.session("short")
                await short.append(said("a"))
                await asyncio.sleep(0.3)
                assert await heard(short) == []
                assert [info.key.session_id for info in (await store.sessions()).items] == ["s"]

    run(main())


def test_delete_leaves_no_key() -> None:
    """After any history, a SCAN for the session finds nothing, nor does its index (B115)."""

    async def main() -> None:
        with own_server() as server:
            async with open_store(server.url, ttl=1000) as store:
                for session_id in ("plain", "a{b}c", "{}", "a:b\x00c"):
                    chat = store.session(session_id)
                    await chat.append(said("a", "b"), snapshot={"a": 1})
                    await chat.annotate({"a": 1})
                    await chat.fork("copy of " + session_id)
                    await chat.pop()
                    await chat.expire(None)
                    assert keys_of(server, chat)
                    await chat.delete()
                    await store.session("copy of " + session_id).delete()
                    assert keys_of(server, chat) == []
            _, left = server.command("SCAN", "0", "COUNT", 10_000)
            assert [key for key in left if not key.endswith("layout")] == []

    run(main())


def test_two_prefixes_stay_apart() -> None:
    """Two stores on one server that never meet (B114)."""

    async def main() -> None:
        with own_server() as server:
            async with open_store(server.url, prefix="one") as one, open_store(server.url, prefix="two") as two:
                await one.session("s").append(said("one"))
                assert await heard(two.session("s")) == []
                assert (await two.sessions()).items == []
                await two.session("s").append(said("two"))
                await two.session("s").delete()
                assert await heard(one.session("s")) == ["one"]
                assert [info.key.session_id for info in (await one.sessions()).items] == ["s"]

    run(main())
