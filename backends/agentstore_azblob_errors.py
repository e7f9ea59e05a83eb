"""What the Azure SDK raises, as errors of ours, without credentials."""

from __future__ import annotations

import asyncio
import re

from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError

from agentstore.errors import AgentStoreError, ConfigurationError, PayloadTooLargeError, StorageError, UnavailableError

DRIVER_ERRORS = (AzureError, OSError, asyncio.TimeoutError)

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
    return not isinstance(error, HttpResponseError)


def was_sent(error: BaseException) -> bool:
    """Whether the service may have done what it was asked."""
    if isinstance(error, ServiceRequestError):
        return False  # no connection, or the request broke off before its end
    return status_of(error) in (0, 408, 500, 502, 504)


def translated(error: Exception, *, maybe_done: bool) -> AgentStoreError:
    """Our error for the SDK's, whose own text loses its credentials."""
    scrub(error)
    code, status = code_of(error), status_of(error)
    text = f"Azure Blob: {code or error.__class__.__name__}{f' ({status})' if status else ''}"
    if status in (401, 403) or (not status and isinstance(error, HttpResponseError)):
        return ConfigurationError(f"{text}; check the credential and what it may do")
    if code in _SET_UP_WRONG:
        return ConfigurationError(f"{text}; {_SET_UP_WRONG[code]}")
    if is_passing(error):
        return UnavailableError(f"Azure Blob cannot be reached: {_said(error, code, status)}", maybe_done=maybe_done)
    if status == 413:
        return PayloadTooLargeError(f"{text}; nothing was written")
    return StorageError(text)


def scrub(error: BaseException | None) -> None:
    """Take credentials out of the texts of an error and of those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.args = tuple([_clean(part) if isinstance(part, str) else part for part in error.args])
        if isinstance(message := getattr(error, "message", None), str):
            error.message = _clean(message)  # type: ignore[attr-defined]
        inner = getattr(error, "inner_exception", None)
        error = error.__cause__ or error.__context__ or (inner if isinstance(inner, BaseException) else None)


def _clean(text: str) -> str:
    return _SECRET.sub(r"\1***", text)


def _said(error: Exception, code: str, status: int) -> str:
    if status:
        return f"{code or 'no reason given'} ({status})"
    return _clean(str(error)).partition("\n")[0] or error.__class__.__name__
