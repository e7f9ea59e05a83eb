"""The session in real agents of the OpenAI Agents SDK, with the SDK's own offline model."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import uuid4

import pytest
from adapter_stores import STORES
from typing_extensions import NotRequired, Required, is_typeddict

from agentstore import ClosedError, ConflictError, CorruptRecordError, HistoryStore, UnavailableError, open_store
from agentstore.adapters import openai_agents_codec
from agentstore.adapters.openai_agents import StoreSession
from agentstore.backend import Append
from agentstore.codec import Encoded, digest
from agentstore.history import SessionHistory
from agentstore.keys import SessionKey
from agentstore.messages import same
from agentstore_memory import MemoryBackend

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, RunConfig, Runner, TResponseInputItem, function_tool
from agents.extensions.memory.encrypt_session import EncryptedSession
from agents.memory import (
    OpenAIResponsesCompactionSession,
    Session,
    SessionSettings,
)
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.run_internal.session_persistence import rewind_session_items
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

Item = dict[str, Any]


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(*script: Any) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel([[step] if not isinstance(step, list | ModelStep) else step for step in script])
    return Agent(name="assistant", model=model, tools=[add, pay]), model


def user(text: str) -> Item:
    return {"role": "user", "content": text}


def show(items: list[Any]) -> list[str]:
    """Items in short: texts, `name()` for a call, `=…` for its result."""
    shown = []
    for item in items:
        if item.get("type") == "function_call":
            shown.append(f"{item['name']}()")
        elif item.get("type") == "function_call_output":
            shown.append(f"={item['output']}")
        else:
            content = item["content"]
            shown.append(content if isinstance(content, str) else content[0]["text"])
    return shown


class Raw:
    """Plants payloads as they are, under a format of choice."""

    def __init__(self, format: str = openai_agents_codec.FORMAT) -> None:
        self.format = format

    def encode(self, obj: bytes, /) -> Encoded:
        return Encoded(None, obj, obj)

    def decode(self, payload: bytes, /) -> bytes:
        return payload

    def assign_id(self, obj: bytes, message_id: str, /) -> bool:
        return False


@asynccontextmanager
async def opened(url: str = "memory://", session_id: str = "s", **options: Any) -> AsyncIterator[StoreSession]:
    async with StoreSession(url, session_id, **options) as session:
        yield session


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., StoreSession]:
    """Makes sessions of one new namespace, each on a store of its own, as processes do."""
    url, namespace = STORES[request.param](tmp_path), uuid4().hex
    return lambda session_id="s", **options: StoreSession(url, session_id, namespace=namespace, **options)


# Runs


def test_items_are_the_same_whatever_the_order_of_their_keys() -> None:
    """A retry under an idempotency key from another process, which built the item in another order, is no conflict."""
    encode = openai_agents_codec.ItemCodec().encode
    for odd in ("plain", b"tagged"):
        first = encode(openai_agents_codec.Given({"role": "user", "content": odd}))
        again = encode(openai_agents_codec.Given({"content": odd, "role": "user"}))
        assert digest(first.identity) == digest(again.identity)
        assert first.payload != again.payload


def test_an_agent_goes_on_with_its_session_in_another_process(make: Callable[..., StoreSession]) -> None:
    """A tool turn, then a turn by a new session object on a new store: the model sees all, in order, once."""

    async def check() -> None:
        async with make() as session:
            first, _ = agent(function_call("add", '{"a":1,"b":2}', call_id="c1"), assistant_message("3"))
            await Runner.run(first, "1 + 2?", session=session)
        async with make() as session:
            second, model = agent(assistant_message("bye"))
            await Runner.run(second, "thanks", session=session)
            assert show(model.calls[0].input) == ["1 + 2?", "add()", "=3", "3", "thanks"]
            assert show(await session.get_items()) == ["1 + 2?", "add()", "=3", "3", "thanks", "bye"]

    asyncio.run(check())


def test_a_streamed_run_stores_the_same_items(make: Callable[..., StoreSession]) -> None:
    """(B54) (B47) Before the stream reports its end."""

    async def run(session: StoreSession, stream: bool) -> list[Any]:
        one, _ = agent(function_call("add", '{"a":1,"b":2}', call_id="c1"), assistant_message("3"))
        if stream:
            result = Runner.run_streamed(one, "1 + 2?", session=session)
            async for _ in result.stream_events():
                pass
        else:
            await Runner.run(one, "1 + 2?", session=session)
        return await session.get_items()

    async def check() -> None:
        async with make("run") as plain, make("stream") as streamed:
            assert await run(plain, stream=False) == await run(streamed, stream=True)

    asyncio.run(check())


def test_a_failed_run_keeps_its_input_and_finished_tool_calls(make: Callable[..., StoreSession]) -> None:
    """As the SDK has it: what happened before the failure stays, and each call has its result."""

    async def check() -> None:
        async with make() as session:
            failing, _ = agent(
                function_call("add", '{"a":1,"b":2}', call_id="c1"), ModelStep.raise_error(RuntimeError("model"))
            )
            with pytest.raises(RuntimeError, match="model"):
                await Runner.run(failing, "1 + 2?", session=session)
            assert show(await session.get_items()) == ["1 + 2?", "add()", "=3"]

    asyncio.run(check())


def test_a_retry_takes_its_items_back(make: Callable[..., StoreSession]) -> None:
    """The SDK's own rewind: it looks at the tail, pops what it added, and adds again."""

    async def check() -> None:
        async with make() as session:
            await session.add_items([user("before"), user("again"), {"role": "assistant", "content": "half"}])
            await rewind_session_items(session, [user("again"), {"role": "assistant", "content": "half"}])
            assert show(await session.get_items()) == ["before"]
            await session.add_items([user("again")])
            assert show(await session.get_items()) == ["before", "again"]

    asyncio.run(check())


