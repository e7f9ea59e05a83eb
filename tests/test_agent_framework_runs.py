"""Runs of Agent Framework agents that fail, stream, call tools, wait for approvals or keep history at a service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    AgentSession,
    ChatResponse,
    Content,
    Message,
)
from agent_framework_scene import Scripted, Step, add, agent, call, kept, logged, opened, pay, run, session, show

from agentstore import ConfigurationError, HistoryStore, SaveError, UnavailableError
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


# Failure, cancellation, streams


def test_a_failed_run_stores_nothing(url: str) -> None:
    """Neither input nor part of an answer; also when the model fails after a tool ran (FEATURES 16)."""

    async def main() -> None:
        async with opened(url) as provider:
            one = agent(provider, RuntimeError("model"), call(), RuntimeError("model"), "fine", tools=[add])
            chat = session()
            for _ in range(2):
                with pytest.raises(Exception, match=r"model"):
                    await one.run("hi", session=chat)
            assert await kept(provider) == []
            await one.run("hi", session=chat)
            assert await kept(provider) == ["hi", "fine"]

    asyncio.run(main())


def test_a_cancelled_run_stores_nothing() -> None:
    """Cancelled while the model is thinking."""

    class Slow(Scripted):
        async def _answer(self, step: Step) -> ChatResponse:
            await asyncio.sleep(60)
            raise AssertionError

    async def main() -> None:
        async with opened() as provider:
            task = asyncio.create_task(agent(provider, client=Slow()).run("hi", session=session()))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await kept(provider) == []

    asyncio.run(main())


class Failing(MemoryBackend):
    async def append(self, key: Any, append: Any) -> Any:
        raise UnavailableError("the disk is gone")


@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
def test_a_failing_save_raises_at_once_and_carries_the_answer(stream: bool) -> None:
    """The model's answer is not lost with it; a stream does not hang (B49)."""

    async def main() -> None:
        one = agent(StoreHistoryProvider(HistoryStore(Failing())), "precious")
        with pytest.raises(SaveError, match=r"the disk is gone") as caught:
            await asyncio.wait_for(run(one, "hi", session(), stream), 5)
        assert caught.value.response.text == "precious"  # type: ignore[attr-defined]
        assert isinstance(caught.value.__cause__, UnavailableError)

    asyncio.run(main())


def test_a_failing_save_can_be_logged_instead(caplog: pytest.LogCaptureFixture) -> None:
    """`on_save_error="log"`: the run answers."""

    async def main() -> None:
        provider = StoreHistoryProvider(HistoryStore(Failing()), on_save_error="log")
        assert (await agent(provider, "precious").run("hi", session=session())).text == "precious"

    asyncio.run(main())
    assert "could not save" in logged(caplog)[0]


def test_a_stream_stores_the_turn_at_its_end(url: str) -> None:
    """Nothing before; then the same list as a plain run, and the answer once (B47, B54)."""

    async def main() -> None:
        async with opened(url) as provider:
            script: list[Step] = [call(), [Message("assistant", [Content.from_text("a"), Content.from_text("b")])]]
            one, chat = agent(provider, *script, tools=[add]), session()
            running = one.run("1+2?", session=chat, stream=True)
            async for _ in running:
                assert await kept(provider) == []
            final = await running.get_final_response()
            assert await kept(provider) == ["1+2?", "add()", "=3", "ab"]
            assert all(message.message_id for message in final.messages)
            await agent(provider, call(), "ab", tools=[add]).run("1+2?", session=session("plain"))
            assert await kept(provider, "plain") == await kept(provider)

    asyncio.run(main())


def test_an_abandoned_stream_stores_nothing() -> None:
    """Its consumer went away after the first part."""

    async def main() -> None:
        async with opened() as provider:
            one, chat = agent(provider, [Message("assistant", ["a"]), Message("assistant", ["b"])]), session()
            running = one.run("hi", session=chat, stream=True)
            async for _ in running:
                break
            del running
            await asyncio.sleep(0.05)
            assert await kept(provider) == []
            await run(one, "hi", chat, True)
            assert await kept(provider) == ["hi", "done"]

    asyncio.run(main())


# Tools and approvals


@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize("each_call", [False, True], ids=["per run", "per call"])
def test_every_way_of_running_stores_the_same_list(url: str, stream: bool, each_call: bool) -> None:
    """Per run or around each call of the model, streamed or not (B54, FEATURES 25)."""

    async def main() -> None:
        async with opened(url) as provider:
            script: list[Step] = [call(), call(call_id="c2"), "3", "bye"]
            one = agent(provider, *script, tools=[add], require_per_service_call_history_persistence=each_call)
            chat = session()
            await run(one, "1+2?", chat, stream)
            await run(one, "thanks", chat, stream)
            assert await kept(provider) == ["1+2?", "add()", "=3", "add()", "=3", "3", "thanks", "bye"]
            assert one.client.seen == [
                ["1+2?"],
                ["1+2?", "add()", "=3"],
                ["1+2?", "add()", "=3", "add()", "=3"],
                ["1+2?", "add()", "=3", "add()", "=3", "3", "thanks"],
            ]

    asyncio.run(main())


