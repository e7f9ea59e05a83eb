"""Faults that the sentences about snapshots catch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from agentstore import (
    AgentSession,
    Appended,
    SessionHistory,
    SessionKey,
    Snapshot,
)
from agentstore.backend import (
    Append,
    Refused,
    SnapshotWrite,
    StoredInfo,
    StoredSnapshot,
    Written,
)
from kit_faults.stage import (
    Model,
    change,
    fault,
    history_of,
    in_memory,
)


@fault("without_a_snapshot_none_is_loaded", also=("a_refused_turn_saves_no_snapshot",))
class NoSnapshotIsAnEmptyOne(SessionHistory):
    async def load_snapshot(self) -> Snapshot | None:
        found = await super().load_snapshot()
        return Snapshot({}, 0) if found is None and await self.records() else found


@fault("a_session_comes_back")
class ServiceIdsAreLost(SessionHistory):
    async def save_snapshot(self, session: Any, **options: Any) -> int:
        if isinstance(session, AgentSession):
            session = AgentSession(session_id=session.session_id, state=session.state)
        return await super().save_snapshot(session, **options)


@fault("a_mapping_comes_back")
class MappingsLoseNone(SessionHistory):
    async def save_snapshot(self, session: Any, **options: Any) -> int:
        if session == {"step": [1, None]}:
            session = {"step": [1]}
        return await super().save_snapshot(session, **options)


@fault("versions_count_from_one")
class VersionsStopAtTwo(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        version = await super().save_snapshot(key, snapshot, **options)
        if version == 3 and b'"c"' in snapshot.payload:
            in_memory(self, key).snapshot = change(in_memory(self, key).snapshot, version=2)
            return 2
        return version


@fault(
    "the_expected_version_lets_a_save_through",
    also=(
        "a_snapshot_after_expiry_begins_anew",
        "delete_removes_the_snapshot",
        "of_many_saves_on_one_version_one_wins",
    ),
)
class NoVersionIsNotZero(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        if snapshot.expected_version == 0 and await self.load_snapshot(key) is None:
            return Refused("version")
        return await super().save_snapshot(key, snapshot, **options)


@fault(
    "another_version_refuses_a_save",
    also=(
        "a_refused_snapshot_begins_no_session",
        "of_many_saves_on_one_version_one_wins",
    ),
)
class TheExpectedVersionIsIgnored(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        return await super().save_snapshot(key, change(snapshot, expected_version=None), **options)


@fault("a_bad_expected_version_is_refused")
class AnyExpectedVersionWillDo(SessionHistory):
    async def save_snapshot(self, session: Any, *, expected_version: Any = None) -> int:
        good = type(expected_version) is int and expected_version >= 0
        return await super().save_snapshot(session, expected_version=expected_version if good else None)


@fault("of_many_saves_on_one_version_one_wins")
class VersionsAreComparedBefore(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        there = await self.load_snapshot(key)
        if snapshot.expected_version not in (None, there.version if there else 0):
            return await super().save_snapshot(key, snapshot, **options)
        await asyncio.sleep(0)
        return await super().save_snapshot(key, change(snapshot, expected_version=None), **options)


@fault("saves_at_once_have_versions_of_their_own")
class VersionsAreCountedBefore(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        there = await self.load_snapshot(key)
        await asyncio.sleep(0)
        version = await super().save_snapshot(key, snapshot, **options)
        return version if isinstance(version, Refused) else (there.version if there else 0) + 1


@fault(
    "a_newer_format_is_not_overwritten",
    "the_format_is_compared_in_the_same_step",
)
class FormatsAreOverwritten(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        there = await self.load_snapshot(key)
        known = snapshot.replaceable | ({there.format} if there else set())
        return await super().save_snapshot(key, change(snapshot, replaceable=frozenset(known)), **options)


@fault("a_turn_does_not_overwrite_a_newer_format")
class TurnsOverwriteFormats(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.snapshot and (there := await self.load_snapshot(key)):
            snapshot = change(append.snapshot, replaceable=append.snapshot.replaceable | {there.format})
            append = change(append, snapshot=snapshot)
        return await super().append(key, append)


@fault("the_format_is_compared_in_the_same_step", also=("a_newer_format_is_not_overwritten",))
class FormatsAreComparedAbove(FormatsAreOverwritten):
    pass


@fault(
    "a_snapshot_is_saved_with_the_turn",
    also=(
        "a_replay_does_not_save_the_snapshot_again",
        "a_retry_does_not_save_the_snapshot_again",
        "a_turn_does_not_overwrite_a_newer_format",
        "another_version_refuses_the_turn",
        "clear_keeps_the_snapshot",
        "replace_keeps_metadata_and_snapshot",
    ),
)
class TurnsForgetTheirSnapshot(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, change(append, snapshot=None) if append.records else append)


@fault("another_version_refuses_the_turn")
class TurnsExpectNoVersion(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.snapshot and append.records:
            append = change(append, snapshot=change(append.snapshot, expected_version=None))
        return await super().append(key, append)


@fault("a_refused_turn_saves_no_snapshot")
class SnapshotsAreSavedBeforeTheTurn(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if isinstance(answer, Refused) and append.snapshot and answer.why in ("ids", "last"):
            await self.save_snapshot(key, append.snapshot)
        return answer


@fault("a_replay_does_not_save_the_snapshot_again")
class ReplaysSaveTheirSnapshot(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if isinstance(answer, Written) and append.records and not answer.written and append.snapshot:
            await self.save_snapshot(key, change(append.snapshot, expected_version=None))
        return answer


@fault("every_append_answers_the_current_version")
class OnlySnapshotsAnswerAVersion(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        return answer if append.snapshot or isinstance(answer, Refused) else change(answer, snapshot_version=0)


@fault("an_empty_turn_saves_the_snapshot")
class EmptyTurnsSaveNothing(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        if isinstance(messages, list) and not messages and not getattr(history_of(self), "_closed", True):
            return Appended([], 0, None)
        return await super().append(messages, **options)


@fault("a_snapshot_is_no_message")
class SnapshotsTakeASeq(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        version = await super().save_snapshot(key, snapshot, **options)
        if session := in_memory(self, key):
            session.next_seq += 1
        return version


@fault("clear_keeps_the_snapshot")
class ClearDropsTheSnapshot(Model):
    async def truncate(self, key: SessionKey, **options: Any) -> int:
        if options.get("after") == 0 and (session := in_memory(self, key)):
            session.snapshot = None
        return await super().truncate(key, **options)


@fault("snapshots_belong_to_one_session")
class SnapshotsAreFoundBySessionId(Model):
    async def load_snapshot(self, key: SessionKey) -> StoredSnapshot | None:
        same = [k for k in self._shared if k.session_id == key.session_id and k.source_id != key.source_id]
        return await super().load_snapshot(same[0] if same else key)

    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        return await super().save_snapshot(key, snapshot, **options)


@fault("a_snapshot_begins_a_session")
class SnapshotsBeginNoSession(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        found = await super().list(namespace, **options)
        return [info for info in found if info.count or not in_memory(self, info.key).snapshot]


@fault("a_refused_snapshot_begins_no_session")
class RefusedSnapshotsBegin(Model):
    async def save_snapshot(self, key: SessionKey, snapshot: SnapshotWrite, **options: Any) -> int | Refused:
        answer = await super().save_snapshot(key, snapshot, **options)
        if isinstance(answer, Refused) and await self.info(key) is None:
            await super().append(key, Append((), uuid4().bytes))
        return answer
