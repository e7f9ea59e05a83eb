"""The log of one session: one write at a time, each a block under the condition that nothing was written since.

The condition is the ETag of the session's newest log, with the position beside it. It changes with every write, so a
writer that knows an older one can never add to a log unseen, also where the session ended and began anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from agentstore.backend import ANSWERS_KEPT
from agentstore.errors import AgentStoreError, UnavailableError
from agentstore.keys import SessionKey
from agentstore_azblob_blocks import Answer, Header, Spot, State, log_mark, read_header
from agentstore_azblob_clients import Client
from agentstore_azblob_container import KEY, KIND, NEXT, Clock, UnmetError
from agentstore_azblob_drafts import Draft
from agentstore_azblob_frames import Block
from agentstore_azblob_ids import LAG, lags, note, wrote
from agentstore_azblob_look import LEAST, look
from agentstore_azblob_names import ids_log, key_text, new_log
from agentstore_azblob_reading import Reader, StaleError
from agentstore_azblob_sessions import View

T = TypeVar("T")

_logger = logging.getLogger("agentstore")

NOTE_SECONDS = 2.0
"""How long an append that has taken effect may wait for upkeep."""

Plan = Callable[[View, "State | None"], Awaitable[Draft]]
"""What to write upon a view, whose state lives, or (`None`) does not."""


class SessionLog:
    """One session in one event loop."""

    def __init__(
        self, client: Client, key: SessionKey, root: str, clock: Clock, *, timeout: float, max_blocks: int
    ) -> None:
        """`timeout` bounds every wait, in seconds; a log of `max_blocks` is full."""
        self.root = root
        self.container = client.container
        self.session = client.sessions.of(key)
        self.clock = clock
        self.key = key_text(key)
        self._client = client
        self._timeout = timeout
        self._max_blocks = max_blocks
        self.wrote = False
        """Whether anything was written through this object."""

    async def look(self, want: int = LEAST) -> View:
        """The session now."""
        view = await look(self.container, self.root, self.session.view, want)
        self.session.seen(view)
        return view

    def living(self, view: View) -> State | None:
        state = view.state
        if state is None or (state.expires_at is not None and state.expires_at <= self.clock.now()):
            return None
        return state

    def reader(self, view: View) -> Reader:
        return Reader(self.container, self._client.sessions, self.root, view)

    async def read(self, work: Callable[[View], Awaitable[T]], nothing: T, want: int = LEAST) -> T:
        """What the work reads in the newest view; `nothing` where no session lives."""
        deadline = time.monotonic() + self._timeout
        while True:
            view = await self.look(want)
            if self.living(view) is None:
                return nothing
            try:
                return await work(view)
            except StaleError:
                self.session.view = None
            if time.monotonic() > deadline:
                raise UnavailableError(f"the blobs below {self.root} were removed while they were read")

    async def write(self, plan: Plan) -> Any:
        """The plan's answer, once its draft took effect upon the very view that it was made for."""
        answer = await self._written(plan)
        await self._keep_up()
        return answer

    async def _written(self, plan: Plan) -> Any:
        async with self.turn() as deadline:
            fresh = self.session.view is None
            view = self.session.view or await self.look()
            pause = 0.002
            while True:
                draft = await self._tried(plan, view)
                if draft is not None and (draft.done or (fresh and not draft.writes)):
                    return draft.answer
                newer = await self.look()
                if draft is not None and await self._holds(draft, view, newer):
                    return draft.answer
                view, fresh = newer, True
                if time.monotonic() > deadline:
                    raise UnavailableError(f"other writers came first for {self._timeout:g} s; nothing was written")
                if draft is not None and draft.writes:
                    await asyncio.sleep(random.random() * pause)
                    pause = min(pause * 2, 0.1)

    async def _tried(self, plan: Plan, view: View) -> Draft | None:
        """The draft, done unless another writer was first; `None` where the view could not be read."""
        try:
            draft = await plan(view, self.living(view))
        except StaleError:
            self.session.view = None
            return None
        if draft.writes:
            try:
                await self._commit(view, draft)
                draft.done = True
            except UnmetError as error:
                draft.doubtful = error.doubtful
            except BaseException:
                self.session.view = None
                raise
        return draft

    async def _holds(self, draft: Draft, view: View, newer: View) -> bool:
        """Whether the draft's answer is right after all: it took effect, or was made for what is the newest view."""
        if not draft.writes:
            return (newer.name, newer.etag, newer.length) == (view.name, view.etag, view.length)
        if newer.state is None or newer.state.born != draft.state.born:
            return False
        if draft.begins:
            return True
        known = view.state.logs if view.state else ()
        base = (view.log, view.length) if newer.state.logs[: len(known)] == known else (0, 0)
        answers = 0
        async for spot, header in self.blocks(newer):
            if (spot.log, spot.offset) < base:
                return False
            if header.token == draft.token:
                return True
            answers += header.answer is not None
        if draft.doubtful and answers >= ANSWERS_KEPT:  # a log written anew keeps no more of them
            raise UnavailableError("the answer to a write was lost, and others wrote over its traces", maybe_done=True)
        return False

    async def remembered(self, view: View, token: bytes) -> Answer | None:
        """The answer to the append of that token, if it is among the last 32."""
        async for header in self.recent(view):
            if header.token == token and header.answer is not None:
                return header.answer
        return None

    async def recent(self, view: View) -> AsyncGenerator[Header]:
        """The headers of the latest writes, down to the 32nd that has an answer."""
        left = ANSWERS_KEPT
        async for _, header in self.blocks(view):
            yield header
            left -= header.answer is not None
            if not left:
                return

    async def blocks(self, view: View) -> AsyncGenerator[tuple[Spot, Header]]:
        """The headers that end the blocks of this incarnation, the newest first."""
        reader, spot = self.reader(view), view.head
        while spot is not None and view.state is not None:
            data = await reader.fetch(spot.log, spot.offset, spot.offset + spot.size, LEAST)
            read = read_header(data, len(data), log_mark(view.state.logs[spot.log]) + view.state.born)
            if read is None:
                return
            yield spot, read[0]
            spot = read[0].before

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[float]:
        """This session's line of writers in this loop; the time at which waiting ends."""
        deadline = time.monotonic() + self._timeout
        lock = self.session.lock
        if lock.locked():
            try:
                await asyncio.wait_for(lock.acquire(), self._timeout)
            except asyncio.TimeoutError as error:
                raise UnavailableError(f"other writers of this session took {self._timeout:g} s") from error
        else:
            await lock.acquire()
        try:
            yield deadline
        finally:
            lock.release()

    async def _commit(self, view: View, draft: Draft) -> None:
        """Raises `UnmetError` where the view is no longer the newest."""
        if draft.begins:
            etag = await self.emptied(view)
            await self._append(View(name=self.root, etag=etag), draft, etag)
            self.session.ids.whole = True
            await self.left_over(self.remove_parts(view))
        elif view.blocks >= self._max_blocks:
            await self._roll(view, draft)
        else:
            await self._append(view, draft, view.etag)
        self.wrote = True
        wrote(self.session.ids, draft.seq_before, [(one.record.id_hash, one.seq) for one in draft.pushed])

    async def _append(self, view: View, draft: Draft, etag: str) -> None:
        log = len(draft.state.logs) - 1
        block = Block(view.name, log, view.length, draft.state.born)
        data, state, head = draft.block(block, view.head)
        etag, blocks = await self.container.append(view.name, data, etag, view.length)
        self.session.seen(
            View(
                root_etag=etag if view.name == self.root else view.root_etag,
                name=view.name,
                etag=etag,
                length=view.length + len(data),
                blocks=blocks or view.blocks + 1,
                state=state,
                links=block.links,
                head=head,
                start=view.length,
                window=data,
            )
        )

    async def _roll(self, view: View, draft: Draft) -> None:
        """Put the block into a new log, and let the full one lead there."""
        name = new_log(self.root)
        draft.state = msgspec.structs.replace(
            draft.state, logs=(*draft.state.logs, name), older=draft.state.older + view.length
        )
        etag = await self.container.create(name, {KEY: self.key, KIND: "next"}, None)
        await self._append(View(root_etag=view.root_etag, name=name, head=view.head), draft, etag)
        new, self.session.view = self.session.view, None
        pointer = {KEY: self.key, NEXT: name}
        try:
            await self.confirm(view)
            etag = await self.container.annotate(view.name, pointer, view.etag)  # here it takes effect
        except UnmetError:
            now = await self.container.head(view.name)
            if now is None or now.metadata.get(NEXT) != name:
                await self.left_over(self._removed(name))
                raise
            etag = now.etag
        self.session.view = new
        if view.name != self.root and view.root_etag:
            await self.left_over(self._point(pointer, view.root_etag))
        elif new is not None:
            self.session.view = msgspec.structs.replace(new, root_etag=etag)

    async def confirm(self, view: View) -> None:
        """Raise `UnmetError` unless the newest log ends where the view does.

        A condition on metadata has no position beside the ETag, and Azurite can answer a read with the ETag of a block
        that it does not show yet.
        """
        now = await self.container.head(view.name)
        if now is None or (now.etag, now.size) != (view.etag, view.length):
            raise UnmetError

    async def _point(self, pointer: dict[str, str], etag: str) -> None:
        """Let the session's own blob lead to its newest log without a detour."""
        etag = await self.container.annotate(self.root, pointer, etag)
        if self.session.view is not None:
            self.session.view = msgspec.structs.replace(self.session.view, root_etag=etag)

    async def _removed(self, name: str) -> None:
        await self.container.delete(name)

    async def left_over(self, work: Awaitable[None]) -> None:
        """Work behind a write that took effect: what fails of it, `purge` finds."""
        try:
            await work
        except (UnmetError, AgentStoreError) as error:
            _logger.info("left for purge below %s: %s", self.root, error)

    async def emptied(self, view: View, metadata: dict[str, str] | None = None) -> str:
        """The ETag of the session's own blob, made empty; nothing of the view lives on. Raises `UnmetError`."""
        if view.name and view.name != self.root:
            if not await self.container.delete(view.name, view.etag):  # here the old one ends
                raise UnmetError
        elif not view.name and view.etag and metadata is None:
            return view.etag
        return await self.container.create(self.root, {KEY: self.key, **(metadata or {})}, view.root_etag)

    async def remove_parts(self, view: View) -> None:
        """Delete the blobs of an incarnation that ended, but for its first and newest log."""
        if view.state is None:
            return
        for name in view.state.logs:
            if name not in (self.root, view.name):
                await self.container.delete(name)
        if view.state.noted or view.state.seq >= LAG:
            await self.container.delete(ids_log(self.root, view.state.born))

    async def end(self, view: View) -> None:
        """Delete all that the view leads to. Raises `UnmetError` where it is not the newest."""
        name, etag = (view.name, view.etag) if view.name else (self.root, view.root_etag)
        if not await self.container.delete(name, etag):  # here it ends
            raise UnmetError
        self.session.view = None
        if name != self.root and view.root_etag:
            await self.left_over(self._root_removed(view.root_etag))
        await self.remove_parts(view)

    async def _root_removed(self, etag: str) -> None:
        await self.container.delete(self.root, etag)

    def spare_ids(self) -> None:
        """Forget ids of other sessions, where this one's have become too many."""
        self._client.sessions.spare_ids()

    async def _keep_up(self) -> None:
        session, view = self.session, self.session.view
        if view is None or session.noting or not lags(session):
            return
        session.noting = True
        try:
            await asyncio.wait_for(note(self.container, self.reader(view), session, self.root, self.key), NOTE_SECONDS)
        except asyncio.TimeoutError:
            return  # whoever comes next does it
        finally:
            session.noting = False
            self.spare_ids()
