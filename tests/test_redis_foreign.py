"""What others wrote under the backend's names: a clear error, nothing of it overwritten, and no driver's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from redis_scenes import run
from redis_server import LocalServer, local_server, unlink

from agentstore import ConfigurationError, CorruptRecordError, HistoryStore, SessionHistory, open_store
from agentstore.keys import SessionKey
from agentstore.testing.scenes import named, said
from agentstore_redis_names import Names

Call = Callable[[HistoryStore, SessionHistory], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "messages": lambda store, chat: chat.messages(),
    "newest": lambda store, chat: chat.messages(limit=1),
    "before": lambda store, chat: chat.records(before=5),
    "snapshot": lambda store, chat: chat.load_snapshot(),
    "append": lambda store, chat: chat.append(said("new")),
    "append again": lambda store, chat: chat.append([named("first", "first")]),
    "info": lambda store, chat: chat.info(),
    "sessions": lambda store, chat: store.sessions(),
    "purge": lambda store, chat: store.purge_expired(),
    "truncate": lambda store, chat: chat.truncate(before=1),
    "pop": lambda store, chat: chat.pop(),
}
FOREIGN: dict[str, tuple[str, ...]] = {
    "a string for the session": ("s", "SET", "x"),
    "a string for the messages": ("m", "SET", "x"),
    "a set for the ids": ("i", "ZADD", "1", "x"),
    "other counters": ("+s", "HSET", "n", "abc"),
    "no incarnation": ("s", "HSET", "inc", "x"),
    "a short element": ("+m", "RPUSH", "x"),
    "an element like a record": ("+m", "RPUSH", "\0" * 7 + "\x09" + "\0" * 40 + "\x02\udcff\udcfex"),
    "a snapshot": ("+s", "HSET", "sf", "\udcff", "sp", "x"),
    "an entry in the index": ("+x", "ZADD", "-5", "abc"),
    "an entry that is no text": ("+x", "ZADD", "-5", "\udcff\0a\0" + "i" * 16),
    "a string for the index": ("x", "SET", "x"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_data_is_a_clear_error(what: str) -> None:
    """Each call works or raises `ConfigurationError` or `CorruptRecordError`, and what is foreign stays."""
    server, prefix = local_server(), f"foreign-{uuid4().hex}"
    place, command, *words = FOREIGN[what]

    async def main() -> None:
        async with open_store(server.url, prefix=prefix) as store:
            chat = store.session("s")
            await chat.append([named("first", "first")])
            name = _name(Names(prefix), chat.key, place[-1])
            if not place.startswith("+"):
                server.command("DEL", name)
            server.command(command, name, *words)
            for call in CALLS.values():
                with suppress(ConfigurationError, CorruptRecordError):
                    await call(store, chat)
            assert words[-1] in "".join(_content(server, name))

    run(main())
    unlink(server.url, prefix)


def _name(names: Names, key: SessionKey, place: str) -> str:
    if place == "x":
        return names.index(key).decode()
    return next(name.decode() for name in names.session(key) if name.endswith(place.encode()))


def _content(server: LocalServer, name: str) -> Any:
    """All that is under the name."""
    whole: dict[str, tuple[str, ...]] = {
        "string": ("GET", name),
        "hash": ("HGETALL", name),
        "list": ("LRANGE", name, "0", "-1"),
        "zset": ("ZRANGE", name, "0", "-1"),
    }
    return server.command(*whole[server.command("TYPE", name)])
