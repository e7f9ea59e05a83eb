"""What another process does in the sentences about processes. Run by its path: `worker.py URL NAMESPACE JOB NAME`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agentstore import HistoryStore, Message, open_store

SESSION = "shared"


async def append(store: HistoryStore, name: str) -> Any:
    """Ten turns of two messages."""
    for number in range(10):
        await store.session(SESSION).append([Message("user", [f"{name}-{number} {part}"]) for part in "ab"])
    return name


async def pop(store: HistoryStore, name: str) -> Any:
    """The seqs of all that it got."""
    seqs: list[int] = []
    while popped := await store.session(SESSION).pop():
        seqs.append(popped.seq)
    return seqs


async def set_up(store: HistoryStore, name: str) -> Any:
    """Set-up and the first write of a session of its own."""
    await store.setup()
    await store.session(name).append([Message("user", [name])])
    return name


async def replay(store: HistoryStore, name: str) -> Any:
    """The same turn as every other process."""
    messages = [Message("user", [part]) for part in "ab"]
    return (await store.session(SESSION).append(messages, idempotency_key="turn")).written


JOBS = {job.__name__: job for job in (append, pop, set_up, replay)}


async def main(url: str, namespace: str, job: str, name: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()  # all start at once
    async with open_store(url, namespace=namespace) as store:
        print(json.dumps(await JOBS[job](store, name)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
