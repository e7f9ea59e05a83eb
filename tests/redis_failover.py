"""Writers that go on through a failover, and what they may have lost by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from agentstore import SessionHistory, UnavailableError
from agentstore.testing.scenes import said

BEFORE_SECONDS = 1.0
AFTER_TURNS = 20
"""Each writer must have written so many turns on the healed servers."""
HEAL_SECONDS = 40.0
REPLICATED_SECONDS = 0.5
"""What was acknowledged longer before the kill had every chance to reach the replica."""


@dataclass
class Turn:
    name: str
    acknowledged: float
    """Seconds, by the same clock as `killed`."""
    killed: float = 0.0

    @property
    def texts(self) -> list[str]:
        return [f"{self.name} question", f"{self.name} answer"]

    @property
    def may_be_lost(self) -> bool:
        """The server may have acknowledged it and died before its replica had it."""
        return self.killed - REPLICATED_SECONDS < self.acknowledged <= self.killed


async def written_until_it_heals(chats: Sequence[SessionHistory], kill: Callable[[], object]) -> list[list[Turn]]:
    """The turns of a writer for each session, in order; each is tried again, under its key, until it is acknowledged.

    Fails where a writer meets anything but success or `UnavailableError`, or the servers do not heal in time.
    """
    killed: list[float] = []
    writers = [asyncio.ensure_future(_write(chat, killed)) for chat in chats]
    await asyncio.sleep(BEFORE_SECONDS)
    kill()
    killed.append(time.monotonic())
    written = list(await asyncio.wait_for(asyncio.gather(*writers), HEAL_SECONDS))
    for turn in [turn for turns in written for turn in turns]:
        turn.killed = killed[0]
    return written


async def _write(chat: SessionHistory, killed: list[float]) -> list[Turn]:
    turns: list[Turn] = []
    after = 0
    while after < AFTER_TURNS:
        turn, healing = Turn(f"{chat.key.session_id}-{len(turns)}", 0.0), bool(killed)
        await _until_acknowledged(chat, turn)
        turns.append(turn)
        after += healing
        await asyncio.sleep(0.01)
    return turns


async def _until_acknowledged(chat: SessionHistory, turn: Turn) -> None:
    while True:
        try:
            await chat.append(said(*turn.texts), idempotency_key=turn.name)
        except UnavailableError:
            await asyncio.sleep(0.05)
            continue
        turn.acknowledged = time.monotonic()
        return


def losses(turns: Sequence[Turn], texts: Sequence[str]) -> list[str]:
    """The turns that are not there although they must be; fails where one is split, doubled or out of order."""
    names = [text.rpartition(" ")[0] for text in texts]
    assert list(texts) == [text for name in names[::2] for text in (f"{name} question", f"{name} answer")]
    there = names[::2]
    order = {turn.name: place for place, turn in enumerate(turns)}
    places = [order[name] for name in there]
    if places != sorted(set(places)):
        pytest.fail(f"doubled or out of order: {there}")
    return [turn.name for turn in turns if turn.name not in there and not turn.may_be_lost]
