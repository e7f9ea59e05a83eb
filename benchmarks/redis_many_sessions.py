"""How many turns a second do 64 sessions in one process reach, each appending a turn and reading its newest 20?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from agentstore import HistoryStore, open_store
from benchmarks.many_sessions import (
    NEWEST,
    SESSIONS,
    TURNS,
    Step,
    all_at_once,
    openai_step,
    our_step,
    raw_messages_step,
    raw_step,
)
from benchmarks.redis_peers import OpenAISession
from benchmarks.redis_raw import RawRedis
from benchmarks.redis_server import new_server
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, Shape, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio


class PlainDicts:
    """What a peer's session carries, as a codec: dicts that are kept as they are, and have no place for an id."""

    format = "plain/1"

    def encode(self, obj: Shape, /) -> tuple[None, bytes, bytes]:
        payload = msgspec.json.encode(obj)
        return None, payload, payload

    def decode(self, payload: bytes, /) -> Shape:
        shape: Shape = msgspec.json.decode(payload)
        return shape

    def assign_id(self, obj: Shape, message_id: str, /) -> bool:
        return False


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(new_server(), 8 if quick else 20))
    ours, raw, plain, dicts, theirs = [SESSIONS * TURNS / time for time in medians(rounds)]
    return Report(
        f"{SESSIONS} sessions at once on Redis (Valkey): append a turn, read the newest {NEWEST}",
        [
            ("Redis store", f"{ours:,.0f} turns/s"),
            ("raw redis-py, bare script and range, messages", f"{raw:,.0f} turns/s"),
            ("Redis store, plain dicts", f"{plain:,.0f} turns/s"),
            ("raw redis-py, plain dicts", f"{dicts:,.0f} turns/s"),
            (OpenAISession.name, f"{theirs:,.0f} turns/s"),
        ],
        [
            Goal("against raw", ratio(rounds, 1, to=0), 0.75, at_least=True),
            Goal("plain dicts, against raw", ratio(rounds, 3, to=2), 0.75, at_least=True),
            Goal("plain dicts, against RedisSession", ratio(rounds, 4, to=2), 1, at_least=True),
        ],
    )


async def _measure(url: str, rounds: int) -> Rounds:
    raw, client = await RawRedis(url).open(), Redis.from_url(url)
    turns = [turn_shapes(number) for number in range(rounds * TURNS)]
    async with open_store(url) as store:
        steps = [
            await our_step(store, len(turns)),
            await raw_messages_step(raw, turns),
            await _plain_step(store, turns),
            await raw_step(raw, turns),
            await openai_step(_sessions(client), turns),
        ]
        times = await by_turns(range(rounds), *[all_at_once(step) for step in steps])
    await raw.close()
    await client.aclose()
    return times


async def _plain_step(store: HistoryStore, turns: list[list[Shape]]) -> Step:
    chats = [store.session(f"plain-{number}", codec=PlainDicts()) for number in range(SESSIONS)]
    for chat in chats:
        for number in range(NEWEST // TURN):
            await chat.append(turns[number])

    async def step(session: int, number: int) -> None:
        await chats[session].append(turns[number])
        await chats[session].messages(limit=NEWEST)

    return step


def _sessions(client: Any) -> list[Any]:
    from agents.extensions.memory import RedisSession

    return [RedisSession(str(number), redis_client=client) for number in range(SESSIONS)]
