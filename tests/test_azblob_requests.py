"""What each call costs on Azure Blob, counted in requests and bytes before a real service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any
from uuid import uuid4

import pytest
from azblob_scene import new_container, opened, proxied_chat, run, turn
from azurite_proxy import Proxy, Request, proxied

from agentstore import HistoryStore, SessionHistory
from agentstore.testing.scenes import heard, said

LONG = 10_000
NEWEST = 20

Work = Callable[[SessionHistory], Awaitable[Any]]


@pytest.fixture(scope="module")
def container() -> Generator[str]:
    with new_container() as made:
        yield made.container_name


async def fill(chat: SessionHistory, count: int) -> None:
    """Mostly in few large blocks; the newest part in turns, as an agent would write it."""
    for start in range(0, count - 400, 800):
        await chat.append(said(*[f"message {number}" for number in range(start, min(start + 800, count - 400))]))
    for number in range(100):
        await chat.append(turn(number))


async def requests(proxy: Proxy, call: Callable[[], Awaitable[Any]]) -> list[Request]:
    before = len(proxy.requests)
    await call()
    return proxy.requests[before:]


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda chat: chat.append(said("a", "b", "c", "d")), 1),
        (lambda chat: chat.append(said("a"), idempotency_key=uuid4().hex, snapshot={"a": 1}), 1),
        (lambda chat: chat.messages(limit=NEWEST), 1),
        (lambda chat: chat.pop(), 2),
        (lambda chat: chat.info(), 1),
        (lambda chat: chat.annotate({"a": uuid4().hex}), 2),
        (lambda chat: chat.save_snapshot({"a": 1}), 1),
        (lambda chat: chat.load_snapshot(), 1),
        (lambda chat: chat.expire(None), 2),
        (lambda chat: chat.clear(), 2),
    ],
    ids=["append", "with snapshot", "newest", "pop", "info", "annotate", "save", "load", "expire", "clear"],
)
def test_a_call_costs_so_many_requests(container: str, work: Work, most: int) -> None:
    """One request per append in the steady state; no other call on the hot path takes more than a look and a write."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            await work(chat)
            await chat.append(said("more"))
            made = await requests(proxy, lambda: work(chat))
            assert len(made) <= most, [str(request) for request in made]
            assert not any(request.lists for request in made)

    run(main())


def test_neither_requests_nor_bytes_grow_with_the_history(container: str) -> None:
    """Append, newest-n, pop and info cost at 10,000 messages what they cost at 400 (PERF)."""

    async def main() -> None:
        async with proxied() as proxy, opened(container, proxy.connection_string) as store:
            short, long = [await _costs(proxy, store, length) for length in (400, LONG)]
            for name, (count, sent, received) in short.items():
                assert long[name][0] <= count, name
                assert long[name][1] <= sent + 200, name
                assert long[name][2] <= received * 1.1 + 200, name

    run(main())


async def _costs(proxy: Proxy, store: HistoryStore, length: int) -> dict[str, tuple[int, int, int]]:
    """For each call: requests, bytes sent, bytes received."""
    chat = store.session(f"of {length} {uuid4().hex}")
    await fill(chat, length)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "append": lambda: chat.append(turn(7)),
        "newest": lambda: chat.messages(limit=NEWEST),
        "pop": chat.pop,
        "info": chat.info,
    }
    sums = {}
    for name, call in calls.items():
        made = await requests(proxy, call)
        assert not any(request.lists for request in made)
        sums[name] = (len(made), sum(r.sent for r in made), sum(r.received for r in made))
    cold = await _cold(proxy, chat, lambda chat: chat.append(turn(8)))
    sums["cold append"] = (len(cold), sum(r.sent for r in cold), sum(r.received for r in cold))
    cold = await _cold(proxy, chat, lambda chat: chat.messages(limit=NEWEST))
    sums["cold newest"] = (len(cold), sum(r.sent for r in cold), sum(r.received for r in cold))
    return sums


async def _cold(proxy: Proxy, chat: SessionHistory, work: Work) -> list[Request]:
    """What the call costs a process that has not seen the session; without the store's own opening."""
    async with opened(proxy_container(chat, proxy), proxy.connection_string) as store:
        await store.session("somebody else's").append(said("opens the store"))
        return await requests(proxy, lambda: work(store.session(chat.key.session_id)))


def proxy_container(chat: SessionHistory, proxy: Proxy) -> str:
    """The container that the latest requests went to."""
    return next(part for part in proxy.requests[-1].path.split("/") if part.startswith("t-"))


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda chat: chat.append(said("a")), 4),
        (lambda chat: chat.messages(limit=NEWEST), 3),
        (lambda chat: chat.info(), 3),
        (lambda chat: chat.pop(), 4),
    ],
    ids=["append", "newest", "info", "pop"],
)
def test_a_cold_start_costs_at_most_three_requests_more(container: str, work: Work, most: int) -> None:
    """A process that has not seen the session looks three times at most before it does what it came for."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            await fill(chat, 400)
            made = await _cold(proxy, chat, work)
            assert len(made) <= most, [str(request) for request in made]
            assert not any(request.lists for request in made)

    run(main())


def test_reading_from_the_start_takes_as_many_bytes_as_it_returns(container: str) -> None:
    """`iterate` streams: each byte of the history is read about once, page by page."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            await fill(chat, 2_000)
            size = sum(request.sent for request in proxy.requests)
            before = len(proxy.requests)
            found = [stored.seq async for stored in chat.iterate(page_size=200)]
            made = proxy.requests[before:]
            assert len(found) == 2_001
            assert sum(request.received for request in made) < 2 * size + (1 << 20)
            assert len(made) <= 40, [str(request) for request in made]

    run(main())


def test_a_lost_race_reads_only_what_is_new(container: str) -> None:
    """Somebody else wrote meanwhile: two requests more, and bytes for the new part only."""

    async def main() -> None:
        async with proxied_chat(container) as (proxy, chat):
            await fill(chat, 2_000)
            async with opened(container) as elsewhere:
                await elsewhere.session(chat.key.session_id).append(said("theirs"))
            made = await requests(proxy, lambda: chat.append(said("ours")))
            assert len(made) <= 3, [str(request) for request in made]
            assert sum(request.received for request in made) < 80_000
            assert (await heard(chat))[-2:] == ["theirs", "ours"]

    run(main())
