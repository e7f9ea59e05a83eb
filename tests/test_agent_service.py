"""Conversations that the model's service keeps, and histories that are saved around each call (FEATURES 22 to 25)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentSession,
    BaseChatClient,
    BaseContextProvider,
    ChatResponse,
    ChatResponseUpdate,
    ConfigurationError,
    Content,
    HistoryStore,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    SaveError,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    UnavailableError,
    open_store,
    tool,
)
from agentstore.approvals import approval_response
from agentstore.units import open_calls


def asks(*call_ids: str, name: str = "add") -> Message:
    calls = [Content("function_call", call_id=call_id, name=name, arguments={"a": 1}) for call_id in call_ids]
    return Message("assistant", calls)


def add(a: int) -> int:
    return a + 1


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


class Service(BaseChatClient):
    """A service that keeps conversations, under an id that each answer gives anew; `calls` holds what it was sent."""

    def __init__(self, script: Sequence[Any] = ()) -> None:
        self.calls: list[tuple[str | None, list[str]]] = []
        self._script = list(script)

    def _answer(self, messages: Sequence[Message], options: Any) -> ChatResponse:
        self.calls.append((options.get("conversation_id"), roles(messages)))
        step = self._script.pop(0) if self._script else Message("assistant", ["ok"])
        if isinstance(step, BaseException):
            raise step
        return ChatResponse(step, conversation_id=f"resp_{len(self.calls)}")

    async def get_response(self, messages: Sequence[Message], *, tools: Any = (), options: Any = None) -> ChatResponse:
        return self._answer(messages, options)


async def ask(agent: Agent, text: str, session: AgentSession, *, stream: bool, options: Any = None) -> str:
    if stream:
        return (await agent.run_stream(text, session, options).get_final_response()).text
    return (await agent.run(text, session, options)).text


@pytest.mark.parametrize("stream", [False, True])
def test_the_id_of_the_service_is_carried_and_updated(stream: bool) -> None:
    """From the session into the options, from the answer into the session; only what is new is sent (FEATURES 22)."""

    async def main() -> None:
        client = Service()
        agent = Agent(client, instructions="be brief")
        session = agent.get_session(service_session_id="resp_0")
        for text in ("a", "b"):
            await ask(agent, text, session, stream=stream)
        assert client.calls == [("resp_0", ["system", "user"]), ("resp_1", ["system", "user"])]
        assert session.service_session_id == "resp_2"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_in_the_tool_loop_only_results_are_sent(stream: bool) -> None:
    """The service has the rest already."""

    async def main() -> None:
        client = Service([asks("1", "2"), asks("3"), Message("assistant", ["done"])])
        agent = Agent(client, tools=[add])
        assert await ask(agent, "go", agent.create_session(), stream=stream) == "done"
        assert client.calls == [(None, ["user"]), ("resp_1", ["tool"]), ("resp_2", ["tool"])]

    asyncio.run(main())


def test_the_id_is_known_while_the_answer_still_streams() -> None:
    """With the first update that has it; a stream left half-way has it too."""

    async def main() -> None:
        agent = Agent(ScriptedChatClient(["hello to you"], conversation_id="conv_1"))
        session = agent.create_session()
        async with agent.run_stream("hi", session) as stream:
            assert (await anext(stream)).text == "hello "
            assert session.service_session_id == "conv_1"
        assert session.service_session_id == "conv_1"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_fails_behind_a_call_is_gone_on_from_before_it(stream: bool) -> None:
    """The service's newest response waits for a result that it will never get: the session keeps the one before."""

    async def main() -> None:
        client = Service([Message("assistant", ["one"]), asks("1"), RuntimeError("down"), Message("assistant", ["ok"])])
        agent = Agent(client, tools=[add])
        session = agent.create_session()
        await ask(agent, "a", session, stream=stream)
        with pytest.raises(RuntimeError, match="down"):
            await ask(agent, "b", session, stream=stream)
        assert session.service_session_id == "resp_1"
        assert await ask(agent, "c", session, stream=stream) == "ok"
        assert client.calls[-1] == ("resp_1", ["user"])

    asyncio.run(main())


