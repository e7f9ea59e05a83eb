"""What the tests of copies share: a store of each kind, empty and apart from all others, and what sessions hold."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import azblob_scene
import postgres_server
import redis
import redis_server

from agentstore import Content, HistoryStore, Message, SessionKey, open_store
from agentstore.backend import Append, Catalog, Record, Snapshots, StoredRecord
from agentstore.testing.scenes import FAR_AHEAD, said

KINDS = ["memory", "sqlite", "postgresql", "redis", "azblob"]
ODD_FORMAT = "strange/7"
ODD_PAYLOADS = [
    *(b"\xff\0 not JSON\n", b'{"a": [1, 2.50, NaN]}', b'{"b":1,\n"a":2}', b" {}", b"null", b"1,2", b"[1],[2]"),
    *(b'{"a":1,"a":1.0}', b'"\\ud800"', b'"\xff"', b"[1e999]", b"[1e2, 10000000000000000000000000]", b'"\xc2\x85"'),
]


def play(work: Coroutine[Any, Any, None]) -> None:
    """A scene that ends or has hung."""
    asyncio.run(asyncio.wait_for(work, 120))


@asynccontextmanager
async def opened(kind: str, folder: Path, **options: Any) -> AsyncGenerator[HistoryStore]:
    """A store of that kind that nobody else sees; what it made is gone afterwards."""
    async with counted(kind, folder, **options) as (store, _):
        yield store


@asynccontextmanager
async def counted(kind: str, folder: Path, **options: Any) -> AsyncGenerator[tuple[HistoryStore, Callable[[], int]]]:
    """Such a store, and how many rows, keys, blobs or objects it is made of."""
    with _place(kind, folder) as place:
        if kind == "azblob":
            async with azblob_scene.opened(place.container_name, **options) as store:
                yield store, lambda: len(azblob_scene.blobs(place))
        else:
            async with open_store(place, **options) as store:
                yield store, lambda: _count(kind, place, store)


def _count(kind: str, url: str, store: HistoryStore) -> int:
    server, _, name = url.rpartition("=")
    if kind == "memory":
        with store._gate.backend._sessions() as sessions:  # type: ignore[attr-defined]
            return len(sessions)
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            tables = file.execute("select name from sqlite_master where type = 'table'").fetchall()
            return sum([file.execute(f"select count(*) from {table}").fetchone()[0] for (table,) in tables])
    if kind == "redis":
        with redis.Redis.from_url(server[: server.rindex("prefix") - 1]) as client:
            return len(list(client.scan_iter(f"{name}:*")))

    async def rows(connection: asyncpg.Connection) -> int:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = $1", name)
        return sum([await connection.fetchval(f'select count(*) from "{name}".{table}') for (table,) in tables])

    return postgres_server.query(rows, server[: server.rindex("schema") - 1])


@contextmanager
def _place(kind: str, folder: Path) -> Any:
    name = f"transfer-{uuid4().hex}"
    if kind == "memory":
        yield "memory://"
    elif kind == "sqlite":
        yield f"sqlite:///{folder}/{name}.db"
    elif kind == "azblob":
        with azblob_scene.new_container() as container:
            yield container
    else:
        server = postgres_server.server_url() if kind == "postgresql" else redis_server.server_url()
        option = "schema" if kind == "postgresql" else "prefix"
        try:
            yield f"{server}{'&' if '?' in server else '?'}{option}={name}"
        finally:
            if kind == "postgresql":
                postgres_server.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE', url=server)
            else:
                redis_server.unlink(server, f"{name}:")


class Held(NamedTuple):
    """All of a session that a copy keeps."""

    records: list[StoredRecord]
    metadata: bytes | None
    snapshot: tuple[str, bytes] | None
    expires_at: int | None


async def held(store: HistoryStore) -> dict[SessionKey, Held]:
    """All sessions of the store's namespace, below the codecs."""
    backend = store._gate.backend
    assert isinstance(backend, Catalog)
    assert isinstance(backend, Snapshots)
    if not await store._gate.readable():
        return {}
    found: dict[SessionKey, Held] = {}
    for info in await backend.list(store.namespace, source_id=None, limit=1000, start=None):
        snapshot = await backend.load_snapshot(info.key)
        kept = (snapshot.format, snapshot.payload) if snapshot else None
        found[info.key] = Held(await backend.read(info.key), info.metadata, kept, info.expires_at)
    return found


async def fill(store: HistoryStore) -> None:
    """Sessions that hold what is hard to keep, with gaps in their seqs."""
    chat = store.session("a/b\0 \U0001f600")
    odd = Message("user", ["\0\ud83d", Content("thing", value=(float("nan"), float("-inf"), b"\xff\0", 2**70, None))])
    state = {"at": "\0\udc00", "n": float("nan")}
    await chat.append([odd, *said("\0", "two\r\nlines\u2028", "", "gone")], snapshot=state)
    await chat.annotate({"title": "\0\ud800", "x": {"b": 1, "a": [float("inf")]}})
    await chat.pop()
    await chat.append(said("after the gap", *["again"] * 3))
    await chat.truncate(before=2)
    await chat.expire(FAR_AHEAD)
    await strange(store, "opaque", *ODD_PAYLOADS)
    await strange(store, "deep", b"[" * 5000 + b"]" * 5000)
    await store.session("beside", source_id="other").annotate({"only": "metadata"})
    await store.session("snapshot only").save_snapshot({"v": 1})
    await store.session("archived", source_id="history~archive").append(said("x"))


async def strange(store: HistoryStore, session: str, *payloads: bytes) -> None:
    """A session whose payloads are not ours."""
    records = tuple([Record(bytes([i] * 16), bytes(16), ODD_FORMAT, payload) for i, payload in enumerate(payloads)])
    await store._gate.writable()
    await store._gate.backend.append(store.session(session).key, Append(records, uuid4().bytes))
