"""Redis backend, for Valkey too: `redis://host:port/0`, a cluster, or a service of sentinels, for many workers.

Every call is one script, on keys that share a slot; the first write of a session in a minute is three (see
docs/waist.md). How durable an acknowledged write is, the server decides (see docs/redis.md). Needs the extra `redis`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis, RedisCluster

import agentstore_redis_check as checks
import agentstore_redis_scripts as scripts
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
from agentstore_redis_calls import Calls, encoded
from agentstore_redis_clients import Clients
from agentstore_redis_index import NO_OFFER, Index, new_incarnation
from agentstore_redis_lanes import Server, Source
from agentstore_redis_names import LAYOUT, Names, lives, packed, packed_whole, text, unpacked
from agentstore_redis_options import RedisOptions, ServerOptions
from agentstore_redis_servers import borrowed, maker

LARGE_BYTES = 64 * 2**10
"""A write of more than this takes a connection on which nobody else waits."""
LARGE_COUNT = 100
"""So does a read of more records."""

_TIME = encoded(b"TIME")


class RedisBackend:
    """The whole waist on Redis 6.2 or newer, and on Valkey."""

    def __init__(
        self, url: str | StoreURL | None = None, *, client: Redis | RedisCluster | None = None, **options: Any
    ) -> None:
        """One of: a URL; a client of `redis.asyncio`, which is left open and belongs to the event loop of its first
        use. Whether that one decodes responses does not matter.

        Options are those of `ServerOptions` for a URL, else of `RedisOptions`. Raises `ConfigurationError`.
        """
        if (url is None) == (client is None):
            raise ConfigurationError("a RedisBackend takes a URL or a client: one of them")
        if client is not None and not isinstance(client, (Redis, RedisCluster)):
            raise ConfigurationError(
                f"client must be a Redis or RedisCluster of redis.asyncio, not {type(client).__name__}"
            )
        parsed = url if isinstance(url, StoreURL) else parse_url(url or "redis://")
        self._options = options_ = read_options(RedisOptions if url is None else ServerOptions, parsed, options)
        self._place = parsed.host or "localhost" if client is None else type(client).__name__
        self._names = Names(options_.prefix)
        if client is None:
            assert isinstance(options_, ServerOptions)
            make = maker(parsed, options_, self._server)
            self._clients = Clients(make, of="Redis")
        else:
            self._clients = Clients(lambda: borrowed(client, self._server), of="Redis", borrowed="client")
        self._calls = Calls(self._clients, options_.timeout)
        self._index = Index(self._calls, self._names)
        self.limits = Limits(options_.max_message_bytes, options_.max_append_bytes)

    @classmethod
    def from_url(cls, url: StoreURL, options: Mapping[str, Any]) -> RedisBackend:
        """`redis://user:password@host:port/0`; options as in `ServerOptions`."""
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"RedisBackend({self._place!r}, prefix={self._options.prefix!r})"

    async def readiness(self) -> Readiness:
        layout = await self._calls.command(self._names.layout, b"GET", self._names.layout, writes=False)
        if layout not in (None, LAYOUT):
            raise ConfigurationError("what is there is something else's, or a newer agentstore's: name another prefix=")
        return "absent" if layout is None else "ready"

    async def setup(self) -> None:
        if await self.readiness() == "absent":
            await self._calls.command(self._names.layout, b"SET", self._names.layout, LAYOUT, b"NX", writes=True)

    async def ping(self) -> None:
        await self._calls.everywhere(b"PING")

    async def check(self) -> Sequence[Finding]:
        return await checks.check(self._calls)

    async def aclose(self) -> None:
        await self._clients.aclose()

    def append(self, key: SessionKey, append: Append) -> Awaitable[Written | Refused]:
        snapshot = append.snapshot
        records = [packed(record) for record in append.records]
        values = (
            append.token,
            b"1" if append.retry else b"0",
            _number(append.expected_last),
            _number(append.ttl),
            *((b"0", b"", b"", b"", b"0") if snapshot is None else (b"1", *_saved(snapshot))),
            *records,
        )
        return self._index.writing(scripts.APPEND, key, values, _is_large(records), _written)

    async def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[StoredRecord]:
        bounds = b"%d" % after, _number(before), _number(limit), b"1" if newest else b"0"
        if newest and limit is not None and limit <= LARGE_COUNT and not after and before is None:
            return unpacked(await self._newest(key, limit, bounds))
        large = limit is None or limit > LARGE_COUNT
        return unpacked(await self._asked(scripts.READ, key, *bounds, writes=False, large=large))

    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        return int((await self._index.write(scripts.TRUNCATE, key, _number(after), _number(before)))[2])

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        records = [packed(record) for record in replace.records]
        conditions = b"%d" % replace.after, _number(replace.expected_last), _number(replace.begin_ttl)
        return _written(await self._index.write(scripts.REPLACE, key, *conditions, *records, large=_is_large(records)))

    async def update(self, key: SessionKey, record: Record) -> bool:
        row = packed(record)
        return bool((await self._index.write(scripts.UPDATE, key, row, large=_is_large([row])))[2])

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        return bool((await self._index.write(scripts.REMOVE_NEWEST, key, b"%d" % seq, digest))[2])

    async def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> bool:
        stage = new_incarnation()
        staged = self._names.staged(key, stage)
        minute = await self._staged(key, staged, 0, [])
        await self._index.add(key, stage, b"%d" % minute)
        try:
            return await self._restored(key, staged, pages, begin_ttl)
        finally:
            with suppress(UnavailableError):  # its lease ends by itself, and a listing mends the entry
                await self._calls.command(staged[0], b"UNLINK", *staged, writes=True)
                await self._index.remove(key, stage)

    async def info(self, key: SessionKey) -> StoredInfo | None:
        return await self._index.info(key)

    async def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Sequence[StoredInfo]:
        return await self._index.page(namespace, source_id, limit, start)

    async def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> bool:
        values = *_maybe(old), *_maybe(new), _number(begin_ttl)
        return bool((await self._index.write(scripts.ANNOTATE, key, *values))[2])

    async def expire(self, key: SessionKey, at: int | None) -> None:
        await self._asked(scripts.EXPIRE, key, _number(at), writes=True)

    async def delete(self, key: SessionKey) -> bool:
        deadline = self._calls.deadline()
        existed, incarnation = await self._asked(scripts.DELETE, key, writes=True)
        if incarnation:
            await self._index.forget(key, incarnation, deadline)
        return bool(existed)

    async def purge(self, namespace: str | None) -> int:
        return await self._index.purge(namespace)

    async def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> int | Refused:
        values = snapshot.format.encode(), snapshot.payload, _number(snapshot.expected_version), _number(begin_ttl)
        answer = await self._index.write(
            scripts.SAVE_SNAPSHOT, key, *values, *_replaceable(snapshot), large=_is_large([snapshot.payload])
        )
        return _refused(answer) if answer[0] == b"refused" else int(answer[2])

    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        answer = await self._asked(scripts.LOAD_SNAPSHOT, key, writes=False)
        if not answer:
            return None
        version, kind, payload = answer
        return StoredSnapshot(int(version), text(kind), payload)

    async def _asked(
        self, script: scripts.Script, key: SessionKey, *values: bytes, writes: bool, large: bool = False
    ) -> Any:
        """The answer of a script that needs no index entry."""
        keys = self._names.session(key)
        return await self._calls.script(script, keys, b"", *NO_OFFER, *values, writes=writes, large=large)

    async def _newest(self, key: SessionKey, limit: int, bounds: Sequence[bytes]) -> Sequence[bytes]:
        """What the script gives, for less of the server's time: `LRANGE` alone is the one view."""
        session, records, _ = keys = self._names.session(key)
        commands = (
            _TIME,
            encoded(b"HMGET", session, b"inc", b"n"),
            encoded(b"LRANGE", records, b"-%d" % limit, b"-1"),
        )
        *looked, rows = await self._calls.together(commands, scripts.READ, keys, (b"", *NO_OFFER, *bounds))
        return [] if looked and not lives(*looked) else rows

    async def _restored(
        self,
        key: SessionKey,
        staged: Sequence[bytes],
        pages: AsyncIterator[Sequence[StoredRecord]],
        begin_ttl: int | None,
    ) -> bool:
        count = last = size = 0
        async for page in pages:
            await self._staged(key, staged, count, [packed_whole(record) for record in page])
            count += len(page)
            size += sum(len(record.payload) for record in page)
            last = page[-1].seq if page else last
        values = b"%d" % count, b"%d" % last, b"%d" % size, _number(begin_ttl)
        answer = await self._index.write(scripts.LINK, key, *values, more_keys=staged)
        return bool(_kept(answer)[2])

    async def _staged(self, key: SessionKey, staged: Sequence[bytes], count: int, rows: Sequence[bytes]) -> int:
        """Add rows to those of a restore; the server's minute."""
        keys = [*self._names.session(key), *staged]
        return int(
            _kept(await self._calls.script(scripts.STAGE, keys, b"", *NO_OFFER, b"%d" % count, *rows, large=True))
        )

    def _server(self, source: Source) -> Server:
        options = self._options
        return Server(source, size=options.pool_size, timeout=options.timeout, connect_timeout=options.connect_timeout)


