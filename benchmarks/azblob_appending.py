"""Does a turn cost the same on a long session as on an empty one, and how far is it from a bare block?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from azurite_proxy import proxied
from azurite_server import connection_string

from benchmarks.azblob_raw import RawBlob, our_store
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
COUNTED = 256
UPKEEP = 0.05
"""Requests per append, after its answer: now and then the ids of the latest messages are noted."""

_BEHIND = LONG  # turns with texts that the filled sessions do not hold


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(60 if quick else 200))
    requests = asyncio.run(_requests())
    empty, long, raw = medians(rounds)
    return Report(
        "append a turn of four messages to Azure Blob (Azurite)",
        [
            ("an empty session", milliseconds(empty)),
            (f"a session of {LONG:,}", milliseconds(long)),
            (f"raw SDK, bare append_block, {LONG:,} messages", milliseconds(raw)),
        ],
        [
            Goal(f"{LONG:,} against empty", ratio(rounds, 1, to=0), 1.3),
            Goal(f"{LONG:,} against raw", ratio(rounds, 1, to=2), 1.4),
            Goal("requests per append, with upkeep", requests, 1 + UPKEEP),
        ],
    )


async def _measure(rounds: int) -> Rounds:
    raw = await RawBlob.create()
    await raw.fill(LONG)
    raw_turns = [turn_shapes(_BEHIND + number) for number in range(rounds)]
    turns = [[turn(_BEHIND + number) for number in range(rounds)] for _ in range(2)]
    async with our_store(connection_string()) as store:
        # Empty, but there: so that neither side pays for the beginning of a session.
        empty = [store.session(f"empty-{number}") for number in range(rounds)]
        for chat in empty:
            await chat.annotate({"empty": True})
        long = store.session("long")
        await fill(long, LONG)
        found = await by_turns(
            range(rounds),
            lambda number: empty[number].append(turns[0][number]),
            lambda number: long.append(turns[1][number]),
            lambda number: raw.append(raw_turns[number]),
        )
    await raw.close()
    return found


async def _requests() -> float:
    """Requests per append to the long session, counted on their way."""
    async with proxied() as proxy, our_store(proxy.connection_string) as store:
        chat = store.session("long")
        for number in range(COUNTED):
            await chat.append(turn(_BEHIND * 2 + number))
        before = len(proxy.requests)
        for number in range(COUNTED):
            await chat.append(turn(_BEHIND * 3 + number))
        return (len(proxy.requests) - before) / COUNTED
