"""Is a turn of the OpenAI Agents SDK on our session never slower than on the SDK's own, and flat; and a load?

Once with a session object for each turn, as a server makes it for a request, and once with one that is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import RedisSession, SQLAlchemySession
from redis.asyncio import Redis

from agentstore import open_store
from agentstore.adapters.openai_agents import StoreSession
from benchmarks.postgres_peers import engine_of
from benchmarks.postgres_server import new_database
from benchmarks.redis_server import new_server
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import Shape, turn_shapes
from benchmarks.timing import Contender, Rounds, by_turns, medians, ratio

NOISE = 1.1
"""Two that are as quick as each other differ by so much from run to run."""

LONG = 10_000
LOADED = 1000
SHOWN = 20
_FILL = 500
_BEHIND = LONG

Items = list[dict[str, Any]]
Make = Callable[[str], Any]
"""Makes the session of that id."""


def run(folder: Path, quick: bool) -> Report:
    rounds = 60 if quick else 200
    report = Report(f"OpenAI Agents SDK: a turn of four items on a session of {LONG:,}, and a load of {LOADED:,}")
    _add(report, "SQLite", "SQLiteSession", asyncio.run(_on_sqlite(folder, rounds)))
    _add(report, "PostgreSQL", "SQLAlchemySession", asyncio.run(_on_postgres(new_database("openai"), rounds)))
    _add(report, "Redis", "RedisSession", asyncio.run(_on_redis(new_server(), rounds)))
    return report


def _add(report: Report, server: str, theirs: str, measured: tuple[Rounds, Rounds]) -> None:
    turns, loads = measured
    empty, long, new, long_kept, kept = medians(turns)
    ours, peers = medians(loads)
    report.lines += [
        (f"{server}: a turn on an empty session", milliseconds(empty)),
        (f"{server}: a turn on {LONG:,}", milliseconds(long)),
        (f"{server}: a turn on a new {theirs}", milliseconds(new)),
        (f"{server}: a turn on {LONG:,}, the session kept", milliseconds(long_kept)),
        (f"{server}: a turn on a kept {theirs}", milliseconds(kept)),
        (f"{server}: load {LOADED:,}", milliseconds(ours)),
        (f"{server}: load {LOADED:,}, {theirs}", milliseconds(peers)),
    ]
    report.goals += [
        Goal(f"{server}: {LONG:,} against empty", ratio(turns, 1, to=0), 1.3),
        Goal(f"{server}: a turn against a new {theirs}", ratio(turns, 1, to=2), 1),
        Goal(f"{server}: a turn against a kept {theirs}", ratio(turns, 3, to=4), NOISE),
        Goal(f"{server}: a load against {theirs}", ratio(loads, 0, to=1), NOISE),
    ]


async def _on_sqlite(folder: Path, rounds: int) -> tuple[Rounds, Rounds]:
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        return await _measure(
            lambda name: StoreSession(store, name), lambda name: SQLiteSession(name, folder / "theirs.db"), rounds
        )


async def _on_postgres(url: str, rounds: int) -> tuple[Rounds, Rounds]:
    engine = engine_of(url)
    async with open_store(url) as store:
        measured = await _measure(
            lambda name: StoreSession(store, name),
            lambda name: SQLAlchemySession(name, engine=engine, create_tables=True),
            rounds,
        )
    await engine.dispose()
    return measured


async def _on_redis(url: str, rounds: int) -> tuple[Rounds, Rounds]:
    client: Any = Redis.from_url(url)
    async with open_store(url) as store:
        measured = await _measure(
            lambda name: StoreSession(store, name), lambda name: RedisSession(name, redis_client=client), rounds
        )
    await client.aclose()
    return measured


async def _measure(ours: Make, theirs: Make, rounds: int) -> tuple[Rounds, Rounds]:
    """Turns on session objects of their own, and on two that are kept."""
    kept, loaded = [ours("long"), theirs("long")], [ours("loaded"), theirs("loaded")]
    for session, count in ((ours("empty"), 4), *[(one, LONG) for one in kept], *[(one, LOADED) for one in loaded]):
        await _fill(session, count)
    contenders = [_turn(lambda: ours("empty")), _turn(lambda: ours("long")), _turn(lambda: theirs("long"))]
    turns = await by_turns(range(rounds), *contenders, *map(_turn_on, kept))
    loads = await by_turns(range(rounds), *map(_load, loaded))
    return turns, loads


def _turn(make: Callable[[], Any]) -> Contender:
    """On a new object each."""

    async def turn(number: int) -> None:
        session = make()
        await _turn_on(session)(number)
        if isinstance(session, SQLiteSession):
            session.close()

    return turn


def _turn_on(session: Any) -> Contender:
    """What the SDK's Runner does: read the window, add the input, then what each call of the model brought."""

    async def turn(number: int) -> None:
        asked, called, result, answer = _items(_BEHIND + number)
        await session.get_items(SHOWN)
        await session.add_items([asked])
        await session.add_items([called, result])
        await session.add_items([answer])

    return turn


def _load(session: Any) -> Contender:
    async def load(number: int) -> None:
        await session.get_items()

    return load


async def _fill(session: Any, count: int) -> None:
    items = [item for number in range(count // 4) for item in _items(number)]
    for start in range(0, count, _FILL):
        await session.add_items(items[start : start + _FILL])


def _items(number: int) -> Items:
    return [_item(shape) for shape in turn_shapes(number)]


def _item(shape: Shape) -> dict[str, Any]:
    content = shape["contents"][0]
    if content["type"] == "function_call":
        return {
            "type": "function_call",
            "id": "fc_1",
            "call_id": content["call_id"],
            "name": content["name"],
            "arguments": content["arguments"],
        }
    if content["type"] == "function_result":
        return {"type": "function_call_output", "call_id": content["call_id"], "output": content["result"]}
    if shape["role"] == "user":
        return {"role": "user", "content": content["text"]}
    text = {"type": "output_text", "text": content["text"], "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
