"""What the store's calls answer with, and the conversion of its times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

import msgspec

from agentstore.keys import SessionKey
from agentstore.session import AgentSession

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LATEST = datetime.max.replace(tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_TTL = timedelta(days=365_000) // _MICROSECOND


class Appended(msgspec.Struct, frozen=True):
    """The answer to `append` and `replace`."""

    seqs: list[int]
    """One seq per given message, in their order."""
    written: int
    """How many records are new."""
    snapshot_version: int | None
    """The current version of the session's snapshot, `None` where it has none."""


class StoredMessage(msgspec.Struct, frozen=True):
    """A message with what the store knows about it."""

    seq: int
    created_at: datetime
    message: Any
    """What the session's codec decodes: a `Message`, unless the session was opened with another codec."""


@dataclass(frozen=True)
class SessionInfo:
    """What the store knows about a session. Times are aware UTC."""

    key: SessionKey
    count: int
    first_seq: int
    """Seq of the oldest record, 0 when there is none."""
    last_seq: int
    """Seq of the newest record, 0 when there is none."""
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    bytes: int
    """Size of the stored payloads."""
    metadata: dict[str, Any]


@dataclass(frozen=True)
class SessionPage:
    """A page of a listing; `cursor` fetches the next one and is `None` at the end."""

    items: list[SessionInfo]
    cursor: str | None


@dataclass(frozen=True)
class Snapshot:
    """A restored session, or an adapter's mapping, and the version under which it was saved."""

    session: AgentSession | dict[str, Any]
    version: int


@lru_cache(maxsize=1024)  # the messages of a turn have one time, and the newest ones are read again and again
def to_datetime(microseconds: int) -> datetime:
    """The aware UTC time for microseconds since 1970."""
    return _EPOCH + timedelta(0, 0, microseconds)


def to_microseconds(time: datetime) -> int:
    """Microseconds since 1970 for an aware datetime; raises `TypeError` or `ValueError` for anything else."""
    if not isinstance(time, datetime):
        raise TypeError(f"a time must be a datetime, not {type(time).__name__}")
    if time.utcoffset() is None:
        raise ValueError("a time must be aware: give it a tzinfo, such as timezone.utc")
    if time > _LATEST:
        raise ValueError("a time must be before the year 10,000 in UTC")
    return (time - _EPOCH) // _MICROSECOND


def ttl_microseconds(ttl: float | timedelta | None) -> int | None:
    """A time to live in microseconds; raises `TypeError` or `ValueError` unless it is above 0 and finite."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float | timedelta):
        raise TypeError(f"ttl must be seconds or a timedelta, not {type(ttl).__name__}")
    try:
        microseconds = (ttl if isinstance(ttl, timedelta) else timedelta(seconds=ttl)) // _MICROSECOND
    except (OverflowError, ValueError) as error:
        raise ValueError("ttl must be a finite number of seconds") from error
    if not 0 < microseconds <= _LONGEST_TTL:
        raise ValueError("ttl must be above 0 and at most 1,000 years")
    return microseconds
