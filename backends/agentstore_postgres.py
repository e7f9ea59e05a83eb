"""PostgreSQL backend: `postgresql://user@host:port/database`, for many workers on one database.

Every call is one statement in a transaction of its own; a write is one function of the database, which locks the
session's row first (see `docs/postgres.md`). Needs the extra `postgres`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

import agentstore_postgres_check as checking
import agentstore_postgres_rows as rows
import agentstore_postgres_schema as schema
from agentstore.backend import (
    Append,
    Finding,
    Limits,
    Readiness,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
    Written,
)
from agentstore.errors import ConfigurationError, UnavailableError
from agentstore.keys import SessionKey
from agentstore.urls import StoreURL, parse_url, read_options
from agentstore_postgres_calls import Calls
from agentstore_postgres_clients import (
    BorrowedEngine,
    BorrowedPool,
    Client,
    Clients,
    Connection,
    OwnPool,
    on_connection,
)
from agentstore_postgres_options import PostgresOptions, ServerOptions, connect_arguments
from agentstore_postgres_shared import Shared
from agentstore_postgres_statements import Statements

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

END = 2**63 - 1
"""Above every seq and minute."""
ANSWER_SECONDS = 5.0
"""How much longer than `statement_timeout` an answer is waited for."""


class PostgresBackend:
    """The whole waist on PostgreSQL 13 or newer."""

    def __init__(
        self,
        url: str | StoreURL | None = None,
        *,
        engine: AsyncEngine | None = None,
        pool: asyncpg.Pool | None = None,
        **options: Any,
    ) -> None:
        """One of: a URL; a SQLAlchemy `AsyncEngine` on asyncpg; an asyncpg pool. The latter two are left open, and
        belong to the event loop of their first use.

        Options are those of `ServerOptions` for a URL, else of `PostgresOptions`. Raises `ConfigurationError`.
        """
        if sum(given is not None for given in (url, engine, pool)) != 1:
            raise ConfigurationError("a PostgresBackend takes a URL, an engine or a pool: one of them")
        parsed = url if isinstance(url, StoreURL) else parse_url(url or "postgresql:///")
        kind = PostgresOptions if url is None else ServerOptions
        self._options = read_options(kind, parsed, options)
        self._place = parsed.host if url is not None else type(engine or pool).__name__
        self._names = schema.Names(self._options.schema, self._options.prefix)
        self._sql = Statements(self._names)
        self._make = self._maker(parsed, engine, pool)
        self._clients = Clients(self._make, of="PostgreSQL", borrowed=None if url is not None else "pool or engine")
        self._calls = Calls(self._clients, self._options.settings())
        self._shared = Shared(self._clients, self._calls, self._sql, owned=url is not None)
        self.limits = Limits(self._options.max_message_bytes, self._options.max_append_bytes)

    @classmethod
    def from_url(cls, url: StoreURL, options: Mapping[str, Any]) -> PostgresBackend:
        """`postgresql://user:password@host:port/database`; options as in `ServerOptions`."""
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"PostgresBackend({self._place!r}, {self._names.quoted('')})"

    async def readiness(self) -> Readiness:
        return await self._aside(schema.inspect)

    async def setup(self) -> None:
        if await self.readiness() != "ready":
            await self._aside(schema.set_up, schema.SETUP_SECONDS)

    async def ping(self) -> None:
        await self._calls.read("SELECT 1")

    async def check(self) -> Sequence[Finding]:
        found = await self._calls.read(checking.SETTINGS)
        return list(checking.findings({row["name"]: row["setting"] for row in found}))

    async def aclose(self) -> None:
        await self._clients.aclose()

    def append(self, key: SessionKey, append: Append) -> Awaitable[Written | Refused]:
        return self._shared.append(key, append)

    async def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[StoredRecord]:
        end = END if before is None else before
        if newest and limit is not None:
            return await self._shared.newest(key, after, end, limit)
        return [StoredRecord(*row) for row in await self._calls.read(self._sql.read, key.hash, after, end, limit)]

    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        return int(await self._value(self._sql.truncate, key.hash, after, before))

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        found = await self._calls.write(
            self._sql.replace,
            *rows.names(key),
            replace.after,
            replace.expected_last,
            replace.begin_ttl,
            *rows.columns(replace.records),
        )
        return rows.answer(found[0])

    async def update(self, key: SessionKey, record: Record) -> bool:
        values = record.id_hash, record.digest, record.format, record.payload
        return bool(await self._value(self._sql.update, key.hash, *values))

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        return bool(await self._value(self._sql.remove_newest, key.hash, seq, digest))

    async def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> bool:
        stage = await self._value(self._sql.stage, *rows.names(key))
        async for page in pages:
            places = [record.seq for record in page], [record.created_at for record in page]
            _kept(await self._value(self._sql.stage_page, stage, *places, *rows.columns(page)))
        return _kept(await self._value(self._sql.link, stage, key.hash, begin_ttl))

    async def info(self, key: SessionKey) -> StoredInfo | None:
        found = await self._calls.read(self._sql.info, key.hash)
        return StoredInfo(key, *found[0]) if found else None

    async def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Sequence[StoredInfo]:
        minute, source, session = start or (END, "", "")
        found = await self._calls.read(
            self._sql.list,
            namespace.encode(),
            minute,
            source.encode(),
            session.encode(),
            None if source_id is None else source_id.encode(),
            limit,
        )
        return [StoredInfo(SessionKey(namespace, row[0].decode(), row[1].decode()), *row[2:]) for row in found]

    async def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> bool:
        return bool(await self._value(self._sql.annotate, *rows.names(key), old, new, begin_ttl))

    async def expire(self, key: SessionKey, at: int | None) -> None:
        await self._calls.write(self._sql.expire, key.hash, at)

    async def delete(self, key: SessionKey) -> bool:
        return bool(await self._value(self._sql.delete, key.hash))

    async def purge(self, namespace: str | None) -> int:
        purged = 0
        part = None if namespace is None else namespace.encode()
        while (step := await self._value(self._sql.purge, part)) is not None:
            purged += step
        return purged

    async def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> int | Refused:
        found = await self._calls.write(
            self._sql.save_snapshot,
            *rows.names(key),
            snapshot.format,
            snapshot.payload,
            list(snapshot.replaceable),
            snapshot.expected_version,
            begin_ttl,
        )
        refused, actual, version = found[0]
        return Refused(refused, actual=actual or 0) if refused else version

    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        found = await self._calls.read(self._sql.load_snapshot, key.hash)
        return StoredSnapshot(*found[0]) if found else None

    async def _value(self, statement: str, *values: Any) -> Any:
        return (await self._calls.write(statement, *values))[0][0]

    async def _aside(
        self, step: Callable[[Connection, schema.Names], Awaitable[T]], patience: float | None = None
    ) -> T:
        """What is done once in a while, in a transaction of its own."""
        client = await self._clients.here()
        return await on_connection(client, lambda connection: step(connection, self._names), patience)

    def _maker(self, url: StoreURL, engine: AsyncEngine | None, pool: asyncpg.Pool | None) -> Callable[[], Client]:
        options, direct = self._options, self._options.direct()
        if engine is not None:
            borrowed = BorrowedEngine(engine, direct=direct)
            return lambda: borrowed
        if pool is not None:
            return lambda: BorrowedPool(pool, timeout=options.pool_timeout, direct=direct)
        assert isinstance(options, ServerOptions)
        arguments = connect_arguments(url, options)
        return lambda: OwnPool(
            arguments,
            size=options.pool_size,
            timeout=options.pool_timeout,
            patience=options.statement_timeout + ANSWER_SECONDS if options.statement_timeout else None,
            settings=options.session_settings(),
            direct=direct,
        )


def _kept(answer: bool | None) -> bool:
    if answer is None:
        raise UnavailableError("the restore took longer than its lease of an hour, and was purged")
    return answer
