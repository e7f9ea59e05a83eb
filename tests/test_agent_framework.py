"""The drop-in provider in real agents of the Microsoft Agent Framework, with an offline chat client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

import agentstore
from agentstore import ConfigurationError, HistoryStore, SaveError, ScriptedChatClient, UnavailableError, open_store
from agentstore.adapters.agent_framework import AgentFrameworkCodec, StoreHistoryProvider
from agentstore.codec import encode_shape
from agentstore.messages import same
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

Step = str | Content | Message | list[Message] | BaseException


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers with the next step of its script, then with "done"; remembers what it was sent."""

    def __init__(self, *script: Step, conversation_id: str | None = None) -> None:
        super().__init__()
        self.script = list(script)
        self.conversation_id = conversation_id
        self.calls: list[list[Message]] = []

    @property
    def seen(self) -> list[list[str]]:
        return [[show(message) for message in call] for call in self.calls]

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, **kwargs: Any) -> Any:
        self.calls.append(list(messages))
        step = self.script.pop(0) if self.script else "done"
        if stream:
            return ResponseStream(self._updates(step), finalizer=self._whole)
        return self._answer(step)

    async def _answer(self, step: Step) -> ChatResponse:
        return ChatResponse(messages=self._messages(step), conversation_id=self.conversation_id)

    async def _updates(self, step: Step) -> AsyncIterator[ChatResponseUpdate]:
        for message in self._messages(step):
            for content in message.contents:
                yield ChatResponseUpdate(role="assistant", contents=[content], message_id=message.message_id)

    def _whole(self, updates: Sequence[ChatResponseUpdate]) -> ChatResponse:
        response: ChatResponse = ChatResponse.from_updates(updates)
        response.conversation_id = self.conversation_id
        return response

    def _messages(self, step: Step) -> list[Message]:
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, list):
            return step
        return [step if isinstance(step, Message) else Message("assistant", [step])]


@tool(approval_mode="never_require")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Rag(ContextProvider):
    """Adds a message to each run, as a memory or a search does."""

    def __init__(self) -> None:
        super().__init__("rag")

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        context.extend_messages(self, [Message("user", ["fact"])])


def call(name: str = "add", call_id: str = "c1", **arguments: Any) -> Content:
    return Content.from_function_call(call_id, name, arguments=arguments or {"a": 1, "b": 2})


def show(message: Any) -> str:
    """A message in short: its texts, `name(…)` for a call, `=…` for a result, `?` and `!` for approvals."""
    marks = {"function_approval_request": "?", "function_approval_response": "!"}
    parts = []
    for content in message.contents:
        if content.type == "function_call":
            parts.append(f"{content.name}()")
        elif content.type == "function_result":
            parts.append(f"={content.result}")
        else:
            parts.append(marks.get(content.type) or content.text)
    return " ".join(parts)


async def kept(provider: StoreHistoryProvider, session_id: str = "s") -> list[str]:
    """Everything stored of the session."""
    return [show(message) for message in await provider.history(session_id).messages()]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


@asynccontextmanager
async def opened(
    url: str = "memory://", source_id: str = "history", **flags: Any
) -> AsyncIterator[StoreHistoryProvider]:
    provider = StoreHistoryProvider(url, source_id, **flags)
    try:
        yield provider
    finally:
        await provider.aclose()


def agent(provider: Any, *script: Step, client: Scripted | None = None, **options: Any) -> Any:
    providers = list(provider) if isinstance(provider, list | tuple) else [provider]
    return Agent(client=client or Scripted(*script), context_providers=providers, **options)


def session(session_id: str = "s") -> AgentSession:
    return AgentSession(session_id=session_id)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "agentstore"]


# Honest repeats, and what a save costs