def test_a_run_paused_for_approval_stores_call_and_result_once(make: Callable[..., StoreSession]) -> None:
    """(B55) Also when it resumes with a new session object."""

    async def check() -> None:
        one, model = agent(function_call("pay", '{"amount":5}', call_id="c1"), assistant_message("done"))
        async with make() as session:
            result = await Runner.run(one, "pay 5", session=session)
        state = result.to_state()
        state.approve(result.interruptions[0])
        async with make() as session:
            await Runner.run(one, state, session=session)
            assert show(await session.get_items()) == ["pay 5", "pay()", "=paid 5", "done"]
        assert show(model.calls[-1].input) == ["pay 5", "pay()", "=paid 5"]

    asyncio.run(check())


def test_a_limit_in_the_run_config_reaches_the_store() -> None:
    """Settings of the run go over those of the session."""

    async def check() -> None:
        async with opened(session_settings=SessionSettings(limit=1)) as session:
            await session.add_items([user(text) for text in "abc"])
            one, model = agent(assistant_message("x"), assistant_message("y"))
            await Runner.run(one, "d", session=session)
            assert show(model.calls[0].input) == ["c", "d"]
            await Runner.run(one, "e", session=session, run_config=RunConfig(session_settings=SessionSettings(limit=2)))
            assert show(model.calls[1].input) == ["d", "x", "e"]

    asyncio.run(check())


@pytest.mark.parametrize("limit", range(8))
def test_a_window_shows_the_model_no_half_of_a_call(limit: int) -> None:
    """(B57) (B58) (B70) By the SDK's own repair of what it read; the stored items stay as they are."""

    async def check() -> None:
        async with opened(session_settings=SessionSettings(limit=limit)) as session:
            one, _ = agent(function_call("add", '{"a":1,"b":2}', call_id="c1"), assistant_message("3"))
            await Runner.run(one, "1 + 2?", session=session)
            two, model = agent(assistant_message("x"))
            await Runner.run(two, "next", session=session)
            seen = model.calls[0].input
            calls = [item["call_id"] for item in seen if item.get("type") == "function_call"]
            assert calls == [item["call_id"] for item in seen if item.get("type") == "function_call_output"]
            assert show(await session.get_items(100)) == ["1 + 2?", "add()", "=3", "3", "next", "x"]

    asyncio.run(check())


async def run_streamed(one: Agent[Any], session: StoreSession) -> None:
    async for _ in Runner.run_streamed(one, "hi", session=session).stream_events():
        pass


