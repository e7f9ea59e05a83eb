"""Sentinels put a replica in the master's place: calls fail clearly meanwhile, then go on there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator

import pytest
from redis_failover import losses, written_until_it_heals
from redis_groups import LocalSet
from redis_server import valkey

from agentstore import UnavailableError, open_store
from agentstore.testing.scenes import heard, said


@pytest.fixture
def servers() -> Generator[LocalSet]:
    made = LocalSet(valkey())
    made.start()
    yield made
    made.remove()


def test_a_failover_in_the_middle_of_appends(servers: LocalSet) -> None:
    """The master is killed: clear errors or success, whole turns, none doubled, and lost is at most what the server
    had not replicated.
    """

    async def main() -> None:
        async with open_store(servers.url) as store:
            chats = [store.session(f"s{number}") for number in range(4)]
            written = await written_until_it_heals(chats, lambda: servers.master.stop(signal.SIGKILL))
            for chat, turns in zip(chats, written, strict=True):
                assert losses(turns, await heard(chat)) == []

    asyncio.run(main())


def test_a_deposed_master_is_left(servers: LocalSet) -> None:
    """A planned failover: connections to what is a replica now are given up, and no turn is doubled."""

    async def main() -> None:
        async with open_store(servers.url) as store:
            chat = store.session("s")
            await chat.append(said("before"))
            servers.sentinels[0].command("SENTINEL", "FAILOVER", "chat")
            after = 0
            for number in range(200):
                try:
                    await chat.append(said(f"{number}"), idempotency_key=f"{number}")
                    after += 1
                except UnavailableError:
                    pass
                await asyncio.sleep(0.03)
                if servers.replica.info("replication")["role"] == "master" and after > 20 and number > 100:
                    break
            assert servers.replica.info("replication")["role"] == "master"
            texts = await heard(chat)
            assert texts[0] == "before"
            assert len(texts) == len(set(texts))

    asyncio.run(main())
