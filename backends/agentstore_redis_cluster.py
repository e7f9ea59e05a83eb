"""A cluster: which master has a key now, and connections to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, Connection
from redis.crc import key_slot
from redis.exceptions import ConnectionError as NoConnectionError
from redis.exceptions import SlotNotCoveredError

from agentstore_redis_errors import DRIVER_ERRORS, NotSentError
from agentstore_redis_lanes import Server, Source
from agentstore_redis_options import Address
from agentstore_redis_sources import OwnSource

SAMPLE = 5
"""So many nodes are asked at once who has what; the first answer counts."""


class Map(Protocol):
    """Knows the masters of a cluster."""

    async def find(self) -> Mapping[int, Address]:
        """The master of each slot. Raises redis-py's errors."""
        ...

    def source(self, master: Address) -> Source:
        """Connections to it."""
        ...


class Cluster:
    """The masters of a cluster, each with its lanes."""

    fails_over = is_cluster = True

    def __init__(self, nodes: Map, make: Callable[[Source], Server]) -> None:
        self._nodes = nodes
        self._make = make
        self._masters: Mapping[int, Address] = {}
        self._servers: dict[Address, Server] = {}
        self._closing: set[asyncio.Future[None]] = set()
        self._finding = asyncio.Lock()
        self._found = 0

    @property
    def opened(self) -> bool:
        return bool(self._masters)

    async def open(self) -> None:
        if not self._masters:
            try:
                await self._find()
            except DRIVER_ERRORS as error:
                raise NotSentError from error

    def of(self, key: bytes) -> Server:
        slot = key_slot(key)
        if slot not in self._masters:
            raise SlotNotCoveredError(f"no server has slot {slot}")
        return self._server(self._masters[slot])

    def at(self, host: str, port: int) -> Server | None:
        return self._server((host, port)) if host else None

    def all(self) -> Sequence[Server]:
        return [self._server(master) for master in dict.fromkeys(self._masters.values())]

    async def renew(self) -> None:
        with suppress(*DRIVER_ERRORS):  # the next try fails too, and tells why
            await self._find()

    async def close(self) -> None:
        await asyncio.gather(*self._closing, *[server.close() for server in self._servers.values()])

    async def _find(self) -> None:
        """What one call finds, all take that wait for it."""
        found = self._found
        async with self._finding:
            if found == self._found:
                self._masters = await self._nodes.find()
                self._found += 1
        for gone in set(self._servers).difference(self._masters.values()):
            self._closing.add(closing := asyncio.ensure_future(self._servers.pop(gone).close()))
            closing.add_done_callback(self._closing.discard)

    def _server(self, master: Address) -> Server:
        if master not in self._servers:
            self._servers[master] = self._make(self._nodes.source(master))
        return self._servers[master]


class OwnMap:
    """Asks the nodes that it knows, over connections of ours."""

    def __init__(
        self, seeds: Sequence[Address], connect: Callable[[Address], Awaitable[Connection]], timeout: float
    ) -> None:
        """`timeout`: seconds that a node has to answer."""
        self._known = list(seeds)
        self._seeds = seeds
        self._connect = connect
        self._timeout = timeout

    async def find(self) -> Mapping[int, Address]:
        asked = random.sample(self._known, min(SAMPLE, len(self._known)))
        tasks = [asyncio.ensure_future(asyncio.wait_for(self._ask(node), self._timeout)) for node in asked]
        try:
            return await _first(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def source(self, master: Address) -> Source:
        return OwnSource(lambda: self._connect(master))

    async def _ask(self, node: Address) -> Mapping[int, Address]:
        connection = await self._connect(node)
        try:
            await connection.send_command("CLUSTER", "SLOTS")
            shares = await connection.read_response(disable_decoding=True)
        finally:
            await connection.disconnect(nowait=True)
        if not shares:
            raise NoConnectionError("the server is in no cluster yet")
        self._known = list(
            dict.fromkeys([*self._seeds, *[_address(place, node) for share in shares for place in share[2:]]])
        )
        return {slot: _address(share[2], node) for share in shares for slot in range(share[0], share[1] + 1)}


class BorrowedMap:
    """What the cluster client that was handed in knows, over its own connections."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        self._asked = False

    async def find(self) -> Mapping[int, Address]:
        manager = self._client.nodes_manager
        if self._asked:
            await manager.initialize()
        else:
            await self._client.initialize()  # else its owner could not close it
            self._asked = True
        return {slot: (nodes[0].host, int(nodes[0].port)) for slot, nodes in manager.slots_cache.items() if nodes}

    def source(self, master: Address) -> Source:
        return NodeSource(self._client, master)


class NodeSource:
    """Connections of one node of redis-py's cluster client."""

    keeps = False

    def __init__(self, client: RedisCluster, address: Address) -> None:
        self._client = client
        self._address = address
        self._nodes: dict[AbstractConnection, ClusterNode] = {}

    async def connect(self) -> AbstractConnection:
        node = self._client.get_node(*self._address)
        if node is None:
            raise NoConnectionError("the server is no longer in the cluster")
        connection = node.acquire_connection()
        self._nodes[connection] = node
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            if await connection.can_read():  # it was closed while it was idle
                await connection.disconnect(nowait=True)
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await self.release(connection, broken=True)
            raise
        return connection

    async def release(self, connection: AbstractConnection, *, broken: bool) -> None:
        node = self._nodes.pop(connection)
        try:
            if broken or self._client.get_node(*self._address) is not node:  # else nobody closes it
                await connection.disconnect(nowait=True)
        finally:
            node.release(connection)  # type: ignore[arg-type]


async def _first(tasks: Sequence[asyncio.Task[Mapping[int, Address]]]) -> Mapping[int, Address]:
    """The first answer; the last error where there is none."""
    for answer in asyncio.as_completed(tasks):
        with suppress(*DRIVER_ERRORS):
            return await answer
    return await tasks[-1]


def _address(place: Sequence[Any], asked: Address) -> Address:
    """A node's address as a node tells it; its own host, or one that it does not know, it leaves out."""
    host, port = place[:2]
    return (asked[0] if host in (None, b"", b"?") else host.decode()), port