def test_three_equal_turns_keep_six_messages(url: str) -> None:
    """ "yes" and "done" without ids, three times; every run sees what went before (B73)."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider), session()
            for _ in range(3):
                assert (await one.run("yes", session=chat)).text == "done"
            assert await kept(provider) == ["yes", "done"] * 3
            assert one.client.seen[-1] == ["yes", "done", "yes", "done", "yes"]

    asyncio.run(main())


def test_the_frameworks_own_providers_keep_two_of_the_six(tmp_path: Path) -> None:
    """Side by side: its in-memory and its file provider drop the repeats, this one does not (B73)."""

    async def count(provider: Any) -> int:
        one, chat = agent(provider), session()
        for _ in range(3):
            await one.run("yes", session=chat)
        state = chat.state.get(provider.source_id, {})
        return len(await provider.get_messages(chat.session_id, state=state))

    async def main() -> None:
        assert await count(agent_framework.InMemoryHistoryProvider()) == 2
        assert await count(agent_framework.FileHistoryProvider(tmp_path / "files")) == 2
        async with opened(f"sqlite:///{tmp_path}/chat.db") as provider:
            assert await count(provider) == 6

    asyncio.run(main())


class Counting(MemoryBackend):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[dict[str, Any]] = []
        self.appends: list[int] = []

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        found = await super().read(*args, **kwargs)
        self.reads.append({"rows": len(found), **kwargs})
        return found

    async def append(self, key: Any, append: Any) -> Any:
        self.appends.append(len(append.records))
        return await super().append(key, append)


def test_a_run_reads_its_window_once_and_writes_once() -> None:
    """Saving reads nothing; a run with a tool appends its four messages together (B74, B76)."""

    async def main() -> None:
        backend = Counting()
        provider = StoreHistoryProvider(HistoryStore(backend), max_messages=10)
        await provider.history("s").append([Message("user", [str(number)]) for number in range(500)])
        backend.appends.clear()
        one = agent(provider, call(), "3", tools=[add])
        await one.run("1+2?", session=session())
        assert backend.appends == [4]
        assert len(backend.reads) == 1
        assert backend.reads[0]["rows"] <= 11
        silent = agent(StoreHistoryProvider(provider.store, "audit", load_messages=False), "ok")
        backend.reads.clear()
        silent.client.STORES_BY_DEFAULT = True
        await silent.run("again", session=session())
        assert (backend.reads, backend.appends) == ([], [4, 2])

    asyncio.run(main())


# What another writer left behind


def test_a_row_of_a_newer_version_stays_readable_and_untouched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown fields and kinds are left out of the object, logged once, and stay in the store byte for byte (B18)."""
    shape = {
        "type": "message",
        "role": "assistant",
        "contents": [
            {"type": "text", "text": "hello", "tone": "warm"},
            {"type": "hologram", "beam": [1, {"$bytes": 2}, b"\xff"]},
            {
                "type": "function_result",
                "call_id": "x",
                "items": [{"type": "text", "text": "i", "new": 1}],
                "status": "ok",
            },
        ],
        "mood": {"deep": (1, 2)},
    }

    class Newer:
        format = "agentstore/1"

        def encode(self, obj: Any, /) -> Any:
            return encode_shape(obj)

        def decode(self, payload: bytes, /) -> bytes:
            return payload

        def assign_id(self, obj: Any, message_id: str, /) -> bool:
            obj["message_id"] = message_id
            return True

    async def main() -> None:
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            raw = store.session("s", codec=Newer())
            await raw.append([shape])
            before = await raw.messages()
            provider = StoreHistoryProvider(store)
            one, chat = agent(provider), session()
            await one.run("hi", session=chat)
            assert one.client.seen == [["hello", "hi"]]
            assert len([line for line in logged(caplog) if "hologram" in line]) == 1
            await one.run("again", session=chat)
            assert (await raw.messages())[:1] == before
            assert (await store.session("s").messages())[0].to_dict()["mood"] == {"deep": (1, 2)}

    asyncio.run(main())


