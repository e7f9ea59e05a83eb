"""The drop-in provider in real agents of the Microsoft Agent Framework: what a turn stores, and what it costs."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import (
    ChatResponse,
    Message,
)
from agent_framework_scene import Rag, Scripted, add, agent, call, kept, logged, opened, session, show

import agentstore
from agentstore import HistoryStore, ScriptedChatClient, open_store
from agentstore.adapters.agent_framework import AgentFrameworkCodec, StoreHistoryProvider
from agentstore.codec import encode_shape
from agentstore.messages import same
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


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
