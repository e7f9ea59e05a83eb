"""The narrow waist: what a backend implements. It sees keys and opaque records; no JSON, no roles, no framework.

Five small protocols. A backend is a `Log`; what else it can do is found with `isinstance`:

* `Log`: append, read, truncate. Enough for a working store.
* `Rewriting`: replace, update, remove_newest, restore.
* `Catalog`: info, list, annotate, expire, delete, purge. Needed for a `ttl`.
* `Snapshots`: save_snapshot, load_snapshot. A backend that has them honours `Append.snapshot` too.
* `Checkable`: check. Says what its set-up costs when something breaks.

Rules for every operation (the conformance kit, `agentstore.testing`, asserts them):

* One atomic step: wholly done or not at all, also when the task is cancelled or the process dies. Writers of one
  session take effect one after another; they wait in line, bounded by time, then raise `UnavailableError`.
* Times are microseconds since 1970 UTC by the store's clock. Order is `seq`, never time.
* A session whose expiry has passed does not exist: reads find nothing, and a write begins a new session, whose seqs,
  snapshot version and metadata start afresh. Every write but `expire` sets `updated_at`; reads change nothing.
* An operation is an `async def`, or gives a future or an `Unbroken` at once: then it costs no task, and is waited for
  even where `asyncio.run` tears down all tasks.
* Every driver error is raised as an error of `agentstore.errors` with the driver's as its cause; `UnavailableError`
  says in `maybe_done` whether a write may have taken effect.
* A backend is used from any event loop and thread, one after another or at once, and in a forked child.
* No operation but `readiness`, `setup`, `ping`, `check` and `aclose` is called before `readiness` says "ready".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from agentstore.codec import UNREADABLE as UNREADABLE  # a record that a backend can no longer give back
from agentstore.keys import SessionKey
from agentstore.settle import Unbroken as Unbroken  # a coroutine that needs no task to outlast a cancellation
from agentstore.urls import StoreURL

Readiness = Literal["absent", "outdated", "ready"]

ANSWERS_KEPT = 32
"""How many append tokens a session remembers with their answers."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message to be written."""

    id_hash: bytes
    """16 bytes that stand for the `message_id`, unique in the session. The id itself is in the payload."""
    digest: bytes
    """16 bytes that stand for role and contents."""
    format: str
    payload: bytes
    fresh: bool = False
    """The id was made at random in this very call: where a look-up is dear, it can be left out.

    It is on the caller's object, though: another call with that object may have written it meanwhile.
    """


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """One message as it is kept."""

    seq: int
    created_at: int
    id_hash: bytes
    digest: bytes
    format: str
    """`UNREADABLE` where something stands at this seq that is no record of ours any more."""
    payload: bytes


class SnapshotWrite(msgspec.Struct, frozen=True):
    """A snapshot to be saved, and the conditions for it, compared in the same step."""

    format: str
    payload: bytes
    replaceable: frozenset[str]
    """Formats that this write may overwrite; any other stored one is `Refused("format")`."""
    expected_version: int | None = None
    """The version that must be current (0: none yet), else `Refused("version")`. `None`: any."""


class StoredSnapshot(msgspec.Struct, frozen=True):
    version: int
    format: str
    payload: bytes


class Append(msgspec.Struct, frozen=True):
    """One batch to be written, all or nothing. Its records have different id hashes."""

    records: tuple[Record, ...]
    token: bytes
    """16 random bytes that name this call; a retry of it carries the same ones."""
    retry: bool = False
    """The answer to this call was lost once: a remembered token gets its first answer, whatever happened since."""
    expected_last: int | None = None
    """The seq that must be the newest living record's (0: none), else `Refused("last")`."""
    snapshot: SnapshotWrite | None = None
    ttl: int | None = None
    """Microseconds: the session expires this long after now. `None`: its expiry stays."""

    def is_conditional(self) -> bool:
        """Whether there is more to it than its records: it may be refused, or has its answer already."""
        return self.retry or self.expected_last is not None or self.snapshot is not None

    def is_new(self) -> bool:
        """Whether it has messages, all with ids that were made just now, and no condition: as nearly every turn."""
        return bool(self.records) and not self.is_conditional() and all(record.fresh for record in self.records)


class Replace(msgspec.Struct, frozen=True):
    """A new tail: the records that take the place of every record with a seq above `after`."""

    records: tuple[Record, ...]
    after: int = 0
    expected_last: int | None = None
    begin_ttl: int | None = None
    """Microseconds to live, for a session that this write begins."""


