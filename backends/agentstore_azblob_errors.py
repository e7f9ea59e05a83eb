"""What the Azure SDK raises, as errors of ours, without credentials."""

from __future__ import annotations

import asyncio
import re

from aiohttp import ClientConnectorError
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
)

from agentstore.errors import AgentStoreError, ConfigurationError, PayloadTooLargeError, StorageError, UnavailableError

DRIVER_ERRORS = (AzureError, OSError, asyncio.TimeoutError, ValueError)
"""`ValueError`: what the SDK makes of an answer that is not the service's."""

_SECRET = re.compile(r"(?i)((?:sig|accountkey|sharedaccesssignature|authorization)[\"']?\s*[=:]\s*)[^\s;&\"'<>]+")
_BUSY = {408, 429, 500, 502, 503, 504}
_SET_UP_WRONG = {
    "ContainerDisabled": "enable the container",
    "AccountIsDisabled": "enable the account",
    "InvalidResourceName": "name another container or prefix",
    "OutOfRangeInput": "name another container or prefix",
    "ResourceNotFound": "check account and container",
    "InvalidBlobType": "what is there is not agentstore's; name another prefix",
    "FeatureNotSupportedForAccount": "use an account that has append blobs",
    "BlobImmutableDueToPolicy": "agentstore needs a container without an immutability policy",
}


def status_of(error: BaseException) -> int:
    """The answer's HTTP status; 0 where no answer came."""
    return error.status_code or 0 if isinstance(error, HttpResponseError) else 0


def code_of(error: BaseException) -> str:
    """The service's own name for the error."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def is_passing(error: BaseException) -> bool:
    """Whether the same request may well be answered a moment later."""
    if isinstance(error, HttpResponseError) and error.status_code:
        return error.status_code in _BUSY or code_of(error) == "ContainerBeingDeleted"
    return not isinstance(error, (ClientAuthenticationError, ValueError))


def was_sent(error: BaseException) -> bool:
    """Whether the service may have done what it was asked."""
    if isinstance(error, ServiceRequestError):  # also for a connection that broke where the answer should have come
        return not isinstance(error, ServiceRequestTimeoutError) and not isinstance(
            error.inner_exception, ClientConnectorError
        )
    return status_of(error) in (0, 408, 500, 502, 504)


def translated(error: Exception, *, maybe_done: bool) -> AgentStoreError:
    """Our error for the SDK's."""
    code, status = code_of(error), status_of(error)
    text = f"Azure Blob: {code or error.__class__.__name__}{f' ({status})' if status else ''}"
    if status in (401, 403) or isinstance(error, ClientAuthenticationError):
        return ConfigurationError(f"{text}; check the credential and what it may do")
    if code in _SET_UP_WRONG:
        return ConfigurationError(f"{text}; {_SET_UP_WRONG[code]}")
    if is_passing(error):
        return UnavailableError(f"Azure Blob cannot be reached: {_said(error, code, status)}", maybe_done=maybe_done)
    if status == 413:
        return PayloadTooLargeError(f"{text}; nothing was written")
    return StorageError(text)


def scrubbed(error: Exception) -> Exception:
    """The error, without credentials in its text and in those that led to it; another one where its text is fixed."""
    error.args = tuple([_clean(part) if isinstance(part, str) else part for part in error.args])
    if isinstance(message := getattr(error, "message", None), str):
        error.message = _clean(message)  # type: ignore[attr-defined]
    if _clean(text := f"{error}\n{error!r}") != text:
        return StorageError(_clean(f"{type(error).__name__}: {error}"))
    for link in ("__cause__", "__context__", "inner_exception"):
        inner = getattr(error, link, None)
        if isinstance(inner, Exception):
            setattr(error, link, scrubbed(inner))
    return error


def _clean(text: str) -> str:
    return _SECRET.sub(r"\1***", text)


def _said(error: Exception, code: str, status: int) -> str:
    if status:
        return f"{code or 'no reason given'} ({status})"
    return _clean(str(error)).partition("\n")[0] or error.__class__.__name__
