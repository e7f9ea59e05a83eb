"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare script and peers?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import SessionHistory, open_store
from benchmarks.postgres_peers import Peer, fill_peer, open_peers, peer_turn
from benchmarks.redis_peers import FrameworkHistory, OpenAISession
from benchmarks.redis_raw import RawRedis
from benchmarks.redis_server import new_server
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio, several

LONG = 10_000
FASTER: dict[type[Peer], float] = {OpenAISession: 1, FrameworkHistory: 500}
"""The peers, and how many times as fast we are."""
OURS_PER_ROUND = 10  # against peers

_BEHIND = LONG  # turns with texts that the filled sessions do not hold


def run(folder: Path, quick: bool) -> Report:
    against_raw, against_peers = asyncio.run(_measure(new_server(), 100 if quick else 400, 8 if quick else 15))
    empty, long, raw = medians(against_raw)
    report = Report(
        "append a turn of four messages to Redis (Valkey)",
        [
            ("an empty session", milliseconds(empty)),
            (f"a session of {LONG:,}", milliseconds(long)),
            (f"raw script that pushes four, {LONG:,} messages", milliseconds(raw)),
        ],
        [
            Goal(f"{LONG:,} against empty", ratio(against_raw, 1, to=0), 1.3),
            Goal(f"{LONG:,} against raw", ratio(against_raw, 1, to=2), 1.8),
        ],
    )
    for kind, bound in FASTER.items():
        if rounds := against_peers.get(kind.name):
            faster = ratio(rounds, 1, to=0)
            report.lines.append((kind.name, milliseconds(medians(rounds)[1] / OURS_PER_ROUND)))
            report.goals.append(Goal(f"times as fast as {kind.name}", faster, bound, at_least=True))
        else:
            report.lines.append((kind.name, "not installed"))
    return report


async def _measure(url: str, rounds: int, peer_rounds: int) -> tuple[Rounds, dict[str, Rounds]]:
    """Against raw; and against each peer alone, since whoever comes after a slow one finds cold caches."""
    peers, raw = await open_peers(url, *FASTER), await RawRedis(url).open()
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
        more = [turn(_BEHIND + number) for number in range(rounds)]
        against_raw = await by_turns(
            range(rounds),
            lambda number: empty[number].append(turns[number]),
            lambda number: long.append(more[number]),
            lambda number: raw.append(1, raw_turns[number]),
        )
        against_peers = {name: await _against(long, peer, peer_rounds) for name, peer in peers.items()}
    for closing in (raw, *peers.values()):
        await closing.close()
    return against_raw, against_peers


async def _against(long: SessionHistory, peer: Peer, rounds: int) -> Rounds:
    """Ten turns each of ours and the peer's; but one of a peer that reads its whole history, counted ten times."""
    await fill_peer(peer, LONG)
    slow = isinstance(peer, FrameworkHistory)
    ours = [turn(2 * _BEHIND + number) for number in range(rounds * OURS_PER_ROUND)]
    theirs = [peer_turn(peer, 2 * _BEHIND + number) for number in range(rounds * OURS_PER_ROUND)]
    times = await by_turns(
        range(rounds),
        several(lambda number: long.append(ours[number]), OURS_PER_ROUND),
        several(lambda number: peer.append(theirs[number]), 1 if slow else OURS_PER_ROUND),
    )
    return [(own, other * OURS_PER_ROUND) for own, other in times] if slow else times
