"""A pool or engine that is handed in to the PostgreSQL backend: used, left open, and bound to its loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from pgbouncer import pooler_url
from postgres_server import execute, server_url
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentstore import ConfigurationError, HistoryStore, UnavailableError
from agentstore.testing.cancellation import CancellationSentences
from agentstore.testing.concurrency import ConcurrencySentences
from agentstore.testing.log import LogSentences
from agentstore.testing.rewriting import ForkSentences, PopSentences, ReplaceSentences, UpdateSentences
from agentstore.testing.scenes import heard, said
from agentstore_postgres import PostgresBackend

PREFIX = f"b{uuid4().hex[:8]}_"
KINDS = ("pool", "engine", "engine without a pool", "pool behind a pooler", "engine behind a pooler")


class _Lent(PostgresBackend):
    """Closes what it was lent, when the scene is over."""

    lent: asyncpg.Pool | AsyncEngine

    async def aclose(self) -> None:
        await super().aclose()
        await _closed(self.lent)


async def _closed(lent: asyncpg.Pool | AsyncEngine) -> None:
    await (lent.dispose() if isinstance(lent, AsyncEngine) else lent.close())


async def _made(kind: str, url: str | None = None) -> asyncpg.Pool | AsyncEngine:
    url = url or (pooler_url() if "pooler" in kind else server_url())
    if kind.startswith("pool"):
        return await asyncpg.create_pool(
            url, min_size=0, max_size=4, statement_cache_size=0 if "pooler" in kind else 100
        )
    options: dict[str, Any] = {"poolclass": NullPool} if "without" in kind else {"pool_size": 4}
    if "pooler" in kind:
        options["connect_args"] = {"statement_cache_size": 0, "prepared_statement_name_func": lambda: f"__{uuid4()}__"}
        options["connect_args"]["prepared_statement_cache_size"] = 0
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), **options)


def _backend(lent: asyncpg.Pool | AsyncEngine, kind: type[PostgresBackend] = PostgresBackend) -> PostgresBackend:
    if isinstance(lent, AsyncEngine):
        return kind(engine=lent, prefix=PREFIX)
    return kind(pool=lent, prefix=PREFIX)


class _Borrowed(
    LogSentences,
    PopSentences,
    ReplaceSentences,
    UpdateSentences,
    ForkSentences,
    ConcurrencySentences,
    CancellationSentences,
):
    kind = "pool"

    async def open_backend(self) -> PostgresBackend:
        lent = await _made(self.kind)
        backend = _backend(lent, _Lent)
        assert isinstance(backend, _Lent)
        backend.lent = lent
        return backend


class TestOnAPool(_Borrowed):
    """The sentences about writes hold on an asyncpg pool."""


class TestOnAnEngine(_Borrowed):
    """... and on a SQLAlchemy engine."""

    kind = "engine"


@asynccontextmanager
async def lent(kind: str, url: str | None = None) -> AsyncGenerator[asyncpg.Pool | AsyncEngine]:
    made = await _made(kind, url)
    try:
        yield made
    finally:
        await _closed(made)


async def _works(made: asyncpg.Pool | AsyncEngine) -> None:
    """The owner can still use it, and all of it."""
    if isinstance(made, AsyncEngine):
        async with made.connect() as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    else:
        async with made.acquire() as connection, connection.transaction():
            assert await connection.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_in_is_used_and_left_open(kind: str) -> None:
    """Bring your own: it is used, directly or behind a pooler, and left open."""

    async def main() -> None:
        async with lent(kind) as made:
            for number in range(2):
                async with HistoryStore(_backend(made)) as store:
                    chat = store.session(f"{kind} {PREFIX}")
                    await asyncio.gather(*[chat.append(said(str(number))) for _ in range(8)])
                    assert len(await chat.messages()) == 8 * (number + 1)
                await _works(made)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_it_belongs_to_the_loop_of_its_first_use(kind: str) -> None:
    """Another loop gets `ConfigurationError`, a forked child too; the first goes on."""
    loop = asyncio.new_event_loop()
    made = loop.run_until_complete(_made(kind))
    store = HistoryStore(_backend(made))
    chat = store.session(uuid4().hex)
    loop.run_until_complete(chat.append(said("a")))
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(_read(store))
    assert _in_child(lambda: asyncio.run(_read(store))) == "ConfigurationError"
    assert loop.run_until_complete(heard(chat)) == ["a"]
    loop.run_until_complete(store.aclose())
    loop.run_until_complete(_closed(made))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _read(store: HistoryStore) -> None:
    await store.session("s").messages()


def _in_child(work: Any) -> str:
    """The name of the error that a forked child got."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        name = answer.read().decode()
    os.waitpid(child, 0)
    return name


def test_a_pool_that_its_owner_closed_is_named() -> None:
    """A closed pool cannot work: `ConfigurationError`."""

    async def main() -> None:
        async with lent("pool") as made:
            store = HistoryStore(_backend(made))
            await store.session("s").messages()
        with pytest.raises(ConfigurationError, match="closed"):
            await store.session("s").messages()

    asyncio.run(main())


def test_an_unreachable_engine_is_unavailable() -> None:
    """What SQLAlchemy wraps is an error of ours."""

    async def main() -> None:
        async with lent("engine", "postgresql://app:s3cret@127.0.0.1:1/chat") as made:
            with pytest.raises(UnavailableError) as caught:
                await _backend(made).ping()
            assert "s3cret" not in str(caught.value)

    asyncio.run(main())


def test_terminated_connections_of_an_engine_are_replaced() -> None:
    """An engine with `pool_pre_ping` heals."""

    async def main() -> None:
        name = f"heals-{uuid4().hex}"
        url = server_url().replace("postgresql://", "postgresql+asyncpg://")
        settings = {"server_settings": {"application_name": name}}
        engine = create_async_engine(url, pool_pre_ping=True, connect_args=settings)
        async with HistoryStore(_backend(engine)) as store:
            chat = store.session(uuid4().hex)
            for number in range(3):
                await chat.append(said(str(number)))
                execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'")
            assert await heard(chat) == ["0", "1", "2"]
        await engine.dispose()

    asyncio.run(main())


def test_only_an_engine_on_asyncpg_will_do() -> None:
    """Another driver is refused at once."""
    engine: Any = SimpleNamespace(dialect=SimpleNamespace(driver="psycopg"))
    with pytest.raises(ConfigurationError, match="asyncpg"):
        PostgresBackend(engine=engine)


@pytest.mark.parametrize("options", [{}, {"url": "postgresql://db/x", "pool": object()}])
def test_one_way_to_reach_the_server_is_given(options: Any) -> None:
    """A URL, an engine or a pool."""
    with pytest.raises(ConfigurationError, match="one of them"):
        PostgresBackend(**options)


def test_options_of_a_pool_of_ours_are_refused_for_another() -> None:
    """`pool_size` means nothing for a pool that was handed in; the known options are named."""
    pool: Any = object()
    with pytest.raises(ConfigurationError, match="known: schema, prefix"):
        PostgresBackend(pool=pool, pool_size=3)
