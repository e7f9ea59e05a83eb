"""Requests to one container from one event loop: each tried again while the service is busy, its errors ours."""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobClient, ContainerClient

from agentstore.errors import ConfigurationError
from agentstore_azblob_errors import DRIVER_ERRORS, code_of, is_passing, scrubbed, status_of, translated, was_sent

T = TypeVar("T")

KEY, NEXT, KIND = "key", "next", "kind"
"""Names in a blob's metadata: whose it is; the log that goes on from it; what a log was made for."""
CLIENTS_KEPT = 1000
WHOLE_BODY = 512 * 2**10
ONCE: dict[str, Any] = {"retry_total": 0}
"""For the SDK, whose own tries come late and do not know what a lost answer means."""


class UnmetError(Exception):
    """A condition of a write did not hold: another writer was first, or an earlier try of this very write."""

    missing = False
    """The blob is not there."""
    doubtful = False
    """An earlier try may have been done."""


class NoContainerError(ConfigurationError):
    """There is no container yet."""


class Found(msgspec.Struct, frozen=True):
    """A blob as it is at one moment."""

    name: str
    etag: str
    size: int
    metadata: dict[str, str]
    blocks: int
    modified: int
    """Microseconds since 1970 UTC."""
    start: int = 0
    data: bytes = b""
    """What was read of it, from `start` on."""