class OneConversation(ScriptedChatClient):
    """A service whose conversation has one id for good; `seen` holds what it was sent."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__(script, conversation_id="conv_1")

    @property
    def seen(self) -> list[list[tuple[str, Any]]]:
        return [[(m.role, m.text or m.contents[0].get("result")) for m in messages] for messages in self.calls]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("named_by", ["the session", "the options"])
def test_a_conversation_that_a_run_left_open_is_answered_with_the_next_input(named_by: str, stream: bool) -> None:
    """It has no place to go back to: what the call came to goes first, once, until the service has it."""

    async def main() -> None:
        client = OneConversation([asks("1"), RuntimeError("down"), RuntimeError("down"), "ok", "fine"])
        agent = Agent(client, tools=[add])
        session = agent.get_session("conv_1") if named_by == "the session" else agent.create_session()
        for text in ("a", "b"):
            with pytest.raises(RuntimeError, match="down"):
                await ask(agent, text, session, stream=stream, options={"conversation_id": "conv_1"})
        restored = AgentSession.from_dict(session.to_dict())
        assert await ask(agent, "c", restored, stream=stream) == "ok"
        assert await ask(agent, "d", restored, stream=stream) == "fine"
        assert client.seen[2:] == [[("tool", "2"), ("user", text)] for text in "bc"] + [[("user", "d")]]
        assert restored.state == {}

    asyncio.run(main())


def test_a_call_that_was_never_made_is_answered_with_an_error() -> None:
    """The run was cancelled in the tool, or reached its limit: the service learns that with the next input."""

    async def main() -> None:
        async def sleeps(a: int) -> None:
            cancelled.cancel()
            await asyncio.sleep(60)

        client = OneConversation([asks("1", name="sleeps"), "ok", asks("2"), asks("3"), "fine"])
        agent = Agent(client, tools=[sleeps, add], max_iterations=1)
        session = agent.get_session("conv_1")
        cancelled = asyncio.ensure_future(agent.run("a", session))
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        for text in "bcd":
            await agent.run(text, session)
        assert client.seen[1][0] == ("tool", "Error: not known: the run ended before the call was answered")
        assert client.seen[4][0][1].startswith("Error: not called: the run has reached its limit")
        assert [role for role, _ in client.seen[4]] == ["tool", "user"]

    asyncio.run(main())


def test_a_run_that_a_tool_ends_stays_in_the_services_conversation() -> None:
    """The tool has run: its result goes out with the next input, from the newest response on."""

    async def main() -> None:
        def book(a: int) -> str:
            raise MiddlewareTermination(result="booked")

        client = Service([asks("1", name="book")])
        agent = Agent(client, tools=[book])
        session = agent.create_session()
        await agent.run("a", session)
        await agent.run("b", session)
        await agent.run("c", session)
        assert client.calls[1:] == [("resp_1", ["tool", "user"]), ("resp_2", ["user"])]

    asyncio.run(main())


def test_an_approved_call_is_not_made_twice_where_the_model_fails_behind_it() -> None:
    """The approval can be given again; the service then gets what the call came to the first time."""

    async def main() -> None:
        made: list[int] = []

        @tool(approval_mode="always_require")
        def pay(a: int) -> None:
            made.append(a)

        client = OneConversation([asks("1", name="pay"), RuntimeError("down"), "paid"])
        agent = Agent(client, tools=[pay])
        session = agent.get_session("conv_1")
        (request,) = (await agent.run("buy", session)).user_input_requests
        answer = Message("user", [approval_response(request, True)])
        with pytest.raises(RuntimeError, match="down"):
            await agent.run(answer, session)
        assert (await agent.run(answer, session)).text == "paid"
        assert made == [1]
        with pytest.raises(ValueError, match="no request"):
            await agent.run(answer, session)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("each_call", [False, True])
def test_a_client_that_stores_is_not_called_for_a_local_history(stream: bool, each_call: bool) -> None:
    """It says that it stores: what must be refused is refused before the model is paid for."""
    client = ScriptedChatClient(["never"], conversation_id="conv_1")
    history = InMemoryHistoryProvider()
    agent = Agent(client, context_providers=[history], require_per_service_call_history_persistence=each_call)
    session = AgentSession(state={"memory": {"messages": [Message("user", ["before"])]}})
    with pytest.raises(ConfigurationError, match="ScriptedChatClient"):
        asyncio.run(ask(agent, "hi", session, stream=stream))
    assert client.calls == []
    assert texts(session.state["memory"]["messages"]) == ["before"]


def test_an_id_in_the_options_counts_as_the_sessions() -> None:
    """For a run without one; two different ones are refused."""

    async def main() -> None:
        client = Service()
        agent = Agent(client)
        session = agent.create_session()
        await agent.run("hi", session, options={"conversation_id": "conv_9"})
        assert client.calls == [("conv_9", ["user"])]
        assert (session.service_session_id, session.state) == ("resp_1", {})
        with pytest.raises(ConfigurationError, match=r"'resp_1'.*'conv_9'"):
            await agent.run("hi", session, options={"conversation_id": "conv_9"})

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("mode", "kept"), [("skip", []), ("store_only", ["a", "ok", "b", "ok"])])
def test_local_history_is_skipped_where_the_service_keeps_it(stream: bool, mode: Any, kept: list[str]) -> None:
    """From the very first answer that names a conversation; "store_only" keeps a copy of it (FEATURES 23)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = Service()
            agent = Agent(client, context_providers=[StoreHistoryProvider(store, on_service_managed=mode)])
            session = agent.create_session("s")
            for text in ("a", "b"):
                await ask(agent, text, session, stream=stream)
            assert client.calls == [(None, ["user"]), ("resp_1", ["user"])]
            assert texts(await store.session("s").messages()) == kept

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("default", [False, True])
def test_a_session_with_a_local_history_does_not_become_the_services(stream: bool, default: bool) -> None:
    """`ConfigurationError` names both; session and history stay as they were (FEATURES 24)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            providers = [] if default else [StoreHistoryProvider(store, "local", store_partial=True)]
            session = AgentSession(session_id="s")
            await Agent(ScriptedChatClient(["one"]), context_providers=providers).run("a", session)
            before = session.to_dict()
            with pytest.raises(ConfigurationError, match=r"'memory'.*'resp_1'" if default else r"'local'.*'resp_1'"):
                await ask(Agent(Service(), context_providers=providers), "b", session, stream=stream)
            assert session.to_dict() == before
            assert texts(await store.session("s", source_id="local").messages()) == ([] if default else ["a", "one"])

    asyncio.run(main())


@pytest.mark.parametrize("session", [AgentSession(), AgentSession(service_session_id="conv_1")])
def test_mixing_can_be_refused_always(session: AgentSession) -> None:
    """`on_service_managed="error"`: with the session's id before the model is called, else with the first answer."""
    client = Service()
    agent = Agent(client, context_providers=[InMemoryHistoryProvider(on_service_managed="error")])
    with pytest.raises(ConfigurationError, match="'memory'"):
        asyncio.run(agent.run("hi", session))
    assert len(client.calls) == (0 if session.service_session_id else 1)


