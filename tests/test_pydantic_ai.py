"""The conversation store in real agents of Pydantic AI, with the framework's own offline models."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from adapter_stores import STORES

from agentstore import AgentSession, ConfigurationError, CorruptRecordError, HistoryStore, Message, open_store, values
from agentstore.backend import Append
from agentstore.keys import SessionKey
from agentstore.messages import same
from agentstore_memory import MemoryBackend

pytest.importorskip("pydantic_ai", reason="Pydantic AI needs Python 3.11")

from pydantic import BaseModel, field_serializer
from pydantic_ai import Agent, Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestAttempt,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, RunUsage

from agentstore.adapters import pydantic_ai_log
from agentstore.adapters.pydantic_ai import StoreConversationStore
from agentstore.adapters.pydantic_ai_codec import EntryCodec, Link, messages_of, shape_of

NOW = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=timezone.utc)

Make = Callable[..., StoreConversationStore]


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=NOW)])


def answered(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], timestamp=NOW)


def talk(*texts: str) -> list[ModelMessage]:
    return [asked(text) if place % 2 == 0 else answered(text) for place, text in enumerate(texts)]


def show(messages: list[ModelMessage]) -> list[str]:
    """Messages in short: texts, `name()` for a call, `=…` for its result."""
    shown = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                shown.append(f"{part.tool_name}()")
            elif isinstance(part, ToolReturnPart):
                shown.append(f"={part.content}")
            else:
                shown.append(part.content)
    return shown


async def saved(store: ConversationStore, conversation_id: str, *texts: str, scope: str | None = None) -> Conversation:
    """A new conversation of these texts."""
    conversation = Conversation(conversation_id=conversation_id, messages=talk(*texts))
    await store.save(conversation, scope=scope)
    return conversation


async def say(store: ConversationStore, conversation_id: str, *texts: str) -> None:
    """Load, add, save."""
    conversation = await store.load(conversation_id)
    conversation = conversation or Conversation(conversation_id=conversation_id)
    conversation.messages += talk(*texts)
    await store.save(conversation)


async def texts_of(store: ConversationStore, conversation_id: str, limit: int | None = None) -> list[str] | None:
    conversation = await store.load(conversation_id, limit=limit)
    return None if conversation is None else show(conversation.messages)


@asynccontextmanager
async def opened(url: str = "memory://", **options: Any) -> AsyncIterator[StoreConversationStore]:
    async with StoreConversationStore(url, **options) as store:
        yield store


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores of one new namespace, each on a connection of its own, as processes do."""
    url, namespace = STORES[request.param](tmp_path), uuid4().hex
    return lambda **options: StoreConversationStore(url, namespace=namespace, **options)


def on(make: Make, check: Callable[[StoreConversationStore], Awaitable[None]]) -> None:
    async def run() -> None:
        async with make() as store:
            await check(store)

    asyncio.run(run())


def in_memory() -> StoreConversationStore:
    return StoreConversationStore("memory://")


# Runs


def test_an_agent_goes_on_with_its_conversation_in_another_process(make: Make) -> None:
    """A tool turn, then a turn on a new store object: the model sees all, in order, once; usage counts on."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append(show(messages))
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, "c1")])
        return ModelResponse(parts=[TextPart("done")])

    calls: list[list[str]] = []
    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    async def check() -> None:
        async with make() as store:
            assert await store.load("user-42") is None
            result = await agent.run("1 + 2?", conversation=Conversation(conversation_id="user-42"))
            assert len(await store.save(result)) == 4
        async with make() as store:
            conversation = await store.load("user-42")
            assert conversation is not None
            assert conversation.usage.requests == 2
            result = await agent.run("thanks", conversation=conversation)
            assert len(await store.save(result)) == 2
            expected = ["1 + 2?", "add()", "=3", "done", "thanks", "done"]
            assert await texts_of(store, "user-42") == expected
        assert calls[-1] == expected[:-1]

    asyncio.run(check())


def test_a_saved_result_can_be_saved_again(make: Make) -> None:
    """After another turn on it; an unchanged one adds nothing."""

    async def check(store: StoreConversationStore) -> None:
        agent = Agent(TestModel(custom_output_text="hi"))
        result = await agent.run("a")
        await store.save(result)
        assert await store.save(result) == []
        result = await agent.run("b", conversation=result.conversation)
        await store.save(result)
        assert await texts_of(store, result.conversation.conversation_id) == ["a", "hi", "b", "hi"]

    on(make, check)


def test_a_window_goes_on_with_the_whole(make: Make) -> None:
    """The last messages only, and what is saved stands behind all of them."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", *"abcdef")
        for limit in range(8):
            assert await texts_of(store, "c", limit) == list("abcdef")[6 - min(limit, 6) :]
        conversation = await store.load("c", limit=2)
        assert conversation is not None
        conversation.messages += talk("g")
        await store.save(conversation)
        assert await texts_of(store, "c") == list("abcdefg")
        with pytest.raises(UserError, match="negative"):
            await store.load("c", limit=-1)

    on(make, check)