@pytest.mark.parametrize("stream", [False, True])
def test_a_store_that_fails_fails_the_run(stream: bool) -> None:
    """(B49) Promptly, with the store's own error, streamed or not."""

    class Down(MemoryBackend):
        async def append(self, key: SessionKey, append: Append) -> Any:
            raise UnavailableError("no server")

    async def check() -> None:
        async with HistoryStore(Down()) as store:
            session = StoreSession(store, "s")
            one, _ = agent(assistant_message("x"))
            with pytest.raises(UnavailableError, match="no server"):
                await (run_streamed(one, session) if stream else Runner.run(one, "hi", session=session))

    asyncio.run(asyncio.wait_for(check(), 5))


# The protocol


def test_it_is_a_session_of_the_sdk_that_takes_the_run_context() -> None:
    """By the protocol, and `wrapper` by keyword on all four methods."""
    session = StoreSession("memory://", "s")
    assert isinstance(session, Session)
    for method in (session.get_items, session.add_items, session.pop_item, session.clear_session):
        assert inspect.signature(method).parameters["wrapper"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, "abcde"), (0, ""), (-1, ""), (1, "e"), (2, "de"), (5, "abcde"), (6, "abcde"), (2_147_483_647, "abcde")],
)
def test_a_limit_gives_the_newest_oldest_first(limit: int | None, expected: str) -> None:
    """Nothing for 0 or less."""

    async def check() -> None:
        async with opened() as session:
            await session.add_items([user(text) for text in "abcde"])
            assert show(await session.get_items(limit)) == list(expected)

    asyncio.run(check())


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}])
def test_the_settings_limit_holds_where_a_read_names_none(settings: Any) -> None:
    """An explicit limit goes over it; settings may be a dict, and may be changed."""

    async def check() -> None:
        async with opened(session_settings=settings) as session:
            await session.add_items([user(text) for text in "abc"])
            assert show(await session.get_items()) == ["b", "c"]
            assert show(await session.get_items(3)) == ["a", "b", "c"]
            session.session_settings = SessionSettings(limit=0)
            assert await session.get_items() == []
            session.session_settings = None
            assert show(await session.get_items()) == ["a", "b", "c"]

    asyncio.run(check())


def test_ids_in_items_decide_nothing(make: Callable[..., StoreSession]) -> None:
    """(B73) One id for all, equal items, and one object twice: every item is there as often as it was added."""
    said = {"id": FAKE_RESPONSES_ID, "type": "message", "role": "assistant", "content": "yes"}

    async def check() -> None:
        async with make() as session:
            await session.add_items([said, said, dict(said)])
            await session.add_items([said])
            await session.add_items([{**said, "content": "no"}])
            assert show(await session.get_items()) == ["yes"] * 4 + ["no"]

    asyncio.run(check())


def test_nobody_is_read_or_asked_where_items_are_added() -> None:
    """(B74) An append costs one write and no read, however long the session is."""
    reads = []

    class Counting(MemoryBackend):
        async def read(self, key: SessionKey, **options: Any) -> Any:
            reads.append(options)
            return await super().read(key, **options)

    async def check() -> None:
        async with HistoryStore(Counting()) as store:
            session = StoreSession(store, "s")
            await session.add_items([user("a"), user("b")])
            assert reads == []
            assert show(await session.get_items(1)) == ["b"]
            assert [read["limit"] for read in reads] == [1]

    asyncio.run(check())


def test_pop_gives_the_newest_and_none_at_the_end(make: Callable[..., StoreSession]) -> None:
    """And a session that never was has nothing to pop."""

    async def check() -> None:
        async with make() as session:
            assert await session.pop_item() is None
            await session.add_items([user("a"), user("b")])
            assert await session.pop_item() == user("b")
            assert await session.pop_item() == user("a")
            assert await session.pop_item() is None
            assert await session.get_items() == []

    asyncio.run(check())


def test_concurrent_pops_never_give_the_same_item(make: Callable[..., StoreSession]) -> None:
    """Each item once, whoever asks."""

    async def check() -> None:
        async with make() as one, make() as other:
            await one.add_items([user(str(number)) for number in range(12)])
            popped = await asyncio.gather(*[session.pop_item() for session in (one, other) * 7])
            texts = [item["content"] for item in popped if item is not None]
            assert sorted(map(int, texts)) == list(range(12))

    asyncio.run(check())