class Counting(StoreHistoryProvider):
    """Counts its loads and saves."""

    loads = 0
    saves = 0

    async def get_messages(self, *args: Any, **kwargs: Any) -> Any:
        self.loads += 1
        return await super().get_messages(*args, **kwargs)

    async def save_messages(self, *args: Any, **kwargs: Any) -> None:
        self.saves += 1
        await super().save_messages(*args, **kwargs)


def per_call(client: Any, *providers: Any, **settings: Any) -> Agent:
    return Agent(
        client, context_providers=providers, tools=[add], require_per_service_call_history_persistence=True, **settings
    )


@pytest.mark.parametrize("stream", [False, True])
def test_history_is_loaded_and_saved_around_each_call(stream: bool) -> None:
    """Once each; the model sees every message once, and each is stored once (FEATURES 25)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            provider = Counting(store)
            client = ScriptedChatClient([asks("1", "2"), asks("3"), "done", "again"])
            agent = per_call(client, provider)
            session = agent.create_session("s")
            assert await ask(agent, "go", session, stream=stream) == "done"
            assert (provider.loads, provider.saves) == (3, 3)
            turn = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
            assert roles(await store.session("s").messages()) == turn
            assert [roles(seen) for seen in client.calls] == [turn[:1], turn[:3], turn[:5]]
            await ask(agent, "and?", session, stream=stream)
            assert roles(client.calls[3]) == [*turn, "user"]

    asyncio.run(main())


def test_the_first_call_is_in_the_store_when_the_second_begins() -> None:
    """A process that dies in between leaves what a service would have kept (B40)."""

    async def main() -> None:
        async with open_store("memory://") as store:

            def look(a: int) -> str:
                return ",".join(roles(asyncio.run(store.session("s").messages())))

            client = ScriptedChatClient([asks("1", name="look"), "done"])
            agent = per_call(client, StoreHistoryProvider(store))
            await agent.run("go", agent.create_session("s"), tools=[look])
            assert client.calls[1][-1].contents[0].result == "user,assistant"

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_in_the_loop_leaves_a_call_open_only_in_the_store(stream: bool) -> None:
    """The next view has none, and what is stored is not touched (B63, B65)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks("1"), RuntimeError("down"), "fine"])
            agent = per_call(client, StoreHistoryProvider(store))
            session = agent.create_session("s")
            with pytest.raises(RuntimeError, match="down"):
                await ask(agent, "go", session, stream=stream)
            before = await store.session("s").messages()
            assert roles(before) == ["user", "assistant"]
            await ask(agent, "again", session, stream=stream)
            assert not open_calls(client.calls[2])
            assert texts(client.calls[2]) == ["go", "again"]
            assert (await store.session("s").messages())[:2] == before

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_it_does_not_go_with_a_conversation_of_the_service(stream: bool) -> None:
    """Known before (session, options) or learned from the answer: an error, nothing stored, the session unchanged."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = Service()
            agent = per_call(client, StoreHistoryProvider(store))
            managed = agent.get_session(service_session_id="conv_1", session_id="s")
            with pytest.raises(ConfigurationError, match="'conv_1'"):
                await ask(agent, "hi", managed, stream=stream)
            with pytest.raises(ConfigurationError, match="'conv_2'"):
                await agent.run("hi", agent.create_session("s"), options={"conversation_id": "conv_2"})
            assert client.calls == []
            session = agent.create_session("s")
            with pytest.raises(ConfigurationError, match="'resp_1'"):
                await ask(agent, "hi", session, stream=stream)
            assert session.service_session_id is None
            assert await store.session("s").info() is None

    asyncio.run(main())


@pytest.mark.parametrize(
    "flags",
    [
        {"max_messages": 1},
        {"max_messages": 0},
        {"store_inputs": False},
        {"store_outputs": False},
        {"load_messages": False},
        {"provide_output_filter": lambda messages: []},
    ],
    ids=lambda flags: next(iter(flags)) + str(next(iter(flags.values())))[:5],
)
def test_the_model_sees_its_own_run_whatever_is_kept(flags: dict[str, Any]) -> None:
    """A small window or a filter cuts the history, never the turn that is going on."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks("1", "2"), asks("3"), "done"])
            await per_call(client, StoreHistoryProvider(store, **flags)).run("go", AgentSession(session_id="s"))
            assert [roles(seen)[-5:] for seen in client.calls] == [
                ["user"],
                ["user", "assistant", "tool"],
                ["user", "assistant", "tool", "assistant", "tool"],
            ]

    asyncio.run(main())


