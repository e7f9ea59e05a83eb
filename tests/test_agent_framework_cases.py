"""What went wrong in other histories, in real Agent Framework agents: half turns, open calls, repeats, odd limits."""

from __future__ import annotations

import asyncio
from typing import Any

import agent_framework
import pytest
from agent_framework import Content, Message
from agent_framework_scene import add, agent, call, kept, opened, pay, run, session, show

from agentstore import HistoryStore, open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore.adapters.openai_agents import StoreSession
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])


class Gated(MemoryBackend):
    """Its appends wait at a gate, before or after they are done."""

    def __init__(self, *, after: bool) -> None:
        super().__init__()
        self.after = after
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def append(self, key: Any, append: Any) -> Any:
        done = await super().append(key, append) if self.after else None
        self.reached.set()
        await self.gate.wait()
        return done or await super().append(key, append)


# D. Half turns


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after it"])
def test_a_run_cancelled_while_it_saves_stores_the_turn_once(after: bool) -> None:
    """The write is settled before the cancellation is seen; the same objects again add nothing (B45, B46, trap 8)."""

    async def main() -> None:
        backend = Gated(after=after)
        provider = StoreHistoryProvider(HistoryStore(backend))
        given = Message("user", ["hi"])
        task = asyncio.create_task(agent(provider).run(given, session=session()))
        await backend.reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        backend.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await kept(provider) == ["hi", "done"]
        await agent(provider, "again").run([*await provider.history("s").messages()], session=session())
        assert await kept(provider) == ["hi", "done", "again"]

    asyncio.run(main())


@STREAM
def test_a_run_is_over_when_its_turn_is_stored(stream: bool) -> None:
    """With a slow store the last update is there first, and the end only once all is stored (B47)."""

    async def main() -> None:
        backend = Gated(after=False)
        provider = StoreHistoryProvider(HistoryStore(backend))
        task = asyncio.create_task(run(agent(provider), "hi", session(), stream))
        await backend.reached.wait()
        await asyncio.sleep(0.05)
        assert not task.done()
        backend.gate.set()
        assert await task == "done"
        assert await kept(provider) == ["hi", "done"]

    asyncio.run(main())


@STREAM
@pytest.mark.parametrize("ready", [0, 1], ids=["no result", "after a result"])
def test_a_call_that_a_failure_left_open_is_not_shown_to_the_model(stream: bool, ready: int) -> None:
    """Around each call of the model, the failing one leaves what went before; the next run is valid (B51, B63, B64).

    What is stored stays as it is.
    """

    async def main() -> None:
        async with opened() as provider:
            script = [call(call_id=f"c{number}") for number in range(ready + 1)]
            mode = {"tools": [add], "require_per_service_call_history_persistence": True}
            one, chat = agent(provider, *script, RuntimeError("model"), "fine", **mode), session()
            with pytest.raises(RuntimeError, match=r"model"):
                await run(one, "q", chat, stream)
            left = ["q", *["add()", "=3"] * ready, "add()"]
            assert await kept(provider) == left
            await run(one, "go on", chat, stream)
            assert one.client.seen[-1] == [*left[:-1], "go on"]
            assert await kept(provider) == [*left, "go on", "fine"]

    asyncio.run(main())


def test_an_agent_at_its_limit_of_rounds_leaves_a_history_that_goes_on() -> None:
    """The framework stops calling tools: the next run's messages are whole pairs (B51)."""

    async def main() -> None:
        async with opened() as provider:
            one = agent(provider, *[call(call_id=f"c{number}") for number in range(9)], tools=[add])
            one.client.function_invocation_configuration["max_iterations"] = 2
            chat = session()
            await one.run("q", session=chat)
            one.client.script = ["fine"]
            await one.run("go on", session=chat)
            shown = one.client.seen[-1]
            assert shown.count("add()") == shown.count("=3")
            assert (shown[0], shown[-1]) == ("q", "go on")

    asyncio.run(main())


