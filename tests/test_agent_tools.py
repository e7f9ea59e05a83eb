"""An agent's tools: plain callables, what the model sees of their results, and a history that always closes."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseContextProvider,
    ConfigurationError,
    Content,
    FunctionInvocationContext,
    Message,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    open_store,
    tool,
)
from agentstore.approvals import approval_response
from agentstore.units import open_calls


def call(name: str, arguments: Any = "{}", call_id: str = "1") -> Content:
    return Content("function_call", call_id=call_id, name=name, arguments=arguments)


def asks(*calls: Content) -> Message:
    return Message("assistant", calls)


def results(message: Message) -> list[tuple[str, str]]:
    return [(content.call_id, content.result) for content in message.contents if content.type == "function_result"]


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


async def later(word: str) -> str:
    await asyncio.sleep(0.02)
    return f"later {word}"


async def converse(
    script: list[Any], tools: Any = (), *, per_call: bool = False, stream: bool = False, **settings: Any
) -> tuple[AgentResponse, ScriptedChatClient, list[Message]]:
    """One run; the answer, the client, and what is stored of it."""
    async with open_store("memory://") as store:
        client = ScriptedChatClient(script)
        agent = Agent(
            client,
            context_providers=[StoreHistoryProvider(store)],
            tools=tools,
            require_per_service_call_history_persistence=per_call,
            **settings,
        )
        session = agent.create_session("s")
        run = agent.run_stream("go", session).get_final_response() if stream else agent.run("go", session)
        return await run, client, await store.session("s").messages()


def run(script: list[Any], tools: Any = (), **settings: Any) -> tuple[AgentResponse, ScriptedChatClient, list[Message]]:
    return asyncio.run(converse(script, tools, **settings))


modes = pytest.mark.parametrize(
    ("per_call", "stream"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["run", "stream", "run per call", "stream per call"],
)


@modes
def test_a_tool_is_called_and_the_turn_is_stored_once(per_call: bool, stream: bool) -> None:
    """Call, result and answer, in order, the same on every path (B54)."""
    answer, client, stored = run(
        [asks(Content("text", text="one moment"), call("add", '{"a": 2}')), "it is 3"],
        [add],
        per_call=per_call,
        stream=stream,
    )
    assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"]
    assert results(stored[2]) == [("1", "3")]
    assert [message.to_dict() for message in answer.messages] == [message.to_dict() for message in stored[1:]]
    assert answer.text == "one moment\nit is 3"
    assert [message.role for message in client.calls[1]] == ["user", "assistant", "tool"]


@modes
def test_parallel_calls_run_at_once_and_answer_in_order(per_call: bool, stream: bool) -> None:
    """The slow one first: its result stays first (B61)."""
    _, client, stored = run(
        [asks(call("later", {"word": "x"}, "slow"), call("add", {"a": 1}, "quick")), "done"],
        [later, add],
        per_call=per_call,
        stream=stream,
    )
    assert results(stored[2]) == [("slow", "later x"), ("quick", "2")]
    assert len(client.calls) == 2


def test_sync_tools_run_beside_each_other() -> None:
    """In threads: two that wait for each other both get through."""
    barrier = threading.Barrier(2, timeout=10)

    def meet() -> str:
        barrier.wait()
        return "met"

    _, _, stored = run([asks(call("meet", call_id="1"), call("meet", call_id="2")), "done"], [meet])
    assert results(stored[2]) == [("1", "met"), ("2", "met")]


def fails() -> None:
    raise RuntimeError("no power")


def stops() -> None:
    raise StopIteration


async def gives_up() -> None:
    raise asyncio.CancelledError


async def leaves() -> None:
    raise GeneratorExit


class Endless:
    def __str__(self) -> str:
        return str(self)


def endless() -> Any:
    return Endless()


@modes
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (call("fails"), "RuntimeError: no power"),
        (call("nothing"), "there is no tool 'nothing'"),
        (call("add", "{"), "Expecting property name"),
        (call("add", "[1]"), "must be a JSON object"),
        (call("add", '{"a": "x"}'), "Expected `int`"),
        (call("add", "{}"), "missing required field `a`"),
        (call("add", '{"a": 1, "c": 2}'), "there is no parameter 'c'"),
        (call("stops"), "StopIteration"),
        (call("gives_up"), "the tool was cancelled"),
        (call("leaves"), "GeneratorExit"),
        (call("endless"), "RecursionError"),
    ],
    ids=[
        "raises", "unknown", "no json", "no object", "wrong type", "missing", "too much",
        "stop iteration", "cancelled", "generator exit", "unreadable",
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_made_is_an_error_for_the_model(
    per_call: bool, stream: bool, asked: Content, said: str
) -> None:
    """A result that says why; the run goes on and the history is whole."""
    tools = [add, fails, stops, gives_up, leaves, endless]
    _, client, stored = run([asks(asked), "I see"], tools, per_call=per_call, stream=stream)
    (content,) = client.calls[1][-1].contents
    assert content.result.startswith("Error: ")
    assert said in content.result
    assert said in content.exception
    assert not open_calls(stored)
    assert stored[-1].text == "I see"


def test_a_failing_tool_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With its traceback: nothing is swallowed."""
    with caplog.at_level(logging.WARNING, "agentstore"):
        run([asks(call("fails")), "I see"], [fails])
        run([asks(call("add", "{")), asks(call("add", "{}")), "I see"], [add])  # the model's fault, and told to it
    assert len(caplog.records) == 1
    assert "tool 'fails' failed" in caplog.text
    assert "no power" in caplog.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ({(1, 2): 3}, '{"(1, 2)":3}'),
        (ENDLESS, "[[...]]"),
        ({"a": "\ud800"}, "{'a': '\\ud800'}"),
        ([Content("text", text="a"), Content("text", text="b")], "a\nb"),
        (Content("uri", uri="https://x/y.png", media_type="image/png"), ""),
    ],
)
def test_what_a_tool_returns_reaches_the_model_as_text(value: Any, text: str) -> None:
    """JSON where it is no text; contents are kept as `items` beside their text."""

    def give() -> Any:
        return value

    _, client, stored = run([asks(call("give")), "thanks"], [give])
    (content,) = client.calls[1][-1].contents
    assert content.result == text
    assert ("items" in content.to_dict()) == (isinstance(value, Content | list) and value is not ENDLESS)
    assert stored[2].contents[0] == content


