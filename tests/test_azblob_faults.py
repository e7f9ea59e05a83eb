"""Azure Blob fails in its own ways: lost answers, throttling, resets, silence. Never twice the effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from azblob_scene import backend, new_container, opened, proxied_chat, run, turn
from azurite_proxy import Fate, Proxy, Request, proxied
from azurite_server import local_server

from agentstore import ConfigurationError, SessionHistory, StorageError, UnavailableError
from agentstore.backend import ANSWERS_KEPT
from agentstore.testing.scenes import heard, named, said

Work = Callable[[SessionHistory], Awaitable[Any]]


@pytest.fixture(scope="module")
def container() -> Generator[str]:
    with new_container() as made:
        yield made.container_name


@pytest.mark.parametrize("fate", ["lose", "cut"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_append_whose_answer_was_lost_is_made_once(container: str, fate: Fate, times: int) -> None:
    """A lost answer is settled by looking at the tail, exactly once; so is a request that never arrived (B46)."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            for number in range(3):
                proxy.next(*[fate] * times)
                assert (await chat.append(turn(number, 2))).written == 2
            assert await heard(chat) == ["first", *[f"{number}.{part}" for number in range(3) for part in range(2)]]

    run(main())


def test_a_write_that_may_have_happened_is_never_said_not_to_have(container: str) -> None:
    """The answer is lost, and the service busy from then on: `maybe_done`, for the write is there (B46)."""

    async def main() -> None:
        async with proxied_chat(container, timeout=0.5) as (proxy, chat):
            writes: list[Request] = []

            def fate(request: Request) -> Fate:
                if request.writes:
                    writes.append(request)
                return "lose" if request.writes and len(writes) == 1 else 503

            proxy.fate = fate
            with pytest.raises(UnavailableError) as caught:
                await chat.clear()
            assert caught.value.maybe_done
            proxy.fate = lambda request: "pass"
            assert await heard(chat) == []

    run(main())


def test_a_lost_answer_that_others_wrote_over_is_in_doubt(container: str) -> None:
    """So many turns of others later, and in a log written anew, no trace of it may be left: never a second copy."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat), opened(container, rewrite_bytes=0) as elsewhere:
            theirs, lost = elsewhere.session(chat.key.session_id), asyncio.Event()
            busy = True

            def fate(request: Request) -> Fate:
                if not request.writes or not busy:
                    return "pass"
                first = not lost.is_set()
                lost.set()
                return "lose" if first else 503

            proxy.fate = fate
            ours = asyncio.ensure_future(chat.append(said("ours")))
            await lost.wait()
            while len(await heard(theirs)) < 2:  # noqa: ASYNC110 - the service tells nobody
                await asyncio.sleep(0.01)
            for _ in range(ANSWERS_KEPT + 1):
                await theirs.append(said("x" * 2_000))
            await theirs.truncate(after=2)
            busy = False
            with _settled_or_doubtful():
                await ours
            assert await heard(theirs) == ["first", "ours"]

    run(main())


def test_an_append_whose_retry_is_refused_is_made_once(container: str) -> None:
    """The first answer is lost, the second request is throttled: still one copy (B46)."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            proxy.next("lose", 503, 429, "lose")
            assert (await chat.append(said("a", "a"))).written == 2
            assert await heard(chat) == ["first", "a", "a"]

    run(main())


