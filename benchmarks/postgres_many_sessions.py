"""How many turns a second do 64 sessions in one process reach, each appending a turn and reading its newest 20?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentstore import open_store
from benchmarks.many_sessions import (
    NEWEST,
    SESSIONS,
    TURNS,
    all_at_once,
    openai_step,
    our_step,
    raw_messages_step,
    raw_step,
)
from benchmarks.postgres_peers import OpenAISession, engine_of
from benchmarks.postgres_raw import RawPool
from benchmarks.postgres_server import CONNECTIONS, new_database
from benchmarks.report import Goal, Report
from benchmarks.sample import turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(new_database("many_sessions"), 8 if quick else 16))
    ours, raw, dicts, theirs = [SESSIONS * TURNS / time for time in medians(rounds)]
    return Report(
        f"{SESSIONS} sessions at once on PostgreSQL: append a turn, read the newest {NEWEST}",
        [
            ("PostgreSQL store", f"{ours:,.0f} turns/s"),
            ("raw asyncpg, bare insert and select, messages", f"{raw:,.0f} turns/s"),
            ("raw asyncpg, plain dicts", f"{dicts:,.0f} turns/s"),
            (OpenAISession.name, f"{theirs:,.0f} turns/s"),
        ],
        [
            Goal("against raw", ratio(rounds, 1, to=0), 0.7, at_least=True),
            Goal("against SQLAlchemySession", ratio(rounds, 3, to=0), 2, at_least=True),
        ],
    )


async def _measure(url: str, rounds: int) -> Rounds:
    raw, engine = await RawPool.open(url, CONNECTIONS), engine_of(url)
    turns = [turn_shapes(number) for number in range(rounds * TURNS)]
    async with open_store(url) as store:
        steps = [
            await our_step(store, len(turns)),
            await raw_messages_step(raw, turns),
            await raw_step(raw, turns),
            await openai_step(_sessions(engine), turns),
        ]
        times = await by_turns(range(rounds), *[all_at_once(step) for step in steps])
    await raw.close()
    await engine.dispose()
    return times


def _sessions(engine: Any) -> list[Any]:
    from agents.extensions.memory import SQLAlchemySession

    return [SQLAlchemySession(str(number), engine=engine, create_tables=True) for number in range(SESSIONS)]
