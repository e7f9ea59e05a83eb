"""History providers: what is loaded, what is saved, and what is never saved twice."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentstore import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseContextProvider,
    BaseHistoryProvider,
    ClosedError,
    ConfigurationError,
    Content,
    HistoryProvider,
    HistoryStore,
    InMemoryHistoryProvider,
    Message,
    SaveError,
    ScriptedChatClient,
    SessionContext,
    StoreHistoryProvider,
    UnavailableError,
    UnknownBackendError,
    open_store,
)

Scene = Callable[[BaseHistoryProvider], Awaitable[None]]


@pytest.fixture(params=["state", "memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(kind: str, folder: Path, source_id: str = "main", **flags: Any) -> AsyncIterator[BaseHistoryProvider]:
    """A provider that keeps histories in the session's state, in memory, or in a file."""
    if kind == "state":
        yield InMemoryHistoryProvider(source_id, **flags)
        return
    provider = StoreHistoryProvider(
        "memory://" if kind == "memory" else f"sqlite:///{folder}/chat.db", source_id, **flags
    )
    try:
        yield provider
    finally:
        await provider.aclose()


def user(text: str, message_id: str | None = None) -> Message:
    return Message("user", [text], message_id=message_id)


def answer(text: str, message_id: str | None = None) -> Message:
    return Message("assistant", [text], message_id=message_id)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def history(provider: BaseHistoryProvider, session: AgentSession) -> list[str]:
    return texts(await provider.get_messages(session.session_id, state=session.state.get(provider.source_id)))


async def turn(
    provider: BaseHistoryProvider, session: AgentSession, inputs: Sequence[Message], outputs: Sequence[Message]
) -> SessionContext:
    """One run around the provider, without an agent."""
    context = SessionContext(
        input_messages=inputs, session_id=session.session_id, service_session_id=session.service_session_id
    )
    state = session.state.setdefault(provider.source_id, {})
    await provider.before_run(agent=None, session=session, context=context, state=state)
    context.response = AgentResponse(outputs)
    await provider.after_run(agent=None, session=session, context=context, state=state)
    return context


def play(kind: str, folder: Path, scene: Scene, **flags: Any) -> None:
    async def main() -> None:
        async with opened(kind, folder, **flags) as provider:
            await scene(provider)

    asyncio.run(main())


def test_three_honest_repeats_keep_six_messages(kind: str, tmp_path: Path) -> None:
    """Three turns "yes"/"done" without ids are six messages (B73)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        for _ in range(3):
            await turn(provider, session, [user("yes")], [answer("done")])
        assert await history(provider, session) == ["yes", "done"] * 3

    play(kind, tmp_path, scene)


def test_the_same_words_twice_in_one_batch_are_two_messages(kind: str, tmp_path: Path) -> None:
    """Also with ids that differ, and in one batch (B73)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        await turn(provider, session, [user("yes"), user("yes"), user("yes", "1"), user("yes", "2")], [answer("ok")])
        assert await history(provider, session) == ["yes"] * 4 + ["ok"]

    play(kind, tmp_path, scene)


