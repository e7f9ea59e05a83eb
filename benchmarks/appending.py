"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare insert?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import open_store
from benchmarks.raw import RawConnection
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000


SITTINGS = 5  # with new threads each: how quickly one wakes another is settled when they start


def run(folder: Path, quick: bool) -> Report:
    per_sitting = 40 if quick else 120
    asyncio.run(_prepare(folder, SITTINGS * per_sitting))
    rounds: Rounds = []
    for first in range(0, SITTINGS * per_sitting, per_sitting):
        rounds += asyncio.run(_measure(folder, range(first, first + per_sitting)))
    empty, long, raw = medians(rounds)
    return Report(
        "append a turn of four messages to SQLite",
        [
            ("an empty session", milliseconds(empty)),
            (f"a session of {LONG:,}", milliseconds(long)),
            (f"raw connection, bare insert, {LONG:,} rows", milliseconds(raw)),
        ],
        [
            Goal(f"{LONG:,} against empty", ratio(rounds, 1, to=0), 1.3),
            Goal(f"{LONG:,} against raw", ratio(rounds, 1, to=2), 2),
        ],
    )


async def _prepare(folder: Path, empty: int) -> None:
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        # Empty, but there: so that neither side pays for the beginning of a session.
        for number in range(empty):
            await store.session(f"empty-{number}").annotate({"empty": True})
        await fill(store.session("long"), LONG)
    raw = RawConnection(folder / "raw.db")
    await raw.fill(1, LONG)
    raw.close()


async def _measure(folder: Path, numbers: range) -> Rounds:
    raw = RawConnection(folder / "raw.db")
    turns = {number: (turn(number), turn(number), turn_shapes(number)) for number in numbers}
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        empty = {number: store.session(f"empty-{number}") for number in numbers}
        long = store.session("long")
        rounds = await by_turns(
            numbers,
            lambda number: empty[number].append(turns[number][0]),
            lambda number: long.append(turns[number][1]),
            lambda number: raw.append(1, turns[number][2]),
        )
    raw.close()
    return rounds
