"""Agents that talk to a service of OpenAI's kind: who keeps the conversation, and what is left when it breaks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai_server import KEY, MODEL, OpenAIServer, called, said, thought
from test_documents import BLOCK, PRINTED

from agentstore import (
    Agent,
    AgentSession,
    ChatClientError,
    ConfigurationError,
    HistoryStore,
    Message,
    StoreHistoryProvider,
    open_store,
    tool,
)
from agentstore.approvals import approval_response
from agentstore.clients.openai import OpenAIChatClient

LOCAL = ({"store": False}, {"mode": "chat_completions"})
"""Set-ups in which the history is ours to keep."""

THINKING = {"store": False, "options": {"reasoning": {"effort": "low"}}}
"""The same, with reasoning that comes back."""

Scene = Callable[[OpenAIChatClient, HistoryStore], Awaitable[None]]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer().running() as running:
        yield running


def play(server: OpenAIServer, path: Path, scene: Scene, **settings: Any) -> None:
    """Let the scene happen with a client, and a store on SQLite."""

    async def main() -> None:
        client = OpenAIChatClient(MODEL, api_key=KEY, base_url=server.url, **settings)
        async with open_store(f"sqlite:///{path}/chat.db") as store:
            try:
                await scene(client, store)
            finally:
                await client.aclose()

    asyncio.run(main())


async def run(agent: Agent, text: str, session: AgentSession, *, stream: bool = False) -> str:
    """What the agent says."""
    if not stream:
        return (await agent.run(text, session)).text
    async with agent.run_stream(text, session) as updates:
        async for _ in updates:
            pass
        return (await updates.get_final_response()).text


async def stored(store: HistoryStore, session_id: str = "s") -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in await store.session(session_id).messages()]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("stream", [False, True])
def test_the_service_keeps_the_conversation(server: OpenAIServer, tmp_path: Path, stream: bool) -> None:
    """The session carries the newest response's id, only the new input is sent, and nothing is stored here."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client, instructions="be brief", context_providers=[StoreHistoryProvider(store)])
        session = agent.create_session("s")
        assert await run(agent, "one", session, stream=stream) == "one"
        first = session.service_session_id
        assert await run(agent, "two", session, stream=stream) == "one | two"
        assert (first, session.service_session_id) == tuple(server.responses)
        assert [len(body["input"]) for body in server.bodies] == [1, 1]
        assert [body.get("previous_response_id") for body in server.bodies] == [None, first]
        assert {body["instructions"] for body in server.bodies} == {"be brief"}
        assert await stored(store) == []
        # Another process goes on with the id alone.
        assert await run(agent, "three", agent.get_session(str(session.service_session_id))) == "one | two | three"

    play(server, tmp_path, scene)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_of_the_service_s_is_gone_on_with(server: OpenAIServer, tmp_path: Path, stream: bool) -> None:
    """A `conv_…` id stays the same from turn to turn, and the service lists what was said."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)], tools=[add])
        server.script = ["hello", [called("add", "c1", a=1, b=2), called("add", "c2", a=3, b=4)], "3 and 7"]
        async with openai.AsyncOpenAI(api_key=KEY, base_url=server.url) as sdk:
            made = await sdk.conversations.create()
            session = agent.get_session(made.id, session_id="s")
            await run(agent, "hi", session, stream=stream)
            assert await run(agent, "1 + 2, 3 + 4", session, stream=stream) == "3 and 7"
            kinds = [item.type async for item in sdk.conversations.items.list(made.id)]
        assert session.service_session_id == made.id
        calls = ["function_call"] * 2 + ["function_call_output"] * 2
        assert kinds == ["message", "message", "message", *calls, "message"]
        assert [body["conversation"] for body in server.bodies] == [made.id] * 3
        assert await stored(store) == []

    play(server, tmp_path, scene)


@pytest.mark.parametrize("settings", LOCAL)
@pytest.mark.parametrize("stream", [False, True])
def test_the_history_is_kept_here(server: OpenAIServer, tmp_path: Path, settings: dict[str, Any], stream: bool) -> None:
    """Where the service keeps nothing: every turn is stored once, and all of them are sent."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        for text, answer in (("one", "one"), ("two", "one | two")):
            agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
            session = agent.create_session("s")
            assert await run(agent, text, session, stream=stream) == answer
            assert session.service_session_id is None
        assert await stored(store) == [
            ("user", "one"),
            ("assistant", "one"),
            ("user", "two"),
            ("assistant", "one | two"),
        ]
        assert server.responses == {}

    play(server, tmp_path, scene, **settings)