class Note(BaseContextProvider):
    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        context.extend_messages(self, [Message("user", ["likes tea"])])

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        assert context.response is not None
        state["heard"] = context.response.text


def test_other_providers_are_asked_once_a_run() -> None:
    """Their context stays at its place in view, an audit records it once, and they see the whole answer."""

    async def main() -> None:
        async with open_store("memory://") as store:
            audit = StoreHistoryProvider(store, "audit", load_messages=False, store_context_messages=True)
            client = ScriptedChatClient(["one", asks("1"), "two"])
            agent = per_call(client, StoreHistoryProvider(store), Note("note"), audit)
            session = agent.create_session("s")
            await agent.run("a", session)
            await agent.run("b", session)
            assert texts(client.calls[2]) == ["a", "one", "likes tea", "b", "", ""]
            assert session.state["note"] == {"heard": "two"}
            kept = texts(await store.session("s", source_id="audit").messages())
            assert kept == ["likes tea", "a", "one", "likes tea", "b", "", "", "two"]

    asyncio.run(main())


def test_what_another_writer_adds_meanwhile_is_seen() -> None:
    """That is what a load before each call is for."""

    async def main() -> None:
        async with open_store("memory://") as store:

            async def meet(a: int) -> str:
                await store.session("s").append([Message("user", ["by the way"])])
                return "met"

            client = ScriptedChatClient([asks("1", name="meet"), "done"])
            await per_call(client, StoreHistoryProvider(store)).run("go", AgentSession(session_id="s"), tools=[meet])
            assert "by the way" in texts(client.calls[1])

    asyncio.run(main())


