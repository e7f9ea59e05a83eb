"""Appending beside a bare driver and beside peers: what each server's benchmark of it does alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from agentstore import SessionHistory, open_store
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import Shape, fill, shapes, turn, turn_shapes
from benchmarks.timing import Contender, Rounds, by_turns, medians, ratio

LONG = 10_000
BEHIND = LONG
"""From here on turns have texts that the filled sessions do not hold."""
_FILL = 500  # messages per call while a session is filled


class Raw(Protocol):
    """What one writes by hand on the driver."""

    async def append(self, session: int, messages: Sequence[Shape]) -> None: ...

    async def fill(self, session: int, count: int) -> None: ...

    async def close(self) -> None: ...


class Peer(Protocol):
    """One session of a peer."""

    name: str

    @classmethod
    async def open(cls, url: str) -> Peer:
        """A new session. Raises `ImportError` where the peer is not installed."""
        ...

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        """The messages as the peer's objects."""
        ...

    async def append(self, messages: list[Any]) -> object: ...

    async def newest(self, limit: int) -> Sequence[Any]: ...

    async def close(self) -> None: ...


async def open_peers(url: str, *kinds: type[Peer]) -> dict[str, Peer]:
    """Those that are installed, by name."""
    peers: dict[str, Peer] = {}
    for kind in kinds:
        with suppress(ImportError):
            peers[kind.name] = await kind.open(url)
    return peers


async def fill_peer(peer: Peer, count: int) -> None:
    """Append that many messages, many at once."""
    messages = peer.native(shapes(count))
    for start in range(0, count, _FILL):
        await peer.append(messages[start : start + _FILL])


def peer_turn(peer: Peer, number: int) -> list[Any]:
    """The turn as new objects of the peer."""
    return peer.native(turn_shapes(number))


def appending(chat: SessionHistory, rounds: int, behind: int = BEHIND) -> Contender:
    """A new turn each round."""
    turns = [turn(behind + number) for number in range(rounds)]
    return lambda number: chat.append(turns[number])


Against = Callable[[SessionHistory, Peer], Awaitable[Rounds]]
"""Measures the long session beside a peer."""


async def measure(
    url: str, raw: Raw, peers: Mapping[str, Peer], rounds: int, against: Against
) -> tuple[Rounds, dict[str, Rounds]]:
    """Against raw; and against each peer alone, since whoever comes after a slow one finds cold caches."""
    await raw.fill(1, LONG)
    raw_turns = [turn_shapes(BEHIND + number) for number in range(rounds)]
    async with open_store(url) as store:
        # Empty, but there: so that neither side pays for the beginning of a session.
        empty = [store.session(f"empty-{number}") for number in range(rounds)]
        for chat in empty:
            await chat.annotate({"empty": True})
        long = store.session("long")
        await fill(long, LONG)
        turns = [turn(BEHIND + number) for number in range(rounds)]
        against_raw = await by_turns(
            range(rounds),
            lambda number: empty[number].append(turns[number]),
            appending(long, rounds),
            lambda number: raw.append(1, raw_turns[number]),
        )
        against_peers = {name: await against(long, peer) for name, peer in peers.items()}
    for closing in (raw, *peers.values()):
        await closing.close()
    return against_raw, against_peers


def report(
    title: str,
    raw: tuple[str, float],
    faster: Mapping[type[Peer], float],
    turns: int,
    measured: tuple[Rounds, dict[str, Rounds]],
) -> Report:
    """`raw` is its name and the most that we may take of its time, `turns` how many a round beside a peer has."""
    (name, most), (against_raw, against_peers) = raw, measured
    empty, long, bare = medians(against_raw)
    made = Report(
        f"append a turn of four messages to {title}",
        [
            ("an empty session", milliseconds(empty)),
            (f"a session of {LONG:,}", milliseconds(long)),
            (name, milliseconds(bare)),
        ],
        [
            Goal(f"{LONG:,} against empty", ratio(against_raw, 1, to=0), 1.3),
            Goal(f"{LONG:,} against raw", ratio(against_raw, 1, to=2), most),
        ],
    )
    for kind, bound in faster.items():
        if rounds := against_peers.get(kind.name):
            made.lines.append((kind.name, milliseconds(medians(rounds)[1] / turns)))
            made.goals.append(Goal(f"times as fast as {kind.name}", ratio(rounds, 1, to=0), bound, at_least=True))
        else:
            made.lines.append((kind.name, "not installed"))
    return made
