"""What a crash, a full memory or a lost machine costs on a Redis server with these settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from agentstore.backend import Finding
from agentstore.errors import AgentStoreError
from agentstore_redis_calls import Calls

ASKED = (b"appendonly", b"appendfsync", b"save", b"maxmemory", b"maxmemory-policy", b"min-replicas-to-write")
"""Settings that `CONFIG GET` is asked for."""
LAGGING = 10
"""Seconds after which a replica counts as behind."""
NEARLY_FULL = 0.9

_APPENDING = {
    "always": Finding(
        "ok", "Every acknowledged turn is on the server's disk: a crash or a power cut loses none (appendfsync always)."
    ),
    "everysec": Finding(
        "warning",
        "A crash of the server's machine loses the turns of the last second or two, although they were acknowledged"
        " (appendfsync everysec). To lose none, set appendfsync always.",
    ),
    "no": Finding(
        "warning",
        "A power cut loses the turns of about the last half minute, although they were acknowledged (appendfsync no)."
        " To lose none, set appendfsync always.",
    ),
}
_NOTHING = Finding(
    "warning",
    "Nothing is written to disk: a restart or a crash of the server loses every conversation. Set appendonly yes.",
)
_UNKNOWN_DISK = Finding(
    "warning",
    "The server does not tell how often it writes to disk (CONFIG GET is refused), so what a crash costs is not known."
    " Whoever runs it can look at appendonly, appendfsync and save.",
)


class Node(msgspec.Struct, frozen=True):
    """What one server tells of itself; a mapping is empty where it was refused."""

    config: Mapping[str, str]
    info: Mapping[str, str]

    def setting(self, name: str, in_info: str = "") -> str | None:
        """A setting, from wherever the server tells it; `None`: from nowhere."""
        return self.config.get(name, self.info.get(in_info))


async def check(calls: Calls) -> list[Finding]:
    """What the answers of all masters mean; what several of them say is said once."""
    infos = await _told(calls, b"INFO")
    # One by one: before Redis 7 it takes one name, and a pattern would fetch passwords too.
    settings = [await _told(calls, b"CONFIG", b"GET", name) for name in ASKED]
    count = max(map(len, (infos, *settings)))
    configs = [[pair for answers in settings for pair in answers[at : at + 1]] for at in range(count)]
    nodes = [_node(*answers) for answers in zip(infos or [b""] * count, configs, strict=True)] or [Node({}, {})]
    return list(dict.fromkeys([finding for node in nodes for finding in findings(node)]))


async def _told(calls: Calls, *words: bytes) -> list[Any]:
    """The answers; none where the user, or the service, does not allow the command."""
    try:
        answers = await calls.everywhere(*words)
    except AgentStoreError as error:
        if not isinstance(error.__cause__, ResponseError):
            raise
        return []
    # A client of RESP3 gives a mapping.
    return [[part for pair in a.items() for part in pair] if isinstance(a, dict) else a for a in answers]


def _node(info: bytes, settings: list[list[bytes]]) -> Node:
    lines = [line.partition(":") for line in info.decode("utf-8", "replace").splitlines()]
    return Node(
        config={name.decode(): value.decode() for name, value in filter(None, settings)},
        info={name: value for name, colon, value in lines if colon},
    )


def findings(node: Node) -> Iterator[Finding]:
    """What the node's answers mean for conversations."""
    yield from _failing(node)
    yield _crash(node)
    yield from _full_memory(node)
    yield from _lost_machine(node)


def _failing(node: Node) -> Iterator[Finding]:
    if node.info.get("role") == "slave":
        yield Finding("error", "This server is a replica: it refuses every write. Name the master in the URL.")
    for what in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if node.info.get(what, "ok") != "ok":
            yield Finding(
                "error", f"The server could not write to its disk the last time it tried ({what}): is the disk full?"
            )


def _crash(node: Node) -> Finding:
    appends = {"1": "yes", "0": "no"}.get(node.info.get("aof_enabled", ""), node.config.get("appendonly"))
    if appends == "yes":
        return _APPENDING.get(node.config.get("appendfsync", ""), _UNKNOWN_DISK)
    if appends is None or "save" not in node.config:
        return _UNKNOWN_DISK
    seconds = [int(number) for number in node.config["save"].split()[::2]]
    if not seconds:
        return _NOTHING
    return Finding(
        "warning",
        f"A crash loses what was said since the server last saved everything: up to {max(seconds) // 60} minutes of"
        " turns, although they were acknowledged. Set appendonly yes.",
    )


def _full_memory(node: Node) -> Iterator[Finding]:
    limit, policy = node.setting("maxmemory", "maxmemory"), node.setting("maxmemory-policy", "maxmemory_policy")
    if limit is None or policy is None:
        yield Finding("warning", "The server does not tell what it does when its memory is full (INFO is refused).")
        return
    if policy != "noeviction":
        yield Finding("warning", _evicting(policy, int(limit)))
    elif limit == "0":
        yield Finding(
            "warning",
            "The server has no memory limit: when the machine's memory is full, the system may kill it, which is a"
            " crash. Set maxmemory below what the machine has; writes then fail with an error instead.",
        )
    else:
        yield Finding("ok", "When the server's memory is full, writes fail with an error and nothing is lost.")
    used = int(node.info.get("used_memory", "0"))
    if limit != "0" and policy == "noeviction" and used > int(limit) * NEARLY_FULL:
        full = used >= int(limit)
        yield Finding(
            "error" if full else "warning", f"The server uses {used * 100 // int(limit)} % of the memory it may use."
        )


def _evicting(policy: str, limit: int) -> str:
    whose = "conversations that have an expiry" if policy.startswith("volatile-") else "conversations"
    when = (
        f"When its {limit / 2**20:,.0f} MiB are full" if limit else "Once it is given a memory limit and that is full"
    )
    return (
        f"{when}, the server silently deletes {whose}, whole or in parts, to make room for new ones"
        f" (maxmemory-policy {policy}): nobody gets an error, the history is just gone. Set it to noeviction."
    )


def _lost_machine(node: Node) -> Iterator[Finding]:
    replicas = [value for name, value in node.info.items() if name.startswith("slave") and name[5:].isdigit()]
    if not replicas:
        if node.info.get("cluster_enabled") == "1":
            yield Finding(
                "warning",
                "A server has no replica: while it is down, its conversations can neither be read nor added to.",
            )
        return
    if node.setting("min-replicas-to-write", "min_slaves_to_write") in (None, "0"):
        yield Finding(
            "warning",
            "A turn is acknowledged before a replica has it: when a replica takes over from a lost server, the turns of"
            " the last moments may be gone. With min-replicas-to-write 1 the server refuses writes when no replica"
            " keeps up.",
        )
    behind = max(_lag(replica) for replica in replicas)
    if behind > LAGGING:
        yield Finding(
            "warning", f"A replica is {behind} s behind: if it had to take over now, those turns would be gone."
        )


def _lag(replica: str) -> int:
    fields = dict(field.partition("=")[::2] for field in replica.split(","))
    return int(fields.get("lag", "0"))