def test_a_paused_run_waits_in_the_store(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """(B55) Its requests come back with the conversation, and so does what it cost, without a word in the log."""

    async def check(store: StoreConversationStore) -> None:
        requests = DeferredToolRequests(
            calls=[ToolCallPart("ask", {"data": b"\xff"}, "c1")], metadata={"c1": {"since": NOW, "pair": (1, 2)}}
        )
        conversation = Conversation(
            conversation_id="c",
            messages=talk("a"),
            deferred_tool_requests=requests,
            usage=RunUsage(cost=Decimal("0.10")),
        )
        await store.save(conversation)
        loaded = await store.load("c")
        assert loaded == conversation

    on(make, check)
    assert caplog.records == []


# Revisions


def test_only_one_of_two_writers_saves(make: Make) -> None:
    """(B10) The other gets the framework's conflict, and nothing of its turn is there."""

    async def check() -> None:
        async with make() as one, make() as other:
            await saved(one, "c", "a", "b")
            first, second = await one.load("c"), await other.load("c")
            assert first is not None
            assert second is not None
            first.messages += talk("first")
            second.messages += talk("second")
            outcomes = await asyncio.gather(one.save(first), other.save(second), return_exceptions=True)
            assert [isinstance(outcome, ConversationConflict) for outcome in outcomes].count(True) == 1
            kept = "second" if isinstance(outcomes[0], ConversationConflict) else "first"
            assert await texts_of(one, "c") == ["a", "b", kept]

    asyncio.run(check())


def test_many_writers_of_one_conversation_lose_nothing(make: Make) -> None:
    """Each loads again after a conflict, as the framework says."""

    async def add(store: StoreConversationStore, text: str) -> None:
        try:
            await say(store, "c", text)
        except ConversationConflict:
            await add(store, text)

    async def check(store: StoreConversationStore) -> None:
        await asyncio.gather(*[add(store, str(number)) for number in range(8)])
        assert sorted(await texts_of(store, "c") or ()) == list("01234567")

    on(make, check)


def test_a_conversation_is_created_once(make: Make) -> None:
    """(B81) A second one of that id conflicts, and the first stays."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", "a")
        with pytest.raises(ConversationConflict):
            await saved(store, "c", "b")
        assert await texts_of(store, "c") == ["a"]

    on(make, check)


def test_a_copy_of_a_deleted_conversation_is_not_saved_over_a_new_one(make: Make) -> None:
    """Nor brought back; whoever the store object belongs to."""

    async def check() -> None:
        async with make() as one, make() as other:
            await saved(one, "c", "a", "b")
            old = await one.load("c")
            assert old is not None
            old.messages += talk("late")
            await other.delete("c")
            with pytest.raises(ConversationConflict):
                await one.save(old)
            await saved(other, "c", "new")
            with pytest.raises(ConversationConflict):
                await one.save(old)
            record = dataclasses.replace(ConversationRecord(conversation_id="c", head_id=None))
            with pytest.raises(ConversationConflict):
                await one.write_record(record, expected_revision=old.revision)
            assert await texts_of(one, "c") == ["new"]

    asyncio.run(check())


def test_a_write_is_compared_by_the_store_itself(make: Make) -> None:
    """What this object remembers of a conversation is no proof: deleted and begun again, or written to by others."""

    async def check() -> None:
        async with make() as one, make() as other:
            await saved(one, "c", "a")
            record = await one.read_record("c")
            assert record is not None
            await other.delete("c")
            await saved(other, "c", "new")
            with pytest.raises(ConversationConflict):
                await one.write_record(dataclasses.replace(record, revision="2"), expected_revision=record.revision)
            chat = one.store.session("begun by others", namespace=one.namespace)
            await chat.append([Message("user", ["a"])])
            begun = await one.read_record("begun by others")
            assert begun is not None
            await chat.append([Message("user", ["b"])])
            entry = ConversationEntry(parent_id=begun.head_id, message=asked("x"))
            with pytest.raises(ConversationConflict):
                await one.write_record(
                    dataclasses.replace(begun, head_id=entry.id, revision="2"),
                    new_entries=[entry],
                    expected_revision=begun.revision,
                )

    asyncio.run(check())


def test_the_same_write_again_is_done_once(make: Make) -> None:
    """Entries and record of a write that went through unnoticed are there; another revision still conflicts."""

    async def check(store: StoreConversationStore) -> None:
        entry = ConversationEntry(parent_id=None, message=asked("a"))
        record = ConversationRecord(conversation_id="c", head_id=entry.id)
        await store.write_record(record, new_entries=[entry], expected_revision=None)
        with pytest.raises(ConversationConflict):
            await store.write_record(record, new_entries=[entry], expected_revision=None)
        assert await texts_of(store, "c") == ["a"]

    on(make, check)


def test_a_head_that_is_nowhere_conflicts(make: Make) -> None:
    """And nothing is written; likewise a first entry whose parent is nowhere."""

    async def check(store: StoreConversationStore) -> None:
        record = ConversationRecord(conversation_id="c", head_id="nowhere")
        with pytest.raises(ConversationConflict):
            await store.write_record(record, expected_revision=None)
        entry = ConversationEntry(parent_id="nowhere", message=asked("a"))
        with pytest.raises(ConversationConflict):
            await store.write_record(
                dataclasses.replace(record, head_id=entry.id), new_entries=[entry], expected_revision=None
            )
        assert await store.load("c") is None
        assert list(await store.read_records()) == []

    on(make, check)


def test_a_cancelled_save_is_done_or_not_done() -> None:
    """(B45) It finishes first: the record and its entries are both there."""

    class Slow(MemoryBackend):
        async def append(self, key: SessionKey, append: Append) -> Any:
            await asyncio.sleep(0.03)
            return await super().append(key, append)

    async def check() -> None:
        async with HistoryStore(Slow()) as history:
            store = StoreConversationStore(history)
            task = asyncio.create_task(saved(store, "c", "a", "b"))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await texts_of(StoreConversationStore(history), "c") == ["a", "b"]

    asyncio.run(check())


# Branches and forks


def test_a_branch_leaves_the_old_history_and_can_go_back(make: Make) -> None:
    """By message count, then by entry, on other store objects too."""

    async def check() -> None:
        async with make() as store:
            conversation = await saved(store, "c", *"abcd")
            left = (await store.load_entries("c") or [])[-1].id
            branched = await store.branch("c", at=2, expected_revision=conversation.revision)
            assert show(branched.messages) == ["a", "b"]
            assert await texts_of(store, "c") == ["a", "b"]
        async with make() as store:
            await say(store, "c", "x", "y")
            await say(store, "c", "z")
            for limit in (1, 2, 3, 4, 5, None):
                assert await texts_of(store, "c", limit) == list("abxyz")[-(limit or 5) :]
            record = await store.read_record("c")
            assert record is not None
            assert record.branches == [left]
            back = await store.branch("c", from_entry=left, expected_revision=record.revision)
            assert show(back.messages) == list("abcd")
        async with make() as store:
            await say(store, "c", "e")
            assert await texts_of(store, "c") == list("abcde")
            assert await texts_of(store, "c", 2) == ["d", "e"]

    asyncio.run(check())


def test_a_branch_at_the_beginning_starts_anew(make: Make) -> None:
    """No message kept; the conversation is there, empty, and goes on."""

    async def check(store: StoreConversationStore) -> None:
        conversation = await saved(store, "c", "a", "b")
        await store.branch("c", at=0, expected_revision=conversation.revision)
        assert await texts_of(store, "c") == []
        await say(store, "c", "x")
        assert await texts_of(store, "c") == ["x"]
        with pytest.raises(ConversationConflict):
            await store.branch("c", at=0, expected_revision=conversation.revision)

    on(make, check)


def test_a_rewritten_history_branches_off_what_both_share(make: Make) -> None:
    """As a compaction leaves it: the shared beginning is stored once, the old end is a branch."""

    async def check(store: StoreConversationStore) -> None:
        first = await saved(store, "c", *"abcd")
        rewritten = Conversation(
            conversation_id="c", messages=[*first.messages[:2], *talk("summary")], revision=first.revision
        )
        entries = await store.save(rewritten)
        assert show([entry.message for entry in entries]) == ["summary"]
        assert await texts_of(store, "c") == ["a", "b", "summary"]
        record = await store.read_record("c")
        assert record is not None
        assert show([entry.message for entry in await store.read_history(record.branches[0])]) == list("abcd")

    on(make, check)


def test_a_fork_and_its_origin_go_separate_ways(make: Make) -> None:
    """Whole, part and none of the history; entries keep their ids."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", *"abcd", scope="s")
        whole = await store.fork("c", new_conversation_id="whole")
        part = await store.fork("c", at=2, new_conversation_id="part", scope="t")
        none = await store.fork("c", at=0, new_conversation_id="none")
        assert [show(fork.messages) for fork in (whole, part, none)] == [list("abcd"), ["a", "b"], []]
        await say(store, "part", "x")
        await say(store, "c", "e")
        await say(store, "none", "n")
        assert await texts_of(store, "whole") == list("abcd")
        assert await texts_of(store, "part") == ["a", "b", "x"]
        assert await texts_of(store, "none") == ["n"]
        assert await texts_of(store, "c") == list("abcde")
        ids = [[entry.id for entry in await store.load_entries(name) or ()] for name in ("c", "whole", "part")]
        assert ids[0][:4] == ids[1]
        assert ids[0][:2] == ids[2][:2]
        record = await store.read_record("part")
        assert record is not None
        assert (record.forked_from, record.forked_at, record.scope) == ("c", ids[0][1], "t")
        with pytest.raises(ConversationConflict):
            await store.fork("c", new_conversation_id="whole")

    on(make, check)


