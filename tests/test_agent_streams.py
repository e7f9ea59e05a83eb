"""Streams: the same turn as a run's, saved before they end; and what a broken one leaves."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentstore import (
    Agent,
    AgentResponse,
    AgentStoreError,
    BaseChatClient,
    BaseHistoryProvider,
    ChatResponseUpdate,
    ConfigurationError,
    Content,
    HistoryStore,
    InMemoryHistoryProvider,
    Message,
    ResponseStream,
    SaveError,
    ScriptedChatClient,
    StoreHistoryProvider,
    UnavailableError,
    open_store,
)
from agentstore.units import open_calls


def call(name: str, arguments: str = "{}", call_id: str = "1") -> Content:
    return Content("function_call", call_id=call_id, name=name, arguments=arguments)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


class Streamed(BaseChatClient):
    """Gives these updates, an exception is raised in its place; `closed` tells how often a stream was cleaned up."""

    def __init__(self, *steps: list[Any]) -> None:
        self.steps = list(steps)
        self.calls: list[list[Message]] = []
        self.closed = 0

    async def stream_response(
        self, messages: Sequence[Message], *, tools: Any = (), options: Any = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        self.calls.append(list(messages))
        try:
            for step in self.steps.pop(0):
                if isinstance(step, BaseException):
                    raise step
                yield step if isinstance(step, ChatResponseUpdate) else ChatResponseUpdate(contents=step)
                await asyncio.sleep(0)
        finally:
            self.closed += 1


@asynccontextmanager
async def scene(client: Any, **settings: Any) -> AsyncIterator[tuple[Agent, HistoryStore]]:
    flags = {name: settings.pop(name) for name in ("store_partial", "on_save_error") if name in settings}
    async with open_store("memory://") as store:
        yield Agent(client, context_providers=[StoreHistoryProvider(store, **flags)], **settings), store


async def kept(store: HistoryStore) -> list[Message]:
    return await store.session("s").messages()


def interrupted(messages: Sequence[Message]) -> list[bool]:
    return ["interrupted" in message.additional_properties for message in messages]


def test_a_stream_gives_pieces_and_then_the_whole() -> None:
    """Updates as they come, the answer at the end, the turn in the store before that (FEATURES 39, B47)."""

    async def main() -> None:
        async with scene(ScriptedChatClient(["hello to you"])) as (agent, store):
            stream = agent.run_stream("hi", agent.create_session("s"))
            pieces = [update.text async for update in stream]
            assert pieces == ["hello ", "to ", "you", ""]
            assert texts(await kept(store)) == ["hi", "hello to you"]
            answer = await stream.get_final_response()
            assert isinstance(answer, AgentResponse)
            assert (answer.text, answer.finish_reason) == ("hello to you", "stop")

    asyncio.run(main())


def test_the_final_response_can_be_asked_for_at_once() -> None:
    """Without iterating; and `run(..., stream=True)` is the same stream, awaited or not."""

    async def main() -> None:
        async with scene(ScriptedChatClient(["one", "two", "three"])) as (agent, store):
            session = agent.create_session("s")
            assert (await agent.run_stream("a", session).get_final_response()).text == "one"
            assert (await agent.run("b", session, stream=True).get_final_response()).text == "two"
            assert "".join([update.text async for update in await agent.run("c", session, stream=True)]) == "three"
            assert texts(await kept(store)) == ["a", "one", "b", "two", "c", "three"]

    asyncio.run(main())


def test_a_slow_store_is_waited_for() -> None:
    """The stream reports its end only after the save; the update that says so comes behind it (B47)."""

    class Slow(InMemoryHistoryProvider):
        async def save_messages(self, *args: Any, **kwargs: Any) -> None:
            await asyncio.sleep(0.2)
            await super().save_messages(*args, **kwargs)

    async def main() -> None:
        agent = Agent(ScriptedChatClient(["hello"]), context_providers=[Slow()])
        session = agent.create_session()
        async for update in agent.run_stream("hi", session):
            if update.finish_reason:
                break
        assert texts(session.state["memory"]["messages"]) == ["hi", "hello"]

    asyncio.run(main())


def test_nothing_happens_before_a_stream_is_read() -> None:
    """Neither a call of the model nor a read of the store; bad input and options are found at the first read."""

    async def main() -> None:
        client = ScriptedChatClient()
        async with scene(client) as (agent, store):
            agent.run_stream("hi", agent.create_session("s"))
            with pytest.raises(TypeError, match="input"):
                await agent.run_stream(7).get_final_response()  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="'flavour'"):
                await agent.run_stream("hi", options={"flavour": 1}).get_final_response()
            assert client.calls == []
            assert await store.session("s").info() is None

    asyncio.run(main())


async def leave_by_break(stream: ResponseStream[Any, Any]) -> None:
    async for update in stream:
        if update.text == "hello ":
            break


async def leave_by_with(stream: ResponseStream[Any, Any]) -> None:
    async with stream:
        await leave_by_break(stream)


async def leave_by_close(stream: ResponseStream[Any, Any]) -> None:
    await leave_by_break(stream)
    await stream.aclose()
    await stream.aclose()


async def leave_by_cancel(stream: ResponseStream[Any, Any]) -> None:
    begun = asyncio.Event()
    stream.with_transform_hook(lambda update: begun.set() if update.text == "hello " else None)
    task = asyncio.ensure_future(stream.get_final_response())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


LEAVING = [leave_by_break, leave_by_with, leave_by_close, leave_by_cancel]


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("per_call", [False, True])
def test_a_stream_left_half_way_stores_nothing(leave: Any, per_call: bool) -> None:
    """However it is left; the model's stream is closed, and the next turn is as if it had never been (FEATURES 16)."""

    async def main() -> None:
        client = Streamed(["hello ", "to ", "you", "all"], ["fine"])
        async with scene(client, require_per_service_call_history_persistence=per_call) as (agent, store):
            await leave(agent.run_stream("hi", agent.create_session("s")))
            gc.collect()
            await asyncio.sleep(0.01)
            assert client.closed == 1
            assert await store.session("s").info() is None
            await agent.run_stream("again", agent.create_session("s")).get_final_response()
            assert texts(client.calls[1]) == ["again"]

    asyncio.run(main())


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("per_call", [False, True])
def test_a_partial_turn_can_be_kept(leave: Any, per_call: bool) -> None:
    """Input and what was shown, marked, once; the next turn sees it, and it is valid (B48)."""

    async def main() -> None:
        client = Streamed(["hello ", "to ", "you", "all"], ["fine"])
        flags = {"store_partial": True, "require_per_service_call_history_persistence": per_call}
        async with scene(client, **flags) as (agent, store):
            await leave(agent.run_stream("hi", agent.create_session("s")))
            gc.collect()
            await asyncio.sleep(0.01)
            asked, shown = await kept(store)
            assert asked.text == "hi"
            assert "hello to you all".startswith(shown.text.replace("  ", " ").strip())
            assert shown.text.startswith("hello ")
            assert interrupted([asked, shown]) == [False, True]
            await agent.run_stream("again", agent.create_session("s")).get_final_response()
            assert texts(client.calls[1]) == ["hi", shown.text, "again"]
            assert texts(await kept(store)) == ["hi", shown.text, "again", "fine"]

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_partial_turn_without_an_answer_is_the_input(stream: bool) -> None:
    """The model failed at once: the question is kept, marked; asking it again with the same object is one question."""

    async def main() -> None:
        async with scene(ScriptedChatClient([RuntimeError("400"), "fine"]), store_partial=True) as (agent, store):
            session, question = agent.create_session("s"), Message("user", ["hi"])

            async def ask() -> AgentResponse:
                if stream:
                    return await agent.run_stream(question, session).get_final_response()
                return await agent.run(question, session)

            with pytest.raises(RuntimeError, match="400"):
                await ask()
            assert interrupted(await kept(store)) == [True]
            assert (await ask()).text == "fine"
            assert texts(await kept(store)) == ["hi", "fine"]
            assert question.additional_properties == {}

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("per_call", [False, True])
def test_a_partial_turn_keeps_the_tools_that_ran(stream: bool, per_call: bool) -> None:
    """Call and result, once and in order, when the model fails behind them (B50, B64)."""

    async def main() -> None:
        client = ScriptedChatClient([Message("assistant", [call("now")]), RuntimeError("down"), "fine"])
        flags = {"store_partial": True, "require_per_service_call_history_persistence": per_call, "tools": [now]}
        async with scene(client, **flags) as (agent, store):
            session = agent.create_session("s")
            run = agent.run_stream("hi", session).get_final_response() if stream else agent.run("hi", session)
            with pytest.raises(RuntimeError, match="down"):
                await run
            stored = await kept(store)
            assert [message.role for message in stored] == ["user", "assistant", "tool"]
            assert interrupted(stored) == [False, False, True]
            await agent.run("again", session)
            assert [message.role for message in client.calls[2]] == ["user", "assistant", "tool", "user"]

    def now() -> str:
        return "noon"

    asyncio.run(main())


