"""The agent: one run, its providers around it, and what it remembers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentSession,
    AgentStoreError,
    BaseChatClient,
    BaseContextProvider,
    BaseHistoryProvider,
    ChatClient,
    ChatResponse,
    ConfigurationError,
    Content,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    SaveError,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    UnavailableError,
    open_store,
)
from agentstore.chat import CHAT_OPTIONS


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_a_session_remembers_without_any_provider() -> None:
    """In its own state, through a default provider that the agent does not show (FEATURES 2, 13)."""
    client = ScriptedChatClient(["hello", "yes"])
    agent = Agent(client)
    session = agent.create_session()

    async def main() -> None:
        assert (await agent.run("hi", session=session)).text == "hello"
        assert (await agent.run("again", session=session)).text == "yes"

    asyncio.run(main())
    assert texts(client.calls[1]) == ["hi", "hello", "again"]
    assert texts(session.state["memory"]["messages"]) == ["hi", "hello", "again", "yes"]
    assert list(agent.context_providers) == []


def test_a_session_goes_on_in_another_process() -> None:
    """Saved as text, restored, and the next run knows the first (FEATURES 27, B127)."""
    client = ScriptedChatClient()
    agent = Agent(client)
    session = agent.create_session("s")
    asyncio.run(agent.run("hi", session))
    restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    asyncio.run(agent.run("again", restored))
    assert texts(client.calls[1]) == ["hi", "hi", "again"]


def test_a_run_without_a_session_remembers_nothing() -> None:
    """Each such run has a throwaway session."""
    client = ScriptedChatClient()
    agent = Agent(client)
    asyncio.run(agent.run("hi"))
    asyncio.run(agent.run("again"))
    assert [texts(call) for call in client.calls] == [["hi"], ["again"]]


@pytest.mark.parametrize("url", ["memory://agent-test", "sqlite"])
def test_a_store_remembers_across_agents(tmp_path: Path, url: str) -> None:
    """The id given by the caller is the one that is stored under (B140), and another agent object finds it."""
    url = url if url != "sqlite" else f"sqlite:///{tmp_path}/chat.db"

    async def ask(text: str) -> list[str]:
        client = ScriptedChatClient()
        provider = StoreHistoryProvider(url)
        agent = Agent(client, context_providers=[provider])
        await agent.run(text, session=agent.create_session("user-42"))
        assert await provider.list_sessions() == ["user-42"]
        await provider.aclose()
        return texts(client.calls[0])

    assert asyncio.run(ask("one")) == ["one"]
    assert asyncio.run(ask("two")) == ["one", "one", "two"]


def test_a_killed_process_leaves_its_finished_turns(tmp_path: Path) -> None:
    """SIGKILL right after the answer: the turn is there (B40, B103)."""
    url = f"sqlite:///{tmp_path}/chat.db"
    script = f"""
import asyncio, os, signal
from agentstore import Agent, AgentSession, ScriptedChatClient, StoreHistoryProvider
async def main():
    agent = Agent(ScriptedChatClient(["noted"]), context_providers=[StoreHistoryProvider({url!r})])
    await agent.run("the word is plum", session=AgentSession(session_id="s"))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert killed.returncode == -9

    async def main() -> list[str]:
        async with open_store(url) as store:
            return texts(await store.session("s").messages())

    assert asyncio.run(main()) == ["the word is plum", "noted"]


def test_input_is_text_a_message_or_a_list_of_those() -> None:
    """A message of the caller's own is given its id on the object; anything else is refused."""
    client = ScriptedChatClient()
    agent = Agent(client)
    own = Message("user", ["two"])
    asyncio.run(agent.run(["one", own], session=AgentSession()))
    assert texts(client.calls[0]) == ["one", "two"]
    assert own.message_id
    for bad in (None, 7, {"role": "user"}, ["one", 7]):
        with pytest.raises(TypeError, match="input"):
            asyncio.run(agent.run(bad))  # type: ignore[arg-type]


