"""How far is opening the newest part of a long session on Redis from a bare range?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import open_store
from benchmarks.redis_raw import RawRedis
from benchmarks.redis_server import new_server
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
NEWEST = 20


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(new_server(), 100 if quick else 600))
    ours, raw = medians(rounds)
    return Report(
        f"read the newest {NEWEST} of {LONG:,} from Redis (Valkey)",
        [("store, as message objects", milliseconds(ours)), ("raw redis-py, as dicts", milliseconds(raw))],
        [Goal("against raw", ratio(rounds, 0, to=1), 1.8)],
    )


async def _measure(url: str, rounds: int) -> Rounds:
    raw = await RawRedis(url).open()
    await raw.fill(1, LONG)
    async with open_store(url) as store:
        chat = store.session("long")
        await fill(chat, LONG)
        times = await by_turns(range(rounds), lambda _: chat.messages(limit=NEWEST), lambda _: raw.newest(1, NEWEST))
    await raw.close()
    return times
