"""What a store can be told when it is made, and what it says once it is closed."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from agentstore import (
    AgentSession,
    ClosedError,
    ConfigurationError,
    ConflictError,
    CorruptRecordError,
    HistoryStore,
    Message,
    SessionHistory,
    open_store,
)
from agentstore.shapes import to_datetime, to_microseconds, ttl_microseconds


@pytest.mark.parametrize(
    ("ttl", "error"),
    [
        (True, TypeError),
        (False, TypeError),
        ("60", TypeError),
        (b"60", TypeError),
        ([60], TypeError),
        (datetime(2024, 1, 1), TypeError),
        (complex(60), TypeError),
        (0, ValueError),
        (0.0, ValueError),
        (-0.0, ValueError),
        (-1, ValueError),
        (-1e-9, ValueError),
        (1e-9, ValueError),
        (timedelta(0), ValueError),
        (timedelta(seconds=-1), ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (float("-inf"), ValueError),
        (1e300, ValueError),
        (10**400, ValueError),
        (1e13, ValueError),
        (timedelta.max, ValueError),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:20]),
)
def test_a_ttl_that_cannot_work_is_refused_when_the_store_is_made(ttl: Any, error: type[Exception]) -> None:
    """No bool, no text, nothing that is not above zero, finite, and small enough for a date."""
    with pytest.raises(error, match="ttl must be"):
        open_store("memory://", ttl=ttl)


@pytest.mark.parametrize(
    ("ttl", "microseconds"),
    [
        (None, None),
        (1, 1_000_000),
        (0.5, 500_000),
        (1e-6, 1),
        (timedelta(microseconds=1), 1),
        (timedelta(days=1, seconds=1), 86_401_000_000),
        (100 * 365 * 86_400, 100 * 365 * 86_400 * 1_000_000),
    ],
)
def test_a_ttl_is_seconds_or_a_timedelta(ttl: Any, microseconds: int | None) -> None:
    """Whole days count too."""
    assert ttl_microseconds(ttl) == microseconds


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/chat.db"])
@pytest.mark.parametrize("ttl", [1e-6, 60, 100 * 365 * 86_400, 999 * 365 * 86_400], ids=str)
def test_every_ttl_that_is_taken_works(url: str, ttl: float, tmp_path: Any) -> None:
    """An append, and reading what was promised, raise nothing; the expiry is now plus ttl."""

    async def scene() -> None:
        async with open_store(url.format(tmp_path), ttl=ttl) as store:
            chat = store.session("s")
            before = datetime.now(timezone.utc)
            await chat.append([Message("user", ["a"])])
            info = await chat.info()
            assert (info is None) == (ttl == 1e-6)
            if info is not None:
                assert info.expires_at is not None
                assert abs(info.expires_at - before - timedelta(seconds=ttl)) < timedelta(minutes=1)
            await store.sessions()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 1, 1, tzinfo=timezone.utc),
        datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc),
        datetime.max.replace(tzinfo=timezone.utc),
        datetime.min.replace(tzinfo=timezone.utc),
    ],
    ids=str,
)
def test_times_are_exact_microseconds(moment: datetime) -> None:
    """Whatever the zone, before 1970 too."""
    assert to_datetime(to_microseconds(moment)) == moment
    assert to_datetime(to_microseconds(moment)).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        (datetime(2024, 1, 1), ValueError),
        (60, TypeError),
        ("2024-01-01", TypeError),
        (timedelta(1), TypeError),
        (datetime(2024, 1, 1).date(), TypeError),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), ValueError),
    ],
    ids=str,
)
def test_an_expiry_that_cannot_be_kept_is_refused(moment: Any, error: type[Exception]) -> None:
    """A naive time means another moment to every reader; one after the year 9999 could not be shown."""

    async def scene() -> None:
        async with open_store("memory://") as store:
            with pytest.raises(error, match="time"):
                await store.session("s").expire(moment)

    asyncio.run(scene())


@pytest.mark.parametrize("value", ["", "ignore", "RAISE", None, True, 1])
def test_on_corrupt_is_raise_or_skip(value: Any) -> None:
    """A misspelt policy is not the default one."""
    with pytest.raises(ValueError, match=r"on_corrupt must be 'raise' or 'skip'"):
        open_store("memory://", on_corrupt=value)


@pytest.mark.parametrize(
    "option",
    ["timeout=nan", "timeout=-1", "timeout=inf", "max_message_bytes=0", "max_append_bytes=-1", "timeout=1e999"],
)
def test_a_backend_option_out_of_range_is_refused_by_name(option: str) -> None:
    """When the store is made; a limit of nothing, or a time to wait that never ends, is a mistake."""
    with pytest.raises(ConfigurationError, match=option.partition("=")[0]):
        open_store(f"sqlite:///chat.db?{option}")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/chat.db"])
def test_numbers_of_any_size_are_seqs_or_value_errors(url: str, tmp_path: Any) -> None:
    """A driver's own limit on integers never shows."""
    huge = 2**70

    async def scene() -> None:
        async with open_store(url.format(tmp_path)) as store:
            chat = store.session("s")
            await chat.append([Message("user", ["a"])])
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: chat.messages(limit=huge),
                lambda: chat.messages(before=huge),
                lambda: chat.truncate(after=huge),
                lambda: chat.append([Message("user")], expected_last=huge),
                lambda: chat.replace([Message("user")], after=huge),
                lambda: chat.fork("t", at=huge),
                lambda: store.sessions(limit=huge),
                lambda: store.sessions(cursor=urlsafe_b64encode(b'[1180591620717411303424,"a","b"]').decode()),
            ]
            for call in calls:
                with suppress(ValueError, ConflictError):
                    await call()
            assert (await chat.messages(limit=2))[0].text == "a"

    asyncio.run(scene())


