"""Sentences about snapshots: versions, conditions, and one transaction with the turn."""

from __future__ import annotations

from typing import Any

import pytest

from agentstore import AgentSession, ConflictError, CorruptRecordError, SessionHistory, Snapshot
from agentstore.backend import Catalog, Snapshots, SnapshotWrite
from agentstore.testing.catalog import info_of, listed
from agentstore.testing.faults import interrupted
from agentstore.testing.scenes import Scene, Stage, attempted, heard, named, said, sentence, together


async def step_of(chat: SessionHistory) -> tuple[Any, int]:
    """The `step` in the snapshot, and its version; `(None, 0)` where there is none."""
    loaded = await chat.load_snapshot()
    if loaded is None:
        return None, 0
    assert isinstance(loaded.session, dict)
    return loaded.session["step"], loaded.version


async def plant_snapshot(scene: Scene, format: str = "agentstore.session/9") -> None:
    """A snapshot that a newer version saved."""
    await scene.snapshots.save_snapshot(scene.chat.key, SnapshotWrite(format, b"{}", frozenset()))


class SnapshotSentences(Stage):
    @sentence(Snapshots)
    async def test_without_a_snapshot_none_is_loaded(self, scene: Scene) -> None:
        """`load_snapshot() -> Snapshot | None`."""
        await scene.chat.append(said("a"))
        assert await scene.chat.load_snapshot() is None
        assert await scene.session().load_snapshot() is None

    @sentence(Snapshots)
    async def test_a_session_comes_back(self, scene: Scene) -> None:
        """A serialized `AgentSession`, kept beside the session (B127)."""
        session = AgentSession(session_id="s", service_session_id="srv", state={"a": (1, b"x")})
        await scene.chat.save_snapshot(session)
        loaded = await scene.chat.load_snapshot()
        assert loaded is not None
        assert isinstance(loaded.session, AgentSession)
        assert loaded.session.to_dict() == session.to_dict()

    @sentence(Snapshots)
    async def test_a_mapping_comes_back(self, scene: Scene) -> None:
        """... or a JSON mapping of an adapter's."""
        await scene.chat.save_snapshot({"step": [1, None]})
        assert await scene.chat.load_snapshot() == Snapshot({"step": [1, None]}, 1)

    @sentence(Snapshots)
    async def test_versions_count_from_one(self, scene: Scene) -> None:
        """An integer version; without `expected_version` it is bumped unconditionally."""
        assert [await scene.chat.save_snapshot({"step": step}) for step in "abc"] == [1, 2, 3]
        assert await step_of(scene.chat) == ("c", 3)

    @sentence(Snapshots)
    async def test_the_expected_version_lets_a_save_through(self, scene: Scene) -> None:
        """`expected_version`: the current one, 0 = none yet."""
        assert await scene.chat.save_snapshot({"step": 1}, expected_version=0) == 1
        assert await scene.chat.save_snapshot({"step": 2}, expected_version=1) == 2

    @sentence(Snapshots)
    async def test_another_version_refuses_a_save(self, scene: Scene) -> None:
        """`expected_version` not the current one: `ConflictError`, nothing changed (B32)."""
        with pytest.raises(ConflictError):
            await scene.chat.save_snapshot({"step": 0}, expected_version=1)
        await scene.chat.save_snapshot({"step": 1})
        for expected in (0, 2):
            with pytest.raises(ConflictError):
                await scene.chat.save_snapshot({"step": 2}, expected_version=expected)
        assert await step_of(scene.chat) == (1, 1)

    @sentence(Snapshots)
    async def test_a_bad_expected_version_is_refused(self, scene: Scene) -> None:
        """`expected_version` is `None` or an int of at least 0; in `append` it needs a snapshot."""
        bad: list[Any] = [-1, True, "1", 1.0]
        for expected in bad:
            with pytest.raises((ValueError, TypeError)):
                await scene.chat.save_snapshot({"step": 1}, expected_version=expected)
        with pytest.raises(ValueError, match="expected_version"):
            await scene.chat.append(said("a"), expected_version=0)

    @sentence(Snapshots)
    async def test_of_many_saves_on_one_version_one_wins(self, scene: Scene) -> None:
        """Compared in the same step."""
        answers = await together(
            8, lambda step: attempted(scene.another().save_snapshot({"step": step}, expected_version=0))
        )
        assert sorted(map(str, answers)) == sorted(["1", *[str(ConflictError)] * 7])
        assert await step_of(scene.chat) == (answers.index(1), 1)

    @sentence(Snapshots)
    async def test_saves_at_once_have_versions_of_their_own(self, scene: Scene) -> None:
        """The version is bumped, never given twice."""
        versions = await together(8, lambda step: scene.another().save_snapshot({"step": step}))
        assert sorted(versions) == list(range(1, 9))

    @sentence(Snapshots)
    async def test_a_newer_format_is_not_overwritten(self, scene: Scene) -> None:
        """Refuses to overwrite a newer or unknown format."""
        await plant_snapshot(scene)
        with pytest.raises(ConflictError, match="format"):
            await scene.chat.save_snapshot({"step": 1})
        with pytest.raises(CorruptRecordError):
            await scene.chat.load_snapshot()

    @sentence(Snapshots)
    async def test_a_turn_does_not_overwrite_a_newer_format(self, scene: Scene) -> None:
        """... nor does an append, whose messages are not written either."""
        await plant_snapshot(scene)
        with pytest.raises(ConflictError, match="format"):
            await scene.chat.append(said("a"), snapshot={"step": 1})
        assert await scene.chat.messages() == []

    @sentence(Snapshots)
    async def test_the_format_is_compared_in_the_same_step(self, scene: Scene) -> None:
        """A newer format that appears right before the save is not overwritten either."""
        late = scene.another(interrupted(scene.backend, "save_snapshot", lambda: plant_snapshot(scene)))
        with pytest.raises(ConflictError, match="format"):
            await late.save_snapshot({"step": 1})

    @sentence(Snapshots)
    async def test_a_snapshot_is_saved_with_the_turn(self, scene: Scene) -> None:
        """`snapshot` is saved in the same transaction; `snapshot_version` is the current one."""
        first = await scene.chat.append(said("a"), snapshot={"step": 1})
        second = await scene.chat.append(said("b"), snapshot={"step": 2}, expected_version=1)
        assert (first.snapshot_version, second.snapshot_version) == (1, 2)
        assert await step_of(scene.chat) == (2, 2)

    @sentence(Snapshots)
    async def test_another_version_refuses_the_turn(self, scene: Scene) -> None:
        """`expected_version` as in `save_snapshot`: the turn is not written either."""
        await scene.chat.save_snapshot({"step": 1})
        with pytest.raises(ConflictError):
            await scene.chat.append(said("a"), snapshot={"step": 2}, expected_version=0)
        assert (await heard(scene.chat), await step_of(scene.chat)) == ([], (1, 1))

    @sentence(Snapshots)
    async def test_a_refused_turn_saves_no_snapshot(self, scene: Scene) -> None:
        """One transaction: where the turn is refused, the snapshot is not saved."""
        await scene.chat.append([named("m1", "a")])
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m1", "b")], snapshot={"step": 1})
        with pytest.raises(ConflictError):
            await scene.chat.append(said("c"), expected_last=0, snapshot={"step": 1})
        assert await scene.chat.load_snapshot() is None

    @sentence(Snapshots)
    async def test_a_replay_does_not_save_the_snapshot_again(self, scene: Scene) -> None:
        """If every message is already there, the snapshot is not written again, whatever the conditions."""
        turn = [named("m1"), named("m2")]
        await scene.chat.append(turn, snapshot={"step": 1}, expected_version=0)
        await scene.chat.save_snapshot({"step": 2})
        again = await scene.chat.append(turn, snapshot={"step": 1}, expected_version=0, expected_last=0)
        assert (again.written, again.snapshot_version) == (0, 2)
        assert await step_of(scene.chat) == (2, 2)

    @sentence(Snapshots)
    async def test_every_append_answers_the_current_version(self, scene: Scene) -> None:
        """`snapshot_version` is the current one, `None` where there is none."""
        assert (await scene.chat.append(said("a"))).snapshot_version is None
        await scene.chat.save_snapshot({"step": 1})
        await scene.chat.save_snapshot({"step": 2})
        assert (await scene.chat.append(said("b"))).snapshot_version == 2

    @sentence(Snapshots)
    async def test_an_empty_turn_saves_the_snapshot(self, scene: Scene) -> None:
        """Empty list: saves the snapshot if given, under its conditions."""
        answer = await scene.chat.append([], snapshot={"step": 1}, expected_version=0)
        assert (answer.seqs, answer.written, answer.snapshot_version) == ([], 0, 1)
        with pytest.raises(ConflictError):
            await scene.chat.append([], snapshot={"step": 2}, expected_version=0)
        assert await step_of(scene.chat) == (1, 1)

    @sentence(Snapshots)
    async def test_a_snapshot_is_no_message(self, scene: Scene) -> None:
        """Kept beside the session: it takes no seq and is not read as a message."""
        await scene.chat.save_snapshot({"step": 1})
        assert await scene.chat.messages() == []
        assert (await scene.chat.append(said("a"), expected_last=0)).seqs == [1]

    @sentence(Snapshots)
    async def test_clear_keeps_the_snapshot(self, scene: Scene) -> None:
        """`clear` keeps the snapshot."""
        await scene.chat.append(said("a"), snapshot={"step": 1})
        await scene.chat.clear()
        assert await step_of(scene.chat) == (1, 1)

    @sentence(Snapshots)
    async def test_snapshots_belong_to_one_session(self, scene: Scene) -> None:
        """Two sessions, two sources, two namespaces never meet (B41, B83)."""
        await scene.chat.save_snapshot({"step": 1})
        others = [scene.session(), scene.session(scene.chat.key.session_id, source_id="audit")]
        others.append(scene.session(scene.chat.key.session_id, namespace=scene.namespace + "2"))
        assert [await step_of(chat) for chat in others] == [(None, 0)] * 3

    @sentence(Snapshots, Catalog)
    async def test_a_snapshot_begins_a_session(self, scene: Scene) -> None:
        """A session begins with its first append, snapshot or annotation."""
        await scene.chat.save_snapshot({"step": 1})
        assert (await info_of(scene.chat)).count == 0
        assert await listed(scene.store) == [scene.chat.key]

    @sentence(Snapshots, Catalog)
    async def test_a_refused_snapshot_begins_no_session(self, scene: Scene) -> None:
        """`ConflictError`: nothing was written."""
        with pytest.raises(ConflictError):
            await scene.chat.save_snapshot({"step": 1}, expected_version=4)
        assert await scene.chat.info() is None
