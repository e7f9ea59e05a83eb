"""PostgreSQL fails in its own ways: cut connections, terminated backends, restarts, locks, full pools."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import debian_server, execute, local_server, server_url
from tcp_proxy import Proxy, proxied

import agentstore_postgres
import agentstore_postgres_pool
import agentstore_postgres_rows as rows
from agentstore import (
    ClosedError,
    ConfigurationError,
    HistoryStore,
    SessionHistory,
    StorageError,
    UnavailableError,
    open_store,
)
from agentstore.backend import Append, Written
from agentstore.settle import settled
from agentstore.testing.faults import records_of
from agentstore.testing.scenes import heard, named, said
from agentstore_postgres import PostgresBackend

DOCUMENT = Path(__file__).parents[1] / "docs" / "postgres.md"


@pytest.fixture(scope="module")
def schema() -> Generator[str]:
    name = f"server-{uuid4().hex}"
    asyncio.run(_set_up(name))
    yield name
    execute(f'DROP SCHEMA "{name}" CASCADE')


async def _set_up(schema: str) -> None:
    async with HistoryStore(PostgresBackend(server_url(), schema=schema)) as store:
        await store.setup()


@asynccontextmanager
async def chatting(schema: str, url: str | None = None, **options: Any) -> AsyncGenerator[SessionHistory]:
    """A new session, whose store has used its connection once."""
    async with HistoryStore(PostgresBackend(url or server_url(), schema=schema, **options)) as store:
        chat = store.session(uuid4().hex)
        await chat.append([named("first", "first")])
        await chat.messages(limit=1)
        yield chat


@asynccontextmanager
async def proxied_chat(schema: str, **options: Any) -> AsyncGenerator[tuple[Proxy, SessionHistory]]:
    async with proxied(server_url()) as proxy, chatting(schema, proxy.url, **options) as chat:
        yield proxy, chat


@asynccontextmanager
async def locked(schema: str, chat: SessionHistory) -> AsyncGenerator[asyncpg.Connection]:
    """Somebody else holds the session's row."""
    connection = await asyncpg.connect(server_url())
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f'SELECT FROM "{schema}".agentstore_session WHERE hash = $1 FOR UPDATE', chat.key.hash)
    yield connection
    await transaction.rollback()
    await connection.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


Work = Callable[[SessionHistory], Awaitable[Any]]


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda chat: chat.append(said("a", "b", "c", "d")), 1),
        (lambda chat: chat.append(said("a"), idempotency_key="k", snapshot={"a": 1}), 1),
        (lambda chat: chat.messages(limit=20), 1),
        (lambda chat: chat.pop(), 2),
        (lambda chat: chat.info(), 1),
        (lambda chat: chat.clear(), 1),
    ],
)
def test_a_call_is_one_round_trip(schema: str, work: Work, most: int) -> None:
    """One round trip per append on a warm direct connection; pop reads, then removes."""

    async def main() -> None:
        async with proxied_chat(schema) as (proxy, chat):
            await work(chat)
            await chat.append(said("more"))
            before = proxy.round_trips
            await work(chat)
            assert proxy.round_trips - before == most

    run(main())


def test_a_session_begins_in_the_round_trip_of_its_first_turn(schema: str) -> None:
    """An append that finds no session begins it in the same statement."""

    async def main() -> None:
        async with proxied_chat(schema) as (proxy, chat):
            await chat.append(said("warm"))
            await chat.delete()
            before = proxy.round_trips
            await chat.append(said("a", "b"))
            assert proxy.round_trips - before == 1
            assert await heard(chat) == ["a", "b"]

    run(main())


def test_an_append_whose_answer_was_lost_is_made_once(schema: str, caplog: pytest.LogCaptureFixture) -> None:
    """An append whose answer was lost is retried exactly once by id (B46)."""

    async def main() -> None:
        async with proxied_chat(schema) as (proxy, chat):
            for number in range(5):
                proxy.losing = 1
                assert (await chat.append(said(f"{number}a", f"{number}b"))).written == 2
            expected = [f"{number}{part}" for number in range(5) for part in "ab"]
            assert await heard(chat) == ["first", *expected]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len([record for record in caplog.records if "lost" in record.message]) == 5


