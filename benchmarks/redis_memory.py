"""How much of a Redis server's memory does a message take beside its JSON?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from agentstore import open_store
from benchmarks.redis_server import new_server, programs
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, shapes, turn

SESSIONS = 10
LENGTH = 1000


def run(folder: Path, quick: bool) -> Report:
    # As they were given, without the ids that the store gave them.
    json = SESSIONS * sum(len(msgspec.json.encode(shape)) for shape in shapes(LENGTH))
    report = Report(
        f"{SESSIONS} sessions of {LENGTH:,} messages on Redis: all keys by MEMORY USAGE, ids and index included",
        [("the messages' JSON", f"{json / SESSIONS / LENGTH:,.0f} B/message")],
    )
    for name, program in programs().items():
        size = asyncio.run(_fill_by_turns(new_server(program)))
        report.lines.append((name, f"{size / SESSIONS / LENGTH:,.0f} B/message"))
        report.goals.append(Goal(f"{name}, against JSON", size / json, 1.35))
    return report


async def _fill_by_turns(url: str) -> int:
    async with open_store(url) as store:
        for session in range(SESSIONS):
            chat = store.session(f"session-{session}")
            for number in range(LENGTH // TURN):
                await chat.append(turn(number))
    async with Redis.from_url(url) as client:
        return sum([await client.memory_usage(key, samples=0) async for key in client.scan_iter()])