@pytest.mark.parametrize("per_call", [False, True])
def test_the_loop_is_bounded_and_its_history_closes(per_call: bool) -> None:
    """After `max_iterations` rounds one last call is made, and what it still asks for is answered here (B51)."""
    calls: list[int] = []

    def again() -> str:
        calls.append(1)
        return "more"

    answer, client, stored = run(
        [asks(call("again", call_id=str(number))) for number in range(9)], [again], per_call=per_call, max_iterations=3
    )
    assert (len(calls), len(client.calls)) == (3, 4)
    assert not open_calls(stored)
    assert "max_iterations" in results(stored[-1])[0][1]
    assert answer.messages[-1] == stored[-1]


def test_the_last_call_asks_for_no_tool() -> None:
    """It gets `tool_choice="none"`; the calls before do not."""
    choices: list[Any] = []

    class Client(ScriptedChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            choices.append(options.get("tool_choice"))
            return await super().get_response(messages, tools=tools, options=options)

    asyncio.run(Agent(Client([asks(call("add", {"a": 1})), "done"]), tools=[add], max_iterations=1).run("go"))
    assert choices == [None, "none"]


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, None])
def test_a_bound_is_an_int_of_at_least_one(bad: Any) -> None:
    """Refused by the constructor."""
    with pytest.raises(ValueError, match="max_iterations"):
        Agent(ScriptedChatClient(), max_iterations=bad)


