"""How a session's newest state is found: its name leads to its newest log, whose end says all."""

from __future__ import annotations

import msgspec

from agentstore.errors import CorruptRecordError, UnavailableError
from agentstore_azblob_blocks import TRAILER, Header, Link, ShortError, Spot, below, log_mark, own_link, read_header
from agentstore_azblob_container import NEXT, Container, Found
from agentstore_azblob_sessions import View

TAIL = 64 * 2**10
"""How much of a log's end a cold look reads."""
LEAST = 2 * 2**10
"""... and a warm one at least."""
TRIES = 100


async def look(container: Container, root: str, known: View | None, want: int = LEAST) -> View:
    """The session now: one request where the known view's log is still the newest, else two or more.

    `want` is how many bytes before the known end the caller is going to need.
    """
    if known and known.name:
        found = await container.get(known.name, max(0, known.length - max(want, LEAST)))
        if found is not None and NEXT not in found.metadata:
            root_etag = found.etag if known.name == root else known.root_etag
            return await _view(container, found, root_etag)
    for _ in range(TRIES):
        view = await _cold(container, root, want)
        if view is not None:
            return view
    raise UnavailableError(f"the blob {root} changes faster than it can be read")


async def _cold(container: Container, root: str, want: int) -> View | None:
    """`None`: it changed meanwhile."""
    first = await container.head(root)
    if first is None:
        return View()
    newest: Found | None = first
    while newest is not None and NEXT in newest.metadata:
        newest = await container.head(newest.metadata[NEXT])
    if newest is None:
        # The log it leads to is gone: the session has ended, or it was pointed elsewhere just now.
        again = await container.head(root)
        return View(root_etag=first.etag) if again and again.etag == first.etag else None
    if not newest.size:
        return View(root_etag=first.etag, etag=first.etag)
    found = await container.get(newest.name, max(0, newest.size - max(want, TAIL)))
    if found is None or NEXT in found.metadata:
        return None
    return await _view(container, found, found.etag if newest.name == root else first.etag)


async def _view(container: Container, found: Found, root_etag: str | None) -> View:
    while True:
        try:
            return _parsed(found, root_etag)
        except ShortError:
            if not found.start:
                raise CorruptRecordError(f"the blob {found.name} has no block of agentstore in it") from None
        start = max(0, found.start - max(TAIL, 4 * len(found.data)))
        more = await container.get(found.name, start, found.start)
        if more is None:
            raise UnavailableError(f"the blob {found.name} was removed while it was read")
        found = msgspec.structs.replace(found, start=start, data=more.data + found.data)


def _parsed(found: Found, root_etag: str | None) -> View:
    """The view that the blob's end gives; raises `ShortError` where not enough of it was read."""
    header, end, head = _last_block(found)
    assert header.state is not None
    state, links = header.state, header.links
    log = len(state.logs) - 1
    _, _, size = read_header(found.data, end, log_mark(found.name)) or (None, 0, 0)
    at = found.start + end
    if header.index:
        state = msgspec.structs.replace(state, top=own_link(header, log, at - size, size, head))
    view = View(
        root_etag=root_etag,
        name=found.name,
        etag=found.etag,
        length=found.size,
        blocks=found.blocks,
        state=state,
        links=links,
        head=Spot(log, at - head, head, 0),
        start=found.start,
        window=found.data,
    )
    return view if end == len(found.data) else _adopted(view, Spot(log, at, len(found.data) - end, 0))


def _last_block(found: Found) -> tuple[Header, int, int]:
    """The last header that ends a block, where it ends in the data, and its size."""
    mark, data = log_mark(found.name), found.data
    end = len(data)
    while True:
        try:
            read = read_header(data, end, mark)
        except ShortError:
            if end == len(data):
                raise
            read = None
        if read and read[0].state is not None:
            return read[0], end, read[1]
        # Not ours, or torn: the nearest marker before it.
        place = data.rfind(mark, 0, end - TRAILER.size + len(mark) - 1)
        if place < 0:
            raise ShortError
        end = place + TRAILER.size


def _adopted(view: View, foreign: Spot) -> View:
    """The view with what stands behind the last block taken for one record, which cannot be read."""
    assert view.state is not None
    state, links = view.state, below(view.links, view.state.top)
    under = state.top
    top = Link(
        log=foreign.log,
        offset=foreign.offset,
        size=foreign.size,
        head=foreign.size,
        depth=(under.depth if under else 0) + 1,
        last=state.seq + foreign.size,  # above whatever was given in it
        count=(under.count if under else 0) + 1,
        payload=under.payload if under else 0,
    )
    adopted = msgspec.structs.replace(state, seq=top.last, top=top, first=state.first or top.last)
    return msgspec.structs.replace(view, state=adopted, links=links)