@pytest.mark.parametrize("fate", [503, 429, 500, "cut", "lose"])
def test_a_session_that_begins_amid_faults_begins_once(container: str, fate: Fate) -> None:
    """The first turn takes several requests: whichever of them meets a fault, the session is whole."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            before = len(proxy.requests)
            await opened_again(proxy, container, "fresh")
            steps = sum(request.writes for request in proxy.requests[before:])
            for step in range(steps):
                proxy.next(*["pass"] * step, fate)
                name = f"{chat.key.session_id} {step}"
                await opened_again(proxy, container, name)
                async with opened(container) as store:
                    assert await heard(store.session(name)) == ["a", "b"]

    run(main())


async def opened_again(proxy: Proxy, container: str, session_id: str) -> None:
    async with opened(container, proxy.connection_string) as store:
        await store.session(session_id).append(said("a", "b"))


@pytest.mark.parametrize("fate", [503, "cut", "lose"])
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda chat: chat.append(said("a", "b")), [*"0123", "a", "b"]),
        (lambda chat: chat.replace(said("a", "b"), after=3), [*"012", "a", "b"]),
        (lambda chat: chat.clear(), []),
        (lambda chat: chat.update(named("mine", "new")), ["new", *"123"]),
    ],
    ids=["append", "replace", "clear", "update"],
)
def test_a_roll_over_amid_faults_takes_effect_once(container: str, fate: Fate, work: Work, expected: list[str]) -> None:
    """Whichever request of it meets a fault: the write is there once, or the caller is told that it may not be."""

    async def main() -> None:
        async with proxied() as proxy, opened(container, proxy.connection_string, max_blocks=4) as store:
            for step in range(4):
                proxy.fate = lambda request: "pass"
                chat = store.session(uuid4().hex)
                await chat.append([named("mine", "0")])
                for number in range(1, 4):
                    await chat.append(said(str(number)))
                await chat.messages(limit=1)
                proxy.next(*["pass"] * step, fate)
                with _settled_or_doubtful():
                    await work(chat)
                assert await heard(chat) == expected
                async with opened(container, max_blocks=4) as cold:
                    assert await heard(cold.session(chat.key.session_id)) == expected
                await chat.append(said("more"))
                assert await heard(chat) == [*expected, "more"]

    run(main())


@pytest.mark.parametrize("status", [429, 503, 500])
@pytest.mark.parametrize(
    "work",
    [
        lambda chat: chat.append(said("a")),
        lambda chat: chat.messages(),
        lambda chat: chat.pop(),
        lambda chat: chat.replace(said("a")),
        lambda chat: chat.annotate({"a": 1}),
        lambda chat: chat.save_snapshot({"a": 1}),
        lambda chat: chat.expire(None),
        lambda chat: chat.delete(),
    ],
    ids=["append", "read", "pop", "replace", "annotate", "snapshot", "expire", "delete"],
)
def test_a_busy_service_is_asked_again(container: str, work: Work, status: int) -> None:
    """Throttling of any request is waited out, within a bound, unseen by the caller."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            async with opened(container) as elsewhere:  # so that the warm call has something to read
                await elsewhere.session(chat.key.session_id).append(said("theirs"))
            proxy.next(status, status, of=lambda request: True)
            await work(chat)

    run(main())


def test_a_service_that_stays_busy_is_given_up_in_time(container: str) -> None:
    """Throttled for ever: `UnavailableError`, nothing written, and all is well afterwards."""

    async def main() -> None:
        async with proxied_chat(container, timeout=1.5) as (proxy, chat):
            proxy.fate = lambda request: 503
            for call in (lambda: chat.append(said("a")), chat.messages, chat.pop):
                begun = time.monotonic()
                with pytest.raises(UnavailableError) as caught:
                    await call()
                assert time.monotonic() - begun < 15
                assert not caught.value.maybe_done
            proxy.fate = lambda request: "pass"
            assert await heard(chat) == ["first"]

    run(main())


@pytest.mark.parametrize(
    "work",
    [
        lambda chat: chat.pop(),
        lambda chat: chat.clear(),
        lambda chat: chat.update(named("id", "other")),
        lambda chat: chat.replace(said("new")),
        lambda chat: chat.annotate({"a": 1}),
        lambda chat: chat.save_snapshot({"a": 1}),
    ],
    ids=["pop", "clear", "update", "replace", "annotate", "snapshot"],
)
def test_any_other_write_whose_answer_was_lost_happened_at_most_once(container: str, work: Work) -> None:
    """Either it is settled, or it raises `UnavailableError` that says it may have happened; never twice the effect."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            await chat.append([named("id", "mine"), *said("last")])
            reference = await _after(chat, work)
            proxy.next("lose")
            with _settled_or_doubtful():
                await work(chat)
            assert await _state(chat) == reference

    run(main())


@contextmanager
def _settled_or_doubtful() -> Generator[None]:
    try:
        yield
    except UnavailableError as error:
        if not error.maybe_done:
            raise


async def _after(chat: SessionHistory, work: Work) -> tuple[Any, ...]:
    """What a copy of the session looks like after the work was done once."""
    copy = await chat.fork(f"{chat.key.session_id} copy")
    await work(copy)
    return await _state(copy)


async def _state(chat: SessionHistory) -> tuple[Any, ...]:
    info, snapshot = await chat.info(), await chat.load_snapshot()
    assert info
    return await heard(chat), info.metadata, snapshot and snapshot.version


def test_a_lost_delete_is_a_delete(container: str) -> None:
    """Whichever of its requests loses the answer, nothing is left of the session."""

    async def main() -> None:
        for step in range(4):
            async with proxied_chat(container) as (proxy, chat):
                proxy.next(*["pass"] * step, "lose")
                with _settled_or_doubtful():
                    await chat.delete()
                await chat.delete()
                assert await heard(chat) == []
                assert await chat.info() is None

    run(main())


def test_a_read_is_asked_again(container: str) -> None:
    """Dropped connections and lost answers cost a reader nothing."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            proxy.cut()
            assert await heard(chat) == ["first"]
            for fate in ("lose", "cut"):
                proxy.next(fate, of=lambda request: not request.writes)  # type: ignore[arg-type]
                assert await heard(chat) == ["first"]

    run(main())


