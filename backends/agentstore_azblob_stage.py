"""Writing a session's records into a log that nobody sees, until the session's name leads there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from agentstore.backend import SnapshotWrite, StoredRecord
from agentstore.errors import CorruptRecordError, UnavailableError
from agentstore_azblob_blocks import ENTRY_BYTES, FRAME_BYTES, State
from agentstore_azblob_container import KEY, KIND, NEXT, UnmetError
from agentstore_azblob_drafts import Draft, begun
from agentstore_azblob_frames import Block
from agentstore_azblob_ids import IdsLog
from agentstore_azblob_log import SessionLog
from agentstore_azblob_names import ids_log, new_log
from agentstore_azblob_reading import StaleError
from agentstore_azblob_sessions import Session, View

PAGE_BYTES = 4 * 2**20
PAGE_RECORDS = 4096
MOST_PATCHES = 32 * 2**10
"""Bytes that the mapping of updates may have: each update writes it again."""


class Stage:
    """A log in the making."""

    def __init__(self, log: SessionLog, state: State, kind: str) -> None:
        self.name = new_log(log.root)
        self._log = log
        self._kind = kind
        self._state = State(state.born, (self.name,), state.created_at, state.updated_at)
        self._view = View(name=self.name)

    @property
    def depth(self) -> int:
        return self._state.top.depth if self._state.top else 0

    async def open(self) -> None:
        etag = await self._log.container.create(self.name, {KEY: self._log.key, KIND: self._kind}, None)
        self._view = msgspec.structs.replace(self._view, etag=etag)

    async def put(self, records: Sequence[StoredRecord]) -> None:
        """Add records, with the seqs and times that they have."""
        draft = self.draft()
        draft.put_back(records)
        await self.write(draft)

    def draft(self) -> Draft:
        return Draft(self._state, self._view.links, begins=False)

    async def write(self, draft: Draft) -> None:
        view = self._view
        block = Block(self.name, 0, view.length, self._state.born)
        data, self._state, head = draft.block(block, view.head)
        etag, _ = await self._log.container.append(self.name, data, view.etag, view.length)
        self._view = View(name=self.name, etag=etag, length=view.length + len(data), links=block.links, head=head)

    async def remove(self) -> None:
        await self._log.container.delete(self.name)


async def restore(log: SessionLog, pages: AsyncIterator[Sequence[StoredRecord]], ttl: int | None) -> bool:
    """As the waist's `restore`."""
    state = begun(log.root, log.clock.now())
    stage, ids = Stage(log, state, "restore"), IdsLog(log.container, ids_log(log.root, state.born), log.key)
    linked = False
    try:
        await stage.open()
        last = 0
        async for records in pages:
            for page in _pages(records):
                await ids.add(page)
                await stage.put(page)
                last = page[-1].seq
        draft, now = stage.draft(), log.clock.now()
        draft.set(created_at=now, updated_at=now, expires_at=None if ttl is None else now + ttl)
        draft.set(noted=last, noted_depth=stage.depth)
        await stage.write(draft)
        linked = True  # or unknown: then it is left for purge
        linked = await _linked(log, stage.name, state.born)
    except UnmetError as error:
        raise UnavailableError("what was restored was purged before it was complete") from error
    finally:
        if not linked:
            await log.left_over(stage.remove())
            await log.left_over(ids.remove())
    return linked


async def _linked(log: SessionLog, name: str, born: bytes) -> bool:
    """Let the session's name lead to the stage, unless a session lives there."""
    async with log.turn() as deadline:
        while time.monotonic() < deadline:
            view = await log.look()
            if view.state is not None and view.state.born == born:
                return True  # an earlier try, whose answer was lost
            if log.living(view) is not None:
                return False
            try:
                await log.emptied(view, {NEXT: name})  # here it begins
            except UnmetError:
                continue
            log.session.view = None
            await log.left_over(log.remove_parts(view))
            return True
    raise UnavailableError("other writers came first; nothing was restored")


def _pages(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    page: list[StoredRecord] = []
    size = 0
    for record in records:
        if page and (size + len(record.payload) > PAGE_BYTES or len(page) == PAGE_RECORDS):
            yield page
            page, size = [], 0
        page.append(record)
        size += len(record.payload)
    if page:
        yield page


def is_wasteful(session: Session, most: int) -> bool:
    """Whether the log should be written anew: more of it is dead than living, or it has many patches."""
    view, state = session.view, session.view.state if session.view else None
    if view is None or state is None or session.torn:
        return False
    depth = state.top.depth if state.top else 0
    living = state.payload + state.count * ENTRY_BYTES + depth * FRAME_BYTES
    if state.snapshot:
        living += state.snapshot.spot.size
    waste = state.older + view.length - living
    return waste > max(most, living) or (state.patches is not None and state.patches.size > MOST_PATCHES)


async def rewrite(log: SessionLog) -> None:
    """Write what lives into a new log, and let the session's name lead there, unless somebody writes meanwhile."""
    async with log.turn():
        view = log.session.view
        if view is None or view.state is None or log.living(view) is None:
            return
        stage, linked = Stage(log, view.state, "rewrite"), False
        try:
            await stage.open()
            if await _copied(log, view, view.state, stage):
                await log.confirm(view)
                linked = True  # or unknown: then it is left for purge
                await _switched(log, view, stage.name)
        except CorruptRecordError:
            log.session.torn = True
            raise
        except (UnmetError, StaleError):
            newer = await log.look() if linked else view
            linked = newer.state is not None and stage.name in newer.state.logs
        finally:
            if not linked:
                await log.left_over(stage.remove())


async def _copied(log: SessionLog, view: View, state: State, stage: Stage) -> bool:
    """Whether all could be read: what is torn stays where it is."""
    reader, after = log.reader(view), 0
    while records := await reader.read(after, None, PAGE_RECORDS, False):
        for page in _pages(records):
            await stage.put(page)
        after = records[-1].seq
    draft = stage.draft()
    draft.set(seq=state.seq, expires_at=state.expires_at, noted=state.noted, noted_depth=stage.depth)
    if state.snapshot:
        kept = state.snapshot
        payload = await reader.kept(kept.spot)
        draft.save(kept.version, SnapshotWrite(kept.format, payload, frozenset()))
    if state.metadata:
        draft.annotate(await reader.kept(state.metadata))
    draft.carry([header async for header in log.recent(view)])
    await stage.write(draft)
    log.session.torn = reader.broken
    return not reader.broken


async def _switched(log: SessionLog, view: View, name: str) -> None:
    pointer = {KEY: log.key, NEXT: name}
    if view.name == log.root:
        await log.container.create(log.root, pointer, view.etag)  # here it switches; what was there is gone
    else:
        await log.container.annotate(view.name, pointer, view.etag)  # here it switches
        await log.left_over(_old_removed(log, view, pointer))
    log.session.view = None


async def _old_removed(log: SessionLog, view: View, pointer: dict[str, str]) -> None:
    """Empty the session's own blob, and delete the other old logs once it leads past them."""
    await log.container.create(log.root, pointer, view.root_etag)
    for name in view.state.logs if view.state else ():
        if name != log.root:
            await log.container.delete(name)
