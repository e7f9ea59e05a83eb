"""The framework's session store on every backend: state types, versions, expiry, and what cannot be read."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import agent_framework
import pytest
from adapter_stores import STORES
from agent_framework import AgentSession, Message, register_state_type
from agent_framework_scene import agent

import agentstore
from agentstore import ConflictError, CorruptRecordError, UnsupportedValueError, open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore.messages import same

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the framework's: its session store is experimental
    from agentstore.adapters.agent_framework import StoreSessionStore

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@dataclass
class Cart:
    """A state type with a codec of its own."""

    items: list[str] = field(default_factory=list)


def cart_of(data: Mapping[str, Any]) -> Cart:
    if data["items"] == ["cursed"]:
        raise KeyError("no such item")
    return Cart(list(data["items"]))


register_state_type(Cart, type_id="agentstore.tests.cart", encoder=lambda cart: {"items": cart.items}, decoder=cart_of)


@asynccontextmanager
async def opened(url: str = "memory://", **options: Any) -> AsyncIterator[StoreSessionStore]:
    ttl = options.pop("ttl", None)
    async with open_store(url, namespace=uuid4().hex, ttl=ttl) as store:
        yield StoreSessionStore(store, **options)


def session(session_id: str = "s", **state: Any) -> AgentSession:
    made = AgentSession(session_id=session_id)
    made.state.update(state)
    return made


def snapshots(sessions: StoreSessionStore, session_id: str = "k") -> Any:
    """The session's place in the store, for looking at it from outside."""
    return sessions.store.session(session_id, source_id=sessions.source_id)


@pytest.mark.parametrize("url", STORES)
def test_a_session_comes_back_as_another_object(url: str, tmp_path: Path) -> None:
    """Ids, state and registered types; what is changed afterwards, on either side, is nobody else's."""

    async def main() -> None:
        async with opened(STORES[url](tmp_path)) as sessions:
            assert await sessions.get("k") is None
            given = session(cart=Cart(["tea"]), said=[Message("user", ["hi"])], deep={"a": [1, None, True]})
            given.service_session_id = {"thread": "t1"}
            await sessions.set("k", given)
            given.state["cart"].items.append("coffee")
            one, two = await sessions.get("k"), await sessions.get("k")
            assert one is not None
            assert two is not None
            one.state["cart"].items.append("cake")
            assert (two.session_id, two.service_session_id) == ("s", {"thread": "t1"})
            assert two.state["cart"] == Cart(["tea"])
            assert [message.text for message in two.state["said"]] == ["hi"]
            assert two.state["deep"] == {"a": [1, None, True]}
            await sessions.delete("k")
            await sessions.delete("k")
            assert await sessions.get("k") is None

    asyncio.run(main())


@pytest.mark.parametrize("url", STORES)
def test_two_continuations_of_one_session_cannot_overwrite_each_other(url: str, tmp_path: Path) -> None:
    """With `compare_and_set` the second `set` is refused and changes nothing; the first may go on (trap 10, C)."""

    async def main() -> None:
        async with opened(STORES[url](tmp_path), compare_and_set=True) as sessions:
            await sessions.set("k", session(turn=0))
            one, two = await sessions.get("k"), await sessions.get("k")
            assert one is not None
            assert two is not None
            for turn in (1, 2):
                one.state["turn"] = turn
                await sessions.set("k", one)
            with pytest.raises(ConflictError, match=r"version"):
                await sessions.set("k", two)
            with pytest.raises(ConflictError, match=r"version"):
                await sessions.set("k", session(turn=9))
            left = await sessions.get("k")
            assert left is not None
            assert left.state == {"turn": 2}
            await sessions.delete("k")
            with pytest.raises(ConflictError):
                await sessions.set("k", one)
            await sessions.set("k", session())

    asyncio.run(main())


@pytest.mark.parametrize("compare_and_set", [False, True])
def test_a_host_goes_on_with_a_copy_of_what_it_stored(compare_and_set: bool) -> None:
    """As the framework's hosting does: store a new session, work on a deep copy, store that; and the next request."""

    async def main() -> None:
        async with opened(compare_and_set=compare_and_set) as sessions, open_store("memory://") as store:
            one = agent(StoreHistoryProvider(store))
            for text in ("a", "b"):
                chat = await sessions.get("k")
                if chat is None:
                    made = one.create_session(session_id="k")
                    await sessions.set("k", made)
                    chat = copy.deepcopy(made)
                await one.run(text, session=chat)
                await sessions.set("k", chat)
            assert one.client.seen[-1] == ["a", "done", "b"]
            assert set(chat.to_dict()) == {"type", "session_id", "service_session_id", "state"}

    asyncio.run(main())


