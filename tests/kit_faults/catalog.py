"""Faults that the sentences about info, metadata, delete and listings catch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import agentstore_memory
from agentstore import (
    HistoryStore,
    PayloadTooLargeError,
    SessionHistory,
    SessionKey,
    SessionPage,
    UnsupportedValueError,
)
from agentstore.backend import (
    Append,
    Record,
    Refused,
    StoredInfo,
    StoredSnapshot,
    Written,
)
from kit_faults.stage import (
    Model,
    WrongInfo,
    change,
    change_id,
    downcast,
    fault,
    history_of,
    history_of_store,
    in_memory,
)


@fault(
    "info_counts_the_messages",
    also=(
        "a_session_emptied_by_pop_still_exists",
        "an_emptied_session_still_exists",
        "first_and_last_seq_are_zero_when_empty",
        "rewriting_keeps_count_and_bytes_right",
    ),
)
class CountNeverShrinks(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        return change(info, count=in_memory(self, info.key).next_seq - 1)


@fault("info_names_first_and_last_seq", also=("rewriting_keeps_count_and_bytes_right",))
class FirstSeqIsAlwaysOne(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        return change(info, first_seq=min(info.first_seq, 1))


@fault("first_and_last_seq_are_zero_when_empty")
class LastSeqIsTheCounter(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        return change(info, last_seq=info.last_seq or in_memory(self, info.key).next_seq - 1)


@fault(
    "info_sums_the_bytes",
    also=(
        "a_page_of_the_listing_costs_the_same",
        "an_annotation_costs_the_same",
        "info_costs_the_same",
    ),
)
class BytesAreCharacters(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        return change(
            info, size=sum(len(r.payload.decode(errors="replace")) for r in in_memory(self, info.key).records)
        )


@fault("rewriting_keeps_count_and_bytes_right")
class UpdatesDoNotCount(Model):
    async def update(self, key: SessionKey, record: Record) -> bool:
        before = in_memory(self, key) and in_memory(self, key).size
        updated = await super().update(key, record)
        if updated:
            in_memory(self, key).size = before
        return updated


@fault("info_has_the_key")
class KeysAreStripped(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        odd = info.key.session_id == "né \x00"
        return change(info, key=change_id(info.key, "né")) if odd else info


@fault("created_once_and_updated_by_every_append")
class CreatedAtIsUpdatedAt(WrongInfo):
    def told(self, info: StoredInfo) -> StoredInfo:
        return change(info, created_at=info.updated_at)


@fault("other_writes_update_too")
class AnnotationsDoNotUpdate(Model):
    async def annotate(self, key: SessionKey, *args: Any, **options: Any) -> bool:
        before = in_memory(self, key) and in_memory(self, key).updated_at
        done = await super().annotate(key, *args, **options)
        if done and before:
            in_memory(self, key).updated_at = before
        return done


@fault(
    "an_emptied_session_still_exists",
    also=(
        "clear_keeps_metadata",
        "first_and_last_seq_are_zero_when_empty",
    ),
)
class EmptySessionsAreDropped(Model):
    async def truncate(self, key: SessionKey, **options: Any) -> int:
        gone = await super().truncate(key, **options)
        if gone and options.get("after") == 0 and not in_memory(self, key).records:
            EMPTIED[key] = self._shared.pop(key)
        return gone

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.back(key)
        return await super().append(key, append)

    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        self.back(key)
        return await super().load_snapshot(key)

    def back(self, key: SessionKey) -> None:
        if key in EMPTIED:
            self._shared[key] = EMPTIED.pop(key)


EMPTIED: dict[SessionKey, Any] = {}


@fault("a_session_emptied_by_pop_still_exists")
class PopEndsTheSession(Model):
    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        removed = await super().remove_newest(key, seq, digest)
        if removed and seq == 1 and not in_memory(self, key).records:
            self.ended = key
        return removed

    async def info(self, key: SessionKey) -> StoredInfo | None:
        return None if getattr(self, "ended", None) == key else await super().info(key)


@fault("removing_from_an_unknown_session_begins_none")
class TruncateBeginsASession(Model):
    async def truncate(self, key: SessionKey, **options: Any) -> int:
        if await self.info(key) is None and options.get("before") == 5:
            await super().append(key, Append((), uuid4().bytes))
        return await super().truncate(key, **options)


@fault("a_refused_append_begins_no_session")
class RefusedAppendsBegin(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if isinstance(answer, Refused) and await self.info(key) is None:
            await super().append(key, Append((), uuid4().bytes))
        return answer


@fault("annotate_merges_top_level_keys")
class AnnotateReplaces(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        info = await self.info() if "mood" in metadata and await history_of(self).readiness() == "ready" else None
        gone = dict.fromkeys(info.metadata) if info and metadata.get("mood", 1) is None else {}
        await super().annotate({**gone, **metadata})


@fault("annotating_none_removes_a_key")
class NoneRemovesNothing(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        await super().annotate({name: item for name, item in metadata.items() if item is not None})


@fault("metadata_has_a_limit")
class MetadataIsCutSilently(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        with suppress(PayloadTooLargeError):
            await super().annotate(metadata)


@fault("metadata_refuses_what_it_cannot_keep")
class MetadataIsDowncast(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        try:
            await super().annotate(metadata)
        except UnsupportedValueError:
            await super().annotate(downcast(metadata))


@fault("annotating_begins_a_session")
class AnnotationsAreNotListed(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        found = await super().list(namespace, **options)
        return [info for info in found if info.metadata != b'{"title":"A"}' or info.count]


@fault("annotating_disturbs_no_writer")
class AnnotationsDisturbWriters(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.expected_last and (session := in_memory(self, key)) and session.metadata:
            return Refused("last")
        return await super().append(key, append)


@fault("annotations_at_once_are_all_kept", "metadata_is_swapped_only_for_what_was_read")
class MetadataIsSwappedBlindly(Model):
    async def annotate(self, key: SessionKey, old: Any, new: Any, **options: Any) -> bool:
        await asyncio.sleep(0)
        session = await self.info(key)
        return await super().annotate(key, session.metadata if session else None, new, **options)


@fault("clear_keeps_metadata")
class ClearDropsMetadata(Model):
    async def truncate(self, key: SessionKey, **options: Any) -> int:
        if options.get("after") == 0 and (session := in_memory(self, key)):
            session.metadata = None
        return await super().truncate(key, **options)


class KeepsParts(Model):
    """Something of a session survives its deletion."""

    async def delete(self, key: SessionKey) -> bool:
        session = in_memory(self, key)
        existed = await super().delete(key)
        if session:
            KEPT_PARTS[key] = session
        return existed

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        begins = in_memory(self, key) is None
        answer = await super().append(key, append)
        if begins and key in KEPT_PARTS and in_memory(self, key):
            self.revive(in_memory(self, key), KEPT_PARTS.pop(key))
        return answer

    def revive(self, session: Any, old: Any) -> None:
        raise NotImplementedError


KEPT_PARTS: dict[SessionKey, Any] = {}


@fault("delete_removes_messages_and_metadata")
class MetadataSurvives(KeepsParts):
    def revive(self, session: Any, old: Any) -> None:
        session.metadata = old.metadata


@fault("a_deleted_session_is_not_listed")
class DeletedSessionsAreListed(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        found = list(await super().list(namespace, **options))
        ghosts = [info for key, info in GHOSTS.items() if key.namespace == namespace]
        return found or (ghosts if options.get("start") is None else [])

    async def delete(self, key: SessionKey) -> bool:
        if (info := await self.info(key)) and info.count == 1:
            GHOSTS[key] = info
        return await super().delete(key)


GHOSTS: dict[SessionKey, StoredInfo] = {}


@fault("after_delete_seqs_start_at_one")
class TheCounterSurvives(Model):
    async def delete(self, key: SessionKey) -> bool:
        session = in_memory(self, key)
        if session and len(session.records) == 2:
            COUNTERS[key] = session.next_seq
        return await super().delete(key)

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if key in COUNTERS and in_memory(self, key) is None:
            self._shared[key] = agentstore_memory._begun(append.ttl)
            self._shared[key].next_seq = COUNTERS.pop(key)
        return await super().append(key, append)


COUNTERS: dict[SessionKey, int] = {}


@fault("delete_touches_no_other_session", also=("deleting_a_namespace_is_exact",))
class DeleteFindsSessionsByTheirId(Model):
    async def delete(self, key: SessionKey) -> bool:
        existed = await super().delete(key)
        for other in [k for k in self._shared if k.session_id == key.session_id and k.namespace == key.namespace]:
            await super().delete(other)
        return existed


@fault("delete_removes_the_snapshot")
class SnapshotsSurvive(Model):
    async def delete(self, key: SessionKey) -> bool:
        session = in_memory(self, key)
        existed = await super().delete(key)
        if session and session.snapshot and not session.records:
            self._shared[key] = session
        return existed


@fault("an_empty_namespace_lists_nothing", "the_last_page_has_no_cursor")
class TheLastPageHasACursor(HistoryStore):
    async def sessions(self, *, cursor: Any = None, **options: Any) -> SessionPage:
        page = await super().sessions(cursor=None if cursor == "the end" else cursor, **options)
        if cursor == "the end":
            return SessionPage([], None)
        ready = isinstance(history_of_store(self), Model) and await history_of_store(self).readiness() == "ready"
        return SessionPage(page.items, page.cursor or ("the end" if ready else None))


@fault(
    "presence_never_lags",
    also=(
        "a_listing_of_a_namespace_is_exact",
        "a_listing_of_a_source_is_exact",
        "deleting_a_namespace_is_exact",
        "every_id_can_be_listed",
        "pages_of_any_size_list_each_session_once",
        "the_expired_is_not_listed",
        "the_last_page_has_no_cursor",
        "the_newest_activity_comes_first",
        "ties_are_in_the_order_of_keys",
    ),
)
class TheListingLags(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        newest = next((key for key in reversed(self._shared) if key.namespace == namespace), None)
        found = await super().list(namespace, **options)
        return [info for info in found if info.key != newest or len(self._shared) < 3 or info.count != 1]


@fault("a_listing_has_infos")
class ListingsHaveNoMetadata(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        return [change(info, metadata=None) for info in await super().list(namespace, **options)]


class Sorted(Model):
    """Lists by another order; the whole listing is sorted, then cut."""

    def place(self, info: StoredInfo) -> Any:
        raise NotImplementedError

    async def list(self, namespace: str, *, source_id: Any, limit: int, start: Any) -> Sequence[StoredInfo]:
        found = await super().list(namespace, source_id=source_id, limit=10**9, start=None)
        found = sorted(found, key=self.place)
        marks = [agentstore_memory.activity_minute(i.updated_at) for i in found]
        places = [(m, i.key.source_id, i.key.session_id) for m, i in zip(marks, found, strict=True)]
        return found[places.index(start) + 1 if start in places else 0 :][:limit]


@fault("the_newest_activity_comes_first")
class ListsByCreation(Sorted):
    def place(self, info: StoredInfo) -> Any:
        return -(info.created_at // 60_000_000), info.key


@fault("ties_are_in_the_order_of_keys")
class TiesAreInTheOrderOfLength(Sorted):
    def place(self, info: StoredInfo) -> Any:
        return -(info.updated_at // 60_000_000), len(info.key.source_id.encode()), info.key


@fault("pages_of_any_size_list_each_session_once")
class PagesForgetTheSource(Model):
    async def list(self, namespace: str, *, start: Any, **options: Any) -> Sequence[StoredInfo]:
        found = await super().list(namespace, start=start, **options)
        return [info for info in found if start is None or info.key.session_id != start[2] or info.key.source_id != "1"]


@fault("what_is_written_during_paging_hides_no_other")
class PagesAreOffsets(HistoryStore):
    async def sessions(self, *, limit: Any = 50, cursor: Any = None, **options: Any) -> SessionPage:
        if cursor is not None and not str(cursor).isdecimal():
            raise ValueError("cursor")
        page = await super().sessions(limit=10**6 if type(limit) is int and limit > 0 else limit, **options)
        place = int(cursor or 0)
        more = len(page.items) > place + limit
        return SessionPage(page.items[place : place + limit], str(place + limit) if more else None)


@fault("a_listing_of_a_source_is_exact")
class SourcesAreListedByPrefix(Model):
    async def list(self, namespace: str, *, source_id: Any, limit: int, **options: Any) -> Sequence[StoredInfo]:
        found = await super().list(namespace, source_id=None, limit=10**6, **options)
        return [info for info in found if info.key.source_id.startswith(source_id or "")][:limit]


@fault("a_listing_of_a_namespace_is_exact")
class NamespacesAreListedByPrefix(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        names = {key.namespace for key in self._shared if key.namespace.startswith(namespace)}
        names = names if len(names) > 5 else {namespace}
        return [info for name in sorted(names) for info in await Model.list(self, name, **options)]


@fault("a_bad_listing_is_refused")
class AnyLimitLists(HistoryStore):
    async def sessions(self, *, limit: Any = 50, **options: Any) -> SessionPage:
        return await super().sessions(limit=limit if type(limit) is int and limit > 0 else 50, **options)


@fault("deleting_a_namespace_is_exact")
class NamespacesAreDeletedByPrefix(HistoryStore):
    async def delete_namespace(self, namespace: str) -> int:
        deleted = await super().delete_namespace(namespace)
        for other in {key.namespace for key in getattr(history_of_store(self), "_shared", ())}:
            if other.startswith(namespace):
                await super().delete_namespace(other)
        return deleted
