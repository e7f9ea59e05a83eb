"""How large is a database beside the JSON of its messages?"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from agentstore import open_store
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, shapes, turn

LONG = 10_000


def run(folder: Path, quick: bool) -> Report:
    path = folder / "ours.db"
    asyncio.run(_fill_by_turns(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = path.stat().st_size
    # As they were given, without the ids that the store gave them.
    json = sum(len(msgspec.json.encode(shape)) for shape in shapes(LONG))
    return Report(
        f"a SQLite database of {LONG:,} messages, ids and indexes included",
        [("file", f"{file / LONG:,.0f} B/message"), ("the messages' JSON", f"{json / LONG:,.0f} B/message")],
        [Goal("file against JSON", file / json, 1.3)],
    )


async def _fill_by_turns(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        chat = store.session("long")
        for number in range(LONG // TURN):
            await chat.append(turn(number))