class Written(msgspec.Struct, frozen=True):
    """The answer to an append or replace."""

    seqs: list[int]
    """One per record: its new seq, or that of the record which was already there."""
    written: int
    snapshot_version: int
    """The current one after the write; 0 where there is no snapshot."""


class Refused(msgspec.Struct, frozen=True):
    """A condition of the write does not hold; nothing changed."""

    why: Literal["ids", "last", "version", "format"]
    positions: tuple[int, ...] = ()
    """For `ids`: which records have an id that is there with another digest."""
    actual: int = 0
    """For `last` and `version`: the current one."""


class StoredInfo(msgspec.Struct, frozen=True):
    key: SessionKey
    count: int
    first_seq: int
    last_seq: int
    created_at: int
    updated_at: int
    expires_at: int | None
    size: int
    """Sum of the payloads' bytes."""
    metadata: bytes | None


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes of payloads that the backend takes; checked above the waist, before any work."""

    message_bytes: int
    """Largest single payload, of a message or a snapshot."""
    append_bytes: int
    """Largest sum of the payloads of one write."""


@runtime_checkable
class Log(Protocol):
    """The least that a backend can do; see the module's rules."""

    @property
    def limits(self) -> Limits: ...

    def readiness(self) -> Awaitable[Readiness]:
        """What is there: nothing of ours yet, an older schema of ours, or all that is needed. Creates nothing.

        Raises `ConfigurationError` where what is there is not ours, or newer.
        """
        ...

    def setup(self) -> Awaitable[None]:
        """Create or migrate what is missing: idempotent, and safe when many processes do it at once."""
        ...

    def ping(self) -> Awaitable[None]:
        """Raise `UnavailableError` unless the store answers. Creates nothing."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Let go of what the backend opened itself, in every event loop; idempotent."""
        ...

    def append(self, key: SessionKey, append: Append) -> Awaitable[Written | Refused]:
        """Write the batch as `plan_append` decides; the session remembers the last 32 tokens with their answers.

        An append whose records are all there is a write too: it sets `updated_at` and expiry, and is remembered.
        """
        ...

    def read(
        self,
        key: SessionKey,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Awaitable[list[StoredRecord]]:
        """One consistent view of the records with `after < seq < before`, ascending; with `limit`, the first that many.

        With `newest`, the last that many. `limit` is at least 1.
        """
        ...

    def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> Awaitable[int]:
        """Drop the records with `seq > after`, or those with `seq < before` (one bound is given); how many went.

        The session's seq counter, metadata, snapshot and expiry stay. Begins no session. To drop nothing from a
        session that exists is a write too.
        """
        ...


@runtime_checkable
class Rewriting(Protocol):
    """Changing what is already written."""

    def replace(self, key: SessionKey, replace: Replace) -> Awaitable[Written | Refused]:
        """Drop every record with a seq above `after` and write the new ones, in one step, with new seqs.

        Ids of the dropped ones are free; an id that stays is treated as in `append`.
        """
        ...

    def update(self, key: SessionKey, record: Record) -> Awaitable[bool]:
        """New digest, format and payload for the record with that id hash, same seq and time; `False`: none there."""
        ...

    def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> Awaitable[bool]:
        """Remove the record `seq` if it is still the newest and has that digest; `False`, and no change, if not."""
        ...

    def restore(
        self, key: SessionKey, pages: AsyncIterator[Sequence[StoredRecord]], *, begin_ttl: int | None = None
    ) -> Awaitable[bool]:
        """Begin a session with these records, their seqs and times; it appears at once, when the last page is in.

        `False`, and no change, if the session exists by then. The next seq is above the last one. The session's
        `created_at` and `updated_at` are the time at which it appears; the records keep theirs.
        """
        ...


@runtime_checkable
class Catalog(Protocol):
    """Knowing which sessions there are."""

    def info(self, key: SessionKey) -> Awaitable[StoredInfo | None]: ...

    def list(
        self, namespace: str, *, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> Awaitable[Sequence[StoredInfo]]:
        """Up to `limit` sessions, ordered by minute of last activity (newest first), source id, session id.

        The minute is `activity_minute(updated_at)`. With `start` `(minute, source id, session id)`, those behind it.
        """
        ...

    def annotate(
        self, key: SessionKey, old: bytes | None, new: bytes | None, *, begin_ttl: int | None = None
    ) -> Awaitable[bool]:
        """Make `new` the metadata if it is still `old` (`None`: none); `False`, and no change, if not."""
        ...

    def expire(self, key: SessionKey, at: int | None) -> Awaitable[None]:
        """Set or remove the expiry of a session that exists."""
        ...

    def delete(self, key: SessionKey) -> Awaitable[bool]:
        """Remove every trace of the session, of its expired forerunners too; whether it existed."""
        ...

    def purge(self, namespace: str | None) -> Awaitable[int]:
        """Remove what is left of expired sessions and of restores that never finished; how many sessions.

        In all namespaces (`None`), or in one, and there those restores too that are still under way: they then fail.
        Not one transaction.
        """
        ...


@runtime_checkable
class Snapshots(Protocol):
    """Keeping one versioned document beside a session."""

    def save_snapshot(
        self, key: SessionKey, snapshot: SnapshotWrite, *, begin_ttl: int | None = None
    ) -> Awaitable[int | Refused]:
        """Save it as the next version, which is returned; a session begins if there is none."""
        ...

    def load_snapshot(self, key: SessionKey) -> Awaitable[StoredSnapshot | None]: ...


class Finding(msgspec.Struct, frozen=True):
    """One thing that a check found, in words for people who do not run servers for a living."""

    level: Literal["ok", "warning", "error"]
    """`ok`: nothing acknowledged is lost by it. `warning`: something may be, as `text` says. `error`: writes fail now,
    or are about to."""
    text: str


@runtime_checkable
class Checkable(Protocol):
    """Knowing what one's own set-up is worth."""

    def check(self) -> Awaitable[Sequence[Finding]]:
        """What a crash, a full memory or a full disk would cost. Reads only, and creates nothing."""
        ...


class BackendFactory(Protocol):
    """What an entry point of the group `agentstore.backends` names, usually the backend's class."""

    def from_url(self, url: StoreURL, options: Mapping[str, Any]) -> Log:
        """A backend for the URL. No I/O; raises `ConfigurationError` for what it cannot use."""
        ...


class Current(msgspec.Struct, frozen=True):
    """What a backend looked up about a session, in the same step, so that a plan can be made."""

    last: int = 0
    """Seq of the newest living record, 0 when none."""
    known: Mapping[bytes, tuple[int, bytes]] = {}
    """Of the batch's id hashes, those already there, with seq and digest."""
    snapshot_version: int = 0
    snapshot_format: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """What an append that is not refused writes."""

    new: tuple[Record, ...]
    """They get ascending seqs above all that the session ever gave."""
    snapshot: SnapshotWrite | None

    def answer(self, append: Append | Replace, current: Current, first: int) -> Written:
        """The answer when the new records got the seqs from `first` on."""
        seqs = {record.id_hash: first + index for index, record in enumerate(self.new)}
        return Written(
            seqs=[seqs.get(r.id_hash) or current.known[r.id_hash][0] for r in append.records],
            written=len(self.new),
            snapshot_version=current.snapshot_version + (self.snapshot is not None),
        )


def plan_append(append: Append | Replace, current: Current) -> Plan | Refused:
    """The rules of append, in their order: ids first, then `expected_last`, then the snapshot.

    For a `Replace`, `current` is without what it drops, but for `last`.
    """
    clashes = [i for i, r in enumerate(append.records) if current.known.get(r.id_hash, (0, r.digest))[1] != r.digest]
    if clashes:
        return Refused("ids", positions=tuple(clashes))
    new = tuple([r for r in append.records if r.id_hash not in current.known])
    if isinstance(append, Append) and append.records and not new:
        return Plan(new=(), snapshot=None)
    if append.expected_last is not None and append.expected_last != current.last:
        return Refused("last", actual=current.last)
    snapshot = append.snapshot if isinstance(append, Append) else None
    if snapshot and (refused := check_snapshot(snapshot, current)):
        return refused
    return Plan(new=new, snapshot=snapshot)


def check_snapshot(snapshot: SnapshotWrite, current: Current) -> Refused | None:
    """Why the snapshot may not be saved over the current one, if so."""
    if current.snapshot_format is not None and current.snapshot_format not in snapshot.replaceable:
        return Refused("format")
    if snapshot.expected_version not in (None, current.snapshot_version):
        return Refused("version", actual=current.snapshot_version)
    return None


def activity_minute(updated_at: int) -> int:
    """The minute in which a session was last active: listings are ordered by it, so few appends touch an index."""
    return updated_at // 60_000_000