def test_a_fork_of_a_fork_and_of_a_branch(make: Make) -> None:
    """Each from the entry that is named."""

    async def check(store: StoreConversationStore) -> None:
        conversation = await saved(store, "c", *"abcd")
        left = (await store.load_entries("c") or [])[-1].id
        await store.branch("c", at=1, expected_revision=conversation.revision)
        await say(store, "c", "x")
        await store.fork("c", from_entry=left, new_conversation_id="old")
        await store.fork("old", at=3, new_conversation_id="older")
        assert await texts_of(store, "old") == list("abcd")
        assert await texts_of(store, "older") == list("abc")
        assert await texts_of(store, "c") == ["a", "x"]

    on(make, check)


def test_a_deleted_conversation_is_gone_and_its_forks_live(make: Make) -> None:
    """Its messages are removed from the store for good; deleting what is not there is fine."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", *"abcd")
        await store.fork("c", at=2, new_conversation_id="fork")
        shared = (await store.load_entries("fork") or [])[1].id
        own = (await store.load_entries("c") or [])[3].id
        await store.delete("c")
        await store.delete("c")
        assert await store.load("c") is None
        assert [record.conversation_id for record in await store.list_conversations()] == ["fork"]
        assert await texts_of(store, "fork") == ["a", "b"]
        assert show([(await store.read_entry(shared)).message]) == ["b"]
        with pytest.raises(LookupError):
            await store.read_entry(own)
        raw = store.store.session("c", namespace=store.namespace)
        assert await raw.records() == []
        await saved(store, "c", "new")
        assert await texts_of(store, "c") == ["new"]

    on(make, check)


def test_a_long_fork_is_written_in_parts_and_seen_whole(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees it before its record is there."""
    monkeypatch.setattr("agentstore.adapters.pydantic_ai_record.COPIED_AT_ONCE", 3)
    monkeypatch.setattr(pydantic_ai_log, "PAGE", 4)

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", *"abcdefghij")
        await store.fork("c", new_conversation_id="fork")
        await say(store, "fork", "k")
        assert await texts_of(store, "fork") == list("abcdefghijk")
        assert await texts_of(store, "fork", 6) == list("fghijk")

    on(make, check)


