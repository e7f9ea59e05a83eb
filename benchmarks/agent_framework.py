"""Is a turn of the Agent Framework on our provider never slower than on the framework's own, and flat; and a load?

Its own are the Redis provider on the same server; beside SQLite its file provider, and beside PostgreSQL the one that
keeps messages in the session's state, which writes nothing at all.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_framework import (
    AgentResponse,
    AgentSession,
    FileHistoryProvider,
    InMemoryHistoryProvider,
    Message,
    SessionContext,
)

from agentstore import open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider
from benchmarks.postgres_server import new_database
from benchmarks.redis_server import new_server
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import turn_shapes
from benchmarks.timing import Contender, Rounds, by_turns, medians, ratio

LONG = 10_000
LOADED = 1000
SHOWN = 20
_FILL = 500
_BEHIND = LONG

warnings.filterwarnings("ignore", category=FutureWarning)  # the file provider is experimental


def run(folder: Path, quick: bool) -> Report:
    rounds = 20 if quick else 60
    report = Report(f"Agent Framework: a turn of four messages on a session of {LONG:,}, and a load of {LOADED:,}")
    asyncio.run(_on(report, "SQLite", f"sqlite:///{folder}/ours.db", FileHistoryProvider(folder / "files"), rounds))
    asyncio.run(_on(report, "PostgreSQL", new_database("framework"), InMemoryHistoryProvider(), rounds))
    asyncio.run(_on_redis(report, new_server(), rounds))
    return report


async def _on_redis(report: Report, url: str, rounds: int) -> None:
    from agent_framework_redis import RedisHistoryProvider

    theirs = RedisHistoryProvider(redis_url=url, application_id="bench")
    await _on(report, "Redis", url, theirs, rounds)
    await theirs.aclose()


async def _on(report: Report, server: str, url: str, theirs: Any, rounds: int) -> None:
    async with open_store(url) as store:
        ours, whole = StoreHistoryProvider(store, max_messages=SHOWN), StoreHistoryProvider(store)
        sessions: dict[str, AgentSession] = {}
        for name, count in (("empty", 4), ("long", LONG), ("loaded", LOADED)):
            sessions[name] = AgentSession(session_id=name)
            await _fill(ours, sessions[name], count)
        await _fill(theirs, sessions["long"], LONG)
        await _fill(theirs, sessions["loaded"], LOADED)
        short, long = _turn(ours, sessions["empty"]), _turn(ours, sessions["long"])
        flat = await by_turns(range(rounds * 4), short, long)
        turns = await by_turns(range(rounds), long, _turn(theirs, sessions["long"]))
        loaded = sessions["loaded"]
        contenders = [_load_all(whole, loaded), _load(theirs, loaded), _load(whole, loaded)]
        loads = await by_turns(range(max(10, rounds // 2)), *contenders)
    _add(report, server, type(theirs).__name__, flat, turns, loads)


def _add(report: Report, server: str, theirs: str, flat: Rounds, turns: Rounds, loads: Rounds) -> None:
    (empty, long), (_, peers) = medians(flat), medians(turns)
    ours, their, window = medians(loads)
    report.lines += [
        (f"{server}: a turn on an empty session", milliseconds(empty)),
        (f"{server}: a turn on {LONG:,}", milliseconds(long)),
        (f"{server}: a turn, {theirs}", milliseconds(peers)),
        (f"{server}: load {LOADED:,}", milliseconds(ours)),
        (f"{server}: load {LOADED:,}, {theirs}", milliseconds(their)),
        (f"{server}: load them as a window (information)", milliseconds(window)),
    ]
    report.goals += [
        Goal(f"{server}: {LONG:,} against empty", ratio(flat, 1, to=0), 1.3),
        Goal(f"{server}: a turn against {theirs}", ratio(turns, 0, to=1), 1),
    ]
    if theirs != InMemoryHistoryProvider.__name__:  # that one's load is a reference to a list
        report.goals.append(Goal(f"{server}: a load against {theirs}", ratio(loads, 0, to=1), 1))


def _turn(provider: Any, session: AgentSession) -> Contender:
    """What an agent asks of its provider: load before the run, save after it."""

    async def turn(number: int) -> None:
        asked, *answered = _messages(_BEHIND + number)
        context = SessionContext(session_id=session.session_id, input_messages=[asked])
        given: dict[str, Any] = {
            "agent": None,
            "session": session,
            "context": context,
            "state": session.state.setdefault(provider.source_id, {}),
        }
        await provider.before_run(**given)
        context._response = AgentResponse(messages=answered)
        await provider.after_run(**given)

    return turn


def _load_all(provider: StoreHistoryProvider, session: AgentSession) -> Contender:
    """All messages as they are, as theirs gives them; a window is looked through for calls without results."""

    async def load(number: int) -> None:
        await provider.history(session.session_id).messages()

    return load


def _load(provider: Any, session: AgentSession) -> Contender:
    async def load(number: int) -> None:
        await provider.get_messages(session.session_id, state=session.state.get(provider.source_id))

    return load


async def _fill(provider: Any, session: AgentSession, count: int) -> None:
    add: Callable[..., Any] = provider.save_messages
    state = session.state.setdefault(provider.source_id, {})
    messages = [message for number in range(count // 4) for message in _messages(number)]
    step = _FILL if isinstance(provider, StoreHistoryProvider) else count  # theirs read all before each write
    for start in range(0, count, step):
        await add(session.session_id, messages[start : start + step], state=state)


def _messages(number: int) -> list[Message]:
    return [Message.from_dict(shape) for shape in turn_shapes(number)]