def test_a_cancelled_tool_leaves_no_open_call_in_view() -> None:
    """The call was shown and is kept; the next model call sees none without a result (B63, B64)."""

    async def hang() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        client = ScriptedChatClient([Message("assistant", ["wait", call("hang")]), "fine"])
        async with scene(client, store_partial=True, tools=[hang]) as (agent, store):
            task = asyncio.ensure_future(agent.run("hi", agent.create_session("s")))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert interrupted(await kept(store)) == [False, True]
            await agent.run("again", agent.create_session("s"))
            assert not open_calls(client.calls[1])
            assert texts(client.calls[1]) == ["hi", "wait", "again"]

    asyncio.run(main())


def test_half_a_call_and_a_last_thought_are_not_kept() -> None:
    """Arguments that broke off can be read by nobody, and reasoning needs what follows it (B70)."""

    async def main() -> None:
        pieces = [
            ["let me see"],
            [call("now", '{"a": ')],
            [Content("text_reasoning", text="hm")],
            RuntimeError("cut"),
        ]
        async with scene(Streamed(pieces), store_partial=True) as (agent, store):
            with pytest.raises(RuntimeError, match="cut"):
                await agent.run_stream("hi", agent.create_session("s")).get_final_response()
            assert [content.type for content in (await kept(store))[1].contents] == ["text"]

    asyncio.run(main())