def test_a_stream_that_breaks_off_stores_nothing() -> None:
    """The service fails after the first part; the question can be asked again (B48)."""

    async def main() -> None:
        async with opened() as provider:

            class Breaking(type(agent(provider).client)):  # type: ignore[misc]
                async def _updates(self, step: Any) -> Any:
                    async for update in super()._updates(step):
                        yield update
                        raise RuntimeError("broken off")

            chat = session()
            with pytest.raises(RuntimeError, match=r"broken off"):
                await run(agent(provider, client=Breaking("half")), "q", chat, stream=True)
            assert await kept(provider) == []
            await run(agent(provider, "whole"), "q", chat, stream=True)
            assert await kept(provider) == ["q", "whole"]

    asyncio.run(main())


# E. Pairs and windows


@pytest.mark.parametrize("parallel", [2, 5])
def test_parallel_calls_and_their_results_are_one_unit(parallel: int) -> None:
    """Results in another order, in one message or in several: a window has all of them or none (B61)."""
    calls = Message("assistant", [call(call_id=f"c{number}") for number in range(parallel)])
    results = [
        Message("tool", [Content.from_function_result(f"c{number}", result=str(number))])
        for number in reversed(range(parallel))
    ]
    turn = [Message("user", ["q"]), calls, *results, Message("assistant", ["a"])]

    async def main() -> None:
        async with open_store("memory://") as store:
            await StoreHistoryProvider(store).save_messages("s", turn)
            for limit in range(1, len(turn) + 1):
                shown = await StoreHistoryProvider(store, max_messages=limit).get_messages("s")
                kinds = [content.type for message in shown for content in message.contents]
                assert kinds.count("function_call") == kinds.count("function_result")
                assert kinds.count("function_call") in (0, parallel)

    asyncio.run(main())


def test_reasoning_stays_with_what_follows_it() -> None:
    """A window never begins behind a reasoning message that the next one needs (B70)."""
    thought = Message("assistant", [Content.from_text_reasoning(text="hm", protected_data="x")])
    turn = [Message("user", ["q"]), thought, Message("assistant", [call()])]
    turn += [Message("tool", [Content.from_function_result("c1", result="3")]), Message("assistant", ["a"])]

    async def main() -> None:
        async with open_store("memory://") as store:
            await StoreHistoryProvider(store).save_messages("s", turn)
            for limit in range(1, 6):
                shown = [
                    show(message) for message in await StoreHistoryProvider(store, max_messages=limit).get_messages("s")
                ]
                assert ("hm" in shown) == ("add()" in shown)

    asyncio.run(main())


def test_a_pending_approval_is_never_closed_over() -> None:
    """Another run comes first: the call still waits, and its real result wins (B65)."""

    async def main() -> None:
        async with opened() as provider:
            one, chat = agent(provider, call("pay", amount=5), "later", "paid", tools=[pay]), session()
            (request,) = (await one.run("pay 5", session=chat)).user_input_requests
            assert "pay() ?" in await kept(provider)
            decision = Message("user", [request.to_function_approval_response(True)])
            await one.run(decision, session=chat)
            stored = await kept(provider)
            assert stored.count("=paid 5") == 1
            assert not any("cancel" in text.lower() or "error" in text.lower() for text in stored)

    asyncio.run(main())


# F. Repeats and ids


