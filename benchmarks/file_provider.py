"""How much faster is an append than the Agent Framework's own file provider on a long session?"""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

from agent_framework import FileHistoryProvider
from agent_framework import Message as FrameworkMessage

from agentstore import open_store
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill, shapes, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
OURS_PER_ROUND = 10
_BEHIND = LONG  # turns with texts that the filled sessions do not hold


def run(folder: Path, quick: bool) -> Report:
    warnings.filterwarnings("ignore", message=".*FileHistoryProvider is experimental")
    rounds = asyncio.run(_measure(folder, 8 if quick else 15))
    ours, theirs = medians(rounds)
    return Report(
        f"append a turn of four messages to a session of {LONG:,}",
        [
            ("SQLite store", milliseconds(ours / OURS_PER_ROUND)),
            ("Agent Framework's FileHistoryProvider", milliseconds(theirs)),
        ],
        [Goal("times as fast", OURS_PER_ROUND * ratio(rounds, 1, to=0), 200, at_least=True)],
    )


async def _measure(folder: Path, rounds: int) -> Rounds:
    provider = FileHistoryProvider(folder / "files")
    await provider.save_messages("long", [FrameworkMessage.from_dict(shape) for shape in shapes(LONG)])
    turns = [[FrameworkMessage.from_dict(s) for s in turn_shapes(_BEHIND + number)] for number in range(rounds)]
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        chat = store.session("long")
        await fill(chat, LONG)
        ready = [turn(_BEHIND + number) for number in range(rounds * OURS_PER_ROUND)]

        async def ours(number: int) -> None:
            for one in ready[number * OURS_PER_ROUND : (number + 1) * OURS_PER_ROUND]:
                await chat.append(one)

        async def theirs(number: int) -> None:
            await provider.save_messages("long", turns[number])

        return await by_turns(range(rounds), ours, theirs)
