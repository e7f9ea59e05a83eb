"""Faults that the sentences about ids catch."""

from __future__ import annotations

import copy
import json
from typing import Any
from uuid import uuid4

from agentstore import (
    Appended,
    ConflictError,
    Message,
    SessionHistory,
    SessionKey,
)
from agentstore.backend import (
    Append,
    Refused,
    Written,
)
from agentstore.codec import Encoded
from kit_faults.stage import (
    ChangingCodec,
    Model,
    change,
    fault,
    in_memory,
)


@fault(
    "what_is_already_there_is_not_written_again",
    also=(
        "a_cancelled_append_can_be_made_again",
        "a_conflict_names_the_ids",
        "a_conflict_of_ids_comes_before_the_expected_last_seq",
        "a_conflict_writes_none_of_the_batch",
        "a_fork_knows_its_ids",
        "a_key_makes_a_retry_exact",
        "a_key_with_other_contents_conflicts",
        "a_message_id_may_be_any_text",
        "a_refused_turn_saves_no_snapshot",
        "a_replay_does_not_save_the_snapshot_again",
        "a_second_lost_answer_is_the_callers",
        "a_waist_append_keeps_format_payload_and_digest",
        "an_id_that_stays_is_not_written_again",
        "an_id_that_stays_with_other_contents_refuses_the_replace",
        "another_role_under_an_id_conflicts",
        "identity_is_id_role_and_contents_only",
        "ids_are_exact_from_another_backend_object",
        "ids_come_before_the_expected_last_seq",
        "info_counts_the_messages",
        "new_ids_that_another_call_wrote_first_are_found",
        "one_message_sent_by_many_is_one_record",
        "other_contents_under_an_id_conflict",
        "other_writes_update_too",
        "pop_never_removes_what_was_updated_meanwhile",
        "the_answer_to_a_batch_that_was_partly_there_is_kept",
        "the_new_part_of_a_replay_is_written",
        "the_order_of_keys_does_not_change_identity",
        "update_gives_a_new_digest",
        "update_gives_new_contents_at_the_same_place",
        "updates_are_exact_and_independent",
    ),
)
class IdsAreIgnored(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        records = [change(record, id_hash=uuid4().bytes) for record in append.records]
        return await super().append(key, change(append, records=tuple(records)))


@fault(
    "new_ids_that_another_call_wrote_first_are_found",
    also=(
        "a_replay_costs_the_same",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
    ),
)
class NewIdsAreNotLookedUp(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        there = {record.id_hash for record in await self.read(key)}
        records = [
            change(record, id_hash=uuid4().bytes) if record.fresh and record.id_hash in there else record
            for record in append.records
        ]
        return await super().append(key, change(append, records=tuple(records)))


@fault(
    "the_new_part_of_a_replay_is_written",
    also=(
        "a_replay_costs_the_same",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
        "the_answer_to_a_batch_that_was_partly_there_is_kept",
    ),
)
class AReplayIsAllOrNothing(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        known = {record.id_hash: record for record in await self.read(key)}
        both = [known[record.id_hash] for record in append.records if record.id_hash in known]
        if len(both) == len(append.records) or not both or any(r.fresh for r in append.records):
            return await super().append(key, append)
        if any(known[r.id_hash].digest != r.digest for r in append.records if r.id_hash in known):
            return await super().append(key, append)
        if append.expected_last is not None:
            return await super().append(key, append)
        return Written([known.get(r.id_hash, both[0]).seq for r in append.records], 0, 0)


@fault(
    "other_contents_under_an_id_conflict",
    also=(
        "a_conflict_names_the_ids",
        "a_conflict_of_ids_comes_before_the_expected_last_seq",
        "a_conflict_writes_none_of_the_batch",
        "a_key_with_other_contents_conflicts",
        "a_refused_turn_saves_no_snapshot",
        "another_role_under_an_id_conflicts",
        "update_gives_a_new_digest",
    ),
)
class TheLastWriterWins(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        for record in append.records:
            if not append.retry:
                await self.update(key, record)
        return await super().append(key, append)


@fault("another_role_under_an_id_conflicts", also=("a_replay_costs_the_same",))
class RoleBlindCodec(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(identity=json.dumps(obj.to_dict()["contents"], sort_keys=True, default=repr).encode())


@fault("a_conflict_names_the_ids", also=("a_refused_append_begins_no_session",))
class ConflictsNameNothing(SessionHistory):
    async def append(self, *args: Any, **options: Any) -> Appended:
        try:
            return await super().append(*args, **options)
        except ConflictError as error:
            raise ConflictError("some message is there with other contents: first-id, second-id, m1, format") from error


@fault("a_conflict_writes_none_of_the_batch")
class WhatStandsBeforeAConflictIsWritten(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if isinstance(answer, Refused) and answer.why == "ids":
            await super().append(key, Append(append.records[: answer.positions[0]], uuid4().bytes))
        return answer


@fault("an_id_with_two_contents_in_one_batch_conflicts")
class TheLastOfABatchWins(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        if isinstance(messages, list) and all(type(message) is Message for message in messages):
            by_id = {message.message_id or id(message): message for message in messages}
            if len(by_id) < len(messages) and len({m.text for m in messages}) > 1:
                messages = list(by_id.values())
        return await super().append(messages, **options)


@fault("the_same_object_twice_is_one_record")
class EveryPlaceIsARecord(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        if isinstance(messages, list) and len(messages) == 2 and messages[0] is messages[1]:
            messages = [messages[0], copy.copy(messages[1])]
        return await super().append(messages, **options)


@fault("the_order_of_keys_does_not_change_identity", also=("a_replay_costs_the_same",))
class KeyOrderIsIdentity(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        return super().encode(obj)._replace(identity=repr((obj.role, obj.contents)).encode("utf-8", "surrogatepass"))


@fault("identity_is_id_role_and_contents_only", also=("a_replay_costs_the_same",))
class TheAuthorIsIdentity(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(identity=[encoded.identity, obj.author_name == "Ann"])


@fault(
    "an_id_belongs_to_one_session",
    also=(
        "a_cancelled_annotation_is_whole_or_nothing",
        "a_cancelled_append_is_whole_or_nothing",
        "a_cancelled_fork_is_whole_or_nothing",
        "a_cancelled_pop_is_whole_or_nothing",
        "a_cancelled_replace_is_whole_or_nothing",
        "a_cancelled_turn_with_snapshot_is_whole_or_nothing",
        "a_cancelled_update_is_whole_or_nothing",
        "a_newer_stored_version_is_refused",
        "a_second_cycle_changes_nothing",
        "an_append_with_a_condition_costs_the_same",
        "clear_touches_no_other_session",
        "every_id_can_be_deleted_alone",
        "every_id_can_be_listed",
        "joined_parts_never_meet",
        "namespaces_never_meet",
        "no_broken_payload_is_taken_for_a_message",
        "only_appends_move_the_expiry",
        "rewriting_leaves_the_expiry",
        "session_ids_never_meet",
        "source_ids_never_meet",
        "the_first_page_costs_the_same",
    ),
)
class IdsAreUniqueInTheWholeStore(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        elsewhere = {id for other, session in self._shared.items() if other != key for id in session.seqs}
        if any(record.id_hash in elsewhere for record in append.records):
            return Written([1] * len(append.records), 0, 0)
        return await super().append(key, append)


@fault(
    "a_message_without_id_is_given_one",
    also=(
        "a_cancelled_append_can_be_made_again",
        "a_keys_ids_are_a_fixed_function",
        "a_second_lost_answer_is_the_callers",
    ),
)
class IdsAreNotPutOnTheObject(ChangingCodec):
    def assign_id(self, obj: Message, message_id: str, /) -> bool:
        return False


@fault(
    "the_id_is_given_before_the_write",
    also=(
        "a_cancelled_append_can_be_made_again",
        "a_second_lost_answer_is_the_callers",
    ),
)
class IdsAreGivenAfterTheWrite(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        if not isinstance(messages, list) or not all(type(m) is Message and m.message_id is None for m in messages):
            return await super().append(messages, **options)
        copies = {id(message): copy.copy(message) for message in messages}
        answer = await super().append([copies[id(message)] for message in messages], **options)
        for message in messages:
            message.message_id = copies[id(message)].message_id
        return answer


@fault("a_given_id_stays")
class IdsAreOurs(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        for message in messages if isinstance(messages, list) else ():
            if getattr(message, "message_id", None) == "chosen":
                message.message_id = "ours"
        return await super().append(messages, **options)


@fault("a_message_id_may_be_any_text")
class MessageIdsAreFolded(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        folded = encoded.message_id and (encoded.message_id.strip().casefold() or " ")
        return encoded._replace(message_id=folded)


@fault("an_empty_message_id_is_refused")
class AnEmptyIdIsNone(ChangingCodec):
    def encode(self, obj: Message, /) -> Encoded:
        encoded = super().encode(obj)
        return encoded._replace(message_id=encoded.message_id or None)


class OtherKeys(SessionHistory):
    """Another idea of what a key is for."""

    def id_of(self, key: str, place: int, message: Message) -> str | None:
        raise NotImplementedError

    async def append(self, messages: Any, *, idempotency_key: Any = None, **options: Any) -> Appended:
        if type(idempotency_key) is str and idempotency_key:
            for place, message in enumerate(messages):
                message.message_id = self.id_of(idempotency_key, place, message)
            return await super().append(messages, **options)
        return await super().append(messages, idempotency_key=idempotency_key, **options)


@fault(
    "a_key_makes_a_retry_exact",
    also=(
        "a_key_with_other_contents_conflicts",
        "a_keys_ids_are_a_fixed_function",
        "ids_are_exact_from_another_backend_object",
    ),
)
class KeysAreIgnored(OtherKeys):
    def id_of(self, key: str, place: int, message: Message) -> str | None:
        return None


@fault("a_keys_ids_are_a_fixed_function")
class KeysHaveAnotherFunction(OtherKeys):
    def id_of(self, key: str, place: int, message: Message) -> str | None:
        return f"{len(key)}:{key}:{place}"


@fault("other_keys_are_other_messages", also=("a_keys_ids_are_a_fixed_function",))
class KeysAreJoined(OtherKeys):
    def id_of(self, key: str, place: int, message: Message) -> str | None:
        return f"{key}{place}"


@fault("a_key_with_other_contents_conflicts", also=("a_keys_ids_are_a_fixed_function",))
class KeysCountTheContents(OtherKeys):
    def id_of(self, key: str, place: int, message: Message) -> str | None:
        return f"{len(key)}:{key}:{place}:{message.text}"


@fault("a_bad_key_is_refused")
class AnyKeyWillDo(SessionHistory):
    async def append(self, messages: Any, *, idempotency_key: Any = None, **options: Any) -> Appended:
        return await super().append(messages, idempotency_key=idempotency_key or None, **options)


@fault(
    "the_expected_last_seq_lets_an_append_through",
    also=(
        "a_retry_gets_the_first_answer_though_others_appended",
        "after_delete_seqs_start_at_one",
        "an_append_after_expiry_begins_anew",
        "ids_come_before_the_expected_last_seq",
    ),
)
class NothingIsExpectedOfTheUnknown(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.expected_last == 0 and await self.info(key) is None:
            return Refused("last")
        return await super().append(key, append)


@fault(
    "another_last_seq_refuses_an_append",
    also=(
        "a_partly_new_batch_needs_the_expected_last_seq",
        "a_refused_append_begins_no_session",
        "a_refused_turn_saves_no_snapshot",
        "of_many_appends_on_one_last_seq_one_wins",
    ),
)
class TheExpectedLastSeqIsIgnored(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, change(append, expected_last=None))


@fault(
    "the_last_seq_is_that_of_the_newest_living_record",
    also=(
        "after_pop_the_one_before_is_the_expected_last",
        "an_append_after_expiry_begins_anew",
    ),
)
class TheLastSeqIsTheCounters(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = in_memory(self, key)
        if append.expected_last is None or session is None or append.retry:
            return await super().append(key, append)
        agrees = append.expected_last == session.next_seq - 1
        return await super().append(key, change(append, expected_last=session.last if agrees else 1 << 40))


@fault(
    "ids_come_before_the_expected_last_seq",
    "a_conflict_of_ids_comes_before_the_expected_last_seq",
    also=(
        "a_replay_does_not_save_the_snapshot_again",
        "an_append_after_expiry_begins_anew",
    ),
)
class TheLastSeqComesBeforeIds(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = in_memory(self, key)
        if append.expected_last is not None and session and not append.retry and append.expected_last != session.last:
            return Refused("last", actual=session.last)
        return await super().append(key, append)


@fault(
    "a_partly_new_batch_needs_the_expected_last_seq",
    also=(
        "a_replay_costs_the_same",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
    ),
)
class OneKnownIdIsEnough(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        known = {record.id_hash for record in await self.read(key)}
        if any(record.id_hash in known for record in append.records):
            append = change(append, expected_last=None)
        return await super().append(key, append)


class KeepsIds(Model):
    """Ids of what was removed stay taken."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.taken: dict[tuple[SessionKey, bytes], int] = {}

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        living = {record.id_hash for record in await self.read(key)}
        places = [(key, record.id_hash) for record in append.records]
        if self.stays(key) and any(place in self.taken and place[1] not in living for place in places):
            return Written([self.taken.get(place, 1) for place in places], 0, 0)
        answer = await super().append(key, append)
        if isinstance(answer, Written):
            self.taken.update(zip(places, answer.seqs, strict=True))
        return answer

    def stays(self, key: SessionKey) -> bool:
        session = in_memory(self, key)
        return session is not None


@fault(
    "removing_a_record_frees_its_id",
    "clearing_frees_all_ids",
    "pop_frees_the_id",
    also=(
        "a_replay_costs_the_same",
        "a_retry_does_not_bring_back_what_was_removed_since",
        "a_session_remembers_its_last_tokens",
        "an_append_after_expiry_begins_anew",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
        "an_expired_session_forgets_its_tokens",
        "lost_answers_to_rewriting_are_the_callers",
        "the_answer_to_a_batch_that_was_partly_there_is_kept",
    ),
)
class IdsAreKeptAfterRemoval(KeepsIds):
    pass


@fault("a_bad_expected_last_is_refused")
class AnyExpectedLastWillDo(SessionHistory):
    async def append(self, messages: Any, *, expected_last: Any = None, **options: Any) -> Appended:
        good = type(expected_last) is int and expected_last >= 0
        return await super().append(messages, expected_last=expected_last if good else None, **options)