def test_core_and_adapter_go_on_with_each_others_sessions(url: str) -> None:
    """An agent of the core writes, one of the framework goes on, and back; values stay exact on the way."""
    odd = {"bytes": b"\xff", "tuple": (1, 2), "nan": float("nan"), "large": 2**70, "nul": "\x00", "half": "\ud83d"}

    async def main() -> None:
        async with open_store(url) as store:
            core = agentstore.Agent(
                ScriptedChatClient(["hello"]), context_providers=[agentstore.StoreHistoryProvider(store)]
            )
            ours = agentstore.AgentSession(session_id="s")
            await core.run(agentstore.Message("user", ["hi"], additional_properties=odd), ours)

            provider = StoreHistoryProvider(store)
            theirs = agent(provider, call(name="add"), "three", tools=[add])
            await theirs.run(Message("user", ["1+2?"], additional_properties=odd), session=session())
            assert theirs.client.seen[0] == ["hi", "hello", "1+2?"]
            assert same(
                dict(theirs.client.calls[0][0].additional_properties) | {"_attribution": 0}, odd | {"_attribution": 0}
            )

            again = agentstore.Agent(
                ScriptedChatClient(["bye"]), context_providers=[agentstore.StoreHistoryProvider(store)]
            )
            await again.run("thanks", ours)
            sent = again.client.calls[0]  # type: ignore[attr-defined]
            assert [show(message) for message in sent] == ["hi", "hello", "1+2?", "add()", "=3", "three", "thanks"]
            assert same({**sent[2].additional_properties, "_attribution": 0}, odd | {"_attribution": 0})
            assert await kept(provider) == ["hi", "hello", "1+2?", "add()", "=3", "three", "thanks", "bye"]

    asyncio.run(main())


def test_a_record_that_nobody_reads_does_not_stop_a_run() -> None:
    """One in another library's format stays in the store, and is left out of what the model sees."""

    class Foreign:
        format = "foreign/7"

        def encode(self, obj: Any, /) -> Any:
            return "f1", b"identity", b"\xff\x00"

        def decode(self, payload: bytes, /) -> Any:
            raise AssertionError

        def assign_id(self, obj: Any, message_id: str, /) -> bool:
            return False

    async def main() -> None:
        async with open_store("memory://") as store:
            provider = StoreHistoryProvider(store)
            one, chat = agent(provider), session()
            await one.run("hi", session=chat)
            await store.session("s", codec=Foreign()).append([object()])
            await one.run(
                [Message("user", ["x"]), Message("assistant", ["y"]), Message("user", ["more"])], session=chat
            )
            assert one.client.seen[-1] == ["hi", "done", "x", "y", "more"]
            assert len(await provider.history("s").messages()) == 7

    asyncio.run(main())


# Odd values never stop a run


