"""Sentences about expiry: who sets it, and that what has expired does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from agentstore import ConfigurationError, SessionHistory
from agentstore.backend import Append, Catalog, Rewriting, Snapshots
from agentstore.testing.catalog import info_of, listed
from agentstore.testing.faults import bare, records_of
from agentstore.testing.scenes import FAR_AHEAD, LONG_AGO, Scene, Stage, heard, named, said, sentence, seqs, soon

TTL = 0.25
"""Seconds: long enough for a few calls, short enough to wait for."""

Write = Callable[[SessionHistory], Awaitable[Any]]


async def expiry_of(chat: SessionHistory) -> datetime | None:
    return (await info_of(chat)).expires_at


async def expired(scene: Scene) -> SessionHistory:
    """The scene's chat: two messages, metadata, then expired."""
    await scene.chat.append([named("m1", "old"), named("m2", "older")])
    await scene.chat.annotate({"title": "old"})
    await scene.chat.expire(LONG_AGO)
    return scene.chat


class ExpirySentences(Stage):
    @sentence(Catalog)
    async def test_a_session_lives_as_long_as_its_ttl(self, scene: Scene) -> None:
        """`ttl`: each append sets the session's expiry to the store's now plus ttl (B112)."""
        chat = scene.another(ttl=TTL)
        await chat.append(said("a"))
        assert await heard(chat) == ["a"]
        await self.let_pass(TTL + 0.02)
        assert await heard(chat) == []

    @sentence(Catalog)
    async def test_every_append_moves_the_expiry(self, scene: Scene) -> None:
        """... each append, not only the first."""
        chat = scene.another(ttl=60)
        await chat.append(said("a"))
        first = await expiry_of(chat)
        await self.let_pass(0.01)
        await chat.append(said("b"))
        second = await expiry_of(chat)
        assert first is not None
        assert second is not None
        assert second > first

    @sentence(Catalog)
    async def test_the_expiry_is_now_plus_ttl(self, scene: Scene) -> None:
        """Seconds or `timedelta`, on the store's clock."""
        for ttl in (3600, 3600.0, timedelta(hours=1)):
            chat = scene.another(ttl=ttl)
            await chat.append(said("a"))
            info = await info_of(chat)
            assert info.expires_at is not None
            assert abs(info.expires_at - info.updated_at - timedelta(hours=1)) < timedelta(seconds=1)

    @sentence(Catalog)
    async def test_a_replay_moves_the_expiry_too(self, scene: Scene) -> None:
        """Each append does, also one whose messages are already there."""
        await scene.chat.append([named("m1")])
        await scene.another(ttl=60).append([named("m1")])
        assert await expiry_of(scene.chat) is not None

    @sentence(Catalog)
    async def test_reading_never_moves_the_expiry(self, scene: Scene) -> None:
        """Reads never do (B112)."""
        chat = scene.another(ttl=60)
        await chat.append(said("a"))
        before = await expiry_of(chat)
        await self.let_pass(0.01)
        await chat.messages()
        await chat.records(limit=1)
        [record async for record in chat.iterate()]
        await listed(scene.another_store(ttl=60))
        assert await expiry_of(chat) == before

    @sentence(Catalog)
    async def test_only_appends_move_the_expiry(self, scene: Scene) -> None:
        """`truncate` and `annotate` leave it."""
        await _leaves_expiry(self, scene, lambda chat: chat.truncate(after=1))
        await _leaves_expiry(self, scene, lambda chat: chat.annotate({"a": 1}))

    @sentence(Catalog, Rewriting)
    async def test_rewriting_leaves_the_expiry(self, scene: Scene) -> None:
        """`replace`, `update` and `pop` leave it."""
        await _leaves_expiry(self, scene, lambda chat: chat.replace(said("b")))
        await _leaves_expiry(self, scene, lambda chat: chat.update(named("m1", "b")))
        await _leaves_expiry(self, scene, lambda chat: chat.pop())

    @sentence(Catalog, Snapshots)
    async def test_a_snapshot_leaves_the_expiry(self, scene: Scene) -> None:
        """`save_snapshot` leaves it."""
        await _leaves_expiry(self, scene, lambda chat: chat.save_snapshot({"a": 1}))

    @sentence(Catalog)
    async def test_a_store_without_ttl_never_changes_an_expiry(self, scene: Scene) -> None:
        """A store without ttl never changes an expiry."""
        await scene.another(ttl=60).append(said("a"))
        before = await expiry_of(scene.chat)
        await self.let_pass(0.01)
        await scene.chat.append(said("b"))
        assert await expiry_of(scene.chat) == before is not None

    @sentence(Catalog)
    async def test_without_ttl_nothing_expires(self, scene: Scene) -> None:
        """`ttl=None`: `expires_at` is `None`."""
        await scene.chat.append(said("a"))
        assert await expiry_of(scene.chat) is None

    @sentence(Catalog)
    async def test_expire_sets_and_removes_the_expiry(self, scene: Scene) -> None:
        """`expire`: an aware datetime, or `None` to remove expiry."""
        await scene.chat.append(said("a"))
        at = soon(3600).replace(microsecond=123456)
        await scene.chat.expire(at)
        assert await expiry_of(scene.chat) == at
        await scene.chat.expire(None)
        assert await expiry_of(scene.chat) is None

    @sentence(Catalog)
    async def test_a_session_expires_when_it_was_told(self, scene: Scene) -> None:
        """`expire(at)`: at that time, and not before."""
        await scene.chat.append(said("a"))
        await scene.chat.expire(soon(TTL))
        assert await heard(scene.chat) == ["a"]
        await self.let_pass(TTL + 0.02)
        assert await heard(scene.chat) == []

    @sentence(Catalog)
    async def test_expire_holds_until_an_append_with_ttl(self, scene: Scene) -> None:
        """`expire(at)` holds until the next append of a store that has a ttl."""
        chat = scene.another(ttl=60)
        await chat.append(said("a"))
        await chat.expire(FAR_AHEAD)
        await scene.chat.append(said("b"))
        assert await expiry_of(chat) == FAR_AHEAD
        await chat.append(said("c"))
        expiry = await expiry_of(chat)
        assert expiry is not None
        assert expiry < FAR_AHEAD

    @sentence(Catalog)
    async def test_a_bad_expiry_is_refused(self, scene: Scene) -> None:
        """`at` is an aware datetime: naive or anything else is a `ValueError` or `TypeError`."""
        await scene.chat.append(said("a"))
        bad: list[Any] = [datetime(2100, 1, 1), 5, "2100-01-01", timedelta(1)]
        for at in bad:
            with pytest.raises((ValueError, TypeError)):
                await scene.chat.expire(at)
        assert await expiry_of(scene.chat) is None

    @sentence(Catalog)
    async def test_a_bad_ttl_is_refused(self, scene: Scene) -> None:
        """`ttl`: seconds or `timedelta`, above 0; a backend without the ability cannot have one."""
        bad: list[Any] = [0, -1, "60", True, float("nan"), float("inf"), timedelta(0)]
        for ttl in bad:
            with pytest.raises((ValueError, TypeError)):
                scene.another_store(ttl=ttl)
        with pytest.raises(ConfigurationError, match="Catalog"):
            scene.another_store(bare(scene.backend), ttl=60)

    @sentence(Catalog)
    async def test_the_expired_is_not_read(self, scene: Scene) -> None:
        """Expired means invisible to every call at once: to reads."""
        chat = await expired(scene)
        assert await chat.messages() == []
        assert await chat.records(limit=1) == []
        assert [record async for record in chat.iterate()] == []

    @sentence(Catalog)
    async def test_the_expired_has_no_info(self, scene: Scene) -> None:
        """... to `info`."""
        assert await (await expired(scene)).info() is None

    @sentence(Catalog)
    async def test_the_expired_is_not_listed(self, scene: Scene) -> None:
        """... to listings, whatever the size of a page."""
        names = [f"{number}" for number in range(5)]
        for name in names:
            await scene.session(name).append(said("a"))
        for name in names[1:4]:
            await scene.session(name).expire(LONG_AGO)
        assert sorted(key.session_id for key in await listed(scene.store, limit=1)) == ["0", "4"]

    @sentence(Catalog)
    async def test_the_expired_cannot_be_truncated(self, scene: Scene) -> None:
        """... to `truncate`, `clear` and `expire`, which do nothing."""
        chat = await expired(scene)
        await chat.expire(None)
        assert (await chat.truncate(after=0), await chat.clear()) == (0, 0)
        assert await chat.info() is None

    @sentence(Catalog, Rewriting)
    async def test_the_expired_cannot_be_rewritten(self, scene: Scene) -> None:
        """... to `pop`, `update`, `fork`, and a `replace` by nothing."""
        chat = await expired(scene)
        assert await chat.pop() is None
        assert not await chat.update(named("m1", "new"))
        await chat.replace([])
        assert await chat.info() is None
        fork = await chat.fork(scene.session().key.session_id)
        assert await fork.info() is None

    @sentence(Catalog, Snapshots)
    async def test_the_snapshot_expires_with_the_session(self, scene: Scene) -> None:
        """All of a session's parts expire together (B111)."""
        await scene.chat.append(said("a"), snapshot={"step": 1})
        await scene.chat.expire(LONG_AGO)
        assert await scene.chat.load_snapshot() is None

    @sentence(Catalog)
    async def test_reading_never_revives(self, scene: Scene) -> None:
        """Reading never revives (B112)."""
        chat = await expired(scene)
        for _ in range(2):
            assert await chat.messages() == []
            assert await chat.info() is None
        assert await listed(scene.store) == []

    @sentence(Catalog)
    async def test_an_append_after_expiry_begins_anew(self, scene: Scene) -> None:
        """After expiry everything may start at 1 again: seqs, ids, metadata, times."""
        chat = await expired(scene)
        answer = await chat.append([named("m2", "new")], expected_last=0)
        assert (answer.seqs, answer.written, await heard(chat)) == ([1], 1, ["new"])
        info = await info_of(chat)
        assert (info.metadata, info.expires_at, info.count) == ({}, None, 1)

    @sentence(Catalog)
    async def test_an_expired_session_forgets_its_tokens(self, scene: Scene) -> None:
        """All of a session's parts expire together, the remembered answers too."""
        append = Append(records_of(said("a")), b"t" * 16, retry=True)
        await scene.backend.append(scene.chat.key, append)
        await scene.chat.expire(LONG_AGO)
        await scene.backend.append(scene.chat.key, append)
        assert await heard(scene.chat) == ["a"]

    @sentence(Catalog)
    async def test_an_annotation_after_expiry_begins_anew(self, scene: Scene) -> None:
        """... with an annotation too: nothing of the old session comes back."""
        chat = await expired(scene)
        await chat.annotate({"mood": "new"})
        info = await info_of(chat)
        assert (info.metadata, info.count, info.expires_at) == ({"mood": "new"}, 0, None)

    @sentence(Catalog, Snapshots)
    async def test_a_snapshot_after_expiry_begins_anew(self, scene: Scene) -> None:
        """... with a snapshot too: its version is 1."""
        chat = await expired(scene)
        await chat.save_snapshot({"step": 1}, expected_version=0)
        await chat.expire(LONG_AGO)
        assert await chat.save_snapshot({"step": 2}, expected_version=0) == 1
        assert await chat.messages() == []

    @sentence(Catalog, Rewriting)
    async def test_rewriting_after_expiry_begins_anew(self, scene: Scene) -> None:
        """... with a replace or a fork too."""
        chat = await expired(scene)
        assert (await chat.replace([named("m1", "new")], expected_last=0)).seqs == [1]
        source = scene.session()
        await source.append(said("forked"))
        await chat.expire(LONG_AGO)
        assert await heard(await source.fork(chat.key.session_id)) == ["forked"]

    @sentence(Catalog, Snapshots)
    async def test_a_later_part_takes_the_sessions_expiry(self, scene: Scene) -> None:
        """A part that another write creates takes the session's expiry (B111)."""
        await scene.another(ttl=TTL).append(said("a"))
        await scene.chat.annotate({"title": "T"})
        await scene.chat.save_snapshot({"step": 1})
        await self.let_pass(TTL + 0.02)
        assert (await scene.chat.info(), await scene.chat.load_snapshot()) == (None, None)

    @sentence(Catalog)
    async def test_a_session_begun_by_an_annotation_has_the_ttl(self, scene: Scene) -> None:
        """What a store with ttl begins, expires."""
        chat = scene.another(ttl=60)
        await chat.annotate({"title": "T"})
        assert await expiry_of(chat) is not None

    @sentence(Catalog, Snapshots, Rewriting)
    async def test_a_session_begun_otherwise_has_the_ttl(self, scene: Scene) -> None:
        """What a store with ttl begins, expires: by a snapshot, a replace, a fork."""
        store = scene.another_store(ttl=60)
        by_snapshot, by_replace = store.session("by snapshot"), store.session("by replace")
        await by_snapshot.save_snapshot({"step": 1})
        await by_replace.replace(said("a"))
        by_fork = await by_replace.fork("by fork")
        assert None not in [await expiry_of(chat) for chat in (by_snapshot, by_replace, by_fork)]

    @sentence(Catalog)
    async def test_purging_counts_what_expired(self, scene: Scene) -> None:
        """`purge_expired() -> int`: the number of sessions."""
        await scene.store.purge_expired()
        for name in "abc":
            await scene.session(name).append(said("x"))
        await scene.session("a").expire(LONG_AGO)
        await scene.session("b").expire(LONG_AGO)
        assert await scene.catalog.purge(scene.namespace) == 2
        assert await scene.catalog.purge(scene.namespace) == 0

    @sentence(Catalog)
    async def test_purging_keeps_the_living(self, scene: Scene) -> None:
        """`purge_expired` removes what has expired and nothing else."""
        await scene.session("dead").append(said("x"))
        await scene.session("dead").expire(LONG_AGO)
        await scene.another(ttl=60).append(said("living"))
        given = await seqs(scene.chat)
        assert await scene.store.purge_expired() >= 1
        assert (await heard(scene.chat), await seqs(scene.chat)) == (["living"], given)

    @sentence(Catalog)
    async def test_purging_is_for_all_namespaces(self, scene: Scene) -> None:
        """`purge_expired`: all namespaces; the waist can purge exactly one."""
        other = scene.session("s", namespace=scene.namespace + "2")
        for chat in (scene.chat, other):
            await chat.append(said("x"))
            await chat.expire(LONG_AGO)
        assert await scene.catalog.purge(scene.namespace) == 1
        await scene.store.purge_expired()
        assert await scene.catalog.purge(scene.namespace + "2") == 0

    @sentence(Catalog)
    async def test_deleting_a_namespace_removes_the_expired_too(self, scene: Scene) -> None:
        """`delete_namespace` leaves nothing of what expired."""
        await expired(scene)
        await scene.store.delete_namespace(scene.namespace)
        assert await scene.catalog.purge(scene.namespace) == 0

    @sentence(Catalog)
    async def test_a_session_that_began_anew_is_not_purged(self, scene: Scene) -> None:
        """What was begun after an expiry lives on when the old is purged."""
        chat = await expired(scene)
        await chat.append(said("new"))
        await scene.store.purge_expired()
        assert await heard(chat) == ["new"]


async def _leaves_expiry(stage: Stage, scene: Scene, write: Write) -> None:
    chat = scene.another_store(ttl=60).session(scene.session().key.session_id)
    await chat.append([named("m1"), named("m2")])
    before = await expiry_of(chat)
    await stage.let_pass(0.002)
    await write(chat)
    assert await expiry_of(chat) == before is not None