def test_of_many_writers_at_once_one_wins(tmp_path: Path) -> None:
    """Twenty that loaded the same session: one is stored, the others know it (C)."""

    async def main() -> None:
        async with opened(f"sqlite:///{tmp_path}/chat.db", compare_and_set=True) as sessions:
            await sessions.set("k", session())
            loaded = [await sessions.get("k") for _ in range(20)]
            done = await asyncio.gather(*(sessions.set("k", one) for one in loaded if one), return_exceptions=True)
            assert sorted(type(result).__name__ for result in done) == ["ConflictError"] * 19 + ["NoneType"]

    asyncio.run(main())


def test_without_compare_and_set_the_last_writer_wins() -> None:
    """As the framework's own stores have it."""

    async def main() -> None:
        async with opened() as sessions:
            await sessions.set("k", session(turn=1))
            await sessions.set("k", session(turn=2))
            found = await sessions.get("k")
            assert found is not None
            assert found.state == {"turn": 2}

    asyncio.run(main())


@pytest.mark.parametrize("url", STORES)
def test_a_session_expires_with_the_stores_ttl_after_its_last_set(url: str, tmp_path: Path) -> None:
    """Each `set` begins the time anew, in the same step as the write."""

    async def main() -> None:
        async with opened(STORES[url](tmp_path), ttl=timedelta(hours=1)) as sessions:
            await sessions.set("k", session())
            first = await snapshots(sessions).info()
            await asyncio.sleep(0.05)
            await sessions.set("k", session())
            second = await snapshots(sessions).info()
            assert first.expires_at + timedelta(milliseconds=40) < second.expires_at
            await snapshots(sessions).expire(datetime.now(timezone.utc) - timedelta(seconds=1))
            assert await sessions.get("k") is None

    asyncio.run(main())


def test_tenants_and_sources_never_meet() -> None:
    """Namespace and source are part of every key; a session's messages are not its snapshot (B83, trap 9)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            stores = [StoreSessionStore(store, namespace=name, source_id=source) for name in "ab" for source in "xy"]
            for number, sessions in enumerate(stores):
                await sessions.set("k", session(number=number))
            found = [await sessions.get("k") for sessions in stores]
            assert [one.state["number"] for one in found if one] == [0, 1, 2, 3]
            history = StoreHistoryProvider(store)
            await history.save_messages("k", [Message("user", ["hi"])])
            await StoreSessionStore(store).set("k", session())
            await StoreSessionStore(store).delete("k")
            assert len(await history.history("k").messages()) == 1

    asyncio.run(main())


def test_the_state_keeps_what_json_would_change() -> None:
    """Bytes, times, NaN, large numbers, text with NUL or half a pair (A, trap 2); tuples become lists as everywhere."""
    odd = {
        "bytes": b"\xff\x00",
        "time": datetime(2024, 10, 27, 12, tzinfo=timezone.utc),
        "nan": [float("nan"), float("inf")],
        "large": 2**70,
        "nul": "a\x00b",
        "half": "\ud83d",
    }

    async def main() -> None:
        async with opened() as sessions:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the framework's, for bytes and times
                await sessions.set("k", session(**odd, tuple=(1, 2)))
            found = await sessions.get("k")
            assert found is not None
            assert same(found.state, {**odd, "tuple": [1, 2]})

    asyncio.run(main())


class Stranger:
    """Nobody registered it."""


class Sub(AgentSession):
    """It may hold what no session store knows of."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [Stranger(), {1, 2}, [Stranger()]], ids=["object", "set", "nested"])
def test_a_type_that_nobody_registered_is_an_error(value: Any) -> None:
    """It names the path, and what was stored before stays."""

    async def main() -> None:
        async with opened() as sessions:
            await sessions.set("k", session(turn=1))
            with pytest.raises(UnsupportedValueError, match=r"state.*thing"):
                await sessions.set("k", session(thing=value))
            found = await sessions.get("k")
            assert found is not None
            assert found.state == {"turn": 1}

    asyncio.run(main())