def test_a_refused_value_does_not_stop_a_run(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is stored as a plain one, and its path is logged once; the caller's object is not touched (B09)."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider), session()
            cycle: dict[Any, Any] = {1: Decimal("1.5"), "bytes": b"\xff"}
            cycle["self"] = cycle
            message = Message("user", ["hi"], additional_properties={"odd": cycle})
            await one.run(message, session=chat)
            assert message.additional_properties["odd"] is not None
            stored = (await provider.history("s").messages())[0]
            assert stored.additional_properties["odd"]["1"] == "1.5"
            assert stored.additional_properties["odd"]["bytes"] == b"\xff"
            assert [line for line in logged(caplog) if "additional_properties" in line or "deeper" in line] == logged(
                caplog
            )
            assert len(logged(caplog)) == 1

    asyncio.run(main())


# Several providers


def test_an_audit_provider_stores_each_message_once(url: str) -> None:
    """Six messages after three turns, not the whole history again each turn (FEATURES 35, B78, B83)."""

    async def main() -> None:
        async with opened(url) as provider:
            audit = StoreHistoryProvider(provider.store, "audit", load_messages=False, store_context_messages=True)
            one, chat = agent([provider, audit]), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await kept(audit) == ["yes", "done"] * 3
            assert await kept(provider) == ["yes", "done"] * 3
            assert await provider.clear("s") == 6
            assert len(await kept(audit)) == 6

    asyncio.run(main())


def test_an_audit_provider_stores_a_history_that_it_names() -> None:
    """`store_context_from` decides; a history that another loaded is then context like any other."""

    async def main() -> None:
        async with opened() as provider:
            store = provider.store
            named = StoreHistoryProvider(
                store, "named", load_messages=False, store_context_messages=True, store_context_from={"history"}
            )
            rest = StoreHistoryProvider(store, "rest", load_messages=False, store_context_messages=True)
            one, chat = agent([provider, Rag(), named, rest]), session()
            for text in ("a", "b"):
                await one.run(text, session=chat)
            assert await kept(named) == ["a", "done", "b", "done"]  # what it holds already is not written again
            assert await kept(rest) == ["fact", "a", "done", "fact", "b", "done"]
            assert await kept(provider) == ["a", "done", "b", "done"]

    asyncio.run(main())


@pytest.mark.parametrize("own", [True, False], ids=["two of ours", "one of the framework's"])
def test_two_loading_providers_are_refused(own: bool) -> None:
    """The framework would show the model everything twice; the error names both (FEATURES 6)."""

    async def main() -> None:
        async with opened() as provider:
            other = StoreHistoryProvider("memory://", "b") if own else agent_framework.InMemoryHistoryProvider("b")
            one = agent([other, provider])
            with pytest.raises(ConfigurationError, match=r"'b', 'history'"):
                await one.run("hi", session=session())
            assert one.client.calls == []

    asyncio.run(main())


def test_the_agent_keeps_its_providers_and_gets_no_other() -> None:
    """No second memory is added beside one that loads, and none is taken away (FEATURES 2)."""

    async def main() -> None:
        async with opened() as provider:
            rag = Rag()
            one = agent([provider, rag])
            await one.run("hi", session=session())
            await one.run("hi")
            assert one.context_providers == [provider, rag]

    asyncio.run(main())


# Replays


def test_a_replay_of_the_same_objects_adds_only_what_is_new(url: str) -> None:
    """Ids are given to the live objects, of input and answer (B72, B75)."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider, "a1", "a2"), session()
            transcript = [Message("user", ["q1"])]
            transcript += (await one.run(transcript, session=chat)).messages
            assert all(message.message_id for message in transcript)
            transcript.append(Message("user", ["q2"]))
            await one.run(transcript, session=chat)
            assert await kept(provider) == ["q1", "a1", "q2", "a2"]
            assert one.client.seen[-1] == ["q1", "a1", "q2"]

    asyncio.run(main())


@pytest.mark.parametrize("max_messages", [None, 2, 3], ids=["whole", "two", "three"])
def test_a_replay_rebuilt_without_ids_adds_only_what_is_new(url: str, max_messages: int | None) -> None:
    """The whole history as a prefix, or the window that was loaded, wherever it stands (B72)."""

    async def main() -> None:
        async with opened(url, max_messages=max_messages) as provider:
            one, chat = agent(provider, "a1", "a2", "a3", "a4"), session()
            transcript: list[tuple[str, str]] = []
            for number in range(1, 5):
                transcript.append(("user", f"q{number}"))
                rebuilt = [Message(role, [text]) for role, text in transcript]
                await one.run(rebuilt, session=chat)
                transcript.append(("assistant", f"a{number}"))
            assert await kept(provider) == [text for _, text in transcript]
            assert one.client.seen[-1] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4"]

    asyncio.run(main())


def test_a_replay_with_tools_adds_only_what_is_new(url: str) -> None:
    """Calls and results too, with and without ids; a second, equal call is an honest repeat."""

    async def main() -> None:
        async with opened(url) as provider:
            one = agent(provider, call(), "3", call(), "3", "bye", tools=[add])
            chat = session()
            transcript = [Message("user", ["1+2?"])]
            for _ in range(2):
                transcript += (await one.run(transcript, session=chat)).messages
                transcript.append(Message("user", ["again"]))
            bare = [Message.from_dict({**message.to_dict(), "message_id": None}) for message in transcript]
            await one.run(bare, session=chat)
            expected = ["1+2?", "add()", "=3", "3", "again", "add()", "=3", "3", "again", "bye"]
            assert await kept(provider) == expected

    asyncio.run(main())


def test_two_messages_under_one_framework_id_are_both_kept(url: str) -> None:
    """Also several in one answer; a replay of either adds nothing."""

    async def main() -> None:
        async with opened(url) as provider:
            answers = [[Message("assistant", [text], message_id="same")] for text in ("one", "two")]
            one, chat = agent(provider, *answers), session()
            first = await one.run("a", session=chat)
            second = await one.run("b", session=chat)
            assert await kept(provider) == ["a", "one", "b", "two"]
            assert len({message.message_id for message in await provider.history("s").messages()}) == 4
            for replayed in (first.messages, second.messages, [*first.messages, *second.messages]):
                await provider.save_messages("s", replayed)
            assert await kept(provider) == ["a", "one", "b", "two"]
            twice = [Message("assistant", [text], message_id="dup") for text in ("x", "y", "x")]
            await provider.save_messages("s", twice)
            await provider.save_messages("s", twice)
            assert await kept(provider) == ["a", "one", "b", "two", "x", "y"]

    asyncio.run(main())


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


async def run(one: Agent[Any], text: Any, chat: AgentSession | None, stream: bool) -> str:
    if not stream:
        return (await one.run(text, session=chat)).text
    running = one.run(text, session=chat, stream=True)
    async for _ in running:
        pass
    return (await running.get_final_response()).text


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


# Sessions


def test_a_restored_session_finds_its_history_in_another_process(tmp_path: Path) -> None:
    """`to_dict`, a new process, `from_dict`, run: the same history (B127, B140)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> AgentSession:
        async with opened(url) as provider:
            chat = session("a session/with: odd\x00 id")
            await agent(provider, "hello").run("hi", session=chat)
            return chat

    chat = asyncio.run(main())
    code = (
        "import asyncio, json, sys\n"
        "from agent_framework import AgentSession\n"
        "from agentstore.adapters.agent_framework import StoreHistoryProvider\n"
        "session = AgentSession.from_dict(json.loads(sys.stdin.read()))\n"
        f"messages = asyncio.run(StoreHistoryProvider({url!r}).history(session.session_id).messages())\n"
        "print([message.text for message in messages])\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(chat.to_dict()), capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == "['hi', 'hello']"


def test_one_session_id_in_two_namespaces_is_two_sessions(tmp_path: Path) -> None:
    """Tenants, users and sources never meet, whatever their ids look like (B83, B85 to B87, trap 9)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> None:
        stores = {name: open_store(url, namespace=name) for name in ("a", "ab", "a:b", "A")}
        for name, store in stores.items():
            for source in ("s", "s:t"):
                await agent(StoreHistoryProvider(store, source)).run(f"{name} {source}", session=session("t:u"))
        for name, store in stores.items():
            for source in ("s", "s:t"):
                assert await kept(StoreHistoryProvider(store, source), "t:u") == [f"{name} {source}", "done"]
            assert await StoreHistoryProvider(store, "s").list_sessions() == ["t:u"]
            await store.aclose()

    asyncio.run(main())


def test_the_state_holds_nothing_that_grows(url: str) -> None:
    """The session's state stays small and plain: histories are not copied into it."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider), session()
            for _ in range(5):
                await one.run("hi", session=chat)
            assert chat.state.get("history") == {}
            assert json.loads(json.dumps(chat.to_dict())) == chat.to_dict()

    asyncio.run(main())


def test_one_provider_serves_many_agents_and_sessions_at_once(url: str) -> None:
    """Nothing of one session is seen in another; turns of one session are never torn apart (B33, B41)."""

    async def main() -> None:
        async with opened(url) as provider:
            agents = [agent(provider, call(), "3", tools=[add]) for _ in range(20)]
            await asyncio.gather(
                *(one.run(f"q{index}", session=session(f"s{index % 4}")) for index, one in enumerate(agents))
            )
            for number in range(4):
                stored = await kept(provider, f"s{number}")
                turns = [stored[start : start + 4] for start in range(0, len(stored), 4)]
                assert sorted(turns) == sorted([f"q{index}", "add()", "=3", "3"] for index in range(number, 20, 4))

    asyncio.run(main())


def test_one_provider_serves_several_event_loops(url: str) -> None:
    """An agent made at import time: `asyncio.run` after `asyncio.run`, and threads with loops of their own (B119)."""
    provider = StoreHistoryProvider(url)
    one = agent(provider)
    for number in range(3):
        asyncio.run(run(one, str(number), session(), False))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            asyncio.run(run(one, "hi", session(f"thread {number}"), False))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

    async def end() -> None:
        assert await kept(provider) == ["0", "done", "1", "done", "2", "done"]
        assert [await kept(provider, f"thread {number}") for number in range(3)] == [["hi", "done"]] * 3
        await provider.aclose()

    asyncio.run(end())


def test_the_next_run_sees_the_turn_before_it_with_a_slow_store() -> None:
    """A run ends when its turn is stored, not before (B40)."""

    class Slow(MemoryBackend):
        async def append(self, key: Any, append: Any) -> Any:
            await asyncio.sleep(0.1)
            return await super().append(key, append)

    async def main() -> None:
        one, chat = agent(StoreHistoryProvider(HistoryStore(Slow()))), session()
        start = time.monotonic()
        for text in ("a", "b"):
            await run(one, text, chat, stream=True)
        assert time.monotonic() - start >= 0.2
        assert one.client.seen[-1] == ["a", "done", "b"]

    asyncio.run(main())


# Windows, filters, reducers


def turns(count: int) -> list[Message]:
    """Turns of four messages, each with a call and its result under the same call id."""
    result = Content.from_function_result("c1", result="3")
    return [
        message
        for number in range(count)
        for message in (
            Message("user", [f"q{number}"]),
            Message("assistant", [call()]),
            Message("tool", [Content.from_dict(result.to_dict())]),
            Message("assistant", [f"a{number}"]),
        )
    ]


@pytest.mark.parametrize("keep_system", [False, True])
def test_no_window_splits_a_call_from_its_result(url: str, keep_system: bool) -> None:
    """Whatever the limit: whole units, the newest part, never a result first; the store keeps all (B57 to B61)."""

    async def main() -> None:
        async with open_store(url) as store:
            whole = StoreHistoryProvider(store)
            await whole.save_messages("s", [Message("system", ["be kind"]), *turns(4)])
            everything = await kept(whole)
            for limit in range(20):
                provider = StoreHistoryProvider(store, max_messages=limit, keep_system=keep_system)
                one = agent(provider)
                chat = session()
                context = agent_framework.SessionContext(input_messages=[], session_id="s")
                await provider.before_run(agent=one, session=chat, context=context, state={})
                seen = [show(message) for message in context.get_messages()]
                assert seen.count("add()") == seen.count("=3")
                assert seen[:1] != ["=3"]
                tail = [text for text in seen if text != "be kind"]
                assert not tail or everything[-len(tail) :] == tail
                assert len(seen) <= max(limit, 2 + keep_system) if limit else seen == []
                if keep_system and limit:
                    assert seen[0] == "be kind"
            assert await kept(whole) == everything

    asyncio.run(main())


def test_a_window_of_tokens_counts_the_frameworks_messages() -> None:
    """By default an estimate of the real text, or the caller's own count (B17, B141)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            await StoreHistoryProvider(store).save_messages("s", turns(10))
            few = await StoreHistoryProvider(store, max_tokens=40).get_messages("s")
            own = await StoreHistoryProvider(store, max_tokens=8, count_tokens=lambda message: 1).get_messages("s")
            assert 0 < len(few) < 40
            assert [show(message) for message in own][-8:] == ["q8", "add()", "=3", "a8", "q9", "add()", "=3", "a9"]

    asyncio.run(main())


def test_filters_and_reducers_see_the_frameworks_messages() -> None:
    """Sync and async: what is loaded, what is stored of input and answer, what the window is reduced to."""

    def loaded(messages: list[Any]) -> list[Any]:
        return [message for message in messages if message.text != "secret"]

    async def inputs(messages: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return [message for message in messages if not message.text.startswith("tmp")]

    def outputs(messages: list[Any]) -> list[Any]:
        return [Message(message.role, [message.text.upper()]) for message in messages]

    def newest(messages: list[Any]) -> list[Any]:
        return messages[-3:]

    async def main() -> None:
        async with opened(
            provide_output_filter=loaded, store_input_filter=inputs, store_output_filter=outputs, reducer=newest
        ) as provider:
            one, chat = agent(provider), session()
            for text in ("secret", "tmp", "b", "c"):
                await one.run(text, session=chat)
            assert await kept(provider) == ["secret", "DONE", "DONE", "b", "DONE", "c", "DONE"]
            assert one.client.seen[1] == ["DONE", "tmp"]
            assert one.client.seen[-1] == ["DONE", "b", "DONE", "c"]

    asyncio.run(main())


def test_a_reducer_that_cuts_a_pair_leaves_no_orphan() -> None:
    """A result without its call is never shown."""

    async def main() -> None:
        async with opened(reducer=lambda messages: messages[-2:]) as provider:
            await provider.save_messages("s", turns(1))
            one = agent(provider)
            await one.run("more", session=session())
            assert one.client.seen == [["a0", "more"]]

    asyncio.run(main())


@pytest.mark.parametrize("flags", [{"store_inputs": False}, {"store_outputs": False}])
def test_the_flags_say_what_is_stored(flags: dict[str, Any]) -> None:
    """As with the framework's own providers."""

    async def main() -> None:
        async with opened(**flags) as provider:
            await agent(provider).run("hi", session=session())
            assert await kept(provider) == (["done"] if "store_inputs" in flags else ["hi"])

    asyncio.run(main())


# Marks


def test_loaded_messages_are_marked_and_stored_ones_are_not(url: str) -> None:
    """The model's copy says who loaded it; the caller's objects and the store have no mark (FEATURES 14, B142)."""

    async def main() -> None:
        async with opened(url) as provider:
            audit = StoreHistoryProvider(provider.store, "audit", load_messages=False, store_context_messages=True)
            one, chat = agent([provider, Rag(), audit]), session()
            given = Message("user", ["hi"])
            await one.run(given, session=chat)
            await one.run("again", session=chat)
            marks = [message.additional_properties.get("_attribution") for message in one.client.calls[-1]]
            assert [mark and mark["source_id"] for mark in marks] == ["history", "history", "rag", None]
            assert marks[0] == {"source_id": "history", "source_type": "StoreHistoryProvider"}
            for source in (provider, audit):
                stored = await provider.store.session("s", source_id=source.source_id).messages()
                assert not any("_attribution" in message.additional_properties for message in stored)
            assert "_attribution" not in given.additional_properties

    asyncio.run(main())


def test_the_provider_is_one_of_the_frameworks() -> None:
    """`isinstance` decides how an agent treats it; it is the core's provider too, with the same constructor."""
    provider = StoreHistoryProvider("memory://")
    assert isinstance(provider, agent_framework.HistoryProvider)
    assert isinstance(provider, agentstore.StoreHistoryProvider)
    assert isinstance(provider, agentstore.HistoryProvider)
    assert isinstance(provider.codec, AgentFrameworkCodec)
    assert provider.codec.format == "agentstore/1"
    assert (provider.source_id, provider.load_messages, provider.store_inputs) == ("history", True, True)
    assert provider.after_run_once_per_turn is False


def test_a_client_that_answers_with_one_object_keeps_every_turn() -> None:
    """Three turns "yes" / "done" are six messages, also where the client's answer is a constant (B73)."""
    done = Message("assistant", ["done"])

    class Constant(Scripted):
        async def _inner_get_response(self, **kwargs: Any) -> ChatResponse[Any]:  # type: ignore[override]
            return ChatResponse(messages=[done])

    async def main() -> None:
        async with opened() as provider:
            one, chat = agent(provider, client=Constant()), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await kept(provider) == ["yes", "done"] * 3

    asyncio.run(main())
