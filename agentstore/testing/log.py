"""Sentences about appending and reading: order, limits, pages, truncation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentstore import Appended, Message, SessionHistory
from agentstore.backend import Append, Log
from agentstore.testing.faults import Calls, counted, interrupted, records_of
from agentstore.testing.scenes import Scene, Stage, heard, said, sentence, seqs, soon

BAD_COUNTS: tuple[Any, ...] = (-1, True, 1.5, "1")


async def ten(chat: SessionHistory) -> list[int]:
    """Ten messages "0" to "9"; their seqs."""
    return (await chat.append(said(*"0123456789"))).seqs


class LogSentences(Stage):
    @sentence()
    async def test_an_unknown_session_reads_as_empty(self, scene: Scene) -> None:
        """Unknown session: `[]`."""
        assert await scene.chat.messages() == []

    @sentence()
    async def test_one_batch_comes_back_in_its_order(self, scene: Scene) -> None:
        """All or nothing, in order (B22)."""
        texts = [str(number) for number in range(50)]
        await scene.chat.append(said(*texts))
        assert await heard(scene.chat) == texts

    @sentence()
    async def test_batches_come_back_in_the_order_of_their_appends(self, scene: Scene) -> None:
        """Oldest first, across appends (B21)."""
        for number in range(12):
            await scene.chat.append(said(f"{number}a", f"{number}b"))
        assert await heard(scene.chat) == [f"{number}{part}" for number in range(12) for part in "ab"]

    @sentence()
    async def test_an_append_answers_with_the_seqs_of_its_messages(self, scene: Scene) -> None:
        """`Appended.seqs`: one seq per given message."""
        first = await scene.chat.append(said("a", "b"))
        second = await scene.chat.append(said("c"))
        records = {record.message.text: record.seq for record in await scene.chat.records()}
        assert dict(zip("abc", first.seqs + second.seqs, strict=True)) == records

    @sentence()
    async def test_an_append_answers_how_many_are_new(self, scene: Scene) -> None:
        """`Appended.written`."""
        assert (await scene.chat.append(said("a", "b"))).written == 2

    @sentence()
    async def test_seqs_start_at_one_and_ascend(self, scene: Scene) -> None:
        """seq: strictly increasing from 1."""
        given = await ten(scene.chat) + await ten(scene.chat)
        assert given[0] == 1
        assert given == sorted(set(given))

    @sentence()
    async def test_another_store_object_sees_what_was_appended(self, scene: Scene) -> None:
        """Read your writes, through any store object."""
        await scene.chat.append(said("hello"))
        assert await heard(scene.another()) == ["hello"]

    @sentence()
    async def test_honest_repeats_are_kept(self, scene: Scene) -> None:
        """Equal messages without ids are different messages (B73)."""
        await scene.chat.append(said("yes", "yes"))
        await scene.chat.append(said("yes"))
        assert await heard(scene.chat) == ["yes"] * 3

    @sentence()
    async def test_an_empty_append_writes_nothing(self, scene: Scene) -> None:
        """Empty list: nothing happens (B138)."""
        calls = Calls()
        assert await scene.another(counted(scene.backend, calls)).append([]) == Appended([], 0, None)
        assert "append" not in calls

    @sentence()
    async def test_a_thousand_messages_are_one_append(self, scene: Scene) -> None:
        """No batch is too long for one append (B122)."""
        texts = [str(number) for number in range(1000)]
        assert (await scene.chat.append(said(*texts))).written == 1000
        assert await heard(scene.chat) == texts

    @sentence()
    async def test_a_limit_gives_the_newest_oldest_first(self, scene: Scene) -> None:
        """`limit`: the newest n, oldest first (B26)."""
        await ten(scene.chat)
        assert await heard(scene.chat, limit=3) == ["7", "8", "9"]

    @sentence()
    async def test_a_limit_of_none_gives_all(self, scene: Scene) -> None:
        """`limit=None`: all."""
        await ten(scene.chat)
        assert await heard(scene.chat, limit=None) == list("0123456789")

    @sentence()
    async def test_a_limit_of_zero_gives_none(self, scene: Scene) -> None:
        """`limit=0`: none (B136)."""
        await ten(scene.chat)
        assert await heard(scene.chat, limit=0) == []

    @sentence()
    async def test_a_limit_of_one_gives_the_newest(self, scene: Scene) -> None:
        """`limit=1` (B136)."""
        await ten(scene.chat)
        assert await heard(scene.chat, limit=1) == ["9"]

    @sentence()
    async def test_a_limit_at_or_above_the_count_gives_all(self, scene: Scene) -> None:
        """`limit` of n and n+1 (B136)."""
        await ten(scene.chat)
        assert [await heard(scene.chat, limit=limit) for limit in (10, 11, 2**40)] == [list("0123456789")] * 3

    @sentence()
    async def test_before_gives_those_with_a_lower_seq(self, scene: Scene) -> None:
        """`before`: of those with `seq < before`."""
        given = await ten(scene.chat)
        assert await heard(scene.chat, before=given[4]) == list("0123")
        assert await heard(scene.chat, before=given[4], limit=2) == list("23")

    @sentence()
    async def test_nothing_is_before_the_first(self, scene: Scene) -> None:
        """`before` of 0 and 1 gives nothing; one above the last gives all."""
        given = await ten(scene.chat)
        found = [await heard(scene.chat, before=before) for before in (0, 1, given[-1] + 1, 2**40)]
        assert found == [[], [], list("0123456789"), list("0123456789")]

    @sentence()
    async def test_a_bad_limit_or_before_is_refused_before_any_io(self, scene: Scene) -> None:
        """Anything but `None` or an int >= 0 (bool is not an int here): `ValueError` before any I/O (B136)."""
        calls = Calls()
        chat = scene.another(counted(scene.backend, calls))
        for bad in BAD_COUNTS:
            for read in (chat.messages, chat.records):
                for name in ("limit", "before"):
                    with pytest.raises(ValueError, match=name):
                        await read(**{name: bad})
        assert calls == []

    @sentence()
    async def test_records_are_the_messages_with_seq_and_time(self, scene: Scene) -> None:
        """`records`: the same as `StoredMessage`."""
        given = await ten(scene.chat)
        records = await scene.chat.records(limit=4, before=given[8])
        assert [record.message for record in records] == await scene.chat.messages(limit=4, before=given[8])
        assert [record.seq for record in records] == given[4:8]

    @sentence()
    async def test_times_are_aware_utc_and_about_now(self, scene: Scene) -> None:
        """Times are aware UTC, by the store's clock."""
        await scene.chat.append(said("a"))
        (record,) = await scene.chat.records()
        assert record.created_at.utcoffset() == timedelta(0)
        assert abs(record.created_at - soon(0)) < timedelta(minutes=10)

    @sentence()
    async def test_iterate_gives_all_oldest_first(self, scene: Scene) -> None:
        """`iterate`: oldest first, whatever the size of a page."""
        given = await ten(scene.chat)
        for size in (1, 3, 10, 500):
            assert [record.seq async for record in scene.chat.iterate(page_size=size)] == given

    @sentence()
    async def test_iterate_starts_after_a_seq(self, scene: Scene) -> None:
        """`after`: those with a higher seq."""
        given = await ten(scene.chat)
        assert [record.seq async for record in scene.chat.iterate(after=given[6], page_size=2)] == given[7:]

    @sentence()
    async def test_iterate_refuses_bad_bounds(self, scene: Scene) -> None:
        """`after` and `page_size` are checked as `limit` is, before any I/O."""
        for bad in BAD_COUNTS:
            with pytest.raises(ValueError, match="after"):
                scene.chat.iterate(after=bad)
            with pytest.raises(ValueError, match="page_size"):
                scene.chat.iterate(page_size=bad)
        with pytest.raises(ValueError, match="page_size"):
            scene.chat.iterate(page_size=0)

    @sentence()
    async def test_iterate_reads_a_page_at_a_time(self, scene: Scene) -> None:
        """`iterate`: constant memory."""
        await ten(scene.chat)
        calls = Calls()
        pages = scene.another(counted(scene.backend, calls)).iterate(page_size=4)
        await anext(pages)
        reads_for_one = calls.count("read")
        texts = [record.message.text async for record in pages]
        assert (reads_for_one, calls.count("read"), len(texts)) == (1, 3, 9)

    @sentence()
    async def test_iterate_sees_what_is_appended_meanwhile(self, scene: Scene) -> None:
        """A later page is a later read."""
        await ten(scene.chat)
        pages = scene.chat.iterate(page_size=4)
        first = await anext(pages)
        await scene.chat.append(said("later"))
        assert [first.message.text] + [record.message.text async for record in pages] == [*"0123456789", "later"]

    @sentence()
    async def test_a_read_has_both_bounds_and_both_ends(self, scene: Scene) -> None:
        """The waist: records with `after < seq < before`, ascending; the first, or the newest, `limit` of them."""
        given = await ten(scene.chat)

        async def read(**options: Any) -> list[int]:
            return [given.index(found.seq) for found in await scene.backend.read(scene.chat.key, **options)]

        assert await read(after=given[2], before=given[7]) == [3, 4, 5, 6]
        assert await read(after=given[2], before=given[7], limit=2) == [3, 4]
        assert await read(after=given[2], before=given[7], limit=2, newest=True) == [5, 6]
        assert await read(after=given[4], before=given[7], limit=9, newest=True) == [5, 6]
        assert await read(after=given[7], before=given[2]) == []

    @sentence()
    async def test_a_megabyte_comes_back(self, scene: Scene) -> None:
        """A text of a megabyte is one message like any other (B20)."""
        text = "né" * 500_000
        await scene.chat.append(said(text))
        assert await heard(scene.chat) == [text]

    @sentence()
    async def test_truncate_after_drops_the_newer(self, scene: Scene) -> None:
        """`truncate(after=)`: drop records with `seq > after`."""
        given = await ten(scene.chat)
        assert await scene.chat.truncate(after=given[6]) == 3
        assert await heard(scene.chat) == list("0123456")

    @sentence()
    async def test_truncate_before_drops_the_older(self, scene: Scene) -> None:
        """`truncate(before=)`: drop records with `seq < before`."""
        given = await ten(scene.chat)
        assert await scene.chat.truncate(before=given[6]) == 6
        assert await heard(scene.chat) == list("6789")

    @sentence()
    async def test_truncate_beyond_the_ends_drops_all_or_none(self, scene: Scene) -> None:
        """Bounds need not be the seqs of records."""
        given = await ten(scene.chat)
        assert await scene.chat.truncate(after=given[-1]) == 0
        assert await scene.chat.truncate(before=1) == 0
        assert await scene.chat.truncate(before=2**40) == 10

    @sentence()
    async def test_truncate_takes_exactly_one_bound(self, scene: Scene) -> None:
        """Exactly one bound; both, none or a bad one: `ValueError`, nothing dropped."""
        await ten(scene.chat)
        bad: list[dict[str, Any]] = [{}, {"after": 1, "before": 3}, {"after": -1}, {"before": True}, {"after": "1"}]
        for bounds in bad:
            with pytest.raises(ValueError, match=r"after|before"):
                await scene.chat.truncate(**bounds)
        assert len(await scene.chat.messages()) == 10

    @sentence()
    async def test_clear_drops_all_and_says_how_many(self, scene: Scene) -> None:
        """`clear() -> int`."""
        await ten(scene.chat)
        assert await scene.chat.clear() == 10
        assert await scene.chat.messages() == []

    @sentence()
    async def test_clear_touches_no_other_session(self, scene: Scene) -> None:
        """Two sessions, two sources, two namespaces never meet (B83)."""
        chats = [scene.chat, scene.session(), scene.session(scene.chat.key.session_id, source_id="audit")]
        chats.append(scene.session(scene.chat.key.session_id, namespace=scene.namespace + "2"))
        for chat in chats:
            await chat.append([Message("user", ["kept"], message_id="same")])
        await scene.chat.clear()
        assert [await heard(chat) for chat in chats] == [[], ["kept"], ["kept"], ["kept"]]

    @sentence()
    async def test_a_seq_is_never_reused_after_clear(self, scene: Scene) -> None:
        """seq: never reused while the session exists; `clear` keeps the counter."""
        given = await ten(scene.chat)
        await scene.chat.clear()
        assert (await ten(scene.chat))[0] > given[-1]

    @sentence()
    async def test_a_seq_is_never_reused_after_truncate(self, scene: Scene) -> None:
        """seq: never reused while the session exists."""
        given = await ten(scene.chat)
        await scene.chat.truncate(after=given[4])
        assert (await ten(scene.chat))[0] > given[-1]

    @sentence()
    async def test_clear_and_truncate_do_nothing_to_an_unknown_session(self, scene: Scene) -> None:
        """`clear` and `truncate` on an unknown one do nothing."""
        assert await scene.chat.clear() == 0
        assert await scene.chat.truncate(after=3) == 0
        assert (await ten(scene.chat))[0] == 1

    @sentence()
    async def test_clear_is_one_boundary(self, scene: Scene) -> None:
        """Every append takes effect wholly before a clear (gone) or wholly after it (there) (B36)."""

        async def clear_before() -> None:
            await scene.chat.clear()

        await ten(scene.chat)
        late = scene.another(interrupted(scene.backend, "append", clear_before))
        await late.append(said("a", "b", "c"))
        assert await heard(scene.chat) == ["a", "b", "c"]

    @sentence()
    async def test_the_store_answers_a_ping(self, scene: Scene) -> None:
        """`ping()`: raises only where the store does not answer."""
        await scene.store.ping()

    @sentence()
    async def test_a_waist_append_keeps_format_payload_and_digest(self, scene: Scene) -> None:
        """A backend keeps records as they are given: id hash, digest, format, payload."""
        (record,) = records_of(said("a"))
        await scene.backend.append(scene.chat.key, Append((record,), b"t" * 16))
        (kept,) = await _read(scene.backend, scene.chat)
        assert (kept.id_hash, kept.digest) == (record.id_hash, record.digest)
        assert (kept.format, kept.payload) == (record.format, record.payload)

    @sentence()
    async def test_seqs_of_sessions_are_their_own(self, scene: Scene) -> None:
        """seq: a position in one session."""
        await ten(scene.chat)
        assert (await ten(scene.session()))[0] == (await seqs(scene.chat))[0] == 1


async def _read(backend: Log, chat: SessionHistory) -> list[Any]:
    return list(await backend.read(chat.key))
