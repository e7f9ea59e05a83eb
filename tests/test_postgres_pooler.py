"""PostgreSQL behind PgBouncer in transaction mode: every sentence of the contract, with nothing said about it."""

from __future__ import annotations

import asyncio

from pgbouncer import pooler_url
from tcp_proxy import proxied
from test_postgres_backend import OnASchema

from agentstore import HistoryStore
from agentstore.testing.scenes import said
from agentstore_postgres import PostgresBackend


class TestBehindPgBouncer(OnASchema):
    def server(self) -> str:
        return pooler_url()


def test_a_pooler_is_found_and_costs_four_round_trips() -> None:
    """At most four behind a transaction pooler, whose presence nobody has to say (B98)."""

    async def count() -> int:
        async with proxied(pooler_url()) as proxy:
            async with HistoryStore(PostgresBackend(proxy.url, prefix="found_")) as store:
                chat = store.session("s")
                await chat.append(said("a"))
                await chat.append(said("b"))
                before = proxy.round_trips
                await chat.append(said("c"))
                after = proxy.round_trips
                await chat.delete()
            return after - before

    assert asyncio.run(count()) == 4
