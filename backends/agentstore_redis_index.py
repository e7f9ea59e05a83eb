"""The index of sessions: written before the session it shows, read for listings, mended where a writer died between.

Its parts lie in other slots than the sessions, so no script spans both; see docs/waist.md for what the order does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import agentstore_redis_scripts as scripts
from agentstore.backend import StoredInfo, activity_minute
from agentstore.errors import UnavailableError
from agentstore.keys import SessionKey
from agentstore_redis_calls import Calls
from agentstore_redis_names import LAYOUT, Names, behind, member, parse_member
from agentstore_redis_scripts import Script

T = TypeVar("T")

PURGE_PAGE = 500
OFFERS = 20
"""How often a write makes a new offer: each fails only if its minute passes, or another writer begins or ends."""

NO_OFFER = (b"", b"0")


class Entry(NamedTuple):
    """An index entry: the session was last active in that minute, as that incarnation."""

    shard: bytes
    minute: int
    text: bytes


class Soon(Generic[T]):
    """Takes the answer to a write when it comes, and makes a future's result of it."""

    def __init__(self, read: Callable[[list[Any]], T], after: Callable[[Any], Coroutine[Any, Any, T]]) -> None:
        """`read` makes the result of an answer; `after` goes on where a failure came, or an entry is wanted."""
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.done = self.future.done
        self._read = read
        self._after = after

    def set_result(self, answer: Any) -> None:
        if answer[0] == b"index":
            self._go_on(answer)
        else:
            self.future.set_result(self._read(answer))

    def set_exception(self, failure: Exception) -> None:
        self._go_on(failure)

    def _go_on(self, answer: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(self._after(answer))
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        if self.future.done():
            return
        if task.cancelled():
            self.future.cancel()
        elif error := task.exception():
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())


