"""How large are the tables and indexes beside the JSON of the messages in them?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import msgspec

from agentstore import open_store
from benchmarks.postgres_server import new_database
from benchmarks.report import Goal, Report
from benchmarks.sample import TURN, shapes, turn

LONG = 10_000

_SIZE = r"""
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relname LIKE 'agentstore\_%' AND relkind = 'r'
"""


def run(folder: Path, quick: bool) -> Report:
    size = asyncio.run(_fill_by_turns(new_database("disk")))
    # As they were given, without the ids that the store gave them.
    json = sum(len(msgspec.json.encode(shape)) for shape in shapes(LONG))
    return Report(
        f"PostgreSQL's tables and indexes of {LONG:,} messages, ids included",
        [("all of them", f"{size / LONG:,.0f} B/message"), ("the messages' JSON", f"{json / LONG:,.0f} B/message")],
        [Goal("tables and indexes against JSON", size / json, 1.1)],
    )


async def _fill_by_turns(url: str) -> int:
    async with open_store(url) as store:
        chat = store.session("long")
        for number in range(LONG // TURN):
            await chat.append(turn(number))
    connection = await asyncpg.connect(url)
    size: int = await connection.fetchval(_SIZE)
    await connection.close()
    return size
