"""Time on Azure Blob is the service's: the client's clock, set right by each answer."""

from __future__ import annotations

import time
from collections.abc import Generator
from unittest.mock import patch

import pytest
from azblob_scene import new_container, opened, run
from azure.storage.blob import ContainerClient
from azurite_proxy import proxied

from agentstore.testing.scenes import heard, said, soon


@pytest.fixture
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


def test_a_session_expires_by_the_services_clock(container: ContainerClient) -> None:
    """A client whose clock is hours wrong neither revives nor ends a session early (B112)."""

    async def main() -> None:
        async with proxied() as proxy, opened(container.container_name, proxy.connection_string, ttl=3_600) as store:
            chat = store.session("s")
            await chat.append(said("a"))
            proxy.ahead = 3_000.0
            assert await heard(chat) == ["a"]
            proxy.ahead = 4_000.0
            await store.ping()
            assert await heard(chat) == []

    run(main())


def test_a_client_with_a_wrong_clock_goes_by_the_services(container: ContainerClient) -> None:
    """Two hours ahead, or behind: it reads what lives, and what it writes lives as long as it says (B25, B112)."""
    right = time.time_ns

    async def main() -> None:
        async with opened(container.container_name, ttl=3_600) as store:
            await store.session("s").append(said("a"))
        for hours in (2, -2):
            with patch("time.time_ns", lambda hours=hours: right() + hours * 3_600 * 10**9):
                async with opened(container.container_name, ttl=3_600) as store:
                    assert (await heard(store.session("s")))[0] == "a"
                    await store.session("s").append(said("b"))
                    info = await store.session("s").info()
            assert info
            assert info.expires_at
            assert abs((info.expires_at - soon(3_600)).total_seconds()) < 30
            assert abs((info.updated_at - soon(0)).total_seconds()) < 30

    run(main())
