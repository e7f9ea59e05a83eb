"""What redis-py raises, as errors of ours: by the server's word, and by whether an answer came at all."""

from __future__ import annotations

import asyncio
import re

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)

from agentstore.errors import AgentStoreError, ConfigurationError, CorruptRecordError, StorageError, UnavailableError

DRIVER_ERRORS = (RedisError, OSError, asyncio.TimeoutError, AttributeError)
"""What a connection can raise. `AttributeError` is redis-py's, for one that it lost in the middle of a failover."""
ANSWERS = (ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError)
"""What the server says; after any other error the connection is of no use."""

_CODES: tuple[tuple[type[Exception], str], ...] = (
    (AskError, "MOVED"),  # also MovedError, which is one
    (TryAgainError, "TRYAGAIN"),
    (ClusterDownError, "CLUSTERDOWN"),  # also MasterDownError
    (SlotNotCoveredError, "CLUSTERDOWN"),
    (BusyLoadingError, "LOADING"),
    (ReadOnlyError, "READONLY"),
    (MaxConnectionsError, "MAXCONNECTIONS"),
    (OutOfMemoryError, "OOM"),
    (NoPermissionError, "NOPERM"),
    (AuthenticationError, "NOAUTH"),
    (AuthorizationError, "NOAUTH"),
)
_WORDS = re.compile(r"\b(MISCONF|NOREPLICAS|OOM|READONLY|NOPERM|CLUSTERDOWN|MASTERDOWN|WRONGTYPE|BUSY)\b")
_PHRASES = (
    ("can't run this command", "NOPERM"),
    ("cluster support disabled", "NOCLUSTER"),
    ("db index is out of range", "NODATABASE"),
    ("unknown command", "NOCOMMAND"),
    ("unknown redis command", "NOCOMMAND"),
    (": bad argument", "CORRUPT"),  # what a script read is not what one wrote
    (": attempt to", "CORRUPT"),
)
_SHORTLY = {"MOVED", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "NOREPLICAS", "BUSY"}
_NOT_NOW = {
    "OOM": "the server's memory is full: give it more (maxmemory), or let sessions expire",
    "MISCONF": "the server cannot save to its disk and refuses writes: see whether the disk is full",
    "READONLY": "the server is a replica: name the master, or use redis+sentinel:// or redis+cluster://",
    "NOREPLICAS": "too few replicas keep up with the server (min-replicas-to-write)",
    "CLUSTERDOWN": "the cluster does not serve this part of its keys now",
    "MASTERDOWN": "the server is a replica whose master is down",
    "LOADING": "the server is still loading its data",
    "MAXCONNECTIONS": "the client that was handed in has no free connection: allow it more",
    "BUSY": "the server is busy with somebody's script",
}
_SET_UP_WRONG = {
    "MOVED": "the server is a node of a cluster: use redis+cluster://",
    "NOCLUSTER": "use redis://",
    "NODATABASE": "it has fewer databases: name another db=",
    "NOCOMMAND": "the server must have the commands that docs/redis.md names",
    "NOAUTH": "check user and password",
    "NOPERM": "grant the user what docs/redis.md names",
    "WRONGTYPE": "what is there is not agentstore's; name another prefix=",
}


class NotSentError(Exception):
    """There was no connection on which to ask; nothing happened."""


class LostError(Exception):
    """It was asked, and no answer came."""


def ran_nothing(error: BaseException | None) -> bool:
    """Whether the server only said that it, or another one, may do it shortly."""
    return _code(error) in _SHORTLY or isinstance(error, MaxConnectionsError)


def is_refused_login(error: BaseException | None) -> bool:
    return isinstance(error, ANSWERS) and _code(error) in _SET_UP_WRONG


def translated(error: Exception, *, writes: bool) -> AgentStoreError:
    """Our error for what the driver, or a lane, raised."""
    if isinstance(error, LostError):
        return UnavailableError(f"Redis did not answer: {_text(error.__cause__)}", maybe_done=writes)
    cause = error.__cause__ if isinstance(error, NotSentError) else error
    code = _code(cause)
    if code in _SET_UP_WRONG:
        return ConfigurationError(f"Redis: {_text(cause)}; {_SET_UP_WRONG[code]}")
    if code in _NOT_NOW:
        return UnavailableError(f"Redis: {_text(cause)}; {_NOT_NOW[code]}")
    if code == "CORRUPT":
        return CorruptRecordError(f"Redis: {_text(cause)}; what is there is not agentstore's, or damaged")
    if isinstance(cause, ResponseError):
        return StorageError(f"Redis: {_text(cause)}")
    return UnavailableError(f"Redis cannot be reached: {_text(cause)}")


def _code(error: BaseException | None) -> str:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if not isinstance(error, ResponseError):
        return ""
    # Scripts and older servers put their words into the text.
    found, text = _WORDS.search(str(error)), str(error).lower()
    return found.group() if found else next((code for words, code in _PHRASES if words in text), "")


def _text(error: BaseException | None) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