@pytest.mark.parametrize("settings", LOCAL)
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls_come_back_with_their_results(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any], stream: bool
) -> None:
    """In this turn, and, out of the store, in the next; each call with its own result."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        calls = [called("add", "c1", a=1, b=2), called("add", "c2", a=30, b=4)]
        server.script = [calls, "3 and 34", "you are welcome"]
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)], tools=[add])
        assert await run(agent, "add", agent.create_session("s"), stream=stream) == "3 and 34"
        assert await run(agent, "thanks", agent.create_session("s"), stream=stream) == "you are welcome"
        body = server.bodies[-1]
        if "messages" in body:
            results = [(m["tool_call_id"], m["content"]) for m in body["messages"] if m["role"] == "tool"]
        else:
            outputs = [item for item in body["input"] if item["type"] == "function_call_output"]
            results = [(item["call_id"], item["output"]) for item in outputs]
        assert results == [("c1", "3"), ("c2", "34")]

    play(server, tmp_path, scene, **settings)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_goes_back_sealed_with_what_follows_it(server: OpenAIServer, tmp_path: Path, stream: bool) -> None:
    """The server refuses it changed, alone or without its ids (B70); it comes out of the store as it went in."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        answer = said("It is 3.", phase="final_answer")
        server.script = [[thought("add", "them"), called("add", "c1", a=1, b=2)], [thought("so"), answer], "bye"]
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)], tools=[add])
        await run(agent, "1 + 2", agent.create_session("s"), stream=stream)
        await run(agent, "thanks", agent.create_session("s"), stream=stream)
        sent = [item["type"] for item in server.bodies[-1]["input"]]
        turn = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]
        assert sent == [*turn, "message"]
        assert all(body["include"] == ["reasoning.encrypted_content"] for body in server.bodies)

    play(server, tmp_path, scene, **THINKING)


