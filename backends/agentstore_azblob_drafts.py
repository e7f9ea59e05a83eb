"""A write in the making: what it changes in a session's state, and the block that says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from agentstore.backend import Record, SnapshotWrite, StoredRecord
from agentstore.errors import CorruptRecordError
from agentstore_azblob_blocks import Answer, Header, KeptSnapshot, Link, Patch, Spot, State, cut, encode
from agentstore_azblob_frames import Block, Pushed
from agentstore_azblob_reading import Frame, Reader


def begun(root: str, now: int, ttl: int | None = None) -> State:
    """The state of a session that begins."""
    return State(
        born=os.urandom(8),
        logs=(root,),
        created_at=now,
        updated_at=now,
        expires_at=None if ttl is None else now + ttl,
    )


class Draft:
    """What is written upon a state, or (`writes` is false) only an answer."""

    def __init__(self, state: State, links: Sequence[Link], *, begins: bool, token: bytes | None = None) -> None:
        self.state = state
        self.begins = begins
        self.token = token or os.urandom(16)
        self.answer: Any = None
        self.writes = False
        self.done = False
        self.doubtful = False
        self.seq_before = state.seq
        self.reply: Answer | None = None
        self.pushed: list[Pushed] = []
        self._links = list(links)
        self._snapshot: tuple[int, SnapshotWrite] | None = None
        self._metadata: bytes | None = None
        self._update: tuple[int, Record, int] | None = None
        self._patches: dict[int, Patch] | None = None
        self._carried: Sequence[Header] = ()

    def set(self, **changes: Any) -> None:
        self.writes = True
        self.state = msgspec.structs.replace(self.state, **changes)

    def push(self, records: Sequence[Record], now: int) -> int:
        """Put new records at the end; the seq of the first."""
        first = self.state.seq + 1
        self.pushed = [Pushed(seq, now, record) for seq, record in enumerate(records, first)]
        self.set(seq=self.state.seq + len(records))
        if records:
            self.set(first=self.state.first or first)
        return first

    def put_back(self, records: Sequence[StoredRecord]) -> None:
        """Put records at the end with the seqs and times that they have."""
        self.pushed = [Pushed(record.seq, record.created_at, record) for record in records]
        self.set(seq=records[-1].seq, first=self.state.first or records[0].seq)

    def save(self, version: int, snapshot: SnapshotWrite) -> None:
        self._snapshot = version, snapshot
        self.writes = True

    def annotate(self, metadata: bytes | None) -> None:
        self._metadata = metadata
        self.set(metadata=None)

    def carry(self, headers: Sequence[Header]) -> None:
        """Take over the tokens and answers of earlier writes, the newest first."""
        self._carried = headers

    def clear(self) -> None:
        """Drop every record."""
        self._links, self._patches = [], None
        self.set(top=None, first=0, low=0, low_count=0, low_payload=0, patches=None, growth=0)

    async def cut_after(self, reader: Reader, after: int) -> None:
        """Drop the records with a seq above `after`."""
        state = self.state
        self.writes = True
        if state.top is None or after >= state.top.last:
            return
        if after < max(state.first, state.low, 1):
            self.clear()
            return
        frame = await reader.descend(lambda other: other.last, after + 1)
        _refuse_torn(frame, after + 1)
        kept = cut(frame.link, frame.entries or (), after)
        if kept is None:
            frame = await reader.frame(frame.links[0], frame.links)  # there is one: the oldest living record stays
            kept = frame.link
        self._links = frame.links
        self.set(top=kept)
        await self._prune(reader)

    async def cut_before(self, reader: Reader, before: int) -> None:
        """Drop the records with a seq below `before`."""
        state = self.state
        self.writes = True
        if state.top is None or before <= state.first:
            return
        if before > state.top.last:
            self.clear()
            return
        frame = await reader.descend(lambda other: other.last, before)
        _refuse_torn(frame, before)
        below = frame.below
        dead = [entry for entry in frame.entries or () if entry.seq < before]
        kept = [entry.seq for entry in frame.entries or () if entry.seq >= before]
        self.set(
            first=kept[0] if kept else frame.link.last,
            low=before,
            low_count=(below.count if below else 0) + len(dead),
            low_payload=(below.payload if below else 0) + sum(entry.size for entry in dead),
        )
        await self._prune(reader)

    async def update(self, reader: Reader, seq: int, size: int, record: Record) -> None:
        """Put another content in the place of the record `seq`, whose payload had that size when it was new."""
        self._patches = dict(await reader.patches())
        self._update = seq, record, len(record.payload) - size
        self.writes = True

    async def _prune(self, reader: Reader) -> None:
        """Forget the patches of what is dead."""
        if self.state.patches is None:
            return
        patches = await reader.patches()
        self._patches = {s: p for s, p in patches.items() if self.state.low <= s <= self.state.last}

    def block(self, block: Block, before: Spot | None) -> tuple[bytes, State, Spot]:
        """The write's bytes, the state as a reader sees it, and where the header at the end is."""
        block.token = self.token
        block.top, block.links = self.state.top, self._links
        for header in reversed(self._carried):
            before = block.remember(header, before)
        block.push(self.pushed)
        state = self.state
        if self._snapshot:
            version, snapshot = self._snapshot
            kept = KeptSnapshot(version, snapshot.format, block.keep(snapshot.payload))
            state = msgspec.structs.replace(state, snapshot=kept)
        if self._metadata is not None:
            state = msgspec.structs.replace(state, metadata=block.keep(self._metadata))
        if self._patches is not None:
            state = self._patched(block, state, dict(self._patches))
        return block.close(state, before, self.reply)

    def _patched(self, block: Block, state: State, patches: dict[int, Patch]) -> State:
        if self._update:
            seq, record, growth = self._update
            patches[seq] = Patch(record.digest, record.format, block.keep(record.payload), growth)
        spot = block.keep(encode(patches)) if patches else None
        return msgspec.structs.replace(state, patches=spot, growth=sum(p.growth for p in patches.values()))


def _refuse_torn(frame: Frame, seq: int) -> None:
    """Raise where the cut below `seq` goes through a frame that cannot be read: nobody knows what would go."""
    if frame.entries is None and frame.within(0, seq, None):
        raise CorruptRecordError(f"the records up to seq {frame.link.last} are torn, and cannot be cut apart at {seq}")
