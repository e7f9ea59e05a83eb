"""The table of docs/agent-framework.md, row by row: what is said of ours, and of the framework's own providers.

Theirs are its file provider and, from the package of its own, the Redis one. The Cosmos provider needs Azure: of it,
only what its signature tells is asserted, where it is installed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import redis_server
from agent_framework import AgentSession, Content, FileHistoryProvider, InMemoryHistoryProvider, Message
from agent_framework_scene import add, agent, call, logged, opened, session, show

import agentstore
from agentstore import ConfigurationError, HistoryStore, PayloadTooLargeError, SaveError, UnavailableError, open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore.messages import same
from agentstore_memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

PAGE = Path(__file__).parents[1] / "docs" / "agent-framework.md"
PEERS = {"redis": "agent_framework_redis", "cosmos": "agent_framework_azure_cosmos"}
CLASSES = {"redis": "RedisHistoryProvider", "cosmos": "CosmosHistoryProvider"}

Test = TypeVar("Test", bound=Callable[..., Any])
ROWS: list[str] = []
BOTH = pytest.mark.parametrize("kind", ["file", "redis"])


def row(title: str) -> Callable[[Test], Test]:
    """The test is that of the row with this title."""

    def marked(test: Test) -> Test:
        ROWS.append(title)
        return test

    return marked


def class_of(kind: str) -> type[Any]:
    if kind == "file":
        return FileHistoryProvider
    module = pytest.importorskip(PEERS[kind], reason=f"NOT RUN: {PEERS[kind]} is not installed")
    found: type[Any] = getattr(module, CLASSES[kind])
    return found


@asynccontextmanager
async def theirs(kind: str, folder: Path, **flags: Any) -> AsyncIterator[Any]:
    """A provider of the framework's, empty."""
    provider = class_of(kind)
    if kind == "file":
        yield provider(folder / uuid4().hex, **flags)
        return
    made = provider(redis_url=redis_server.server_url(), application_id=uuid4().hex, **flags)
    try:
        yield made
    finally:
        await made.aclose()


async def stored(provider: Any) -> list[str]:
    return [show(message) for message in await provider.get_messages("s", state={})]


async def three_turns(provider: Any) -> list[str]:
    one, chat = agent(provider), session()
    for _ in range(3):
        await one.run("yes", session=chat)
    return await stored(provider)


def parameters(kind: str) -> set[str]:
    return set(inspect.signature(class_of(kind).__init__).parameters)


def test_every_row_of_the_page_is_a_test() -> None:
    """And every test of a row is in the table, in its order."""
    table = PAGE.read_text().partition("## Beside the framework's own providers")[2].partition("\n## ")[0]
    titles = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert [title.strip() for title in titles if title.strip() not in ("", "what")] == ROWS
    assert len(ROWS) >= 15


@row("three equal turns without ids")
@BOTH
def test_three_equal_turns(kind: str, tmp_path: Path) -> None:
    """Six messages here, two there (B73)."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            assert await three_turns(provider) == ["yes", "done"] * 3
            assert await three_turns(other) == ["yes", "done"]

    asyncio.run(main())


@row("ids")
@BOTH
def test_ids(kind: str, tmp_path: Path) -> None:
    """Given to the objects of the caller here, so that the same ones again are the same; there not at all (B72)."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            ours, their = Message("user", ["hi"]), Message("user", ["hi"])
            await provider.save_messages("s", [ours])
            await other.save_messages("s", [their])
            assert ours.message_id is not None
            assert their.message_id is None

    asyncio.run(main())


