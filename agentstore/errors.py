"""One error tree: every error that agentstore raises on purpose is an `AgentStoreError`.

Bad arguments raise the standard `ValueError` and `TypeError`. Driver errors never leak: they are the `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence


class AgentStoreError(Exception):
    """Base of every error of this library."""


class ConfigurationError(AgentStoreError):
    """The store, URL, backend or agent is set up in a way that cannot work; retrying will not help."""


class UnknownBackendError(ConfigurationError):
    """No installed backend answers to the URL's scheme."""


class MissingDependencyError(ConfigurationError, ImportError):
    """A backend, adapter or command needs a package that is not installed; the text names the extra."""


class StorageError(AgentStoreError):
    """The store was reached for but did not do what was asked."""


class UnavailableError(StorageError):
    """The store could not be reached, or did not answer in time.

    `maybe_done` is true when the write may have happened although no answer came back.
    """

    def __init__(self, message: str, *, maybe_done: bool = False) -> None:
        super().__init__(f"{message}; the write may have happened" if maybe_done else message)
        self.maybe_done = maybe_done


class ConflictError(StorageError):
    """The write's condition does not hold (ids, last seq, snapshot version, target exists); nothing was written.

    `ids` are the message ids that stand for other contents, if those are the reason.
    """

    def __init__(self, message: str, *, ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class CorruptRecordError(StorageError):
    """A stored record, snapshot or metadata cannot be read; the text names the session and, if any, the seq."""


class PayloadTooLargeError(StorageError):
    """The value is over the backend's documented size limit; nothing was written."""


class UnsupportedValueError(AgentStoreError, TypeError):
    """A value that no store can give back exactly; the text names its path. Nothing was written."""


class SaveError(AgentStoreError):
    """The model answered but the turn could not be saved; `response` holds the answer."""

    def __init__(self, message: str, *, response: object = None) -> None:
        super().__init__(message)
        self.response = response


class ChatClientError(AgentStoreError):
    """The model's service refused, failed, broke off its answer or could not be reached.

    `status` is that of its HTTP answer, if it gave one. The SDK's error is the cause.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ClosedError(AgentStoreError):
    """The store was closed; open a new one."""
