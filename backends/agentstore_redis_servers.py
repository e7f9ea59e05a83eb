"""Which server a key belongs to, and connections to it: one server, a service of sentinels, a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.sentinel import Sentinel

from agentstore.errors import ConfigurationError
from agentstore.urls import StoreURL
from agentstore_redis_cluster import BorrowedMap, Cluster, OwnMap
from agentstore_redis_lanes import Server, Source
from agentstore_redis_options import (
    Address,
    ServerOptions,
    addresses,
    connect_arguments,
    sentinel_arguments,
    service_name,
    tls_arguments,
)
from agentstore_redis_sources import OwnSource, PoolSource

MakeServer = Callable[[Source], Server]


class Servers(Protocol):
    """The servers that one event loop asks."""

    fails_over: bool
    """Whether another server takes the place of one that cannot be reached."""
    is_cluster: bool

    @property
    def opened(self) -> bool:
        """Whether `open` has nothing left to do."""
        ...

    async def open(self) -> None:
        """Find out which servers there are; does nothing the second time."""
        ...

    def of(self, key: bytes) -> Server:
        """The server on which the key is."""
        ...

    def at(self, host: str, port: int) -> Server | None:
        """The server with the address that another one named; `None` where that one named none."""
        ...

    def all(self) -> Sequence[Server]:
        """All masters."""
        ...

    async def renew(self) -> None:
        """Find out again: a server was lost or moved."""
        ...

    async def close(self) -> None: ...


class Alone:
    """One server, or the one that sentinels name: then each new connection asks them."""

    is_cluster = False
    opened = True

    def __init__(self, source: Source, make: MakeServer, *, fails_over: bool) -> None:
        self.fails_over = fails_over
        self._server = make(source)

    async def open(self) -> None:
        """Nothing: its first call connects."""

    def of(self, key: bytes) -> Server:
        return self._server

    def at(self, host: str, port: int) -> Server | None:
        return None

    def all(self) -> Sequence[Server]:
        return [self._server]

    async def renew(self) -> None:
        self._server.renew()

    async def close(self) -> None:
        await self._server.close()


async def master_of(service: str, sentinels: Sequence[Address], arguments: dict[str, Any]) -> Address:
    """Where the service's master is, by one of the sentinels. Raises redis-py's errors."""
    asked = Sentinel(list(sentinels), sentinel_kwargs=arguments)  # type: ignore[no-untyped-call]
    try:
        host, port = await asked.discover_master(service)
        return host, port
    finally:
        await asyncio.gather(*[sentinel.aclose() for sentinel in asked.sentinels], return_exceptions=True)


def borrowed(client: Redis | RedisCluster, make: MakeServer) -> Servers:
    """The servers of a client that was handed in."""
    if isinstance(client, RedisCluster):
        return Cluster(BorrowedMap(client), make)
    pool = client.connection_pool
    return Alone(PoolSource(pool), make, fails_over=hasattr(pool, "sentinel_manager"))


def maker(url: StoreURL, options: ServerOptions, make: MakeServer) -> Callable[[], Servers]:
    """Makes the servers that a URL names, in each event loop anew. Raises `ConfigurationError`."""
    places, tls = addresses(url), tls_arguments(url, options)
    kind = Connection if tls is None else SSLConnection
    arguments = connect_arguments(url, options) | (tls or {})

    async def connected(place: Address) -> Connection:
        connection = kind(host=place[0], port=place[1], **arguments)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    if url.scheme == "redis+cluster":
        return lambda: Cluster(OwnMap(places, connected, options.connect_timeout), make)
    if url.scheme == "redis+sentinel":
        service = service_name(url)
        asking = sentinel_arguments(options) | ({} if tls is None else {"ssl": True, **tls})

        async def master() -> Connection:
            return await connected(await master_of(service, places, asking))

        return lambda: Alone(OwnSource(master), make, fails_over=True)
    if len(places) > 1:
        raise ConfigurationError("a redis URL names one server: for several use redis+cluster:// or redis+sentinel://")
    return lambda: Alone(OwnSource(lambda: connected(places[0])), make, fails_over=False)
