"""Several Redis servers that belong together: a cluster, and a master with its replica and sentinels."""

from __future__ import annotations

import atexit
import os
from functools import cache
from pathlib import Path

from redis_server import LocalServer, eventually, valkey
from servers import free_port, skip_if_named

CLUSTER_VARIABLE = "AGENTSTORE_TEST_REDIS_CLUSTER_URL"
SLOTS = 16384

_QUICK_REPLICAS = {"repl-ping-replica-period": "1"}


@cache
def cluster_url() -> str:
    """The URL of a cluster of three masters, each with a replica; skips or fails without."""
    skip_if_named("redis")
    return os.environ.get(CLUSTER_VARIABLE) or local_cluster().url


@cache
def local_cluster() -> LocalCluster:
    """A cluster of this process, whose nodes stay as they are: what stops or moves something makes its own."""
    cluster = LocalCluster(valkey())
    atexit.register(cluster.remove)
    cluster.start()
    return cluster


class LocalSentinel(LocalServer):
    """Watches a master under the name `chat`, and puts a replica in its place when it is gone for a second."""

    def __init__(self, program: Path, master: LocalServer, *, quorum: int = 1) -> None:
        super().__init__(program)
        self._config = self.folder / "sentinel.conf"
        self._config.write_text(
            f"sentinel monitor chat 127.0.0.1 {master.port} {quorum}\n"
            "sentinel down-after-milliseconds chat 1000\n"
            "sentinel failover-timeout chat 5000\n"
        )

    def _arguments(self) -> list[str]:
        where = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder))
        return [str(self._config), *where, "--sentinel"]


class LocalSet:
    """A master, its replica, and three sentinels that watch them."""

    def __init__(self, program: Path) -> None:
        self.master = LocalServer(program)
        self.replica = LocalServer(program, {"replicaof": f"127.0.0.1 {self.master.port}", **_QUICK_REPLICAS})
        self.sentinels = [LocalSentinel(program, self.master, quorum=2) for _ in range(3)]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{_addresses(self.sentinels)}/chat"

    def start(self) -> None:
        """Start all, and wait until each knows the others."""
        for server in (self.master, self.replica):
            server.start()
        eventually(lambda: self.replica.info("replication")["master_link_status"] == "up", "no replica")
        for sentinel in self.sentinels:
            sentinel.start()
        eventually(lambda: all(map(self._sees_all, self.sentinels)), "the sentinels did not meet")

    def remove(self) -> None:
        for server in (*self.sentinels, self.replica, self.master):
            server.remove()

    def _sees_all(self, sentinel: LocalSentinel) -> bool:
        answer = sentinel.command("SENTINEL", "MASTER", "chat")
        master = dict(zip(answer[::2], answer[1::2], strict=True))
        return master["num-other-sentinels"] == str(len(self.sentinels) - 1) and master["num-slaves"] == "1"


class LocalCluster:
    """Three masters with a replica each; `nodes` has the masters first, then their replicas in the same order."""

    def __init__(self, program: Path, *, node_timeout: int = 5000, **settings: str) -> None:
        common = {"cluster-enabled": "yes", "cluster-node-timeout": str(node_timeout), **_QUICK_REPLICAS}
        common |= {name.replace("_", "-"): value for name, value in settings.items()}
        buses = [str(free_port()) for _ in range(6)]
        self.nodes = [LocalServer(program, {**common, "cluster-port": bus}) for bus in buses]
        self._buses = buses

    @property
    def masters(self) -> list[LocalServer]:
        """Those that were masters at the start."""
        return self.nodes[:3]

    @property
    def url(self) -> str:
        return f"redis+cluster://{_addresses(self.masters)}"

    def start(self) -> None:
        """Start all, share the slots out, and wait until every node knows it."""
        for node in self.nodes:
            node.start()
        for number, master in enumerate(self.masters):
            first, end = (SLOTS * part // 3 for part in (number, number + 1))
            master.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            master.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
            self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        eventually(lambda: all(map(self._met_all, self.nodes)), "the nodes did not meet")
        for master, replica in zip(self.masters, self.nodes[3:], strict=True):
            replica.command("CLUSTER", "REPLICATE", master.command("CLUSTER", "MYID"))
        eventually(lambda: all(map(self._complete, self.nodes)), "the cluster did not form")

    def owner(self, slot: int) -> LocalServer:
        """The node that serves the slot, as the first node that runs sees it."""
        ports = {node.port: node for node in self.nodes}
        for first, last, master, *_ in self._asked().command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return ports[master[1]]
        raise LookupError(f"nobody serves slot {slot}")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def _asked(self) -> LocalServer:
        return next(node for node in self.nodes if node.running)

    def _met_all(self, node: LocalServer) -> bool:
        return node.info("cluster")["cluster_known_nodes"] == str(len(self.nodes))

    def _complete(self, node: LocalServer) -> bool:
        shares = [len(nodes) for _, _, *nodes in node.command("CLUSTER", "SLOTS")]
        return node.info("cluster")["cluster_state"] == "ok" and shares == [2, 2, 2]


def _addresses(servers: list[LocalServer] | list[LocalSentinel]) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)