@pytest.mark.parametrize("rebuilt", [True, False])
def test_a_replayed_transcript_adds_its_new_part_only(kind: str, tmp_path: Path, rebuilt: bool) -> None:
    """The caller hands in everything each time, as its own objects (by id) or rebuilt without ids (B72, B75, B78)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        transcript: list[Message] = []
        for number in range(4):
            transcript.append(user("go on"))
            inputs = [Message(m.role, m.contents) for m in transcript] if rebuilt else list(transcript)
            reply = answer(f"step {number % 2}")
            context = await turn(provider, session, inputs, [reply])
            assert len(context.get_messages(include_input=True)) == len(transcript)
            transcript.append(reply)
        assert await history(provider, session) == texts(transcript)

    play(kind, tmp_path, scene)


def test_a_window_cut_from_a_longer_history_is_found_in_the_replay(tmp_path: Path) -> None:
    """Only the newest two are loaded; a full transcript without ids still adds its new part only."""

    async def scene(provider: BaseHistoryProvider) -> None:
        assert isinstance(provider, StoreHistoryProvider)
        session = AgentSession(session_id="s")
        transcript: list[Message] = []
        for number in range(5):
            transcript.append(user("go on"))
            await turn(provider, session, [Message(m.role, m.contents) for m in transcript], [answer(str(number))])
            transcript.append(answer(str(number)))
        assert texts(await provider.history(session).messages()) == texts(transcript)

    play("memory", tmp_path, scene, max_messages=2)


def test_one_id_for_two_messages_keeps_both(kind: str, tmp_path: Path) -> None:
    """The later gets an id derived from the old one and its digest; a replay of either adds nothing."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        for _ in range(2):
            await turn(provider, session, [user("hi", "u")], [answer("one", "x"), answer("two", "x")])
        await turn(provider, session, [], [answer("two", "x")])
        assert await history(provider, session) == ["hi", "one", "two"]

    play(kind, tmp_path, scene)


def test_what_is_loaded_is_stamped_and_independent(kind: str, tmp_path: Path) -> None:
    """Stamped with its source on copies; changing what was saved or loaded changes nothing kept (B97, FEATURES 14)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        given = user("hi")
        await turn(provider, session, [given], [answer("hello")])
        given.contents[0].text = "changed"
        context = await turn(provider, session, [], [])
        stamp = {"source_id": "main", "source_type": type(provider).__name__}
        for message in context.get_messages():
            assert message.additional_properties == {"_attribution": stamp}
            message.contents[0].text = "changed"
        loaded = await provider.get_messages(session.session_id, state=session.state["main"])
        assert texts(loaded) == ["hi", "hello"]
        assert all("_attribution" not in message.additional_properties for message in loaded)

    play(kind, tmp_path, scene)


def test_loaded_messages_handed_in_again_are_not_stored_again(kind: str, tmp_path: Path) -> None:
    """A caller that feeds the context back as input, as it is or edited: the stamp tells (FEATURES 15)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        context = await turn(provider, session, [user("hi")], [answer("hello")])
        context = await turn(provider, session, [user("again")], [answer("yes")])
        loaded = context.get_messages()[1]
        loaded.contents = [Content("text", text="shortened")]
        await turn(provider, session, [loaded, user("third")], [])
        assert await history(provider, session) == ["hi", "hello", "again", "yes", "third"]

    play(kind, tmp_path, scene)


def test_an_orphan_result_is_not_handed_to_the_model(kind: str, tmp_path: Path) -> None:
    """It stays in what is kept, raw (B57)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        orphan = Message("tool", [Content("function_result", call_id="gone", result="42")])
        await turn(provider, session, [user("hi"), orphan], [answer("hello")])
        context = await turn(provider, session, [], [])
        assert texts(context.get_messages()) == ["hi", "hello"]

    play(kind, tmp_path, scene)


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ({"store_inputs": False}, ["out"]),
        ({"store_outputs": False}, ["in"]),
        ({"store_context_messages": True}, ["note", "in", "out"]),
        ({"store_context_messages": True, "store_context_from": {"other"}}, ["in", "out"]),
        ({"store_input_filter": lambda messages: []}, ["out"]),
        ({"store_output_filter": lambda messages: [answer(m.text.upper()) for m in messages]}, ["in", "OUT"]),
    ],
)
def test_flags_and_filters_say_what_is_stored(
    kind: str, tmp_path: Path, flags: dict[str, Any], kept: list[str]
) -> None:
    """Inputs, outputs, context of others, each through its filter (FEATURES 5, 12)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        context = SessionContext(input_messages=[user("in")], session_id=session.session_id)
        context.extend_messages("notes", [user("note")])
        context.response = AgentResponse([answer("out")])
        state = session.state.setdefault("main", {})
        await provider.after_run(agent=None, session=session, context=context, state=state)
        assert await history(provider, session) == kept
        for message in await provider.get_messages(session.session_id, state=state):
            assert message.additional_properties == {}, "the stamp belongs to the run"

    play(kind, tmp_path, scene, **flags)


