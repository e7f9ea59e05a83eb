"""Middleware that providers put around calls of the model and of tools (FEATURES 26, 37)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseContextProvider,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ConfigurationError,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    chat_middleware,
    function_middleware,
    open_store,
)
from agentstore.units import open_calls


class Around(BaseContextProvider):
    """Puts its middleware around the calls of a run."""

    def __init__(self, *middleware: Any, source_id: str = "around") -> None:
        super().__init__(source_id)
        self._middleware = middleware

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        for item in self._middleware:
            context.extend_middleware(self.source_id, item)


def asks(name: str, arguments: Any = "{}", call_id: str = "1") -> Message:
    return Message("assistant", [Content("function_call", call_id=call_id, name=name, arguments=arguments)])


def add(a: int) -> int:
    return a + 1


modes = pytest.mark.parametrize(
    ("per_call", "stream"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["run", "stream", "run per call", "stream per call"],
)


class Scene:
    """One agent with middleware; `stored` and `client` tell what came of it."""

    def __init__(self, script: list[Any], *middleware: Any, tools: Any = (add,)) -> None:
        self.client = ScriptedChatClient(script)
        self.middleware = middleware
        self.tools = tools
        self.stored: list[Message] = []

    async def run(self, *, per_call: bool = False, stream: bool = False) -> AgentResponse:
        async with open_store("memory://") as store:
            agent = Agent(
                self.client,
                tools=self.tools,
                context_providers=[StoreHistoryProvider(store), Around(*self.middleware)],
                require_per_service_call_history_persistence=per_call,
            )
            session = agent.create_session("s")
            try:
                if stream:
                    return await agent.run_stream("go", session).get_final_response()
                return await agent.run("go", session)
            finally:
                self.stored = await store.session("s").messages()

    def roles(self) -> list[str]:
        return [message.role for message in self.stored]


def test_middleware_stands_in_the_order_of_its_providers() -> None:
    """The first one outermost; as class, decorated function or by the type of its first parameter."""
    seen: list[str] = []

    class First(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            seen.append("first in")
            await call_next()
            seen.append("first out")

    @chat_middleware
    async def second(context: Any, call_next: Any) -> None:
        seen.append("second in")
        await call_next()
        seen.append("second out")

    async def third(context: FunctionInvocationContext, call_next: Any) -> None:
        seen.append(f"tool {context.function.name} {dict(context.arguments)}")
        await call_next()
        seen.append(f"gave {context.result}")

    agent = Agent(
        ScriptedChatClient([asks("add", {"a": 1}), "two"]),
        tools=[add],
        context_providers=[Around(First(), third), Around(second, source_id="other")],
    )
    asyncio.run(agent.run("go"))
    around = ["first in", "second in", "second out", "first out"]
    assert seen == [*around, "tool add {'a': 1}", "gave 2", *around]


@pytest.mark.parametrize("bad", [lambda context, call_next: None, 7, print])
def test_what_is_no_middleware_is_refused(bad: Any) -> None:
    """Before the model is called."""
    scene = Scene(["hi"], bad)
    with pytest.raises(ConfigurationError, match="middleware"):
        asyncio.run(scene.run())
    assert (scene.client.calls, scene.stored) == ([], [])


@modes
def test_chat_middleware_sees_and_changes_the_whole_conversation(per_call: bool, stream: bool) -> None:
    """What it adds reaches the model and is not stored."""

    class Hint(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            assert (context.stream, context.options) == (stream, {})
            assert [item.name for item in context.tools] == ["add"]
            context.messages.append(Message("system", [f"{len(context.messages)} before"]))
            await call_next()

    scene = Scene([asks("add", {"a": 1}), "two"], Hint())
    asyncio.run(scene.run(per_call=per_call, stream=stream))
    assert [seen[-1].text for seen in scene.client.calls] == ["1 before", "3 before"]
    assert scene.roles() == ["user", "assistant", "tool", "assistant"]


@modes
def test_chat_middleware_can_replace_the_answer(per_call: bool, stream: bool) -> None:
    """What it leaves is what the caller gets and what is stored: a rejected text is nowhere (B50)."""

    class Censor(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            await call_next()
            if isinstance(context.result, ResponseStream):
                context.result = await context.result.get_final_response()
            assert context.result is not None
            if "secret" in context.result.text:
                context.result = ChatResponse(Message("assistant", ["no comment"]))

    scene = Scene([asks("add", {"a": 1}), "the secret is 2"], Censor())
    answer = asyncio.run(scene.run(per_call=per_call, stream=stream))
    assert answer.text == "no comment"
    assert scene.roles() == ["user", "assistant", "tool", "assistant"]
    assert scene.stored[-1].text == "no comment"


def test_a_stream_that_middleware_has_read_is_shown_all_the_same() -> None:
    """The reader gets its updates, from the first one on."""

    class Reader(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            await call_next()
            assert isinstance(context.result, ResponseStream)
            await anext(context.result)

    async def main() -> None:
        agent = Agent(ScriptedChatClient(["hello to you"]), context_providers=[Around(Reader())])
        assert "".join([update.text async for update in agent.run_stream("hi")]) == "hello to you"

    asyncio.run(main())


def test_hooks_of_a_stream_change_the_answer() -> None:
    """Chat middleware in a stream gets one that nobody has read, and hangs its hooks on it."""

    class Hooks(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            await call_next()
            assert isinstance(context.result, ResponseStream)
            context.result.with_result_hook(lambda answer: ChatResponse(Message("assistant", [answer.text.upper()])))

    scene = Scene(["hello to you"], Hooks())
    assert asyncio.run(scene.run(stream=True)).text == "HELLO TO YOU"
    assert scene.stored[-1].text == "HELLO TO YOU"


@modes
def test_middleware_that_answers_itself_spares_the_model(per_call: bool, stream: bool) -> None:
    """A cached answer is part of the turn; a service that was not asked would not have kept it (FEATURES 26)."""

    class Cache(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            context.result = ChatResponse(Message("assistant", ["from the cache"]))

    scene = Scene(["never"], Cache())
    assert asyncio.run(scene.run(per_call=per_call, stream=stream)).text == "from the cache"
    assert scene.client.calls == []
    assert [message.text for message in scene.stored] == ([] if per_call else ["go", "from the cache"])


@modes
def test_a_call_that_middleware_asked_for_is_saved_with_the_next_call(per_call: bool, stream: bool) -> None:
    """The model sees input, call and result in its first own call: all of that is kept once."""

    class Begin(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            if len(context.messages) == 1:
                context.result = ChatResponse(asks("add", {"a": 1}))
            else:
                await call_next()

    scene = Scene(["two"], Begin())
    asyncio.run(scene.run(per_call=per_call, stream=stream))
    assert [message.role for message in scene.client.calls[0]] == ["user", "assistant", "tool"]
    assert scene.roles() == ["user", "assistant", "tool", "assistant"]


@modes
@pytest.mark.parametrize("result", [None, ChatResponse(Message("assistant", ["enough"]))], ids=["bare", "with answer"])
def test_chat_middleware_can_end_the_run(per_call: bool, stream: bool, result: Any) -> None:
    """Behind a tool: what ran is kept with its result, and the history is whole; no error reaches the caller."""

    class Veto(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            if context.messages[-1].role == "tool":
                raise MiddlewareTermination(result=result)
            await call_next()

    scene = Scene([asks("add", {"a": 1}), "never"], Veto())
    answer = asyncio.run(scene.run(per_call=per_call, stream=stream))
    assert answer.text == ("enough" if result else "")
    assert [message.role for message in answer.messages[:2]] == ["assistant", "tool"]
    # A service would have kept what it was asked and what it answered.
    kept = ["user", "assistant"] if per_call else ["user", *[message.role for message in answer.messages]]
    assert scene.roles() == kept
    assert len(scene.client.calls) == 1


class End(FunctionMiddleware):
    async def process(self, context: FunctionInvocationContext, call_next: Any) -> None:
        await call_next()
        raise MiddlewareTermination


async def end_after(context: FunctionInvocationContext, call_next: Any) -> None:
    raise MiddlewareTermination(result="not needed")


def finish(a: int) -> int:
    raise MiddlewareTermination(result=a * 2)


@modes
@pytest.mark.parametrize(
    ("middleware", "tools", "said"),
    [([End()], [add], "2"), ([end_after], [add], "not needed"), ([], [finish], "2")],
    ids=["middleware after", "middleware instead", "the tool"],
)
def test_a_run_that_ends_behind_a_tool_leaves_what_a_service_would_have_kept(
    per_call: bool, stream: bool, middleware: list[Any], tools: list[Any], said: str
) -> None:
    """Per run the closed turn; per call what the model saw and said. The next run's view is valid (FEATURES 26)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks(tools[0].__name__, {"a": 1}), "fine"])
            agent = Agent(
                client,
                tools=tools,
                context_providers=[StoreHistoryProvider(store), Around(*middleware)],
                require_per_service_call_history_persistence=per_call,
            )
            session = agent.create_session("s")
            run = agent.run_stream("go", session).get_final_response() if stream else agent.run("go", session)
            answer = await run
            assert [message.role for message in answer.messages] == ["assistant", "tool"]
            assert answer.messages[1].contents[0].result == said
            stored = await store.session("s").messages()
            assert [message.role for message in stored] == ["user", "assistant", *([] if per_call else ["tool"])]
            await agent.run("and now?", session)
            assert not open_calls(client.calls[1])
            assert [message.role for message in client.calls[1]][-1] == "user"
            assert await store.session("s").messages(limit=2) != []

    asyncio.run(main())