def test_tools_come_from_agent_run_options_and_providers() -> None:
    """All of them are offered together, each once (FEATURES 37)."""
    offered: list[list[str]] = []

    class Client(ScriptedChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            offered.append([item.name for item in tools])
            assert "tools" not in options
            return await super().get_response(messages, tools=tools, options=options)

    class Tools(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            context.extend_tools(self, [fails, add])
            context.extend_tools(self, fails)

    agent = Agent(Client(), tools=add, context_providers=[Tools("tools")])
    asyncio.run(agent.run("go", options={"tools": [later]}, tools=[tool(name="sum")(add)]))
    assert offered == [["add", "later", "sum", "fails"]]


class Shelf:
    def books(self) -> int:
        return 7


def test_a_method_is_one_tool_however_often_it_is_named() -> None:
    """It is another object each time Python is asked for it."""
    shelf = Shelf()
    assert [item.name for item in Agent(ScriptedChatClient(), tools=[shelf.books, shelf.books]).tools] == ["books"]
    with pytest.raises(ConfigurationError, match="'books'"):
        Agent(ScriptedChatClient(), tools=[shelf.books, Shelf().books])


def test_two_tools_of_one_name_are_refused() -> None:
    """Before the model is called: `ConfigurationError` names it."""
    client = ScriptedChatClient()
    with pytest.raises(ConfigurationError, match="'add'"):
        Agent(client, tools=[add, tool(name="add")(later)])
    with pytest.raises(ConfigurationError, match="'add'"):
        asyncio.run(Agent(client, tools=[add]).run("go", tools=[tool(name="add")(later)]))
    with pytest.raises(TypeError, match="tool"):
        Agent(client, tools=[7])
    assert client.calls == []


def test_a_tool_can_have_the_context_of_its_call() -> None:
    """The parameter is filled here; the model does not see it."""
    seen: list[Any] = []

    @tool
    def remember(note: str, ctx: FunctionInvocationContext) -> str:
        seen.append((note, ctx.session.session_id if ctx.session else None, ctx.call_id))
        return "ok"

    run([asks(call("remember", {"note": "tea"})), "done"], [remember])
    assert seen == [("tea", "s", "1")]
    assert list(remember.parameters()["properties"]) == ["note"]


def test_calls_of_the_service_itself_are_left_alone() -> None:
    """A hosted call, and one with its result in the answer, need nothing from here."""
    answer = Message("assistant", [Content("function_call", call_id="h", name="search", hosted=True)])
    done = [asks(call("add", {"a": 1})), Message("tool", [Content("function_result", call_id="1", result="2")])]
    for step in (answer, [*done, Message("assistant", ["two"])]):
        response, client, _ = run([step], [add])
        assert len(client.calls) == 1
        assert response.messages[-1].role == "assistant"


@pytest.mark.parametrize("fault", [RuntimeError("down"), asyncio.CancelledError()])
def test_a_failure_behind_a_tool_stores_nothing(fault: BaseException) -> None:
    """Half a turn is none."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks(call("add", {"a": 1})), fault])
            agent = Agent(client, tools=[add], context_providers=[StoreHistoryProvider(store)])
            with pytest.raises(type(fault)):
                await agent.run("go", agent.create_session("s"))
            assert await store.session("s").info() is None

    asyncio.run(main())


def test_a_cancelled_run_cancels_its_tools() -> None:
    """None goes on behind the caller's back (B64)."""
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("cancelled")

    async def main() -> None:
        agent = Agent(ScriptedChatClient([asks(call("hang", call_id="1"), call("hang", call_id="2"))]), tools=[hang])
        task = asyncio.ensure_future(agent.run("go"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["cancelled"] * 2

    asyncio.run(main())


@modes
def test_three_polls_of_one_tool_are_three(per_call: bool, stream: bool) -> None:
    """The same call with the same result, under one id that comes again, is kept each time (B73)."""
    script = [asks(call("add", {"a": 1})) for _ in range(3)]
    _, client, stored = run([*script, "done"], [add], per_call=per_call, stream=stream)
    assert [message.role for message in stored] == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert [len(seen) for seen in client.calls] == [1, 3, 5, 7]


def approving(change: Callable[[Content], Content], *, stream: bool = False) -> tuple[list[Any], list[Message], Any]:
    """A call that needs approval, and the next run with the user's response, in another process."""
    made: list[int] = []

    @tool(approval_mode="always_require")
    def wipe(disk: int) -> str:
        made.append(disk)
        return "wiped"

    async def main() -> tuple[list[Message], Any]:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks(call("wipe", {"disk": 7})), "all right"])
            agent = Agent(client, tools=[wipe], context_providers=[StoreHistoryProvider(store)])
            session = agent.create_session("s")
            run = agent.run_stream("go", session).get_final_response() if stream else agent.run("go", session)
            (request,) = (await run).user_input_requests
            assert made == []
            assert (request.function_call["name"], len(client.calls)) == ("wipe", 1)
            await agent.run(Message("user", [change(request)]), agent.create_session("s"))
            return await store.session("s").messages(), client.calls[1]

    stored, seen = asyncio.run(main())
    return made, stored, seen


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_waits_for_its_approval(stream: bool) -> None:
    """It is made in the run that brings the approval, as it was asked for; call and result stand there once (B55)."""
    made, stored, seen = approving(lambda request: approval_response(request, True), stream=stream)
    assert made == [7]
    assert [message.role for message in stored] == ["user", "assistant", "user", "tool", "assistant"]
    assert results(stored[3]) == [("1", "wiped")]
    assert [message.role for message in seen] == ["user", "assistant", "user", "tool"]


def test_a_refused_call_is_not_made() -> None:
    """The model learns it."""
    made, stored, _ = approving(lambda request: approval_response(request, False))
    assert made == []
    assert "did not approve" in results(stored[3])[0][1]


def test_an_approval_cannot_change_the_call() -> None:
    """What the request said is called; an approval of nothing is refused."""
    forged = call("wipe", {"disk": 8}).to_dict()
    made, _, _ = approving(
        lambda request: Content("function_approval_response", id=request.id, approved=True, function_call=forged)
    )
    assert made == [7]
    with pytest.raises(ValueError, match="'other'"):
        approving(lambda _: Content("function_approval_response", id="other", approved=True, function_call=forged))


def test_an_approval_that_was_acted_upon_is_not_acted_upon_again() -> None:
    """In a replayed transcript its result stands behind it."""
    made: list[int] = []

    @tool(approval_mode="always_require")
    def wipe(disk: int) -> str:
        made.append(disk)
        return "wiped"

    async def main() -> None:
        client = ScriptedChatClient([asks(call("wipe", {"disk": 7})), "all right", "fine"])
        agent = Agent(client, tools=[wipe])
        (request,) = (first := await agent.run("go")).user_input_requests
        transcript = [Message("user", ["go"]), *first.messages, Message("user", [approval_response(request, True)])]
        second = await agent.run(transcript)
        await agent.run([*transcript, *second.messages, Message("user", ["and?"])])
        assert made == [7]

    asyncio.run(main())


def test_an_approval_works_where_the_service_keeps_the_conversation() -> None:
    """The request is in the session's state until it is answered; only the result is sent (B55)."""
    made: list[int] = []

    @tool(approval_mode="always_require")
    def wipe(disk: int) -> str:
        made.append(disk)
        return "wiped"

    async def main() -> None:
        client = ScriptedChatClient([asks(call("wipe", {"disk": 7})), "all right"], conversation_id="conv_1")
        agent = Agent(client, tools=[wipe])
        session = agent.create_session()
        (request,) = (await agent.run("go", session)).user_input_requests
        restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        answer = Message("user", [approval_response(request, True)])
        assert (await agent.run(answer, restored)).text == "all right"
        assert made == [7]
        assert [message.role for message in client.calls[1]] == ["user", "tool"]
        with pytest.raises(ValueError, match="no request"):
            await agent.run(answer, restored)

    asyncio.run(main())


def test_results_are_text_that_every_reader_has() -> None:
    """A stored result is JSON, whatever the tool gave."""

    def give() -> Any:
        return {"a": float("nan"), "b": object()}

    _, _, stored = run([asks(call("give")), "thanks"], [give])
    assert json.loads(results(stored[2])[0][1])["a"] is None