def test_instructions_come_first_and_are_never_stored() -> None:
    """The agent's own, then those of providers, in one system message (FEATURES 37)."""

    class Kind(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            context.extend_instructions(self, f"be kind to {agent.name}")

    client = ScriptedChatClient()
    agent = client.as_agent(name="Ann", instructions="be brief", context_providers=[Kind("kind")])
    session = agent.create_session()
    for _ in range(2):
        asyncio.run(agent.run("hi", session))
    assert [(m.role, m.text) for m in client.calls[1]][:2] == [("system", "be brief\nbe kind to Ann"), ("user", "hi")]
    assert len(session.state["memory"]["messages"]) == 4


def test_providers_run_in_order_and_back() -> None:
    """`before_run` first to last, `after_run` last to first, each with its own part of the state (FEATURES 36, 38)."""
    seen: list[str] = []

    class Spy(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            state["runs"] = state.get("runs", 0) + 1
            seen.append(f"before {self.source_id}")

        async def after_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            assert context.response is not None
            seen.append(f"after {self.source_id} {context.input_messages[0].text} {context.response.text}")

    agent = Agent(ScriptedChatClient(["out"]), context_providers=[Spy("a"), Spy("b")])
    session = AgentSession()
    asyncio.run(agent.run("in", session))
    assert seen == ["before a", "before b", "after b in out", "after a in out"]
    assert (session.state["a"], session.state["b"]) == ({"runs": 1}, {"runs": 1})


@pytest.mark.parametrize("fault", [RuntimeError("the model is down"), asyncio.CancelledError()])
def test_a_run_that_fails_or_is_cancelled_stores_nothing(fault: BaseException) -> None:
    """Neither input nor anything else; the next run is as if it had never been (FEATURES 16)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            client = ScriptedChatClient(["one", fault, "two"])
            agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
            session = agent.create_session("s")
            await agent.run("a", session)
            with pytest.raises(type(fault)):
                await agent.run("b", session)
            await agent.run("c", session)
            assert texts(await store.session("s").messages()) == ["a", "one", "c", "two"]

    asyncio.run(main())


def test_a_failed_run_leaves_no_message_in_the_session() -> None:
    """The same for a session that remembers in its own state."""
    agent, session = Agent(ScriptedChatClient([RuntimeError("down")])), AgentSession()
    with pytest.raises(RuntimeError, match="down"):
        asyncio.run(agent.run("hi", session))
    assert not session.state["memory"].get("messages")


def test_a_turn_is_saved_when_run_returns() -> None:
    """Also by a slow store: two runs back to back, the second sees the first (B40)."""

    class Slow(InMemoryHistoryProvider):
        async def save_messages(self, *args: Any, **kwargs: Any) -> None:
            await asyncio.sleep(0.05)
            await super().save_messages(*args, **kwargs)

    async def main() -> None:
        client = ScriptedChatClient()
        agent, session = Agent(client, context_providers=[Slow()]), AgentSession()
        await agent.run("a", session)
        await agent.run("b", session)
        assert texts(client.calls[1]) == ["a", "a", "b"]

    asyncio.run(main())


async def ask(agent: Agent, *, stream: bool) -> str:
    return (await (agent.run_stream("hi").get_final_response() if stream else agent.run("hi"))).text


@pytest.mark.parametrize("field", ["name", "call_id"])
def test_a_call_that_no_history_could_hold_is_an_error(field: str) -> None:
    """Its name and its id are text."""
    call = Content("function_call", **{"call_id": "1", "name": "f", field: ["f"]})
    with pytest.raises(AgentStoreError, match="ScriptedChatClient"):
        asyncio.run(Agent(ScriptedChatClient([Message("assistant", [call])])).run("hi"))


class Unfinished(HistoryProvider):
    """Of the protocol, which has no `__init__` for it."""


@pytest.mark.parametrize("provider", [7, "history", BaseContextProvider, Unfinished()])
def test_what_is_no_provider_is_refused(provider: Any) -> None:
    """With the classes to begin with."""
    with pytest.raises(ConfigurationError, match="BaseHistoryProvider"):
        Agent(ScriptedChatClient(), context_providers=[provider])


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda agent: agent.create_session(5), TypeError, "session_id"),
        (lambda agent: agent.get_session(""), ValueError, "create_session"),
        (lambda agent: agent.get_session(None), ValueError, "create_session"),
        (lambda agent: asyncio.run(agent.run("hi", "s")), TypeError, "create_session"),
        (lambda agent: asyncio.run(agent.run("hi", tools=5)), TypeError, "a tool is"),
    ],
)
def test_what_is_no_session_and_no_tool_is_refused(use: Any, error: type[Exception], words: str) -> None:
    """The error says what is needed; the model is not called."""
    client = ScriptedChatClient()
    with pytest.raises(error, match=words):
        use(Agent(client))
    assert client.calls == []


def test_what_is_no_client_is_refused() -> None:
    """Before it is needed."""
    with pytest.raises(TypeError, match="get_response"):
        Agent("gpt")  # type: ignore[arg-type]


def test_at_most_one_provider_may_load() -> None:
    """`ConfigurationError` names both, when the agent is made and when one was added later (FEATURES 6)."""
    first, second = InMemoryHistoryProvider("one"), StoreHistoryProvider("memory://", "two")
    with pytest.raises(ConfigurationError, match=r"'one', 'two'"):
        Agent(ScriptedChatClient(), context_providers=[first, second])
    agent = Agent(ScriptedChatClient(), context_providers=[first])
    agent.context_providers.append(second)
    with pytest.raises(ConfigurationError, match=r"'one', 'two'"):
        asyncio.run(agent.run("hi"))


def test_a_source_id_can_be_used_once() -> None:
    """Two providers on one key would read each other's messages (B83)."""
    with pytest.raises(ConfigurationError, match="'same'"):
        Agent(
            ScriptedChatClient(),
            context_providers=[InMemoryHistoryProvider("same"), InMemoryHistoryProvider("same", load_messages=False)],
        )


def test_an_audit_alone_does_not_make_the_agent_remember() -> None:
    """Where any history provider is configured, no default one is added."""
    client = ScriptedChatClient()
    agent = Agent(client, context_providers=[InMemoryHistoryProvider("audit", load_messages=False)])
    session = agent.create_session()
    asyncio.run(agent.run("hi", session))
    asyncio.run(agent.run("again", session))
    assert texts(client.calls[1]) == ["again"]
    assert len(session.state["audit"]["messages"]) == 4


def test_other_context_providers_do_not_switch_memory_off() -> None:
    """A provider of notes is no history provider (B139)."""
    client = ScriptedChatClient()
    agent, session = Agent(client, context_providers=[BaseContextProvider("notes")]), AgentSession()
    asyncio.run(agent.run("hi", session))
    asyncio.run(agent.run("again", session))
    assert texts(client.calls[1]) == ["hi", "hi", "again"]


def test_a_service_managed_session_gets_no_local_history() -> None:
    """`get_session` gives one; neither a default provider nor a configured one touches it (FEATURES 22, 23)."""
    client = ScriptedChatClient()
    agent = Agent(client)
    session = agent.get_session("conv_1", session_id="s")
    assert (session.session_id, session.service_session_id) == ("s", "conv_1")
    asyncio.run(agent.run("hi", session))
    assert session.state == {}


class Broken(BaseHistoryProvider):
    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        return []

    async def save_messages(self, session_id: str | None, messages: Any, *, state: Any = None, **kwargs: Any) -> None:
        raise UnavailableError("down")


def test_one_failing_save_does_not_cost_the_others_their_turn() -> None:
    """The error of the audit comes after the main history was saved, with the answer (B49)."""
    main = InMemoryHistoryProvider("main")
    agent = Agent(ScriptedChatClient(["out"]), context_providers=[main, Broken("audit", load_messages=False)])
    session = agent.create_session()
    with pytest.raises(SaveError, match="'audit'") as caught:
        asyncio.run(agent.run("in", session))
    assert getattr(caught.value.response, "text", None) == "out"
    assert texts(session.state["main"]["messages"]) == ["in", "out"]


@pytest.mark.parametrize("per_call", [False, True])
def test_a_failing_provider_does_not_cost_the_others_their_turn(per_call: bool) -> None:
    """Whatever it raises; one that keeps a history by itself fails as `SaveError`, with the answer (B49)."""

    class Odd(BaseContextProvider):
        async def after_run(self, **given: Any) -> None:
            raise RuntimeError("odd")

    class Own(Odd):
        load_messages = False

        async def get_messages(self, session_id: str | None, **given: Any) -> list[Message]:
            return []

        async def save_messages(self, session_id: str | None, messages: Any, **given: Any) -> None:
            raise AssertionError("never called")

    for provider, error in ((Odd("odd"), RuntimeError), (Own("own"), SaveError)):
        main = InMemoryHistoryProvider("main")
        agent = Agent(
            ScriptedChatClient(["out"]),
            context_providers=[main, provider],
            require_per_service_call_history_persistence=per_call,
        )
        session = agent.create_session()
        with pytest.raises(error, match="odd") as caught:
            asyncio.run(agent.run("in", session))
        assert texts(session.state["main"]["messages"]) == ["in", "out"]
        assert error is RuntimeError or getattr(caught.value, "response", None).text == "out"  # type: ignore[union-attr]


def test_tools_and_options_reach_the_client() -> None:
    """Those that providers offered, and the options of the run."""
    given: list[Any] = []

    class Client(ScriptedChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            given.append((tools, options))
            return await super().get_response(messages, tools=tools, options=options)

    class Tools(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            context.extend_tools(self, [len])

    asyncio.run(Agent(Client(), context_providers=[Tools("tools")]).run("hi", options={"temperature": 0}))
    ((tools, options),) = given
    assert ([item.name for item in tools], options) == (["len"], {"temperature": 0})


@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer", [None, "text", ChatResponse([]), ChatResponse(["text"])],  # type: ignore[list-item]
    ids=["None", "str", "empty", "no message"],
)  # fmt: skip
def test_a_client_that_returns_nothing_is_an_error(per_call: bool, stream: bool, answer: Any) -> None:
    """It names the client; nothing is stored, also where a client streams as the base class does."""

    class Whole(BaseChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            return answer

    with pytest.raises(AgentStoreError, match="Whole"):
        asyncio.run(ask(Agent(Whole()), stream=stream))

    class Mute(BaseChatClient):
        async def get_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            return answer

        async def stream_response(self, messages: Any, *, tools: Any = (), options: Any = None) -> Any:
            for update in () if not isinstance(answer, ChatResponse) or answer.messages else answer.to_updates():
                yield update

    async def main() -> None:
        async with open_store("memory://") as store:
            provider = StoreHistoryProvider(store, store_partial=False)
            agent = Mute().as_agent(context_providers=[provider], require_per_service_call_history_persistence=per_call)
            run = agent.run_stream("hi").get_final_response() if stream else agent.run("hi", AgentSession())
            with pytest.raises(AgentStoreError, match="Mute"):
                await run
            assert (await store.sessions()).items == []

    asyncio.run(main())


def test_an_option_that_nobody_knows_is_refused() -> None:
    """With the list of known ones, before anything is done; a client may know more, one that names none takes all."""
    client = ScriptedChatClient()
    agent, session = Agent(client), AgentSession()
    with pytest.raises(ConfigurationError, match=r"'flavour', 'temprature'.*temperature"):
        asyncio.run(agent.run("hi", session, options={"temprature": 0, "flavour": "mint", "top_p": 1}))
    assert (client.calls, session.state) == ([], {})
    with pytest.raises(TypeError, match="flavour"):
        Agent(client, flavour="mint")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="flavour"):
        client.as_agent(flavour="mint")

    class Minty(ScriptedChatClient):
        known_options = CHAT_OPTIONS | {"flavour"}

    asyncio.run(Agent(Minty()).run("hi", options={"flavour": "mint", "top_p": None}))


def test_instructions_can_come_with_a_run() -> None:
    """Behind the agent's own, and they never reach the client as an option."""
    client = ScriptedChatClient()
    agent = Agent(client, instructions="be brief")
    asyncio.run(agent.run("hi", options={"instructions": "be kind"}))
    assert texts(client.calls[0]) == ["be brief\nbe kind", "hi"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("per_call", [False, True])
def test_a_store_that_is_down_fails_the_run_before_the_model(stream: bool, per_call: bool) -> None:
    """The store's own error; the model is not asked for what could not be remembered."""

    class Down(StoreHistoryProvider):
        async def get_messages(self, *args: Any, **kwargs: Any) -> Any:
            raise UnavailableError("no route")

    client, session = ScriptedChatClient(), AgentSession()
    agent = client.as_agent(
        context_providers=[Down("memory://")], require_per_service_call_history_persistence=per_call, store_partial=True
    )
    with pytest.raises(UnavailableError, match="no route"):
        asyncio.run(run_of(agent, session, stream=stream))
    assert client.calls == []


async def run_of(agent: Agent, session: AgentSession, *, stream: bool) -> str:
    if stream:
        return (await agent.run_stream("hi", session).get_final_response()).text
    return (await agent.run("hi", session)).text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("service", [None, "conv_1"])
@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("history", [None, "skip", "store_only"])
def test_a_provider_is_asked_once_a_turn_whatever_else_is_attached(
    stream: bool, service: str | None, others: int, history: Any
) -> None:
    """Service that stores or not, a history or none, other providers or none (B139)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            providers: list[Any] = [BaseContextProvider(f"other {number}") for number in range(others)]
            if history:
                providers.append(StoreHistoryProvider(store, on_service_managed=history))
            agent = Agent(ScriptedChatClient(conversation_id=service), context_providers=providers)
            session = agent.create_session("s")
            for _ in range(2):
                await run_of(agent, session, stream=stream)
            in_store = texts(await store.session("s").messages())
            in_state = texts(session.state.get("memory", {}).get("messages", []))
            kept = 0 if service and history != "store_only" else 4
            assert len(in_store) == (kept if history else 0)
            assert len(in_state) == (0 if history or service else 4)

    asyncio.run(main())


def test_a_script_is_followed_step_by_step() -> None:
    """Text, message, several messages, an exception, then an echo; `calls` holds what each call was given."""
    client = ScriptedChatClient(
        ["a", Message("assistant", ["b"]), [Message("tool", ["c"]), Message("assistant", ["d"])]]
    )
    assert isinstance(client, ChatClient)

    async def main() -> list[str]:
        answers = [await client.get_response([Message("user", [text])]) for text in "1234"]
        return [answer.text for answer in answers]

    assert asyncio.run(main()) == ["a", "b", "c\nd", "4"]
    assert [texts(call) for call in client.calls] == [["1"], ["2"], ["3"], ["4"]]
