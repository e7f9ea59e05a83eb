"""How far is opening the newest part of a long session from a bare select?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import open_store
from benchmarks.raw import RawConnection
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
NEWEST = 20


SITTINGS = 5  # with new threads each: how quickly one wakes another is settled when they start


def run(folder: Path, quick: bool) -> Report:
    asyncio.run(_prepare(folder))
    rounds: Rounds = []
    for _ in range(SITTINGS):
        rounds += asyncio.run(_measure(folder, range(80 if quick else 300)))
    ours, raw = medians(rounds)
    return Report(
        f"read the newest {NEWEST} of {LONG:,} from SQLite",
        [("store, as message objects", milliseconds(ours)), ("raw connection, as dicts", milliseconds(raw))],
        [Goal("against raw", ratio(rounds, 0, to=1), 2.5)],
    )


async def _prepare(folder: Path) -> None:
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        await fill(store.session("long"), LONG)
    raw = RawConnection(folder / "raw.db")
    await raw.fill(1, LONG)
    raw.close()


async def _measure(folder: Path, numbers: range) -> Rounds:
    raw = RawConnection(folder / "raw.db")
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        chat = store.session("long")
        rounds = await by_turns(numbers, lambda _: chat.messages(limit=NEWEST), lambda _: raw.newest(1, NEWEST))
    raw.close()
    return rounds
