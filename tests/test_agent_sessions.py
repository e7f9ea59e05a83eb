"""Whole sessions, kept with each turn by an agent with a `session_store` (FEATURES 27, 28, 30, 31)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentSession,
    BaseContextProvider,
    ConfigurationError,
    ConflictError,
    Content,
    HistoryStore,
    InMemoryHistoryProvider,
    Message,
    SaveError,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    open_store,
)


class Visits(BaseContextProvider):
    """Counts in the session's state, before and after each run."""

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        state["begun"] = state.get("begun", 0) + 1

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        state["done"] = state.get("done", 0) + 1


def make(store: HistoryStore, script: Any = (), *, per_call: bool = False, **flags: Any) -> Agent:
    # The visits come first, so their `after_run` is called last: the session is saved behind it all the same.
    return Agent(
        ScriptedChatClient(script),
        context_providers=[Visits("visits"), StoreHistoryProvider(store, **flags)],
        session_store=store,
        require_per_service_call_history_persistence=per_call,
    )


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_turn_and_state_come_back_together(tmp_path: Path, url: str, per_call: bool, stream: bool) -> None:
    """The state is that after all `after_run`; another process goes on with both (B127)."""

    async def main() -> None:
        async with open_store(url if url == "memory://" else f"sqlite:///{tmp_path}/chat.db") as store:
            for number in (1, 2):
                agent = make(store, per_call=per_call)
                session = await agent.load_session("s")
                assert session.state.get("visits", {}).get("done", 0) == number - 1
                run = agent.run_stream("hi", session).get_final_response() if stream else agent.run("hi", session)
                await run
                assert (await agent.load_session("s")).state["visits"] == {"begun": number, "done": number}
            assert texts(await store.session("s").messages()) == ["hi"] * 4
            snapshot = await store.session("s").load_snapshot()
            assert snapshot is not None
            assert snapshot.version == 2

    asyncio.run(main())


def test_turn_and_state_are_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """One append carries both; where it fails, neither is there and `SaveError` holds the answer."""
    appends: list[Any] = []

    async def main() -> None:
        async with open_store("memory://") as store:
            backend = store._gate.backend
            append = backend.append

            async def spy(key: Any, given: Any) -> Any:
                appends.append(given)
                if len(appends) == 2:
                    raise ConflictError("no")
                return await append(key, given)

            monkeypatch.setattr(backend, "append", spy)
            agent = make(store, ["one", "two"])
            session = agent.create_session("s")
            await agent.run("a", session)
            with pytest.raises(SaveError, match="no") as caught:
                await agent.run("b", session)
            assert getattr(caught.value.response, "text", None) == "two"
            assert [(len(given.records), given.snapshot is not None) for given in appends] == [(2, True)] * 2
            assert (await agent.load_session("s")).state["visits"] == {"begun": 1, "done": 1}
            assert texts(await store.session("s").messages()) == ["a", "one"]

    asyncio.run(main())


def test_a_failed_run_changes_no_kept_session() -> None:
    """State and history stay as they were."""

    async def main() -> None:
        async with open_store("memory://") as store:
            agent = make(store, ["one", RuntimeError("down")])
            await agent.run("a", await agent.load_session("s"))
            with pytest.raises(RuntimeError, match="down"):
                await agent.run("b", await agent.load_session("s"))
            assert (await agent.load_session("s")).state["visits"] == {"begun": 1, "done": 1}

    asyncio.run(main())


def test_a_service_managed_session_is_kept_too() -> None:
    """With the service's id, though the turn adds no message here."""

    async def main() -> None:
        async with open_store("memory://") as store:
            agent = make(store)
            agent.client = ScriptedChatClient(["one"], conversation_id="conv_1")
            await agent.run("a", await agent.load_session("s"))
            assert (await agent.load_session("s")).service_session_id == "conv_1"
            assert await store.session("s").messages() == []

    asyncio.run(main())


def test_a_turn_that_stores_nothing_still_keeps_the_session() -> None:
    """Flags of the provider are about messages."""

    async def main() -> None:
        async with open_store("memory://") as store:
            agent = make(store, store_inputs=False, store_outputs=False)
            await agent.run("a", agent.create_session("s"))
            assert (await agent.load_session("s")).state["visits"]["done"] == 1

    asyncio.run(main())