def test_clear_removes_all_and_the_session_goes_on(make: Callable[..., StoreSession]) -> None:
    """What is added later is there."""

    async def check() -> None:
        async with make() as session:
            await session.clear_session()
            await session.add_items([user("a")])
            await session.clear_session()
            assert await session.get_items() == []
            await session.add_items([user("b")])
            assert show(await session.get_items()) == ["b"]

    asyncio.run(check())


def test_sessions_sources_and_namespaces_never_meet() -> None:
    """Three parts of the key, each of which tells two sessions apart."""

    async def check() -> None:
        async with open_store("memory://") as store:
            places: list[dict[str, Any]] = [
                {"session_id": "a"},
                {"session_id": "b"},
                {"session_id": "a", "source_id": "audit"},
                {"session_id": "a", "namespace": "other"},
            ]
            sessions = [StoreSession(store, **place) for place in places]
            for number, session in enumerate(sessions):
                await session.add_items([user(str(number))])
            assert [show(await session.get_items()) for session in sessions] == [["0"], ["1"], ["2"], ["3"]]

    asyncio.run(check())


@pytest.mark.parametrize("bad", ["", None, 7])
def test_a_bad_session_id_is_refused_where_it_is_given(bad: Any) -> None:
    """By the constructor, without I/O."""
    with pytest.raises((TypeError, ValueError)):
        StoreSession("memory://", bad)
    with pytest.raises(TypeError, match="a store or its URL"):
        StoreSession(bad if bad != "" else 7, "s")


# Closed


def test_a_closed_session_refuses_every_call() -> None:
    """With the SDK's `RuntimeError`, also where nothing would be done; closing twice is fine."""

    async def check() -> None:
        session = StoreSession("memory://", "s")
        await session.add_items([user("a")])
        await session.close()
        await session.close()
        for call in (
            session.get_items,
            lambda: session.get_items(0),
            lambda: session.add_items([]),
            lambda: session.add_items([user("b")]),
            session.pop_item,
            session.clear_session,
            lambda: session._get_compaction_snapshot(5),
            lambda: session._atomic_replace_items([]),
        ):
            with pytest.raises(RuntimeError, match="StoreSession is closed"):
                await call()

    asyncio.run(check())


def test_a_store_that_was_given_stays_open() -> None:
    """And once its owner closes it, the session is closed too."""

    async def check() -> None:
        async with open_store("memory://") as store:
            async with StoreSession(store, "s") as session:
                await session.add_items([user("a")])
            other = StoreSession(store, "s")
            assert show(await other.get_items()) == ["a"]
        with pytest.raises(RuntimeError, match="is closed") as caught:
            await other.add_items([])
        assert isinstance(caught.value.__cause__, ClosedError)

    asyncio.run(check())


def test_a_cancelled_call_finishes_its_write_first() -> None:
    """(B45) (B46) However often it is cancelled; the outcome is known when `CancelledError` leaves."""

    class Slow(MemoryBackend):
        async def append(self, key: SessionKey, append: Append) -> Any:
            await asyncio.sleep(0.05)
            return await super().append(key, append)

    async def check() -> None:
        async with HistoryStore(Slow()) as store:
            session = StoreSession(store, "s")
            task = asyncio.create_task(session.add_items([user("a"), user("b")]))
            for _ in range(3):
                await asyncio.sleep(0.01)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert show(await session.get_items()) == ["a", "b"]

    asyncio.run(check())


# Values