@row("what a save reads")
@BOTH
def test_what_a_save_reads(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here; the whole history there, each time (B74)."""
    read = "_read_json_messages" if kind == "file" else "get_messages"
    calls: list[str] = []

    class Counting(MemoryBackend):
        async def read(self, *args: Any, **options: Any) -> Any:
            calls.append("ours")
            return await super().read(*args, **options)

    async def main() -> None:
        async with HistoryStore(Counting()) as store, theirs(kind, tmp_path) as other:
            provider = StoreHistoryProvider(store)
            inner = getattr(type(other), read)

            def counted(*args: Any, **options: Any) -> Any:
                calls.append("theirs")
                return inner(*args, **options)

            monkeypatch.setattr(type(other), read, counted)
            for number in range(3):
                for one in (provider, other):
                    await one.save_messages("s", [Message("user", [str(number)])])
            assert calls.count("ours") == 0
            assert calls.count("theirs") >= 2  # a first save finds no file

    asyncio.run(main())


@row("a window")
def test_a_window(tmp_path: Path) -> None:
    """The newest whole units of what stays stored here; Redis cuts the stored list, between call and result (B57)."""
    turn = [
        Message("user", ["1+2?"]),
        Message("assistant", [call()]),
        Message("tool", [Content.from_function_result("c1", result="3")]),
        Message("assistant", ["3"]),
    ]

    async def main() -> None:
        async with opened(max_messages=2) as provider, theirs("redis", tmp_path, max_messages=2) as other:
            for one in (provider, other):
                await one.save_messages("s", turn)
            assert await stored(provider) == ["3"]
            assert len(await provider.history("s").messages()) == 4
            assert await stored(other) == ["=3", "3"]

    asyncio.run(main())
    assert not {"max_messages", "max_tokens"} & (parameters("file"))


@row("filters and reducers")
@pytest.mark.parametrize("kind", ["file", "redis", "cosmos"])
def test_filters_and_reducers(kind: str) -> None:
    """Of what is loaded and what is stored, here; there are none there (FEATURES 11, 12)."""
    ours = {"provide_output_filter", "store_input_filter", "store_output_filter", "reducer"}
    provider = StoreHistoryProvider("memory://", **dict.fromkeys(ours, list))
    assert all(getattr(provider, name) is list for name in ours)
    assert not ours & parameters(kind)


@row("values that are not JSON")
@BOTH
def test_values_that_are_not_json(kind: str, tmp_path: Path) -> None:
    """Exact here. There bytes and tuples are dropped, times become text (B04 to B08)."""
    odd = {"bytes": b"\xff", "tuple": (1, 2), "time": datetime(2024, 1, 1, tzinfo=timezone.utc), "n": 1}

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            for one in (provider, other):
                await one.save_messages("s", [Message("user", ["hi"], additional_properties=dict(odd))])
            (message,) = await provider.get_messages("s")
            assert same(message.additional_properties, odd)
            (message,) = await other.get_messages("s")
            assert message.additional_properties == {"time": "2024-01-01 00:00:00+00:00", "n": 1}

    asyncio.run(main())


@row("a field of a newer version")
@BOTH
def test_a_field_of_a_newer_version(kind: str, tmp_path: Path) -> None:
    """The rest of the history is read here, and the field stays; there nothing of the history can be read (B18)."""
    newer = {"type": "message", "role": "user", "contents": [{"type": "text", "text": "hi", "mood": "new"}]}

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            core = provider.store.session("s")
            await core.append([agentstore.Message.from_dict(newer)])
            assert await stored(provider) == ["hi"]
            assert (await core.messages())[0].to_dict()["contents"][0]["mood"] == "new"
            await other.save_messages("s", [Message("user", ["before"])])
            await _add_raw(kind, other, json.dumps(newer))
            with pytest.raises(TypeError, match=r"mood"):
                await stored(other)

    asyncio.run(main())


async def _add_raw(kind: str, provider: Any, text: str) -> None:
    """Write what a newer version would."""
    if kind == "redis":
        await provider._redis_client.rpush(provider._redis_key("s"), text)
        return
    with (provider.storage_path / "s.jsonl").open("a") as file:
        file.write(text + "\n")


@row("a batch that cannot be stored whole")
def test_a_batch_that_cannot_be_stored_whole(tmp_path: Path) -> None:
    """Nothing of it is, here. The file provider has written the lines before the one that fails (B43)."""

    async def main() -> None:
        async with open_store("memory://", max_message_bytes=1000) as store, theirs("file", tmp_path) as other:
            provider = StoreHistoryProvider(store)
            with pytest.raises(PayloadTooLargeError):
                await provider.save_messages("s", [Message("user", ["a"]), Message("user", ["x" * 1000])])
            assert await stored(provider) == []
            with pytest.raises(UnicodeEncodeError):
                await other.save_messages("s", [Message("user", ["a"]), Message("user", ["half \ud83d"])])
            assert await stored(other) == ["a"]

    asyncio.run(main())


@row("a value that cannot be stored")
@BOTH
def test_a_value_that_cannot_be_stored(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Stored as plainly as need be, and told, here; there the argument is gone without a word (B09)."""
    odd = Content.from_function_call("c", "f", arguments={"when": timedelta(1), "n": 1})

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            for one in (provider, other):
                await one.save_messages("s", [Message("assistant", [odd])])
            (message,) = await provider.get_messages("s")
            assert message.contents[0].arguments == {"when": "1 day, 0:00:00", "n": 1}
            assert len(logged(caplog)) == 1
            (message,) = await other.get_messages("s")
            assert message.contents[0].arguments == {"n": 1}
            assert len(caplog.records) == 1

    asyncio.run(main())


@row("a save that fails")
def test_a_save_that_fails() -> None:
    """`SaveError` with the model's answer here, or a line in the log; there the driver's error alone (B49)."""

    class Failing(MemoryBackend):
        async def append(self, key: Any, append: Any) -> Any:
            raise UnavailableError("the disk is gone")

    async def main() -> None:
        with pytest.raises(SaveError) as caught:
            await agent(StoreHistoryProvider(HistoryStore(Failing())), "precious").run("hi", session=session())
        assert caught.value.response.text == "precious"  # type: ignore[attr-defined]
        provider = class_of("redis")(redis_url="redis://127.0.0.1:1", application_id="a", load_messages=False)
        one = agent(provider, "precious")
        one.client.STORES_BY_DEFAULT = True
        redis = import_module("redis")
        with pytest.raises(redis.ConnectionError) as lost:
            await one.run("hi", session=session())
        assert not hasattr(lost.value, "response")
        await provider.aclose()

    asyncio.run(main())


@row("two providers that load")
@BOTH
def test_two_providers_that_load(kind: str, tmp_path: Path) -> None:
    """Refused here, by name; there the model sees everything twice (FEATURES 6)."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            second = InMemoryHistoryProvider("second")
            with pytest.raises(ConfigurationError, match=r"'second'"):
                await agent([second, provider]).run("hi", session=session())
            one, chat = agent([second, other]), session()
            for text in ("a", "b"):
                await one.run(text, session=chat)
            assert one.client.seen[-1] == ["a", "done", "a", "done", "b"]

    asyncio.run(main())


@row("a history that the service keeps")
@BOTH
def test_a_history_that_the_service_keeps(kind: str, tmp_path: Path) -> None:
    """Left to the service here; there it is loaded and stored beside (FEATURES 23, B139)."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            for one in (provider, other):
                chat = AgentSession(session_id="s", service_session_id="conversation")
                await agent(one).run("hi", session=chat)
            assert await stored(provider) == []
            assert await stored(other) == ["hi", "done"]

    asyncio.run(main())


@row("an audit beside it")
@BOTH
def test_an_audit_beside_it(kind: str, tmp_path: Path) -> None:
    """Here it holds each message once; there it misses the repeats, as the history does (FEATURES 35, B78)."""
    flags = {"load_messages": False, "store_context_messages": True}

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path, source_id="other", **flags) as their_audit:
            audit = StoreHistoryProvider(provider.store, "audit", **flags)  # type: ignore[arg-type]
            one, chat = agent([provider, audit, their_audit]), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await stored(audit) == ["yes", "done"] * 3
            assert len(await stored(their_audit)) < 6

    asyncio.run(main())


