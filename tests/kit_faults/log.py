"""Faults that the sentences about appending and reading catch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import agentstore_memory
from agentstore import (
    Appended,
    HistoryStore,
    SessionHistory,
    SessionKey,
    StorageError,
    StoredMessage,
    UnavailableError,
)
from agentstore.backend import (
    Append,
    Log,
    Record,
    Refused,
    Replace,
    StoredRecord,
    Written,
)
from agentstore_memory import MemoryBackend
from kit_faults.stage import (
    Model,
    change,
    fault,
    history_of,
    in_memory,
)


@fault(
    "an_unknown_session_reads_as_empty",
    also=(
        "a_bad_expected_last_is_refused",
        "a_cancelled_append_leaves_no_rows_for_others",
        "a_cancelled_delete_is_whole_or_nothing",
        "a_cancelled_fork_is_whole_or_nothing",
        "a_restore_appears_whole",
        "a_restore_that_fails_leaves_nothing",
        "a_session_expires_when_it_was_told",
        "a_session_lives_as_long_as_its_ttl",
        "a_snapshot_has_the_same_limit",
        "an_empty_message_id_is_refused",
        "an_id_with_two_contents_in_one_batch_conflicts",
        "an_unknown_session_has_no_info",
        "contents_refuse_what_they_cannot_keep",
        "delete_removes_messages_and_metadata",
        "every_id_can_be_deleted_alone",
        "fork_of_an_unknown_session_begins_none",
        "only_messages_are_taken",
        "pop_begins_no_session",
        "pop_of_nothing_gives_none",
        "properties_refuse_what_they_cannot_keep",
        "readers_see_whole_turns_only",
        "reading_never_revives",
        "snapshots_refuse_what_they_cannot_keep",
        "the_expired_cannot_be_rewritten",
        "the_expired_is_not_read",
    ),
)
class UnknownSessionsRaise(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        if await self.info(key) is None:
            raise StorageError("no such session")
        return await super().read(key, **options)


@fault("one_batch_comes_back_in_its_order", also=("a_thousand_messages_are_one_append",))
class LongBatchesAreSentInChunksNewestFirst(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        cut = 32
        records = append.records if len(append.records) <= cut else append.records[cut:] + append.records[:cut]
        answer = await super().append(key, change(append, records=records))
        if isinstance(answer, Written) and records is not append.records:
            answer = change(answer, seqs=answer.seqs[-cut:] + answer.seqs[:-cut])
        return answer


@fault(
    "batches_come_back_in_the_order_of_their_appends",
    also=(
        "a_clear_among_appends_takes_whole_turns",
        "a_limit_at_or_above_the_count_gives_all",
        "a_limit_counts_readable_records",
        "a_limit_gives_the_newest_oldest_first",
        "a_limit_of_none_gives_all",
        "a_message_id_may_be_any_text",
        "a_thousand_messages_are_one_append",
        "closing_lets_a_write_finish_or_refuses_it",
        "counters_are_right_after_a_crowd",
        "floats_are_exact",
        "ints_are_exact",
        "iterate_gives_all_oldest_first",
        "iterate_sees_what_is_appended_meanwhile",
        "nothing_is_before_the_first",
        "one_batch_comes_back_in_its_order",
        "one_writers_turns_stay_in_order",
        "readers_see_old_or_new",
        "readers_see_whole_turns_only",
        "sessions_do_not_disturb_each_other",
        "text_of_any_script_is_exact",
        "text_that_looks_like_a_marker_is_exact",
        "truncate_before_drops_the_older",
        "turns_of_many_writers_are_whole_and_none_is_lost",
    ),
)
class OrdersBySeqAsText(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        return sorted(await super().read(key, **options), key=lambda record: str(record.seq))


@fault("a_clock_that_steps_back_changes_no_order")
class OrdersByClock(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        return sorted(await super().read(key, **options), key=lambda record: record.created_at)


@fault(
    "an_append_answers_with_the_seqs_of_its_messages",
    also=(
        "a_fork_goes_on_alone",
        "a_seq_is_never_reused_after_clear",
        "a_seq_is_never_reused_after_pop",
        "a_seq_is_never_reused_after_truncate",
        "new_ids_that_another_call_wrote_first_are_found",
        "pop_of_a_corrupt_newest_removes_nothing",
        "removing_a_record_frees_its_id",
        "replace_by_nothing_empties",
        "seqs_start_at_one_and_ascend",
        "the_answer_to_a_batch_that_was_partly_there_is_kept",
        "the_first_write_may_be_raced",
    ),
)
class AnswersPlacesInTheBatch(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if isinstance(answer, Written):
            answer = change(answer, seqs=list(range(1, len(append.records) + 1)))
        return answer


@fault(
    "an_append_answers_how_many_are_new",
    also=(
        "a_lost_answer_leaves_one_copy",
        "a_thousand_messages_are_one_append",
        "the_new_part_of_a_replay_is_written",
    ),
)
class AnswersOneForAnythingNew(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        return change(answer, written=min(answer.written, 1)) if isinstance(answer, Written) else answer


@fault(
    "seqs_start_at_one_and_ascend",
    also=(
        "a_restore_that_fails_leaves_nothing",
        "a_session_remembers_its_last_tokens",
        "after_delete_seqs_start_at_one",
        "clear_and_truncate_do_nothing_to_an_unknown_session",
        "other_writes_update_too",
        "seqs_of_sessions_are_their_own",
    ),
)
class SeqsStartAtZero(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        first = in_memory(self, key) is None
        answer = await super().append(key, append)
        if first and isinstance(answer, Written):
            in_memory(self, key).next_seq += 41
            in_memory(self, key).records[:] = [change(r, seq=r.seq + 41) for r in in_memory(self, key).records]
            in_memory(self, key).seqs = {r.id_hash: r.seq for r in in_memory(self, key).records}
            answer = change(answer, seqs=[seq + 41 for seq in answer.seqs])
        return answer


@fault(
    "another_store_object_sees_what_was_appended",
    also=(
        "a_key_makes_a_retry_exact",
        "a_later_part_takes_the_sessions_expiry",
        "a_replay_moves_the_expiry_too",
        "a_store_without_ttl_never_changes_an_expiry",
        "annotations_at_once_are_all_kept",
        "another_backend_object_sees_writes_at_once",
        "closing_lets_a_write_finish_or_refuses_it",
        "concurrent_pops_hand_each_message_out_once",
        "counters_are_right_after_a_crowd",
        "fork_copies_neither_metadata_nor_snapshot_nor_expiry",
        "ids_are_exact_from_another_backend_object",
        "of_many_appends_on_one_last_seq_one_wins",
        "of_many_saves_on_one_version_one_wins",
        "one_message_sent_by_many_is_one_record",
        "pop_of_a_corrupt_newest_removes_nothing",
        "presence_never_lags",
        "purging_keeps_the_living",
        "saves_at_once_have_versions_of_their_own",
        "setup_may_be_raced",
        "the_first_write_may_be_raced",
        "turns_of_many_writers_are_whole_and_none_is_lost",
        "what_is_skipped_is_logged",
        "what_was_acknowledged_is_there_after_reopening",
        "without_auto_setup_a_write_is_refused",
    ),
)
class EachStoreObjectHasItsOwnData(HistoryStore):
    def __init__(self, backend: Log, **options: Any) -> None:
        own = MemoryBackend() if isinstance(backend, Model) and backend.name in STORES else backend
        STORES.add(getattr(backend, "name", ""))
        super().__init__(own, **options)


STORES: set[str] = set()


@fault(
    "honest_repeats_are_kept",
    also=(
        "a_message_without_id_is_given_one",
        "a_replay_costs_the_same",
        "a_seq_is_never_reused_after_truncate",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
        "other_keys_are_other_messages",
        "other_writes_update_too",
        "seqs_start_at_one_and_ascend",
    ),
)
class DropsEqualMessages(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        there = {record.digest: record.seq for record in await self.read(key)}
        records = {r.digest: r for r in append.records if r.digest not in there or not r.fresh}
        answer = await super().append(key, change(append, records=tuple(records.values())))
        if not isinstance(answer, Written):
            return answer
        given = {**there, **dict(zip(records, answer.seqs, strict=True))}
        return change(answer, seqs=[given[record.digest] for record in append.records])


@fault("an_empty_append_writes_nothing", "an_empty_append_begins_no_session")
class EmptyAppendsAreWritten(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        answer = await super().append(messages, **options)
        if isinstance(messages, list) and not messages:
            await history_of(self).append(self.key, Append((), uuid4().bytes))
        return answer


@fault("a_thousand_messages_are_one_append")
class BatchesAreCutAtFiveHundred(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, change(append, records=append.records[:500]))
        if isinstance(answer, Written):
            answer = change(answer, seqs=answer.seqs + answer.seqs[-1:] * (len(append.records) - 500))
        return answer


@fault(
    "a_limit_gives_the_newest_oldest_first",
    also=(
        "a_bad_limit_or_before_is_refused_before_any_io",
        "a_clock_that_steps_back_changes_no_order",
        "a_limit_counts_readable_records",
        "a_limit_of_one_gives_the_newest",
        "an_append_with_a_condition_costs_the_same",
        "another_backend_object_sees_writes_at_once",
        "before_gives_those_with_a_lower_seq",
        "records_are_the_messages_with_seq_and_time",
        "successive_event_loops_work",
    ),
)
class LimitGivesTheOldest(SessionHistory):
    async def _newest(self, limit: Any, before: Any) -> Any:
        found = await super()._newest(None, before) if limit else await super()._newest(limit, before)
        return found[:limit]


@fault(
    "a_limit_of_none_gives_all",
    also=(
        "a_clear_among_appends_takes_whole_turns",
        "a_message_id_may_be_any_text",
        "a_thousand_messages_are_one_append",
        "batches_come_back_in_the_order_of_their_appends",
        "closing_lets_a_write_finish_or_refuses_it",
        "floats_are_exact",
        "ints_are_exact",
        "one_batch_comes_back_in_its_order",
        "one_writers_turns_stay_in_order",
        "other_keys_are_other_messages",
        "readers_see_old_or_new",
        "readers_see_whole_turns_only",
        "sessions_do_not_disturb_each_other",
        "text_of_any_script_is_exact",
        "text_that_looks_like_a_marker_is_exact",
        "the_first_write_may_be_raced",
        "threads_with_loops_of_their_own_work",
        "truncate_takes_exactly_one_bound",
        "turns_of_many_writers_are_whole_and_none_is_lost",
    ),
)
class NoLimitMeansNine(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        return await super().messages(limit=9 if limit is None and before is None else limit, before=before)


@fault("a_limit_of_zero_gives_none")
class LimitOrNone(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        return await super().messages(limit=limit if limit is False else limit or None, before=before)


@fault(
    "a_limit_of_one_gives_the_newest",
    also=(
        "a_limit_counts_readable_records",
        "another_backend_object_sees_writes_at_once",
        "successive_event_loops_work",
    ),
)
class ALimitOfOneIsTheFirst(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        if limit == 1 and type(limit) is int:
            return (await super().messages(before=before))[:1]
        return await super().messages(limit=limit, before=before)


@fault("a_limit_at_or_above_the_count_gives_all", also=("a_limit_counts_readable_records",))
class ALimitAboveTheCountGivesNothing(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        found = await super().messages(limit=limit, before=before)
        return [] if limit is not None and len(found) < limit else found


@fault("before_gives_those_with_a_lower_seq", also=("records_are_the_messages_with_seq_and_time",))
class BeforeIsInclusive(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        shifted = before + 1 if type(before) is int and 1 < before < 10 else before
        return await super().messages(limit=limit, before=shifted)


@fault("nothing_is_before_the_first")
class BeforeOrNone(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        return await super().messages(limit=limit, before=None if before == 0 and before is not False else before)


@fault("a_bad_limit_or_before_is_refused_before_any_io")
class ABoolIsALimit(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        return await super().messages(limit=1 if limit is True else limit, before=before)


@fault("records_are_the_messages_with_seq_and_time")
class RecordsAreCountedFromOne(SessionHistory):
    async def records(self, *, limit: Any = None, before: Any = None) -> list[StoredMessage]:
        found = await super().records(limit=limit, before=before)
        if limit is None or before is None:
            return found
        return [StoredMessage(place, r.created_at, r.message) for place, r in enumerate(found, 1)]


@fault("times_are_aware_utc_and_about_now", also=("fork_copies_records_with_seqs_ids_and_times",))
class TimesAreMilliseconds(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        return [change(r, created_at=r.created_at // 1000) for r in await super().read(key, **options)]


class PagedHistory(SessionHistory):
    """`iterate` with a wrong idea of pages."""

    def iterate(self, *, after: int = 0, page_size: int = 500) -> AsyncIterator[StoredMessage]:
        super().iterate(after=after, page_size=page_size)
        return self.paged(after, page_size)

    async def paged(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        raise NotImplementedError
        yield


@fault("iterate_gives_all_oldest_first")
class PagesLoseTheirLast(SessionHistory):
    async def _pages(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        place = 0
        async for record in super()._pages(after, page_size):
            place += 1
            if page_size != 3 or place % 3:
                yield record


@fault("iterate_starts_after_a_seq")
class IterateStartsAtTheFirst(SessionHistory):
    def iterate(self, *, after: int = 0, page_size: int = 500) -> AsyncIterator[StoredMessage]:
        return super().iterate(after=0 if type(after) is int and after > 0 else after, page_size=page_size)


@fault("iterate_refuses_bad_bounds")
class IterateTakesAnyBounds(SessionHistory):
    def iterate(self, *, after: Any = 0, page_size: Any = 500) -> AsyncIterator[StoredMessage]:
        return super().iterate(after=after, page_size=page_size if type(page_size) is int and page_size > 0 else 5)


@fault(
    "iterate_reads_a_page_at_a_time", "the_first_page_costs_the_same", also=("iterate_sees_what_is_appended_meanwhile",)
)
class IterateReadsAllFirst(SessionHistory):
    async def _pages(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        for record in [record async for record in super()._pages(after, page_size)]:
            yield record


@fault("iterate_sees_what_is_appended_meanwhile", also=("iterate_reads_a_page_at_a_time",))
class IterateEndsAtTheFirstLast(SessionHistory):
    async def _pages(self, after: int, page_size: int) -> AsyncIterator[StoredMessage]:
        newest = await history_of(self).read(self.key, limit=1, newest=True)
        async for record in super()._pages(after, page_size):
            if newest and record.seq <= newest[0].seq:
                yield record


@fault("a_read_has_both_bounds_and_both_ends")
class NewestForgetsAfter(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        if options.get("newest"):
            options.pop("after", None)
        return await super().read(key, **options)


@fault("a_megabyte_comes_back")
class PayloadsAreCut(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        records = [change(record, payload=record.payload[:1_000_000]) for record in append.records]
        return await super().append(key, change(append, records=tuple(records)))


@fault(
    "truncate_after_drops_the_newer",
    also=(
        "info_names_first_and_last_seq",
        "other_writes_update_too",
        "removing_a_record_frees_its_id",
        "the_last_seq_is_that_of_the_newest_living_record",
        "truncate_beyond_the_ends_drops_all_or_none",
    ),
)
class TruncateAfterIsInclusive(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        return await super().truncate(key, after=max(after - 1, 0) if after else after, before=before)


@fault(
    "truncate_before_drops_the_older",
    also=(
        "info_counts_the_messages",
        "info_names_first_and_last_seq",
        "truncate_beyond_the_ends_drops_all_or_none",
    ),
)
class TruncateBeforeIsInclusive(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        return await super().truncate(key, after=after, before=before and before + 1)


@fault("truncate_beyond_the_ends_drops_all_or_none")
class TruncateNeedsARecord(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        if before and before not in [record.seq for record in await self.read(key)]:
            return 0
        return await super().truncate(key, after=after, before=before)


@fault("truncate_takes_exactly_one_bound")
class TruncateTakesBothBounds(SessionHistory):
    async def truncate(self, *, after: Any = None, before: Any = None) -> int:
        return await super().truncate(after=after, before=None if after is not None else before)


@fault("clear_drops_all_and_says_how_many", "a_clear_among_appends_takes_whole_turns")
class ClearSaysNothing(SessionHistory):
    async def clear(self) -> int:
        return min(await super().clear(), 0)


@fault("clear_touches_no_other_session")
class ClearFindsSessionsByTheirIdOnly(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        for other in list(self._shared):
            if after == 0 and other != key and other.session_id == key.session_id:
                await super().truncate(other, after=0)
        return await super().truncate(key, after=after, before=before)


class ReusesSeqs(Model):
    """The next seq is one above the newest record's, whatever was there before."""

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if session := in_memory(self, key):
            session.next_seq = session.last + 1
        return await super().append(key, append)