def test_a_subclass_of_a_session_is_an_error() -> None:
    """As in the framework's file store: its own attributes would be lost."""

    async def main() -> None:
        async with opened() as sessions:
            with pytest.raises(UnsupportedValueError, match=r"Sub"):
                await sessions.set("k", Sub(session_id="s"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "2.0"}, "upgrade"),
        ({"type": "else"}, "none of an Agent Framework session"),
        ({"state": [1]}, "'state'"),
        ({"session_id": None}, "'session_id'"),
        ({"state": {"cart": {"type": "agentstore.tests.cart", "items": ["cursed"]}}}, "cannot be restored"),
    ],
    ids=["newer", "another kind", "no state", "no id", "a refusing decoder"],
)
def test_what_cannot_be_read_is_told_and_stays(change: dict[str, Any], words: str) -> None:
    """Corrupt and newer snapshots raise our error, and nothing is moved or lost (J)."""

    async def main() -> None:
        async with opened() as sessions:
            await sessions.set("k", session())
            kept = (await snapshots(sessions).load_snapshot()).session
            await snapshots(sessions).save_snapshot({**kept, **change})
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match=words):
                    await sessions.get("k")

    asyncio.run(main())


def test_a_session_of_the_core_is_told_apart() -> None:
    """The core keeps sessions of its own kind; where one lies in the way, the error says so."""

    async def main() -> None:
        async with opened(source_id="history") as sessions:
            await snapshots(sessions).save_snapshot(agentstore.AgentSession(session_id="k"))
            with pytest.raises(CorruptRecordError, match=r"none of an Agent Framework session"):
                await sessions.get("k")

    asyncio.run(main())


@pytest.mark.parametrize("bad", ["", None, 1, "x" * 1025, "\ud800"], ids=["empty", "none", "int", "long", "half"])
def test_a_bad_id_is_a_value_error(bad: Any) -> None:
    """Before anything is asked of the store."""

    async def main() -> None:
        async with opened() as sessions:
            with pytest.raises(ValueError, match=r"session_id"):
                sessions.validate_session_id(bad)
            for work in (sessions.get(bad), sessions.set(bad, session()), sessions.delete(bad)):
                with pytest.raises(ValueError, match=r"session_id"):
                    await work

    asyncio.run(main())


def test_any_other_id_is_one_of_its_own() -> None:
    """Separators, dots, case, composed accents: no two ids meet (B85 to B87)."""
    ids = ["a/b", "a", "A", "../a", "CON", "é", "e\u0301", "a b", "a\x00b", "%2e"]

    async def main() -> None:
        async with opened() as sessions:
            for name in ids:
                await sessions.set(name, session(name=name))
            found = [await sessions.get(name) for name in ids]
            assert [one.state["name"] for one in found if one] == ids

    asyncio.run(main())


def test_a_server_goes_on_in_another_process(tmp_path: Path) -> None:
    """Session from the session store, messages from the provider: the second process remembers (B127, B140)."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def main() -> None:
        async with open_store(url) as store:
            chat = session(cart=Cart(["tea"]))
            await agent(StoreHistoryProvider(store), "hello").run("hi", session=chat)
            await StoreSessionStore(store).set("token", chat)

    asyncio.run(main())
    code = (
        "import asyncio, json, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from agentstore import open_store\n"
        "from agentstore.adapters.agent_framework import StoreHistoryProvider, StoreSessionStore\n"
        "async def main():\n"
        f"    async with open_store({url!r}) as store:\n"
        "        session = await StoreSessionStore(store).get('token')\n"
        "        messages = await StoreHistoryProvider(store).get_messages(session.session_id)\n"
        "        print(json.dumps([[message.text for message in messages], session.state['cart']]))\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cart = {"type": "agentstore.tests.cart", "items": ["tea"]}  # that process registered no such type
    assert json.loads(child.stdout) == [["hi", "hello"], cart]


def test_it_is_one_of_the_frameworks_and_closes_what_it_made(tmp_path: Path) -> None:
    """`isinstance` holds; a store that was given stays open."""

    async def main() -> None:
        async with StoreSessionStore(f"sqlite:///{tmp_path}/chat.db") as sessions:
            assert isinstance(sessions, agent_framework.SessionStore)
            await sessions.set("k", session())
        with pytest.raises(agentstore.ClosedError):
            await sessions.get("k")
        async with open_store("memory://") as store:
            async with StoreSessionStore(store):
                pass
            await StoreSessionStore(store).set("k", session())
        with pytest.raises(TypeError, match=r"store or its URL"):
            StoreSessionStore(3)  # type: ignore[arg-type]

    asyncio.run(main())


def test_the_warning_of_the_framework_comes_only_with_the_session_store() -> None:
    """Who takes the provider alone is not told of an experimental class."""
    code = (
        "from agentstore.adapters import agent_framework\n"
        "agent_framework.StoreHistoryProvider('memory://')\n"
        "try:\n"
        "    agent_framework.StoreSessionStore\n"
        "except FutureWarning as warning:\n"
        "    print('SESSION_STORE' in str(warning))\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "True"
