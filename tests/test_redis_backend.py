"""The Redis backend keeps every sentence of the contract, on Valkey."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
import redis
from redis_server import masters, server_url, unlink

from agentstore.testing import BackendConformance
from agentstore.testing.scenes import Cost
from agentstore_redis import RedisBackend
from agentstore_redis_lanes import Lane


class OnAPrefix(BackendConformance):
    """The kit, each sentence under a prefix of its own."""

    def server(self) -> str:
        return server_url()

    @pytest.fixture(autouse=True)
    def _prefix(self) -> Generator[None]:
        self.prefix = f"kit-{uuid4().hex}"
        yield
        unlink(self.server(), f"{self.prefix}:")

    async def open_backend(self) -> RedisBackend:
        return RedisBackend(self.server(), prefix=self.prefix)

    async def reopen_backend(self) -> RedisBackend:
        return RedisBackend(self.server(), prefix=self.prefix)

    def backend_url(self) -> str:
        return f"{self.server()}?prefix={self.prefix}"

    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        """Requests, and commands that the servers ran, those of scripts too, by their own statistics."""
        requests = 0
        ask = Lane.ask

        def counted(lane: Lane, *args: Any) -> None:
            nonlocal requests
            requests += 1
            ask(lane, *args)

        with ExitStack() as opened:
            clients = [opened.enter_context(redis.Redis.from_url(master)) for master in masters(self.server())]
            opened.enter_context(patch.object(Lane, "ask", counted))
            yield lambda: {"requests": requests, "commands": sum(map(_commands, clients))}


class TestRedisBackend(OnAPrefix):
    """One server."""


def _commands(client: Any) -> int:
    """How many commands ran, but for those by which this is asked, and what servers say to each other."""
    counted = client.info("commandstats").items()
    others = ("cmdstat_info", "cmdstat_client|setinfo", "cmdstat_cluster|slots", "cmdstat_ping", "cmdstat_replconf")
    return sum(stats["calls"] for name, stats in counted if name not in others)
