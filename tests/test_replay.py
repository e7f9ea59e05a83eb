"""A replayed transcript adds only its new part; an honest repeat and a message under a borrowed id are both kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstore import ConflictError, HistoryStore, Message, open_store
from agentstore.codec import MessageCodec
from agentstore.replay import Seen, append_distinct, distinct_ids, other_id, replayed, seen

CODEC = MessageCodec()
ROLES = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}


def items(text: str) -> list[Seen]:
    """`"u1 a2=x"`: a user message 1 without id, an assistant message 2 with the id x."""
    parts = [part.partition("=") for part in text.split()]
    return [Seen(ROLES[name[0]], own or None, name.encode()) for name, _, own in parts]


@pytest.mark.parametrize(
    ("window", "inputs", "whole", "count"),
    [
        ("u1=i a1=j", "u1 a1 u2", True, 2),
        ("u1=i a1=j", "u1 a1", True, 2),
        ("u1=i a1=j", "u1", True, 0),
        ("u1=i", "u1 u1", True, 0),
        ("u1=i a1=j", "u0 u1 a1 u2", True, 0),
        ("u1=i a1=j", "u0 u1 a1 u2", False, 3),
        ("u1=i a1=j", "u1 a1 u1 a1 u2", False, 4),
        ("u1=i a1=j", "u1 a1 u1 a1 u2", True, 2),
        ("t1=i a1=j", "u1 a0 t1 a1 u2", False, 4),
        ("u1=i a1=j", "u1 a2 u2", True, 0),
        ("u1=i a1=j", "u1=i a1=j u2", True, 2),
        ("u1=i a1=j", "u1 a1=other u2", True, 0),
        ("", "u1 a1", True, 0),
        ("u1=i a1=j", "", True, 0),
    ],
)
def test_a_replay_is_the_loaded_window_inside_the_input(window: str, inputs: str, whole: bool, count: int) -> None:
    """A whole one must be their beginning, a cut one counts at its last occurrence; ids must not differ (B72, B73)."""
    assert replayed(items(window), items(inputs), whole=whole) == count


def test_an_id_that_was_derived_still_matches() -> None:
    """The stored message has a derived id, the replay the framework's."""
    (given,) = items("a1=x")
    stored = Seen("assistant", other_id("x", given.digest), given.digest)
    assert replayed([stored], [given], whole=True) == 1


@given(
    history=st.lists(st.sampled_from(["u1", "u2", "a1", "a2", "t1"]), min_size=1, max_size=8),
    new=st.lists(st.sampled_from(["u1", "u2"]), max_size=3),
    cut=st.integers(0, 7),
)
def test_a_full_replay_adds_exactly_its_new_part(history: list[str], new: list[str], cut: int) -> None:
    """Whatever repeats in it, and wherever the window was cut, as long as it holds an answer behind the cut."""
    window = history[min(cut, len(history) - 1) :]
    if all(name.startswith("u") for name in window):
        return
    count = replayed(items(" ".join(window)), items(" ".join(history + new)), whole=window == history)
    assert count == len(history)


def test_ids_are_given_out_once() -> None:
    """The first message under an id keeps it, a different one gets a derived one, the same one again shares it."""
    first, second = items("a1=x a2=x")
    names = distinct_ids([first, second, first], set())
    assert names == ["x", other_id("x", second.digest), "x"]
    assert distinct_ids([first, second], {("x", first.digest)}) == [other_id("x", first.digest), "x"]


def say(text: str, message_id: str | None = "x") -> Message:
    return Message("assistant", [text], message_id=message_id)


