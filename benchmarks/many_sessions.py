"""How many turns a second do 64 sessions in one process reach, each appending a turn and reading its newest 20?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from agents import Session, SQLiteSession, TResponseInputItem

from agentstore import HistoryStore, Message, open_store
from benchmarks.raw import RawConnection
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, Shape, fill, turn, turn_shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

SESSIONS = 64
NEWEST = 20
TURNS = 8  # of each session, per round

Step = Callable[[int, int], Awaitable[Any]]
"""One turn of a session: append turn number `n` and read; called with the session's number and `n`."""


class RawHistory(Protocol):
    """What one writes by hand, by the session's number."""

    async def fill(self, session: int, count: int) -> None: ...

    async def append(self, session: int, messages: Sequence[Shape]) -> None: ...

    async def newest(self, session: int, limit: int) -> list[Shape]: ...


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(folder, 10 if quick else 24))
    ours, raw, dicts, theirs = [SESSIONS * TURNS / time for time in medians(rounds)]
    return Report(
        f"{SESSIONS} sessions at once: append a turn, read the newest {NEWEST}",
        [
            ("SQLite store", f"{ours:,.0f} turns/s"),
            ("raw connection, messages in and out", f"{raw:,.0f} turns/s"),
            ("raw connection, plain dicts", f"{dicts:,.0f} turns/s"),
            ("OpenAI Agents SDK's SQLiteSession", f"{theirs:,.0f} turns/s"),
        ],
        [
            Goal("against raw", ratio(rounds, 1, to=0), 0.9, at_least=True),
            Goal("against SQLiteSession", ratio(rounds, 3, to=0), 1, at_least=True),
        ],
    )


async def _measure(folder: Path, rounds: int) -> Rounds:
    raw = RawConnection(folder / "raw.db")
    theirs = [SQLiteSession(str(number), folder / "openai.db") for number in range(SESSIONS)]
    turns = [turn_shapes(number) for number in range(rounds * TURNS)]
    async with open_store(f"sqlite:///{folder}/ours.db") as store:
        steps = [
            await our_step(store, len(turns)),
            await raw_messages_step(raw, turns),
            await raw_step(raw, turns),
            await openai_step(theirs, turns),
        ]
        times = await by_turns(range(rounds), *[all_at_once(step) for step in steps])
    raw.close()
    for session in theirs:
        session.close()
    return times


def all_at_once(step: Step) -> Callable[[int], Awaitable[None]]:
    async def one_session(session: int, first: int) -> None:
        for number in range(first, first + TURNS):
            await step(session, number)

    async def every_session(round_number: int) -> None:
        await asyncio.gather(*[one_session(session, round_number * TURNS) for session in range(SESSIONS)])

    return every_session


async def our_step(store: HistoryStore, turns: int) -> Step:
    chats = [store.session(str(number)) for number in range(SESSIONS)]
    for chat in chats:
        await fill(chat, NEWEST)
    ready = [[turn(number) for number in range(turns)] for _ in chats]

    async def step(session: int, number: int) -> None:
        await chats[session].append(ready[session][number])
        await chats[session].messages(limit=NEWEST)

    return step


async def raw_step(raw: RawHistory, turns: list[list[Shape]]) -> Step:
    for session in range(SESSIONS):
        await raw.fill(session, NEWEST)

    async def step(session: int, number: int) -> None:
        await raw.append(session, turns[number])
        await raw.newest(session, NEWEST)

    return step


async def raw_messages_step(raw: RawHistory, turns: list[list[Shape]]) -> Step:
    """Beside a store of messages: what comes in and goes out are messages here too, in sessions of their own."""
    messages = [[Message.from_dict(shape) for shape in shapes] for shapes in turns]
    for session in range(SESSIONS):
        await raw.fill(SESSIONS + session, NEWEST)

    async def step(session: int, number: int) -> list[Message]:
        await raw.append(SESSIONS + session, [message.to_dict() for message in messages[number]])
        return [Message.from_dict(shape) for shape in await raw.newest(SESSIONS + session, NEWEST)]

    return step


async def openai_step(sessions: Sequence[Session], turns: list[list[Shape]]) -> Step:
    # The session keeps any dict as it is: the same JSON as the others keep.
    items = cast("list[list[TResponseInputItem]]", turns)
    for session in sessions:
        for number in range(NEWEST // TURN):
            await session.add_items(items[number])

    async def step(session: int, number: int) -> None:
        await sessions[session].add_items(items[number])
        await sessions[session].get_items(limit=NEWEST)

    return step