def test_an_agent_can_keep_partial_turns_in_the_session() -> None:
    """`Agent(store_partial=True)` holds for the provider that it makes itself."""
    agent = Agent(ScriptedChatClient([RuntimeError("down")]), store_partial=True)
    session = agent.create_session()
    with pytest.raises(RuntimeError, match="down"):
        asyncio.run(agent.run("hi", session))
    assert texts(session.state["memory"]["messages"]) == ["hi"]


def test_a_partial_turn_that_cannot_be_saved_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The caller learns why the run ended, the log what was lost."""
    agent = Agent(ScriptedChatClient([RuntimeError("the model")]), context_providers=[Broken("b", store_partial=True)])
    with caplog.at_level(logging.ERROR, "agentstore"), pytest.raises(RuntimeError, match="the model"):
        asyncio.run(agent.run("hi"))
    assert "interrupted turn was lost" in caplog.text


class Broken(BaseHistoryProvider):
    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        return []

    async def save_messages(self, session_id: str | None, messages: Any, *, state: Any = None, **kwargs: Any) -> None:
        raise UnavailableError("down")


@pytest.mark.parametrize("per_call", [False, True])
def test_a_failing_save_reaches_the_reader_of_a_stream(per_call: bool) -> None:
    """At once, with the answer, and again when the final response is asked for; nothing hangs (B49)."""

    async def main() -> None:
        agent = Agent(
            ScriptedChatClient(["precious"]),
            context_providers=[Broken("broken")],
            require_per_service_call_history_persistence=per_call,
        )
        stream = agent.run_stream("hi")
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(SaveError, match="'broken'") as caught:
                await stream.get_final_response()
            assert getattr(caught.value.response, "text", None) == "precious"
        assert "".join([update.text for update in stream.updates]) == "precious"
        assert time.monotonic() - began < 1

    asyncio.run(main())


def test_two_tasks_can_wait_for_one_answer() -> None:
    """The run happens once; both get the whole."""

    async def main() -> None:
        agent = Agent(Streamed([ChatResponseUpdate(contents=["hel"]), ChatResponseUpdate(contents=["lo"])]))
        session = agent.create_session()
        stream = agent.run_stream("hi", session)
        first, second = await asyncio.gather(stream.get_final_response(), stream.get_final_response())
        assert first is second
        assert texts(session.state["memory"]["messages"]) == ["hi", "hello"]

    asyncio.run(main())


@pytest.mark.parametrize("update", [None, "text", Message("assistant", ["text"])])
def test_what_is_no_update_is_an_error(update: Any) -> None:
    """The error names the client."""

    class Wrong(BaseChatClient):
        async def stream_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> AsyncIterator[Any]:
            yield update

    with pytest.raises(AgentStoreError, match="Wrong"):
        asyncio.run(collected(Agent(Wrong()).run_stream("hi")))


async def collected(stream: Any) -> list[Any]:
    return [update async for update in stream]


def test_a_closed_stream_has_no_final_response() -> None:
    """It says so, instead of an answer that is none."""

    async def main() -> None:
        stream = Agent(ScriptedChatClient(["hello to you"])).run_stream("hi")
        await leave_by_close(stream)
        with pytest.raises(AgentStoreError, match="closed before its end"):
            await stream.get_final_response()

    asyncio.run(main())


def test_calls_come_in_pieces() -> None:
    """Name first, arguments bit by bit, two calls woven into each other; usage is summed and not stored (B141)."""
    usage = Content("usage", usage_details={"input_token_count": 3, "output_token_count": 2})

    async def main() -> None:
        pieces = [
            [call("add", "", "x")],
            [call("", '{"a"', "x")],
            [call("add", '{"a": 5', "y")],
            [call("", ": 1}", "x")],
            [call("", "}", "")],
            [usage],
        ]
        async with scene(Streamed(pieces, ["done", [usage]]), tools=[add]) as (agent, store):
            answer = await agent.run_stream("hi", agent.create_session("s")).get_final_response()
            assert answer.usage_details == {"input_token_count": 6, "output_token_count": 4}
            stored = await kept(store)
            assert [content.arguments for content in stored[1].contents] == ['{"a": 1}', '{"a": 5}']
            assert [content.type for message in stored for content in message.contents].count("usage") == 0

    def add(a: int) -> int:
        return a + 1

    asyncio.run(main())


def test_a_client_that_cannot_stream_gives_its_answer_at_once() -> None:
    """`BaseChatClient` does that; one without `stream_response` is refused with its name."""

    class Whole(BaseChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            return await ScriptedChatClient(["hello to you"]).get_response(messages)

    class RunOnly:
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            return await ScriptedChatClient(["hello"]).get_response(messages)

    async def main() -> None:
        pieces = [update.text async for update in Whole().as_agent().run_stream("hi")]
        assert pieces == ["hello to you", ""]
        agent = Agent(RunOnly())  # type: ignore[arg-type]
        assert (await agent.run("hi")).text == "hello"
        with pytest.raises(ConfigurationError, match="RunOnly"):
            await agent.run_stream("hi").get_final_response()

    asyncio.run(main())


def test_hooks_change_updates_and_answer() -> None:
    """In order; `None` leaves them; the cleanup comes once, however the stream ends."""

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def main() -> None:
        ends: list[str] = []
        for leave in (False, True):
            stream: ResponseStream[int, int] = ResponseStream(numbers(), finalizer=sum)
            stream.with_transform_hook(lambda number: number * 10).with_transform_hook(lambda number: None)
            stream.with_result_hook(lambda total: total + 1).with_cleanup_hook(lambda: ends.append("end"))
            async with stream:
                if not leave:
                    assert await stream.get_final_response() == 31
                    assert stream.updates == [0, 10, 20]
        assert ends == ["end", "end"]

    asyncio.run(main())


words = st.sampled_from(["", "a", "a b", " a  b ", "\n", "a\u2028b"])
parts = st.one_of(
    words.map(lambda text: Content("text", text=text)),
    words.map(lambda text: Content("text", text=text, annotations=[])),
    words.map(lambda text: Content("text_reasoning", text=text)),
    st.sampled_from(['{"a": 1}', "", "{"]).map(lambda arguments: call("add", arguments, call_id=arguments)),
    st.just(call("add", call_id="")),
    st.just(Content("uri", uri="https://x", media_type="image/png")),
)
answers = st.lists(parts, max_size=4).map(
    lambda contents: Message("assistant", contents, author_name="x", additional_properties={"k": [1]})
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(words, answers, st.lists(answers, min_size=1, max_size=3)), min_size=3, max_size=3))
@example([[Message("assistant", ["a"]), Message("assistant", ["b"])], "c", "d"])
def test_run_and_stream_store_the_same(script: list[Any]) -> None:
    """Whatever the model says, in messages, texts and calls: the stored lists are equal but for ids (B54)."""

    async def stored(*, stream: bool) -> list[dict[str, Any]]:
        async with scene(ScriptedChatClient(script), tools=[add]) as (agent, store):
            session = agent.create_session("s")
            if stream:
                await agent.run_stream("go", session).get_final_response()
            else:
                await agent.run("go", session)
            kept_messages = [message.to_dict() for message in await kept(store)]
        for message in kept_messages:
            del message["message_id"]
        return kept_messages

    def add(a: int) -> int:
        return a + 1

    assert asyncio.run(stored(stream=True)) == asyncio.run(stored(stream=False))