def test_a_read_whose_answer_breaks_off_is_asked_again(container: str) -> None:
    """Cut amid the body, more often than the SDK itself tries: it costs a reader nothing but time."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            proxy.next(*["tear"] * 4, of=lambda request: not request.writes)
            assert await heard(chat) == ["first"]

    run(main())


def test_an_answer_that_is_not_the_services_is_an_error_of_ours(container: str) -> None:
    """Whatever stands between: a read that finds no sense in the answer raises ours, with the SDK's as its cause."""

    async def main() -> None:
        async with proxied_chat(container, timeout=0.3) as (proxy, chat):
            for fate in ("babble", 302):
                proxy.fate = lambda request, fate=fate: fate  # type: ignore[misc]
                with pytest.raises(StorageError) as caught:
                    await chat.messages()
                assert caught.value.__cause__ is not None
            proxy.fate = lambda request: "pass"
            assert await heard(chat) == ["first"]

    run(main())


def test_a_slow_service_costs_time_only(container: str) -> None:
    """Delays below the bound change nothing, with many writers in line."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            proxy.delay = 0.05
            await asyncio.gather(*[chat.append(turn(number, 2)) for number in range(8)])
            found = await heard(chat)
            assert sorted(found[1::2]) == [f"{number}.0" for number in range(8)]
            assert [text.replace(".0", ".1") for text in found[1::2]] == found[2::2]

    run(main())


def test_a_silent_service_is_given_up_in_time(container: str) -> None:
    """No answer at all: `UnavailableError` within the bound, and the write may have happened."""

    async def main() -> None:
        async with proxied_chat(container, timeout=0.5, read_timeout=0.3) as (proxy, chat):
            proxy.fate = lambda request: "hold" if request.writes else "pass"
            begun = time.monotonic()
            with pytest.raises(UnavailableError) as caught:
                await chat.append(said("a"))
            assert time.monotonic() - begun < 5
            assert caught.value.maybe_done
            proxy.fate = lambda request: "pass"
            assert await heard(chat) == ["first"]
            await chat.append(said("b"))
            assert await heard(chat) == ["first", "b"]

    run(main())


def test_a_cancelled_append_is_whole_or_absent(container: str) -> None:
    """Cancelled at any moment: the turn is there entirely, or not at all, and the session can be written to."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            proxy.delay = 0.01
            for number in range(12):
                task = asyncio.ensure_future(chat.append(turn(number, 3)))
                await asyncio.sleep(0.003 * number)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            found = [text.split(".") for text in (await heard(chat))[1:]]
            turns = [number for number, part in found if part == "0"]
            assert found == [[number, str(part)] for number in turns for part in range(3)]
            await chat.append(said("last"))
            assert (await heard(chat))[-1] == "last"

    run(main())


def test_nobody_listening_is_unavailable() -> None:
    """An unreachable endpoint: `UnavailableError` with the driver's error as its cause; nothing was done."""

    async def main() -> None:
        async with proxied() as proxy:
            unreachable = proxy.connection_string
        nowhere = backend("somewhere", unreachable, timeout=1.0)
        with pytest.raises(UnavailableError) as caught:
            await nowhere.ping()
        assert caught.value.__cause__ is not None
        assert not caught.value.maybe_done
        await nowhere.aclose()

    run(main())


def test_a_restarted_service_is_found_again() -> None:
    """Stopped and started again: calls fail clearly meanwhile, then work, and nothing acknowledged is lost (B103)."""
    server = local_server()

    async def main() -> None:
        async with opened(f"r-{uuid4().hex}", server.connection_string, timeout=0.5) as store:
            chat = store.session("s")
            await chat.append(said("before"))
            server.stop()
            for call in (chat.messages, lambda: chat.append(said("lost")), store.ping):
                with pytest.raises(UnavailableError):
                    await call()
            server.start()
            await chat.append(said("after"))
            assert await heard(chat) == ["before", "after"]

    run(main())


def test_a_container_that_is_deleted_under_the_store_is_an_error(container: str) -> None:
    """No turn is acknowledged into a container that is gone."""

    async def main() -> None:
        with new_container() as made:
            async with opened(made.container_name) as store:
                chat = store.session("s")
                await chat.append(said("a"))
                made.delete_container()
                for _ in range(2):
                    with pytest.raises((StorageError, ConfigurationError)):
                        await chat.append(said("b"))
            made.create_container()

    run(main())