@row("marks of compaction")
def test_marks_of_compaction() -> None:
    """Obeyed here where a summary is stored, all with `skip_excluded`; by files too, by the others not (B67)."""
    assert "skip_excluded" in parameters("file")
    assert "skip_excluded" not in parameters("redis")
    assert StoreHistoryProvider("memory://", skip_excluded=True).skip_excluded


@row("no session id")
def test_no_session_id(tmp_path: Path) -> None:
    """An error here and with Redis; the file provider puts all such callers into one history (G)."""

    async def main() -> None:
        async with opened() as provider, theirs("file", tmp_path) as file, theirs("redis", tmp_path) as redis:
            for one in (provider, redis):
                with pytest.raises(ValueError, match=r"session"):
                    await one.save_messages(None, [Message("user", ["hi"])])
            await file.save_messages(None, [Message("user", ["hi"])])
            assert [show(message) for message in await file.get_messages("default")] == ["hi"]

    asyncio.run(main())


@row("tenants")
def test_tenants() -> None:
    """A namespace in every key here; key segments on Redis; a folder for files; nothing on Cosmos (B83, trap 9)."""

    async def main() -> None:
        async with open_store("memory://", namespace="a") as one, open_store("memory://", namespace="b") as two:
            for store in (one, two):
                await StoreHistoryProvider(store).save_messages("s", [Message("user", [store.namespace])])
            assert await stored(StoreHistoryProvider(one)) == ["a"]

    asyncio.run(main())
    assert {"tenant_id", "application_id"} <= parameters("redis")
    assert not {"tenant_id", "namespace"} & parameters("file")


