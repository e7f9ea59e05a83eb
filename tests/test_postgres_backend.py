"""The PostgreSQL backend keeps every sentence of the contract, on a real server."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import execute, query, server_url

from agentstore.testing import BackendConformance
from agentstore.testing.scenes import Cost
from agentstore_postgres import PostgresBackend


class OnASchema(BackendConformance):
    """The kit, each sentence in a schema of its own."""

    def server(self) -> str:
        return server_url()

    @pytest.fixture(autouse=True)
    def _schema(self) -> Generator[None]:
        self.schema = f"kit-{uuid4().hex}"
        yield
        execute(f'DROP SCHEMA IF EXISTS "{self.schema}" CASCADE', url=self.server())

    async def open_backend(self) -> PostgresBackend:
        return PostgresBackend(self.server(), schema=self.schema)

    async def reopen_backend(self) -> PostgresBackend:
        return PostgresBackend(self.server(), schema=self.schema)

    def backend_url(self) -> str:
        separator = "&" if urlsplit(self.server()).query else "?"
        return f"{self.server()}{separator}schema={self.schema}"


class TestPostgresBackend(OnASchema):
    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        """Calls, rows that the server touched, and pages of tables and indexes, as its own statistics count them."""
        calls = 0
        fetch = asyncpg.Connection.fetch

        async def counted(connection: asyncpg.Connection, *args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            rows = await fetch(connection, *args, **options)
            await connection.execute("SELECT pg_stat_force_next_flush()")
            return rows

        def so_far() -> Mapping[str, int]:
            return {"calls": calls, **query(self._touched)}

        with patch.object(asyncpg.Connection, "fetch", counted):
            yield so_far

    async def _touched(self, connection: asyncpg.Connection) -> Mapping[str, int]:
        row = await connection.fetchrow(
            """
            SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint AS read,
              coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS written,
              coalesce(sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit), 0)::bigint AS pages
            FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid) WHERE pg_stat_user_tables.schemaname = $1
            """,
            self.schema,
        )
        return dict(row)
