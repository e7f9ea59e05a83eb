"""A process of the Azure Blob backend is killed before each request of each write: one valid history, and no leak."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from azblob_scene import blobs, new_container, opened, run, turn
from azure.storage.blob import ContainerClient
from azurite_proxy import Proxy, Request, proxied

from agentstore import HistoryStore, SessionHistory
from agentstore.testing.scenes import LONG_AGO, heard, named, said

FEW_BLOCKS = 4
MOST_STEPS = 20
AN_HOUR = 4_000.0
"""Seconds, and a little more."""

Work = Callable[[SessionHistory], Awaitable[Any]]


@pytest.fixture
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


async def nothing(chat: SessionHistory) -> None:
    """A session that does not exist."""


async def some(chat: SessionHistory) -> None:
    await chat.append([named("mine", "old"), *said("kept", "last")])
    await chat.save_snapshot({"a": 1})


async def expired(chat: SessionHistory) -> None:
    await some(chat)
    await chat.expire(LONG_AGO)


async def full(chat: SessionHistory) -> None:
    """The next block is one too many for the log."""
    for number in range(FEW_BLOCKS):
        await chat.append(turn(number, 2))


@pytest.mark.parametrize(
    ("before", "work"),
    [
        (nothing, lambda chat: chat.append(said("a", "b"), snapshot={"b": 2})),
        (nothing, lambda chat: chat.annotate({"a": 1})),
        (expired, lambda chat: chat.append(said("a", "b"))),
        (some, lambda chat: chat.append(said("a", "b"))),
        (full, lambda chat: chat.append(said("a", "b"))),
        (full, lambda chat: chat.pop()),
        (full, lambda chat: chat.clear()),
        (full, lambda chat: chat.replace(said("a", "b"), after=2)),
        (some, lambda chat: chat.replace(said("a", "b"))),
        (some, lambda chat: chat.truncate(before=2)),
        (some, lambda chat: chat.update(named("mine", "new"))),
        (some, lambda chat: chat.delete()),
        (full, lambda chat: chat.delete()),
    ],
    ids=[
        "begin",
        "begin with metadata",
        "begin anew",
        "append",
        "roll over by an append",
        "roll over by a pop",
        "roll over by a clear",
        "roll over by a replace",
        "replace",
        "truncate",
        "update",
        "delete",
        "delete of parts",
    ],
)
def test_a_kill_at_any_step_leaves_one_valid_history(container: ContainerClient, before: Work, work: Work) -> None:
    """SIGKILL before the first request, the second, and so on: the session is as before or as after (B103, B129).

    Everybody can write on, and what was left over goes with the namespace: no blob stays.
    """

    async def main() -> None:
        async with proxied() as proxy:
            before_it, after_it = await _outcomes(container, before, work)
            for step in range(MOST_STEPS):
                session = uuid4().hex
                async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
                    await before(store.session(session))
                if not await _killed(container, proxy, step, lambda store, s=session: work(store.session(s))):  # type: ignore[misc]
                    break
                await _valid(container, session, before_it, after_it)
            else:
                pytest.fail(f"more than {MOST_STEPS} requests")
            await _swept(container)

    run(main())


async def _swept(container: ContainerClient) -> None:
    """Nothing can be left of a namespace that is deleted, however its writers died."""
    async with opened(container.container_name) as store:
        await store.delete_namespace("default")
    assert blobs(container) == []


State = tuple[list[str], int, dict[str, Any]]


async def _outcomes(container: ContainerClient, before: Work, work: Work) -> tuple[State, State]:
    """What the session looks like before and after the work, undisturbed."""
    async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
        chat = store.session(uuid4().hex)
        await before(chat)
        first = await _state(chat)
        await work(chat)
        return first, await _state(chat)


async def _state(chat: SessionHistory) -> State:
    info, snapshot = await chat.info(), await chat.load_snapshot()
    return await heard(chat), snapshot.version if snapshot else 0, dict(info.metadata) if info else {}


async def _killed(
    container: ContainerClient, proxy: Proxy, step: int, work: Callable[[HistoryStore], Awaitable[Any]]
) -> bool:
    """Let a process do the work, and kill it before the request with that number; `False`: it made fewer."""
    left = step

    def fate(request: Request) -> Any:
        nonlocal left
        left -= 1
        return "hold" if left < 0 else "pass"

    proxy.fate, proxy.held = fate, asyncio.Event()
    child = os.fork()
    if not child:
        _work_and_exit(container, proxy, work)
    ended = asyncio.ensure_future(_exit_code(child))
    held = asyncio.ensure_future(proxy.held.wait())
    await asyncio.wait({ended, held}, return_when=asyncio.FIRST_COMPLETED)
    held.cancel()
    if ended.done():
        assert ended.result() == 0
        return False
    os.kill(child, signal.SIGKILL)
    assert await ended == -signal.SIGKILL
    proxy.cut()
    return True


def _work_and_exit(container: ContainerClient, proxy: Proxy, work: Callable[[HistoryStore], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with opened(container.container_name, proxy.connection_string, max_blocks=FEW_BLOCKS) as store:
            await work(store)

    code = 1
    try:
        asyncio.run(main())
        code = 0
    finally:
        os._exit(code)


async def _exit_code(child: int) -> int:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        if pid:
            return os.waitstatus_to_exitcode(status)
        await asyncio.sleep(0.005)


async def _valid(container: ContainerClient, session: str, before: State, after: State) -> None:
    """As before or as after; another process sees the same after more was written."""
    async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
        chat = store.session(session)
        found = await _state(chat)
        assert found in (before, after)
        await chat.append(said("more"))
    async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
        assert await heard(store.session(session)) == [*found[0], "more"]
        assert (await store.session(session).info()) is not None
        assert session in [info.key.session_id for info in (await store.sessions(limit=1_000)).items]


@pytest.mark.parametrize("how", ["fork", "fork over an expired one"])
def test_a_fork_that_is_killed_never_shows_half(container: ContainerClient, how: str) -> None:
    """The copy is there whole or not at all, and what was staged goes with the namespace."""

    async def main() -> None:
        async with proxied() as proxy, opened(container.container_name) as store:
            source = store.session("source")
            for number in range(3):
                await source.append(turn(number, 2))
            whole = await heard(source)
            for step in range(MOST_STEPS):
                target = store.session(uuid4().hex)
                if "expired" in how:
                    await target.append(said("expired"))
                    await target.expire(LONG_AGO)
                if not await _killed(container, proxy, step, lambda s, t=target: _fork(s, t)):  # type: ignore[misc]
                    break
                assert await heard(target) in ([], whole)
                await target.append(said("more"))
                assert (await heard(target))[-1] == "more"
            await _swept(container)

    run(main())


async def _fork(store: HistoryStore, target: SessionHistory) -> None:
    await store.session("source").fork(target.key.session_id)


def test_purge_takes_what_a_dead_writer_left_once_it_is_old(container: ContainerClient) -> None:
    """`purge_expired` leaves what may still be at work, and removes what nobody can be at work on (B129)."""

    async def main() -> None:
        async with proxied() as proxy, opened(container.container_name, proxy.connection_string) as store:
            kept = store.session("kept")
            await kept.append(said("a"))
            for step in range(MOST_STEPS):
                if not await _killed(container, proxy, step, lambda s, n=step: s.session(f"{n}").append(said("b"))):  # type: ignore[misc]
                    break
            proxy.fate = lambda request: "pass"
            before = set(blobs(container))
            await store.purge_expired()
            assert set(blobs(container)) == before
            proxy.ahead = AN_HOUR
            await store.ping()
            await store.purge_expired()
            used = [info.key.session_id for info in (await store.sessions()).items]
            for session in used:
                assert await heard(store.session(session)) in (["a"], ["b"])
            await asyncio.gather(*[store.session(session).delete() for session in used])
            assert blobs(container) == []

    run(main())


async def _pages(chat: SessionHistory) -> AsyncIterator[str]:
    async for stored in chat.iterate(page_size=2):
        yield stored.message.text


def test_a_reader_of_pages_survives_what_happens_to_the_log(container: ContainerClient) -> None:
    """While `iterate` is between two pages, the log rolls over and is rewritten: each record it gives is right."""

    async def main() -> None:
        async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
            chat = store.session("s")
            await full(chat)
            found = []
            async for text in _pages(chat):
                found.append(text)
                if len(found) == 3:
                    for number in range(10, 20):
                        await chat.append(turn(number, 2))
                    with suppress(ValueError):
                        await chat.truncate(before=2)
            assert found == [f"{n}.{p}" for n in [*range(FEW_BLOCKS), *range(10, 20)] for p in range(2)]

    run(main())