def test_an_entry_is_found_by_its_id_alone(make: Make) -> None:
    """By a store object that never saw its conversation; one that is nowhere is a `LookupError`."""

    async def check() -> None:
        async with make() as store:
            for number in range(3):
                await saved(store, f"c{number}", f"a{number}", f"b{number}")
            entries = await store.load_entries("c1") or []
        async with make() as store:
            assert await store.read_entry(entries[0].id) == entries[0]
            assert await store.read_history(entries[1].id) == entries
            assert await store.read_history(None) == []
            with pytest.raises(LookupError):
                await store.read_entry("nowhere")
            with pytest.raises(LookupError):
                await store.read_history("nowhere")

    asyncio.run(check())


def test_it_does_what_the_frameworks_own_store_does(make: Make) -> None:
    """200 random steps (save, rewrite, branch, fork, delete) on both: the same conversations after each."""

    async def step(random: Random, store: ConversationStore, ids: list[str], number: int) -> str:
        name = random.choice(ids)
        conversation = await store.load(name, limit=random.choice([None, None, 2]))
        action = random.choice(["save", "save", "save", "rewrite", "branch", "back", "fork", "delete"])
        if conversation is None or action == "save":
            conversation = conversation or Conversation(conversation_id=name)
            conversation.messages += talk(f"{number}", f"answer {number}")
            await store.save(conversation, scope=random.choice([None, "s"]) if conversation.revision is None else None)
        elif action == "rewrite":
            kept = random.randrange(len(conversation.messages) + 1)
            messages = [*conversation.messages[:kept], *talk(f"rewritten {number}")]
            await store.save(dataclasses.replace(conversation, messages=messages, new_message_index=None))
        elif action in ("branch", "back"):
            record = await store.read_record(name)
            assert record is not None
            places: dict[str, Any] = {"at": random.randrange(len(await store.load_entries(name) or ()) + 1)}
            if action == "back" and record.branches:
                places = {"from_entry": random.choice(record.branches)}
            await store.branch(name, expected_revision=record.revision, **places)
        elif action == "fork":
            ids.append(f"fork-{number}")
            at = random.choice([None, random.randrange(len(await store.load_entries(name) or ()) + 1)])
            await store.fork(name, at=at, new_conversation_id=ids[-1])
        else:
            await store.delete(name)
        return action

    async def state(store: ConversationStore, ids: list[str]) -> list[Any]:
        seen: list[Any] = []
        for name in ids:
            record = await store.read_record(name)
            if record is None:
                seen.append(None)
                continue
            branches = [show([entry.message for entry in await store.read_history(tip)]) for tip in record.branches]
            seen.append([await texts_of(store, name), await texts_of(store, name, 3), branches, record.scope])
        listed = {record.conversation_id for record in await store.list_conversations()}
        scoped = {record.conversation_id for record in await store.list_conversations(scope="s")}
        return [seen, listed, scoped]

    async def check(store: StoreConversationStore) -> None:
        theirs, names, others = InMemoryConversationStore(), ["a", "b"], ["a", "b"]
        one, other = Random(7), Random(7)
        for number in range(60):
            done = await step(one, store, names, number)
            assert done == await step(other, theirs, others, number)
            if number % 5 == 0:
                assert await state(store, names) == await state(theirs, others)

    on(make, check)