async def newest_two(messages: list[Message]) -> list[Message]:
    await asyncio.sleep(0)
    return messages[-2:]


@pytest.mark.parametrize("reducer", [newest_two, lambda messages: messages[-2:]])
def test_a_reducer_is_applied_at_load(kind: str, tmp_path: Path, reducer: Any) -> None:
    """Sync or async; what is kept stays whole (FEATURES 7)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        for number in range(3):
            await turn(provider, session, [user(f"q{number}")], [answer(f"a{number}")])
        assert await history(provider, session) == ["q2", "a2"]
        provider.reducer = None  # type: ignore[attr-defined]
        assert len(await history(provider, session)) == 6

    play(kind, tmp_path, scene, reducer=reducer)


def test_an_output_filter_decides_what_the_model_sees(kind: str, tmp_path: Path) -> None:
    """Sync or async, after the window and the reducer; what it makes an orphan does not get through (FEATURES 11)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession()
        call = Message("assistant", [Content("function_call", call_id="c", name="f", arguments="{}")])
        result = Message("tool", [Content("function_result", call_id="c", result="1")])
        await turn(provider, session, [user("hi")], [call, result, answer("done")])
        context = await turn(provider, session, [], [])
        assert texts(context.get_messages()) == ["hi", "done"]

    def without_calls(messages: list[Message]) -> list[Message]:
        return [m for m in messages if all(content.type != "function_call" for content in m.contents)]

    play(kind, tmp_path, scene, provide_output_filter=without_calls)


def test_a_restored_session_remembers_in_its_own_state() -> None:
    """After `from_dict` the messages are dicts; the provider makes messages of them (FEATURES 2, 3, 27)."""

    async def main() -> None:
        provider, session = InMemoryHistoryProvider(), AgentSession()
        await turn(provider, session, [user("hi")], [answer("hello")])
        assert all(type(message) is Message for message in session.state["memory"]["messages"])
        restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        context = await turn(provider, restored, [user("again")], [answer("yes")])
        assert texts(context.get_messages()) == ["hi", "hello"]
        assert texts(restored.state["memory"]["messages"]) == ["hi", "hello", "again", "yes"]
        assert len(session.state["memory"]["messages"]) == 2

    asyncio.run(main())


def test_a_history_can_be_cleared(kind: str, tmp_path: Path) -> None:
    """All of one session's messages, and their number; the next turn starts afresh (FEATURES 3)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        assert isinstance(provider, InMemoryHistoryProvider | StoreHistoryProvider)
        session = AgentSession()
        assert await provider.clear(session) == 0
        await turn(provider, session, [user("hi")], [answer("hello")])
        assert await provider.clear(session) == 2
        assert await history(provider, session) == []

    play(kind, tmp_path, scene)


def test_two_providers_on_one_session_never_meet() -> None:
    """Main and audit under one session id: loaded, cleared and listed apart (B83)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            main, audit = StoreHistoryProvider(store), StoreHistoryProvider(store, "audit", load_messages=False)
            session = AgentSession(session_id="s")
            for provider in (main, audit):
                await turn(provider, session, [user(provider.source_id)], [])
            assert await audit.clear(session) == 1
            assert await history(main, session) == ["history"]
            assert await main.list_sessions() == ["s"]
            assert await StoreHistoryProvider(store, "third").list_sessions() == []

    asyncio.run(main())


class Notes(BaseContextProvider):
    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        context.extend_messages(self, [user("likes tea")])


