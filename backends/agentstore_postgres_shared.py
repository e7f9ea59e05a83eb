"""The two calls of every turn, append and the newest records, which share statements where many wait."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import asyncpg

import agentstore_postgres_rows as rows
from agentstore.backend import Append, Refused, StoredRecord, Unbroken, Written
from agentstore.errors import StorageError
from agentstore.keys import SessionKey
from agentstore_postgres_calls import Calls
from agentstore_postgres_clients import Client, Clients
from agentstore_postgres_lane import Lane
from agentstore_postgres_statements import Statements

FEW = 100
"""Most records of a read that shares a statement with others."""

Records = list[StoredRecord]
Place = tuple[bytes, int, int, int]
"""A session's hash, the seqs between which to read, and how many records."""


class _Lanes(NamedTuple):
    appends: Lane[rows.Turn, Written | Refused]
    reads: Lane[Place, Records]


class Shared:
    """The lanes of each event loop."""

    def __init__(self, clients: Clients, calls: Calls, sql: Statements, *, owned: bool) -> None:
        """`owned`: connections are ours, and have no time-outs that cancel a task."""
        self._owned = owned
        self._clients = clients
        self._calls = calls
        self._sql = sql
        self._by_client: WeakKeyDictionary[Client, _Lanes] = WeakKeyDictionary()

    def append(self, key: SessionKey, append: Append) -> Awaitable[Written | Refused]:
        """As the waist has it."""
        write = self._in_line(key, append)
        return Unbroken(write) if self._owned else write

    async def newest(self, key: SessionKey, after: int, before: int, limit: int) -> Records:
        """The last records with `after < seq < before`, ascending."""
        place = key.hash, after, before, limit
        if limit > FEW:
            return await self._read(place)
        return await (await self._lanes()).reads.do(key.hash, place)

    async def _in_line(self, key: SessionKey, append: Append) -> Written | Refused:
        turn = key, append
        if not rows.is_shared(append):
            return await self._append(turn)
        return await (await self._lanes()).appends.do(key.hash, turn)

    async def _append(self, turn: rows.Turn) -> Written | Refused:
        key, append = turn
        if rows.is_plain(append) and (await self._clients.here()).direct:
            try:
                return await self._append_new(key, append)
            except StorageError as error:
                if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                    raise  # else another call with the same object wrote it first: the statement below copes with that
        snapshot = append.snapshot
        found = await self._calls.write(
            self._sql.append,
            *rows.names(key),
            append.token,
            append.retry,
            append.expected_last,
            append.ttl,
            *rows.columns(append.records),
            rows.size(append.records),
            snapshot and snapshot.format,
            snapshot and snapshot.payload,
            snapshot and list(snapshot.replaceable),
            snapshot and snapshot.expected_version,
        )
        return rows.answer(found[0])

    async def _append_new(self, key: SessionKey, append: Append) -> Written | Refused:
        heads, formats, payloads = rows.columns(append.records)
        found = await self._calls.write(
            self._sql.append_new,
            *rows.names(key),
            append.token,
            append.ttl,
            heads,
            payloads,
            formats[0],
            len(heads),
            rows.size(append.records),
        )
        first, version, begun, *_ = found[0]
        return rows.answer(begun) if first is None else rows.written(first, len(heads), version)

    async def _append_all(self, turns: Sequence[rows.Turn]) -> Sequence[Written | None]:
        return rows.written_together(await self._calls.write(self._sql.append_all, *rows.together(turns)), turns)

    async def _read(self, place: Place) -> Records:
        records = [StoredRecord(*row) for row in await self._calls.read(self._sql.read_newest, *place)]
        records.reverse()
        return records

    async def _read_all(self, places: Sequence[Place]) -> Sequence[Records]:
        found = await self._calls.read(self._sql.read_all, *map(list, zip(*places, strict=True)))
        return rows.read_together(found, len(places))

    async def _lanes(self) -> _Lanes:
        client = await self._clients.here()
        lanes = self._by_client.get(client)
        if lanes is None:
            lanes = _Lanes(
                Lane(self._append, self._append_all, unbroken=self._owned),
                Lane(self._read, self._read_all, unbroken=False),
            )
            self._by_client[client] = lanes
        return lanes