class BrokenCodec:
    """Writes records that nobody can read, in the core's own format."""

    format = "agentstore/1"

    def encode(self, obj: str, /) -> tuple[str, str, bytes]:
        return obj, obj, b'{"v":1,"broken'

    def decode(self, payload: bytes, /) -> str:
        raise ValueError("broken")

    def assign_id(self, obj: str, message_id: str, /) -> bool:
        return False


async def with_broken_middle(store: HistoryStore) -> SessionHistory:
    chat = store.session("s")
    await chat.append([Message("user", ["a"])])
    await store.session("s", codec=BrokenCodec()).append(["b"])
    await chat.append([Message("user", ["c"])])
    return chat


def test_a_record_that_cannot_be_read_raises() -> None:
    """With the session and the seq in the text; what can be read alone still is."""

    async def scene() -> None:
        async with open_store("memory://") as store:
            chat = await with_broken_middle(store)
            with pytest.raises(CorruptRecordError, match=r"record 2 of session default/history/s "):
                await chat.messages()
            assert [message.text for message in await chat.messages(limit=1)] == ["c"]

    asyncio.run(scene())


def test_a_store_that_skips_returns_the_readable_rest(caplog: pytest.LogCaptureFixture) -> None:
    """The limit counts readable records, and a warning names what was left out."""

    async def scene() -> None:
        async with open_store("memory://", on_corrupt="skip") as store:
            chat = await with_broken_middle(store)
            assert [message.text for message in await chat.messages()] == ["a", "c"]
            assert [message.text for message in await chat.messages(limit=2)] == ["a", "c"]
            assert [stored.seq async for stored in chat.iterate(page_size=1)] == [1, 3]

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert {record.name for record in caplog.records} == {"agentstore"}
    assert "record 2 of session default/history/s" in caplog.text


@pytest.mark.parametrize(
    ("namespace", "error"),
    [(None, TypeError), (5, TypeError), ("", ValueError), ("\ud800", ValueError), ("x" * 1025, ValueError)],
    ids=lambda value: ascii(value)[:20],
)
def test_a_namespace_that_cannot_be_kept_is_refused_when_the_store_is_made(
    namespace: Any, error: type[Exception]
) -> None:
    """Not at the first write, and never replaced by a shared one (B84)."""
    with pytest.raises(error, match="namespace"):
        open_store("memory://", namespace=namespace)


def test_sessions_live_in_the_stores_namespace_unless_another_is_named() -> None:
    """The default has a name, and the key says where a session is."""
    store = open_store("memory://", namespace="acme")
    assert open_store("memory://").namespace == "default"
    assert str(store.session("s").key) == "acme/history/s"
    assert str(store.session("s", namespace="other", source_id="audit").key) == "other/audit/s"


@pytest.mark.parametrize("part", ["session_id", "source_id", "namespace"])
@pytest.mark.parametrize(
    ("value", "error"), [("", ValueError), (5, TypeError), ("\ud800", ValueError), (b"a", TypeError)]
)
def test_bad_ids_raise_where_the_session_is_named(part: str, value: Any, error: type[Exception]) -> None:
    """Before any I/O, and naming the part (B84, B92)."""
    given: dict[str, Any] = {"session_id": "s", part: value}
    with pytest.raises(error, match=part):
        open_store("memory://").session(**given)


