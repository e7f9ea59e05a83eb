"""One test for each row of the feature table of the reference documents (docs/agent.md), named after its row.

A row's details are tested where its code is; here stands what a user of the row relies on, on the public names alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from adapter_stores import STORES
from redis_server import server_url as redis_server_url

from agentstore import (
    Agent,
    AgentSession,
    BaseContextProvider,
    BaseHistoryProvider,
    ChatContext,
    ConfigurationError,
    ConflictError,
    Content,
    HistoryProvider,
    HistoryStore,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    ProviderSessionState,
    SaveError,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    compact,
    keep_newest,
    open_store,
    summarize,
)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message.role for message in messages]


def asks(name: str, arguments: Any = "{}") -> Message:
    return Message("assistant", [Content("function_call", call_id="1", name=name, arguments=arguments)])


def noon() -> str:
    """The time."""
    return "12:00"


def play(scene: Callable[[HistoryStore], Awaitable[None]], url: str = "memory://") -> None:
    async def main() -> None:
        async with open_store(url) as store:
            await scene(store)

    asyncio.run(main())


def test_row_01_a_session_holds_ids_and_state() -> None:
    """Its own id, the service's, and state that providers and users share."""
    session = AgentSession(session_id="s", service_session_id="conv_1", state={"mine": 1})
    assert (session.session_id, session.service_session_id, session.state) == ("s", "conv_1", {"mine": 1})
    assert AgentSession().session_id != AgentSession().session_id


def test_row_02_history_is_in_memory_when_nothing_is_configured() -> None:
    """Only for a session that was passed, and without changing the agent."""
    client = ScriptedChatClient()
    agent = Agent(client)
    session = agent.create_session()
    for one in (session, session, None):
        asyncio.run(agent.run("hi", session=one))
    assert [len(seen) for seen in client.calls] == [1, 3, 1]
    assert (texts(session.state["memory"]["messages"]), agent.context_providers) == (["hi"] * 4, [])


def test_row_03_history_is_read_back_from_the_provider() -> None:
    """Also set anew, and cleared."""

    async def scene(store: HistoryStore) -> None:
        in_state, in_store = InMemoryHistoryProvider(), StoreHistoryProvider(store)
        for provider in (in_state, in_store):
            session = AgentSession()
            await Agent(ScriptedChatClient(["hello"]), context_providers=[provider]).run("hi", session)
            state = session.state[provider.source_id]
            assert texts(await provider.get_messages(session.session_id, state=state)) == ["hi", "hello"]
            assert await provider.clear(session) == 2
            await provider.save_messages(session.session_id, [Message("user", ["anew"])], state=state)
            assert texts(await provider.get_messages(session.session_id, state=state)) == ["anew"]

    play(scene)


def test_row_04_a_provider_has_a_stable_source_id() -> None:
    """The first argument of the in-memory one, the second of the other: part of the key."""

    async def scene(store: HistoryStore) -> None:
        session = AgentSession(session_id="s")
        await Agent(ScriptedChatClient(), context_providers=[StoreHistoryProvider(store, "mine")]).run("hi", session)
        await Agent(ScriptedChatClient(), context_providers=[InMemoryHistoryProvider("own")]).run("hi", session)
        assert len(await store.session("s", source_id="mine").messages()) == len(session.state["own"]["messages"]) == 2

    play(scene)


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ({}, ["in", "out"]),
        ({"store_inputs": False}, ["out"]),
        ({"store_outputs": False}, ["in"]),
        ({"store_context_messages": True}, ["note", "other", "in", "out"]),
        ({"store_context_messages": True, "store_context_from": {"other"}}, ["other", "in", "out"]),
        ({"store_inputs": False, "store_outputs": False}, []),
    ],
)
def test_row_05_flags_say_what_is_stored(flags: dict[str, Any], kept: list[str]) -> None:
    """Inputs, outputs, and context of all other providers or of some."""

    async def scene(store: HistoryStore) -> None:
        providers = [Note("note"), Note("other"), StoreHistoryProvider(store, load_messages=False, **flags)]
        client = ScriptedChatClient(["out", "out"])
        agent = Agent(client, context_providers=providers)
        await agent.run("in", agent.create_session("s"))
        assert texts(await store.session("s").messages()) == kept
        await agent.run("in", agent.create_session("s"))
        assert texts(client.calls[1]) == ["note", "other", "in"]

    play(scene)