@pytest.mark.parametrize(
    "work",
    [
        lambda chat: chat.pop(),
        lambda chat: chat.clear(),
        lambda chat: chat.update(named("first", "other")),
        lambda chat: chat.replace([]),
        lambda chat: chat.annotate({"a": 1}),
        lambda chat: chat.save_snapshot({"a": 1}),
        lambda chat: chat.delete(),
    ],
)
def test_any_other_write_whose_answer_was_lost_says_so(schema: str, work: Work) -> None:
    """Anything else is a clear `UnavailableError` that says it may have happened."""

    async def main() -> None:
        async with proxied_chat(schema) as (proxy, chat):
            await chat.messages()
            proxy.losing = 2  # reads are asked once more by themselves
            with pytest.raises(UnavailableError, match="may have happened") as caught:
                await _until_lost(proxy, chat, work)
            assert caught.value.maybe_done
            assert await chat.messages(limit=1) is not None

    run(main())


async def _until_lost(proxy: Proxy, chat: SessionHistory, work: Work) -> None:
    """Lose the answer of the write, not that of a read before it."""
    proxy.losing = 0
    backend = chat._gate.backend  # pyright: ignore[reportPrivateUsage]
    assert isinstance(backend, PostgresBackend)
    write = backend._calls.write  # pyright: ignore[reportPrivateUsage]

    async def losing(*values: Any) -> Any:
        proxy.losing = 1
        return await write(*values)

    backend._calls.write = losing  # type: ignore[method-assign]
    try:
        await work(chat)
    finally:
        del backend._calls.write


def test_a_read_is_asked_again_on_another_connection(schema: str) -> None:
    """A dropped connection costs a reader nothing."""

    async def main() -> None:
        async with proxied_chat(schema) as (proxy, chat):
            proxy.losing = 1
            assert await heard(chat) == ["first"]
            proxy.cut()
            assert await heard(chat) == ["first"]

    run(main())


def test_terminated_backends_are_replaced(schema: str) -> None:
    """A terminated backend, idle or at work: the pool heals (B100)."""

    async def main() -> None:
        async with chatting(schema, application_name=schema) as chat:
            for number in range(3):
                await asyncio.gather(*[chat.messages() for _ in range(10)])
                await _terminate_all(schema)
                await chat.append(said(str(number)))
            async with locked(schema, chat):
                waiting = asyncio.ensure_future(chat.append(said("waited")))
                await asyncio.sleep(0.2)
                await _terminate_all(schema)
                await asyncio.sleep(0.1)
            await waiting
            assert await heard(chat) == ["first", "0", "1", "2", "waited"]

    run(main())


async def _terminate_all(application: str) -> None:
    connection = await asyncpg.connect(server_url())
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", application
    )
    await connection.close()


def test_a_restarted_server_is_found_again() -> None:
    """Killed and started again: calls fail clearly meanwhile, then work, and nothing acknowledged is lost (B103)."""
    server = local_server()

    async def main() -> None:
        async with HistoryStore(PostgresBackend(server.url, prefix=f"r{uuid4().hex[:8]}_")) as store:
            chat = store.session("s")
            await chat.append(said("before"))
            server.stop(signal.SIGQUIT)
            for call in (chat.messages, lambda: chat.append(said("lost")), store.ping):
                with pytest.raises(UnavailableError):
                    await call()
            server.start()
            await chat.append(said("after"))
            assert await heard(chat) == ["before", "after"]

    run(main())


def test_connections_to_a_server_that_became_a_standby_are_left(schema: str) -> None:
    """After a failover: one clear `UnavailableError`, nothing written, then other connections."""

    async def main() -> None:
        async with chatting(schema) as chat:
            backend = chat._gate.backend  # pyright: ignore[reportPrivateUsage]
            assert isinstance(backend, PostgresBackend)
            await backend._calls.read("SELECT set_config('default_transaction_read_only', 'on', false)")
            with pytest.raises(UnavailableError, match="read-only") as caught:
                await chat.append(said("a"))
            assert not caught.value.maybe_done
            await chat.append(said("b"))
            assert await heard(chat) == ["first", "b"]

    run(main())