def test_a_save_that_fails_on_the_way_has_the_answer_so_far() -> None:
    """The run stops at the call that could not be saved."""

    class Full(Counting):
        async def save_messages(self, *args: Any, **kwargs: Any) -> None:
            if self.saves:
                raise UnavailableError("full")
            await super().save_messages(*args, **kwargs)

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient([asks("1"), asks("2"), "never"])
            with pytest.raises(SaveError, match="full") as caught:
                await per_call(client, Full(store)).run("go", AgentSession(session_id="s"))
            assert roles(getattr(caught.value.response, "messages", [])) == ["assistant", "tool", "assistant"]
            assert roles(await store.session("s").messages()) == ["user", "assistant"]

    asyncio.run(main())


def test_a_replayed_transcript_is_stored_once(tmp_path: Any) -> None:
    """Also where each call saves by itself (B72)."""

    async def main(store: HistoryStore) -> None:
        async with store:
            client = ScriptedChatClient(["one", asks("1"), "two"])
            agent = per_call(client, StoreHistoryProvider(store))
            await agent.run("a", agent.create_session("s"))
            replay = [Message("user", ["a"]), Message("assistant", ["one"]), Message("user", ["b"])]
            await agent.run(replay, agent.create_session("s"))
            assert texts(client.calls[1]) == ["a", "one", "b"]
            assert texts(client.calls[2]) == ["a", "one", "b", "", ""]
            assert roles(await store.session("s").messages()) == [
                "user", "assistant", "user", "assistant", "tool", "assistant",
            ]  # fmt: skip

    asyncio.run(main(open_store(f"sqlite:///{tmp_path}/chat.db")))


class Eager(BaseChatClient):
    async def stream_response(
        self, messages: Sequence[Message], *, tools: Any = (), options: Any = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(conversation_id="conv_1")
        raise RuntimeError("cut")


def test_an_id_that_came_before_a_failure_is_kept() -> None:
    """The conversation exists at the service: the next run goes on with it."""
    session = AgentSession()
    with pytest.raises(RuntimeError, match="cut"):
        asyncio.run(ask(Agent(Eager()), "hi", session, stream=True))
    assert session.service_session_id == "conv_1"
