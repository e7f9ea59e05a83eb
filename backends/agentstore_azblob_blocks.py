"""The form of a log: blocks of frames, each a chain link of the session's living records.

One write is one block, whole or absent: frames of at most 32 records, the last of which holds the session's state.

    frame    payloads · index (msgpack) · header (msgpack) · trailer
    trailer  marker 16 · size of the header 4 · size of the frame 4 · CRC of the header 4

What a reader needs first is at the end, so that a log can be read from its end backwards. The index has an `Entry` for
each record; who only looks for a frame reads the header alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from agentstore.backend import Written

FRAME_RECORDS = 32
"""So many records share a header: a reader of few reads little more."""
TRAILER = struct.Struct(">16sIII")
ENTRY_BYTES, FRAME_BYTES = 72, 768
"""About what a record takes beside its payload, and a frame beside its records."""


class Link(msgspec.Struct, frozen=True, array_like=True):
    """A frame on the living path, up to one of its records."""

    log: int
    """Which of the state's logs."""
    offset: int
    size: int
    head: int
    """How much of its end is header and trailer."""
    depth: int
    """How many frames the path has, up to this one."""
    last: int
    """Seq of its newest living record."""
    count: int
    """How many records the path has, up to that one."""
    payload: int
    """... and how many bytes of payload."""

    @property
    def end(self) -> int:
        return self.offset + self.size


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A record without its payload."""

    seq: int
    created_at: int
    id_hash: bytes
    digest: bytes
    format: str
    size: int
    crc: int


class Spot(msgspec.Struct, frozen=True, array_like=True):
    """Where some bytes are."""

    log: int
    offset: int
    size: int
    crc: int


class Patch(msgspec.Struct, frozen=True, array_like=True):
    """What an update put in the place of a record."""

    digest: bytes
    format: str
    spot: Spot
    growth: int
    """How much longer its payload is than the one it replaces."""


class KeptSnapshot(msgspec.Struct, frozen=True, array_like=True):
    version: int
    format: str
    spot: Spot


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What an append was answered."""

    runs: list[tuple[int, int]]
    """Its seqs: each first one, and how many follow each other from there."""
    written: int
    version: int

    @classmethod
    def of(cls, answer: Written) -> Answer:
        runs: list[tuple[int, int]] = []
        for seq in answer.seqs:
            if runs and seq == sum(runs[-1]):
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((seq, 1))
        return cls(runs, answer.written, answer.snapshot_version)

    def given(self) -> Written:
        seqs = [seq for first, count in self.runs for seq in range(first, first + count)]
        return Written(seqs, self.written, self.version)


class State(msgspec.Struct, frozen=True, array_like=True):
    """All that is small about a session; every block has it."""

    born: bytes
    """8 random bytes that name this incarnation."""
    logs: tuple[str, ...]
    """The names of its logs, in the order in which they came."""
    created_at: int
    updated_at: int
    expires_at: int | None = None
    seq: int = 0
    """The highest that was ever given."""
    top: Link | None = None
    """The newest frame with living records; where this block has records, that is its own last one."""
    first: int = 0
    """Seq of the oldest living record."""
    low: int = 0
    """What has a lower seq is dead."""
    low_count: int = 0
    low_payload: int = 0
    patches: Spot | None = None
    """A mapping of seq to `Patch`."""
    growth: int = 0
    """Sum over the patches."""
    snapshot: KeptSnapshot | None = None
    metadata: Spot | None = None
    noted: int = 0
    """The log of ids has all up to this seq."""
    noted_depth: int = 0
    older: int = 0
    """How many bytes the logs before the newest have."""

    @property
    def last(self) -> int:
        return self.top.last if self.top else 0

    @property
    def count(self) -> int:
        return self.top.count - self.low_count if self.top else 0

    @property
    def payload(self) -> int:
        return self.top.payload - self.low_payload + self.growth if self.top else 0

    @property
    def density(self) -> int:
        """About how many bytes of the log a record takes."""
        if self.top is None:
            return 0
        return (self.top.payload + self.top.depth * FRAME_BYTES) // self.top.count + ENTRY_BYTES


