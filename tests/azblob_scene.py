"""What the tests of the Azure Blob backend share: containers, sessions through a proxy, and the blobs behind them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from azure.storage.blob import BlobServiceClient, ContainerClient
from azurite_proxy import Proxy, proxied
from azurite_server import connection_string

from agentstore import HistoryStore, Message, SessionHistory
from agentstore.testing.scenes import said
from agentstore_azblob import AzureBlobBackend

SCENE_SECONDS = 120.0
STORE_OPTIONS = {"namespace", "ttl", "auto_setup", "on_corrupt"}


def run(work: Coroutine[Any, Any, None]) -> None:
    """A scene that ends or has hung."""
    asyncio.run(asyncio.wait_for(work, SCENE_SECONDS))


@contextmanager
def new_container() -> Generator[ContainerClient]:
    """A container of its own, by the raw SDK; gone afterwards."""
    with BlobServiceClient.from_connection_string(connection_string()) as service:
        container = service.create_container(f"t-{uuid4().hex}")
        try:
            yield container
        finally:
            container.delete_container()


def backend(container: str, connection: str | None = None, **options: Any) -> AzureBlobBackend:
    """A backend on the container, by the account's connection string or another one."""
    with patch.dict(os.environ, {"AZURE_STORAGE_CONNECTION_STRING": connection or connection_string()}):
        return AzureBlobBackend(f"azblob://{account()}/{container}", **options)


def account() -> str:
    """The name of the account of this run."""
    return connection_string().partition("AccountName=")[2].partition(";")[0]


@asynccontextmanager
async def opened(container: str, connection: str | None = None, **options: Any) -> AsyncGenerator[HistoryStore]:
    """A store on the container, with options of its own or of its backend."""
    ours = {name: options.pop(name) for name in STORE_OPTIONS & set(options)}
    async with HistoryStore(backend(container, connection, **options), **ours) as store:
        yield store


@asynccontextmanager
async def several(count: int, container: str, **options: Any) -> AsyncGenerator[list[SessionHistory]]:
    """One new session as so many processes see it: each through a store with caches of its own."""
    session = uuid4().hex
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(container, **options)) for _ in range(count)]
        yield [store.session(session) for store in stores]


@asynccontextmanager
async def proxied_chat(container: str, **options: Any) -> AsyncGenerator[tuple[Proxy, SessionHistory]]:
    """A new session behind a proxy, whose store has written and read once."""
    async with proxied() as proxy, opened(container, proxy.connection_string, **options) as store:
        chat = store.session(uuid4().hex)
        await chat.append(said("first"))
        await chat.messages(limit=1)
        yield proxy, chat


async def cost(proxy: Proxy, call: Callable[[], Any]) -> list[str]:
    """The requests that a call makes."""
    before = len(proxy.requests)
    await call()
    return proxy.last(before)


def turn(number: int, size: int = 4) -> list[Message]:
    """A turn of so many messages that says its number in each."""
    return said(*[f"{number}.{part}" for part in range(size)])


def blobs(container: ContainerClient) -> list[str]:
    """The names of all blobs but the layout's."""
    return [blob.name for blob in container.list_blobs() if not blob.name.endswith("layout")]