def test_the_same_words_are_kept_as_often_as_they_are_said() -> None:
    """In separate saves, in one batch, with ids and without (B73)."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", [Message("user", ["yes"]), Message("user", ["yes"])])
            await provider.save_messages("s", [Message("user", ["yes"])])
            await provider.save_messages("s", [Message("user", ["yes"], message_id=name) for name in "ab"])
            assert await kept(provider) == ["yes"] * 5

    asyncio.run(main())


def test_growing_lists_add_what_is_new() -> None:
    """[m1], [m1, m2], [m1 … m4]: four messages, each written once (B72, B76)."""

    async def main() -> None:
        async with opened() as provider:
            messages = [Message("user", [str(number)]) for number in range(4)]
            for count in (1, 2, 4, 4):
                await provider.save_messages("s", messages[:count])
            assert await kept(provider) == ["0", "1", "2", "3"]

    asyncio.run(main())


# L. The same call on every backend, and usage


def test_nothing_saved_begins_nothing() -> None:
    """An empty list, a session only looked at, one only cleared: no session is listed (B138)."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", [])
            await provider.clear("s")
            await provider.clear(session())  # the framework's session object names it too
            assert await provider.get_messages("s") == []
            assert await provider.list_sessions() == []

    asyncio.run(main())


@pytest.mark.parametrize("limit", [-1, True, 1.5, "2"])
def test_an_odd_limit_is_refused(limit: Any) -> None:
    """Nothing is 0, everything is None, all else is an error, at once (B69, B136)."""
    with pytest.raises(ValueError, match=r"max_messages"):
        StoreHistoryProvider("memory://", max_messages=limit)


@pytest.mark.parametrize("stores", [False, True], ids=["a client", "a client that stores"])
@pytest.mark.parametrize("extra", [False, True], ids=["alone", "with another provider"])
def test_the_provider_is_asked_once_a_turn(stores: bool, extra: bool) -> None:
    """Whatever else is attached, and whether or not the client says that it stores by default (B139)."""

    class Other(agent_framework.ContextProvider):
        """Adds nothing."""

    async def main() -> None:
        async with opened() as provider:
            one, chat = agent([provider, *([Other("other")] if extra else [])]), session()
            one.client.STORES_BY_DEFAULT = stores
            for text in ("a", "b"):
                await one.run(text, session=chat)
            assert await kept(provider) == ["a", "done", "b", "done"]
            assert one.client.seen[-1] == ["a", "done", "b"]

    asyncio.run(main())


def test_an_audit_alone_stores_each_turn_once() -> None:
    """The framework adds a memory of its own beside it; what that one loads is a history already (B78, FEATURES 2)."""

    async def main() -> None:
        async with opened(load_messages=False, store_context_messages=True) as audit:
            one, chat = agent(audit), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await kept(audit) == ["yes", "done"] * 3

    asyncio.run(main())


def test_usage_is_stored_with_its_turn_and_counted_once() -> None:
    """Details with None stay None; loaded usage is in the history, not in the run's own (B141)."""
    usage = {"input_token_count": 10, "output_token_count": None, "cached": 3}

    async def main() -> None:
        async with opened() as provider:
            answer = Message("assistant", [Content.from_text("a"), Content.from_usage(usage)])
            one, chat = agent(provider, answer), session()
            await one.run("q", session=chat)
            two = await one.run("again", session=chat)
            stored = [content for message in await provider.history("s").messages() for content in message.contents]
            (found,) = [content for content in stored if content.type == "usage"]
            assert found.usage_details == usage
            assert not two.usage_details

    asyncio.run(main())


def test_an_agent_goes_on_with_a_session_of_another_framework() -> None:
    """The model is sent the framework's own messages, whoever wrote them, and a reducer is given such."""
    reduced: list[Any] = []

    def reduce(messages: list[Any]) -> list[Any]:
        reduced.extend(messages)
        return messages

    async def main() -> None:
        async with open_store("memory://") as store:
            items: list[Any] = [
                {"role": "user", "content": "1+2?"},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "3"},
                {"role": "assistant", "content": "3"},
            ]
            await StoreSession(store, "s").add_items(items)
            one = agent(StoreHistoryProvider(store, reducer=reduce))
            await one.run("thanks", session=session())
            assert one.client.seen == [["1+2?", "add()", "=3", "3", "thanks"]]
            assert {type(message) for message in [*one.client.calls[0], *reduced]} == {Message}
            assert len(await StoreSession(store, "s").get_items()) == 6

    asyncio.run(main())
