"""Which sessions there are. A listing lists blobs: its cost is that of all the namespace's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import groupby

from agentstore.backend import StoredInfo, StoredSnapshot, activity_minute
from agentstore.errors import CorruptRecordError, UnavailableError
from agentstore.keys import SessionKey
from agentstore_azblob_clients import Client
from agentstore_azblob_container import KEY, KIND, NEXT, Container, Found, UnmetError
from agentstore_azblob_log import SessionLog
from agentstore_azblob_names import Names, parse_key
from agentstore_azblob_reading import StaleError
from agentstore_azblob_sessions import View

Open = Callable[[SessionKey], SessionLog]
Place = tuple[int, str, str]

_logger = logging.getLogger("agentstore")

AT_ONCE = 8
"""So many sessions are looked at together."""
MARGIN = 60_000_000
"""Microseconds by which a session's `updated_at` may be ahead of its blob's Last-Modified."""
ABANDONED = 3_600_000_000
"""Microseconds after which a log that nothing leads to was left by a writer that died."""


async def info(log: SessionLog, key: SessionKey) -> StoredInfo | None:
    async def work(view: View) -> StoredInfo | None:
        return await _info(log, key, view)

    return await log.read(work, None)


async def _info(log: SessionLog, key: SessionKey, view: View) -> StoredInfo | None:
    state = view.state
    if state is None:
        return None
    return StoredInfo(
        key=key,
        count=state.count,
        first_seq=state.first,
        last_seq=state.last,
        created_at=state.created_at,
        updated_at=state.updated_at,
        expires_at=state.expires_at,
        size=state.payload,
        metadata=await log.reader(view).kept(state.metadata) if state.metadata else None,
    )


async def snapshot(log: SessionLog) -> StoredSnapshot | None:
    async def work(view: View) -> StoredSnapshot | None:
        kept = view.state.snapshot if view.state else None
        if kept is None:
            return None
        return StoredSnapshot(kept.version, kept.format, await log.reader(view).kept(kept.spot))

    return await log.read(work, None)


async def delete(log: SessionLog) -> bool:
    """Whether the session lived until now, or could no longer be read."""
    async with log.turn() as deadline:
        try:
            return await _deleted(log, deadline)
        except CorruptRecordError:
            await _removed(log.container, [blob async for blob in log.container.list(log.root)])
            log.session.view = None
            return True


async def _deleted(log: SessionLog, deadline: float) -> bool:
    view = log.session.view
    if view is None or log.living(view) is None:
        view = await log.look()
    while view.root_etag or view.name:
        existed = log.living(view) is not None
        try:
            await log.end(view)
            return existed
        except UnmetError:
            view = await log.look()
        if time.monotonic() > deadline:
            raise UnavailableError("other writers came first; nothing was deleted")
    return False


class _Group:
    """The blobs of one session."""

    def __init__(self, root: str, blobs: list[Found], names: Names) -> None:
        self.root = root
        self.blobs = blobs
        kinds = {blob.name: parsed.kind for blob in blobs if (parsed := names.parse(blob.name))}
        self.modified = max((blob.modified for blob in blobs if kinds[blob.name] != "ids"), default=0)
        self.ends = {(blob.etag, blob.size) for blob in blobs}

    def key(self) -> SessionKey | None:
        """As its blobs say; `None` where none does."""
        texts = [blob.metadata[KEY] for blob in self.blobs if KEY in blob.metadata]
        try:
            return parse_key(texts[0] if texts else "")
        except ValueError:
            _logger.warning("the blobs %s do not say whose they are", self.root)
            return None

    def led_to(self) -> set[str]:
        """The logs that another blob leads to."""
        return {blob.metadata[NEXT] for blob in self.blobs if NEXT in blob.metadata}


async def page(
    client: Client,
    names: Names,
    opened: Open,
    namespace: str,
    source_id: str | None,
    limit: int,
    start: Place | None,
) -> list[StoredInfo]:
    """As the waist's `list`: looks at sessions, the latest modified first, until enough are newer than all the rest."""
    groups = [group async for group in _groups(client, names, names.namespace(namespace))]
    keyed = [(group, key) for group in groups if (key := group.key()) and key.namespace == namespace]
    wanted = [(g, key) for g, key in keyed if source_id in (None, key.source_id)]
    wanted.sort(key=lambda pair: -pair[0].modified)
    behind = (-start[0], *start[1:]) if start else None
    found: list[StoredInfo] = []
    for place in range(0, len(wanted), AT_ONCE):
        part = wanted[place : place + AT_ONCE]
        if len(found) >= limit and activity_minute(part[0][0].modified + MARGIN) < _minutes(found)[limit - 1]:
            break
        infos = await asyncio.gather(*[_listed(opened(key), key, group) for group, key in part])
        found += [one for one in infos if one and (behind is None or _order(one) > behind)]
    return sorted(found, key=_order)[:limit]