def _sample(kind: Any, depth: int = 0) -> Any:
    """A value of the type, every field of it filled."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired):
        return _sample(arguments[0], depth)
    if origin is Literal:
        return arguments[0]
    if origin is Union or str(origin) == "<class 'types.UnionType'>":
        return _sample(next(one for one in arguments if one is not type(None)), depth)
    if origin is dict or kind is dict:
        return {"key": _sample(arguments[1], depth + 1) if arguments else "value"}
    if origin is not None and hasattr(origin, "__iter__"):
        return [_sample(arguments[0], depth + 1)] if depth < 6 else []
    if is_typeddict(kind):
        return {name: _sample(field, depth + 1) for name, field in get_type_hints(kind, include_extras=True).items()}
    return {str: "text", int: 7, float: 0.5, bool: True}.get(kind, {"any": [1, None, "ü"]})


ITEMS = [kind for kind in get_args(TResponseInputItem) if is_typeddict(kind)]


@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.__name__)
def test_an_item_with_every_field_comes_back_as_it_was(kind: Any, tmp_path: Path) -> None:
    """To the byte of its JSON, key order included; each kind of item that the SDK knows."""
    item = _sample(kind)
    assert item.keys() == get_type_hints(kind).keys()

    async def check() -> None:
        async with opened(f"sqlite:///{tmp_path}/chat.db") as session:
            await session.add_items([item])
            assert json.dumps(await session.get_items()) == json.dumps([item])
            assert await session.pop_item() == item

    asyncio.run(check())


def test_all_kinds_of_items_are_looked_at() -> None:
    """The union of the SDK was read, and read whole."""
    assert len(ITEMS) >= 25


ODD: Item = {
    "role": "user",
    "v": 1,
    "format": "agentstore/1",
    "content": "NUL \x00, lone \ud800, %00, \\u0000",
    "$bytes": "not ours",
    "deep": {
        "nan": math.nan,
        "infinity": -math.inf,
        "big": 2**70,
        "bytes": b"\x00\xff",
        "tuple": (1, (2,)),
        "time": datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=timezone.utc),
        "none": None,
        "$text": {"$dict": []},
    },
}


def test_odd_values_come_back_equal_and_independent(make: Callable[..., StoreSession]) -> None:
    """(B1) To the type; and nobody's change of an item reaches the store."""

    async def check() -> None:
        async with make() as session:
            given = json.loads("{}") | ODD
            await session.add_items([given])
            given["content"] = "changed"
            (loaded,) = await session.get_items()
            assert same(loaded, ODD)
            loaded["role"] = "changed"
            assert same(await session.get_items(), [ODD])

    asyncio.run(check())


class Colour(Enum):
    RED = "red"


def test_what_cannot_be_kept_is_stored_plainly_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Enum, set, key that is no text, object: a run never fails over a value; a model of the SDK becomes its dict."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    async def check() -> list[Any]:
        async with opened() as session:
            item: Any = {"role": "user", "content": "x", "extra": [Colour.RED, {2, 1}, {7: "seven"}, Odd()]}
            await session.add_items([item])
            await session.add_items([assistant_message("hi")])
            return list(await session.get_items())

    odd, model = asyncio.run(check())
    assert odd == {"role": "user", "content": "x", "extra": ["red", [1, 2], {"7": "seven"}, "odd"]}
    assert model["content"][0]["text"] == "hi"
    assert len(caplog.records) == 2
    assert "extra[0]" in caplog.records[0].message


# What cannot be read


