"""What each operation of the waist writes upon the state that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentstore.backend import (
    Append,
    Current,
    Plan,
    Record,
    Refused,
    Replace,
    SnapshotWrite,
    Written,
    check_snapshot,
    plan_append,
)
from agentstore_azblob_blocks import Answer, State
from agentstore_azblob_drafts import Draft, begun
from agentstore_azblob_ids import known
from agentstore_azblob_log import SessionLog
from agentstore_azblob_reading import Reader
from agentstore_azblob_sessions import View


async def append(log: SessionLog, call: Append) -> Written | Refused:
    async def plan(view: View, state: State | None) -> Draft:
        if call.retry and state and (answer := await log.remembered(view, call.token)):
            draft = _draft(log, view, state, None)
            draft.answer = answer.given()
            return draft
        draft, reader = _draft(log, view, state, None, call.token), log.reader(view) if state else None
        current = _current(draft.state, await _known(log, reader, call.records, None))
        decided = plan_append(call, current)
        if isinstance(decided, Refused):
            draft.answer = decided
            return draft
        now = draft.state.updated_at
        _write(draft, call, decided, current)
        if call.ttl is not None:
            draft.set(expires_at=now + call.ttl)
        if decided.snapshot:
            draft.save(draft.answer.snapshot_version, decided.snapshot)
        draft.reply = Answer.of(draft.answer)
        return draft

    return await log.write(plan)  # type: ignore[no-any-return]


async def replace(log: SessionLog, call: Replace) -> Written | Refused:
    async def plan(view: View, state: State | None) -> Draft:
        draft, reader = _draft(log, view, state, call.begin_ttl), log.reader(view) if state else None
        current = _current(draft.state, await _known(log, reader, call.records, call.after))
        decided = plan_append(call, current)
        if isinstance(decided, Refused):
            draft.answer = decided
            return draft
        if reader is not None:
            await draft.cut_after(reader, call.after)
        elif not call.records:
            draft.answer = decided.answer(call, current, 1)
            return draft
        _write(draft, call, decided, current)
        return draft

    return await log.write(plan)  # type: ignore[no-any-return]


async def truncate(log: SessionLog, after: int | None, before: int | None) -> int:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, None)
        draft.answer = 0
        if state is None:
            return draft
        if after is not None:
            await draft.cut_after(log.reader(view), after)
        elif before is not None:
            await draft.cut_before(log.reader(view), before)
        draft.answer = state.count - draft.state.count
        return draft

    return int(await log.write(plan))


async def update(log: SessionLog, record: Record) -> bool:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, None)
        draft.answer = False
        reader = log.reader(view) if state else None
        found = await _known(log, reader, [record], None)
        if reader is None or record.id_hash not in found:
            return draft
        at = await reader.entry(found[record.id_hash][0])
        if at is not None:
            await draft.update(reader, at.seq, at.size, record)
            draft.answer = True
        return draft

    return bool(await log.write(plan))


async def remove_newest(log: SessionLog, seq: int, digest: bytes) -> bool:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, None)
        draft.answer = False
        if state is None or state.last != seq:
            return draft
        reader = log.reader(view)
        at = await reader.entry(seq)
        if at is not None and await reader.digest(at) == digest:
            await draft.cut_after(reader, seq - 1)
            draft.answer = True
        return draft

    return bool(await log.write(plan))


async def annotate(log: SessionLog, old: bytes | None, new: bytes | None, ttl: int | None) -> bool:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, ttl)
        spot = state.metadata if state else None
        draft.answer = (await log.reader(view).kept(spot) if spot else None) == old
        if draft.answer:
            draft.annotate(new)
        return draft

    return bool(await log.write(plan))


async def expire(log: SessionLog, at: int | None) -> None:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, None)
        if state is not None:
            draft.set(expires_at=at, updated_at=state.updated_at)
        return draft

    await log.write(plan)


async def save_snapshot(log: SessionLog, snapshot: SnapshotWrite, ttl: int | None) -> int | Refused:
    async def plan(view: View, state: State | None) -> Draft:
        draft = _draft(log, view, state, ttl)
        current = _current(draft.state, {})
        draft.answer = check_snapshot(snapshot, current)
        if draft.answer is None:
            draft.answer = current.snapshot_version + 1
            draft.save(draft.answer, snapshot)
        return draft

    return await log.write(plan)  # type: ignore[no-any-return]


def _draft(log: SessionLog, view: View, state: State | None, ttl: int | None, token: bytes | None = None) -> Draft:
    """A draft upon the view, or that of a session that begins with so long to live."""
    now = log.clock.now()
    if state is None:
        return Draft(begun(log.root, now, ttl), (), begins=True, token=token)
    noted, depth = log.session.noted
    draft = Draft(state, view.links, begins=False, token=token)
    if noted > state.noted:
        draft.set(noted=noted, noted_depth=depth)
    draft.set(updated_at=now)
    draft.writes = False
    return draft


async def _known(
    log: SessionLog, reader: Reader | None, records: Iterable[Record], upto: int | None
) -> Mapping[bytes, tuple[int, bytes]]:
    if reader is None:
        return {}
    before = len(log.session.ids.seqs)
    found = await known(log.container, reader, log.session, log.root, records, upto)
    if len(log.session.ids.seqs) > before:
        log.spare_ids()
    return found


def _current(state: State, found: Mapping[bytes, tuple[int, bytes]]) -> Current:
    snapshot = state.snapshot
    return Current(
        last=state.last,
        known=found,
        snapshot_version=snapshot.version if snapshot else 0,
        snapshot_format=snapshot.format if snapshot else None,
    )


def _write(draft: Draft, call: Append | Replace, decided: Plan, current: Current) -> None:
    first = draft.push(decided.new, draft.state.updated_at)
    draft.answer = decided.answer(call, current, first)
