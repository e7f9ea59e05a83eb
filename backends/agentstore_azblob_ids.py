"""Which ids a session has: kept by those who write, and in a log of 16 bytes a record for those who come anew.

That log may lag behind, as the rest is read from the frames. What is dead may be in it: a hit is looked at.

    run    seq of its first record 8 · how many 4 · their id hashes, 16 each
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from agentstore.backend import Record, StoredRecord
from agentstore.errors import AgentStoreError
from agentstore_azblob_container import KEY, KIND, Container, UnmetError
from agentstore_azblob_names import ids_log
from agentstore_azblob_reading import CHUNK, Reader, StaleError
from agentstore_azblob_sessions import Ids, Session

LAG = 64
"""After so many frames that the log of ids has not, whoever adds a turn brings it up to date."""
_RUN = struct.Struct(">QI")


async def known(
    container: Container, reader: Reader, session: Session, root: str, records: Iterable[Record], upto: int | None
) -> dict[bytes, tuple[int, bytes]]:
    """Of the records' ids, those that the session has with at most the seq `upto`, with seq and digest."""
    records = tuple(records)
    if not all(record.fresh for record in records):
        await _complete(container, reader, session.ids, root)
    seqs, found = session.ids.seqs, {}
    # An id made in this very call can only be here, if another call of this process wrote the same object.
    for record in records:
        seq = seqs.get(record.id_hash)
        if seq is None or (upto is not None and seq > upto):
            continue
        at = await reader.entry(seq)
        if at is not None and at.id_hash == record.id_hash:
            found[record.id_hash] = seq, await reader.digest(at)
    return found


def wrote(ids: Ids, before: int, pairs: Iterable[tuple[bytes, int]]) -> None:
    """Records were added upon a session whose highest seq had been `before`."""
    for id_hash, seq in pairs:
        ids.seqs[id_hash] = seq
        if ids.upto == before:
            before = ids.upto = seq


async def _complete(container: Container, reader: Reader, ids: Ids, root: str) -> None:
    state = reader.state
    if not ids.whole:
        if state.noted and (found := await container.get(ids_log(root, state.born), 0)):
            ids.seqs = parse_runs(found.data)  # also what this loop wrote, but for what is found above `noted`
            ids.upto = state.noted
        else:
            ids.upto = 0
        ids.whole = True
    if ids.upto < state.seq:
        async for frame in reader.down(lambda: CHUNK // 16, ids.upto):
            for seq, entry, _ in frame.within(ids.upto, None, None):
                ids.seqs[entry.id_hash] = seq
        ids.upto = state.seq


def parse_runs(data: bytes) -> dict[bytes, int]:
    """Each id with the highest seq that it got: writers who brought the log up to date at once may be out of order."""
    seqs: dict[bytes, int] = {}
    place = 0
    while place + _RUN.size <= len(data):
        first, count = _RUN.unpack_from(data, place)
        place += _RUN.size
        for seq in range(first, first + count):
            id_hash = data[place : place + 16]
            seqs[id_hash] = max(seq, seqs.get(id_hash, 0))
            place += 16
    return seqs


def runs(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    """Ascending seqs with their id hashes, as the log of ids has them."""
    pieces: list[bytes] = []
    run: list[bytes] = []
    first = 0
    for seq, id_hash in pairs:
        if run and seq != first + len(run):
            pieces += [_RUN.pack(first, len(run)), *run]
            run = []
        if not run:
            first = seq
        run.append(id_hash)
    if run:
        pieces += [_RUN.pack(first, len(run)), *run]
    return b"".join(pieces)


def lags(session: Session) -> bool:
    """Whether the log of ids should be brought up to date."""
    state = session.view.state if session.view else None
    return bool(state and state.top and state.top.depth - max(state.noted_depth, session.noted[1]) >= LAG)


async def note(container: Container, reader: Reader, session: Session, root: str, key: str) -> None:
    """Bring the log of ids up to the view. It is upkeep: who comes next does what fails here."""
    state = reader.state
    since = max(state.noted, session.noted[0])
    pairs = [(seq, id_hash) for id_hash, seq in session.ids.seqs.items() if since < seq <= state.seq]
    try:
        if not (session.ids.whole and session.ids.upto >= state.seq):
            pairs = await _missing(reader, since)
        data = runs(sorted(pairs))
        etag, size = session.note or await _end(container, ids_log(root, state.born), key)
        etag, _ = await container.append(ids_log(root, state.born), data, etag, size)
    except (UnmetError, StaleError, AgentStoreError):
        session.note = None
        return
    if session.born == state.born and state.top is not None:
        session.noted = state.seq, state.top.depth
        session.note = etag, size + len(data)


async def _end(container: Container, name: str, key: str) -> tuple[str, int]:
    found = await container.head(name)
    return (found.etag, found.size) if found else (await container.create(name, {KEY: key}, None), 0)


async def _missing(reader: Reader, since: int) -> list[tuple[int, bytes]]:
    pairs: list[tuple[int, bytes]] = []
    async for frame in reader.down(lambda: CHUNK // 16, since):
        pairs += [(seq, entry.id_hash) for seq, entry, _ in frame.within(since, None, None)]
    return pairs


class IdsLog:
    """The log of ids of a session that is restored."""

    def __init__(self, container: Container, name: str, key: str) -> None:
        self._container = container
        self._name = name
        self._key = key
        self._end: tuple[str, int] | None = None

    async def add(self, records: Iterable[StoredRecord]) -> None:
        data = runs((record.seq, record.id_hash) for record in records)
        etag, size = self._end or (await self._container.create(self._name, {KEY: self._key, KIND: "restore"}, None), 0)
        etag, _ = await self._container.append(self._name, data, etag, size)
        self._end = etag, size + len(data)

    async def remove(self) -> None:
        if self._end:
            await self._container.delete(self._name)