class Note(BaseContextProvider):
    """Says its own name to the model."""

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        context.extend_messages(self, [Message("user", [self.source_id])])


def test_row_06_only_one_provider_may_load() -> None:
    """`ConfigurationError` names both; any number may store."""
    first, second = InMemoryHistoryProvider("one"), InMemoryHistoryProvider("two")
    with pytest.raises(ConfigurationError, match=r"'one', 'two'"):
        Agent(ScriptedChatClient(), context_providers=[first, second])
    silent = InMemoryHistoryProvider("two", load_messages=False)
    assert len(Agent(ScriptedChatClient(), context_providers=[first, silent]).context_providers) == 2


@pytest.mark.parametrize("reducer", [keep_newest(2), summarize(lambda older: f"{len(older)} older", 2)])
def test_row_07_a_reducer_shortens_what_is_loaded(reducer: Any) -> None:
    """On both providers; what is kept stays whole."""

    async def scene(store: HistoryStore) -> None:
        for provider in (InMemoryHistoryProvider(reducer=reducer), StoreHistoryProvider(store, reducer=reducer)):
            client = ScriptedChatClient(["one", "two", "three"])
            agent = Agent(client, context_providers=[provider])
            session = agent.create_session("s")
            for text in ("a", "b", "c"):
                await agent.run(text, session)
            assert texts(client.calls[2])[-3:] == ["b", "two", "c"]
            assert len(client.calls[2]) < 5
            provider.reducer = None
            whole = await provider.get_messages("s", state=session.state[provider.source_id])
            assert texts(whole) == ["a", "one", "b", "two", "c", "three"]

    play(scene)


def test_row_08_a_reducer_leaves_the_history_of_a_service_alone() -> None:
    """It is never asked about what it cannot see."""

    def asked(messages: list[Message]) -> list[Message]:
        raise AssertionError

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient(["one"], conversation_id="conv_1")
        agent = Agent(client, context_providers=[StoreHistoryProvider(store, reducer=asked)])
        await agent.run("a", agent.get_session("conv_1"))
        assert texts(client.calls[0]) == ["a"]

    play(scene)


def test_row_09_history_is_limited_by_tokens_before_the_run() -> None:
    """The caller's own count decides, as a window or as a reducer."""

    def size(message: Message) -> int:
        return len(message.text)

    async def scene(store: HistoryStore) -> None:
        await store.session("s").append([Message("user", [text]) for text in ("long long", "four", "five")])
        for limits in (
            {"max_tokens": 8, "count_tokens": size},
            {"reducer": keep_newest(max_tokens=8, count_tokens=size)},
        ):
            client = ScriptedChatClient()
            provider = StoreHistoryProvider(store, store_inputs=False, store_outputs=False, **limits)
            await Agent(client, context_providers=[provider]).run("now", AgentSession(session_id="s"))
            assert texts(client.calls[0]) == ["four", "five", "now"]

    play(scene)


def test_row_10_a_stored_history_is_compacted() -> None:
    """The originals are in the archive; the next run goes on with the summary."""

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient(["one", "two", "three"])
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        for text in ("a", "b"):
            await agent.run(text, agent.create_session("s"))
        done = await compact(store.session("s"), summarize(lambda older: "/".join(texts(older)), 2))
        await agent.run("c", agent.create_session("s"))
        assert texts(client.calls[2]) == ["a/one", "b", "two", "c"]
        assert texts(await store.session("s", source_id="history~archive").messages()) == ["a", "one"]
        assert done.archived == 2

    play(scene)


def test_row_11_a_filter_changes_what_is_loaded() -> None:
    """The model sees what it gives; the store is untouched."""

    async def scene(store: HistoryStore) -> None:
        provider = StoreHistoryProvider(store, provide_output_filter=lambda messages: messages[-1:])
        client = ScriptedChatClient(["one", "two"])
        agent = Agent(client, context_providers=[provider])
        for text in ("a", "b"):
            await agent.run(text, agent.create_session("s"))
        assert texts(client.calls[1]) == ["one", "b"]
        assert texts(await store.session("s").messages()) == ["a", "one", "b", "two"]

    play(scene)