def test_function_middleware_changes_arguments_and_result() -> None:
    """Arguments are checked behind it, so it may mend them."""

    @function_middleware
    async def mend(context: Any, call_next: Any) -> None:
        context.arguments = {"a": context.arguments["b"]}
        await call_next()
        context.result = f"about {context.result}"

    scene = Scene([asks("add", {"b": 4}), "done"], mend)
    asyncio.run(scene.run())
    assert scene.stored[2].contents[0].result == "about 5"


def test_function_middleware_can_answer_instead() -> None:
    """The tool is not called; an error in middleware is one of the call."""
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return 1

    async def cached(context: FunctionInvocationContext, call_next: Any) -> None:
        context.result = "cached"

    async def broken(context: FunctionInvocationContext, call_next: Any) -> None:
        raise RuntimeError("policy")

    for middleware, said in ((cached, "cached"), (broken, "Error: RuntimeError: policy")):
        scene = Scene([asks("count"), "done"], middleware, tools=[count])
        asyncio.run(scene.run())
        assert scene.stored[2].contents[0].result == said
    assert calls == []


@modes
def test_a_failure_of_middleware_fails_the_run(per_call: bool, stream: bool) -> None:
    """`MiddlewareFailure` is no result for the model: the caller gets it, and the other calls are given up."""

    async def guard(context: FunctionInvocationContext, call_next: Any) -> None:
        raise MiddlewareFailure("not allowed")

    scene = Scene([asks("add", {"a": 1}), "never"], guard)
    with pytest.raises(MiddlewareFailure, match="not allowed"):
        asyncio.run(scene.run(per_call=per_call, stream=stream))
    assert len(scene.client.calls) == 1
    assert scene.roles() == (["user", "assistant"] if per_call else [])


def test_calls_in_the_answer_with_which_middleware_ends_the_run_are_not_made() -> None:
    """The run is over."""

    class Stop(ChatMiddleware):
        async def process(self, context: ChatContext, call_next: Any) -> None:
            await call_next()
            raise MiddlewareTermination

    called: list[int] = []

    def count() -> None:
        called.append(1)

    scene = Scene([asks("count"), "never"], Stop(), tools=[count])
    asyncio.run(scene.run())
    assert (called, len(scene.client.calls), scene.roles()) == ([], 1, ["user", "assistant"])


def test_a_failure_gives_up_the_other_calls() -> None:
    """None of them goes on behind the caller's back."""
    ends: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
            ends.append("done")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def guard(context: FunctionInvocationContext, call_next: Any) -> None:
        if context.function.name == "add":
            await asyncio.sleep(0.01)
            raise MiddlewareFailure("not allowed")
        await call_next()

    both = Message("assistant", [*asks("slow").contents, *asks("add", {"a": 1}, "2").contents])
    with pytest.raises(MiddlewareFailure, match="not allowed"):
        asyncio.run(asyncio.wait_for(Scene([both], guard, tools=[slow, add]).run(), 10))
    assert ends == ["cancelled"]