@pytest.mark.parametrize("named", [None, {"main", "notes"}])
def test_an_audit_does_not_store_the_history_again_each_turn(named: set[str] | None) -> None:
    """It records the context of others, without what the main provider loaded unless that is named (FEATURES 35)."""

    async def main() -> list[str]:
        async with open_store("memory://") as store:
            audit = StoreHistoryProvider(
                store, "audit", load_messages=False, store_context_messages=True, store_context_from=named
            )
            client = ScriptedChatClient(["one", "two", "three"])
            providers = [StoreHistoryProvider(store, "main"), Notes("notes"), audit]
            agent = Agent(client, context_providers=providers)
            session = agent.create_session("s")
            for text in ("a", "b", "c"):
                await agent.run(text, session=session)
            assert texts(client.calls[-1]) == ["a", "one", "b", "two", "likes tea", "c"]
            return texts(await audit.history(session).messages())

    kept = asyncio.run(main())
    assert [text for text in kept if text != "likes tea"] == ["a", "one", "b", "two", "c", "three"]
    assert kept.count("likes tea") == 3


def test_an_audit_skips_a_replay_too() -> None:
    """What the loading provider found to be replayed is new to nobody."""

    async def main() -> list[str]:
        async with open_store("memory://") as store:
            audit = StoreHistoryProvider(store, "audit", load_messages=False)
            client = ScriptedChatClient()
            agent = Agent(client, context_providers=[StoreHistoryProvider(store, "main"), audit])
            session = agent.create_session("s")
            await agent.run("a", session)
            await agent.run([user("a"), answer("a"), user("b")], session)
            return texts(await audit.history(session).messages())

    assert asyncio.run(main()) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(("mode", "kept"), [("skip", []), ("store_only", ["in", "out"])])
def test_a_service_managed_session_is_left_alone(kind: str, tmp_path: Path, mode: str, kept: list[str]) -> None:
    """Nothing is loaded; with `"store_only"` the turn is saved (FEATURES 23)."""

    async def scene(provider: BaseHistoryProvider) -> None:
        session = AgentSession(session_id="s")
        await turn(provider, session, [user("before")], [])
        managed = AgentSession(session_id="s", service_session_id="conv_1", state=session.state)
        context = await turn(provider, managed, [user("in")], [answer("out")])
        assert context.get_messages() == []
        assert await history(provider, session) == ["before", *kept]

    play(kind, tmp_path, scene, on_service_managed=mode)


def test_mixing_local_and_service_history_can_be_an_error() -> None:
    """`on_service_managed="error"` names provider and session before the model is called (FEATURES 24)."""
    provider = InMemoryHistoryProvider(on_service_managed="error")
    with pytest.raises(ConfigurationError, match=r"'memory'.*'s'"):
        asyncio.run(turn(provider, AgentSession(session_id="s", service_session_id="conv_1"), [], []))


class Broken(BaseHistoryProvider):
    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        return []

    async def save_messages(self, session_id: str | None, messages: Any, *, state: Any = None, **kwargs: Any) -> None:
        raise UnavailableError("the disk is full")


def test_a_failing_save_raises_with_the_answer() -> None:
    """`SaveError` holds the response and has the store's error as its cause (B49, FEATURES 16)."""
    with pytest.raises(SaveError, match="disk is full") as caught:
        asyncio.run(turn(Broken("broken"), AgentSession(), [user("hi")], [answer("precious")]))
    assert isinstance(caught.value.response, AgentResponse)
    assert caught.value.response.text == "precious"
    assert isinstance(caught.value.__cause__, UnavailableError)


@pytest.mark.parametrize("given", [None, ["text"], Message("user", ["one"])], ids=["None", "texts", "one"])
def test_a_filter_that_gives_no_messages_is_told(given: Any) -> None:
    """At load and at save; the error says which it was."""

    def keep(messages: list[Message]) -> Any:
        return given

    with pytest.raises(SaveError, match="keep"):
        asyncio.run(turn(InMemoryHistoryProvider(store_input_filter=keep), AgentSession(), [user("hi")], []))
    with pytest.raises(TypeError, match="keep"):
        asyncio.run(turn(InMemoryHistoryProvider(provide_output_filter=keep), AgentSession(), [user("hi")], []))