# Listing and scope


def test_conversations_are_listed_newest_first(make: Make) -> None:
    """All, a scope's, and the newest of them."""

    async def check(store: StoreConversationStore) -> None:
        for number in range(7):
            await saved(store, f"c{number}", "a", scope="even" if number % 2 == 0 else "odd")
        await saved(store, "none", "a")
        await say(store, "c2", "b")
        names = [record.conversation_id for record in await store.list_conversations()]
        assert names == ["c2", "none", "c6", "c5", "c4", "c3", "c1", "c0"]
        even = await store.list_conversations(scope="even")
        assert [record.conversation_id for record in even] == ["c2", "c6", "c4", "c0"]
        assert [record.scope for record in even] == ["even"] * 4
        for limit in range(9):
            newest = await store.list_conversations(limit=limit)
            assert [record.conversation_id for record in newest] == names[:limit]
        assert [record.conversation_id for record in await store.list_conversations(scope="odd", limit=1)] == ["c5"]
        assert await store.list_conversations(scope="other") == []
        with pytest.raises(UserError, match="negative"):
            await store.list_conversations(limit=-1)

    on(make, check)


def test_a_scope_keeps_strangers_out(make: Make) -> None:
    """They load, save and delete nothing of it."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", "a", scope="me")
        assert await store.load("c", scope="you") is None
        await store.delete("c", scope="you")
        mine = await store.load("c", scope="me")
        assert mine is not None
        with pytest.raises(ConversationConflict):
            await store.save(mine, scope="you")
        await store.save(mine, scope="me")
        assert await texts_of(store, "c") == ["a"]

    on(make, check)


def test_a_record_may_change_its_scope(make: Make) -> None:
    """By the storage primitives; it is listed under the new one only."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", "a", scope="old")
        record = await store.read_record("c")
        assert record is not None
        await store.write_record(
            dataclasses.replace(record, scope="new", revision="2"), expected_revision=record.revision
        )
        assert await store.list_conversations(scope="old") == []
        assert len(await store.list_conversations(scope="new")) == 1

    on(make, check)


def test_namespaces_and_sources_never_meet() -> None:
    """One conversation id, three conversations."""

    async def check() -> None:
        async with open_store("memory://") as store:
            places: list[dict[str, Any]] = [{}, {"source_id": "audit"}, {"namespace": "other"}]
            stores = [StoreConversationStore(store, **place) for place in places]
            for number, one in enumerate(stores):
                await saved(one, "c", str(number))
            assert [await texts_of(one, "c") for one in stores] == [["0"], ["1"], ["2"]]
            assert [len(await one.list_conversations()) for one in stores] == [1, 1, 1]

    asyncio.run(check())


# Cost


def test_a_turn_costs_one_write_and_a_load_two_reads() -> None:
    """(B74) However long the history is; a window reads no more than it shows."""
    calls: list[str] = []

    class Counting(MemoryBackend):
        async def read(self, key: SessionKey, **options: Any) -> Any:
            found = await super().read(key, **options)
            calls.append(f"read {len(found)}")
            return found

        async def append(self, key: SessionKey, append: Append) -> Any:
            calls.append(f"append {len(append.records)}")
            return await super().append(key, append)

        async def load_snapshot(self, key: SessionKey) -> Any:
            calls.append("snapshot")
            return await super().load_snapshot(key)

    async def check() -> None:
        async with HistoryStore(Counting()) as history:
            store = StoreConversationStore(history)
            await saved(store, "c", *map(str, range(300)))
            calls.clear()
            conversation = await store.load("c", limit=20)
            assert calls == ["snapshot", "read 20"]
            assert conversation is not None
            conversation.messages += talk("a", "b")
            calls.clear()
            await store.save(conversation)
            assert calls == ["snapshot", "append 2"]
            calls.clear()
            await store.load("c")
            assert calls == ["snapshot", "read 302"]
            record = await store.read_record("c")
            assert record is not None
            await store.branch("c", at=2, expected_revision=record.revision)
            await say(store, "c", "x")
            calls.clear()
            assert await texts_of(store, "c", 3) == ["0", "1", "x"]
            assert calls == ["snapshot", "read 3", "read 2"]  # the branch that was left is not crossed

    asyncio.run(check())


