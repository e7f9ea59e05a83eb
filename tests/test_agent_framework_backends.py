"""Two turns of an Agent Framework agent on every backend, each with its own objects, as two processes have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from adapter_stores import STORES
from agent_framework import AgentSession, Content, Message
from agent_framework_contents import KINDS, ODD, alike, full, storable
from agent_framework_scene import Step, add, agent, call, kept, pay, run, session

from agentstore import HistoryStore, open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.parametrize("url", STORES),
]


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[HistoryStore]:
    async with open_store(STORES[url](folder), namespace=uuid4().hex) as store:
        yield store


@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize("each_call", [False, True], ids=["per run", "per call"])
def test_the_second_turn_remembers_the_first(url: str, stream: bool, each_call: bool, tmp_path: Path) -> None:
    """With a tool; the second agent, provider and session are new ones (B54, B127, FEATURES 25)."""

    async def main() -> None:
        async with opened(url, tmp_path) as store:
            script: list[Step] = [call(), "it is 3"]
            mode = {"tools": [add], "require_per_service_call_history_persistence": each_call}
            chat = session()
            await run(agent(StoreHistoryProvider(store), *script, **mode), "1+2?", chat, stream)
            two = agent(StoreHistoryProvider(store), "you asked 1+2", **mode)
            assert await run(two, "what?", AgentSession.from_dict(chat.to_dict()), stream) == "you asked 1+2"
            assert two.client.seen == [["1+2?", "add()", "=3", "it is 3", "what?"]]
            expected = ["1+2?", "add()", "=3", "it is 3", "what?", "you asked 1+2"]
            assert await kept(StoreHistoryProvider(store)) == expected

    asyncio.run(main())


def test_honest_repeats_replays_and_clearing(url: str, tmp_path: Path) -> None:
    """Three equal turns are six messages, a replay adds what is new, `clear` and `list_sessions` (B72, B73, B138)."""

    async def main() -> None:
        async with opened(url, tmp_path) as store:
            provider = StoreHistoryProvider(store, max_messages=4)
            assert await provider.clear("s") == 0
            assert await provider.list_sessions() == []
            one, chat = agent(provider), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await kept(provider) == ["yes", "done"] * 3
            transcript = [Message(role, [text]) for role, text in [("user", "yes"), ("assistant", "done")] * 3]
            await one.run([*transcript, Message("user", ["new"])], session=chat)
            assert await kept(provider) == [*["yes", "done"] * 3, "new", "done"]
            assert await provider.list_sessions() == ["s"]
            assert await provider.clear("s") == 8
            assert await provider.get_messages("s") == []

    asyncio.run(main())


def test_a_failed_run_leaves_nothing_and_an_approval_waits(url: str, tmp_path: Path) -> None:
    """The store holds what was answered; a decision from another session object settles it (D, B55, B65)."""

    async def main() -> None:
        async with opened(url, tmp_path) as store:
            provider = StoreHistoryProvider(store)
            one, chat = agent(provider, RuntimeError("model"), call("pay", amount=5), "paid", tools=[pay]), session()
            with pytest.raises(RuntimeError, match=r"model"):
                await one.run("pay 5", session=chat)
            assert await kept(provider) == []
            (request,) = (await one.run("pay 5", session=chat)).user_input_requests
            decision = Message("user", [request.to_function_approval_response(True)])
            await one.run(decision, session=AgentSession.from_dict(chat.to_dict()))
            assert await kept(provider) == ["pay 5", "pay() ?", "!", "=paid 5", "paid"]

    asyncio.run(main())


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
def test_every_field_of_every_kind_comes_back(url: str, odd: bool, tmp_path: Path) -> None:
    """One message of each kind of content, every field set, compared whole (B01 to B18, trap 2)."""

    async def main() -> None:
        async with opened(url, tmp_path) as store:
            provider = StoreHistoryProvider(store)
            given: list[Any] = [
                Message(
                    "assistant",
                    [full(kind, ODD if odd else None), Content.from_text("and")],
                    author_name="Ada",
                    message_id=kind,
                    additional_properties=ODD if odd else {"a": 1},
                )
                for kind in KINDS
            ]
            await provider.save_messages("s", given)
            loaded = await provider.history("s").messages()
            assert len(loaded) == len(given)
            for message, expected in zip(loaded, map(storable, given), strict=True):
                assert alike(message, expected)

    asyncio.run(main())