def test_a_failing_save_can_be_logged_instead(caplog: pytest.LogCaptureFixture) -> None:
    """`on_save_error="log"` lets the answer through and says what was lost."""
    with caplog.at_level(logging.ERROR, "agentstore"):
        asyncio.run(turn(Broken("broken", on_save_error="log"), AgentSession(session_id="s"), [user("hi")], []))
    assert "'broken' could not save a turn of session 's'" in caplog.text
    assert "disk is full" in caplog.text


def test_a_provider_chooses_what_of_the_answer_is_stored(kind: str, tmp_path: Path) -> None:
    """`answer_to_store` may leave something to a later turn, as a workflow does with staged results; filters follow."""

    async def main() -> None:
        async with opened(kind, tmp_path, store_output_filter=lambda messages: messages[:1]) as provider:
            session = AgentSession(session_id="s")

            async def without_tools(session: AgentSession, context: SessionContext) -> Sequence[Message]:
                assert context.response is not None
                return [message for message in context.response.messages if message.role != "tool"]

            provider.answer_to_store = without_tools  # type: ignore[method-assign]
            context = await turn(
                provider, session, [user("go")], [Message("tool", ["later"]), answer("a"), answer("b")]
            )
            assert await history(provider, session) == ["go", "a"]
            assert context.response is not None
            assert len(context.response.messages) == 3

    asyncio.run(main())


def test_an_interrupted_turn_is_kept_by_the_providers_that_want_it(kind: str, tmp_path: Path) -> None:
    """Each decides for itself; what is marked is the last message kept, and never the caller's object (B48)."""

    async def main() -> None:
        async with opened(kind, tmp_path, store_partial=True) as provider:
            other = InMemoryHistoryProvider("other", load_messages=False)
            agent = Agent(ScriptedChatClient([RuntimeError("down"), "fine"]), context_providers=[provider, other])
            session, question = AgentSession(session_id="s"), user("a question")
            with pytest.raises(RuntimeError, match="down"):
                await agent.run(question, session)
            kept = await provider.get_messages("s", state=session.state[provider.source_id])
            assert [message.additional_properties for message in kept] == [{"interrupted": True}]
            assert (question.additional_properties, session.state["other"]) == ({}, {})

    asyncio.run(main())


def test_marks_on_messages_that_are_stored_change_nothing(kind: str, tmp_path: Path) -> None:
    """What a run does to its copies afterwards hides nothing of later loads (B67)."""

    async def main() -> None:
        async with opened(kind, tmp_path) as provider:
            client = ScriptedChatClient(["one", "two", "three"])
            agent, session = Agent(client, context_providers=[provider]), AgentSession(session_id="s")
            question = user("a")
            answered = await agent.run(question, session)
            for message in (question, *answered.messages):
                message.additional_properties["_excluded"] = True
            await agent.run([question, *answered.messages, user("b")], session)
            await agent.run("c", session)
            assert texts(client.calls[2]) == ["a", "one", "b", "two", "c"]

    asyncio.run(main())


def test_a_cancelled_save_is_no_save_error() -> None:
    """The cancellation leaves as it is."""

    class Slow(Broken):
        async def save_messages(
            self, session_id: str | None, messages: Any, *, state: Any = None, **kwargs: Any
        ) -> None:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(turn(Slow("slow"), AgentSession(), [user("hi")], []))


