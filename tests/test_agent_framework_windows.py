"""Sessions, windows, filters and reducers in Agent Framework agents."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import (
    AgentSession,
    Content,
    Message,
)
from agent_framework_scene import add, agent, call, kept, opened, run, session, show

from agentstore import HistoryStore, open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


# Sessions


def test_a_restored_session_finds_its_history_in_another_process(tmp_path: Path) -> None:
    """`to_dict`, a new process, `from_dict`, run: the same history (B127, B140)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> AgentSession:
        async with opened(url) as provider:
            chat = session("a session/with: odd\x00 id")
            await agent(provider, "hello").run("hi", session=chat)
            return chat

    chat = asyncio.run(main())
    code = (
        "import asyncio, json, sys\n"
        "from agent_framework import AgentSession\n"
        "from agentstore.adapters.agent_framework import StoreHistoryProvider\n"
        "session = AgentSession.from_dict(json.loads(sys.stdin.read()))\n"
        f"messages = asyncio.run(StoreHistoryProvider({url!r}).history(session.session_id).messages())\n"
        "print([message.text for message in messages])\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(chat.to_dict()), capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == "['hi', 'hello']"


def test_one_session_id_in_two_namespaces_is_two_sessions(tmp_path: Path) -> None:
    """Tenants, users and sources never meet, whatever their ids look like (B83, B85 to B87, trap 9)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> None:
        stores = {name: open_store(url, namespace=name) for name in ("a", "ab", "a:b", "A")}
        for name, store in stores.items():
            for source in ("s", "s:t"):
                await agent(StoreHistoryProvider(store, source)).run(f"{name} {source}", session=session("t:u"))
        for name, store in stores.items():
            for source in ("s", "s:t"):
                assert await kept(StoreHistoryProvider(store, source), "t:u") == [f"{name} {source}", "done"]
            assert await StoreHistoryProvider(store, "s").list_sessions() == ["t:u"]
            await store.aclose()

    asyncio.run(main())


def test_the_state_holds_nothing_that_grows(url: str) -> None:
    """The session's state stays small and plain: histories are not copied into it."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider), session()
            for _ in range(5):
                await one.run("hi", session=chat)
            assert chat.state.get("history") == {}
            assert json.loads(json.dumps(chat.to_dict())) == chat.to_dict()

    asyncio.run(main())


def test_one_provider_serves_many_agents_and_sessions_at_once(url: str) -> None:
    """Nothing of one session is seen in another; turns of one session are never torn apart (B33, B41)."""

    async def main() -> None:
        async with opened(url) as provider:
            agents = [agent(provider, call(), "3", tools=[add]) for _ in range(20)]
            await asyncio.gather(
                *(one.run(f"q{index}", session=session(f"s{index % 4}")) for index, one in enumerate(agents))
            )
            for number in range(4):
                stored = await kept(provider, f"s{number}")
                turns = [stored[start : start + 4] for start in range(0, len(stored), 4)]
                assert sorted(turns) == sorted([f"q{index}", "add()", "=3", "3"] for index in range(number, 20, 4))

    asyncio.run(main())


def test_one_provider_serves_several_event_loops(url: str) -> None:
    """An agent made at import time: `asyncio.run` after `asyncio.run`, and threads with loops of their own (B119)."""
    provider = StoreHistoryProvider(url)
    one = agent(provider)
    for number in range(3):
        asyncio.run(run(one, str(number), session(), False))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            asyncio.run(run(one, "hi", session(f"thread {number}"), False))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

    async def end() -> None:
        assert await kept(provider) == ["0", "done", "1", "done", "2", "done"]
        assert [await kept(provider, f"thread {number}") for number in range(3)] == [["hi", "done"]] * 3
        await provider.aclose()

    asyncio.run(end())


def test_the_next_run_sees_the_turn_before_it_with_a_slow_store() -> None:
    """A run ends when its turn is stored, not before (B40)."""

    class Slow(MemoryBackend):
        async def append(self, key: Any, append: Any) -> Any:
            await asyncio.sleep(0.1)
            return await super().append(key, append)

    async def main() -> None:
        one, chat = agent(StoreHistoryProvider(HistoryStore(Slow()))), session()
        start = time.monotonic()
        for text in ("a", "b"):
            await run(one, text, chat, stream=True)
        assert time.monotonic() - start >= 0.2
        assert one.client.seen[-1] == ["a", "done", "b"]

    asyncio.run(main())


# Windows, filters, reducers


def turns(count: int) -> list[Message]:
    """Turns of four messages, each with a call and its result under the same call id."""
    result = Content.from_function_result("c1", result="3")
    return [
        message
        for number in range(count)
        for message in (
            Message("user", [f"q{number}"]),
            Message("assistant", [call()]),
            Message("tool", [Content.from_dict(result.to_dict())]),
            Message("assistant", [f"a{number}"]),
        )
    ]


@pytest.mark.parametrize("keep_system", [False, True])
def test_no_window_splits_a_call_from_its_result(url: str, keep_system: bool) -> None:
    """Whatever the limit: whole units, the newest part, never a result first; the store keeps all (B57 to B61)."""

    async def main() -> None:
        async with open_store(url) as store:
            whole = StoreHistoryProvider(store)
            await whole.save_messages("s", [Message("system", ["be kind"]), *turns(4)])
            everything = await kept(whole)
            for limit in range(20):
                provider = StoreHistoryProvider(store, max_messages=limit, keep_system=keep_system)
                one = agent(provider)
                chat = session()
                context = agent_framework.SessionContext(input_messages=[], session_id="s")
                await provider.before_run(agent=one, session=chat, context=context, state={})
                seen = [show(message) for message in context.get_messages()]
                assert seen.count("add()") == seen.count("=3")
                assert seen[:1] != ["=3"]
                tail = [text for text in seen if text != "be kind"]
                assert not tail or everything[-len(tail) :] == tail
                assert len(seen) <= max(limit, 2 + keep_system) if limit else seen == []
                if keep_system and limit:
                    assert seen[0] == "be kind"
            assert await kept(whole) == everything

    asyncio.run(main())


def test_a_window_of_tokens_counts_the_frameworks_messages() -> None:
    """By default an estimate of the real text, or the caller's own count (B17, B141)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            await StoreHistoryProvider(store).save_messages("s", turns(10))
            few = await StoreHistoryProvider(store, max_tokens=40).get_messages("s")
            own = await StoreHistoryProvider(store, max_tokens=8, count_tokens=lambda message: 1).get_messages("s")
            assert 0 < len(few) < 40
            assert [show(message) for message in own][-8:] == ["q8", "add()", "=3", "a8", "q9", "add()", "=3", "a9"]

    asyncio.run(main())


def test_filters_and_reducers_see_the_frameworks_messages() -> None:
    """Sync and async: what is loaded, what is stored of input and answer, what the window is reduced to."""

    def loaded(messages: list[Any]) -> list[Any]:
        return [message for message in messages if message.text != "secret"]

    async def inputs(messages: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return [message for message in messages if not message.text.startswith("tmp")]

    def outputs(messages: list[Any]) -> list[Any]:
        return [Message(message.role, [message.text.upper()]) for message in messages]

    def newest(messages: list[Any]) -> list[Any]:
        return messages[-3:]

    async def main() -> None:
        async with opened(
            provide_output_filter=loaded, store_input_filter=inputs, store_output_filter=outputs, reducer=newest
        ) as provider:
            one, chat = agent(provider), session()
            for text in ("secret", "tmp", "b", "c"):
                await one.run(text, session=chat)
            assert await kept(provider) == ["secret", "DONE", "DONE", "b", "DONE", "c", "DONE"]
            assert one.client.seen[1] == ["DONE", "tmp"]
            assert one.client.seen[-1] == ["DONE", "b", "DONE", "c"]

    asyncio.run(main())


def test_a_reducer_that_cuts_a_pair_leaves_no_orphan() -> None:
    """A result without its call is never shown."""

    async def main() -> None:
        async with opened(reducer=lambda messages: messages[-2:]) as provider:
            await provider.save_messages("s", turns(1))
            one = agent(provider)
            await one.run("more", session=session())
            assert one.client.seen == [["a0", "more"]]

    asyncio.run(main())


@pytest.mark.parametrize("flags", [{"store_inputs": False}, {"store_outputs": False}])
def test_the_flags_say_what_is_stored(flags: dict[str, Any]) -> None:
    """As with the framework's own providers."""

    async def main() -> None:
        async with opened(**flags) as provider:
            await agent(provider).run("hi", session=session())
            assert await kept(provider) == (["done"] if "store_inputs" in flags else ["hi"])

    asyncio.run(main())