async def plant(session: StoreSession, *payloads: bytes, format: str = openai_agents_codec.FORMAT) -> None:
    raw = session.store.session(session.session_id, namespace=session.namespace, codec=Raw(format))
    await raw.append(list(payloads))


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_items_that_cannot_be_read_do_not_count(on_corrupt: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A limit gives that many good ones, with a warning, whatever the store does elsewhere."""

    async def check() -> None:
        async with open_store("memory://", on_corrupt=on_corrupt) as store:
            session = StoreSession(store, "s")
            await session.add_items([user("a"), user("b")])
            await plant(session, b'{"torn', b"\x00\x00", b"\xff")
            await session.add_items([user("c")])
            await plant(session, b'{"$bytes": 7}')
            assert show(await session.get_items(2)) == ["b", "c"]
            assert show(await session.get_items(3)) == ["a", "b", "c"]
            assert show(await session.get_items()) == ["a", "b", "c"]

    asyncio.run(check())
    assert "cannot be read" in caplog.text


def test_pop_passes_over_what_cannot_be_read_and_keeps_it_aside(make: Callable[..., StoreSession]) -> None:
    """It leaves the session, and lies as it was under a source of its own: nothing is ever lost by a pop."""

    async def check() -> None:
        async with make() as session:
            await session.add_items([user("a"), user("b")])
            await plant(session, b'{"torn', b"\xff")
            assert await session.pop_item() == user("b")
            assert show(await session.get_items()) == ["a"]
            aside = session.store.session("s", source_id="history~unreadable", namespace=session.namespace, codec=Raw())
            assert await aside.messages() == [b"\xff", b'{"torn']

    asyncio.run(check())


def test_pop_leaves_what_a_newer_version_wrote() -> None:
    """It is not broken: the call raises, and nothing is removed."""

    async def check() -> None:
        async with opened() as session:
            await session.add_items([user("a")])
            await plant(session, b"{}", format="openai-agents/2")
            with pytest.raises(CorruptRecordError, match="upgrade"):
                await session.pop_item()
            info = await session.store.session("s").info()
            assert info is not None
            assert info.count == 2

    asyncio.run(check())


def test_pop_leaves_what_reads_leave_out() -> None:
    """A broken record of another framework behind the items, in a store that skips such: never removed unseen."""

    async def check() -> None:
        async with open_store("memory://", on_corrupt="skip") as store:
            session = StoreSession(store, "s")
            await session.add_items([user("a")])
            await plant(session, b"{", format="agentstore/1")
            with pytest.raises(CorruptRecordError, match="record 2 of session"):
                await session.pop_item()
            assert show(await session.get_items()) == ["a"]

    asyncio.run(check())


def test_pop_leaves_a_record_that_is_no_item() -> None:
    """A stranger's record that the SDK has no counterpart for is never removed unseen."""

    async def check() -> None:
        async with opened() as session:
            await session.add_items([user("a")])
            await plant(session, b"{}", format="stranger/1")
            with pytest.raises(ConflictError, match="no item of this SDK"):
                await session.pop_item()
            assert show(await session.get_items()) == ["a"]

    asyncio.run(check())


def test_a_pop_that_is_refused_leaves_the_item() -> None:
    """What the check raises comes through, and nothing changed."""

    def refuse(item: Any) -> None:
        raise ValueError(item["content"])

    async def check() -> None:
        async with opened() as session:
            await session.add_items([user("a")])
            with pytest.raises(ValueError, match="a"):
                await session._pop_item_with_validation(refuse)
            assert show(await session.get_items()) == ["a"]

    asyncio.run(check())


# Under the SDK's wrappers


def encrypted(session: Any, **options: Any) -> EncryptedSession:
    return EncryptedSession("s", session, encryption_key="0" * 32, **options)


def test_an_encrypted_session_works_on_it(make: Callable[..., StoreSession]) -> None:
    """Two runs, limit, pop and clear; nothing readable lies in the store."""

    async def check() -> None:
        async with make() as session:
            one, model = agent(assistant_message("secret answer"), assistant_message("b"))
            safe = encrypted(session)
            await Runner.run(one, "secret", session=safe)
            await Runner.run(one, "more", session=safe)
            assert show(model.calls[1].input) == ["secret", "secret answer", "more"]
            assert "secret" not in repr(await session.get_items())
            assert show(await safe.get_items(2)) == ["more", "b"]
            assert show([await safe.pop_item()]) == ["b"]
            await safe.clear_session()
            assert await safe.get_items() == []

    asyncio.run(check())


class Compacting:
    """The part of the OpenAI client that the SDK's compaction asks; `meanwhile` happens during the request."""

    def __init__(self, meanwhile: Callable[[], Any] | None = None) -> None:
        self.responses = self
        self.inputs: list[Any] = []
        self._meanwhile = meanwhile

    async def compact(self, **request: Any) -> Any:
        self.inputs.append(request.get("input"))
        if self._meanwhile is not None:
            await self._meanwhile()
        return SimpleNamespace(output=[{"role": "user", "content": "summary"}], usage=None)


def compacting(session: Any, client: Any) -> OpenAIResponsesCompactionSession:
    return OpenAIResponsesCompactionSession(
        "s",
        session,
        client=client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) > 3,
    )