class Header(msgspec.Struct, frozen=True, array_like=True):
    token: bytes
    """16 bytes that name the write."""
    links: list[Link]
    """Of the path below this frame; where it has no records, below the state's top. The nearest first."""
    index: int = 0
    """How many bytes the index has; 0 where the frame has no records."""
    index_crc: int = 0
    last: int = 0
    """Seq of the frame's newest record."""
    count: int = 0
    payload: int = 0
    """The bytes of its records' payloads."""
    state: State | None = None
    """In the last frame of a block."""
    before: Spot | None = None
    """The header that ends the block before this one."""
    answer: Answer | None = None


_decoder = msgspec.msgpack.Decoder(Header)
_entries = msgspec.msgpack.Decoder(list[Entry])
_patches = msgspec.msgpack.Decoder(dict[int, Patch])
encode = msgspec.msgpack.encode


def decode_entries(data: bytes) -> list[Entry]:
    return _entries.decode(data)


def decode_patches(data: bytes) -> dict[int, Patch]:
    return _patches.decode(data)


def log_mark(name: str) -> bytes:
    """The first half of the marker of every frame in that blob; the incarnation's name is the other."""
    return blake2b(name.encode(), digest_size=8, person=b"agentstore.log1").digest()


def read_header(data: bytes, end: int, mark: bytes) -> tuple[Header, int, int] | None:
    """The header of the frame that ends there, its size with the trailer, and the frame's; `None`: no frame of ours.

    Raises `ShortError` where the header begins before `data`.
    """
    start = end - TRAILER.size
    if start < 0:
        raise ShortError
    marker, head, size, crc = TRAILER.unpack_from(data, start)
    if not marker.startswith(mark):
        return None
    if head > start:
        raise ShortError
    packed = data[start - head : start]
    if zlib.crc32(packed) != crc:
        return None
    try:
        return _decoder.decode(packed), head + TRAILER.size, size
    except msgspec.DecodeError:
        return None


class ShortError(Exception):
    """More bytes are needed."""


def below(links: Sequence[Link], top: Link | None) -> list[Link]:
    """The links of a frame that is put upon `top`, which has those links.

    The two frames below, so that one broken frame hides none; and those whose depth is that of `top`, written to the
    base of 4, with a digit made smaller and all behind it 0. So each step of a search settles a digit.
    """
    if top is None:
        return []
    wanted = {top.depth, top.depth - 1}
    unit = 1
    while unit <= top.depth:
        places = top.depth // unit
        wanted.update((places - smaller) * unit for smaller in range(1, places % 4 + 1))
        unit *= 4
    return [link for link in (top, *links) if link.depth in wanted]


def own_link(header: Header, log: int, offset: int, size: int, head: int) -> Link:
    """The link to a frame with records, whole."""
    under = header.links[0] if header.links else None
    return Link(
        log=log,
        offset=offset,
        size=size,
        head=head,
        depth=(under.depth if under else 0) + 1,
        last=header.last,
        count=(under.count if under else 0) + header.count,
        payload=(under.payload if under else 0) + header.payload,
    )


def places(link: Link, entries: Sequence[Entry]) -> Iterator[tuple[Entry, int]]:
    """The frame's entries up to the link's last, each with its payload's offset in the log."""
    offset = link.offset
    for entry in entries:
        if entry.seq > link.last:
            return
        yield entry, offset
        offset += entry.size


def cut(link: Link, entries: Sequence[Entry], last: int) -> Link | None:
    """The link to the same frame up to the seq `last`; `None` where none of its records is left."""
    kept = [entry for entry in entries if entry.seq <= min(last, link.last)]
    if not kept:
        return None
    gone = [entry for entry in entries if kept[-1].seq < entry.seq <= link.last]
    return msgspec.structs.replace(
        link,
        last=kept[-1].seq,
        count=link.count - len(gone),
        payload=link.payload - sum(entry.size for entry in gone),
    )
