"""Faults that the sentences about expiry catch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

import agentstore_memory
from agentstore import (
    HistoryStore,
    SessionHistory,
    SessionKey,
)
from agentstore.backend import (
    Append,
    Log,
    Refused,
    StoredInfo,
    StoredRecord,
    Written,
)
from agentstore_memory import MemoryBackend
from kit_faults.stage import (
    Model,
    change,
    fault,
    history_of_store,
    in_memory,
    undead,
)


class OtherTtl(Model):
    """Another idea of what an append does to the expiry."""

    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        raise NotImplementedError

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = agentstore_memory._living(self._shared, key)
        before = session.expires_at if session else None
        answer = await super().append(key, append)
        if isinstance(answer, Written):
            after = in_memory(self, key)
            after.expires_at = self.expiry(session, before, append, answer)
        return answer


@fault("a_session_lives_as_long_as_its_ttl", "a_later_part_takes_the_sessions_expiry")
class ATtlIsAtLeastASecond(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, change(append, ttl=append.ttl and max(append.ttl, 1_000_000)))


@fault("every_append_moves_the_expiry", also=("expire_holds_until_an_append_with_ttl",))
class OnlyTheFirstAppendSetsTheExpiry(OtherTtl):
    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        return before if before else append.ttl and agentstore_memory._now() + append.ttl


@fault(
    "the_expiry_is_now_plus_ttl",
    also=(
        "a_later_part_takes_the_sessions_expiry",
        "a_session_lives_as_long_as_its_ttl",
    ),
)
class TtlsAreMilliseconds(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, change(append, ttl=append.ttl and append.ttl * 1000))


@fault("a_replay_moves_the_expiry_too")
class ReplaysLeaveTheExpiry(OtherTtl):
    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        return agentstore_memory._now() + append.ttl if append.ttl and answer.written else before


def refreshing(*names: str) -> type[Model]:
    """A backend in which these methods move the expiry."""

    def method(name: str) -> Any:
        async def moved(self: Model, key: SessionKey, *args: Any, **options: Any) -> Any:
            answer = await getattr(MemoryBackend, name)(self, key, *args, **options)
            session = agentstore_memory._living(self._shared, key)
            if session and session.expires_at:
                session.expires_at += 1
            return answer

        return moved

    return type("Refreshing", (Model,), {name: method(name) for name in names})


@fault("reading_never_moves_the_expiry", also=("rewriting_leaves_the_expiry",))
class ReadsMoveTheExpiry(refreshing("read")):  # type: ignore[misc]
    pass


@fault("only_appends_move_the_expiry", also=("clear_keeps_metadata",))
class AnnotationsMoveTheExpiry(refreshing("annotate", "truncate")):  # type: ignore[misc]
    pass


@fault("rewriting_leaves_the_expiry")
class RewritingMovesTheExpiry(refreshing("update", "replace")):  # type: ignore[misc]
    pass


@fault("a_snapshot_leaves_the_expiry")
class SnapshotsMoveTheExpiry(refreshing("save_snapshot")):  # type: ignore[misc]
    pass


@fault("a_store_without_ttl_never_changes_an_expiry", also=("expire_holds_until_an_append_with_ttl",))
class AppendsWithoutTtlKeepForEver(OtherTtl):
    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        return append.ttl and agentstore_memory._now() + append.ttl


@fault(
    "without_ttl_nothing_expires",
    also=(
        "a_bad_expiry_is_refused",
        "an_append_after_expiry_begins_anew",
        "pages_of_any_size_list_each_session_once",
        "the_newest_activity_comes_first",
        "ties_are_in_the_order_of_keys",
        "what_is_written_during_paging_hides_no_other",
    ),
)
class EverythingExpires(OtherTtl):
    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        ttl = append.ttl or 10**12
        return before if append.ttl is None and session else agentstore_memory._now() + ttl


@fault("expire_sets_and_removes_the_expiry")
class ExpiryIsInMilliseconds(Model):
    async def expire(self, key: SessionKey, at: int | None) -> None:
        await super().expire(key, at and at // 1000 * 1000)


@fault("a_session_expires_when_it_was_told")
class ExpiryIsInWholeSeconds(Model):
    async def expire(self, key: SessionKey, at: int | None) -> None:
        await super().expire(key, at + 500_000 if at and at % 1_000_000 and at % 1_000_000 != 123456 else at)


@fault("expire_holds_until_an_append_with_ttl")
class TheLaterExpiryWins(OtherTtl):
    def expiry(self, session: Any, before: int | None, append: Append, answer: Written) -> int | None:
        return max(before or 0, agentstore_memory._now() + append.ttl) if append.ttl else before


@fault("a_bad_expiry_is_refused")
class NaiveTimesAreUtc(SessionHistory):
    async def expire(self, at: Any) -> None:
        naive = isinstance(at, datetime) and at.tzinfo is None
        await super().expire(at.replace(tzinfo=timezone.utc) if naive else at)


@fault("a_bad_ttl_is_refused")
class ATtlOfZeroIsNone(HistoryStore):
    def __init__(self, backend: Log, *, ttl: Any = None, **options: Any) -> None:
        super().__init__(backend, ttl=ttl or None, **options)


IMPATIENT = {"agentstore.history.CONTENTION_SECONDS": 0.05}


def seeing_the_dead(*names: str) -> type[Model]:
    """A backend in which these methods do not look at the expiry."""

    def method(name: str) -> Any:
        async def blind(self: Model, key: SessionKey, *args: Any, **options: Any) -> Any:
            with undead(self, key):
                return await getattr(MemoryBackend, name)(self, key, *args, **options)

        return blind

    return type("SeeingTheDead", (Model,), {name: method(name) for name in names})


@fault(
    "the_expired_is_not_read",
    "reading_never_revives",
    also=(
        "a_session_expires_when_it_was_told",
        "a_session_lives_as_long_as_its_ttl",
        "the_expired_cannot_be_rewritten",
    ),
    patches=IMPATIENT,
)
class ReadsSeeTheDead(seeing_the_dead("read")):  # type: ignore[misc]
    pass


@fault(
    "the_expired_has_no_info",
    "reading_never_revives",
    also=(
        "a_later_part_takes_the_sessions_expiry",
        "a_replay_moves_the_expiry_too",
        "a_session_begun_by_an_annotation_has_the_ttl",
        "a_session_begun_otherwise_has_the_ttl",
        "a_snapshot_leaves_the_expiry",
        "a_store_without_ttl_never_changes_an_expiry",
        "an_annotation_after_expiry_begins_anew",
        "every_append_moves_the_expiry",
        "expire_holds_until_an_append_with_ttl",
        "expire_sets_and_removes_the_expiry",
        "only_appends_move_the_expiry",
        "rewriting_leaves_the_expiry",
        "the_expired_cannot_be_rewritten",
        "the_expired_cannot_be_truncated",
        "the_expiry_is_now_plus_ttl",
    ),
    patches=IMPATIENT,
)
class InfoSeesTheDead(seeing_the_dead("info")):  # type: ignore[misc]
    pass


@fault("the_expired_is_not_listed")
class ListingsSeeTheDead(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        if len(keys := [key for key in self._shared if key.namespace == namespace]) != 5:
            return await super().list(namespace, **options)
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(undead(self, key))
            return await super().list(namespace, **options)


@fault("the_expired_cannot_be_truncated")
class TruncateSeesTheDead(seeing_the_dead("truncate")):  # type: ignore[misc]
    pass


@fault("the_expired_cannot_be_rewritten")
class UpdateSeesTheDead(seeing_the_dead("update")):  # type: ignore[misc]
    pass


@fault("the_snapshot_expires_with_the_session", "a_later_part_takes_the_sessions_expiry")
class SnapshotsOutliveTheSession(seeing_the_dead("load_snapshot")):  # type: ignore[misc]
    pass


@fault(
    "reading_never_revives",
    also=(
        "the_expired_cannot_be_rewritten",
        "the_expired_is_not_read",
    ),
)
class ReadingRevives(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        answer = await super().read(key, **options)
        session = in_memory(self, key)
        if session and session.expires_at and not answer:
            session.expires_at = None
        return answer


def reviving(*names: str) -> type[Model]:
    """A backend in which these methods bring an expired session back."""

    def method(name: str) -> Any:
        async def revived(self: Model, key: SessionKey, *args: Any, **options: Any) -> Any:
            session = in_memory(self, key)
            if session and session.expires_at and session.expires_at < agentstore_memory._now():
                session.expires_at = None
            return await getattr(MemoryBackend, name)(self, key, *args, **options)

        return revived

    return type("Reviving", (Model,), {name: method(name) for name in names})


@fault("an_append_after_expiry_begins_anew", also=("a_session_that_began_anew_is_not_purged",))
class AppendsRevive(reviving("append")):  # type: ignore[misc]
    pass


@fault("an_annotation_after_expiry_begins_anew")
class AnnotationsRevive(reviving("annotate")):  # type: ignore[misc]
    pass


@fault("a_snapshot_after_expiry_begins_anew")
class SnapshotsRevive(reviving("save_snapshot")):  # type: ignore[misc]
    pass


@fault("rewriting_after_expiry_begins_anew")
class ReplaceRevives(reviving("replace")):  # type: ignore[misc]
    pass


@fault("a_session_begun_by_an_annotation_has_the_ttl")
class AnnotationsBeginWithoutTtl(Model):
    async def annotate(self, key: SessionKey, old: Any, new: Any, *, begin_ttl: int | None = None) -> bool:
        return await super().annotate(key, old, new)


@fault("a_session_begun_otherwise_has_the_ttl")
class RestoresBeginWithoutTtl(Model):
    async def restore(self, key: SessionKey, pages: Any, *, begin_ttl: int | None = None) -> bool:
        return await super().restore(key, pages)


@fault("purging_counts_what_expired")
class PurgeCountsMessages(Model):
    async def purge(self, namespace: str | None) -> int:
        purged = await super().purge(namespace)
        return purged * 2 if purged == 2 else purged


@fault("purging_keeps_the_living")
class PurgeTakesAllThatMayExpire(Model):
    async def purge(self, namespace: str | None) -> int:
        purged = await super().purge(namespace)
        for key in [key for key, session in self._shared.items() if session.expires_at]:
            await self.delete(key)
        return purged


@fault("purging_is_for_all_namespaces")
class PurgeLooksAtEveryNamespace(Model):
    async def purge(self, namespace: str | None) -> int:
        return await super().purge(None)


@fault("deleting_a_namespace_removes_the_expired_too")
class DeletingLeavesTheExpired(HistoryStore):
    async def delete_namespace(self, namespace: str) -> int:
        keys = [key for key in getattr(history_of_store(self), "_shared", ()) if key.namespace == namespace]
        expired = {key: history_of_store(self)._shared[key] for key in keys}
        deleted = await super().delete_namespace(namespace)
        for key, session in expired.items():
            if session.expires_at:
                history_of_store(self)._shared[key] = session
        return deleted


@fault("a_session_that_began_anew_is_not_purged")
class PurgeRemembersWhatWasDoomed(Model):
    async def expire(self, key: SessionKey, at: int | None) -> None:
        await super().expire(key, at)
        if at and at < agentstore_memory._now():
            DOOMED.add(key)

    async def purge(self, namespace: str | None) -> int:
        purged = await super().purge(namespace)
        for key in [key for key in self._shared if key in DOOMED]:
            await self.delete(key)
        return purged


DOOMED: set[SessionKey] = set()