def test_row_12_filters_change_what_is_stored() -> None:
    """One for the input, one for the answer, sync or async; the caller gets the answer as it was."""

    def without_secrets(messages: list[Message]) -> list[Message]:
        return [message for message in messages if "secret" not in message.text]

    async def shortened(messages: list[Message]) -> list[Message]:
        return [Message(message.role, [message.text[:3]]) for message in messages]

    async def scene(store: HistoryStore) -> None:
        provider = StoreHistoryProvider(store, store_input_filter=without_secrets, store_output_filter=shortened)
        agent = Agent(ScriptedChatClient(["certainly"]), context_providers=[provider])
        answer = await agent.run(["my secret", "a question"], agent.create_session("s"))
        assert answer.text == "certainly"
        assert texts(await store.session("s").messages()) == ["a question", "cer"]

    play(scene)


def test_row_13_history_comes_before_the_input() -> None:
    """Instructions first, then context and history in the order of the providers, then the input."""
    client = ScriptedChatClient(["one", "two"])
    agent = Agent(client, instructions="be kind", context_providers=[InMemoryHistoryProvider(), Note("note")])
    session = agent.create_session()
    for text in ("a", "b"):
        asyncio.run(agent.run(text, session))
    assert texts(client.calls[1]) == ["be kind", "a", "one", "note", "b"]


def test_row_14_loaded_messages_say_where_they_are_from() -> None:
    """In the run only: what is stored has no stamp, nor has the caller's message."""

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient()
        agent = Agent(client, context_providers=[StoreHistoryProvider(store, "main"), Note("note")])
        question = Message("user", ["b"])
        await agent.run("a", agent.create_session("s"))
        await agent.run(question, agent.create_session("s"))
        stamps = [message.additional_properties.get("_attribution", {}) for message in client.calls[1]]
        assert [stamp.get("source_id") for stamp in stamps] == ["main", "main", "note", None]
        assert stamps[0]["source_type"] == "StoreHistoryProvider"
        stored = await store.session("s", source_id="main").messages()
        assert all(not message.additional_properties for message in [*stored, question])

    play(scene)


def test_row_15_what_came_from_history_is_not_stored_again() -> None:
    """Neither by attribution nor as a replay, with ids or without; an honest repeat is kept."""

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient(["done"] * 5)
        agent = Agent(client, context_providers=[StoreHistoryProvider(store)])
        for _ in range(3):
            await agent.run("yes", agent.create_session("s"))
        assert texts(await store.session("s").messages()) == ["yes", "done"] * 3
        await agent.run([*client.calls[2], "more"], agent.create_session("s"))
        rebuilt = [Message(message.role, [message.text]) for message in await store.session("s").messages()]
        await agent.run([*rebuilt, Message("user", ["last"])], agent.create_session("s"))
        stored = texts(await store.session("s").messages())
        assert stored[-2:] == ["last", "done"]
        assert len(stored) == len(rebuilt) + 2

    play(scene)


def test_row_16_a_failed_run_stores_nothing() -> None:
    """Unless `store_partial` is asked for; a failing save raises with the answer, or is logged."""

    async def scene(store: HistoryStore) -> None:
        agent = Agent(
            ScriptedChatClient([RuntimeError("down"), RuntimeError("down"), "precious", "precious"]),
            context_providers=[StoreHistoryProvider(store)],
        )
        with pytest.raises(RuntimeError, match="down"):
            await agent.run("a", agent.create_session("s"))
        assert await store.session("s").info() is None
        agent.context_providers = [StoreHistoryProvider(store, store_partial=True)]
        with pytest.raises(RuntimeError, match="down"):
            await agent.run("b", agent.create_session("s"))
        (asked,) = await store.session("s").messages()
        assert (asked.text, asked.additional_properties) == ("b", {"interrupted": True})
        agent.context_providers = [Full("full")]
        with pytest.raises(SaveError) as caught:
            await agent.run("c", agent.create_session("s"))
        assert getattr(caught.value.response, "text", None) == "precious"
        agent.context_providers = [Full("full", on_save_error="log")]
        assert (await agent.run("c", agent.create_session("s"))).text == "precious"

    play(scene)


