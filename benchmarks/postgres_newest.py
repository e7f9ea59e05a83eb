"""How far is opening the newest part of a long session from a bare select, and from a peer that reads all of it?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentstore import open_store
from benchmarks.beside_peers import fill_peer, open_peers
from benchmarks.postgres_peers import LangChainHistory
from benchmarks.postgres_raw import RawPool
from benchmarks.postgres_server import new_database
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import fill
from benchmarks.timing import Rounds, by_turns, medians, ratio

LONG = 10_000
NEWEST = 20


def run(folder: Path, quick: bool) -> Report:
    against_raw, against_peer = asyncio.run(_measure(new_database("newest"), quick))
    ours, raw = medians(against_raw)
    report = Report(
        f"read the newest {NEWEST} of {LONG:,} from PostgreSQL",
        [("store, as message objects", milliseconds(ours)), ("raw asyncpg, as dicts", milliseconds(raw))],
        [Goal("against raw", ratio(against_raw, 0, to=1), 1.6)],
    )
    if not against_peer:
        report.lines.append((LangChainHistory.name, "not installed"))
        return report
    report.lines.append((LangChainHistory.name, milliseconds(medians(against_peer)[1])))
    faster = ratio(against_peer, 1, to=0)
    report.goals.append(Goal(f"times as fast as {LangChainHistory.name}", faster, 100, at_least=True))
    return report


async def _measure(url: str, quick: bool) -> tuple[Rounds, Rounds]:
    """Against raw; and against the peer, which takes so long that it has few rounds."""
    raw, peers = await RawPool.open(url, 1), await open_peers(url, LangChainHistory)
    await raw.fill(1, LONG)
    async with open_store(url) as store:
        chat = store.session("long")
        await fill(chat, LONG)
        against_raw = await by_turns(
            range(100 if quick else 600), lambda _: chat.messages(limit=NEWEST), lambda _: raw.newest(1, NEWEST)
        )
        against_peer: Rounds = []
        for peer in peers.values():
            await fill_peer(peer, LONG)
            against_peer = await by_turns(
                range(8 if quick else 15), lambda _: chat.messages(limit=NEWEST), lambda _, p=peer: p.newest(NEWEST)
            )
    for closing in (raw, *peers.values()):
        await closing.close()
    return against_raw, against_peer
