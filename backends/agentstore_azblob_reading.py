"""Reading a view: down the living path, by ranged requests that grow with what is asked for."""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

from agentstore.backend import UNREADABLE, StoredRecord
from agentstore.errors import CorruptRecordError
from agentstore_azblob_blocks import (
    Entry,
    Header,
    Link,
    Patch,
    ShortError,
    Spot,
    State,
    decode_entries,
    decode_patches,
    log_mark,
    places,
    read_header,
)
from agentstore_azblob_container import Container
from agentstore_azblob_look import look
from agentstore_azblob_sessions import Page, Sessions, View

CHUNK = 4 * 2**20
"""Most bytes that are read ahead of need."""
LITTLE = 2 * 2**10
WINDOWS_KEPT = 32
SMALL = 64 * 2**10
"""A window below that is kept, for it may well be asked for again."""

_logger = logging.getLogger("agentstore")


class StaleError(Exception):
    """What the view leads to was removed: the session ended, or its log was written anew."""


class Reader:
    """Reads one view. Raises `StaleError` where it is no longer there."""

    def __init__(self, container: Container, sessions: Sessions, root: str, view: View) -> None:
        assert view.state is not None
        self._root = root
        self.state: State = view.state
        self._view = view
        self._container = container
        self._sessions = sessions
        self._windows: list[tuple[int, int, bytes]] = [(view.log, view.start, view.window)]
        self._patches: dict[int, Patch] | None = None
        self.density = view.state.density
        self._start: Link | None = None
        self._checked = False
        self.broken = False
        """Whether it met something that cannot be read."""

    async def fetch(self, log: int, start: int, end: int, ahead: int = 0) -> bytes:
        """The bytes of a log; where they must be fetched, so are up to `ahead` in all that end there."""
        for number, first, data in self._windows:
            if number == log and first <= start and end <= first + len(data):
                return data[start - first : end - first]
        first = max(0, min(start, end - ahead))
        found = await self._container.get(self.state.logs[log], first, end)
        if found is None or len(found.data) < end - first:
            raise StaleError
        self._windows = [window for window in self._windows if len(window[2]) < SMALL][-WINDOWS_KEPT:]
        self._windows.append((log, first, found.data))
        return found.data[start - first :]

    async def kept(self, spot: Spot) -> bytes:
        """What was kept beside the records; raises `CorruptRecordError` where it is not what was written."""
        data = await self.fetch(spot.log, spot.offset, spot.offset + spot.size)
        if zlib.crc32(data) != spot.crc:
            await self._check()
            raise CorruptRecordError(f"the {self._where(spot.log, spot.offset)} is torn")
        return data

    async def patches(self) -> dict[int, Patch]:
        if self._patches is None:
            spot = self.state.patches
            self._patches = decode_patches(await self.kept(spot)) if spot else {}
        return self._patches

    async def header(self, link: Link, ahead: int = 0) -> Header | None:
        """The frame's header; `None` where it cannot be read."""
        header = self._sessions.header(self.state, link)
        if header is None:
            data = await self.fetch(link.log, link.end - link.head, link.end, ahead)
            if (header := self._parsed(data, link)) is None:
                await self._check()
                return None
            self._sessions.keep(self.state, link, header)
        return header

    def _parsed(self, data: bytes, link: Link) -> Header | None:
        mark = log_mark(self.state.logs[link.log]) + self.state.born
        try:
            read = read_header(data, len(data), mark)
        except ShortError:
            return None
        return read[0] if read and read[1:] == (link.head, link.size) else None

    async def frame(self, link: Link, above: Sequence[Link], ahead: int = 0) -> Frame:
        """The frame; `above` has the links that a frame above it has."""
        header = await self.header(link, ahead)
        if header is None:
            return Frame(link, None, [other for other in above if other.depth < link.depth])
        end = link.end - link.head
        data = await self.fetch(link.log, end - header.index, end, ahead)
        if zlib.crc32(data) != header.index_crc:
            await self._check()
            return Frame(link, None, header.links)
        return Frame(link, decode_entries(data), header.links)

    async def descend(self, value: Callable[[Link], int], target: int) -> Frame:
        """The lowest frame of the path whose value is at least the target."""
        link, links, above = self.state.top, self._view.links, self._view.links
        assert link is not None
        while found := [other for other in links if value(other) >= target]:
            link, above = found[-1], links
            header = await self.header(link)
            links = header.links if header else [other for other in links if other.depth < link.depth]
        return await self.frame(link, above)

    async def walk(self, link: Link | None, above: Sequence[Link], ahead: Callable[[], int]) -> AsyncIterator[Frame]:
        """The frames from that one down."""
        while link is not None:
            frame = await self.frame(link, above, ahead())
            yield frame
            link, above = frame.below, frame.links

    async def down(self, ahead: Callable[[], int], since: int) -> AsyncIterator[Frame]:
        """The frames from the top down to the seq `since`."""
        async for frame in self.walk(self.state.top, self._view.links, ahead):
            if frame.link.last <= since:
                return
            yield frame

    async def prefetch(self, log: int, start: int, size: int) -> None:
        """Read ahead of a search that will most likely end there."""
        end = min(start + size, self._view.length) if log == self._view.log else start + size
        if start >= end or any(n == log and at <= start and end <= at + len(data) for n, at, data in self._windows):
            return
        found = await self._container.get(self.state.logs[log], start, end)
        if found is not None:
            self._windows.append((log, start, found.data))

    async def forwards(self, after: int, limit: int, page: Page | None) -> tuple[list[StoredRecord], Page | None]:
        """The first so many records behind a seq, and where they end; `page` is where those up to that seq ended."""
        if page is None or page.seq != after:
            page = Page(after, 0, 0) if after < self.state.first and not self.state.low else None
        if page is not None:
            await self.prefetch(page.log, page.offset, min(CHUNK, limit * self.density + LITTLE))
        known = page if page is not None and page.etag == self._view.etag else None
        most = (known.rank if known else await self.rank(max(after, self.state.low - 1))) + limit
        found = await self.read(after, None, limit, False, most)
        if not found or self._start is None:
            return found, None
        link, last = self._start, found[-1].seq
        offset = link.end if last == link.last else link.offset
        return found, Page(last, link.log, offset, self._view.etag, most - limit + len(found))

    async def read(
        self, after: int, before: int | None, limit: int | None, newest: bool, most: int | None = None
    ) -> list[StoredRecord]:
        """As the waist's `read`; not beyond the record that is the path's `most`-th, where that is known."""
        state, floor = self.state, max(after, self.state.low - 1)
        top = state.top
        if top is None or top.last <= floor:
            return []
        if limit is not None and not newest and most is None:
            most = await self.rank(floor) + limit
        link, above = top, self._view.links
        if before is not None and before <= top.last:
            frame = await self.descend(lambda other: other.last, before)
            link, above = frame.link, frame.links
        if most is not None and most < link.count:
            frame = await self.descend(lambda other: other.count, most)
            link, above = frame.link, frame.links
        found: list[StoredRecord] = []
        wanted = limit if limit is not None and newest else None
        self._start = start = reached = link
        most_wanted = link.count if limit is None else limit

        def ahead() -> int:
            """What the frames that are still wanted will take, by what those before them took."""
            left = min(most_wanted, start.last - floor) - len(found)
            self.density = max(self.density, _density(start, reached, len(found)) if found else 0)
            return min(CHUNK, left * self.density + LITTLE)

        async for frame in self.walk(link, above, ahead):
            part = frame.within(floor, before, most)
            part = part if wanted is None else part[len(found) - wanted :]
            found[:0] = await self._records(frame, part, ahead())
            reached = frame.link
            if frame.below is None or frame.below.last <= floor or len(found) == wanted:
                break
        return found

    async def rank(self, seq: int) -> int:
        """How many records the path has with at most that seq."""
        top = self.state.top
        if top is None or seq >= top.last:
            return top.count if top else 0
        if seq < self.state.first:
            return self.state.low_count
        frame = await self.descend(lambda other: other.last, seq + 1)
        return frame.link.count - len(frame.within(seq, None, None))

    async def entry(self, seq: int) -> Entry | None:
        """The living record with that seq."""
        state = self.state
        if state.top is None or not max(state.low, state.first) <= seq <= state.top.last:
            return None
        frame = await self.descend(lambda other: other.last, seq)
        return next((entry for entry in frame.entries or () if entry.seq == seq), None)

    async def digest(self, entry: Entry) -> bytes:
        patch = (await self.patches()).get(entry.seq)
        return patch.digest if patch else entry.digest

    async def _records(self, frame: Frame, part: Sequence[_Place], ahead: int) -> list[StoredRecord]:
        if not part:
            return []
        if frame.entries is None:
            why = f"{self._where(frame.link.log, frame.link.offset)} is torn or foreign"
            return [self._broken(Entry(seq, 0, bytes(16), b"", "", 0, 0), why) for seq, _, _ in part]
        first, last = part[0], part[-1]
        end = last[2] + last[1].size
        data = await self.fetch(frame.link.log, first[2], end, ahead)
        patches = await self.patches()
        records: list[StoredRecord] = []
        for seq, entry, offset in part:
            if patch := patches.get(seq):
                records.append(await self._patched(entry, patch))
                continue
            start = offset - first[2]
            records.append(await self._record(frame.link.log, offset, entry, data[start : start + entry.size]))
        return records

    async def _patched(self, entry: Entry, patch: Patch) -> StoredRecord:
        try:
            payload = await self.kept(patch.spot)
        except CorruptRecordError as error:
            return self._broken(entry, str(error).removeprefix("the "))
        return StoredRecord(entry.seq, entry.created_at, entry.id_hash, patch.digest, patch.format, payload)

    async def _record(self, log: int, offset: int, entry: Entry, payload: bytes) -> StoredRecord:
        if zlib.crc32(payload) != entry.crc:
            await self._check()
            why = f"{self._where(log, offset)} is torn"
            return self._broken(entry, why)
        return StoredRecord(entry.seq, entry.created_at, entry.id_hash, entry.digest, entry.format, payload)

    async def _check(self) -> None:
        """Something is not what was written: raise `StaleError` if that is because another session stands there now."""
        if self._checked:
            return
        now = (await look(self._container, self._root, self._view)).state
        logs = self.state.logs
        if now is None or now.born != self.state.born or now.logs[: len(logs)] != logs:
            raise StaleError
        self._checked = True

    def _broken(self, entry: Entry, why: str) -> StoredRecord:
        """In the place of a record that cannot be read: the reader's error says why, and so names the block."""
        self.broken = True
        _logger.warning("a record cannot be read: the %s", why)
        return StoredRecord(entry.seq, entry.created_at, entry.id_hash, bytes(16), UNREADABLE, why.encode())

    def _where(self, log: int, offset: int) -> str:
        return f"block at {offset} of blob {self.state.logs[log]}"


