"""The Azure Blob backend keeps every sentence of the contract, on a real service."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import ContainerClient
from azurite_server import connection_string

from agentstore.testing import BackendConformance
from agentstore.testing.agreement import AgreementSentences
from agentstore.testing.answers import AnswerSentences
from agentstore.testing.expiry import ExpirySentences
from agentstore.testing.rewriting import ForkSentences, PopSentences, ReplaceSentences, UpdateSentences
from agentstore.testing.scenes import Cost, Stage
from agentstore.testing.snapshots import SnapshotSentences
from agentstore_azblob import AzureBlobBackend


@cache
def container() -> str:
    """A container of this process."""
    name = f"kit-{uuid4().hex}"

    async def made() -> None:
        async with ContainerClient.from_connection_string(connection_string(), name) as client:
            await client.create_container()

    asyncio.run(made())
    return name


@cache
def account() -> str:
    return str(ContainerClient.from_connection_string(connection_string(), "any").account_name)


class OnAContainer(Stage):
    """Each sentence below a prefix of its own."""

    options: Mapping[str, Any] = {}

    @pytest.fixture(autouse=True)
    def _prefix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string())
        self.prefix = uuid4().hex
        container()

    async def open_backend(self) -> AzureBlobBackend:
        return AzureBlobBackend(self.backend_url(), **self.options)

    async def reopen_backend(self) -> AzureBlobBackend:
        return AzureBlobBackend(self.backend_url(), **self.options)

    def backend_url(self) -> str:
        return f"azblob://{account()}/{container()}/{self.prefix}"


class TestAzureBlobBackend(OnAContainer, BackendConformance):
    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        """Requests, and KiB that they carry in either direction."""
        requests = sent = received = 0
        send = AioHttpTransport.send

        async def counted(transport: AioHttpTransport, request: Any, **options: Any) -> Any:
            nonlocal requests, sent, received
            response = await send(transport, request, **options)
            requests += 1
            sent += len(request.body or b"")
            received += int(response.headers.get("Content-Length") or 0) if request.method == "GET" else 0
            return response

        def so_far() -> Mapping[str, int]:
            return {"requests": requests, "KiB sent": sent // 1024, "KiB received": received // 1024}

        with patch.object(AioHttpTransport, "send", counted):
            yield so_far


class TestFullLogs(
    OnAContainer, AnswerSentences, PopSentences, ReplaceSentences, UpdateSentences, ForkSentences, AgreementSentences
):
    """The sentences about writes hold across the boundaries of logs, which nobody sees."""

    options: Mapping[str, Any] = {"max_blocks": 3}


class TestLogsWrittenAnew(
    OnAContainer, AnswerSentences, SnapshotSentences, UpdateSentences, ExpirySentences, AgreementSentences
):
    """... and where a log is written anew whenever more of it is dead than living."""

    options: Mapping[str, Any] = {"rewrite_bytes": 0, "max_blocks": 5}
