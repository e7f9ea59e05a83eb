"""A cluster of three masters with replicas: every sentence of the contract."""

from __future__ import annotations

from redis_groups import cluster_url
from test_redis_backend import OnAPrefix


class TestOnACluster(OnAPrefix):
    def server(self) -> str:
        return cluster_url()
