"""Faults that the sentences about many at once catch."""

from __future__ import annotations

import asyncio

from agentstore import (
    SessionKey,
)
from agentstore.backend import (
    Append,
    Refused,
    StoredInfo,
    Written,
)
from kit_faults.stage import (
    Model,
    TwoSteps,
    WrongInfo,
    change,
    fault,
    in_memory,
)


@fault(
    "turns_of_many_writers_are_whole_and_none_is_lost",
    "readers_see_whole_turns_only",
    also=(
        "a_clear_among_appends_takes_whole_turns",
        "one_writers_turns_stay_in_order",
    ),
)
class TurnsAreWrittenMessageByMessage(TwoSteps):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        plain = len(append.records) == 4 and append.expected_last is None and not append.retry
        return await (self.one_by_one(key, append) if plain else super().append(key, append))


@fault("one_writers_turns_stay_in_order")
class AcknowledgedTurnsOvertake(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        session = in_memory(self, key)
        if session and len(session.records) == 48 * 4:
            turns = [session.records[place : place + 4] for place in range(0, 192, 4)]
            payloads = [record for turn in reversed(turns) for record in turn]
            session.records[:] = [
                change(moved, seq=stayed.seq) for moved, stayed in zip(payloads, session.records, strict=True)
            ]
        return answer


@fault(
    "the_first_write_may_be_raced",
    also=(
        "a_clear_among_appends_takes_whole_turns",
        "one_message_sent_by_many_is_one_record",
        "one_writers_turns_stay_in_order",
        "turns_of_many_writers_are_whole_and_none_is_lost",
    ),
)
class TheFirstWriteIsCheckedThenMade(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if in_memory(self, key) is None:
            await asyncio.sleep(0)
            self._shared.pop(key, None)
        return await super().append(key, append)


@fault(
    "one_message_sent_by_many_is_one_record",
    also=(
        "a_replay_costs_the_same",
        "an_append_costs_the_same",
        "an_append_with_a_condition_costs_the_same",
        "an_append_with_ids_costs_the_same",
    ),
)
class IdsAreCheckedBefore(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        known = {record.id_hash for record in await self.read(key)}
        await asyncio.sleep(0)
        if len(append.records) == 1 and append.records[0].id_hash not in known and in_memory(self, key):
            in_memory(self, key).seqs.pop(append.records[0].id_hash, None)
        return await super().append(key, append)


@fault("of_many_appends_on_one_last_seq_one_wins")
class TheLastSeqIsComparedBefore(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        newest = await self.read(key, limit=1, newest=True)
        await asyncio.sleep(0)
        if append.expected_last and newest and newest[0].seq == append.expected_last:
            append = change(append, expected_last=None)
        return await super().append(key, append)


@fault("a_clear_among_appends_takes_whole_turns", also=("a_session_remembers_its_last_tokens",))
class ClearCutsAtAStaleSeq(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        records = await self.read(key)
        if after == 0 and len(records) > 10:
            return await super().truncate(key, before=records[-1].seq - 1)
        return await super().truncate(key, after=after, before=before)


@fault("sessions_do_not_disturb_each_other")
class SessionsShareABuffer(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.buffer = append
        busy = len({k.session_id for k in self._shared}) > 8 and len(append.records) == 4
        if busy:
            await asyncio.sleep(0)
        return await super().append(key, self.buffer if busy else append)


@fault("counters_are_right_after_a_crowd")
class CountersAreReadThenWritten(WrongInfo):
    running = 0
    lost = 0

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.running += 1
        await asyncio.sleep(0)
        self.lost += self.running > 1
        self.running -= 1
        return await super().append(key, append)

    def told(self, info: StoredInfo) -> StoredInfo:
        return change(info, count=info.count - self.lost) if info.count == 64 else info
