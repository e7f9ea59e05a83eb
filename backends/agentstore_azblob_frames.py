"""Writing a block of a log: the frames of one write."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from agentstore.backend import Record, StoredRecord
from agentstore_azblob_blocks import (
    FRAME_RECORDS,
    TRAILER,
    Answer,
    Entry,
    Header,
    Link,
    Spot,
    State,
    below,
    encode,
    log_mark,
    own_link,
)


class Pushed(msgspec.Struct, frozen=True):
    """A record to be put on the path."""

    seq: int
    created_at: int
    record: Record | StoredRecord

    def entry(self) -> Entry:
        r = self.record
        crc = zlib.crc32(r.payload)
        return Entry(self.seq, self.created_at, r.id_hash, r.digest, r.format, len(r.payload), crc)


class Block:
    """One write in the making: it is told where it will stand."""

    def __init__(self, name: str, log: int, offset: int, born: bytes) -> None:
        self._marker = log_mark(name) + born
        self._log = log
        self._frame = self._offset = offset
        self._pieces: list[bytes] = []
        self._body = 0
        self.top: Link | None = None
        self.links: list[Link] = []
        self._entries: list[Entry] = []
        self.token = b""

    def push(self, pushed: Sequence[Pushed]) -> None:
        """Put records on the path; the last frame of them stays open."""
        for start in range(0, len(pushed), FRAME_RECORDS):
            if start:
                self._seal(Header(self.token, self._under()))
            part = pushed[start : start + FRAME_RECORDS]
            self._entries = [one.entry() for one in part]
            for one in part:
                self._put(one.record.payload)

    def keep(self, data: bytes) -> Spot:
        """Put bytes beside the records of the last frame."""
        spot = Spot(self._log, self._frame + self._body, len(data), zlib.crc32(data))
        self._put(data)
        return spot

    def remember(self, header: Header, before: Spot | None) -> Spot:
        """A frame that has only the token and the answer of another log's."""
        return self._seal(Header(header.token, [], before=before, answer=header.answer))

    def close(self, state: State, before: Spot | None, answer: Answer | None) -> tuple[bytes, State, Spot]:
        """The whole block, the state as a reader sees it, and where the header that ends it is."""
        links = self._under() if self._entries else self.links
        kept = msgspec.structs.replace(state, top=None if self._entries else self.top)
        head = self._seal(Header(self.token, links, state=kept, before=before, answer=answer))
        return b"".join(self._pieces), msgspec.structs.replace(state, top=self.top), head

    def _put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._body += len(data)

    def _under(self) -> list[Link]:
        return below(self.links, self.top)

    def _seal(self, header: Header) -> Spot:
        entries = self._entries
        if entries:
            index = encode(entries)
            self._put(index)
            header = msgspec.structs.replace(
                header,
                index=len(index),
                index_crc=zlib.crc32(index),
                last=entries[-1].seq,
                count=len(entries),
                payload=sum(entry.size for entry in entries),
            )
        packed = encode(header)
        size = self._body + len(packed) + TRAILER.size
        self._pieces += [packed, TRAILER.pack(self._marker, len(packed), size, zlib.crc32(packed))]
        head = len(packed) + TRAILER.size
        if entries:
            self.top = own_link(header, self._log, self._frame, size, head)
            self.links = header.links
        spot = Spot(self._log, self._frame + self._body, head, 0)
        self._frame += size
        self._body = 0
        self._entries = []
        return spot