async def two_turns(session: Any) -> None:
    one, _ = agent(assistant_message("b"), assistant_message("d"))
    await Runner.run(one, "a", session=session)
    await Runner.run(one, "c", session=session)


@pytest.mark.parametrize("wrap", [lambda session: session, encrypted], ids=["plain", "encrypted"])
def test_automatic_compaction_replaces_what_the_model_saw(
    make: Callable[..., StoreSession], wrap: Callable[[Any], Any]
) -> None:
    """By the SDK's compaction session, on the plain or the encrypted one."""

    async def check() -> None:
        async with make() as session:
            client = Compacting()
            stored = wrap(session)
            await two_turns(compacting(stored, client))
            assert len(client.inputs) == 1
            assert show(await stored.get_items()) == ["summary"]

    asyncio.run(check())


def test_compaction_never_takes_what_was_added_meanwhile(make: Callable[..., StoreSession]) -> None:
    """(B52) Another process adds an item during the request: old history and new item stay, in order."""

    async def check() -> None:
        async with make() as session, make() as other:
            client = Compacting(lambda: other.add_items([user("meanwhile")]))
            await two_turns(compacting(session, client))
            assert show(await session.get_items()) == ["a", "b", "c", "d", "meanwhile"]

    asyncio.run(check())


def test_compaction_of_a_tail_keeps_what_lies_before(make: Callable[..., StoreSession]) -> None:
    """A limit shows the model the end only: only that is replaced."""

    async def check() -> None:
        async with make(session_settings=SessionSettings(limit=3)) as session:
            await session.add_items([user(text) for text in ("1", "2", "3")])
            await two_turns(compacting(session, Compacting()))
            assert show(await session.get_items(100))[:2] == ["1", "2"]
            assert show(await session.get_items(100))[-1] == "summary"

    asyncio.run(check())


def test_manual_compaction_replaces_all_in_one_step(make: Callable[..., StoreSession]) -> None:
    """Through `_atomic_replace_items`: no clear, so no moment without a history."""

    async def check() -> None:
        async with make() as session:
            await session.add_items([user(text) for text in "abcd"])
            await compacting(session, Compacting()).run_compaction({"force": True})
            assert show(await session.get_items()) == ["summary"]

    asyncio.run(check())


def test_a_replacement_of_all_never_takes_an_item_that_was_not_read(make: Callable[..., StoreSession]) -> None:
    """(B52) It raises, and history stays as it is; read again, it goes through."""

    async def check() -> None:
        async with make() as session, make() as other:
            await session.add_items([user("a")])
            await session.get_items(100)
            await other.add_items([user("b")])
            with pytest.raises(ConflictError):
                await session._atomic_replace_items([])
            assert show(await session.get_items(100)) == ["a", "b"]
            await session.get_items(0)
            assert await session._atomic_replace_items([user("summary")])
            assert show(await session.get_items()) == ["summary"]

    asyncio.run(check())


UNREADABLE = [
    ("raise", openai_agents_codec.FORMAT, b"{torn"),
    ("raise", "stranger/1", b"{}"),
    ("skip", openai_agents_codec.FORMAT, b"{torn"),
    ("skip", "openai-agents/2", b"{}"),
    ("skip", "agentstore/1", b"{torn"),
]
"""What reads of a session leave out: the store's `on_corrupt`, the record's format and its payload."""


@asynccontextmanager
async def around(on_corrupt: Any, format: str, payload: bytes) -> AsyncIterator[tuple[StoreSession, SessionHistory]]:
    """A session of an item, the record, and an item; and its records as they lie."""
    async with open_store("memory://", on_corrupt=on_corrupt) as store:
        session = StoreSession(store, "s")
        await session.add_items([user("1")])
        await plant(session, payload, format=format)
        await session.add_items([user("2")])
        yield session, store.session("s", codec=Raw(format))


@pytest.mark.parametrize("unreadable", UNREADABLE, ids=lambda case: f"{case[1]}-{case[0]}")
def test_automatic_compaction_leaves_what_reads_leave_out(unreadable: tuple[Any, str, bytes]) -> None:
    """The record stays where it is, with all before it; what lies behind becomes shorter."""

    async def check() -> None:
        async with around(*unreadable) as (session, raw):
            await two_turns(compacting(session, Compacting()))
            assert show(await session.get_items()) == ["1", "summary"]
            assert (await raw.records())[1].message == unreadable[2]

    asyncio.run(check())