@pytest.mark.parametrize("settings", LOCAL)
def test_one_service_s_items_are_not_sent_to_another(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """No ids, no sealed reasoning; they stay in the store (B82), and serve where they came from."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        server.script = [[thought("hm"), said("hello")]]
        history = StoreHistoryProvider(store)
        home = Agent(client, context_providers=[history])
        await run(home, "hi", home.create_session("s"))
        with OpenAIServer().running() as other:
            stranger = OpenAIChatClient(MODEL, api_key=KEY, base_url=other.url, **settings)
            abroad = Agent(stranger, context_providers=[history])
            assert await run(abroad, "again", abroad.create_session("s")) == "hi | again"
            await stranger.aclose()
            assert "sealed" not in str(other.bodies)
            assert "msg_" not in str(other.bodies)
        await run(home, "home", home.create_session("s"))
        assert "sealed" in str(server.bodies[-1])

    play(server, tmp_path, scene, **THINKING)


def test_a_part_of_a_turn_that_lost_its_call_is_still_taken(server: OpenAIServer, tmp_path: Path) -> None:
    """Reasoning whose call was never answered: both stay in the store, neither goes out."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        server.script = [[thought("hm"), called("add", "c1", a=1, b=2)]]
        answer = await client.get_response([Message("user", ["hi"])], tools=[])
        await store.session("s").append([Message("user", ["hi"]), *answer.messages])
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        assert await run(agent, "again", agent.create_session("s")) == "hi | again"

    play(server, tmp_path, scene, store=False)


@pytest.mark.parametrize("settings", [{}, *LOCAL])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_service_leaves_nothing_half_stored(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any], stream: bool
) -> None:
    """A 500: no message, no other conversation; the next turn is as if it had never been."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        session = agent.create_session("s")
        await run(agent, "one", session, stream=stream)
        before = await stored(store), session.service_session_id
        server.failing = 500
        with pytest.raises(ChatClientError, match="500"):
            await run(agent, "two", session, stream=stream)
        assert (await stored(store), session.service_session_id) == before
        server.failing = None
        assert await run(agent, "three", session, stream=stream) == "one | three"

    play(server, tmp_path, scene, **settings)


@pytest.mark.parametrize("settings", [{}, *LOCAL])
def test_a_stream_that_is_cut_cancelled_or_left_stores_nothing(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The session goes on from the last whole answer; the service sees a client go that is gone."""

    async def leave(agent: Agent, session: AgentSession) -> None:
        async with agent.run_stream("a long question", session) as updates:
            async for update in updates:
                if update.text:
                    return

    async def cancel(agent: Agent, session: AgentSession) -> None:
        shown = asyncio.Event()

        async def listen() -> None:
            async for update in agent.run_stream("a long question", session):
                if update.text:
                    shown.set()

        task = asyncio.create_task(listen())
        await shown.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        session = agent.create_session("s")
        await run(agent, "one", session, stream=True)
        before = await stored(store), session.service_session_id
        server.waiting_after = 4
        for give_up in (leave, cancel):
            server.left.clear()
            await give_up(agent, session)
            assert await asyncio.to_thread(server.left.wait, 5)
            assert (await stored(store), session.service_session_id) == before
        server.waiting_after, server.cut_after = None, 4
        with pytest.raises(ChatClientError):
            await run(agent, "a long question", session, stream=True)
        assert (await stored(store), session.service_session_id) == before
        server.cut_after = None
        assert await run(agent, "two", session, stream=True) == "one | two"

    play(server, tmp_path, scene, **settings)


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_fails_between_two_calls_of_the_model_can_be_repeated(
    server: OpenAIServer, tmp_path: Path, stream: bool
) -> None:
    """The service's newest response waits for a tool's result; the session goes on from the one before."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        async def broken() -> str:
            """Break the service."""
            server.failing = 500
            return "done"

        server.script = ["hello", [called("broken", "c1")]]
        agent = Agent(client, tools=[broken])
        session = agent.create_session("s")
        await run(agent, "one", session, stream=stream)
        before = session.service_session_id
        with pytest.raises(ChatClientError):
            await run(agent, "two", session, stream=stream)
        assert session.service_session_id == before
        server.failing = None
        assert await run(agent, "three", session, stream=stream) == "one | three"

    play(server, tmp_path, scene)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_that_a_run_left_open_is_answered_with_the_next_input(
    server: OpenAIServer, tmp_path: Path, stream: bool
) -> None:
    """A `conv_…` has no place to go back to: what the call came to is sent then, also by another process."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        async def broken() -> str:
            """Break the service."""
            server.failing = 500
            return "done"

        server.conversations["conv_1"] = []
        server.script = [[called("broken", "c1")]]
        agent = Agent(client, tools=[broken])
        session = agent.get_session("conv_1")
        with pytest.raises(ChatClientError):
            await run(agent, "one", session, stream=stream)
        server.failing = None
        later = AgentSession.from_dict(session.to_dict())
        for text, answer in (("two", "one | two"), ("three", "one | two | three")):
            assert await run(agent, text, later, stream=stream) == answer
        outputs = [item for item in server.conversations["conv_1"] if item["type"] == "function_call_output"]
        assert [(item["call_id"], item["output"]) for item in outputs] == [("c1", "done")]

    play(server, tmp_path, scene)


@pytest.mark.parametrize("settings", LOCAL)
def test_a_call_that_waits_for_approval_does_not_stop_the_conversation(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """It is left out until it is answered, and then stands before its result (B65); both interfaces insist on that."""

    @tool(approval_mode="always_require")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        server.script = [[called("pay", "c1", amount=5), called("pay", "c2", amount=6)], "no hurry", "thanks"]
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)], tools=[pay])
        session = agent.create_session("s")
        asked = (await agent.run("buy", session)).user_input_requests
        assert await run(agent, "wait", session) == "no hurry"
        assert "paid" not in str(server.bodies[-1])
        answers = [approval_response(request, request.id == "c1") for request in asked]
        assert (await agent.run(Message("user", answers), session)).text == "thanks"
        assert await run(agent, "bye", session) in ("buy | wait | bye",)
        assert "paid 5" in str(server.bodies[-1])
        assert "did not approve" in str(server.bodies[-1])

    play(server, tmp_path, scene, **settings)


