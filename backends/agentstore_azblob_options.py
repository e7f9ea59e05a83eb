"""Options of the Azure Blob backend, and how its client is made of URL, credential and environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import ContainerClient

from agentstore.errors import ConfigurationError, MissingDependencyError
from agentstore.urls import StoreURL

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER = re.compile(r"\$root|[a-z0-9](?:-?[a-z0-9]){2,62}")
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_ENDPOINT = "https://{account}.blob.core.windows.net"


class AzureBlobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every backend, also on a client that was handed in."""

    prefix: str | None = None
    """What all names begin with, before a `/`. Two prefixes in one container stay apart."""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 30.0
    """Seconds that a call tries again while the service is busy or other writers come first."""
    max_blocks: Annotated[int, msgspec.Meta(ge=2, le=50_000)] = 49_000
    """So many blocks in a blob, and the session's log goes on in the next. The service's limit is 50,000."""
    rewrite_bytes: Annotated[int, msgspec.Meta(ge=0)] = 8 * 2**20
    """So many bytes that nothing needs any more, and more than are needed, and a session's log is written anew."""
    max_message_bytes: Annotated[int, msgspec.Meta(gt=0, le=64 * 2**20)] = 64 * 2**20
    max_append_bytes: Annotated[int, msgspec.Meta(gt=0, le=64 * 2**20)] = 64 * 2**20


class AccountOptions(AzureBlobOptions, frozen=True, kw_only=True):
    """What else a URL may say."""

    credential: Any = None
    """Anything the SDK takes: an account key, a SAS token, a credential object. Else the environment is asked."""
    connect_timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    read_timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 20.0
    """Seconds that a connection may be silent before the request is tried again."""


class Source(msgspec.Struct, frozen=True):
    """Where the container is and who may use it."""

    make: Callable[[], tuple[ContainerClient, AsyncTokenCredential | None]]
    """A client of ours, and a credential of ours that must be closed with it."""
    text: str
    """What may be shown of it."""


class Transport(AioHttpTransport):  # type: ignore[misc]  # azure.core loads it late, without its type
    """Sends a request once, and no second time unseen."""

    async def open(self) -> None:
        await super().open()
        assert self.session is not None
        # Else aiohttp sends a PUT again by itself, and nobody knows that an answer was lost.
        self.session._retry_connection = False


def checked_prefix(path: str, option: str | None) -> str:
    """The prefix, from the URL's path or the option."""
    if path and option:
        raise ConfigurationError("the prefix is in the URL and in prefix=: choose one")
    prefix = (option or path).strip("/")
    if prefix and (not _PREFIX.fullmatch(prefix) or len(prefix) > 400 or ".." in prefix or "./" in f"{prefix}/"):
        raise ConfigurationError("a prefix is made of letters, digits, '-', '_', '.' and '/', at most 400 of them")
    return prefix


def source(url: StoreURL, container: str, options: AccountOptions) -> Source:
    """The container of a URL. Raises `ConfigurationError` for what cannot be one."""
    account = url.host
    if url.user is not None:
        raise ConfigurationError("an azblob URL holds no credential: give credential=, or set it in the environment")
    if not _ACCOUNT.fullmatch(account) or not _CONTAINER.fullmatch(container):
        raise ConfigurationError("an Azure Blob URL looks like azblob://ACCOUNT/CONTAINER or .../CONTAINER/prefix")
    settings = {"connection_timeout": options.connect_timeout, "read_timeout": options.read_timeout}
    text = f"{account}/{container}"
    connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if connection:
        _check_account(connection, account)
    if options.credential is None and connection and _has_credential(connection):
        return Source(_from_connection_string(connection, account, container, settings), text)
    endpoint = _endpoint(connection, account) or _ENDPOINT.format(account=account)
    credential = _given(options.credential)

    def make() -> tuple[ContainerClient, AsyncTokenCredential | None]:
        own = None if credential is not None else _default_credential()
        transport = Transport(**settings)
        return ContainerClient(endpoint, container, credential if own is None else own, transport=transport), own

    if credential is not None:
        _tried(make)
    return Source(make, text)


def _from_connection_string(
    connection: str, account: str, container: str, settings: dict[str, float]
) -> Callable[[], tuple[ContainerClient, AsyncTokenCredential | None]]:
    def make() -> tuple[ContainerClient, AsyncTokenCredential | None]:
        return ContainerClient.from_connection_string(connection, container, transport=Transport(**settings)), None

    client = _tried(make)
    if client.account_name and "accountname" not in _connection_parts(connection):
        _agree(str(client.account_name), account)
    return make


def _check_account(connection: str, account: str) -> None:
    if named := _connection_parts(connection).get("accountname"):
        _agree(named, account)


def _agree(named: str, account: str) -> None:
    if named != account:
        raise ConfigurationError(
            f"the URL names the account {account}, AZURE_STORAGE_CONNECTION_STRING the account {named}: they must agree"
        )


def _has_credential(connection: str) -> bool:
    """Whether it says more than where the account is."""
    parts = _connection_parts(connection)
    return not parts.get("blobendpoint") or bool(parts.get("accountkey") or parts.get("sharedaccesssignature"))


def _tried(make: Callable[[], tuple[ContainerClient, AsyncTokenCredential | None]]) -> ContainerClient:
    """A client, made once for its parts: it opens nothing before its first request."""
    failed: str | None = None
    try:
        return make()[0]
    except (ValueError, TypeError) as error:
        failed = type(error).__name__
    # Raised out here: the SDK's error may show the credential.
    raise ConfigurationError(f"the credential or connection string for Azure Blob cannot be used ({failed})")


def _endpoint(connection: str | None, account: str) -> str | None:
    """The endpoint that the connection string names for the account."""
    parts = _connection_parts(connection or "")
    return parts.get("blobendpoint") if parts.get("accountname") == account else None


def _connection_parts(connection: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in connection.split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _given(credential: Any) -> Any:
    """The credential that was given, else the environment's; `None`: the default chain of `azure-identity`."""
    if isinstance(credential, str) and "accountname" in _connection_parts(credential):
        raise ConfigurationError(
            "credential= takes a key, a SAS token or a credential object;"
            " a connection string goes into AZURE_STORAGE_CONNECTION_STRING"
        )
    if credential is not None:
        return credential
    return os.environ.get("AZURE_STORAGE_KEY") or os.environ.get("AZURE_STORAGE_SAS_TOKEN") or None


def _default_credential() -> AsyncTokenCredential:
    try:
        from azure.identity.aio import DefaultAzureCredential
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "no credential for Azure Blob was given, and azure-identity is not installed:"
            " pip install 'agentstore-history[azure-blob]' azure-identity"
        ) from error
    return DefaultAzureCredential()
