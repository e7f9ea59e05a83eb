"""Debian's Redis 7.0, as a user who may do only what docs/redis.md grants: every sentence of the contract."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from redis_server import debian_server, debian_server_url, unlink
from test_redis_backend import OnAPrefix

from agentstore import ConfigurationError, open_store
from agentstore_redis import RedisBackend
from agentstore_redis_options import ServerOptions

DOCUMENT = Path(__file__).parents[1] / "docs" / "redis.md"


def documented() -> tuple[str, str, list[str]]:
    """The user of the document, its password, and the command that makes it."""
    (command,) = re.findall(r"^ACL SETUSER .*?(?=^```)", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    ((user, password),) = re.findall(r"SETUSER (\S+) on >(\S+)", command)
    return user, password, command.split()


@cache
def users_url() -> str:
    """Debian's server, as the document's user."""
    user, password, command = documented()
    debian_server().command(*command)
    return debian_server_url().replace("//", f"//{user}:{password}@")


class TestOnDebiansRedisAsTheDocumentsUser(OnAPrefix):
    """Its names begin as the pattern of the document's user says."""

    def server(self) -> str:
        return debian_server_url()

    @pytest.fixture(autouse=True)
    def _prefix(self) -> Generator[None]:
        self.prefix = f"agentstore:1:kit-{uuid4().hex}"
        yield
        unlink(self.server(), self.prefix)

    async def open_backend(self) -> RedisBackend:
        return RedisBackend(users_url(), prefix=self.prefix)

    async def reopen_backend(self) -> RedisBackend:
        return RedisBackend(users_url(), prefix=self.prefix)

    def backend_url(self) -> str:
        return f"{users_url()}?prefix={self.prefix}"


def test_a_user_without_a_right_is_told_which_document_to_read() -> None:
    """`ConfigurationError`, and nothing was written."""
    server = debian_server()
    server.command("ACL", "SETUSER", "poor", "on", ">pass", "~agentstore:*", "-@all", "+get", "+ping")

    async def main() -> None:
        async with open_store(server.url.replace("//", "//poor:pass@"), namespace=f"poor-{uuid4().hex}") as store:
            with pytest.raises(ConfigurationError, match=r"docs/redis\.md"):
                await store.session("s").annotate({"a": 1})

    asyncio.run(main())


def test_every_option_is_documented() -> None:
    """The table of docs/redis.md names what the backend knows, and nothing else."""
    table = DOCUMENT.read_text().partition("| option |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(ServerOptions.__struct_fields__)