def test_messages_under_one_id_and_the_session_are_kept() -> None:
    """Also where the append is tried again for a clash of ids, the session goes with it (B73)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            script = [Message("assistant", [text], message_id="same") for text in ("one", "two")]
            agent = make(store, script)
            session = agent.create_session("s")
            for text in ("a", "b"):
                await agent.run(text, session)
            assert texts(await store.session("s").messages()) == ["a", "one", "b", "two"]
            assert (await agent.load_session("s")).state["visits"]["done"] == 2

    asyncio.run(main())


def test_per_call_the_session_is_kept_behind_the_last_one() -> None:
    """Calls save their messages; the state comes with the end of the run."""

    async def main() -> None:
        async with open_store("memory://") as store:
            asks = Message("assistant", [Content("function_call", call_id="1", name="nope", arguments="{}")])
            agent = make(store, [asks, "done"], per_call=True)
            await agent.run("a", agent.create_session("s"))
            assert [message.role for message in await store.session("s").messages()] == [
                "user", "assistant", "tool", "assistant",
            ]  # fmt: skip
            snapshot = await store.session("s").load_snapshot()
            assert snapshot is not None
            assert isinstance(snapshot.session, AgentSession)
            assert (snapshot.version, snapshot.session.state["visits"]["done"]) == (1, 1)

    asyncio.run(main())


def test_per_call_a_session_that_cannot_be_kept_raises_with_the_answer() -> None:
    """The calls are stored by then; `SaveError` holds what the model said."""

    async def main() -> None:
        async with open_store("memory://") as store:
            agent = make(store, ["precious"], per_call=True)
            session = agent.create_session("s")
            session.state["lock"] = asyncio.Lock()
            with pytest.raises(SaveError, match=r"state\.lock") as caught:
                await agent.run("a", session)
            assert getattr(caught.value.response, "text", None) == "precious"

    asyncio.run(main())


@pytest.mark.parametrize(("bad", "error"), [(None, TypeError), (7, TypeError), ("", ValueError)])
def test_a_session_is_loaded_by_its_id(bad: Any, error: type[Exception]) -> None:
    """What is none is refused by name."""

    async def main() -> None:
        async with open_store("memory://") as store:
            with pytest.raises(error, match="session_id"):
                await make(store).load_session(bad)

    asyncio.run(main())


def test_another_namespace_never_sees_it() -> None:
    """Nor another source of the same session (B85)."""

    async def main() -> None:
        async with (
            open_store("memory://shared-sessions", namespace="a") as ours,
            open_store("memory://shared-sessions", namespace="ab") as theirs,
        ):
            await make(ours).run("secret", AgentSession(session_id="s"))
            assert (await make(theirs).load_session("s")).state == {}
            assert (await make(ours, source_id="other").load_session("s")).state == {}
            assert (await make(ours).load_session("s")).state["visits"]["done"] == 1

    asyncio.run(main())


def test_a_session_store_needs_its_provider() -> None:
    """`ConfigurationError` at once: no loading StoreHistoryProvider, or one of another store."""
    store, other = open_store("memory://"), open_store("memory://")
    for providers in (
        [],
        [InMemoryHistoryProvider()],
        [StoreHistoryProvider(store, load_messages=False)],
        [StoreHistoryProvider(other)],
        [StoreHistoryProvider("memory://")],
    ):
        with pytest.raises(ConfigurationError, match="session_store"):
            Agent(ScriptedChatClient(), context_providers=providers, session_store=store)
    agent = make(store)
    agent.context_providers.clear()
    with pytest.raises(ConfigurationError, match="session_store"):
        asyncio.run(agent.run("hi"))
    with pytest.raises(ConfigurationError, match="session_store"):
        asyncio.run(Agent(ScriptedChatClient()).load_session("s"))


def test_a_session_of_another_kind_is_no_session() -> None:
    """An adapter's mapping beside the history is refused, not guessed."""

    async def main() -> None:
        async with open_store("memory://") as store:
            await store.session("s").save_snapshot({"some": "mapping"})
            with pytest.raises(ConfigurationError, match="'s'"):
                await make(store).load_session("s")

    asyncio.run(main())


def test_other_providers_on_a_restored_session_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Once, naming both; the same agent again says nothing, however the session was restored (FEATURES 30)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            agent = make(store)
            await agent.run("a", await agent.load_session("s"))
            await agent.run("b", await agent.load_session("s"))
            await agent.run("c", AgentSession.from_dict((await agent.load_session("s")).to_dict()))
            assert caplog.text == ""
            changed = Agent(agent.client, context_providers=[StoreHistoryProvider(store)], session_store=store)
            session = await changed.load_session("s")
            await changed.run("d", session)
            await changed.run("e", session)

    with caplog.at_level(logging.WARNING, "agentstore"):
        asyncio.run(main())
    (record,) = caplog.records
    assert "[visits:Visits, history:StoreHistoryProvider]" in record.getMessage()
    assert "[history:StoreHistoryProvider]" in record.getMessage()


def test_a_session_that_changes_hands_in_one_process_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Two agents may share a live session; one that the service took over has the same providers as before."""

    async def main() -> None:
        session = AgentSession()
        await Agent(ScriptedChatClient()).run("a", session)
        await Agent(ScriptedChatClient(), context_providers=[Visits("visits")]).run("b", session)
        managed = AgentSession()
        await Agent(ScriptedChatClient(["one"], conversation_id="conv_1")).run("a", managed)
        await Agent(ScriptedChatClient(["two"])).run("b", AgentSession.from_dict(managed.to_dict()))

    with caplog.at_level(logging.WARNING, "agentstore"):
        asyncio.run(main())
    assert caplog.text == ""
