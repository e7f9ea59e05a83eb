"""Azure Blob backend: `azblob://ACCOUNT/CONTAINER[/prefix]`, for histories without a database.

A session's log is an append blob, a turn one block of it, put there on the condition that nothing was written since
(see `docs/azure-blob.md`). Needs the extra `azure-blob`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from azure.storage.blob.aio import ContainerClient

import agentstore_azblob_catalog as catalog
import agentstore_azblob_layout as layout
import agentstore_azblob_stage as stage
import agentstore_azblob_writes as writes
from agentstore.backend import (
    Append,
    Limits,
    Readiness,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    StoredInfo,
    StoredRecord,
    StoredSnapshot,
    Written,
)
from agentstore.errors import ConfigurationError
from agentstore.keys import SessionKey
from agentstore.urls import StoreURL, parse_url, read_options
from agentstore_azblob_clients import Client, Clients
from agentstore_azblob_container import Clock
from agentstore_azblob_log import SessionLog
from agentstore_azblob_names import Names
from agentstore_azblob_options import AccountOptions, AzureBlobOptions, checked_prefix, source
from agentstore_azblob_reading import CHUNK, LITTLE
from agentstore_azblob_sessions import Session, View


class AzureBlobBackend:
    """The whole waist in a container of append blobs."""

    def __init__(
        self,
        url: str | StoreURL | None = None,
        *,
        container_client: ContainerClient | None = None,
        **options: Any,
    ) -> None:
        """A URL, or a `ContainerClient` of `azure.storage.blob.aio`, which is left open and belongs to the event loop
        of its first use.

        Options are those of `AccountOptions` for a URL, else of `AzureBlobOptions`. Raises `ConfigurationError`.
        """
        if (url is None) == (container_client is None):
            raise ConfigurationError("an AzureBlobBackend takes a URL or a container_client: one of them")
        parsed = url if isinstance(url, StoreURL) else parse_url(url or "azblob://")
        kind = AzureBlobOptions if url is None else AccountOptions
        self._options = read_options(kind, parsed, options)
        container, _, path = parsed.path.partition("/")
        prefix = checked_prefix(path, self._options.prefix)
        self._names = Names(prefix)
        self._clock = Clock()
        self._clients = self._made(parsed, container, container_client)
        self._prefix = prefix
        self.limits = Limits(self._options.max_message_bytes, self._options.max_append_bytes)

    @classmethod
    def from_url(cls, url: StoreURL, options: Mapping[str, Any]) -> AzureBlobBackend:
        """`azblob://ACCOUNT/CONTAINER[/prefix]`; options as in `AccountOptions`."""
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"AzureBlobBackend({self._place!r}, prefix={self._prefix!r})"

    async def readiness(self) -> Readiness:
        async with self._client() as client:
            return await layout.inspect(client.container, self._names)

    async def setup(self) -> None:
        async with self._client() as client:
            await layout.set_up(client.container, self._names)

    async def ping(self) -> None:
        async with self._client() as client:
            await layout.inspect(client.container, self._names)

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        async with self._log(key) as log:
            return await writes.append(log, append)

    async def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[StoredRecord]:
        async with self._log(key) as log:
            if newest and limit is not None and before is None:
                return await _read_newest(log, after, limit)
            if limit is not None and before is None:
                return await _read_forwards(log, after, limit)

            async def work(view: View) -> list[StoredRecord]:
                return await log.reader(view).read(after, before, limit, newest)

            return await log.read(work, [])

    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        async with self._log(key) as log:
            return await writes.truncate(log, after, before)

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        async with self._log(key) as log:
            return await writes.replace(log, replace)

    async def update(self, key: SessionKey, record: Record) -> bool:
        async with self._log(key) as log:
            return await writes.update(log, record)

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        async with self._log(key) as log:
            return await writes.remove_newest(log, seq, digest)

    async def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> bool:
        async with self._log(key) as log:
            return await stage.restore(log, pages, begin_ttl)

    async def info(self, key: SessionKey) -> StoredInfo | None:
        async with self._log(key) as log:
            return await catalog.info(log, key)

    async def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Sequence[StoredInfo]:
        async with self._client() as client:
            return await catalog.page(client, self._names, self._on(client), namespace, source_id, limit, start)

    async def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> bool:
        async with self._log(key) as log:
            return await writes.annotate(log, old, new, begin_ttl)

    async def expire(self, key: SessionKey, at: int | None) -> None:
        async with self._log(key) as log:
            await writes.expire(log, at)

    async def delete(self, key: SessionKey) -> bool:
        async with self._log(key) as log:
            return await catalog.delete(log)

    async def purge(self, namespace: str | None) -> int:
        async with self._client() as client:
            return await catalog.purge(client, self._names, self._on(client), namespace, self._clock.now())

    async def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> int | Refused:
        async with self._log(key) as log:
            return await writes.save_snapshot(log, snapshot, begin_ttl)

    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        async with self._log(key) as log:
            return await catalog.snapshot(log)

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client]:
        client = await self._clients.here()
        with client.busy():
            yield client

    @asynccontextmanager
    async def _log(self, key: SessionKey) -> AsyncGenerator[SessionLog]:
        async with self._client() as client:
            log = self._on(client)(key)
            yield log
            if log.wrote and stage.is_wasteful(log.session, self._options.rewrite_bytes):
                await log.left_over(stage.rewrite(log))

    def _on(self, client: Client) -> catalog.Open:
        options = self._options

        def opened(key: SessionKey) -> SessionLog:
            return SessionLog(
                client,
                key,
                self._names.root(key),
                self._clock,
                timeout=options.timeout,
                max_blocks=options.max_blocks,
            )

        return opened

    def _made(self, url: StoreURL, container: str, borrowed: ContainerClient | None) -> Clients:
        clock, timeout = self._clock, self._options.timeout
        if borrowed is not None:
            if not isinstance(borrowed, ContainerClient):
                raise ConfigurationError("container_client must be a ContainerClient of azure.storage.blob.aio")
            self._place = f"{borrowed.account_name}/{borrowed.container_name}"
            return Clients(
                lambda: Client(borrowed, None, clock, timeout, own=False), of="Azure Blob", borrowed="ContainerClient"
            )
        assert isinstance(self._options, AccountOptions)
        place = source(url, container, self._options)
        self._place = place.text
        return Clients(lambda: Client(*place.make(), clock, timeout, own=True), of="Azure Blob")


async def _read_newest(log: SessionLog, after: int, limit: int) -> list[StoredRecord]:
    """With one request, where the log's end is as dense as it was."""

    async def work(view: View) -> list[StoredRecord]:
        reader = log.reader(view)
        records = await reader.read(after, None, limit, True)
        log.session.density = reader.density
        return records

    return await log.read(work, [], _newest_bytes(log.session, limit))


async def _read_forwards(log: SessionLog, after: int, limit: int) -> list[StoredRecord]:
    """With few requests, where the page before was read just now."""

    async def work(view: View) -> list[StoredRecord]:
        records, log.session.page = await log.reader(view).forwards(after, limit, log.session.page)
        return records

    return await log.read(work, [])


def _newest_bytes(session: Session, limit: int) -> int:
    """About how much of the log's end the newest records take."""
    state = session.view.state if session.view else None
    return min(CHUNK, limit * (session.density or state.density) + LITTLE) if state else 0