def test_a_provider_of_two_methods_is_enough() -> None:
    """Loading, stamping, replays and saving come with the base class (FEATURES 17)."""

    class ListProvider(BaseHistoryProvider):
        def __init__(self) -> None:
            super().__init__("list")
            self.kept: dict[str | None, list[Message]] = {}

        async def get_messages(self, session_id: str | None, *, state: Any = None) -> list[Message]:  # type: ignore[override]
            return list(self.kept.get(session_id, []))

        async def save_messages(self, session_id: str | None, messages: Any, *, state: Any = None) -> None:  # type: ignore[override]
            self.kept.setdefault(session_id, []).extend(messages)

    async def main() -> None:
        provider, session = ListProvider(), AgentSession()
        assert isinstance(provider, HistoryProvider)
        await turn(provider, session, [user("hi")], [answer("hello")])
        context = await turn(provider, session, [user("hi"), answer("hello"), user("more")], [answer("ok")])
        assert texts(context.get_messages(include_input=True)) == ["hi", "hello", "more"]
        assert await history(provider, session) == ["hi", "hello", "more", "ok"]

    asyncio.run(main())


def test_a_subclass_may_narrow_what_is_loaded() -> None:
    """An overridden `get_messages` is what the model sees."""

    class NewestOnly(StoreHistoryProvider):
        async def get_messages(self, session_id: str | None, **kwargs: Any) -> Any:
            return (await super().get_messages(session_id, **kwargs))[-1:]

    async def main() -> None:
        provider, session = NewestOnly("memory://"), AgentSession()
        for text in ("a", "b"):
            context = await turn(provider, session, [user(text)], [])
        assert texts(context.get_messages()) == ["a"]
        await provider.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("session_id", [None, ""])
def test_there_is_no_session_for_everybody(session_id: str | None) -> None:
    """Without an id nothing is loaded or saved: an error, never a shared bucket (B84)."""
    provider = StoreHistoryProvider("memory://")
    for call in (provider.get_messages(session_id), provider.save_messages(session_id, [user("hi")])):
        with pytest.raises(ValueError, match=r"session"):
            asyncio.run(call)  # type: ignore[arg-type]


