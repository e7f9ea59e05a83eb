"""A user who lacks a right, a server without a command: a write that fails for it leaves everything as it was."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from redis_scenes import Work, own_server, run
from redis_server import LocalServer, eventually, local_server, valkey

from agentstore import (
    AgentStoreError,
    ConfigurationError,
    Message,
    SessionHistory,
    UnavailableError,
    open_store,
)
from agentstore.testing.scenes import named, said

COMMANDS = ("hset", "hdel", "rpush", "rpop", "lset", "ltrim", "unlink", "persist", "pexpireat", "rename")
WRITES: dict[str, Work] = {
    "append": lambda chat: chat.append([named("new", "new"), *said("more")]),
    "append at a place": lambda chat: chat.append(said("new"), expected_last=4, snapshot={"b": 2}),
    "pop": lambda chat: chat.pop(),
    "update": lambda chat: chat.update(named("second", "changed")),
    "replace": lambda chat: chat.replace([named("first", "first"), *said("new")]),
    "truncate": lambda chat: chat.truncate(after=2),
    "trim": lambda chat: chat.truncate(before=3),
    "clear": lambda chat: chat.clear(),
    "annotate": lambda chat: chat.annotate({"a": 2}),
    "save": lambda chat: chat.save_snapshot({"a": 2}),
    "never expire": lambda chat: chat.expire(None),
}


@contextmanager
def _hindered(server: LocalServer, command: str) -> Generator[str]:
    """The URL of a user who may do all but that."""
    name = f"without-{uuid4().hex}"
    server.command("ACL", "SETUSER", name, "on", f">{name}", "~*", "+@all", f"-{command}")
    yield server.url.replace("//", f"//{name}:{name}@")
    server.command("ACL", "DELUSER", name)


async def _begun(chat: SessionHistory) -> None:
    texts = ("first", "second", "third", "fourth")
    await chat.append([named(text, text) for text in texts], snapshot={"a": 1})
    await chat.annotate({"a": 1})


async def _seen(chat: SessionHistory) -> tuple[Any, ...]:
    info, snapshot = await chat.info(), await chat.load_snapshot()
    assert info
    assert snapshot
    return await chat.messages(), info.count, info.last_seq, info.bytes, info.metadata, snapshot


@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_without_one_of_its_commands_changes_nothing(command: str) -> None:
    """Whichever command a user may not run: a write that fails leaves messages, snapshot and metadata as they were,
    and with the right it is made whole.
    """
    server = local_server()

    async def main(hindered: str) -> None:
        namespace = uuid4().hex
        async with (
            open_store(hindered, namespace=namespace) as poor,
            open_store(server.url, namespace=namespace) as rich,
        ):
            for name, write in WRITES.items():
                chat, twin = rich.session(name), rich.session(f"twin of {name}")
                await _begun(chat)
                await _begun(twin)
                before = await _seen(chat)
                try:
                    await write(poor.session(name))
                except AgentStoreError:
                    assert await _seen(chat) == before, name
                    await write(chat)
                await write(twin)
                assert _texts((await _seen(chat))[0]) == _texts((await _seen(twin))[0]), name
                again = await chat.append([named("new", "new")], expected_last=None)
                assert again.seqs == (await twin.append([named("new", "new")])).seqs, name
            await rich.delete_namespace(namespace)

    with _hindered(server, command) as url:
        run(main(url))


def _texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


class _Without(LocalServer):
    """A server without a command."""

    lacking = "none"

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--rename-command", self.lacking, ""]


@pytest.mark.parametrize("command", ["rpush", "evalsha", "time", "zadd"])
def test_a_server_without_a_command_is_a_clear_error(command: str) -> None:
    """`rename-command` took away what is needed: `ConfigurationError`, and nothing of the turn is seen."""

    async def main(url: str) -> None:
        async with open_store(url, timeout=2) as store:
            with pytest.raises(ConfigurationError, match="commands"):
                await store.session("s").append(said("a"))

    server = _Without(valkey())
    server.lacking = command
    server.start()
    run(main(server.url))
    assert server.command("KEYS", "*}:[sm]") == []
    server.remove()


def test_a_replica_says_that_it_is_one() -> None:
    """A write that a replica refused all the time did not happen, and the error says why."""
    master = local_server()
    with own_server(replicaof=f"127.0.0.1 {master.port}") as replica:
        eventually(lambda: replica.info("replication")["master_link_status"] == "up", "no replica")

        async def main() -> None:
            async with open_store(replica.url, timeout=0.5) as store:
                with pytest.raises(UnavailableError, match="replica") as caught:
                    await store.session("s").save_snapshot({"a": 1})
                assert not caught.value.maybe_done

        run(main())