class Full(BaseHistoryProvider):
    """Loads nothing and cannot save."""

    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        return []

    async def save_messages(self, session_id: str | None, messages: Any, *, state: Any = None, **kwargs: Any) -> None:
        raise OSError("no space left")


class Rows(BaseHistoryProvider):
    """A history in somebody's table, in two methods."""

    def __init__(self) -> None:
        super().__init__("rows")
        self.table: dict[str, list[str]] = {}

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        key = (state or {}).get("history_key", session_id)
        return [Message.from_dict(json.loads(row)) for row in self.table.get(key, [])]

    async def save_messages(
        self, session_id: str | None, messages: Any, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        key = session_id if state is None else state.setdefault("history_key", session_id)
        self.table.setdefault(str(key), []).extend([json.dumps(message.to_dict()) for message in messages])


def test_row_17_a_provider_of_two_methods_is_enough() -> None:
    """It loads, saves, and never stores what it loaded."""
    provider, client = Rows(), ScriptedChatClient(["one", "two"])
    agent = Agent(client, context_providers=[provider])
    session = agent.create_session("s")
    for text in ("a", "b"):
        asyncio.run(agent.run(text, session))
    assert isinstance(provider, HistoryProvider)
    assert texts(client.calls[1]) == ["a", "one", "b"]
    assert len(provider.table["s"]) == 4


def test_row_18_the_whole_pipeline_can_be_overridden() -> None:
    """`before_run` and `after_run` of a history provider, with what the base class does inside."""
    seen: list[str] = []

    class Watched(InMemoryHistoryProvider):
        async def before_run(self, **given: Any) -> None:
            await super().before_run(**given)
            seen.append(f"loaded {len(given['context'].get_messages())}")

        async def after_run(self, **given: Any) -> None:
            seen.append(f"answered {given['context'].response.text}")
            await super().after_run(**given)

    agent, session = Agent(ScriptedChatClient(["one", "two"]), context_providers=[Watched()]), AgentSession()
    for text in ("a", "b"):
        asyncio.run(agent.run(text, session))
    assert seen == ["loaded 0", "answered one", "loaded 2", "answered two"]


def test_row_19_a_provider_keeps_nothing_of_a_session() -> None:
    """One instance serves sessions at once; what belongs to a session is in its state or store."""

    async def scene(store: HistoryStore) -> None:
        for provider in (InMemoryHistoryProvider(), StoreHistoryProvider(store)):
            client = ScriptedChatClient()
            agent = Agent(client, context_providers=[provider])
            sessions = [agent.create_session(f"s{number}") for number in range(10)]
            for text in ("a", "b"):
                await asyncio.gather(*[agent.run(f"{text} {one.session_id}", one) for one in sessions])
            assert all(len({text.split()[1] for text in texts(seen)}) == 1 for seen in client.calls)
            assert [len(seen) for seen in client.calls] == [1] * 10 + [3] * 10

    play(scene)


def test_row_20_state_of_a_provider_is_typed() -> None:
    """Made by a factory, kept in plain form, and back after a restart."""

    @dataclass
    class Count:
        runs: int = 0

    count = ProviderSessionState("count", lambda session: Count())
    session = AgentSession()
    for expected in (1, 2):
        value = count.get(session)
        value.runs += 1
        count.save(session, value)
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        assert count.get(session) == Count(expected)


def test_row_21_each_provider_has_one_dict_of_state() -> None:
    """Under its source id, and it survives the session's own form."""

    class Count(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            state["runs"] = state.get("runs", 0) + 1
            assert session.state[self.source_id] is state

    agent = Agent(ScriptedChatClient(), context_providers=[Count("a"), Count("b")])
    session = agent.create_session()
    for _ in range(2):
        asyncio.run(agent.run("hi", session))
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert (session.state["a"], session.state["b"]) == ({"runs": 2}, {"runs": 2})


def test_row_22_a_session_of_the_service_is_resumed_by_its_id() -> None:
    """It goes into the options, and the answer's takes its place, also while streaming."""

    async def main() -> None:
        agent = Agent(ScriptedChatClient(["hello to you", "two"], conversation_id="conv_2"))
        session = agent.get_session(service_session_id="conv_1")
        async with agent.run_stream("hi", session) as stream:
            await anext(stream)
            assert session.service_session_id == "conv_2"
        again = AgentSession.from_dict(session.to_dict())
        await agent.run("again", again)
        assert again.service_session_id == "conv_2"

    asyncio.run(main())


@pytest.mark.parametrize(("mode", "kept"), [("skip", []), ("store_only", ["a", "one"]), ("error", None)])
def test_row_23_local_history_is_skipped_where_the_service_keeps_it(mode: Any, kept: list[str] | None) -> None:
    """By default; it can be stored beside it, or be an error."""

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient(["one"], conversation_id="conv_1")
        agent = Agent(client, context_providers=[StoreHistoryProvider(store, on_service_managed=mode)])
        run = agent.run("a", agent.get_session("conv_1", session_id="s"))
        if kept is None:
            with pytest.raises(ConfigurationError, match=r"'history'.*'s'"):
                await run
            assert client.calls == []
        else:
            await run
            assert texts(await store.session("s").messages()) == kept

    play(scene)


def test_row_24_local_and_service_history_are_not_mixed() -> None:
    """A session that has a local history does not become the service's."""

    async def scene(store: HistoryStore) -> None:
        session, providers = AgentSession(session_id="s"), [StoreHistoryProvider(store)]
        await Agent(ScriptedChatClient(["one"]), context_providers=providers).run("a", session)
        service = Agent(ScriptedChatClient(["two"], conversation_id="conv_1"), context_providers=providers)
        with pytest.raises(ConfigurationError, match="local history"):
            await service.run("b", session)
        assert session.service_session_id is None
        assert texts(await store.session("s").messages()) == ["a", "one"]

    play(scene)


def test_row_25_history_can_be_saved_around_each_call_of_the_model() -> None:
    """The first call is there when the second begins; a service-managed conversation is an error."""

    async def scene(store: HistoryStore) -> None:
        seen: list[list[str]] = []

        async def look() -> str:
            seen.append(roles(await store.session("s").messages()))
            return "looked"

        agent = Agent(
            ScriptedChatClient([asks("look"), "done"]),
            tools=[look],
            context_providers=[StoreHistoryProvider(store)],
            require_per_service_call_history_persistence=True,
        )
        await agent.run("go", agent.create_session("s"))
        assert seen == [["user", "assistant"]]
        assert roles(await store.session("s").messages()) == ["user", "assistant", "tool", "assistant"]
        with pytest.raises(ConfigurationError, match="'conv_1'"):
            await agent.run("go", agent.get_session("conv_1"))

    play(scene)


@pytest.mark.parametrize(("per_call", "kept"), [(False, ["user", "assistant", "tool"]), (True, ["user", "assistant"])])
def test_row_26_middleware_that_ends_the_run_leaves_what_a_service_would_have_kept(
    per_call: bool, kept: list[str]
) -> None:
    """Behind a tool; and the next run sees no open call."""

    class Last(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            context.extend_middleware(self, end_behind_tools)

    async def end_behind_tools(context: ChatContext, call_next: Any) -> None:
        if context.messages[-1].role == "tool":
            raise MiddlewareTermination
        await call_next()

    async def scene(store: HistoryStore) -> None:
        client = ScriptedChatClient([asks("noon"), "fine"])
        agent = Agent(
            client,
            tools=[noon],
            context_providers=[StoreHistoryProvider(store), Last("last")],
            require_per_service_call_history_persistence=per_call,
        )
        session = agent.create_session("s")
        assert roles((await agent.run("go", session)).messages) == ["assistant", "tool"]
        assert roles(await store.session("s").messages()) == kept
        await agent.run("and?", session)
        assert roles(client.calls[1]) == (["user", "user"] if per_call else [*kept, "user"])

    play(scene)


def test_row_27_a_session_is_serialized_and_restored() -> None:
    """As plain values by hand, and versioned in a store."""

    async def scene(store: HistoryStore) -> None:
        agent = Agent(ScriptedChatClient(["one", "two", "three"]))
        session = agent.create_session("s")
        await agent.run("a", session)
        restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        await agent.run("b", restored)
        chat = store.session("s")
        assert [await chat.save_snapshot(one) for one in (session, restored)] == [1, 2]
        loaded = await chat.load_snapshot()
        assert loaded is not None
        assert isinstance(loaded.session, AgentSession)
        assert loaded.session.to_dict() == restored.to_dict()

    play(scene)


def test_row_28_the_whole_session_is_kept_with_its_turn() -> None:
    """Ids and state of every provider, not only the text; in one step with the messages."""

    async def scene(store: HistoryStore) -> None:
        agent = Agent(ScriptedChatClient(), context_providers=[StoreHistoryProvider(store)], session_store=store)
        session = agent.create_session("s")
        session.state["mine"] = {"cart": ["tea"]}
        await agent.run("hi", session)
        loaded = await agent.load_session("s")
        assert loaded.state["mine"] == {"cart": ["tea"]}
        assert len(await store.session("s").messages()) == 2

    play(scene)


def test_row_29_a_session_store_refuses_a_stale_version() -> None:
    """Compare and swap, expiry with the session, deletion: as for every history."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s")
        version = await chat.save_snapshot(AgentSession(session_id="s"))
        await chat.save_snapshot(AgentSession(session_id="s"), expected_version=version)
        with pytest.raises(ConflictError):
            await chat.save_snapshot(AgentSession(session_id="s"), expected_version=version)
        await chat.expire(datetime.now(timezone.utc) - timedelta(seconds=5))
        assert await chat.load_snapshot() is None
        await chat.save_snapshot(AgentSession(session_id="s"), expected_version=0)
        await chat.delete()
        assert await chat.load_snapshot() is None

    play(scene)


def test_row_30_a_session_is_restored_with_the_same_providers(caplog: pytest.LogCaptureFixture) -> None:
    """Others are a warning that names both."""
    session = AgentSession()
    asyncio.run(Agent(ScriptedChatClient(), context_providers=[InMemoryHistoryProvider("old")]).run("hi", session))
    restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    with caplog.at_level(logging.WARNING, "agentstore"):
        asyncio.run(Agent(ScriptedChatClient(), context_providers=[InMemoryHistoryProvider("new")]).run("hi", restored))
    assert "old:InMemoryHistoryProvider" in caplog.text
    assert "new:InMemoryHistoryProvider" in caplog.text


def test_row_31_a_namespace_binds_histories_to_a_tenant(tmp_path: Path) -> None:
    """The same session id under another namespace is another conversation."""

    async def ask(namespace: str) -> list[str]:
        async with open_store(f"sqlite:///{tmp_path}/chat.db", namespace=namespace) as store:
            client = ScriptedChatClient()
            agent = Agent(client, context_providers=[StoreHistoryProvider(store)], session_store=store)
            await agent.run(f"I am {namespace}", await agent.load_session("user-42"))
            return texts(client.calls[0])

    for namespace in ("acme", "acm", "acme2"):
        assert asyncio.run(ask(namespace)) == [f"I am {namespace}"]


def test_row_32_a_provider_keeps_the_key_it_chose_in_the_state() -> None:
    """The session carries it, whatever id the next process gives it."""
    provider, client = Rows(), ScriptedChatClient(["one", "two"])
    agent = Agent(client, context_providers=[provider])
    session = agent.create_session("first")
    asyncio.run(agent.run("a", session))
    moved = AgentSession(session_id="second", state=session.to_dict()["state"])
    asyncio.run(agent.run("b", moved))
    assert list(provider.table) == ["first"]
    assert texts(client.calls[1]) == ["a", "one", "b"]


def test_row_33_history_stays_within_the_context_window() -> None:
    """By messages or by tokens, and no tool result without its call."""

    async def scene(store: HistoryStore) -> None:
        agent = Agent(ScriptedChatClient([asks("noon"), "noon it is"] * 5), tools=[noon])
        agent.context_providers = [StoreHistoryProvider(store)]
        for _ in range(5):
            await agent.run("what time is it?", agent.create_session("s"))
        for limit in range(8):
            agent.client = client = ScriptedChatClient(["fine"])
            agent.context_providers = [StoreHistoryProvider(store, max_messages=limit)]
            fork = await store.session("s").fork(f"s{limit}")
            await agent.run("and?", agent.create_session(fork.key.session_id))
            (seen,) = client.calls
            assert len(seen) <= limit + 1
            assert roles(seen)[0] != "tool"

    play(scene)


@pytest.mark.parametrize(
    "url", [*STORES.values(), lambda folder: f"{redis_server_url()}?prefix=features-{uuid4().hex}"]
)
def test_row_34_histories_are_in_the_store_of_your_choice(tmp_path: Path, url: Callable[[Path], str]) -> None:
    """The URL chooses it; the agent is the same."""
    name = uuid4().hex

    async def scene(store: HistoryStore) -> None:
        agent = Agent(ScriptedChatClient(["hello"]), context_providers=[StoreHistoryProvider(store)])
        await agent.run("hi", agent.create_session(name))
        assert texts(await store.session(name).messages()) == ["hi", "hello"]

    play(scene, url(tmp_path))


def test_row_35_an_audit_records_context_without_feeding_the_model() -> None:
    """Each turn once, with what other providers added, without what the main one loaded."""

    async def scene(store: HistoryStore) -> None:
        audit = StoreHistoryProvider(store, "audit", load_messages=False, store_context_messages=True)
        client = ScriptedChatClient(["one", "two", "three"])
        agent = Agent(client, context_providers=[StoreHistoryProvider(store), Note("note"), audit])
        for text in ("a", "b", "c"):
            await agent.run(text, agent.create_session("s"))
        kept = texts(await store.session("s", source_id="audit").messages())
        assert kept == ["note", "a", "one", "note", "b", "two", "note", "c", "three"]
        assert texts(client.calls[2]) == ["a", "one", "b", "two", "note", "c"]

    play(scene)


def test_row_36_context_providers_stand_around_each_run() -> None:
    """Before it in their order, behind it in the reverse one."""
    seen: list[str] = []

    class Spy(BaseContextProvider):
        async def before_run(self, **given: Any) -> None:
            seen.append(f"before {self.source_id}")

        async def after_run(self, **given: Any) -> None:
            seen.append(f"after {self.source_id}")

    asyncio.run(Agent(ScriptedChatClient(), context_providers=[Spy("a"), Spy("b")]).run("hi"))
    assert seen == ["before a", "before b", "after b", "after a"]


def test_row_37_a_provider_adds_instructions_messages_tools_and_middleware() -> None:
    """All four reach the model's call."""
    seen: list[list[str]] = []

    async def watch(context: ChatContext, call_next: Any) -> None:
        seen.append([item.name for item in context.tools])
        await call_next()

    class Rich(BaseContextProvider):
        async def before_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            context.extend_instructions(self.source_id, "be kind")
            context.extend_messages(self, [Message("user", ["likes tea"])])
            context.extend_tools(self.source_id, [noon])
            context.extend_middleware(self.source_id, [watch])

    client = ScriptedChatClient([asks("noon"), "noon"])
    answer = asyncio.run(Agent(client, context_providers=[Rich("rich")]).run("hi"))
    assert texts(client.calls[0]) == ["be kind", "likes tea", "hi"]
    assert (answer.text, seen) == ("noon", [["noon"], ["noon"]])


def test_row_38_a_provider_sees_input_and_answer() -> None:
    """And may keep what it learns in its state."""

    class Learn(BaseContextProvider):
        async def after_run(
            self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
        ) -> None:
            assert context.response is not None
            state["learned"] = [*texts(context.input_messages), context.response.text]

    session = AgentSession()
    asyncio.run(Agent(ScriptedChatClient(["out"]), context_providers=[Learn("learn")]).run("in", session))
    assert session.state["learn"] == {"learned": ["in", "out"]}


def test_row_39_a_stream_is_saved_at_its_end() -> None:
    """The same turn as a run's; a stream that is left before stores nothing."""

    async def scene(store: HistoryStore) -> None:
        agent = Agent(ScriptedChatClient(["hello to you", "never"]), context_providers=[StoreHistoryProvider(store)])
        stream = agent.run_stream("hi", agent.create_session("s"))
        assert "".join([update.text async for update in stream]) == "hello to you"
        assert (await stream.get_final_response()).text == "hello to you"
        async with agent.run_stream("again", agent.create_session("s")) as left:
            await anext(left)
        assert texts(await store.session("s").messages()) == ["hi", "hello to you"]

    play(scene)
