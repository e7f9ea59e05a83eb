"""Redis fails in its own ways: forgotten scripts, lost answers, silence, refused connections."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
import redis
from redis_scenes import Work, chatting, own_server, proxied_chat, run
from redis_server import LocalServer, local_server
from tcp_proxy import proxied

from agentstore import ConfigurationError, Message, SessionHistory, UnavailableError, open_store
from agentstore.testing.scenes import heard, named, said


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda chat: chat.append(said("a", "b", "c", "d")), 1),
        (lambda chat: chat.append(said("a"), idempotency_key="k", snapshot={"a": 1}), 1),
        (lambda chat: chat.messages(limit=20), 1),
        (lambda chat: chat.pop(), 2),
        (lambda chat: chat.info(), 1),
        (lambda chat: chat.clear(), 1),
    ],
)
def test_a_call_is_one_round_trip(work: Work, most: int) -> None:
    """One script call per append on a warm connection; pop reads, then removes."""

    async def main() -> None:
        async with proxied_chat() as (proxy, chat):
            await work(chat)
            counts = []
            for _ in range(2):  # the first write of a minute has two more
                await chat.append(said("more"))
                before = proxy.round_trips
                await work(chat)
                counts.append(proxy.round_trips - before)
            assert min(counts) == most

    run(main())


def test_an_append_whose_answer_was_lost_is_made_once(caplog: pytest.LogCaptureFixture) -> None:
    """An append whose answer was lost is retried exactly once by id (B46)."""

    async def main() -> None:
        async with proxied_chat() as (proxy, chat):
            for number in range(5):
                proxy.losing = 1
                assert (await chat.append(said(f"{number}a", f"{number}b"))).written == 2
            expected = [f"{number}{part}" for number in range(5) for part in "ab"]
            assert await heard(chat) == ["first", *expected]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len([record for record in caplog.records if "lost" in record.message]) == 5


def test_a_first_append_whose_answer_was_lost_is_made_once() -> None:
    """... also where it begins the session, whichever of its round trips is cut."""

    async def main() -> None:
        async with proxied_chat() as (proxy, chat):
            store = open_store(proxy.url, namespace=chat.key.namespace)
            await store.open()
            for answers in range(4):
                begun = store.session(f"begun-{answers}")
                proxy.passing, proxy.losing = answers, 1
                await _until_written(begun, said("a", "b"))
                proxy.losing = 0
                assert await heard(begun) == ["a", "b"]
            listed = {info.key.session_id for info in (await store.sessions()).items}
            assert listed == {chat.key.session_id, *(f"begun-{answers}" for answers in range(4))}
            await store.delete_namespace(chat.key.namespace)
            await store.aclose()

    run(main())


async def _until_written(chat: SessionHistory, messages: list[Message]) -> None:
    for _ in range(3):
        try:
            await chat.append(messages, idempotency_key="turn")
        except UnavailableError:
            continue
        return
    pytest.fail("never written")


@pytest.mark.parametrize(
    "work",
    [
        lambda chat: chat.pop(),
        lambda chat: chat.clear(),
        lambda chat: chat.update(named("first", "other")),
        lambda chat: chat.replace([]),
        lambda chat: chat.annotate({"a": uuid4().hex}),
        lambda chat: chat.save_snapshot({"a": 1}),
        lambda chat: chat.delete(),
    ],
)
def test_any_other_write_whose_answer_was_lost_says_so(work: Work) -> None:
    """Anything else is a clear `UnavailableError` that says it may have happened."""

    async def main() -> None:
        async with proxied_chat() as (proxy, chat):
            outcomes = set()
            for passing in range(3):  # some read before they write
                await chat.append(said("more"))
                proxy.passing, proxy.losing = passing, 1
                try:
                    await work(chat)
                except UnavailableError as error:
                    outcomes.add(error.maybe_done)
                proxy.losing = 0
            assert True in outcomes

    run(main())


def test_a_flushed_script_cache_costs_nothing() -> None:
    """SCRIPT FLUSH between any two calls: they work as before."""
    server = local_server()

    async def main() -> None:
        async with chatting(server.url) as chat:
            calls: list[Work] = [
                lambda chat: chat.append(said("a")),
                lambda chat: chat.messages(),
                lambda chat: chat.info(),
                lambda chat: chat.annotate({"a": 1}),
                lambda chat: chat.save_snapshot({"a": 1}),
                lambda chat: chat.load_snapshot(),
                lambda chat: chat.update(named("first", "changed")),
                lambda chat: chat.pop(),
                lambda chat: chat.replace(said("b")),
                lambda chat: chat.truncate(after=0),
                lambda chat: chat.fork(uuid4().hex),
                lambda chat: chat.expire(None),
                lambda chat: chat.delete(),
            ]
            for call in calls:
                server.command("SCRIPT", "FLUSH")
                await call(chat)

    run(main())


def test_a_silent_server_is_given_up() -> None:
    """A server that stopped answering: `UnavailableError` in time, and all is well once it goes on."""

    async def main() -> None:
        with own_server() as server:
            async with chatting(server.url, timeout=0.3) as chat:
                server.pause()
                try:
                    begun = time.monotonic()
                    with pytest.raises(UnavailableError):
                        await chat.messages()
                    with pytest.raises(UnavailableError) as caught:
                        await chat.clear()
                    assert caught.value.maybe_done
                    assert time.monotonic() - begun < 10
                finally:
                    server.resume()
                await chat.append(said("after"))
                assert (await heard(chat))[-1] == "after"

    run(main())


@pytest.mark.parametrize("work", [lambda chat: chat.messages(), lambda chat: chat.info(), lambda chat: chat.delete()])
def test_timeout_bounds_a_call_with_all_its_tries(work: Work) -> None:
    """A server that loses an answer late, and then is silent: the call ends when `timeout` is up, not at twice that."""

    async def main() -> None:
        with own_server() as server:
            async with proxied(server.url) as proxy, chatting(proxy.url, timeout=1) as chat:
                server.pause()
                try:
                    begun = time.monotonic()
                    asyncio.get_running_loop().call_later(0.7, proxy.cut)
                    with pytest.raises(UnavailableError):
                        await work(chat)
                    assert time.monotonic() - begun < 1.4
                finally:
                    server.resume()

    run(main())


def test_timeout_bounds_the_first_write_of_a_session() -> None:
    """... and a call of several steps, each of which is answered, but late."""

    async def main() -> None:
        with own_server(enable_debug_command="yes") as server:
            async with open_store(server.url, timeout=0.8) as store:
                await store.session("first").append(said("a"))
                connected = threading.Event()
                sleeping = asyncio.ensure_future(asyncio.to_thread(_sleep, server, connected))
                await asyncio.to_thread(connected.wait)
                await asyncio.sleep(0.1)
                begun = time.monotonic()
                with pytest.raises(UnavailableError):
                    await store.session("s").save_snapshot({"a": 1})
                assert time.monotonic() - begun < 1.2
                await sleeping

    run(main())


def _sleep(server: LocalServer, connected: threading.Event) -> None:
    with redis.Redis(port=server.port) as client:
        client.ping()
        connected.set()
        for _ in range(5):
            client.execute_command("DEBUG", "SLEEP", "0.5")


def test_no_connection_leaks() -> None:
    """A thousand failing calls of every kind, then a good one (B41)."""

    async def main() -> None:
        async with proxied_chat(timeout=5) as (proxy, chat):
            for _ in range(10):
                await _cancel(25, lambda: chat.append(said("cancelled")))
                await _cancel(25, chat.messages)
                proxy.losing = 1
                await _attempt(50, chat.clear)
                proxy.losing = 0
            proxy.refusing = True
            proxy.cut()
            await _fail(100, chat.messages)
            await _fail(100, chat.clear)
            proxy.refusing = False
            await asyncio.wait_for(asyncio.gather(chat.append(said("good")), chat.messages()), 5)

    run(main())


async def _fail(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    answers = await asyncio.gather(*[call() for _ in range(count)], return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, UnavailableError)] == []


async def _attempt(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    answers = await asyncio.gather(*[call() for _ in range(count)], return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, int | UnavailableError)] == []


async def _cancel(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    tasks = [asyncio.ensure_future(call()) for _ in range(count)]
    for task in tasks:
        await asyncio.sleep(0.0005)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_errors_never_show_the_password() -> None:
    """No driver text, repr or cause holds it (B118)."""

    async def main() -> None:
        with own_server() as server:
            server.command("ACL", "SETUSER", "app", "on", ">s3cret-right", "~*", "+@all")
            store = open_store(server.url.replace("//", "//app:s3cret-word@"))
            assert "s3cret" not in repr(store)
            with pytest.raises(ConfigurationError) as caught:
                await store.session("s").messages()
            error: BaseException | None = caught.value
            while error:
                assert "s3cret" not in repr(error)
                error = error.__cause__ or error.__context__
            await store.aclose()

    run(main())


def test_nobody_listening_is_unavailable() -> None:
    """An unreachable server: `UnavailableError` with the driver's error as its cause; nothing was done."""

    async def main() -> None:
        store = open_store("redis://127.0.0.1:1")
        with pytest.raises(UnavailableError) as caught:
            await store.ping()
        assert caught.value.__cause__ is not None
        assert not caught.value.maybe_done
        await store.aclose()

    run(main())