class Clock:
    """The client's clock, set right by the `Date` of the service's last answer where the two disagree."""

    def __init__(self) -> None:
        self._skew = 0

    def now(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000 + self._skew

    def answered(self, sent: int, date: int) -> None:
        """An answer whose `Date` is that whole second came just now, to a request sent at that time."""
        # What the service's clock may be ahead by: the second was cut off, and the answer took its time.
        least, most = date - time.time_ns() // 1000, date + 1_000_000 - sent
        self._skew = min(max(0, least), most)


class Container:
    """`None` says that a blob is not there, `UnmetError` that it is another than the ETag names."""

    def __init__(self, client: ContainerClient, clock: Clock, timeout: float) -> None:
        self._client = client
        self._clock = clock
        self._timeout = timeout
        self._blobs: dict[str, BlobClient] = {}

    async def head(self, name: str) -> Found | None:
        return await self._read(lambda: self._headed(name))

    async def get(self, name: str, start: int, end: int | None = None) -> Found | None:
        """Its bytes from `start` on; `None` also where it is shorter."""
        return await self._read(lambda: self._got(name, start, end))

    async def create(self, name: str, metadata: dict[str, str], etag: str | None) -> str:
        """An empty append blob in the place of the one with that ETag (`None`: of none); its own ETag."""
        condition = MatchConditions.IfNotModified if etag else MatchConditions.IfMissing
        options: dict[str, Any] = {"etag": etag} if etag else {}
        blob = self._blob(name)
        answer = await self._write(
            lambda: blob.create_append_blob(metadata=metadata, match_condition=condition, **options, **ONCE)
        )
        return str(answer["etag"])

    async def append(self, name: str, data: bytes, etag: str, position: int) -> tuple[str, int]:
        """The blob's new ETag, and how many blocks it has."""
        blob = self._blob(name)
        answer = await self._write(
            lambda: blob.append_block(
                _body(data),
                length=len(data),
                appendpos_condition=position,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
                raw_response_hook=self._hook(),
                **ONCE,
            )
        )
        return str(answer["etag"]), int(str(answer.get("blob_committed_block_count") or 0))

    async def annotate(self, name: str, metadata: dict[str, str], etag: str) -> str:
        """Other metadata for the blob with that ETag; its new one."""
        blob = self._blob(name)
        answer = await self._write(
            lambda: blob.set_blob_metadata(metadata, etag=etag, match_condition=MatchConditions.IfNotModified, **ONCE)
        )
        return str(answer["etag"])

    async def delete(self, name: str, etag: str | None = None) -> bool:
        """Whether it was there."""
        blob = self._blob(name)
        options: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified} if etag else {}
        try:
            await self._write(lambda: blob.delete_blob(delete_snapshots="include", **options, **ONCE))
        except UnmetError as error:
            if not error.missing:
                raise
            return error.doubtful
        return True

    async def put(self, name: str, data: bytes) -> None:
        """A block blob, unless one is there."""
        blob = self._blob(name)
        await self._write(lambda: blob.upload_blob(data, match_condition=MatchConditions.IfMissing, **ONCE))

    async def ensure(self) -> None:
        """Create the container where it is missing."""
        try:
            await self._write(lambda: self._client.create_container(**ONCE))
        except UnmetError:
            return

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        """All blobs whose names begin so, in the order of names."""
        found = self._client.list_blobs(name_starts_with=prefix, include=["metadata"], results_per_page=5000, **ONCE)
        pages = found.by_page()
        while True:
            page = await self._read(lambda: _page(pages))
            if page is None:
                return
            for properties in page:
                yield _found(str(properties.name), properties, properties.size)

    def _blob(self, name: str) -> BlobClient:
        blob = self._blobs.get(name)
        if blob is None:
            if len(self._blobs) >= CLIENTS_KEPT:
                self._blobs.clear()
            blob = self._blobs[name] = self._client.get_blob_client(name)
        return blob

    async def _headed(self, name: str) -> Found | None:
        properties = await self._blob(name).get_blob_properties(raw_response_hook=self._hook(), **ONCE)
        return _found(name, properties, properties.size)

    async def _got(self, name: str, start: int, end: int | None) -> Found | None:
        length = None if end is None else end - start
        download = await self._blob(name).download_blob(start, length, raw_response_hook=self._hook(), **ONCE)
        data = await download.readall()
        total = int(str(download.properties.content_range).rpartition("/")[2])
        return _found(name, download.properties, total, start, data)

    def _hook(self) -> Callable[[Any], None]:
        """For the SDK: tells the clock what time it is there."""
        sent = time.time_ns() // 1000

        def answered(response: Any) -> None:
            if date := response.http_response.headers.get("Date"):
                self._clock.answered(sent, _microseconds(date))

        return answered

    async def _read(self, ask: Callable[[], Awaitable[T | None]]) -> T | None:
        try:
            return await self._persistent(ask, writes=False)
        except UnmetError:
            return None

    async def _write(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._persistent(ask, writes=True)

    async def _persistent(self, ask: Callable[[], Awaitable[T]], *, writes: bool) -> T:
        """The answer to a request. Raises `UnmetError` for 404, 409, 412 and 416, else errors of ours."""
        deadline, pause, sent = time.monotonic() + self._timeout, 0.05, False
        while True:
            try:
                return await ask()
            except DRIVER_ERRORS as error:
                doubtful, sent = sent, sent or was_sent(error)
                wait = max(pause * (0.5 + random.random()), _asked_to_wait(error))
                late = time.monotonic() + wait > deadline
                failure = _failure(error, doubtful=doubtful, maybe_done=writes and sent, late=late)
            if failure is not None:
                raise failure  # out here: what the SDK raised may show a credential, and must not be its context
            await asyncio.sleep(wait)
            pause = min(pause * 2, 2.0)


def _failure(error: Exception, *, doubtful: bool, maybe_done: bool, late: bool) -> Exception | None:
    """What to raise for an error of the SDK; `None`: try again."""
    failure: Exception
    if _is_unmet(error):
        failure = unmet = UnmetError()
        unmet.missing, unmet.doubtful = status_of(error) == 404, doubtful
    elif code_of(error) == "ContainerNotFound":
        failure = NoContainerError("the container of Azure Blob is missing; call setup()")
    elif is_passing(error) and not late:
        return None
    else:
        failure = translated(error, maybe_done=maybe_done)
    failure.__cause__ = scrubbed(error)
    return failure


def _body(data: bytes) -> bytes | io.BytesIO:
    # In pieces, where it would hold the event loop up in one.
    return data if len(data) <= WHOLE_BODY else io.BytesIO(data)


async def _page(pages: Any) -> list[BlobProperties] | None:
    try:
        return [properties async for properties in await anext(pages)]
    except StopAsyncIteration:
        return None


def _found(name: str, properties: BlobProperties, size: int, start: int = 0, data: bytes = b"") -> Found:
    modified: datetime | None = properties.last_modified
    return Found(
        name=name,
        etag=_quoted(str(properties.etag)),
        size=size,
        metadata=dict(properties.metadata or {}),
        blocks=properties.append_blob_committed_block_count or 0,
        modified=int(modified.timestamp() * 1_000_000) if modified else 0,
        start=start,
        data=data,
    )


def _quoted(etag: str) -> str:
    return etag if etag.startswith('"') else f'"{etag}"'  # a listing gives it without


@lru_cache(maxsize=8)
def _microseconds(date: str) -> int:
    """An HTTP date, which many answers of a second share."""
    return int(parsedate_to_datetime(date).timestamp()) * 1_000_000


def _is_unmet(error: BaseException) -> bool:
    status, code = status_of(error), code_of(error)
    if status == 404:
        return code in ("BlobNotFound", "ResourceNotFound", "")
    return status in (412, 416) or code in ("BlobAlreadyExists", "ContainerAlreadyExists")


def _asked_to_wait(error: BaseException) -> float:
    """Seconds that a busy service asks for."""
    response: Any = error.response if isinstance(error, HttpResponseError) else None
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return float(text) if text.isdecimal() else 0.0
