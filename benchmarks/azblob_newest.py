"""How far is opening the newest part of a long session on Azure Blob from a bare ranged download?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from azurite_server import connection_string

from benchmarks.azblob_raw import RawBlob, our_store
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import TURN, fill, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
NEWEST = 20


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(100 if quick else 400))
    ours, raw = medians(rounds)
    return Report(
        f"read the newest {NEWEST} of {LONG:,} from Azure Blob (Azurite)",
        [("store, as message objects", milliseconds(ours)), ("raw ranged download, as dicts", milliseconds(raw))],
        [Goal("against raw", ratio(rounds, 0, to=1), 1.5)],
    )


async def _measure(rounds: int) -> Rounds:
    raw = await RawBlob.create()
    await raw.fill(LONG)
    async with our_store(connection_string()) as store:
        chat = store.session("long, to be read")
        await fill(chat, LONG)
        for number in range(LONG, LONG + NEWEST // TURN):  # the newest part in turns, as an agent writes it
            await chat.append(turn(number))
            await raw.append(turn_shapes(number))
        found = await by_turns(range(rounds), lambda _: chat.messages(limit=NEWEST), lambda _: raw.newest(NEWEST))
    await raw.close()
    return found
