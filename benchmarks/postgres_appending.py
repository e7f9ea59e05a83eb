"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare insert and peers?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import SessionHistory, open_store
from benchmarks.postgres_peers import (
    ADKSession,
    LangChainHistory,
    OpenAISession,
    Peer,
    fill_peer,
    open_peers,
    peer_turn,
)
from benchmarks.postgres_raw import RawPool
from benchmarks.postgres_server import new_database
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill, turn, turn_shapes
from benchmarks.timing import Contender, Rounds, by_turns, medians, ratio, several

LONG = 10_000
FASTER: dict[type[Peer], float] = {OpenAISession: 4, LangChainHistory: 1, ADKSession: 15}
"""The peers, and how many times as fast we are."""

TOGETHER = 20
"""Turns in a round beside a peer: the first ones after another library find cold caches, as in no real process."""

_BEHIND = LONG  # turns with texts that the filled sessions do not hold


def run(folder: Path, quick: bool) -> Report:
    against_raw, against_peers = asyncio.run(_measure(new_database("appending"), 60 if quick else 200))
    empty, long, raw = medians(against_raw)
    report = Report(
        "append a turn of four messages to PostgreSQL",
        [
            ("an empty session", milliseconds(empty)),
            (f"a session of {LONG:,}", milliseconds(long)),
            (f"raw asyncpg, bare insert, {LONG:,} rows", milliseconds(raw)),
        ],
        [
            Goal(f"{LONG:,} against empty", ratio(against_raw, 1, to=0), 1.3),
            Goal(f"{LONG:,} against raw", ratio(against_raw, 1, to=2), 1.6),
        ],
    )
    for kind, bound in FASTER.items():
        if rounds := against_peers.get(kind.name):
            report.lines.append((kind.name, milliseconds(medians(rounds)[1] / TOGETHER)))
            report.goals.append(Goal(f"times as fast as {kind.name}", ratio(rounds, 1, to=0), bound, at_least=True))
        else:
            report.lines.append((kind.name, "not installed"))
    return report


async def _measure(url: str, rounds: int) -> tuple[Rounds, dict[str, Rounds]]:
    """Against raw; and against each peer alone, some turns of each in a row."""
    peers, raw = await open_peers(url, *FASTER), await RawPool.open(url, 1)
    await raw.fill(1, LONG)
    raw_turns = [turn_shapes(_BEHIND + number) for number in range(rounds)]
    async with open_store(url) as store:
        # Empty, but there: so that neither side pays for the beginning of a session.
        empty = [store.session(f"empty-{number}") for number in range(rounds)]
        for chat in empty:
            await chat.annotate({"empty": True})
        long = store.session("long")
        await fill(long, LONG)
        turns = [turn(_BEHIND + number) for number in range(rounds)]
        against_raw = await by_turns(
            range(rounds),
            lambda number: empty[number].append(turns[number]),
            _appending(long, rounds),
            lambda number: raw.append(1, raw_turns[number]),
        )
        against_peers = {name: await _against(long, peer, rounds // 3) for name, peer in peers.items()}
    for closing in (raw, *peers.values()):
        await closing.close()
    return against_raw, against_peers


async def _against(long: SessionHistory, peer: Peer, rounds: int) -> Rounds:
    ours, theirs = _appending(long, rounds * TOGETHER), await _contender(peer, rounds * TOGETHER)
    return await by_turns(range(rounds), several(ours, TOGETHER), several(theirs, TOGETHER))


def _appending(chat: SessionHistory, rounds: int) -> Contender:
    turns = [turn(_BEHIND + number) for number in range(rounds)]
    return lambda number: chat.append(turns[number])


async def _contender(peer: Peer, rounds: int) -> Contender:
    # ADK writes a message at a time: filling it would take minutes. On a short session it is not slower.
    await fill_peer(peer, 100 if isinstance(peer, ADKSession) else LONG)
    turns = [peer_turn(peer, _BEHIND + number) for number in range(rounds)]
    return lambda number: peer.append(turns[number])