class Index:
    """Sessions by namespace and last activity, and the writes that need an entry there."""

    def __init__(self, calls: Calls, names: Names) -> None:
        self._calls = calls
        self._names = names

    async def write(
        self, script: Script, key: SessionKey, *values: bytes, more_keys: Sequence[bytes] = (), large: bool = False
    ) -> list[Any]:
        """The answer of a script that may need the session's entry: then that is written, and it is asked again."""
        deadline = self._calls.deadline()
        keys = [*self._names.session(key), *more_keys]
        answer: list[Any] = await self._calls.script(script, keys, b"", *NO_OFFER, *values, large=large)
        return await self._with_entry(answer, script, key, keys, values, large, deadline)

    def writing(
        self, script: Script, key: SessionKey, values: Sequence[bytes], large: bool, read: Callable[[list[Any]], T]
    ) -> Awaitable[T]:
        """What `read` makes of the answer of `write`; a future where there is a connection, which costs no task."""
        keys, first = self._names.session(key), (b"", *NO_OFFER, *values)
        deadline = self._calls.deadline()

        async def at_leisure() -> T:
            return read(await self.write(script, key, *values, large=large))

        async def again(failure: Exception) -> Any:
            assert servers is not None
            return await self._calls.script_again(servers, script, keys, first, failure, deadline, large=large)

        async def after(answer: list[Any] | Exception) -> T:
            answered = answer if isinstance(answer, list) else await again(answer)
            return read(await self._with_entry(answered, script, key, keys, values, large, deadline))

        soon = Soon(read, after)
        servers = self._calls.tell(script, keys, first, soon, large=large)
        return at_leisure() if servers is None else soon.future

    async def _with_entry(
        self,
        answer: list[Any],
        script: Script,
        key: SessionKey,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        large: bool,
        deadline: float,
    ) -> list[Any]:
        offers = 0
        while answer[0] == b"index":
            if offers == OFFERS:
                raise UnavailableError(f"others began and ended session {key} all the time; nothing was written")
            offers += 1
            incarnation, minute = answer[1], b"%d" % answer[2]
            offer = incarnation or new_incarnation()
            await self.add(key, offer, minute, deadline)
            offered, text = [*keys, self._names.burnt(key, offer)], str(key).encode()
            answer = await self._calls.script(
                script, offered, text, offer, minute, *values, large=large, deadline=deadline
            )
            if not incarnation and answer[:2] != [b"ok", offer]:
                with suppress(UnavailableError):  # the write is decided; a listing mends the entry
                    await self.remove(key, offer, deadline)
        return answer

    async def info(self, key: SessionKey) -> StoredInfo | None:
        """What is known of a living session."""
        answer = await self._look(key, *NO_OFFER, b"")
        return _info(key, answer) if answer else None

    async def page(
        self, namespace: str, source_id: str | None, limit: int, start: tuple[int, str, str] | None
    ) -> list[StoredInfo]:
        """Up to `limit` living sessions behind `start`; entries that show none are mended by the way."""
        place = start and (start[0], behind(start[1], start[2]))
        found: list[StoredInfo] = []
        while len(found) < limit:
            entries = await self._entries(namespace, limit, place)
            wanted = [entry for entry in entries if source_id in (None, parse_member(entry.text)[0])]
            seen = await asyncio.gather(*[self._seen(namespace, entry) for entry in wanted[: limit - len(found)]])
            found += [info for info in seen if info is not None]
            if len(wanted) == len(seen) and len(entries) < limit:
                break
            last = entries[-1] if len(wanted) == len(seen) else wanted[len(seen) - 1]
            place = last.minute, last.text
        return found

    async def remove(self, key: SessionKey, incarnation: bytes, deadline: float | None = None) -> None:
        """Remove the entry of one incarnation."""
        index = self._names.index(key)
        await self._calls.command(index, b"ZREM", index, member(key, incarnation), writes=True, deadline=deadline)

    async def forget(self, key: SessionKey, incarnation: bytes, deadline: float) -> None:
        """As `remove`, after the session itself is gone."""
        try:
            await self.remove(key, incarnation, deadline)
        except UnavailableError as error:
            raise UnavailableError("the session is gone, its index entry perhaps not", maybe_done=True) from error

    async def add(self, key: SessionKey, incarnation: bytes, minute: bytes, deadline: float | None = None) -> None:
        """Show the incarnation at that minute, or at the later one at which it is already."""
        index, layout = self._names.index(key), self._names.layout
        # A server that evicts keys, or lost it in a failover, has it again.
        self._calls.remind(layout, b"SET", layout, LAYOUT, b"NX")
        entry = member(key, incarnation)
        await self._calls.command(index, b"ZADD", index, b"LT", b"-" + minute, entry, writes=True, deadline=deadline)

    async def purge(self, namespace: str | None) -> int:
        """Mend all entries, those of unfinished restores too; how many sessions had expired."""
        if namespace is None:
            who, shards = b"purge", await self._calls.scan(self._names.indexes)
        else:
            who, shards = b"purge one", self._names.shards(namespace)
        return sum([await self._purge_shard(shard, who) for shard in shards])

    async def _entries(self, namespace: str, limit: int, place: tuple[int, bytes] | None) -> list[Entry]:
        """The first `limit` entries behind the place, over all parts."""
        minute, text = (b"%d" % place[0], place[1]) if place else (b"", b"")
        shards = self._names.shards(namespace)
        pages = await asyncio.gather(
            *[self._calls.script(scripts.PAGE, [shard], minute, text, b"%d" % limit, writes=False) for shard in shards]
        )
        entries = [
            Entry(shard, -int(score), text)
            for shard, page in zip(shards, pages, strict=True)
            for text, score in zip(page[::2], page[1::2], strict=True)
        ]
        return sorted(entries, key=lambda entry: (-entry.minute, entry.text))[:limit]

    async def _seen(self, namespace: str, entry: Entry) -> StoredInfo | None:
        """The session behind an entry; `None` where it is not there, or was active again meanwhile."""
        key, answer = await self._behind(namespace, entry, b"list")
        if answer[0] in (b"young", b"gone", b"staged"):
            return None
        info = _info(key, answer)
        return info if activity_minute(info.updated_at) == entry.minute else None

    async def _behind(self, namespace: str, entry: Entry, who: bytes) -> tuple[SessionKey, list[Any]]:
        source, session, incarnation = parse_member(entry.text)
        key = SessionKey(namespace, source, session)
        answer = await self._look(key, incarnation, b"%d" % entry.minute, who)
        if answer[0] in (b"gone", b"staged"):
            await self._calls.command(entry.shard, b"ZREM", entry.shard, entry.text, writes=True)
        return key, answer

    async def _look(self, key: SessionKey, incarnation: bytes, minute: bytes, who: bytes) -> list[Any]:
        names = self._names
        keys = [*names.session(key), *names.staged(key, incarnation), names.burnt(key, incarnation)]
        answer: list[Any] = await self._calls.script(scripts.INFO, keys, b"", incarnation, minute, who, writes=False)
        return answer

    async def _purge_shard(self, shard: bytes, who: bytes) -> int:
        namespace = self._names.namespace(shard)
        purged, minute, text = 0, b"", b""
        while page := await self._calls.script(scripts.PAGE, [shard], minute, text, b"%d" % PURGE_PAGE, writes=False):
            entries = [Entry(shard, -int(score), text) for text, score in zip(page[::2], page[1::2], strict=True)]
            answers = await asyncio.gather(*[self._behind(namespace, entry, who) for entry in entries])
            purged += [answer[0] for _, answer in answers].count(b"gone")
            minute, text = b"%d" % entries[-1].minute, entries[-1].text
        return purged


def new_incarnation() -> bytes:
    """Names one life of a session; below 0x80, as `member` wants it."""
    random = os.urandom(16)
    return bytes([random[0] & 0x7F]) + random[1:]


def _info(key: SessionKey, answer: list[Any]) -> StoredInfo:
    *numbers, expires, size, metadata = answer
    count, first, last, created, updated = map(int, numbers)
    return StoredInfo(key, count, first, last, created, updated, int(expires) or None, int(size), metadata)
