"""Sentences about lost answers: a retry leaves exactly one copy."""

from __future__ import annotations

from typing import Any

import pytest

from agentstore import SessionHistory, UnavailableError
from agentstore.backend import ANSWERS_KEPT, Append, Catalog, Rewriting, Snapshots, Written
from agentstore.testing.faults import Calls, counted, failing, losing_answers, records_of
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


class AnswerSentences(Stage):
    @sentence()
    async def test_a_lost_answer_leaves_one_copy(self, scene: Scene) -> None:
        """A retry after a lost answer leaves exactly one copy (B46)."""
        unlucky = scene.another(losing_answers(scene.backend, "append"))
        answer = await unlucky.append(said("a", "b"))
        assert await heard(scene.chat) == ["a", "b"]
        assert answer.written == 2

    @sentence()
    async def test_an_append_that_never_arrived_is_made_by_the_retry(self, scene: Scene) -> None:
        """The store's own retry writes what the first try did not."""
        unlucky = scene.another(failing(scene.backend, "append", maybe_done=True))
        assert (await unlucky.append(said("a"))).written == 1
        assert await heard(scene.chat) == ["a"]

    @sentence()
    async def test_a_retry_gets_the_first_answer_though_others_appended(self, scene: Scene) -> None:
        """The session gives a known token its first answer, though `expected_last` does not hold any more."""
        unlucky = scene.another(losing_answers(scene.backend, "append", meanwhile=lambda: scene.chat.append(said("x"))))
        answer = await unlucky.append(said("a"), expected_last=0)
        assert (answer.written, await heard(scene.chat)) == (1, ["a", "x"])

    @sentence()
    async def test_a_retry_does_not_bring_back_what_was_removed_since(self, scene: Scene) -> None:
        """... its first answer, whatever was removed since."""
        unlucky = scene.another(losing_answers(scene.backend, "append", meanwhile=scene.chat.clear))
        answer = await unlucky.append(said("a"))
        assert (answer.written, await heard(scene.chat)) == (1, [])

    @sentence(Rewriting)
    async def test_a_retry_does_not_bring_back_what_was_popped_since(self, scene: Scene) -> None:
        """A message handed out by `pop` before the retry does not come back (B31)."""
        unlucky = scene.another(losing_answers(scene.backend, "append", meanwhile=scene.chat.pop))
        await unlucky.append([named("m1")])
        assert await heard(scene.chat) == []

    @sentence()
    async def test_a_second_lost_answer_is_the_callers(self, scene: Scene) -> None:
        """A second loss raises `UnavailableError` that says that it may have happened; still one copy."""
        messages = said("a")
        unlucky = scene.another(losing_answers(scene.backend, "append", times=2))
        with pytest.raises(UnavailableError) as caught:
            await unlucky.append(messages)
        assert caught.value.maybe_done
        await unlucky.append(messages)
        assert await heard(scene.chat) == ["a"]

    @sentence()
    async def test_what_surely_did_not_happen_is_not_retried(self, scene: Scene) -> None:
        """Only a lost answer is retried: what surely did not happen raises at once."""
        calls = Calls()
        unlucky = scene.another(counted(failing(scene.backend, "append"), calls))
        with pytest.raises(UnavailableError):
            await unlucky.append(said("a"))
        assert calls.count("append") == 1

    @sentence()
    async def test_a_session_remembers_its_last_tokens(self, scene: Scene) -> None:
        """The session remembers its last 32 tokens with their answers."""
        key = scene.chat.key
        first = await scene.backend.append(key, Append(records_of([named("m1")]), token(0)))
        for number in range(1, ANSWERS_KEPT):
            await scene.backend.append(key, Append(records_of(said("x")), token(number)))
        await scene.chat.clear()
        again = await scene.backend.append(key, Append(records_of([named("m1")]), token(0), retry=True))
        assert again == first
        assert await heard(scene.chat) == []

    @sentence()
    async def test_the_answer_to_a_batch_that_was_partly_there_is_kept(self, scene: Scene) -> None:
        """Its seqs do not count up, and are the same to a retry, whatever was removed since."""
        key = scene.chat.key
        await scene.backend.append(key, Append(records_of([named("m1", "a"), named("x", "x")]), token(1)))
        batch = records_of([named("m1", "a"), named("m2", "b")])
        first = await scene.backend.append(key, Append(batch, token(0)))
        assert isinstance(first, Written)
        assert first.seqs[1] - first.seqs[0] > 1
        await scene.chat.clear()
        assert await scene.backend.append(key, Append(batch, token(0), retry=True)) == first
        assert await heard(scene.chat) == []

    @sentence()
    async def test_a_retry_with_an_unknown_token_is_an_append(self, scene: Scene) -> None:
        """A token that the session does not know has no answer: the call is made."""
        await scene.chat.append(said("a"))
        answer = await scene.backend.append(scene.chat.key, Append(records_of(said("b")), token(7), retry=True))
        assert isinstance(answer, Written)
        assert await heard(scene.chat) == ["a", "b"]

    @sentence()
    async def test_a_token_belongs_to_one_session(self, scene: Scene) -> None:
        """A session gives only its own tokens their answers."""
        other = scene.session()
        await scene.backend.append(scene.chat.key, Append(records_of(said("a")), token(7)))
        await scene.backend.append(other.key, Append(records_of(said("b")), token(7), retry=True))
        assert await heard(other) == ["b"]

    @sentence(Catalog)
    async def test_a_deleted_session_forgets_its_tokens(self, scene: Scene) -> None:
        """`delete` removes every trace, the answers too."""
        append = Append(records_of(said("a")), token(7), retry=True)
        await scene.backend.append(scene.chat.key, append)
        await scene.chat.delete()
        await scene.backend.append(scene.chat.key, append)
        assert await heard(scene.chat) == ["a"]

    @sentence(Snapshots)
    async def test_a_retry_does_not_save_the_snapshot_again(self, scene: Scene) -> None:
        """A retry after a lost answer: one copy, one version."""
        unlucky = scene.another(losing_answers(scene.backend, "append"))
        answer = await unlucky.append(said("a"), snapshot={"step": 1})
        assert answer.snapshot_version == 1
        loaded = await scene.chat.load_snapshot()
        assert loaded is not None
        assert loaded.version == 1

    @sentence()
    async def test_a_lost_answer_to_a_truncation_is_the_callers(self, scene: Scene) -> None:
        """Only `append` is retried by the store itself; `truncate` raises that it may have happened."""
        await _is_not_retried(scene, "truncate", lambda chat: chat.truncate(after=0))

    @sentence(Rewriting)
    async def test_lost_answers_to_rewriting_are_the_callers(self, scene: Scene) -> None:
        """Every other write raises `UnavailableError` saying that it may have happened."""
        await _is_not_retried(scene, "replace", lambda chat: chat.replace(said("b")))
        await _is_not_retried(scene, "update", lambda chat: chat.update(named("m1", "b")))
        await _is_not_retried(scene, "remove_newest", lambda chat: chat.pop())
        await _is_not_retried(scene, "restore", lambda chat: chat.fork(scene.session().key.session_id))

    @sentence(Catalog)
    async def test_lost_answers_to_the_catalog_are_the_callers(self, scene: Scene) -> None:
        """Every other write raises `UnavailableError` saying that it may have happened."""
        await _is_not_retried(scene, "annotate", lambda chat: chat.annotate({"a": 1}))
        await _is_not_retried(scene, "expire", lambda chat: chat.expire(None))
        await _is_not_retried(scene, "delete", lambda chat: chat.delete())

    @sentence(Snapshots)
    async def test_a_lost_answer_to_a_snapshot_is_the_callers(self, scene: Scene) -> None:
        """Every other write raises `UnavailableError` saying that it may have happened."""
        await _is_not_retried(scene, "save_snapshot", lambda chat: chat.save_snapshot({"a": 1}))


async def _is_not_retried(scene: Scene, method: str, write: Any) -> None:
    calls = Calls()
    chat: SessionHistory = scene.another(counted(losing_answers(scene.backend, method), calls))
    await scene.chat.append([named("m1", "a")])
    with pytest.raises(UnavailableError) as caught:
        await write(chat)
    assert caught.value.maybe_done
    assert calls.count(method) == 1
    await scene.chat.clear()
