"""`check` on Redis: what a crash, a full memory or a lost machine costs, as the server is set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from redis_groups import cluster_url
from redis_server import LocalServer, debian_server, eventually, started, valkey

from agentstore import open_store
from agentstore.backend import Finding
from agentstore_redis_check import Node, findings

SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory": "100000000", "maxmemory-policy": "noeviction"}


def checked(url: str) -> list[Finding]:
    async def main() -> list[Finding]:
        async with open_store(url) as store:
            return await store.check()

    return asyncio.run(main())


def levels(found: Sequence[Finding]) -> set[str]:
    return {finding.level for finding in found}


def said_of(config: dict[str, str], info: dict[str, str] | None = None) -> list[Finding]:
    return list(findings(Node(config=config, info={"role": "master", "used_memory": "1000", **(info or {})})))


def test_a_server_that_loses_nothing_is_all_right() -> None:
    """Append-only file, always synced, and no eviction: nothing to warn of."""
    server = started(valkey(), appendonly="yes", appendfsync="always", maxmemory="100mb")
    assert levels(checked(server.url)) == {"ok"}
    server.remove()


def test_debians_default_settings_are_put_in_words() -> None:
    """Snapshots now and then, no memory limit: what is lost, and what to set."""
    server = started(debian_server().program, appendonly="no", save="3600 1 300 100 60 10000")
    found = checked(server.url)
    server.remove()
    assert levels(found) == {"warning"}
    assert any("up to 60 minutes" in finding.text and "appendonly" in finding.text for finding in found)
    assert any("no memory limit" in finding.text for finding in found)


@pytest.mark.parametrize(
    ("config", "level", "words"),
    [
        ({}, "ok", "loses none"),
        ({"appendfsync": "everysec"}, "warning", "last second or two"),
        ({"appendfsync": "no"}, "warning", "half minute"),
        ({"appendonly": "no", "save": ""}, "warning", "loses every conversation"),
        ({"appendonly": "no", "save": "900 1"}, "warning", "up to 15 minutes"),
        ({}, "ok", "writes fail with an error and nothing is lost"),
        ({"maxmemory": "0"}, "warning", "no memory limit"),
        ({"maxmemory-policy": "allkeys-lru"}, "warning", "silently deletes conversations, whole or in parts"),
        ({"maxmemory-policy": "volatile-ttl"}, "warning", "conversations that have an expiry"),
        ({"maxmemory-policy": "allkeys-lfu", "maxmemory": "0"}, "warning", "silently deletes"),
    ],
)
def test_settings_are_put_in_words(config: dict[str, str], level: str, words: str) -> None:
    """Each setting that costs something is one finding that says what it costs."""
    (finding,) = [finding for finding in said_of({**SAFE, **config}) if words in finding.text]
    assert finding.level == level


@pytest.mark.parametrize(
    ("info", "level", "words"),
    [
        ({"role": "slave"}, "error", "is a replica"),
        ({"aof_last_write_status": "err"}, "error", "could not write to its disk"),
        ({"rdb_last_bgsave_status": "err"}, "error", "could not write to its disk"),
        ({"used_memory": "95000000"}, "warning", "95 %"),
        ({"used_memory": "100000001"}, "error", "100 %"),
        ({"slave0": "ip=1.2.3.4,port=1,state=online,offset=5,lag=60"}, "warning", "60 s behind"),
        ({"slave0": "ip=1.2.3.4,port=1,state=online,offset=5,lag=0"}, "warning", "before a replica has it"),
    ],
)
def test_what_goes_wrong_now_is_put_in_words(info: dict[str, str], level: str, words: str) -> None:
    """Writes that fail now are errors; a replica that is behind is a warning."""
    (finding,) = [finding for finding in said_of(SAFE, info) if words in finding.text]
    assert finding.level == level


def test_a_cluster_is_checked_as_a_whole() -> None:
    """Every master is asked, and what all say is said once."""
    found = checked(cluster_url())
    assert len({finding.text for finding in found}) == len(found)
    assert any("before a replica has it" in finding.text for finding in found)
    assert not any("has no replica" in finding.text for finding in found)
    assert "has no replica" in said_of(SAFE, {"cluster_enabled": "1"})[-1].text


def _restricted(server: LocalServer, *rules: str) -> str:
    server.command("ACL", "SETUSER", "app", "reset", "on", ">pass", "~*", "+@all", *rules)
    return server.url.replace("//", "//app:pass@")


def test_a_server_that_does_not_tell_is_said_so() -> None:
    """CONFIG refused, as by managed services: INFO tells what it can; both refused: that is the finding."""
    server = started(valkey(), maxmemory="100mb", maxmemory_policy="allkeys-lru")
    found = checked(_restricted(server, "-config"))
    assert any("CONFIG GET is refused" in finding.text for finding in found)
    assert any("silently deletes" in finding.text for finding in found)
    found = checked(_restricted(server, "-config", "-info"))
    assert any("INFO is refused" in finding.text for finding in found)
    assert levels(found) == {"warning"}
    assert server.command("DBSIZE") == 0  # it reads only
    server.remove()


def test_a_full_server_is_an_error() -> None:
    """Its memory is full: writes fail now."""
    server = started(valkey(), maxmemory="3mb")
    server.command("CONFIG", "SET", "maxmemory", "100000")
    eventually(lambda: "error" in levels(checked(server.url)), "nothing was said")
    server.remove()