@row("expiry")
@pytest.mark.parametrize("kind", ["file", "redis", "cosmos"])
def test_expiry(kind: str) -> None:
    """A `ttl` of the store here, also for what runs without a session leave behind; there is none there (trap 5)."""

    async def main() -> None:
        async with open_store("memory://", ttl=timedelta(hours=1)) as store:
            provider = StoreHistoryProvider(store)
            await agent(provider).run("hi")  # no session: the framework makes one that nobody knows
            (name,) = await provider.list_sessions()
            info = await provider.history(name).info()
            assert info is not None
            assert info.expires_at is not None

    asyncio.run(main())
    assert not any("ttl" in name or "expir" in name for name in parameters(kind))


@row("`clear`")
@BOTH
def test_clear(kind: str, tmp_path: Path) -> None:
    """Here and with Redis, not with files."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            for one in (provider, other):
                await one.save_messages("s", [Message("user", ["hi"])])
            assert await provider.clear("s") == 1
            assert await stored(provider) == []
            assert hasattr(other, "clear") == (kind == "redis")
            if kind == "redis":
                await other.clear("s")
                assert await stored(other) == []

    asyncio.run(main())


@row("`list_sessions`")
@BOTH
def test_list_sessions(kind: str, tmp_path: Path) -> None:
    """Here and on Cosmos; not with files and Redis."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            await provider.save_messages("s", [Message("user", ["hi"])])
            assert await provider.list_sessions() == ["s"]
            assert not hasattr(other, "list_sessions")

    asyncio.run(main())


@row("tools, per call of the model")
@BOTH
def test_tools_per_call_of_the_model(kind: str, tmp_path: Path) -> None:
    """`require_per_service_call_history_persistence`: the same messages everywhere (FEATURES 25)."""

    async def main() -> None:
        async with opened() as provider, theirs(kind, tmp_path) as other:
            for one in (provider, other):
                script = agent(one, call(), "3", tools=[add], require_per_service_call_history_persistence=True)
                await script.run("1+2?", session=session())
                assert await stored(one) == ["1+2?", "add()", "=3", "3"]

    asyncio.run(main())
