"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare insert and peers?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import SessionHistory
from benchmarks.beside_peers import (
    BEHIND,
    LONG,
    Peer,
    appending,
    fill_peer,
    measure,
    open_peers,
    peer_turn,
    report,
)
from benchmarks.postgres_peers import ADKSession, LangChainHistory, OpenAISession
from benchmarks.postgres_raw import RawPool
from benchmarks.postgres_server import new_database
from benchmarks.report import Report
from benchmarks.timing import Contender, Rounds, by_turns, several

FASTER: dict[type[Peer], float] = {OpenAISession: 4, LangChainHistory: 1, ADKSession: 15}
"""The peers, and how many times as fast we are."""

TOGETHER = 20
"""Turns in a round beside a peer: the first ones after another library find cold caches, as in no real process."""


def run(folder: Path, quick: bool) -> Report:
    measured = asyncio.run(_measure(new_database("appending"), 60 if quick else 200))
    return report("PostgreSQL", (f"raw asyncpg, bare insert, {LONG:,} rows", 1.6), FASTER, TOGETHER, measured)


async def _measure(url: str, rounds: int) -> tuple[Rounds, dict[str, Rounds]]:
    async def against(long: SessionHistory, peer: Peer) -> Rounds:
        count = rounds // 3 * TOGETHER
        ours, theirs = appending(long, count), await _contender(peer, count)
        return await by_turns(range(rounds // 3), several(ours, TOGETHER), several(theirs, TOGETHER))

    return await measure(url, await RawPool.open(url, 1), await open_peers(url, *FASTER), rounds, against)


async def _contender(peer: Peer, rounds: int) -> Contender:
    # ADK writes a message at a time: filling it would take minutes. On a short session it is not slower.
    await fill_peer(peer, 100 if isinstance(peer, ADKSession) else LONG)
    turns = [peer_turn(peer, BEHIND + number) for number in range(rounds)]
    return lambda number: peer.append(turns[number])