def _minutes(found: list[StoredInfo]) -> list[int]:
    return sorted((activity_minute(one.updated_at) for one in found), reverse=True)


def _order(one: StoredInfo) -> Place:
    return -activity_minute(one.updated_at), one.key.source_id, one.key.session_id


async def _listed(log: SessionLog, key: SessionKey, group: _Group) -> StoredInfo | None:
    """`None` also where its blobs cannot be read: that hides no other session."""
    try:
        view = await _seen(log, group)
        return await _info(log, key, view) if log.living(view) is not None else None
    except StaleError:
        return await info(log, key)
    except CorruptRecordError as error:
        _logger.warning("not listed: the session %s: %s", key, error)
        return None


async def _seen(log: SessionLog, group: _Group) -> View:
    """The session now; not looked at again where its blobs are as they were."""
    view = log.session.view
    return view if view is not None and (view.etag, view.length) in group.ends else await log.look()


async def purge(client: Client, names: Names, opened: Open, namespace: str | None, now: int) -> int:
    """As the waist's `purge`. Raises `CorruptRecordError` for a session that cannot be read, once all else is done."""
    below = names.base if namespace is None else names.namespace(namespace)
    purged, unread = 0, None
    async for group in _groups(client, names, below):
        try:
            purged += await _purged(opened, group, now, whole=namespace is not None)
        except CorruptRecordError as error:
            unread = unread or error
    if unread is not None:
        raise unread
    return purged


async def _purged(opened: Open, group: _Group, now: int, *, whole: bool) -> bool:
    """Remove what nothing living leads to; whether that was all of a session.

    With `whole`, what somebody may be at work on too: restores, and whatever is there of a session that has ended.
    """
    key = group.key()
    if key is None:
        return False
    log = opened(key)
    view = await _seen(log, group)
    if log.living(view) is not None:
        ids = view.state.born.hex() if view.state else ""
        kept = {log.root, view.name, *(view.state.logs if view.state else ()), *group.led_to()}
        await log.left_over(_pointed(group, log, view))
        left = [blob for blob in group.blobs if blob.name not in kept and f".{ids}.ids" not in blob.name]
        await _removed(log.container, [blob for blob in left if _abandoned(blob, now) or (whole and _restores(blob))])
        return False
    left = [blob for blob in group.blobs if whole or _abandoned(blob, now)]
    there = bool(view.name)
    if there or (view.root_etag and log.root in [blob.name for blob in left]):
        try:
            await log.end(view)
        except UnmetError:
            return False  # somebody began anew
        there = True
    return await _removed(log.container, [blob for blob in left if blob.name not in (log.root, view.name)]) or there


async def _pointed(group: _Group, log: SessionLog, view: View) -> None:
    """Let the session's own blob lead to its newest log, where a writer died before it did."""
    for blob in group.blobs:
        if blob.name == log.root != view.name and blob.metadata.get(NEXT) != view.name:
            await log.container.annotate(blob.name, {KEY: log.key, NEXT: view.name}, blob.etag)


def _abandoned(blob: Found, now: int) -> bool:
    """Whether who was at work on it must be dead."""
    return blob.modified < now - ABANDONED


def _restores(blob: Found) -> bool:
    return blob.metadata.get(KIND) == "restore"


async def _removed(container: Container, blobs: list[Found]) -> bool:
    """Delete them, unless somebody is at work on them; whether any was there."""
    removed = False
    for blob in blobs:
        with suppress(UnmetError):
            removed = await container.delete(blob.name, blob.etag) or removed
    return removed


async def _groups(client: Client, names: Names, below: str) -> AsyncIterator[_Group]:
    """The blobs below that, session by session: their names begin alike."""
    blobs = [blob async for blob in client.container.list(below) if names.parse(blob.name)]
    blobs.sort(key=lambda blob: _root(names, blob.name))
    for root, group in groupby(blobs, key=lambda blob: _root(names, blob.name)):
        yield _Group(root, list(group), names)


def _root(names: Names, name: str) -> str:
    parsed = names.parse(name)
    return parsed.root if parsed else name