# Values


def every_message() -> list[ModelMessage]:
    """Requests and responses with every field of every kind of part filled."""
    files = [
        ImageUrl("https://x/a.png", force_download=True, vendor_metadata={"detail": "low"}, identifier="one"),
        AudioUrl("https://x/a.mp3", media_type="audio/mpeg"),
        VideoUrl("https://x/a.mp4"),
        DocumentUrl("https://x/a.pdf"),
        BinaryContent(b"\x00\xff\xfe", media_type="image/png", vendor_metadata={"a": 1}, identifier="two"),
        BinaryContent(b"\x00", media_type="application/pdf"),
        UploadedFile("file-1", "openai", vendor_metadata={"detail": "low"}, media_type="image/png"),
    ]
    details: dict[str, Any] = {"provider_name": "openai", "provider_details": {"raw": b"\xff", "when": NOW}}
    usage = RequestUsage(input_tokens=1, output_tokens=2, details={"reasoning": 3}, cost=Decimal("0.0010"))
    attempt = ModelRequestAttempt(
        model_name="m",
        provider_name="p",
        outcome="error",
        error="E: x",
        timestamp=NOW,
        duration=timedelta(seconds=1.5),
        usage=usage,
    )
    return [
        ModelRequest(
            parts=[
                SystemPromptPart("be brief", timestamp=NOW, dynamic_ref="ref"),
                UserPromptPart(
                    ["look", TextContent("at", metadata={"k": b"\xff"}), CachePoint(), *files], timestamp=NOW
                ),
                ToolReturnPart(
                    "search",
                    {"files": files, "odd": ODD},
                    "c1",
                    metadata={"pair": (1, 2), "bytes": b"\xff"},
                    timestamp=NOW,
                    outcome="failed",
                ),
            ],
            timestamp=NOW,
            instructions="do",
            run_id="r",
            conversation_id="c",
            metadata={"bytes": b"\x01", "nan": math.inf},
        ),
        ModelResponse(
            parts=[
                ThinkingPart("hm", id="t1", signature="sig", **details),
                TextPart("hello", id="p1", **details),
                ToolCallPart("search", {"query": "x", "bytes": b"\xff", "when": NOW}, "c1", id="f1", **details),
                ToolCallPart("search", '{"query": "x"}', "c2"),
                NativeToolCallPart("web_search", {"q": 1}, "n1", **details),
                NativeToolReturnPart("web_search", [{"url": "u"}], "n1", metadata={"a": 1}, timestamp=NOW, **details),
                FilePart(BinaryContent(b"\x89PNG", media_type="image/png"), id="i1", **details),
            ],
            usage=usage,
            model_name="m",
            timestamp=NOW,
            provider_url="https://p",
            provider_response_id="resp",
            finish_reason="stop",
            run_id="r",
            conversation_id="c",
            metadata={"set by": ("me",)},
            failed_attempts=[attempt],
            state="interrupted",
            **details,
        ),
    ]


ODD = {
    "nul": "\x00",
    "lone": "\ud800",
    "nan": math.nan,
    "infinity": -math.inf,
    "big": 2**70,
    "bytes": b"\x00\xff",
    "tuple": (1, (2,)),
    "time": datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "naive": datetime(2026, 2, 3),
    "none": None,
    "$bytes": "not ours",
    "deep": {"$text": {"$dict": [[1]]}},
}


def dumped(messages: Any) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages)


def test_every_field_of_every_part_comes_back(make: Make) -> None:
    """To the type, where pydantic's own JSON turns bytes and times into text and NaN into null."""
    messages = every_message()

    async def check(store: StoreConversationStore) -> None:
        await store.save(Conversation(conversation_id="c", messages=messages))
        loaded = await store.load("c")
        assert loaded is not None
        assert plain(dumped(loaded.messages)) == plain(dumped(messages))
        result = loaded.messages[0].parts[2].content["odd"]
        assert same(result, ODD)

    on(make, check)