def test_a_silent_server_is_given_up(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stopped answering: `UnavailableError` in time, and all is well once it goes on."""
    monkeypatch.setattr(agentstore_postgres, "ANSWER_SECONDS", 0.3)
    server = local_server()

    async def main() -> None:
        options = {"prefix": f"q{uuid4().hex[:8]}_", "statement_timeout": 0.3, "connect_timeout": 0.5}
        async with HistoryStore(PostgresBackend(server.url, **options)) as store:
            chat = store.session("s")
            await chat.append(said("before"))
            connection = await asyncpg.connect(server.url)
            pids = [
                row[0]
                for row in await connection.fetch(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'agentstore'"
                )
            ]
            await connection.close()
            for pid in [server.pid, *pids]:
                os.kill(pid, signal.SIGSTOP)
            try:
                begun = time.monotonic()
                with pytest.raises(UnavailableError):
                    await chat.messages()
                assert time.monotonic() - begun < 10
            finally:
                for pid in [server.pid, *pids]:
                    os.kill(pid, signal.SIGCONT)
            await chat.append(said("after"))
            assert await heard(chat) == ["before", "after"]

    run(main())


def test_a_writer_waits_in_line_for_a_bounded_time(schema: str) -> None:
    """`lock_timeout` ends the wait behind another writer of the session: nothing was written (B35)."""

    async def main() -> None:
        async with chatting(schema, lock_timeout=0.2) as chat, locked(schema, chat):
            with pytest.raises(UnavailableError, match="lock timeout") as caught:
                await chat.append(said("a"))
            assert not caught.value.maybe_done
            assert await heard(chat) == ["first"]

    run(main())


def test_a_session_that_expires_while_a_writer_waits_is_begun_anew(schema: str) -> None:
    """The expiry is looked at behind the wait, also where the other writer changed nothing (B14)."""

    async def main() -> None:
        async with chatting(schema) as chat:
            await chat.expire(datetime.now(timezone.utc) + timedelta(seconds=0.5))
            async with locked(schema, chat):
                writing = asyncio.ensure_future(chat.append(said("late")))
                await asyncio.sleep(1)
            assert (await writing).seqs == [1]
            assert await heard(chat) == ["late"]

    run(main())


def test_a_turn_that_another_writer_begins_the_session_with_is_found(schema: str) -> None:
    """Both begin it with the same message at once: the second finds a part of its turn there."""

    async def main() -> None:
        async with chatting(schema) as chat:
            await chat.delete()
            backend, records = PostgresBackend(server_url(), schema=schema), records_of(said("a", "b"))
            connection = await asyncpg.connect(server_url())
            transaction = connection.transaction()
            await transaction.start()
            arguments = (*rows.names(chat.key), bytes(16), False, None, None, *rows.columns(records[1:]), 1)
            await connection.fetch(backend._sql.append, *arguments, None, None, None, None)
            writing = asyncio.ensure_future(settled(backend.append(chat.key, Append(records, bytes(15) + b"1"))))
            await asyncio.sleep(0.2)
            await transaction.commit()
            answer = await writing
            assert isinstance(answer, Written)
            assert (answer.written, answer.seqs[1]) == (1, 1)
            assert await heard(chat) == ["b", "a"]
            await connection.close()
            await backend.aclose()

    run(main())


def test_a_deletion_locks_an_expired_forerunner_first(schema: str) -> None:
    """As a writer does that finds it expired and goes on to what another began: so neither can wait for the other."""

    async def main() -> None:
        async with chatting(schema) as chat:
            await chat.expire(datetime.now(timezone.utc) - timedelta(seconds=1))
            await chat.append(said("begun anew"))
            lock = f'SELECT FROM "{schema}".agentstore_session WHERE hash = $1 AND linked = $2 FOR NO KEY UPDATE'
            writer = await asyncpg.connect(server_url())
            transaction = writer.transaction()
            await transaction.start()
            await writer.execute("SET LOCAL lock_timeout = '1s'")
            await writer.execute(lock, chat.key.hash, False)
            deleting = asyncio.ensure_future(chat.delete())
            await asyncio.sleep(0.2)
            await writer.execute(lock, chat.key.hash, True)
            await transaction.rollback()
            await deleting
            assert await heard(chat) == []
            await writer.close()

    run(main())


def test_closing_while_a_connection_is_made_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer yet: whoever waits for it gets an error, not a cancellation."""
    monkeypatch.setattr(agentstore_postgres_pool, "CLOSE_SECONDS", 0.1)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            store = open_store(f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/d?sslmode=disable")
            calls = [asyncio.ensure_future(call) for call in (store.session("s").append(said("a")), store.ping())]
            await asyncio.sleep(0.2)
            await store.aclose()
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, ClosedError)

    run(main())


def test_a_connection_handed_over_before_a_failover_is_not_used(schema: str) -> None:
    """Whoever waited for it when all connections were given up gets a new one, and never more than there may be."""

    async def main() -> None:
        made: list[asyncpg.Connection] = []

        async def connect() -> asyncpg.Connection:
            made.append(await asyncpg.connect(server_url()))
            return made[-1]

        pool = agentstore_postgres_pool.Pool(connect, size=1, timeout=5, patience=None)
        first = await pool.take()
        waiting = asyncio.ensure_future(pool.take())
        await asyncio.sleep(0)
        pool.give_back(first)  # it is handed over
        pool.renew()
        second = await waiting
        assert second is not first
        assert first.is_closed()
        pool.give_back(second)
        await pool.close()
        assert len(made) == 2

    run(main())


def test_a_call_takes_a_bounded_time(schema: str) -> None:
    """`statement_timeout` ends any call, behind a pooler too."""

    async def main() -> None:
        for pooler in ("none", "transaction"):
            options = {"lock_timeout": 0, "statement_timeout": 0.2, "pooler": pooler}
            async with chatting(schema, **options) as chat, locked(schema, chat):
                with pytest.raises(UnavailableError, match="statement timeout") as caught:
                    await chat.append(said("a"))
                assert not caught.value.maybe_done

    run(main())


def test_sessions_never_wait_for_each_other(schema: str) -> None:
    """Different sessions never wait for each other, nor do readers for a writer."""

    async def main() -> None:
        async with chatting(schema) as chat, chatting(schema) as other, locked(schema, chat):
            await asyncio.wait_for(other.append(said("a")), 2)
            assert await asyncio.wait_for(heard(chat), 2) == ["first"]

    run(main())


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_no_connection_leaks(schema: str, pooler: str) -> None:
    """A pool of two, a thousand failing calls of every kind, then a good one (B41)."""

    async def main() -> None:
        options = {"pool_size": 2, "pool_timeout": 5, "pooler": pooler, "lock_timeout": 0.01}
        async with proxied_chat(schema, **options) as (proxy, chat):
            backend = chat._gate.backend  # pyright: ignore[reportPrivateUsage]
            assert isinstance(backend, PostgresBackend)
            for _ in range(10):
                await _fail(50, lambda: backend._calls.write("SELECT 1 / 0"))  # pyright: ignore[reportPrivateUsage]
                await _cancel(25, lambda: chat.append(said("cancelled")))
                await _cancel(25, chat.messages)
            async with locked(schema, chat):
                await _fail(50, chat.clear)
            proxy.refusing = True
            proxy.cut()
            await _fail(100, chat.messages)
            proxy.refusing = False
            for _ in range(50):
                proxy.losing = 1
                await _fail(1, lambda: backend.delete(chat.key))
            await asyncio.wait_for(asyncio.gather(chat.append(said("good")), chat.messages()), 5)

    run(main())


async def _fail(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    answers = await asyncio.gather(*[call() for _ in range(count)], return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, StorageError)] == []


async def _cancel(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    tasks = [asyncio.ensure_future(call()) for _ in range(count)]
    for task in tasks:
        await asyncio.sleep(0.0005)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_full_pool_is_waited_for_a_bounded_time(schema: str) -> None:
    """`pool_timeout` ends the wait for a free connection."""

    async def main() -> None:
        async with chatting(schema, pool_size=1, pool_timeout=0.2) as chat:
            async with locked(schema, chat):
                holding = asyncio.ensure_future(chat.append(said("a")))
                await asyncio.sleep(0.05)
                with pytest.raises(UnavailableError, match="no connection"):
                    await chat.messages()
            await holding

    run(main())


def test_connections_that_nobody_uses_are_closed(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst the server gets its connections back; the next call makes one."""
    monkeypatch.setattr(agentstore_postgres_pool, "IDLE_SECONDS", 0.1)
    name = f"idle-{uuid4().hex}"

    async def main() -> None:
        async with chatting(schema, application_name=name) as chat:
            await asyncio.gather(*[chat.messages() for _ in range(10)])
            assert await _connections(name) > 1
            await asyncio.sleep(0.5)
            assert await _connections(name) == 0
            assert await heard(chat) == ["first"]

    run(main())


async def _connections(application: str) -> int:
    connection = await asyncpg.connect(server_url())
    found = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
    count = int(await connection.fetchval(found, application))
    await connection.close()
    return count


def test_writers_that_wait_for_a_connection_are_served_in_turn(schema: str) -> None:
    """Sixty-four sessions on a pool of two: nobody is passed over (B143)."""

    async def main() -> None:
        async with chatting(schema, pool_size=2) as chat:
            backend = chat._gate.backend  # pyright: ignore[reportPrivateUsage]
            store = HistoryStore(backend)
            done: list[int] = []

            async def work(number: int) -> None:
                for _ in range(4):
                    await store.session(f"{number}").append(said("a"))
                    done.append(number)

            await asyncio.gather(*[store.session(f"{number}").append(said("a")) for number in range(64)])
            await asyncio.gather(*[work(number) for number in range(64)])
            assert len(set(done[:64])) >= 60

    run(main())


@pytest.mark.parametrize("how", ["password", "unknown database"])
def test_errors_never_show_the_password(how: str) -> None:
    """No driver text, repr or cause holds it (B118)."""
    server = local_server()
    execute(
        "DROP ROLE IF EXISTS with_password", "CREATE ROLE with_password LOGIN PASSWORD 's3cret-right'", url=server.url
    )
    database = "no_such_db" if how == "unknown database" else "postgres"
    password = "s3cret-right" if how == "unknown database" else "s3cret-word"
    url = f"postgresql://with_password:{password}@127.0.0.1:{server.port}/{database}"

    async def main() -> None:
        backend = PostgresBackend(url)
        assert "s3cret" not in repr(backend)
        with pytest.raises(ConfigurationError) as caught:
            await backend.ping()
        error: BaseException | None = caught.value
        while error:
            assert "s3cret" not in repr(error)
            error = error.__cause__ or error.__context__
        await backend.aclose()

    run(main())


def test_tls_is_used_as_the_url_says() -> None:
    """`sslmode` and `sslrootcert` as in libpq: a stranger's certificate is refused, the right one taken."""
    server = debian_server()
    localhost = server.url.replace("127.0.0.1", "localhost")

    async def tls(url: str = localhost, **options: Any) -> bool:
        backend = PostgresBackend(url, **options)
        try:
            rows = await backend._calls.read(  # pyright: ignore[reportPrivateUsage]
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            )
            return bool(rows[0][0])
        finally:
            await backend.aclose()

    with pytest.raises(UnavailableError):
        asyncio.run(tls(local_server().url, sslmode="require"))  # the wheel's is built without TLS
    trusted = str(server.use_tls())
    time.sleep(0.2)  # the server reads its settings
    assert asyncio.run(tls(sslmode="require"))
    assert asyncio.run(tls(sslmode="verify-full", sslrootcert=trusted))
    assert not asyncio.run(tls(sslmode="disable"))
    with pytest.raises((UnavailableError, ConfigurationError)):
        asyncio.run(tls(sslmode="verify-full", sslrootcert=str(DOCUMENT)))


def test_nobody_listening_is_unavailable() -> None:
    """An unreachable server: `UnavailableError` with the driver's error as its cause; nothing was done."""

    async def main() -> None:
        backend = PostgresBackend("postgresql://app@127.0.0.1:1/chat")
        with pytest.raises(UnavailableError) as caught:
            await backend.ping()
        assert isinstance(caught.value.__cause__, OSError)
        assert not caught.value.maybe_done
        await backend.aclose()

    run(main())
