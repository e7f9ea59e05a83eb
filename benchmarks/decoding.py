"""Is reading stored messages into the Agent Framework's objects quicker than the framework's own way?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from agent_framework import Message as FrameworkMessage

from agentstore.adapters.agent_framework_codec import AgentFrameworkCodec
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import shapes
from benchmarks.timing import Rounds, by_turns, medians, ratio

COUNT = 1000


def run(folder: Path, quick: bool) -> Report:
    rounds = asyncio.run(_measure(20 if quick else 60))
    ours, theirs = medians(rounds)
    return Report(
        f"decode {COUNT:,} stored messages into Agent Framework messages",
        [("the adapter's codec", milliseconds(ours)), ("json.loads and from_dict", milliseconds(theirs))],
        [Goal("times as fast", ratio(rounds, 1, to=0), 1.5, at_least=True)],
    )


async def _measure(rounds: int) -> Rounds:
    codec = AgentFrameworkCodec()
    messages = [FrameworkMessage.from_dict(shape) for shape in shapes(COUNT)]
    payloads = [codec.encode(message)[2] for message in messages]
    texts = [json.dumps(message.to_dict()) for message in messages]

    async def ours(_: int) -> list[Any]:
        return [codec.decode(payload) for payload in payloads]

    async def theirs(_: int) -> list[FrameworkMessage]:
        return [FrameworkMessage.from_dict(json.loads(text)) for text in texts]

    return await by_turns(range(rounds), ours, theirs)
