"""Turns of different sessions that wait in one process share a statement, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import execute, server_url
from tcp_proxy import proxied

from agentstore import ConflictError, HistoryStore, SessionHistory, StorageError
from agentstore.testing.scenes import heard, named, said
from agentstore_postgres import PostgresBackend

MANY = 24

SLOW = """
CREATE FUNCTION "{schema}".slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON "{schema}".agentstore_message FOR EACH STATEMENT
EXECUTE FUNCTION "{schema}".slow()
"""


@pytest.fixture
def schema() -> Generator[str]:
    name = f"lane-{uuid4().hex}"
    yield name
    execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@asynccontextmanager
async def chats(schema: str, url: str | None = None, **options: Any) -> AsyncGenerator[list[SessionHistory]]:
    """Many sessions with one message each."""
    async with HistoryStore(PostgresBackend(url or server_url(), schema=schema, **options)) as store:
        made = [store.session(str(number)) for number in range(MANY)]
        for chat in made:
            await chat.append([named("first", "first")])
        yield made


async def say(chats: Sequence[SessionHistory], text: str) -> list[Any]:
    """The answers to an append to each session, all at once."""
    return await asyncio.gather(*[chat.append(said(f"{text}1", f"{text}2")) for chat in chats], return_exceptions=True)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_turns_and_reads_that_wait_share_statements(schema: str) -> None:
    """Many sessions at once take a few statements, and each gets its own seqs and messages."""
    sent: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def counted(connection: asyncpg.Connection, statement: str, *values: Any) -> Any:
        sent.append(statement)
        return await fetch(connection, statement, *values)

    async def main() -> None:
        async with chats(schema) as all_chats:
            with patch.object(asyncpg.Connection, "fetch", counted):
                answers = await say(all_chats, "a")
                texts = await asyncio.gather(*[heard(chat, limit=2) for chat in all_chats])
            assert [answer.seqs for answer in answers] == [[2, 3]] * MANY
            assert texts == [["a1", "a2"]] * MANY
            assert len(sent) < MANY / 2
            infos = [await chat.info() for chat in all_chats]
            assert [(info.count, info.last_seq) for info in infos if info] == [(3, 3)] * MANY
            assert len({info.bytes for info in infos if info}) == 1

    run(main())


def test_a_session_that_does_not_exist_begins_among_others(schema: str) -> None:
    """Nobody has to know which of those that wait is new, or has expired."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            store = HistoryStore(PostgresBackend(server_url(), schema=schema))
            new = [store.session(f"new {number}") for number in range(4)]
            answers = await say([*(store.session(chat.key.session_id) for chat in all_chats), *new], "a")
            assert [answer.seqs for answer in answers] == [[2, 3]] * MANY + [[1, 2]] * 4
            await store.aclose()

    run(main())


def test_a_locked_session_holds_up_no_other(schema: str) -> None:
    """Different sessions never wait for each other, also where they share a statement."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            first, *others = all_chats
            connection = await asyncpg.connect(server_url())
            async with connection.transaction():
                await connection.execute(
                    f'SELECT FROM "{schema}".agentstore_session WHERE hash = $1 FOR UPDATE', first.key.hash
                )
                waiting = [asyncio.ensure_future(first.append(said(f"waited {number}"))) for number in range(3)]
                for number in range(5):
                    answers = await asyncio.wait_for(say(others, str(number)), 3)
                    assert [answer.written for answer in answers] == [2] * len(others)
                assert not any(task.done() for task in waiting)
            assert sorted([(await task).seqs for task in waiting]) == [[2], [3], [4]]
            await connection.close()

    run(main())


def test_a_refused_turn_spoils_no_other(schema: str) -> None:
    """An id with other contents is its own session's conflict, and one that is there already no second copy."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            replayed = all_chats[5].append([named("first", "first"), named("second", "second")])
            clashing = all_chats[7].append([named("new", "new"), named("first", "other")])
            others = [chat for number, chat in enumerate(all_chats) if number not in (5, 7)]
            whole = asyncio.gather(
                say(others[:9], "a"), replayed, clashing, say(others[9:], "a"), return_exceptions=True
            )
            before, again, clash, behind = await whole
            assert [answer.written for answer in before + behind] == [2] * len(others)
            assert (again.seqs[0], again.written) == (1, 1)
            assert isinstance(clash, ConflictError)
            assert clash.ids == ("first",)
            assert await heard(all_chats[5]) == ["first", "second"]
            assert await heard(all_chats[7]) == ["first"]
            assert (await all_chats[7].append(said("a"))).seqs == [2]

    run(main())


