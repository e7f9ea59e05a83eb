"""Sentences about ids: ids first, repeats, conflicts, conditions, and keys that make a retry exact."""

from __future__ import annotations

from typing import Any

import pytest

from agentstore import ConflictError, Content, Message, UnavailableError
from agentstore.backend import Append, Written
from agentstore.batch import derived_id
from agentstore.testing.faults import failing, records_of
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence


class IdentitySentences(Stage):
    @sentence()
    async def test_what_is_already_there_is_not_written_again(self, scene: Scene) -> None:
        """Id, role and contents already there: not written again, the existing seq is returned (B72)."""
        first = await scene.chat.append([named("m1")])
        again = await scene.chat.append([named("m1")])
        assert (again.seqs, again.written) == (first.seqs, 0)
        assert await heard(scene.chat) == ["hello"]

    @sentence()
    async def test_the_new_part_of_a_replay_is_written(self, scene: Scene) -> None:
        """A batch may hold messages that are there and new ones; each gets its seq (B72)."""
        first = await scene.chat.append([named("m1", "a"), named("m2", "b")])
        again = await scene.chat.append([named("m0", "new"), named("m2", "b"), named("m3", "c")])
        assert again.written == 2
        assert again.seqs[1] == first.seqs[1]
        assert await heard(scene.chat) == ["a", "b", "new", "c"]

    @sentence()
    async def test_new_ids_that_another_call_wrote_first_are_found(self, scene: Scene) -> None:
        """Two calls append one object, and the one that gave it its id comes second: it is there once (B31)."""
        records = records_of(said("a", "b"))
        assert all(record.fresh for record in records)
        first = await scene.backend.append(scene.chat.key, Append(records[1:], bytes(16)))
        again = await scene.backend.append(scene.chat.key, Append(records, bytes(15) + b"1"))
        assert isinstance(first, Written)
        assert isinstance(again, Written)
        assert (first.written, again.written, again.seqs[1]) == (1, 1, first.seqs[0])
        assert await heard(scene.chat) == ["b", "a"]

    @sentence()
    async def test_other_contents_under_an_id_conflict(self, scene: Scene) -> None:
        """Same id with other contents, in the store: `ConflictError`."""
        await scene.chat.append([named("m1", "a")])
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m1", "b")])
        assert await heard(scene.chat) == ["a"]

    @sentence()
    async def test_another_role_under_an_id_conflicts(self, scene: Scene) -> None:
        """Same id with another role: `ConflictError`."""
        await scene.chat.append([named("m1")])
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m1", role="assistant")])

    @sentence()
    async def test_a_conflict_names_the_ids(self, scene: Scene) -> None:
        """`ConflictError` naming the ids."""
        await scene.chat.append([named("first-id", "a"), named("second-id", "b"), named("third-id", "c")])
        with pytest.raises(ConflictError) as caught:
            await scene.chat.append([named("first-id", "A"), named("second-id", "b"), named("third-id", "C")])
        assert ["first-id" in str(caught.value), "third-id" in str(caught.value)] == [True, True]
        assert "second-id" not in str(caught.value)

    @sentence()
    async def test_a_conflict_writes_none_of_the_batch(self, scene: Scene) -> None:
        """`ConflictError`: nothing written, the neighbours neither (B43)."""
        await scene.chat.append([named("m1", "a")])
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m0", "new"), named("m1", "b"), named("m2", "newer")])
        assert await heard(scene.chat) == ["a"]

    @sentence()
    async def test_an_id_with_two_contents_in_one_batch_conflicts(self, scene: Scene) -> None:
        """Same id with other contents in the batch: `ConflictError` naming the id, nothing written."""
        with pytest.raises(ConflictError, match="m1"):
            await scene.chat.append([named("m0"), named("m1", "a"), named("m1", "b")])
        assert await scene.chat.messages() == []

    @sentence()
    async def test_the_same_object_twice_is_one_record(self, scene: Scene) -> None:
        """The same object twice in a batch is one record."""
        (message,) = said("once")
        answer = await scene.chat.append([message, message])
        assert (answer.written, answer.seqs) == (1, [answer.seqs[0]] * 2)
        assert await heard(scene.chat) == ["once"]

    @sentence()
    async def test_the_order_of_keys_does_not_change_identity(self, scene: Scene) -> None:
        """digest: of role and contents, independent of dict key order."""
        for arguments in ({"a": {"x": 1, "y": 2}, "b": 2}, {"b": 2, "a": {"y": 2, "x": 1}}):
            content = Content("function_call", call_id="c", name="f", arguments=arguments)
            await scene.chat.append([Message("assistant", [content], message_id="m1")])
        assert len(await scene.chat.messages()) == 1

    @sentence()
    async def test_identity_is_id_role_and_contents_only(self, scene: Scene) -> None:
        """Id, role and contents already there: other fields do not make it another message."""
        await scene.chat.append([named("m1")])
        again = Message("user", ["hello"], message_id="m1", author_name="Ann", additional_properties={"x": 1})
        assert (await scene.chat.append([again])).written == 0

    @sentence()
    async def test_an_id_belongs_to_one_session(self, scene: Scene) -> None:
        """A `message_id` is unique in its session."""
        others = [scene.session(), scene.session(scene.chat.key.session_id, source_id="audit")]
        others.append(scene.session(scene.chat.key.session_id, namespace=scene.namespace + "2"))
        for text, chat in zip("abcd", [scene.chat, *others], strict=True):
            assert (await chat.append([named("m1", text)])).written == 1

    @sentence()
    async def test_a_message_without_id_is_given_one(self, scene: Scene) -> None:
        """A message without id is given one on the caller's object, each its own."""
        first, second = messages = said("a", "a")
        await scene.chat.append(messages)
        assert first.message_id != second.message_id
        assert [message.message_id for message in await scene.chat.messages()] == [first.message_id, second.message_id]

    @sentence()
    async def test_the_id_is_given_before_the_write(self, scene: Scene) -> None:
        """... before the write: so the call can be made again after an error (B46)."""
        messages = said("a")
        unlucky = scene.another(failing(scene.backend, "append"))
        with pytest.raises(UnavailableError):
            await unlucky.append(messages)
        given = messages[0].message_id
        await unlucky.append(messages)
        assert [message.message_id for message in await scene.chat.messages()] == [given]

    @sentence()
    async def test_a_given_id_stays(self, scene: Scene) -> None:
        """An id that the caller chose is kept as it is."""
        await scene.chat.append([named("chosen")])
        assert [message.message_id for message in await scene.chat.messages()] == ["chosen"]

    @sentence()
    async def test_a_message_id_may_be_any_text(self, scene: Scene) -> None:
        """A `message_id` may be any non-empty text of any length; no two of them meet (B23)."""
        ids = ["x" * 100_000, "x" * 99_999, "a\x00b", "a\x00c", "\ud800", "\udfff", " ", "é", "e\u0301", "A", "a", "a "]
        await scene.chat.append([named(id, str(place)) for place, id in enumerate(ids)])
        assert [message.message_id for message in await scene.chat.messages()] == ids
        assert (await scene.chat.append([named(id, str(place)) for place, id in enumerate(ids)])).written == 0

    @sentence()
    async def test_an_empty_message_id_is_refused(self, scene: Scene) -> None:
        """A `message_id` may be any non-empty text: nothing is written under an empty one."""
        with pytest.raises(ValueError, match="message_id"):
            await scene.chat.append([named("m1"), named("")])
        assert await scene.chat.messages() == []

    @sentence()
    async def test_a_key_makes_a_retry_exact(self, scene: Scene) -> None:
        """With `idempotency_key` a retry from another process, with new objects, is exact."""
        first = await scene.chat.append(said("a", "b"), idempotency_key="turn-1")
        again = await scene.another().append(said("a", "b"), idempotency_key="turn-1")
        assert (again.seqs, again.written) == (first.seqs, 0)
        assert await heard(scene.chat) == ["a", "b"]

    @sentence()
    async def test_a_keys_ids_are_a_fixed_function(self, scene: Scene) -> None:
        """The id is a fixed, documented function of key and position."""
        messages = said("a", "b")
        await scene.chat.append(messages, idempotency_key="turn-1")
        assert [message.message_id for message in messages] == [derived_id("turn-1", 0), derived_id("turn-1", 1)]
        assert derived_id("turn-1", 0) == "as1-eb20c95da7ef0658fcca152e19c7b49c"

    @sentence()
    async def test_other_keys_are_other_messages(self, scene: Scene) -> None:
        """Two keys never give one id, however they end (B86)."""
        for key in ("turn-1", "turn-11", "turn-1:0", "\ud800", "\x00"):
            await scene.chat.append(said(*["yes"] * 12), idempotency_key=key)
        assert len(await scene.chat.messages()) == 60

    @sentence()
    async def test_a_key_with_other_contents_conflicts(self, scene: Scene) -> None:
        """The ids of a key stand for its messages: others under it are a `ConflictError`."""
        await scene.chat.append(said("a"), idempotency_key="turn-1")
        with pytest.raises(ConflictError):
            await scene.chat.append(said("b"), idempotency_key="turn-1")

    @sentence()
    async def test_a_bad_key_is_refused(self, scene: Scene) -> None:
        """An `idempotency_key` is a non-empty text."""
        bad: list[Any] = ["", 1, b"x"]
        for key in bad:
            with pytest.raises((ValueError, TypeError)):
                await scene.chat.append(said("a"), idempotency_key=key)

    @sentence()
    async def test_the_expected_last_seq_lets_an_append_through(self, scene: Scene) -> None:
        """`expected_last` = seq of the newest living record, 0 when none."""
        first = await scene.chat.append(said("a"), expected_last=0)
        await scene.chat.append(said("b"), expected_last=first.seqs[-1])
        assert await heard(scene.chat) == ["a", "b"]

    @sentence()
    async def test_another_last_seq_refuses_an_append(self, scene: Scene) -> None:
        """`expected_last`: otherwise `ConflictError`, nothing written (B33)."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        for expected in (0, given[0], given[-1] + 1):
            with pytest.raises(ConflictError):
                await scene.chat.append(said("c"), expected_last=expected)
        with pytest.raises(ConflictError):
            await scene.session().append(said("c"), expected_last=1)
        assert await heard(scene.chat) == ["a", "b"]

    @sentence()
    async def test_the_last_seq_is_that_of_the_newest_living_record(self, scene: Scene) -> None:
        """`expected_last`: of the newest *living* record, after a truncation too, and 0 when none is left."""
        given = (await scene.chat.append(said("a", "b"))).seqs
        await scene.chat.truncate(after=given[0])
        await scene.chat.append(said("c"), expected_last=given[0])
        await scene.chat.clear()
        await scene.chat.append(said("d"), expected_last=0)
        assert await heard(scene.chat) == ["d"]

    @sentence()
    async def test_ids_come_before_the_expected_last_seq(self, scene: Scene) -> None:
        """If every message is already there, the call succeeds whatever `expected_last` says (B46)."""
        first = await scene.chat.append([named("m1"), named("m2")], expected_last=0)
        await scene.chat.append(said("other"))
        assert (await scene.chat.append([named("m1"), named("m2")], expected_last=0)).seqs == first.seqs

    @sentence()
    async def test_a_conflict_of_ids_comes_before_the_expected_last_seq(self, scene: Scene) -> None:
        """Ids first: the error is about the ids, also where `expected_last` does not hold either."""
        await scene.chat.append([named("m1", "a")])
        with pytest.raises(ConflictError, match="m1"):
            await scene.chat.append([named("m1", "b")], expected_last=0)

    @sentence()
    async def test_a_partly_new_batch_needs_the_expected_last_seq(self, scene: Scene) -> None:
        """Only if *every* message is there may `expected_last` differ."""
        await scene.chat.append([named("m1")])
        with pytest.raises(ConflictError):
            await scene.chat.append([named("m1"), named("m2")], expected_last=0)
        assert len(await scene.chat.messages()) == 1

    @sentence()
    async def test_removing_a_record_frees_its_id(self, scene: Scene) -> None:
        """Removing a record frees its id: appending it again is a new write."""
        first = await scene.chat.append([named("m1", "a"), named("m2", "b")])
        await scene.chat.truncate(after=first.seqs[0])
        again = await scene.chat.append([named("m2", "other")])
        assert (again.written, again.seqs[0] > first.seqs[1]) == (1, True)
        assert await heard(scene.chat) == ["a", "other"]

    @sentence()
    async def test_clearing_frees_all_ids(self, scene: Scene) -> None:
        """Removing a record frees its id, by clear too."""
        await scene.chat.append([named("m1", "a")])
        await scene.chat.clear()
        assert (await scene.chat.append([named("m1", "b")])).written == 1

    @sentence()
    async def test_a_bad_expected_last_is_refused(self, scene: Scene) -> None:
        """`expected_last` is `None` or an int of at least 0: anything else is a `ValueError`, nothing written."""
        bad: list[Any] = [-1, True, 1.0, "0"]
        for expected in bad:
            with pytest.raises(ValueError, match="expected_last"):
                await scene.chat.append(said("a"), expected_last=expected)
        assert await scene.chat.messages() == []