def test_a_store_is_made_outside_a_loop_and_works_in_several(tmp_path: Any) -> None:
    """Making one does no I/O: agents are built at import time (B119)."""
    store = open_store(f"sqlite:///{tmp_path}/chat.db")
    assert not list(tmp_path.iterdir())

    async def add(text: str) -> int:
        await store.session("s").append([Message("user", [text])])
        return len(await store.session("s").messages())

    assert [asyncio.run(add(text)) for text in "abc"] == [1, 2, 3]
    asyncio.run(store.aclose())


async def _iterated(chat: SessionHistory) -> None:
    async for _ in chat.iterate():
        pass


async def _session(store: HistoryStore) -> None:
    store.session("new")


SESSION = AgentSession(session_id="s")
STORE_CALLS: dict[str, Callable[[HistoryStore], Awaitable[Any]]] = {
    "open": lambda store: store.open(),
    "async with": lambda store: store.__aenter__(),
    "setup": lambda store: store.setup(),
    "ping": lambda store: store.ping(),
    "session": _session,
    "sessions": lambda store: store.sessions(),
    "delete_namespace": lambda store: store.delete_namespace("default"),
    "purge_expired": lambda store: store.purge_expired(),
}
CHAT_CALLS: dict[str, Callable[[SessionHistory], Awaitable[Any]]] = {
    "append": lambda chat: chat.append([Message("user")]),
    "append nothing": lambda chat: chat.append([]),
    "messages": lambda chat: chat.messages(),
    "no messages": lambda chat: chat.messages(limit=0),
    "records": lambda chat: chat.records(),
    "iterate": _iterated,
    "pop": lambda chat: chat.pop(),
    "truncate": lambda chat: chat.truncate(after=0),
    "replace": lambda chat: chat.replace([]),
    "update": lambda chat: chat.update(Message("user", message_id="m")),
    "clear": lambda chat: chat.clear(),
    "delete": lambda chat: chat.delete(),
    "info": lambda chat: chat.info(),
    "annotate": lambda chat: chat.annotate({"a": 1}),
    "annotate nothing": lambda chat: chat.annotate({}),
    "expire": lambda chat: chat.expire(None),
    "fork": lambda chat: chat.fork("t"),
    "save_snapshot": lambda chat: chat.save_snapshot(SESSION),
    "load_snapshot": lambda chat: chat.load_snapshot(),
}


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/chat.db"])
def test_after_closing_every_call_raises(url: str, used: bool, tmp_path: Any) -> None:
    """Closed is closed: nothing reconnects, an empty save does not slip through, closing again does nothing (B117)."""
    store = open_store(url.format(tmp_path))
    chat = store.session("s")

    async def scene() -> None:
        if used:
            await chat.append([Message("user")])
        await store.aclose()
        await store.aclose()
        open_still = [name for name, call in STORE_CALLS.items() if not await raises_closed(call, store)]
        open_still += [name for name, call in CHAT_CALLS.items() if not await raises_closed(call, chat)]
        assert not open_still

    asyncio.run(scene())


async def raises_closed(call: Callable[[Any], Awaitable[Any]], target: Any) -> bool:
    try:
        await call(target)
    except ClosedError:
        return True
    return False


def test_leaving_async_with_closes() -> None:
    """Also when the body raised."""

    store = open_store("memory://")

    async def scene() -> None:
        async with store as entered:
            assert entered is store
            raise KeyError("body")

    with pytest.raises(KeyError):
        asyncio.run(scene())
    with pytest.raises(ClosedError):
        asyncio.run(store.ping())


async def nothing(*_: object, **__: object) -> None:
    """The stub of every operation of `BareLog`."""


class BareLog:
    """A backend with the smallest set of abilities."""

    limits = None
    append = read = truncate = readiness = setup = ping = aclose = nothing


def test_a_ttl_needs_a_backend_that_can_expire() -> None:
    """The error names what is missing, when the store is made."""
    with pytest.raises(ConfigurationError, match="ttl needs a backend with the ability Catalog; BareLog lacks it"):
        HistoryStore(BareLog(), ttl=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["sqlite:///chat.db", None], ids=ascii)
def test_a_store_is_made_of_a_backend(backend: Any) -> None:
    """A URL in its place is refused at once, not at the first call."""
    with pytest.raises((TypeError, ConfigurationError)):
        HistoryStore(backend)


def test_an_ability_that_the_backend_lacks_is_named() -> None:
    """By method and by ability."""
    store = HistoryStore(BareLog())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="sessions needs a backend with the ability Catalog; BareLog lacks it"):
        asyncio.run(store.sessions())
