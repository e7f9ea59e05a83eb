"""Sentences about changing what is written: pop, replace, update, fork."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agentstore import ConflictError, CorruptRecordError, Message
from agentstore.backend import Catalog, Rewriting, Snapshots, StoredRecord
from agentstore.testing.faults import interrupted, plant
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence, seqs, together


class PopSentences(Stage):
    @sentence(Rewriting)
    async def test_pop_removes_the_newest_and_gives_it(self, scene: Scene) -> None:
        """`pop`: the newest, removed (B22)."""
        await scene.chat.append(said("a", "b", "c"))
        newest = (await scene.chat.records())[-1]
        assert await scene.chat.pop() == newest
        assert await heard(scene.chat) == ["a", "b"]

    @sentence(Rewriting)
    async def test_pop_of_nothing_gives_none(self, scene: Scene) -> None:
        """`pop` on an unknown or empty session: `None`."""
        assert await scene.chat.pop() is None
        await scene.chat.append(said("a"))
        await scene.chat.pop()
        assert await scene.chat.pop() is None

    @sentence(Rewriting)
    async def test_a_seq_is_never_reused_after_pop(self, scene: Scene) -> None:
        """seq: never reused while the session exists."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        await scene.chat.pop()
        assert (await scene.chat.append(said("c"))).seqs[0] > given[-1]

    @sentence(Rewriting)
    async def test_pop_frees_the_id(self, scene: Scene) -> None:
        """Removing a record frees its id: appending it again is a new write."""
        await scene.chat.append([named("m1", "a")])
        await scene.chat.pop()
        assert (await scene.chat.append([named("m1", "b")])).written == 1

    @sentence(Rewriting)
    async def test_after_pop_the_one_before_is_the_expected_last(self, scene: Scene) -> None:
        """`expected_last` = seq of the newest living record, after a pop too."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        await scene.chat.pop()
        await scene.chat.append(said("c"), expected_last=given[0])
        assert await heard(scene.chat) == ["a", "c"]

    @sentence(Rewriting)
    async def test_concurrent_pops_hand_each_message_out_once(self, scene: Scene) -> None:
        """`pop`: handed out once even to concurrent poppers (B31)."""
        given = (await scene.chat.append(said(*map(str, range(12))))).seqs
        stores = [scene.another() for _ in range(3)]
        popped = await together(16, lambda number: stores[number % 3].pop())
        assert sorted(record.seq for record in popped if record) == given
        assert await scene.chat.messages() == []

    @sentence(Rewriting)
    async def test_pop_never_takes_another_than_it_gives(self, scene: Scene) -> None:
        """What is appended while a pop is under way is what the pop gives, or stays (B31)."""
        await scene.chat.append(said("a"))
        late = scene.another(interrupted(scene.backend, "remove_newest", lambda: scene.chat.append(said("b"))))
        popped = await late.pop()
        assert popped is not None
        assert sorted([popped.message.text, *await heard(scene.chat)]) == ["a", "b"]

    @sentence(Rewriting)
    async def test_pop_never_removes_what_was_updated_meanwhile(self, scene: Scene) -> None:
        """`pop` gives the contents that it removes: an update in between is not lost unseen."""
        await scene.chat.append([named("m1", "old")])
        late = scene.another(interrupted(scene.backend, "remove_newest", lambda: scene.chat.update(named("m1", "new"))))
        popped = await late.pop()
        assert popped is not None
        assert popped.message.text == "new"

    @sentence(Rewriting)
    async def test_only_the_newest_is_removed_as_newest(self, scene: Scene) -> None:
        """The waist: `remove_newest` of one that is not the newest, or has another digest, changes nothing."""
        await scene.chat.append(said("a", "b"))
        older, newest = await scene.backend.read(scene.chat.key)
        remove = scene.rewriting.remove_newest
        assert not await remove(scene.chat.key, older.seq, older.digest)
        assert not await remove(scene.chat.key, newest.seq, older.digest)
        assert not await remove(scene.session().key, newest.seq, newest.digest)
        assert await heard(scene.chat) == ["a", "b"]

    @sentence(Rewriting, Catalog)
    async def test_pop_begins_no_session(self, scene: Scene) -> None:
        """`pop` on an unknown one does nothing."""
        await scene.chat.pop()
        assert await scene.chat.info() is None


class ReplaceSentences(Stage):
    @sentence(Rewriting)
    async def test_replace_swaps_all(self, scene: Scene) -> None:
        """`replace`: swaps every record."""
        await scene.chat.append(said("a", "b"))
        answer = await scene.chat.replace(said("c"))
        assert (answer.written, answer.seqs) == (1, await seqs(scene.chat))
        assert await heard(scene.chat) == ["c"]

    @sentence(Rewriting)
    async def test_replace_keeps_what_is_up_to_after(self, scene: Scene) -> None:
        """`after`: swaps every record with `seq > after`."""
        given = (await scene.chat.append(said("a", "b", "c", "d"))).seqs
        await scene.chat.replace(said("e"), after=given[1])
        assert await heard(scene.chat) == ["a", "b", "e"]

    @sentence(Rewriting)
    async def test_replaced_records_get_new_seqs(self, scene: Scene) -> None:
        """`replace`: new seqs, above all that were ever given."""
        given = (await scene.chat.append([named("m1"), named("m2")])).seqs
        assert min((await scene.chat.replace([named("m1"), named("m2")])).seqs) > given[-1]

    @sentence(Rewriting)
    async def test_ids_may_repeat_those_being_replaced(self, scene: Scene) -> None:
        """`replace`: ids may repeat those being replaced, with other contents too."""
        await scene.chat.append([named("m1", "a"), named("m2", "b")])
        assert (await scene.chat.replace([named("m2", "B"), named("m1", "A")])).written == 2
        assert await heard(scene.chat) == ["B", "A"]

    @sentence(Rewriting)
    async def test_an_id_that_stays_is_not_written_again(self, scene: Scene) -> None:
        """The waist: an id that stays is treated as in `append`."""
        given = (await scene.chat.append([named("m1", "a"), named("m2", "b")])).seqs
        answer = await scene.chat.replace([named("m1", "a"), named("m3", "c")], after=given[0])
        assert (answer.written, answer.seqs[0]) == (1, given[0])
        assert await heard(scene.chat) == ["a", "c"]

    @sentence(Rewriting)
    async def test_an_id_that_stays_with_other_contents_refuses_the_replace(self, scene: Scene) -> None:
        """Same id with other contents: `ConflictError`, nothing changed."""
        given = (await scene.chat.append([named("m1", "a"), named("m2", "b")])).seqs
        with pytest.raises(ConflictError, match="m1"):
            await scene.chat.replace([named("m3"), named("m1", "other")], after=given[0])
        assert await heard(scene.chat) == ["a", "b"]

    @sentence(Rewriting)
    async def test_an_append_since_refuses_the_replace(self, scene: Scene) -> None:
        """With `expected_last`, any append since raises `ConflictError` and nothing changed (B30, B52)."""
        given = (await scene.chat.append(said("a"))).seqs
        await scene.chat.append(said("b"))
        with pytest.raises(ConflictError):
            await scene.chat.replace(said("summary"), expected_last=given[0])
        with pytest.raises(ConflictError):
            await scene.session().replace([], expected_last=1)
        assert await heard(scene.chat) == ["a", "b"]

    @sentence(Rewriting)
    async def test_the_expected_last_seq_lets_a_replace_through(self, scene: Scene) -> None:
        """`expected_last`: every read-then-replace caller passes it."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        await scene.chat.replace(said("summary"), expected_last=given[-1])
        await scene.session().replace(said("first"), expected_last=0)
        assert await heard(scene.chat) == ["summary"]

    @sentence(Rewriting)
    async def test_an_append_after_a_replace_comes_after_it(self, scene: Scene) -> None:
        """An append that takes effect later comes after it (B52)."""
        await scene.chat.append(said("a", "b"))
        late = scene.another(interrupted(scene.backend, "append", lambda: scene.chat.replace(said("summary"))))
        await late.append(said("c"))
        assert await heard(scene.chat) == ["summary", "c"]

    @sentence(Rewriting)
    async def test_replace_swaps_what_is_there_when_it_takes_effect(self, scene: Scene) -> None:
        """Swaps every record with `seq > after` at the moment it takes effect."""
        await scene.chat.append(said("a"))
        late = scene.another(interrupted(scene.backend, "replace", lambda: scene.chat.append(said("b"))))
        await late.replace(said("summary"))
        assert await heard(scene.chat) == ["summary"]

    @sentence(Rewriting)
    async def test_readers_see_old_or_new(self, scene: Scene) -> None:
        """Readers see old or new, never neither."""
        old, new = [f"old {n}" for n in range(20)], [f"new {n}" for n in range(20)]
        await scene.chat.append(said(*old))
        stop = asyncio.Event()
        reader = asyncio.ensure_future(_watch(scene, stop))
        for _ in range(4):
            await scene.chat.replace(said(*new))
            await asyncio.sleep(0)
            await scene.chat.replace(said(*old))
        stop.set()
        seen = await reader
        assert [texts for texts in seen if texts not in (old, new)] == []

    @sentence(Rewriting)
    async def test_replace_by_nothing_empties(self, scene: Scene) -> None:
        """An empty list takes the place of what is there."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        assert (await scene.chat.replace([])).written == 0
        assert (await scene.chat.append(said("c"))).seqs[0] > given[-1]
        assert await heard(scene.chat) == ["c"]

    @sentence(Rewriting)
    async def test_replace_of_an_unknown_session_writes(self, scene: Scene) -> None:
        """Nothing to be swapped is as good as anything."""
        await scene.chat.replace(said("a"))
        assert await heard(scene.chat) == ["a"]

    @sentence(Rewriting, Catalog)
    async def test_replace_by_nothing_begins_no_session(self, scene: Scene) -> None:
        """A session begins with its first append, snapshot or annotation, not with an empty list."""
        await scene.chat.replace([])
        assert await scene.chat.info() is None

    @sentence(Rewriting, Catalog, Snapshots)
    async def test_replace_keeps_metadata_and_snapshot(self, scene: Scene) -> None:
        """`replace` swaps records and nothing else."""
        await scene.chat.append(said("a"), snapshot={"step": 1})
        await scene.chat.annotate({"title": "T"})
        await scene.chat.replace(said("b"))
        info, snapshot = await scene.chat.info(), await scene.chat.load_snapshot()
        assert info is not None
        assert snapshot is not None
        assert (info.metadata, snapshot.session) == ({"title": "T"}, {"step": 1})


class UpdateSentences(Stage):
    @sentence(Rewriting)
    async def test_update_gives_new_contents_at_the_same_place(self, scene: Scene) -> None:
        """`update`: new content for that `message_id`, same seq and time."""
        await scene.chat.append([named("m1", "a"), named("m2", "b"), named("m3", "c")])
        before = await scene.chat.records()
        assert await scene.chat.update(named("m2", "B"))
        after = await scene.chat.records()
        assert [record.message.text for record in after] == ["a", "B", "c"]
        assert [(r.seq, r.created_at) for r in after] == [(r.seq, r.created_at) for r in before]

    @sentence(Rewriting)
    async def test_update_gives_a_new_digest(self, scene: Scene) -> None:
        """`update`: new digest: the new contents are the ones that are already there."""
        await scene.chat.append([named("m1", "a")])
        await scene.chat.update(named("m1", "b"))
        assert (await scene.chat.append([named("m1", "b")])).written == 0
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m1", "a")])

    @sentence(Rewriting)
    async def test_update_of_what_is_not_there_is_false(self, scene: Scene) -> None:
        """`False` if there is none; nothing is written."""
        assert not await scene.chat.update(named("m1"))
        await scene.chat.append([named("m1")])
        await scene.chat.clear()
        assert not await scene.chat.update(named("m1"))
        assert await scene.chat.messages() == []

    @sentence(Rewriting)
    async def test_update_needs_an_id(self, scene: Scene) -> None:
        """No id: `ValueError`."""
        await scene.chat.append(said("a"))
        for message in (Message("user", ["b"]), named("", "b")):
            with pytest.raises(ValueError, match="message_id"):
                await scene.chat.update(message)

    @sentence(Rewriting, Catalog)
    async def test_update_begins_no_session(self, scene: Scene) -> None:
        """A session begins with its first append, snapshot or annotation."""
        await scene.chat.update(named("m1"))
        assert await scene.chat.info() is None


class ForkSentences(Stage):
    @sentence(Rewriting)
    async def test_fork_copies_records_with_seqs_ids_and_times(self, scene: Scene) -> None:
        """`fork`: records with seqs, ids and times."""
        await scene.chat.append(said("a", "b"))
        await scene.chat.truncate(after=1)
        await scene.chat.append(said("c"))
        fork = await scene.chat.fork(scene.session().key.session_id)
        assert await fork.records() == await scene.chat.records()

    @sentence(Rewriting)
    async def test_fork_copies_up_to_a_seq(self, scene: Scene) -> None:
        """`at`: records up to that seq."""
        given = (await scene.chat.append(said("a", "b", "c"))).seqs
        fork = await scene.chat.fork(scene.session().key.session_id, at=given[1])
        assert await heard(fork) == ["a", "b"]

    @sentence(Rewriting)
    async def test_fork_stays_in_source_and_namespace(self, scene: Scene) -> None:
        """`fork(new_session_id)`: only the session id is another."""
        audit = scene.session(source_id="audit")
        await audit.append(said("a"))
        fork = await audit.fork("forked")
        assert (fork.key.namespace, fork.key.source_id, fork.key.session_id) == (scene.namespace, "audit", "forked")

    @sentence(Rewriting)
    async def test_a_fork_goes_on_alone(self, scene: Scene) -> None:
        """After the fork neither session sees the other's writes."""
        given = (await scene.chat.append([named("m1", "a")])).seqs
        fork = await scene.chat.fork(scene.session().key.session_id)
        await scene.chat.append(said("here"))
        assert (await fork.append(said("there"))).seqs[0] > given[-1]
        assert (await heard(scene.chat), await heard(fork)) == (["a", "here"], ["a", "there"])

    @sentence(Rewriting)
    async def test_a_fork_knows_its_ids(self, scene: Scene) -> None:
        """Ids are copied: a replay into the fork writes nothing again."""
        await scene.chat.append([named("m1")])
        fork = await scene.chat.fork(scene.session().key.session_id)
        assert (await fork.append([named("m1")])).written == 0

    @sentence(Rewriting)
    async def test_fork_onto_a_session_conflicts(self, scene: Scene) -> None:
        """If the target exists: `ConflictError`, nothing changed (B81)."""
        await scene.chat.append(said("a"))
        target = scene.session()
        await target.append(said("mine"))
        with pytest.raises(ConflictError):
            await scene.chat.fork(target.key.session_id)
        assert await heard(target) == ["mine"]

    @sentence(Rewriting, Catalog, Snapshots)
    async def test_fork_copies_neither_metadata_nor_snapshot_nor_expiry(self, scene: Scene) -> None:
        """Not metadata, snapshot, expiry."""
        chat = scene.another(ttl=60)
        await chat.append(said("a"), snapshot={"step": 1})
        await chat.annotate({"title": "T"})
        fork = await scene.chat.fork(scene.session().key.session_id)
        info = await fork.info()
        assert info is not None
        assert (info.metadata, info.expires_at, await fork.load_snapshot()) == ({}, None, None)

    @sentence(Rewriting, Catalog)
    async def test_fork_of_an_unknown_session_begins_none(self, scene: Scene) -> None:
        """There is nothing to copy: no session begins."""
        assert await (await scene.chat.fork(scene.session().key.session_id)).info() is None

    @sentence(Rewriting)
    async def test_a_restore_appears_whole(self, scene: Scene) -> None:
        """Target appears whole: nothing is seen of it before the last page is in."""
        pages, target = await _pages(scene), scene.session()
        seen: list[list[str]] = []

        async def watched() -> AsyncIterator[Sequence[StoredRecord]]:
            for page in pages:
                yield page
                seen.append(await heard(target))

        assert await scene.rewriting.restore(target.key, watched())
        assert (seen, await heard(target)) == ([[], []], ["a", "b", "c", "d"])

    @sentence(Rewriting)
    async def test_a_restore_that_fails_leaves_nothing(self, scene: Scene) -> None:
        """... or not at all: its ids and seqs are as if it had never begun."""
        pages, target = await _pages(scene), scene.session()

        async def broken() -> AsyncIterator[Sequence[StoredRecord]]:
            yield pages[0]
            raise OSError("the source went away")

        with pytest.raises(OSError, match="went away"):
            await scene.rewriting.restore(target.key, broken())
        assert await target.messages() == []
        assert (await target.append([named("m1", "other")])).seqs == [1]

    @sentence(Rewriting)
    async def test_a_restore_never_overwrites_what_began_meanwhile(self, scene: Scene) -> None:
        """The waist: `False`, and no change, if the session exists by then."""
        pages, target = await _pages(scene), scene.session()

        async def overtaken() -> AsyncIterator[Sequence[StoredRecord]]:
            yield pages[0]
            await target.append(said("mine"))
            yield pages[1]

        assert not await scene.rewriting.restore(target.key, overtaken())
        assert await heard(target) == ["mine"]

    @sentence(Rewriting)
    async def test_pop_of_a_corrupt_newest_removes_nothing(self, scene: Scene) -> None:
        """`pop`: a corrupt newest raises and nothing is removed (B124)."""
        await scene.chat.append(said("a"))
        seq = await plant(scene.backend, scene.chat, b"{broken")
        for chat in (scene.chat, scene.another(on_corrupt="skip")):
            with pytest.raises(CorruptRecordError):
                await chat.pop()
        assert [record.seq for record in await scene.backend.read(scene.chat.key)][-1] == seq


async def _pages(scene: Scene) -> list[list[StoredRecord]]:
    await scene.chat.append([named("m1", "a"), named("m2", "b"), named("m3", "c"), named("m4", "d")])
    records = list(await scene.backend.read(scene.chat.key))
    return [records[:2], records[2:]]


async def _watch(scene: Scene, stop: asyncio.Event) -> list[list[str]]:
    seen: list[list[str]] = []
    while not stop.is_set():
        seen.append(await heard(scene.chat))
        await asyncio.sleep(0)
    return seen
