"""What an event loop remembers of the sessions it works on, within bounds; every line of it may be forgotten."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from agentstore.keys import SessionKey
from agentstore_azblob_blocks import Header, Link, Spot, State

SESSIONS_KEPT = 1000
HEADERS_KEPT = 1024
IDS_KEPT = 200_000
"""Over all sessions of a loop."""
WINDOW_KEPT = 16 * 2**10
"""Bytes of a session's newest block that are kept."""


class View(msgspec.Struct, frozen=True):
    """A session at one moment. A log is only ever added to, so what a view leads to stays as it is."""

    root_etag: str | None = None
    """The ETag of the session's own blob, when it was seen last; `None`: there is none."""
    name: str = ""
    """The newest log; empty where there is none with a block in it. Then `etag` is that of an empty one, if any."""
    etag: str = ""
    length: int = 0
    blocks: int = 0
    state: State | None = None
    links: list[Link] = []
    """Of the path below the state's top."""
    head: Spot | None = None
    """The header that ends the newest block."""
    start: int = 0
    window: bytes = b""
    """The log's bytes from `start` on, as far as they were read."""

    @property
    def log(self) -> int:
        return len(self.state.logs) - 1 if self.state else 0


class Page(msgspec.Struct, frozen=True):
    """Where a page that was read forwards ended."""

    seq: int
    """Of its last record."""
    log: int
    offset: int
    """Where the next page begins, most likely."""
    etag: str = ""
    """Of the newest log then: while it is the same, so is the rank."""
    rank: int = 0
    """How many records the path has up to its last one."""


class Ids:
    """Id hashes of a session's records with their seqs. One that is not here may still be there unless it is whole."""

    def __init__(self) -> None:
        self.seqs: dict[bytes, int] = {}
        self.whole = False
        """Whether all records up to `upto` are here."""
        self.upto = 0


class Session:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.view: View | None = None
        self.ids = Ids()
        self.born = b""
        self.noted = 0, 0
        """Seq and depth up to which the log of ids is known to be complete, though no block says so yet."""
        self.noting = False
        self.page: Page | None = None
        self.torn = False
        """Whether its log cannot be written anew, for something in it cannot be read."""
        self.density = 0
        """Bytes of the log that a record took when the newest were read last; 0 where that is not known."""
        self.note: tuple[str, int] | None = None
        """ETag and size of the log of ids, where they are known."""

    def seen(self, view: View) -> None:
        """Remember the view, unless a newer one is known."""
        known = self.view
        born = view.state.born if view.state else b""
        same = known and known.state and known.name == view.name and known.state.born == born
        if known and same and known.length > view.length:
            return
        if born != self.born:
            self.born, self.ids, self.noted, self.note, self.torn = born, Ids(), (0, 0), None, False
        if len(view.window) > WINDOW_KEPT:
            cut = len(view.window) - WINDOW_KEPT
            view = msgspec.structs.replace(view, start=view.start + cut, window=view.window[cut:])
        self.view = view


class Sessions:
    """The most recently used ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionKey, Session] = OrderedDict()
        self._headers: OrderedDict[tuple[str, bytes, int], Header] = OrderedDict()

    def of(self, key: SessionKey) -> Session:
        session = self._kept.get(key)
        if session is None:
            session = self._kept[key] = Session()
            if len(self._kept) > SESSIONS_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return session

    def header(self, state: State, link: Link) -> Header | None:
        return self._headers.get((state.logs[link.log], state.born, link.offset))

    def keep(self, state: State, link: Link, header: Header) -> None:
        self._headers[state.logs[link.log], state.born, link.offset] = header
        if len(self._headers) > HEADERS_KEPT:
            self._headers.popitem(last=False)

    def spare_ids(self) -> None:
        """Forget the ids of the longest unused sessions where there are too many; the latest keeps its own."""
        *others, latest = self._kept.values()
        total = len(latest.ids.seqs) + sum(len(session.ids.seqs) for session in others)
        for session in others:
            if total <= IDS_KEPT:
                return
            total -= len(session.ids.seqs)
            session.ids = Ids()
