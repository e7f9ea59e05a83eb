"""Faults that the sentences about pop, replace, update and fork catch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import agentstore_memory
from agentstore import (
    Appended,
    CorruptRecordError,
    SessionHistory,
    SessionKey,
    StoredMessage,
)
from agentstore.backend import (
    Append,
    Record,
    Refused,
    Replace,
    StoredRecord,
    Written,
)
from kit_faults.stage import (
    Model,
    change,
    fault,
    history_of,
    in_memory,
)


@fault("pop_removes_the_newest_and_gives_it")
class PopOnlyLooks(SessionHistory):
    async def pop(self) -> StoredMessage | None:
        if len(found := await self.records()) == 3 and found[0].message.text == "a":
            return found[-1]
        return await super().pop()


@fault(
    "pop_of_nothing_gives_none",
    also=(
        "before_set_up_every_look_up_creates_nothing",
        "concurrent_pops_hand_each_message_out_once",
        "pop_begins_no_session",
        "the_expired_cannot_be_rewritten",
    ),
)
class PopOfNothingRaises(SessionHistory):
    async def pop(self) -> StoredMessage | None:
        if (popped := await super().pop()) is None and isinstance(history_of(self), Model):
            raise IndexError("pop from an empty session")
        return popped


@fault("after_pop_the_one_before_is_the_expected_last")
class PopLeavesTheLastSeq(Model):
    popped: ClassVar[dict[SessionKey, int]] = {}

    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        removed = await super().remove_newest(key, seq, digest)
        if removed:
            self.popped[key] = seq
        return removed

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        seq = self.popped.pop(key, None)
        if seq and append.expected_last is not None and append.expected_last != seq:
            return Refused("last", actual=seq)
        return await super().append(key, append)


@fault("concurrent_pops_hand_each_message_out_once")
class PopIsReadThenDelete(SessionHistory):
    async def pop(self) -> StoredMessage | None:
        backend = history_of(self)
        newest = await self.records(limit=1)
        if len(newest) == 0 or not isinstance(backend, Model) or newest[0].seq < 12:
            return await super().pop()
        await asyncio.sleep(0)
        await backend.truncate(self.key, after=newest[0].seq - 1)
        return newest[0]


@fault(
    "pop_never_takes_another_than_it_gives",
    "only_the_newest_is_removed_as_newest",
    also=("pop_never_removes_what_was_updated_meanwhile",),
)
class RemovesWhateverIsNewest(Model):
    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        newest = await self.read(key, limit=1, newest=True)
        if not newest or seq > newest[0].seq:
            return await super().remove_newest(key, seq, digest)
        return await super().remove_newest(key, newest[0].seq, newest[0].digest)


@fault("pop_never_removes_what_was_updated_meanwhile", "only_the_newest_is_removed_as_newest")
class RemovesByPlaceOnly(Model):
    async def remove_newest(self, key: SessionKey, seq: int, digest: bytes) -> bool:
        newest = await self.read(key, limit=1, newest=True)
        return await super().remove_newest(key, seq, newest[0].digest if newest else digest)


@fault(
    "an_unknown_session_has_no_info",
    "pop_begins_no_session",
    "a_refused_append_begins_no_session",
    also=(
        "a_cancelled_fork_is_whole_or_nothing",
        "a_restore_appears_whole",
        "delete_removes_messages_and_metadata",
        "fork_of_an_unknown_session_begins_none",
    ),
)
class LookingBeginsASession(Model):
    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        self.begin(key)
        return await super().read(key, **options)

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.begin(key)
        return await super().append(key, append)

    def begin(self, key: SessionKey) -> None:
        now = agentstore_memory._now()
        self._shared.setdefault(key, agentstore_memory._Session(now, now))


@fault("pop_of_a_corrupt_newest_removes_nothing")
class PopDropsTheUnreadable(SessionHistory):
    async def pop(self) -> StoredMessage | None:
        try:
            return await super().pop()
        except CorruptRecordError:
            newest = await history_of(self).read(self.key, limit=1, newest=True)
            await self.truncate(after=newest[0].seq - 1)
            raise


@fault("replace_swaps_all")
class ReplaceOnlyAppends(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if len(replace.records) == 1 and replace.after == 0 and b'"c"' in replace.records[0].payload:
            return await super().append(key, Append(replace.records, uuid4().bytes))
        return await super().replace(key, replace)


@fault(
    "replace_keeps_what_is_up_to_after",
    also=(
        "an_id_that_stays_is_not_written_again",
        "an_id_that_stays_with_other_contents_refuses_the_replace",
    ),
)
class ReplaceForgetsAfter(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        return await super().replace(key, change(replace, after=0))


@fault("replaced_records_get_new_seqs")
class ReplaceReusesSeqs(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if (session := in_memory(self, key)) and replace.records:
            session.next_seq = replace.after + 1
        return await super().replace(key, replace)


@fault(
    "ids_may_repeat_those_being_replaced",
    also=(
        "a_cancelled_replace_is_whole_or_nothing",
        "an_id_that_stays_with_other_contents_refuses_the_replace",
    ),
)
class ReplacedIdsAreTaken(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        there = {record.id_hash: record.digest for record in await self.read(key)}
        if [r for r in replace.records if there.get(r.id_hash, r.digest) != r.digest]:
            return Refused("ids")
        return await super().replace(key, replace)


@fault("an_id_that_stays_is_not_written_again", "an_id_that_stays_with_other_contents_refuses_the_replace")
class ReplaceWritesIdsAgain(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if replace.after and (session := in_memory(self, key)):
            session.seqs = {hash: seq for hash, seq in session.seqs.items() if seq > replace.after}
        return await super().replace(key, replace)


@fault("an_append_since_refuses_the_replace")
class ReplaceExpectsNothing(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        return await super().replace(key, change(replace, expected_last=None))


@fault("the_expected_last_seq_lets_a_replace_through", also=("rewriting_after_expiry_begins_anew",))
class ReplaceExpectsTooMuch(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        return await super().replace(key, replace) if replace.expected_last is None else Refused("last")


@fault(
    "an_append_after_a_replace_comes_after_it",
    also=(
        "a_replay_costs_the_same",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
        "replace_by_nothing_empties",
    ),
)
class ReplaceGivesFarSeqs(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        answer = await super().replace(key, replace)
        session = in_memory(self, key)
        if isinstance(answer, Written) and session and b'"summary"' in (session.records or [None])[0].payload:
            session.records[:] = [change(record, seq=record.seq + 10**6) for record in session.records]
            session.seqs = {record.id_hash: record.seq for record in session.records}
            answer = change(answer, seqs=[seq + 10**6 for seq in answer.seqs])
        return answer

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if session := in_memory(self, key):
            session.records.sort(key=lambda record: record.seq)
        return answer


@fault("replace_swaps_what_is_there_when_it_takes_effect")
class ReplaceSwapsWhatItRead(SessionHistory):
    async def replace(self, messages: Any, *, after: int = 0, expected_last: Any = None) -> Appended:
        newest = await self.records(limit=1)
        if newest and expected_last is None and newest[0].message.text == "a":
            expected_last = newest[0].seq
        return await super().replace(messages, after=after, expected_last=expected_last)


@fault("readers_see_old_or_new")
class ReplaceIsTwoSteps(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if len(replace.records) != 20:
            return await super().replace(key, replace)
        await self.truncate(key, after=replace.after)
        await asyncio.sleep(0)
        return await super().replace(key, replace)


@fault("replace_by_nothing_empties")
class ReplaceByNothingDoesNothing(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if not replace.records and replace.expected_last is None:
            return Written([], 0, 0)
        return await super().replace(key, replace)


@fault(
    "replace_of_an_unknown_session_writes",
    also=(
        "a_session_begun_otherwise_has_the_ttl",
        "rewriting_after_expiry_begins_anew",
        "the_expected_last_seq_lets_a_replace_through",
    ),
)
class ReplaceNeedsASession(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        if await self.info(key) is None and replace.records:
            return Refused("last")
        return await super().replace(key, replace)


@fault("replace_by_nothing_begins_no_session")
class ReplaceByNothingBegins(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        answer = await super().replace(key, replace)
        if not replace.records and isinstance(answer, Written):
            await super().append(key, Append((), uuid4().bytes))
        return answer


@fault("replace_keeps_metadata_and_snapshot")
class ReplaceBeginsAnew(Model):
    async def replace(self, key: SessionKey, replace: Replace) -> Written | Refused:
        answer = await super().replace(key, replace)
        if session := in_memory(self, key):
            session.metadata = None
        return answer


@fault("update_gives_new_contents_at_the_same_place")
class UpdateMovesToTheEnd(Model):
    async def update(self, key: SessionKey, record: Record) -> bool:
        updated = await super().update(key, record)
        session = in_memory(self, key)
        if updated and len(session.records) == 3:
            session.records.sort(key=lambda stored: stored.id_hash == record.id_hash)
        return updated


@fault(
    "update_gives_a_new_digest",
    also=(
        "an_update_costs_the_same",
        "pop_never_removes_what_was_updated_meanwhile",
    ),
)
class UpdateLeavesTheDigest(Model):
    async def update(self, key: SessionKey, record: Record) -> bool:
        there = {stored.id_hash: stored.digest for stored in await self.read(key)}
        digest = there.get(record.id_hash, record.digest) if len(there) == 1 and len(record.payload) < 300 else None
        return await super().update(key, change(record, digest=digest or record.digest))


@fault("update_of_what_is_not_there_is_false", "update_begins_no_session", also=("the_expired_cannot_be_rewritten",))
class UpdateWritesWhatIsNotThere(Model):
    async def update(self, key: SessionKey, record: Record) -> bool:
        if not await super().update(key, record):
            await super().append(key, Append((record,), uuid4().bytes))
        return True


@fault("update_needs_an_id")
class UpdateGivesAnId(SessionHistory):
    async def update(self, message: Any) -> bool:
        message.message_id = message.message_id or uuid4().hex
        return await super().update(message)


class Restoring(Model):
    """Changes what a restore is given."""

    def kept(self, records: list[StoredRecord]) -> list[StoredRecord]:
        raise NotImplementedError

    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        async def changed() -> AsyncIterator[Sequence[StoredRecord]]:
            async for page in pages:
                yield self.kept(list(page))

        return await super().restore(key, changed(), **options)


@fault("fork_copies_records_with_seqs_ids_and_times")
class ForksHaveNewTimes(Restoring):
    def kept(self, records: list[StoredRecord]) -> list[StoredRecord]:
        return [change(record, created_at=record.created_at + 1) for record in records]


@fault("fork_copies_up_to_a_seq")
class ForkForgetsAt(SessionHistory):
    async def fork(self, new_session_id: str, *, at: Any = None) -> SessionHistory:
        return await super().fork(new_session_id)


@fault("fork_stays_in_source_and_namespace")
class ForksAreHistory(SessionHistory):
    async def fork(self, new_session_id: str, *, at: Any = None) -> SessionHistory:
        forked = await super().fork(new_session_id, at=at)
        forked.key = SessionKey(self.key.namespace, "history", new_session_id)
        return forked


@fault("a_fork_goes_on_alone")
class ForksShareTheirRecords(SessionHistory):
    async def fork(self, new_session_id: str, *, at: Any = None) -> SessionHistory:
        forked = await super().fork(new_session_id, at=at)
        there = history_of(self)
        session = in_memory(there, self.key) if isinstance(there, Model) else None
        if session and len(session.records) == 1 and session.snapshot is None and b'"a"' in session.records[0].payload:
            there._shared[forked.key] = session
        return forked


@fault("a_fork_knows_its_ids")
class ForksDoNotIndexIds(Model):
    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        done = await super().restore(key, pages, **options)
        if done and len(in_memory(self, key).records) == 1:
            in_memory(self, key).seqs = {}
        return done


@fault("fork_onto_a_session_conflicts", "a_restore_never_overwrites_what_began_meanwhile")
class RestoreOverwrites(Model):
    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        records = [record async for page in pages for record in page]

        async def again() -> AsyncIterator[Sequence[StoredRecord]]:
            yield records

        self._shared.pop(key, None)
        return await super().restore(key, again(), **options)


@fault("a_restore_never_overwrites_what_began_meanwhile")
class RestoreLooksFirstOnly(Model):
    async def restore(self, key: SessionKey, pages: Any, **options: Any) -> bool:
        if await self.info(key):
            return False
        records = [record async for page in pages for record in page]

        async def again() -> AsyncIterator[Sequence[StoredRecord]]:
            yield records

        self._shared.pop(key, None)
        return await super().restore(key, again(), **options)


@fault("fork_copies_neither_metadata_nor_snapshot_nor_expiry")
class ForksCopyMetadata(SessionHistory):
    async def fork(self, new_session_id: str, *, at: Any = None) -> SessionHistory:
        forked = await super().fork(new_session_id, at=at)
        info = await self.info() if isinstance(history_of(self), Model) else None
        if info and info.metadata:
            await forked.annotate(info.metadata)
        return forked


@fault("fork_of_an_unknown_session_begins_none", "the_expired_cannot_be_rewritten")
class ForksOfNothingBegin(SessionHistory):
    async def fork(self, new_session_id: str, *, at: Any = None) -> SessionHistory:
        forked = await super().fork(new_session_id, at=at)
        if await history_of(self).readiness() == "ready" and await forked.info() is None:
            await forked.annotate({"forked": True})
        return forked


@fault(
    "a_restore_appears_whole",
    "a_restore_that_fails_leaves_nothing",
    also=("a_restore_never_overwrites_what_began_meanwhile",),
)
class RestoresAreSeenHalf(Model):
    async def restore(self, key: SessionKey, pages: Any, *, begin_ttl: int | None = None) -> bool:
        if await self.info(key):
            return False
        now = agentstore_memory._now()
        session = agentstore_memory._begun(begin_ttl)
        first = True
        async for page in pages:
            if first is False and self._shared.get(key) is not session:
                return False
            if first and key in self._shared and self._shared[key].expires_at is None:
                return False
            self._shared[key], first = session, False
            for record in page:
                session.put(record)
            session.next_seq = session.last + 1
        if first:
            self._shared[key] = session
        session.updated_at = now
        return True
