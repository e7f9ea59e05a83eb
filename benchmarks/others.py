"""What do the other calls cost? For information: nothing is promised about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentstore import HistoryStore, open_store
from benchmarks.report import Report, milliseconds
from benchmarks.sample import fill, turn
from benchmarks.timing import by_turns, medians

LONG = 10_000
FORKED = 1000
_BEHIND = LONG  # turns with texts that the filled session does not hold


def run(folder: Path, quick: bool) -> Report:
    rounds = 40 if quick else 200
    lines = [
        *asyncio.run(_measure("memory://", "in memory", rounds)),
        *asyncio.run(_measure(f"sqlite:///{folder}/ours.db", "SQLite", rounds)),
    ]
    return Report(f"other calls, on a session of {LONG:,} (for information)", lines)


async def _measure(url: str, name: str, rounds: int) -> list[tuple[str, str]]:
    async with open_store(url) as store:
        calls = await _calls(store, rounds)
        times = medians(await by_turns(range(rounds), *calls.values()))
    return [(f"{name}: {call}", milliseconds(time)) for call, time in zip(calls, times, strict=True)]


async def _calls(store: HistoryStore, rounds: int) -> dict[str, Callable[[int], Awaitable[object]]]:
    chat, short = store.session("long"), store.session("short")
    await fill(chat, LONG)
    await fill(short, FORKED)
    turns = [(turn(_BEHIND + number), turn(_BEHIND + number)) for number in range(rounds)]
    return {
        "append": lambda number: chat.append(turns[number][0]),
        "append, idempotency_key": lambda number: chat.append(turns[number][1], idempotency_key=f"turn-{number}"),
        "newest 20": lambda _: chat.messages(limit=20),
        "pop": lambda _: chat.pop(),
        "info": lambda _: chat.info(),
        f"fork a session of {FORKED:,}": lambda number: short.fork(f"fork-{number}"),
    }
