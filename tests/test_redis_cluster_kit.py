"""A cluster of three masters with replicas: every sentence of the contract."""

from __future__ import annotations

from contextlib import AbstractContextManager

from redis_groups import cluster_url
from test_redis_backend import OnAPrefix

from agentstore.testing.scenes import Cost


class TestOnACluster(OnAPrefix):
    def server(self) -> str:
        return cluster_url()

    def count_cost(self) -> AbstractContextManager[Cost] | None:
        return None  # counted on one server: the scripts are the same