def plain(value: Any) -> Any:
    """The value, with NaN equal to itself."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([plain(item) for item in value])
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_saved_and_loaded_messages_are_independent() -> None:
    """Changing one changes nothing stored."""

    async def check(store: StoreConversationStore) -> None:
        conversation = Conversation(
            conversation_id="c", messages=[ModelRequest(parts=[ToolReturnPart("t", {"a": [1]}, "c1")])]
        )
        await store.save(conversation)
        conversation.messages[0].parts[0].content["a"].append(2)
        loaded = await store.load("c")
        assert loaded is not None
        loaded.messages[0].parts[0].content["a"].append(3)
        again = await store.load("c")
        assert again is not None
        assert again.messages[0].parts[0].content == {"a": [1]}

    on(in_memory, check)


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: Any


def test_what_cannot_be_kept_is_stored_plainly_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A set, an enum, an object, a value that contains itself: a save never fails over what a tool gave."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    class Secret(BaseModel):
        x: int = 1

        @field_serializer("x")
        def hide(self, x: int) -> int:
            raise RuntimeError("not for you")

    loop: list[Any] = [1]
    loop.append(loop)

    async def check(store: StoreConversationStore) -> None:
        content = {"set": {2, 1}, "enum": Colour.RED, "object": Odd(), "point": Point(1), 7: "seven"}
        messages = [
            ModelRequest(parts=[ToolReturnPart("t", content, "c1")]),
            ModelRequest(parts=[ToolReturnPart("t", loop, "c2")]),
            ModelRequest(parts=[ToolReturnPart("t", [Secret()], "c3", timestamp=NOW)]),
        ]
        await store.save(Conversation(conversation_id="c", messages=messages))
        loaded = await store.load("c")
        assert loaded is not None
        assert loaded.messages[0].parts[0].content == {
            "set": [1, 2],
            "enum": "red",
            "object": "odd",
            "point": {"x": 1},
            "7": "seven",
        }
        assert "<list that contains itself>" in repr(loaded.messages[1].parts[0].content)
        assert loaded.messages[2].parts[0].content == ["x=1"]

    on(in_memory, check)
    assert len(caplog.records) == 3
    assert "message.parts[0].content" in caplog.records[0].message


def test_ordinary_messages_hold_no_tags() -> None:
    """Times of the framework's own are text that `jq` reads; so loading does not search for odd values."""
    for message in talk("a", "b"):
        payload = EntryCodec().encode(Link("id", None, None, message)).payload
        assert b'"$' not in payload
        assert b'"timestamp":"2026-02-03T04:05:06.000007+00:00"' in payload


def test_plain_json_and_values_give_the_same_messages() -> None:
    """Whether a message holds a tag decides how it is read, never what comes back."""
    messages = [
        *talk("a", "b"),
        ModelRequest(parts=[SystemPromptPart("s"), UserPromptPart(["x", ImageUrl("https://x/a.png")])]),
        ModelResponse(parts=[ThinkingPart("hm"), ToolCallPart("t", {"a": [1, None, 0.5]}, "c1")]),
        ModelRequest(parts=[ToolReturnPart("t", {"url": ImageUrl("https://x/a.png"), "n": 2**40}, "c1")]),
    ]
    codec = EntryCodec()
    texts = [codec.decode(codec.encode(Link("id", None, None, message)).payload).message for message in messages]
    assert all(type(text) is bytes and b'"$' not in text for text in texts)
    assert messages_of(texts) == messages_of([values.load(text) for text in texts]) == messages
    assert messages_of([*texts, {"kind": "request", "parts": []}])[:-1] == messages
    odd = ModelRequest(parts=[ToolReturnPart("t", {"a": b"\xff"}, "c1")])
    assert messages_of([codec.decode(codec.encode(Link("id", None, None, odd)).payload).message]) == [odd]


def test_an_entry_id_may_be_any_text(make: Make) -> None:
    """NUL and lone surrogates too; its fork keeps it."""

    async def check(store: StoreConversationStore) -> None:
        for number, name in enumerate(["nul \x00", "lone \ud800", "c#1", "x" * 3000 + "#1", "c#²", "#1"]):
            entry = ConversationEntry(id=name, parent_id=None, message=asked(name))
            record = ConversationRecord(conversation_id=f"c{number}", head_id=name)
            await store.write_record(record, new_entries=[entry], expected_revision=None)
            await store.fork(record.conversation_id, new_conversation_id=f"fork-{number}")
            assert await store.load_entries(f"fork-{number}") == [entry]
            assert await store.read_entry(name) == entry

    on(make, check)


# What cannot be read, and what others wrote


def test_parts_of_a_newer_framework_stay_in_the_store(caplog: pytest.LogCaptureFixture) -> None:
    """Left out of the message, and named in the log; unknown fields are passed over; a fork keeps both."""

    async def check(store: StoreConversationStore) -> None:
        shape = shape_of(answered("hi"))
        shape["parts"].append({"part_kind": "hologram", "content": "new"})
        shape["future"] = 1
        chat = store.store.session("c", codec=EntryCodec())
        await saved(store, "c", "a")
        record = await store.read_record("c")
        assert record is not None
        await chat.append([Link("e2", record.head_id, None, shape)])
        await store.write_record(
            dataclasses.replace(record, head_id="e2", revision="2"), expected_revision=record.revision
        )
        assert await texts_of(store, "c") == ["a", "hi"]
        await store.fork("c", new_conversation_id="fork")
        copies = await store.store.session("fork", codec=EntryCodec()).messages()
        assert values.load(copies[1].message) == shape

    on(in_memory, check)
    assert "hologram" in caplog.text