async def appended(store: HistoryStore, *batches: Sequence[Message]) -> list[str]:
    """What is stored after these appends, and that each object kept its id."""
    chat = store.session("s")
    for batch in batches:
        own = [message.message_id for message in batch]
        await append_distinct(chat, CODEC, batch)
        assert all(name in (None, message.message_id) for name, message in zip(own, batch, strict=True))
    return [message.text for message in await chat.messages()]


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
@pytest.mark.parametrize(
    ("batches", "kept"),
    [
        ([[say("one")], [say("two")]], ["one", "two"]),
        ([[say("one"), say("two")]], ["one", "two"]),
        ([[say("one"), say("two")], [say("one"), say("two")]], ["one", "two"]),
        ([[say("two")], [say("one"), say("two")]], ["two", "one"]),
        ([[say("two")], [say("one"), say("two")], [say("two")], [say("one")]], ["two", "one"]),
        ([[say("one"), say("two"), say("three")], [say("three")], [say("two")]], ["one", "two", "three"]),
        ([[say("one"), say("one")], [say("one")]], ["one"]),
        ([[say("one", None), say("one", None)]], ["one", "one"]),
        ([[say("a"), say("b", "y")], [say("c"), say("d", "y"), say("new", None)]], ["a", "b", "c", "d", "new"]),
    ],
)
def test_two_messages_under_one_id_are_both_kept_once(
    tmp_path: object, url: str, batches: list[list[Message]], kept: list[str]
) -> None:
    """In one batch or over several, in any order, replayed or not."""

    async def main() -> list[str]:
        async with open_store(url if url == "memory://" else f"sqlite:///{tmp_path}/chat.db") as store:
            # The objects are shared by the parameters of both stores: each gets its own.
            copies = [[Message.from_dict(message.to_dict()) for message in batch] for batch in batches]
            return await appended(store, *copies)

    assert asyncio.run(main()) == kept


@settings(max_examples=40, deadline=None)
@given(batches=st.lists(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("123")), max_size=4), max_size=4))
def test_each_message_is_stored_exactly_once_whatever_its_id(batches: list[list[tuple[str, str]]]) -> None:
    """A message is its id and its contents: each such pair ends as one record, and a full replay adds nothing."""

    async def main() -> None:
        async with open_store("memory://") as store:
            pairs = [[say(name + text, name) for name, text in batch] for batch in batches]
            wanted = {message.text for batch in pairs for message in batch}
            kept = await appended(store, *pairs)
            assert sorted(kept) == sorted(wanted)
            again = [[say(m.text, m.message_id) for m in batch] for batch in pairs]
            assert await appended(store, *again) == kept

    asyncio.run(main())


def test_a_derived_id_whose_message_was_changed_is_derived_again() -> None:
    """After `update` the derived id stands for other contents: what is replayed is kept beside it."""

    async def main() -> None:
        async with open_store("memory://") as store:
            chat = store.session("s")
            await append_distinct(chat, CODEC, [say("one"), say("two")])
            changed = (await chat.messages())[1]
            changed.contents[0].text = "edited"
            assert await chat.update(changed)
            assert await appended(store, [say("two")], [say("two")]) == ["one", "edited", "two"]

    asyncio.run(main())


def test_nothing_is_read_to_save() -> None:
    """A save without a clash is one append; one with a clash is a few, none of them a read (B74)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            await append_distinct(store.session("s"), CODEC, [say("one")])
            store._gate.backend.read = refuse  # type: ignore[method-assign]
            await append_distinct(store.session("s"), CODEC, [say("two"), say("three", None)])

    async def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a save must not read")

    asyncio.run(main())


def test_a_conflict_about_something_else_is_raised() -> None:
    """Only ids are resolved here."""

    class Chat:
        async def append(self, messages: object, *, snapshot: object = None) -> None:
            raise ConflictError("the newest record is another one")

    with pytest.raises(ConflictError, match="newest"):
        asyncio.run(append_distinct(Chat(), CODEC, [say("one")]))  # type: ignore[arg-type]


def test_what_makes_a_message_the_same_is_role_id_and_contents() -> None:
    """Author and properties do not; the order of keys in contents does not either."""
    one = Message("tool", [{"type": "function_result", "call_id": "c", "result": 1}], author_name="a")
    two = Message("tool", [{"result": 1, "call_id": "c", "type": "function_result"}], additional_properties={"k": 1})
    assert seen(CODEC, [one]) == seen(CODEC, [two])