def test_per_call_mode_leaves_no_context_twice() -> None:
    """An audit provider beside it, with a source of context: each message once per call of the model."""

    async def main() -> None:
        async with opened() as provider:
            audit = StoreHistoryProvider(provider.store, "audit", load_messages=False, store_context_messages=True)
            one = agent(
                [provider, audit], call(), "3", "bye", tools=[add], require_per_service_call_history_persistence=True
            )
            chat = session()
            await one.run("1+2?", session=chat)
            await one.run("thanks", session=chat)
            assert await kept(audit) == await kept(provider) == ["1+2?", "add()", "=3", "3", "thanks", "bye"]

    asyncio.run(main())


def test_several_results_of_one_turn_are_one_append(url: str) -> None:
    """Parallel calls and their results stay in the order of the model."""

    async def main() -> None:
        async with opened(url) as provider:
            both = Message("assistant", [call(call_id="c1"), call(call_id="c2", a=3, b=4)])
            await agent(provider, both, "ok", tools=[add]).run("both", session=session())
            assert await kept(provider) == ["both", "add() add()", "=3 =7", "ok"]

    asyncio.run(main())


def test_an_approval_waits_in_the_store_for_another_process(url: str) -> None:
    """Pending: stored, and shown to the model's next run. Settled: stored, and left out of what the model sees.

    The call and its result are there once, also when the decision comes from a restored session (B55, B65).
    """

    async def main() -> None:
        async with opened(url) as provider:
            client = Scripted(call("pay", amount=5), "paid it", "bye")
            one, chat = agent(provider, client=client, tools=[pay]), session()
            asked = await one.run("pay 5", session=chat)
            (request,) = asked.user_input_requests
            assert await kept(provider) == ["pay 5", "pay() ?"]
            pending = [show(message) for message in await provider.for_model(await provider.get_messages("s"))]
            assert pending == ["pay 5", "pay() ?"]

            restored = AgentSession.from_dict(json.loads(json.dumps(chat.to_dict())))
            other = agent(StoreHistoryProvider(provider.store), client=client, tools=[pay])
            decision = Message("user", [request.to_function_approval_response(True)])
            assert (await other.run(decision, session=restored)).text == "paid it"
            assert await kept(provider) == ["pay 5", "pay() ?", "!", "=paid 5", "paid it"]
            await other.run("thanks", session=restored)
            assert client.seen[-1] == ["pay 5", "pay()", "=paid 5", "paid it", "thanks"]
            marks = [message.additional_properties["_attribution"] for message in client.calls[-1][:-1]]
            assert marks == [{"source_id": "history", "source_type": "StoreHistoryProvider"}] * 4
            assert len(await kept(provider)) == 7

    asyncio.run(main())


def test_what_is_empty_is_not_shown_to_the_model() -> None:
    """As with the framework's own providers; it stays in the store."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", [Message("user", ["hi"]), Message("assistant", [])])
            shown = await provider.for_model(await provider.get_messages("s"))
            assert [message.text for message in shown] == ["hi"]
            one = agent(provider)
            await one.run("more", session=session())
            assert one.client.seen == [["hi", "more"]]
            assert await kept(provider) == ["hi", "", "more", "done"]

    asyncio.run(main())


# Histories that the service keeps


@pytest.mark.parametrize(("choice", "stored"), [("skip", []), ("store_only", ["two", "done"])])
@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
def test_a_service_managed_session_is_left_to_the_service(choice: Any, stored: list[str], stream: bool) -> None:
    """Nothing is loaded; saved only where that is asked for (FEATURES 23, B139)."""

    async def main() -> None:
        async with opened(on_service_managed=choice) as provider:
            await provider.save_messages("s", [Message("user", ["local"])])
            one = agent(provider, client=Scripted(conversation_id="conv"))
            chat = one.get_session("conv", session_id="s")
            await run(one, "two", chat, stream)
            assert one.client.seen == [["two"]]
            assert await kept(provider) == ["local", *stored]

    asyncio.run(main())


def test_a_service_managed_session_can_be_an_error() -> None:
    """Before the model is called."""

    async def main() -> None:
        async with opened(on_service_managed="error") as provider:
            one = agent(provider)
            with pytest.raises(ConfigurationError, match=r"at the service"):
                await one.run("hi", session=one.get_session("conv"))
            assert one.client.calls == []

    asyncio.run(main())


def test_a_session_that_the_service_takes_over_is_skipped_from_then_on() -> None:
    """The first answer names a conversation: the service has that turn too."""

    async def main() -> None:
        async with opened() as provider:
            one, chat = agent(provider, client=Scripted(conversation_id="conv")), session()
            for text in ("one", "two"):
                await one.run(text, session=chat)
            assert chat.service_session_id == "conv"
            assert one.client.seen == [["one"], ["two"]]
            assert await kept(provider) == []

    asyncio.run(main())