def _number(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value


def _maybe(value: bytes | None) -> tuple[bytes, bytes]:
    return (b"0", b"") if value is None else (b"1", value)


def _saved(snapshot: SnapshotWrite) -> tuple[bytes, ...]:
    replaceable = _replaceable(snapshot)
    version = _number(snapshot.expected_version)
    return snapshot.format.encode(), snapshot.payload, version, b"%d" % len(replaceable), *replaceable


def _replaceable(snapshot: SnapshotWrite) -> Sequence[bytes]:
    return [kind.encode() for kind in snapshot.replaceable]


def _is_large(rows: Sequence[bytes]) -> bool:
    return sum(map(len, rows)) > LARGE_BYTES


def _written(answer: Sequence[Any]) -> Written | Refused:
    if answer[0] == b"refused":
        return _refused(answer)
    written, version, *seqs = map(int, answer[2].split())
    return Written(seqs, written, version)


def _refused(answer: Sequence[Any]) -> Refused:
    why, what = answer[1].decode(), answer[2]
    if why == "ids":
        return Refused(why, positions=tuple(map(int, what.split())))
    return Refused(why, actual=int(what or 0))


def _kept(answer: Any) -> Any:
    """The answer about a restore; raises where it is no longer there."""
    if answer in (0, [b"lost"]):
        raise UnavailableError("the restore took longer than its lease of an hour, or was purged; nothing was written")
    return answer
