"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare script and peers?"""

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
from benchmarks.redis_peers import FrameworkHistory, OpenAISession
from benchmarks.redis_raw import RawRedis
from benchmarks.redis_server import new_server
from benchmarks.report import Report
from benchmarks.timing import Rounds, by_turns, several

FASTER: dict[type[Peer], float] = {OpenAISession: 1, FrameworkHistory: 500}
"""The peers, and how many times as fast we are."""
OURS_PER_ROUND = 10  # against peers


def run(folder: Path, quick: bool) -> Report:
    measured = asyncio.run(_measure(new_server(), 100 if quick else 400, 8 if quick else 15))
    raw = f"raw script that pushes four, {LONG:,} messages", 1.8
    return report("Redis (Valkey)", raw, FASTER, OURS_PER_ROUND, measured)


async def _measure(url: str, rounds: int, peer_rounds: int) -> tuple[Rounds, dict[str, Rounds]]:
    async def against(long: SessionHistory, peer: Peer) -> Rounds:
        return await _against(long, peer, peer_rounds)

    return await measure(url, await RawRedis(url).open(), await open_peers(url, *FASTER), rounds, against)


async def _against(long: SessionHistory, peer: Peer, rounds: int) -> Rounds:
    """Ten turns each of ours and the peer's; but one of a peer that reads its whole history, counted ten times."""
    await fill_peer(peer, LONG)
    slow, count = isinstance(peer, FrameworkHistory), rounds * OURS_PER_ROUND
    theirs = [peer_turn(peer, 2 * BEHIND + number) for number in range(count)]
    times = await by_turns(
        range(rounds),
        several(appending(long, count, 2 * BEHIND), OURS_PER_ROUND),
        several(lambda number: peer.append(theirs[number]), 1 if slow else OURS_PER_ROUND),
    )
    return [(own, other * OURS_PER_ROUND) for own, other in times] if slow else times