def test_a_failed_turn_spoils_no_other(schema: str) -> None:
    """What the server refuses for one turn's sake is done again for each alone."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            execute(f"""ALTER TABLE "{schema}".agentstore_message ADD CHECK (octet_length(payload) < 5000)""")
            answers = await asyncio.gather(
                say(all_chats[:12], "a"), all_chats[12].append(said("x" * 6000)), say(all_chats[13:], "a"),
                return_exceptions=True,
            )  # fmt: skip
            assert isinstance(answers[1], StorageError)
            assert [answer.written for answer in answers[0] + answers[2]] == [2] * (MANY - 1)
            assert await heard(all_chats[12]) == ["first"]

    run(main())


@pytest.mark.parametrize("after", [0.0, 0.002, 0.005])
def test_turns_whose_shared_answer_was_lost_are_there_once(schema: str, after: float) -> None:
    """The server did its work and the connection was cut: every turn is there exactly once (B46)."""

    async def main() -> None:
        async with proxied(server_url()) as proxy, chats(schema, proxy.url) as all_chats:
            for number in range(3):
                saying = asyncio.ensure_future(say(all_chats, str(number)))
                await asyncio.sleep(after)
                proxy.losing = 1
                answers = await saying
                proxy.losing = 0
                assert [answer.seqs for answer in answers] == [[2 + 2 * number, 3 + 2 * number]] * MANY
            expected = ["first", *[f"{number}{part}" for number in range(3) for part in "12"]]
            assert [await heard(chat) for chat in all_chats] == [expected] * MANY

    run(main())


def test_a_backend_that_is_terminated_in_a_shared_statement_costs_no_turn(schema: str) -> None:
    """Cut before the commit: every turn is there exactly once (B100)."""

    async def main() -> None:
        async with chats(schema, application_name=schema[:60]) as all_chats:
            await _slow_down(schema)
            task = asyncio.ensure_future(say(all_chats, "a"))
            await asyncio.sleep(0.15)
            await _slow_down(schema, seconds=0)  # from the next statement on
            await _terminate_all(schema[:60])
            assert [answer.written for answer in await task] == [2] * MANY
            assert [await heard(chat) for chat in all_chats] == [["first", "a1", "a2"]] * MANY

    async def _slow_down(schema: str, seconds: float = 0.5) -> None:
        connection = await asyncpg.connect(server_url())
        await connection.execute(
            f"""
            CREATE OR REPLACE FUNCTION "{schema}".slow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
            CREATE OR REPLACE TRIGGER slow AFTER INSERT ON "{schema}".agentstore_message
            FOR EACH STATEMENT EXECUTE FUNCTION "{schema}".slow()
            """
        )
        await connection.close()

    run(main())


async def _terminate_all(application: str) -> None:
    connection = await asyncpg.connect(server_url())
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", application
    )
    await connection.close()


def test_callers_that_leave_the_line_leave_no_gap(schema: str) -> None:
    """A cancelled read of those that wait costs the others nothing (B105)."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            reads = [asyncio.ensure_future(heard(chat, limit=1)) for chat in all_chats]
            await asyncio.sleep(0)
            for read in reads[::2]:
                read.cancel()
            answers = await asyncio.gather(*reads, return_exceptions=True)
            assert answers[1::2] == [["first"]] * (MANY // 2)
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])

    run(main())


def test_sixteen_writers_of_one_session_come_one_after_another(schema: str) -> None:
    """... and what one of them wrote lies together, none lost or doubled (B30)."""

    async def main() -> None:
        async with chats(schema) as all_chats:
            await asyncio.gather(*[say([all_chats[0]] * 16, str(number)) for number in range(4)])
            texts = (await heard(all_chats[0]))[1:]
            pairs = list(zip(texts[::2], texts[1::2], strict=True))
            assert sorted(pairs) == sorted([(f"{number}1", f"{number}2") for number in range(4)] * 16)

    run(main())


def test_turns_that_share_a_statement_are_settled_when_all_is_torn_down(schema: str) -> None:
    """`asyncio.run` cancels every task when `main` returns: the callers leave when their turns are there."""
    left: list[int] = []

    async def call(chat: SessionHistory) -> None:
        try:
            await chat.append(said("last"))
        finally:
            left.append(len(await asyncpg_rows(schema)))

    async def asyncpg_rows(schema: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(server_url())
        rows: list[asyncpg.Record] = await connection.fetch(f'SELECT FROM "{schema}".agentstore_message')
        await connection.close()
        return rows

    async def main() -> None:
        store = HistoryStore(PostgresBackend(server_url(), schema=schema))
        sessions = [store.session(str(number)) for number in range(MANY)]
        for chat in sessions:
            await chat.append(said("first"))
        connection = await asyncpg.connect(server_url())
        await connection.execute(SLOW.format(schema=schema))
        await connection.close()
        tasks.extend(asyncio.ensure_future(call(chat)) for chat in sessions)
        await asyncio.sleep(0.1)

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert all(task.cancelled() for task in tasks)
    assert left[-1] == 2 * MANY
    assert min(left[1:]) == 2 * MANY  # the first was alone, and was sent before the others