def test_a_broken_entry_is_an_error_that_names_it() -> None:
    """Never a shorter history; a message that the framework refuses whole, too."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", "a")
        record = await store.read_record("c")
        assert record is not None
        chat = store.store.session("c", codec=EntryCodec())
        await chat.append([Link("e2", record.head_id, None, {"kind": "request"})])
        await store.write_record(
            dataclasses.replace(record, head_id="e2", revision="2"), expected_revision=record.revision
        )
        with pytest.raises(CorruptRecordError, match="session"):
            await store.load("c")

    on(in_memory, check)


@pytest.mark.parametrize("payload", [b"[]", b"{}", b'{"id":"a","message":{},"kind":"event"}', b"{"])
def test_a_payload_that_is_no_entry_is_refused(payload: bytes) -> None:
    """By the codec, with a `ValueError`."""
    with pytest.raises(ValueError, match=r"."):
        EntryCodec().decode(payload)


def test_a_record_that_cannot_be_read_is_an_error() -> None:
    """It names the conversation."""

    async def check(store: StoreConversationStore) -> None:
        await store.store.session("c").save_snapshot({"pydantic-ai/1": {"conversation_id": 7}})
        with pytest.raises(CorruptRecordError, match="conversation"):
            await store.load("c")

    on(in_memory, check)


def test_a_session_state_of_another_framework_is_never_overwritten() -> None:
    """Its messages are read; a save says what to do."""

    async def check(store: StoreConversationStore) -> None:
        chat = store.store.session("c")
        await chat.append([Message("user", ["hi"])], snapshot=AgentSession(session_id="c"))
        conversation = await store.load("c")
        assert conversation is not None
        assert show(conversation.messages) == ["hi"]
        conversation.messages += talk("more")
        with pytest.raises(ConfigurationError, match="source_id of its own"):
            await store.save(conversation)

    on(in_memory, check)


def test_a_conversation_goes_on_where_another_framework_began(make: Make) -> None:
    """Its messages are entries, by limit and by id; a writer in between conflicts; branch, fork and delete work."""

    async def check(store: StoreConversationStore) -> None:
        chat = store.store.session("c", namespace=store.namespace)
        await chat.append([Message("user", ["a"]), Message("assistant", ["b"])])
        stale = await store.load("c")
        await chat.append([Message("user", ["c"])])
        assert stale is not None
        stale.messages += talk("late")
        with pytest.raises(ConversationConflict):
            await store.save(stale)
        await say(store, "c", "x", "y")
        for limit in (1, 2, 3, 4, 5, None):
            assert await texts_of(store, "c", limit) == list("abcxy")[-(limit or 5) :]
        entries = await store.load_entries("c") or []
        assert [entry.parent_id for entry in entries] == [None, *[entry.id for entry in entries[:-1]]]
        assert await store.read_entry(entries[1].id) == entries[1]
        assert (await store.load_entries("c", limit=4) or [])[0].parent_id == entries[0].id
        await store.fork("c", at=4, new_conversation_id="fork")
        record = await store.read_record("c")
        assert record is not None
        await store.branch("c", at=2, expected_revision=record.revision)
        await say(store, "c", "z")
        assert await texts_of(store, "c") == ["a", "b", "z"]
        await store.delete("c")
        assert await store.load("c") is None
        assert await texts_of(store, "fork") == list("abcx")

    on(make, check)


def test_messages_behind_a_history_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Another framework went on in the session: those are in no chain, and never passed over silently."""

    async def check(store: StoreConversationStore) -> None:
        await saved(store, "c", "a", "b")
        await store.store.session("c").append([Message("user", ["behind"])])
        assert await texts_of(store, "c") == ["a", "b"]
        await say(store, "c", "x")
        caplog.clear()
        assert await texts_of(store, "c") == ["a", "b", "x"]

    on(in_memory, check)
    assert "1 messages of others in session" in caplog.text


def test_a_shape_that_is_no_message_is_a_value_error() -> None:
    """For whoever converts by hand."""
    with pytest.raises(ValueError, match=r"."):
        messages_of([{"kind": "nothing"}])


def test_a_bad_store_is_refused() -> None:
    """Where it is given."""
    with pytest.raises(TypeError, match="a store or its URL"):
        StoreConversationStore(7)


def test_without_the_framework_the_error_names_the_extra() -> None:
    """And the Python that it needs."""
    code = "import sys; sys.modules['pydantic_ai'] = None\nimport agentstore.adapters.pydantic_ai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingDependencyError" in done.stderr
    assert "pip install 'agentstore-history[pydantic-ai]'" in done.stderr