@pytest.mark.parametrize("unreadable", UNREADABLE, ids=lambda case: f"{case[1]}-{case[0]}")
def test_manual_compaction_refuses_to_take_what_reads_leave_out(unreadable: tuple[Any, str, bytes]) -> None:
    """It replaces everything: so it raises, and history stays as it is."""

    async def check() -> None:
        async with around(*unreadable) as (session, raw):
            with pytest.raises((CorruptRecordError, ConflictError), match=r"record 2 of session .*; nothing changed"):
                await compacting(session, Compacting()).run_compaction({"force": True})
            assert len(await raw.records()) == 3
            assert (await raw.records())[1].message == unreadable[2]

    asyncio.run(check())


@pytest.mark.parametrize("unreadable", UNREADABLE, ids=lambda case: f"{case[1]}-{case[0]}")
def test_old_items_go_only_up_to_what_reads_leave_out(unreadable: tuple[Any, str, bytes]) -> None:
    """The first record that cannot be judged stays, and all behind it."""

    async def check() -> None:
        async with around(*unreadable) as (session, raw):
            snapshot = await session._get_compaction_snapshot(1, prune_prefix=lambda item: True)
            assert snapshot is not None
            assert await snapshot.replace_suffix(0, [user("x")])
            assert show(await session.get_items()) == ["x"]
            assert (await raw.records())[0].message == unreadable[2]

    asyncio.run(check())


def test_a_suffix_is_replaced_only_if_nothing_was_written_since() -> None:
    """Neither added nor popped; a start behind the end replaces nothing."""

    async def check() -> None:
        async with opened() as session:
            await session.add_items([user(text) for text in "abcd"])
            snapshot = await session._get_compaction_snapshot(3)
            assert snapshot is not None
            assert (show(snapshot.items), snapshot.complete) == (["b", "c", "d"], False)
            assert not await snapshot.replace_suffix(3, [])
            await session.pop_item()
            assert not await snapshot.replace_suffix(1, [])
            await session.add_items([user("d")])
            assert not await snapshot.replace_suffix(1, [])
            again = await session._get_compaction_snapshot(4)
            assert again is not None
            assert again.complete
            assert await again.replace_suffix(2, [user("x")])
            assert show(await session.get_items()) == ["a", "b", "x"]
            empty = await StoreSession(session.store, "empty")._get_compaction_snapshot(4)
            assert empty is not None
            assert (empty.items, empty.complete, await empty.replace_suffix(0, [])) == ([], True, False)

    asyncio.run(check())


def test_old_items_go_with_a_replacement() -> None:
    """Those at the beginning that the caller names, up to the first that stays."""

    async def check(items: str, left: list[str]) -> None:
        async with opened() as session:
            await session.add_items([user(text) for text in items])
            snapshot = await session._get_compaction_snapshot(
                2,
                prune_prefix=lambda item: item["content"] == "o",
            )
            assert snapshot is not None
            assert await snapshot.replace_suffix(0, [user("x")])
            assert show(await session.get_items()) == left

    asyncio.run(check("ooabc", ["a", "x"]))
    asyncio.run(check("oobc", ["x"]))
    asyncio.run(check("aobc", ["a", "o", "x"]))


def test_a_subclass_is_not_gone_behind() -> None:
    """It may keep items in a way of its own: the SDK then goes through its methods."""

    class Own(StoreSession):
        pass

    async def check() -> None:
        session = Own("memory://", "s")
        assert await session._get_compaction_snapshot(5) is None
        assert await session._atomic_replace_items([]) is False
        await compacting(session, Compacting()).run_compaction({"force": True})
        await session.close()

    asyncio.run(check())


def test_without_the_sdk_the_error_names_the_extra() -> None:
    """And the module that is missing."""
    code = "import sys; sys.modules['agents'] = None\nimport agentstore.adapters.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingDependencyError" in done.stderr
    assert "pip install 'agentstore-history[openai-agents]'" in done.stderr