@fault(
    "a_seq_is_never_reused_after_clear",
    "a_seq_is_never_reused_after_truncate",
    "a_seq_is_never_reused_after_pop",
    also=(
        "removing_a_record_frees_its_id",
        "replace_by_nothing_empties",
    ),
)
class SeqsAreReused(ReusesSeqs):
    pass


@fault(
    "clear_and_truncate_do_nothing_to_an_unknown_session",
    also=(
        "lost_answers_to_the_catalog_are_the_callers",
        "removing_from_an_unknown_session_begins_none",
        "the_expired_cannot_be_truncated",
    ),
)
class TruncateNeedsASession(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        if await self.info(key) is None:
            raise StorageError("no such session")
        return await super().truncate(key, after=after, before=before)


@fault(
    "clear_is_one_boundary",
    also=(
        "a_clear_among_appends_takes_whole_turns",
        "lost_answers_to_rewriting_are_the_callers",
        "the_last_seq_is_that_of_the_newest_living_record",
    ),
)
class ClearIsATombstone(Model):
    """What is appended within a second after a clear is taken for older than it."""

    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        if after == 0 and (session := in_memory(self, key)):
            session.cleared_at = agentstore_memory._now()
        return await super().truncate(key, after=after, before=before)

    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        cleared_at = getattr(in_memory(self, key), "cleared_at", 0)
        return [r for r in await super().read(key, **options) if r.created_at > cleared_at + 1_000_000]


@fault("the_store_answers_a_ping", also=("before_set_up_reads_find_nothing_and_create_nothing",))
class PingFails(Model):
    async def ping(self) -> None:
        raise UnavailableError("no answer")


@fault("a_waist_append_keeps_format_payload_and_digest")
class DigestsAreMadeAnew(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        known = [change(record, digest=bytes(reversed(record.digest))) for record in append.records]
        return await super().append(key, change(append, records=tuple(known)))

    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        known = [change(record, digest=bytes(reversed(record.digest))) for record in replace.records]
        return await super().replace(key, change(replace, records=tuple(known)))

    async def update(self, key: SessionKey, record: Record) -> bool:
        return await super().update(key, change(record, digest=bytes(reversed(record.digest))))


@fault("seqs_of_sessions_are_their_own", also=("a_restore_that_fails_leaves_nothing",))
class OneCounterForAllSessions(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if in_memory(self, key) is None and self._shared:
            self._shared[key] = agentstore_memory._Session(agentstore_memory._now(), agentstore_memory._now())
            self._shared[key].next_seq = max(session.next_seq for session in self._shared.values())
        return await super().append(key, append)