def test_a_local_history_is_refused_before_the_service_is_called(server: OpenAIServer, tmp_path: Path) -> None:
    """A client that stores says so; `store=False` in its options, or in the run's, takes it back."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        history = StoreHistoryProvider(store)
        await history.save_messages("s", [Message("user", ["before"])])
        agent = Agent(client, context_providers=[history])
        with pytest.raises(ConfigurationError, match="local history"):
            await agent.run("now", agent.create_session("s"))
        assert server.bodies == []
        assert (await agent.run("now", agent.create_session("s"), {"store": False})).text == "before | now"
        local = OpenAIChatClient(MODEL, api_key=KEY, base_url=server.url, options={"store": False})
        completions = OpenAIChatClient(MODEL, api_key=KEY, base_url=server.url, mode="chat_completions")
        assert [client.stores_by_default for client in (client, local, completions)] == [True, False, False]

    play(server, tmp_path, scene)


def test_an_unknown_conversation_is_an_error(server: OpenAIServer, tmp_path: Path) -> None:
    """The service's words are told; the session stays as it is."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client)
        for name in ("resp_gone", "conv_gone"):
            session = agent.get_session(name)
            with pytest.raises(ChatClientError, match=name):
                await agent.run("hi", session)
            assert session.service_session_id == name

    play(server, tmp_path, scene)


def test_a_conversation_that_changes_its_id_is_followed(server: OpenAIServer, tmp_path: Path) -> None:
    """The service moved it: the next turn goes to the new one."""

    class Moving(OpenAIServer):
        def _response(self, body: Any, output: Any) -> dict[str, Any]:
            response = super()._response(body, output)
            if response.get("conversation") == {"id": "conv_old"}:
                self.conversations["conv_new"] = self.conversations["conv_old"]
                response["conversation"] = {"id": "conv_new"}
            return response

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client)
        session = agent.get_session("conv_old")
        for text in ("one", "two"):
            await run(agent, text, session, stream=True)
        assert session.service_session_id == "conv_new"
        assert [body["conversation"] for body in moving.bodies] == ["conv_old", "conv_new"]

    with Moving().running() as moving:
        moving.conversations["conv_old"] = []
        play(moving, tmp_path, scene)


@pytest.mark.parametrize(("settings", "why"), list(zip(LOCAL, ("store=False", "mode='responses'"), strict=True)))
@pytest.mark.parametrize("name", ["resp_1", "conv_1"])
def test_a_client_that_stores_nothing_refuses_a_conversation_of_the_service_s(
    server: OpenAIServer, tmp_path: Path, settings: dict[str, Any], why: str, name: str
) -> None:
    """It would answer without the history, or leave the turn out of it. Nothing is sent."""

    async def scene(client: OpenAIChatClient, store: HistoryStore) -> None:
        agent = Agent(client)
        with pytest.raises(ConfigurationError, match=why):
            await agent.run("hi", agent.get_session(name))
        assert server.requests == []

    play(server, tmp_path, scene, **settings)


BLOCKS = BLOCK.findall((Path(__file__).parents[1] / "docs" / "openai.md").read_text())
ANSWERS: tuple[list[str | list[dict[str, Any]]], ...] = (
    ["Nice to meet you, Ada.", "You are Ada."],
    [[thought("rain?"), called("weather", "c1", city="Bergen")], "Yes."],
)


@pytest.mark.parametrize(("code", "answers"), list(zip(BLOCKS, ANSWERS, strict=True)))
def test_an_example_of_the_page_runs(
    server: OpenAIServer, tmp_path: Path, code: str, answers: list[str | list[dict[str, Any]]]
) -> None:
    """With the server and its script in the service's place, found through the environment."""
    server.script = answers
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "OPENAI_MODEL": MODEL},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED.findall(code)
