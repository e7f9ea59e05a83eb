"""`agentstore demo`: an agent is told a word, its process is killed, and another process remembers."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import quote

import typer

from agentstore.cli.demo_model import QUESTION, REQUEST, SESSION, THANKS
from agentstore.cli.printing import print_line, print_table
from agentstore.errors import AgentStoreError
from agentstore.registry import open_store

ANSWER_SECONDS = 60.0
LONGEST_LINE = 2**24


def demo(remember: Annotated[str, typer.Option(help="The word that has to survive")] = "heron") -> None:
    """Tell an agent a word, kill its process with SIGKILL, and ask the next process for it."""
    if not remember.strip():
        raise typer.BadParameter("give the agent something to remember")
    with TemporaryDirectory(prefix="agentstore-demo-") as folder:
        asyncio.run(_demo(f"sqlite:///{quote(str(Path(folder) / 'demo.db'))}", remember))


async def _demo(url: str, word: str) -> None:
    async with _agent_process(url) as first:
        await _ask(first, REQUEST + word)
        await _ask(first, THANKS)
        first.kill()
        print_line(f"Process {first.pid}: killed with SIGKILL right after its answer (exit code {await first.wait()}).")
    async with _agent_process(url) as second:
        answer = await _ask(second, QUESTION)
        print_line(f"Process {second.pid}: resumed the session and was asked for the word.")
    await _print_conversation(url, [first.pid] * 4 + [second.pid] * 2)
    if word not in answer:
        raise AgentStoreError("the word did not come back")
    print_line(f"The word came back: {word}")


@asynccontextmanager
async def _agent_process(url: str) -> AsyncIterator[Process]:
    """A process with an agent on that store, which answers line by line; it is gone when the block ends."""
    command = (sys.executable, "-m", "agentstore.cli.demo_process", url)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE)
    try:
        print_line(f"Process {process.pid}: {await _line(process)} on {url}")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ask(process: Process, text: str) -> str:
    assert process.stdin is not None
    process.stdin.write(json.dumps(text).encode() + b"\n")
    return str(await _line(process))


async def _line(process: Process) -> Any:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), ANSWER_SECONDS)
    except asyncio.TimeoutError as error:
        raise AgentStoreError(f"process {process.pid} did not answer within {ANSWER_SECONDS:.0f} s") from error
    if not line:
        raise AgentStoreError(f"process {process.pid} ended without an answer: see its error above")
    return json.loads(line)


async def _print_conversation(url: str, writers: list[int]) -> None:
    async with open_store(url) as store:
        records = await store.session(SESSION).records()
    rows = [
        [str(pid), str(record.seq), record.message.role, record.message.text]
        for pid, record in zip(writers, records, strict=False)
    ]
    print_table("The conversation, as it is stored", ["Process", "Seq", "Role", "Message"], rows)
