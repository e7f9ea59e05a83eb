"""Sentences about which sessions there are: info, metadata, delete, listings, namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any
from unittest.mock import patch

import pytest

from agentstore import (
    HistoryStore,
    PayloadTooLargeError,
    SessionHistory,
    SessionInfo,
    SessionKey,
    SessionPage,
    UnsupportedValueError,
)
from agentstore.backend import Catalog, Rewriting, Snapshots, activity_minute
from agentstore.shapes import to_microseconds
from agentstore.testing.faults import interrupted
from agentstore.testing.scenes import LONG_AGO, Scene, Stage, heard, named, said, sentence, together


async def info_of(chat: SessionHistory) -> SessionInfo:
    """The info of a session that must exist."""
    info = await chat.info()
    assert info is not None, "the session should exist"
    return info


async def listed(store: HistoryStore, *, limit: int = 50, **options: Any) -> list[SessionKey]:
    """The keys of all pages."""
    return [info.key for info in await infos(store, limit=limit, **options)]


async def infos(store: HistoryStore, *, limit: int = 50, **options: Any) -> list[SessionInfo]:
    """The items of all pages."""
    items: list[SessionInfo] = []
    cursor = None
    for _ in range(1000):
        page = await store.sessions(limit=limit, cursor=cursor, **options)
        items += page.items
        if (cursor := page.cursor) is None:
            return items
    raise AssertionError("the listing has no end")


class InfoSentences(Stage):
    @sentence(Catalog)
    async def test_an_unknown_session_has_no_info(self, scene: Scene) -> None:
        """`info() -> SessionInfo | None`; reading begins no session."""
        await scene.chat.messages()
        assert await scene.chat.info() is None

    @sentence(Catalog)
    async def test_info_counts_the_messages(self, scene: Scene) -> None:
        """`count`: of living records, through every way to change it."""
        given = (await scene.chat.append(said("a", "b", "c"))).seqs
        await scene.chat.append([named("m1")])
        await scene.chat.append([named("m1")])
        await scene.chat.truncate(before=given[1])
        assert (await info_of(scene.chat)).count == 3

    @sentence(Catalog)
    async def test_info_names_first_and_last_seq(self, scene: Scene) -> None:
        """`first_seq` and `last_seq`: of the oldest and the newest living record."""
        given = (await scene.chat.append(said("a", "b", "c", "d"))).seqs
        await scene.chat.truncate(before=given[1])
        await scene.chat.truncate(after=given[2])
        info = await info_of(scene.chat)
        assert (info.first_seq, info.last_seq) == (given[1], given[2])

    @sentence(Catalog)
    async def test_first_and_last_seq_are_zero_when_empty(self, scene: Scene) -> None:
        """First and last seq 0 when empty."""
        await scene.chat.append(said("a"))
        await scene.chat.clear()
        info = await info_of(scene.chat)
        assert (info.count, info.first_seq, info.last_seq, info.bytes) == (0, 0, 0, 0)

    @sentence(Catalog)
    async def test_info_sums_the_bytes(self, scene: Scene) -> None:
        """`bytes`: the size of the stored payloads."""
        given = (await scene.chat.append(said("short", "long " * 100, "né"))).seqs
        await scene.chat.truncate(before=given[1])
        stored = await scene.backend.read(scene.chat.key)
        assert (await info_of(scene.chat)).bytes == sum(len(record.payload) for record in stored)

    @sentence(Catalog, Rewriting)
    async def test_rewriting_keeps_count_and_bytes_right(self, scene: Scene) -> None:
        """`count` and `bytes` follow replace, update, pop and fork."""
        await scene.chat.append(said("a", "b", "c"))
        await scene.chat.replace([named("m1", "x" * 500), named("m2", "y"), named("m3", "z")])
        await scene.chat.update(named("m1", "short"))
        await scene.chat.pop()
        fork = await scene.chat.fork(scene.session().key.session_id)
        for chat in (scene.chat, fork):
            stored = await scene.backend.read(chat.key)
            info = await info_of(chat)
            assert (info.count, info.bytes) == (2, sum(len(record.payload) for record in stored))
            assert (info.first_seq, info.last_seq) == (stored[0].seq, stored[-1].seq)

    @sentence(Catalog)
    async def test_info_has_the_key(self, scene: Scene) -> None:
        """`key`: the ids as they were given."""
        chat = scene.session("né \x00", source_id="a/b")
        await chat.append(said("a"))
        assert (await info_of(chat)).key == chat.key == SessionKey(scene.namespace, "a/b", "né \x00")

    @sentence(Catalog)
    async def test_created_once_and_updated_by_every_append(self, scene: Scene) -> None:
        """`created_at` is set once; `updated_at` moves with every write (B116)."""
        await scene.chat.append(said("a"))
        first = await info_of(scene.chat)
        await asyncio.sleep(0.002)
        await scene.chat.append(said("b"))
        second = await info_of(scene.chat)
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at

    @sentence(Catalog)
    async def test_other_writes_update_too(self, scene: Scene) -> None:
        """Every write but `expire` sets `updated_at`; reads change nothing (B116)."""
        await scene.chat.append([named("m1"), named("m2")])
        rewriting = isinstance(scene.backend, Rewriting)
        snapshots = isinstance(scene.backend, Snapshots)
        assert await _updates(scene.chat, lambda: scene.chat.truncate(after=1))
        assert await _updates(scene.chat, lambda: scene.chat.annotate({"a": 1}))
        assert not rewriting or await _updates(scene.chat, lambda: scene.chat.update(named("m1", "b")))
        assert not rewriting or await _updates(scene.chat, lambda: scene.chat.replace([named("m1", "b")]))
        assert not rewriting or await _updates(scene.chat, scene.chat.pop)
        assert not snapshots or await _updates(scene.chat, lambda: scene.chat.save_snapshot({"a": 1}))
        assert not await _updates(scene.chat, scene.chat.messages)
        assert not await _updates(scene.chat, lambda: scene.chat.expire(None))

    @sentence(Catalog)
    async def test_an_emptied_session_still_exists(self, scene: Scene) -> None:
        """Empty after clear or truncate it still exists."""
        await scene.chat.append(said("a"))
        await scene.chat.clear()
        assert (await info_of(scene.chat)).count == 0
        assert await listed(scene.store) == [scene.chat.key]

    @sentence(Catalog, Rewriting)
    async def test_a_session_emptied_by_pop_still_exists(self, scene: Scene) -> None:
        """Empty after pop it still exists."""
        await scene.chat.append(said("a"))
        await scene.chat.pop()
        assert (await info_of(scene.chat)).count == 0

    @sentence(Catalog)
    async def test_an_empty_append_begins_no_session(self, scene: Scene) -> None:
        """Empty list: no session appears (B138)."""
        await scene.chat.append([])
        assert await scene.chat.info() is None

    @sentence(Catalog)
    async def test_removing_from_an_unknown_session_begins_none(self, scene: Scene) -> None:
        """`clear`, `truncate`, `expire`, `delete` on an unknown one do nothing (B138)."""
        chat = scene.chat
        for call in (chat.clear, lambda: chat.truncate(before=5), lambda: chat.expire(None), chat.delete):
            await call()
            assert await chat.info() is None
        assert await listed(scene.store) == []

    @sentence(Catalog)
    async def test_a_refused_append_begins_no_session(self, scene: Scene) -> None:
        """Nothing was written: no session appears."""
        with pytest.raises(Exception, match="expected"):
            await scene.chat.append(said("a"), expected_last=9)
        assert await scene.chat.info() is None

    @sentence(Catalog)
    async def test_a_clock_that_steps_back_changes_no_order(self, scene: Scene) -> None:
        """Time is data, never the order of messages (B25)."""
        if self.clock != "client":
            pytest.skip("the backend uses its own clock: the kit cannot turn it back")
        for number, nanoseconds in enumerate((3, 1, 2, 2, 1)):
            with patch("time.time_ns", lambda now=nanoseconds: now * 10**18):
                await scene.chat.append(said(str(number)))
        assert await heard(scene.chat) == list("01234")
        assert await heard(scene.chat, limit=2) == list("34")


class MetadataSentences(Stage):
    @sentence(Catalog)
    async def test_annotate_merges_top_level_keys(self, scene: Scene) -> None:
        """`annotate`: merges top-level keys."""
        await scene.chat.annotate({"title": "A", "tags": {"x": 1}})
        await scene.chat.annotate({"tags": {"y": 2}, "mood": None})
        assert (await info_of(scene.chat)).metadata == {"title": "A", "tags": {"y": 2}}

    @sentence(Catalog)
    async def test_annotating_none_removes_a_key(self, scene: Scene) -> None:
        """`None` removes one; with the last one gone there is none."""
        await scene.chat.annotate({"title": "A", "mood": "B"})
        await scene.chat.annotate({"title": None})
        assert (await info_of(scene.chat)).metadata == {"mood": "B"}
        await scene.chat.annotate({"mood": None})
        assert (await info_of(scene.chat)).metadata == {}

    @sentence(Catalog)
    async def test_metadata_has_a_limit(self, scene: Scene) -> None:
        """16 KiB at most, of the whole: `PayloadTooLargeError`, nothing changed."""
        await scene.chat.annotate({"a": "x" * 16_000})
        with pytest.raises(PayloadTooLargeError):
            await scene.chat.annotate({"b": "y" * 1000})
        assert list((await info_of(scene.chat)).metadata) == ["a"]

    @sentence(Catalog)
    async def test_metadata_refuses_what_it_cannot_keep(self, scene: Scene) -> None:
        """Same exactness as contents: refused with the path, nothing written."""
        with pytest.raises(UnsupportedValueError, match=r"a\.b\[1\]"):
            await scene.chat.annotate({"a": {"b": [0, {1, 2}]}})
        assert await scene.chat.info() is None

    @sentence(Catalog)
    async def test_annotating_begins_a_session(self, scene: Scene) -> None:
        """A session begins with its first append, snapshot or annotation."""
        await scene.chat.annotate({"title": "A"})
        assert (await info_of(scene.chat)).count == 0
        assert await listed(scene.store) == [scene.chat.key]
        assert (await scene.chat.append(said("a"))).seqs == [1]

    @sentence(Catalog)
    async def test_annotating_disturbs_no_writer(self, scene: Scene) -> None:
        """Disturbs no writer: an append whose condition held before still goes through (B34)."""
        given = (await scene.chat.append(said("a"))).seqs
        annotating = interrupted(scene.backend, "append", lambda: scene.chat.annotate({"title": "A"}))
        await scene.another(annotating).append(said("b"), expected_last=given[-1])
        assert await heard(scene.chat) == ["a", "b"]

    @sentence(Catalog)
    async def test_annotations_at_once_are_all_kept(self, scene: Scene) -> None:
        """Merges: two at once lose nothing of each other (B30)."""
        await together(8, lambda number: scene.another().annotate({f"key {number}": number}))
        assert (await info_of(scene.chat)).metadata == {f"key {number}": number for number in range(8)}

    @sentence(Catalog)
    async def test_metadata_is_swapped_only_for_what_was_read(self, scene: Scene) -> None:
        """The waist: `False`, and no change, if the metadata is not the old one any more."""
        swap, key = scene.catalog.annotate, scene.chat.key
        assert await swap(key, None, b'{"a":1}')
        assert not await swap(key, None, b'{"a":2}')
        assert not await swap(key, b'{"a":3}', b'{"a":2}')
        assert (await info_of(scene.chat)).metadata == {"a": 1}

    @sentence(Catalog)
    async def test_clear_keeps_metadata(self, scene: Scene) -> None:
        """`clear` keeps metadata and expiry."""
        await scene.another(ttl=60).append(said("a"))
        await scene.chat.annotate({"title": "A"})
        before = await info_of(scene.chat)
        await scene.chat.clear()
        after = await info_of(scene.chat)
        assert (after.metadata, after.expires_at) == ({"title": "A"}, before.expires_at)


class DeleteSentences(Stage):
    @sentence(Catalog)
    async def test_delete_removes_messages_and_metadata(self, scene: Scene) -> None:
        """`delete`: removes every trace (B129)."""
        await scene.chat.append(said("a"))
        await scene.chat.annotate({"title": "A"})
        await scene.chat.delete()
        assert await scene.chat.messages() == []
        assert await scene.chat.info() is None
        await scene.chat.append(said("b"))
        assert (await info_of(scene.chat)).metadata == {}

    @sentence(Catalog)
    async def test_a_deleted_session_is_not_listed(self, scene: Scene) -> None:
        """`delete`: removes every trace, from listings at once."""
        await scene.chat.append(said("a"))
        await scene.chat.delete()
        assert await listed(scene.store) == []

    @sentence(Catalog)
    async def test_after_delete_seqs_start_at_one(self, scene: Scene) -> None:
        """After delete everything may start at 1 again; its ids are free."""
        await scene.chat.append([named("m1", "a"), named("m2", "b")])
        await scene.chat.delete()
        assert (await scene.chat.append([named("m2", "other")], expected_last=0)).seqs == [1]

    @sentence(Catalog)
    async def test_delete_touches_no_other_session(self, scene: Scene) -> None:
        """Deleting one session leaves every other."""
        others = [scene.session(), scene.session(scene.chat.key.session_id, source_id="audit")]
        others.append(scene.session(scene.chat.key.session_id, namespace=scene.namespace + "2"))
        for chat in (scene.chat, *others):
            await chat.append(said("kept"))
        await scene.chat.delete()
        assert [await heard(chat) for chat in others] == [["kept"]] * 3

    @sentence(Catalog, Snapshots)
    async def test_delete_removes_the_snapshot(self, scene: Scene) -> None:
        """`delete` removes every trace: the next snapshot is version 1 (B130)."""
        await scene.chat.save_snapshot({"step": 1})
        await scene.chat.delete()
        assert await scene.chat.load_snapshot() is None
        assert await scene.chat.save_snapshot({"step": 2}, expected_version=0) == 1


class ListingSentences(Stage):
    @sentence(Catalog)
    async def test_an_empty_namespace_lists_nothing(self, scene: Scene) -> None:
        """`SessionPage(items, cursor)`, `None` = the end."""
        assert await scene.store.sessions() == SessionPage([], None)

    @sentence(Catalog)
    async def test_presence_never_lags(self, scene: Scene) -> None:
        """An acknowledged session is listed."""
        expected: set[SessionKey] = set()
        for number in range(6):
            chat = scene.session()
            await (chat.annotate({"a": 1}) if number % 2 else chat.append(said("a")))
            expected.add(chat.key)
            assert set(await listed(scene.another_store())) == expected

    @sentence(Catalog)
    async def test_a_listing_has_infos(self, scene: Scene) -> None:
        """The items are what `info` says."""
        await scene.chat.append(said("a", "b"))
        await scene.chat.annotate({"title": "A"})
        assert (await scene.store.sessions()).items == [await scene.chat.info()]

    @sentence(Catalog)
    async def test_the_newest_activity_comes_first(self, scene: Scene) -> None:
        """Newest activity first, to within a minute; an append moves a session up."""
        if self.clock != "client":
            pytest.skip("the backend uses its own clock: the kit cannot wait for minutes")
        chats = [scene.session(name) for name in ("b", "c", "a")]
        for minute, chat in enumerate([*chats, chats[0]]):
            with patch("time.time_ns", lambda now=minute: now * 60 * 10**9 + 10**18):
                await chat.append(said("x"))
        assert [key.session_id for key in await listed(scene.store, limit=2)] == ["b", "a", "c"]

    @sentence(Catalog)
    async def test_ties_are_in_the_order_of_keys(self, scene: Scene) -> None:
        """Ties by key: source id, then session id, by code points."""
        names = ["b", "a", "B", "é", "z", "\U0001f600", "\uffff", "a\x00", "10", "9"]
        await _at_one_time(self.clock, [scene.session(name, source_id=name) for name in names])
        found = await infos(scene.store, limit=3)
        assert sorted(info.key.session_id for info in found) == sorted(names)
        assert found == sorted(found, key=lambda info: (-minute_of(info), info.key))

    @sentence(Catalog)
    async def test_pages_of_any_size_list_each_session_once(self, scene: Scene) -> None:
        """A session not written during paging is listed exactly once."""
        chats = [scene.session(f"{number % 3}", source_id=f"{number // 3}") for number in range(7)]
        await _at_one_time(self.clock, chats)
        expected = sorted(chat.key for chat in chats)
        for limit in range(1, 9):
            assert sorted(await listed(scene.store, limit=limit)) == expected

    @sentence(Catalog)
    async def test_the_last_page_has_no_cursor(self, scene: Scene) -> None:
        """`cursor`: `None` = the end, also where the last page is full."""
        for _ in range(3):
            await scene.session().append(said("a"))
        page = await scene.store.sessions(limit=3)
        assert (len(page.items), page.cursor) == (3, None)

    @sentence(Catalog)
    async def test_what_is_written_during_paging_hides_no_other(self, scene: Scene) -> None:
        """One written meanwhile may be missed or repeated; all others are listed exactly once."""
        chats = [scene.session(f"{number}") for number in range(6)]
        await _at_one_time(self.clock, chats)
        first = await scene.store.sessions(limit=2)
        busy = {first.items[0].key, scene.session("new").key}
        for key in busy:
            await scene.session(key.session_id).append(said("more"))
        rest = await _rest(scene.store, first)
        assert sorted(key for key in rest if key not in busy) == sorted(c.key for c in chats if c.key not in busy)

    @sentence(Catalog)
    async def test_a_listing_of_a_source_is_exact(self, scene: Scene) -> None:
        """`source_id`: exact match only, never a prefix or a pattern (B85)."""
        for source in ("a", "ab", "A", "a%", "a_", "a "):
            await scene.session("s", source_id=source).append(said("x"))
        for source in ("a", "A", "a%", "a_", "a "):
            assert [key.source_id for key in await listed(scene.store, source_id=source)] == [source]
        assert await listed(scene.store, source_id="%") == []

    @sentence(Catalog)
    async def test_a_listing_of_a_namespace_is_exact(self, scene: Scene) -> None:
        """namespace: exact match only, never a prefix match (B85)."""
        tails = ("", "b", "%", "_", "*", " ")
        for tail in tails:
            await scene.session("s", namespace=scene.namespace + tail).append(said("x"))
        for tail in tails:
            keys = await listed(scene.store, namespace=scene.namespace + tail)
            assert [key.namespace for key in keys] == [scene.namespace + tail]

    @sentence(Catalog)
    async def test_a_bad_listing_is_refused(self, scene: Scene) -> None:
        """`limit` is an int of at least 1, a cursor one that a page gave, ids as everywhere."""
        bad: list[dict[str, Any]] = [{"limit": 0}, {"limit": -1}, {"limit": True}, {"limit": "5"}, {"limit": None}]
        bad += [{"cursor": "nonsense"}, {"cursor": ""}, {"namespace": ""}, {"source_id": ""}]
        for options in bad:
            with pytest.raises((ValueError, TypeError)):
                await scene.store.sessions(**options)

    @sentence(Catalog)
    async def test_deleting_a_namespace_is_exact(self, scene: Scene) -> None:
        """`delete_namespace`: all its sessions and sources, and no other namespace's (B85)."""
        others = [scene.session("s", namespace=scene.namespace + tail) for tail in ("b", "%", "/x")]
        mine = [scene.session("s"), scene.session("t"), scene.session("s", source_id="audit")]
        for chat in (*others, *mine):
            await chat.append(said("x"))
        assert await scene.store.delete_namespace(scene.namespace) == 3
        assert [await chat.info() for chat in mine] == [None] * 3
        assert [await heard(chat) for chat in others] == [["x"]] * 3
        assert await scene.store.delete_namespace(scene.namespace) == 0


def minute_of(info: SessionInfo) -> int:
    return activity_minute(to_microseconds(info.updated_at))


async def _rest(store: HistoryStore, page: SessionPage) -> list[SessionKey]:
    keys = [info.key for info in page.items]
    while page.cursor is not None and len(keys) < 100:
        page = await store.sessions(limit=2, cursor=page.cursor)
        keys += [info.key for info in page.items]
    return keys


async def _updates(chat: SessionHistory, call: Callable[[], Any]) -> bool:
    """Whether the call sets `updated_at`."""
    before: datetime = (await info_of(chat)).updated_at
    await asyncio.sleep(0.002)
    await call()
    after = (await info_of(chat)).updated_at
    assert after >= before > LONG_AGO
    return after > before


async def _at_one_time(clock: str, chats: list[SessionHistory]) -> None:
    """Append to all, with equal times where the kit can turn the clock; else close together."""
    if clock == "client":
        with patch("time.time_ns", lambda: 10**18):
            for chat in chats:
                await chat.append(said("x"))
    else:
        await asyncio.gather(*[chat.append(said("x")) for chat in chats])
