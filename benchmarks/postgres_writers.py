"""Do 16 writers, each with a store of its own, keep their turns whole on one session?"""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from time import perf_counter

from agentstore import open_store
from benchmarks.postgres_server import new_database
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, turn

WRITERS = 16

Ids = tuple[str | None, ...]


def run(folder: Path, quick: bool) -> Report:
    per_writer = 20 if quick else 60
    stored, turns, seconds = asyncio.run(_measure(new_database("writers"), per_writer))
    whole = {stored[start : start + TURN] for start in range(0, len(stored), TURN)}
    given = set(chain(*turns))
    return Report(
        f"{WRITERS} writers on one session of PostgreSQL, {len(turns):,} turns",
        [("appended", f"{len(turns) / seconds:,.0f} turns/s")],
        [
            Goal("messages lost", len(given - set(stored)), 0),
            Goal("messages doubled", len(stored) - len(set(stored)), 0),
            Goal("turns interleaved", len(set(turns) - whole), 0),
        ],
    )


async def _measure(url: str, per_writer: int) -> tuple[Ids, list[Ids], float]:
    """The ids as they are stored, those of each turn, and the seconds it took."""
    start = perf_counter()
    written = await asyncio.gather(*[_write(url, writer, per_writer) for writer in range(WRITERS)])
    seconds = perf_counter() - start
    async with open_store(url) as store:
        stored = await store.session("shared").messages()
    return tuple(message.message_id for message in stored), list(chain(*written)), seconds


async def _write(url: str, writer: int, count: int) -> list[Ids]:
    turns = [turn(writer * count + number) for number in range(count)]
    async with open_store(url) as store:
        for one in turns:
            await store.session("shared").append(one)
    return [tuple(message.message_id for message in one) for one in turns]