_Place = tuple[int, Entry, int]  # seq, entry, offset of its payload


class Frame:
    """A frame on the path; without entries where it cannot be read."""

    def __init__(self, link: Link, entries: list[Entry] | None, links: list[Link]) -> None:
        self.link = link
        self.entries = entries
        self.links = links
        """Of the path below it."""

    @property
    def below(self) -> Link | None:
        return self.links[0] if self.links else None

    def within(self, after: int, before: int | None, most: int | None) -> list[_Place]:
        """Its living records with `after < seq < before`, of which at most `most` are counted from the path's start."""
        found = self._unread() if self.entries is None else self._read(self.entries)
        if most is not None and self.link.count > most:
            found = found[: max(0, len(found) - (self.link.count - most))]
        return [place for place in found if place[0] > after and (before is None or place[0] < before)]

    def _read(self, entries: Sequence[Entry]) -> list[_Place]:
        return [(entry.seq, entry, offset) for entry, offset in places(self.link, entries)]

    def _unread(self) -> list[_Place]:
        count = self.link.count - (self.below.count if self.below else 0)
        last = self.link.last
        return [(seq, Entry(seq, 0, b"", b"", "", 0, 0), 0) for seq in range(last - count + 1, last + 1)]


def _density(start: Link, link: Link, count: int) -> int:
    """Bytes a record, where so many were found from one frame down to the other."""
    return (start.end - link.offset) // count if start.log == link.log else 0
