"""The bar for Azure Blob: the SDK, doing bare block appends and ranged downloads; what one writes by hand.

A turn is one block of JSON lines. Nothing is compared, no position is stated, and the place of the newest messages is
remembered, not looked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from unittest.mock import patch
from uuid import uuid4

import msgspec
from azure.storage.blob.aio import BlobClient, BlobServiceClient
from azurite_server import ACCOUNT, connection_string

from agentstore import HistoryStore, open_store
from benchmarks.sample import Shape, shapes

_encode = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder().decode_lines

CONTAINER = f"bench-{uuid4().hex[:8]}"
"""A new one for the raw blobs and for ours, on the tests' service."""


def our_store(connection: str) -> HistoryStore:
    """Ours, on the account of a connection string."""
    with patch.dict(os.environ, {"AZURE_STORAGE_CONNECTION_STRING": connection}):
        return open_store(f"azblob://{ACCOUNT}/{CONTAINER}")


class RawBlob:
    """One append blob."""

    def __init__(self, service: BlobServiceClient, blob: BlobClient) -> None:
        self._service = service
        self._blob = blob
        self._ends: list[int] = [0]
        """Where each message ends."""

    @classmethod
    async def create(cls) -> RawBlob:
        service = BlobServiceClient.from_connection_string(connection_string())
        container = service.get_container_client(CONTAINER)
        if not await container.exists():
            await container.create_container()
        blob = container.get_blob_client(uuid4().hex)
        await blob.create_append_blob()
        return cls(service, blob)

    async def append(self, messages: Sequence[Shape]) -> None:
        lines = [_encode([message]) for message in messages]
        await self._blob.append_block(b"".join(lines))
        for line in lines:
            self._ends.append(self._ends[-1] + len(line))

    async def newest(self, limit: int) -> list[Shape]:
        start = self._ends[-limit - 1]
        download = await self._blob.download_blob(offset=start, length=self._ends[-1] - start)
        found: list[Shape] = _decode(await download.readall())
        return found

    async def fill(self, count: int) -> None:
        messages = shapes(count)
        for start in range(0, count, 500):
            await self.append(messages[start : start + 500])

    async def close(self) -> None:
        await self._service.close()