def test_saving_nothing_begins_no_session() -> None:
    """An empty save, a load and a clear leave no trace (B138)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            provider, session = StoreHistoryProvider(store), AgentSession()
            await turn(provider, session, [], [])
            await provider.save_messages(session.session_id, [])
            assert await provider.clear(session) == 0
            assert (await store.sessions()).items == []

    asyncio.run(main())


def test_a_save_costs_the_same_at_any_length_and_reads_nothing(tmp_path: Path) -> None:
    """The append after 2,000 messages is one write: the store is never asked for records (B74, B76)."""

    async def main() -> None:
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            provider, session = StoreHistoryProvider(store, load_messages=False), AgentSession()
            await provider.save_messages(session.session_id, [user(str(number)) for number in range(2000)])
            store._gate.backend.read = refuse  # type: ignore[method-assign]
            await turn(provider, session, [user("hi")], [answer("hello")])

    async def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a save must not read")

    asyncio.run(main())


def test_a_url_is_checked_at_once_and_opened_at_first_use(tmp_path: Path) -> None:
    """An unknown scheme is refused by the constructor; a file appears with the first save; `aclose` closes it."""
    with pytest.raises(UnknownBackendError):
        StoreHistoryProvider("nothing://here")
    provider = StoreHistoryProvider(f"sqlite:///{tmp_path}/chat.db")
    assert list(tmp_path.iterdir()) == []

    async def main() -> None:
        await turn(provider, AgentSession(), [user("hi")], [])
        assert (tmp_path / "chat.db").exists()
        await provider.aclose()
        with pytest.raises(ClosedError):
            await provider.list_sessions()

    asyncio.run(main())


def test_a_store_that_was_given_stays_open() -> None:
    """Who made it closes it."""

    async def main(store: HistoryStore) -> None:
        provider = StoreHistoryProvider(store)
        await provider.aclose()
        assert await provider.list_sessions() == []
        await store.aclose()

    asyncio.run(main(open_store("memory://")))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: StoreHistoryProvider("memory://", max_messages=-1), ValueError),
        (lambda: StoreHistoryProvider("memory://", max_tokens=True), ValueError),
        (lambda: StoreHistoryProvider(7), TypeError),
        (lambda: StoreHistoryProvider("memory://", ""), ValueError),
        (lambda: InMemoryHistoryProvider(on_save_error="ignore"), ValueError),
        (lambda: InMemoryHistoryProvider(on_service_managed="mix"), ValueError),
        (lambda: InMemoryHistoryProvider(store_context_from="notes"), TypeError),
        (lambda: InMemoryHistoryProvider(max_messages=3), TypeError),
    ],
)
def test_what_a_provider_cannot_use_is_refused_at_once(make: Callable[[], object], error: type[Exception]) -> None:
    """Before any run."""
    with pytest.raises(error):
        make()


def call_of(*call_ids: str) -> Message:
    return Message(
        "assistant", [Content("function_call", call_id=call_id, name="f", arguments={}) for call_id in call_ids]
    )


def result_of(call_id: str) -> Message:
    return Message("tool", [Content("function_result", call_id=call_id, result="r")])


@pytest.mark.parametrize(
    ("stored", "asked", "shown"),
    [
        ([call_of("1")], [], []),
        ([call_of("1", "2"), result_of("1")], [], [["1"], ["1"]]),
        ([call_of("1", "2"), result_of("2"), result_of("1")], [], [["1", "2"], ["2"], ["1"]]),
        ([call_of("1")], [result_of("1")], [["1"], ["1"]]),
        ([call_of("1"), result_of("1"), call_of("1")], [], [["1"], ["1"]]),
    ],
    ids=["last", "one of two", "both", "answered by the input", "an id that comes again"],
)
def test_the_model_never_sees_a_call_that_nothing_answers(
    tmp_path: Path, kind: str, stored: list[Message], asked: list[Message], shown: list[list[str]]
) -> None:
    """A call left open by a failure is left out of the model's view, and stays in the store (B57, B63, B64)."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as provider:
            client = ScriptedChatClient(["go on"])
            session = AgentSession(session_id="s")
            state = session.state.setdefault(provider.source_id, {})
            await provider.save_messages("s", [user("do it"), *stored], state=state)
            await Agent(client, context_providers=[provider]).run([*asked, user("next")], session)
            (seen,) = client.calls
            assert [[c.call_id for c in m.contents if c.get("call_id")] for m in seen if m.role != "user"] == shown
            assert len(await provider.get_messages("s", state=state)) == 1 + len(stored) + len(asked) + 2

    asyncio.run(scene())


def test_a_call_that_waits_for_approval_stays_in_view(tmp_path: Path, kind: str) -> None:
    """The real answer must still find its call (B65)."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as provider:
            asked = call_of("1")
            request = Content("function_approval_request", id="a", function_call=asked.contents[0].to_dict())
            asked.contents.append(request)
            client, session = ScriptedChatClient(["waiting"]), AgentSession(session_id="s")
            state = session.state.setdefault(provider.source_id, {})
            await provider.save_messages("s", [user("do it"), asked], state=state)
            await Agent(client, context_providers=[provider]).run("and?", session)
            assert [c.type for c in client.calls[0][1].contents] == ["function_call", "function_approval_request"]

    asyncio.run(scene())


def test_a_client_that_answers_with_one_object_keeps_every_turn(tmp_path: Path, kind: str) -> None:
    """Three turns "yes" / "done" are six messages, also where the client's answer is a constant (B73)."""

    async def scene() -> None:
        async with opened(kind, tmp_path) as provider:
            done, session = answer("done"), AgentSession(session_id="s")
            agent = Agent(ScriptedChatClient([done, done, done]), context_providers=[provider])
            for _ in range(3):
                await agent.run("yes", session)
            assert await history(provider, session) == ["yes", "done"] * 3
            assert done.message_id is None

    asyncio.run(scene())
