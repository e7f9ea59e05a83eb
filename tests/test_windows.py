"""Units and windows: whatever the limit, nothing that belongs together is torn apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstore import Content, HistoryStore, Message, SessionHistory, open_store
from agentstore.units import units, without_orphans
from agentstore.windows import SUMMARY, Budget, Window, estimate_tokens, read_window, window


def user(text: str = "hi") -> Message:
    return Message("user", [text])


def answer(text: str = "hello") -> Message:
    return Message("assistant", [text])


def calls(*ids: str, before: Sequence[Content] = ()) -> Message:
    made = [Content("function_call", call_id=call_id, name="look", arguments="{}") for call_id in ids]
    return Message("assistant", [*before, *made])


def results(*ids: str) -> Message:
    return Message("tool", [Content("function_result", call_id=call_id, result="42") for call_id in ids])


def reasoning() -> Content:
    return Content("text_reasoning", text="hm")


def request(call_id: str) -> Message:
    call = Content("function_call", call_id=call_id, name="pay", arguments="{}")
    return Message("assistant", [call, Content("function_approval_request", id=f"ask-{call_id}", function_call=call)])


def approval(call_id: str) -> Message:
    return Message("user", [Content("function_approval_response", id=f"ask-{call_id}", approved=True)])


async def stored(store: HistoryStore, history: Sequence[Message]) -> SessionHistory:
    chat = store.session("s")
    await chat.append(history)
    return chat


def read(history: Sequence[Message], budget: Budget, *, keep_system: bool = False) -> Window[Message]:
    async def main() -> Window[Message]:
        async with open_store("memory://") as store:
            return await read_window(await stored(store, history), budget, keep_system=keep_system)

    return asyncio.run(main())


def places(shown: Sequence[Message], history: Sequence[Message]) -> list[int]:
    ids = [message.message_id for message in history]
    return [ids.index(message.message_id) for message in shown]


@pytest.mark.parametrize(
    ("history", "sizes"),
    [
        ([user(), answer()], [1, 1]),
        ([user(), calls("a"), results("a"), answer()], [1, 2, 1]),
        ([calls("a", "b"), results("b"), results("a"), answer()], [3, 1]),
        ([calls("a", "b"), results("b"), user(), results("a")], [4]),
        ([calls(*"abcde"), *[results(name) for name in "ecabd"], answer()], [6, 1]),
        ([calls("a", "b"), results("a", "b"), answer()], [2, 1]),
        ([calls("a"), results("a"), calls("a"), results("a")], [2, 2]),
        ([calls("a"), user(), calls("a"), results("a")], [1, 1, 2]),
        ([calls("a"), calls("a"), results("a"), results("a")], [4]),
        ([Message("assistant", [reasoning()]), answer(), user()], [2, 1]),
        ([Message("assistant", [reasoning()]), calls("a"), results("a"), answer()], [3, 1]),
        ([Message("assistant", [reasoning()]), Message("assistant", [reasoning()]), answer()], [3]),
        ([calls("a", before=[reasoning()]), results("a"), answer()], [2, 1]),
        ([Message("assistant", [reasoning()]), user(), answer()], [1, 1, 1]),
        ([Message("assistant", [reasoning()]), results("gone"), answer()], [3]),
        ([request("a"), approval("a"), results("a"), answer()], [3, 1]),
        ([user(), request("a")], [1, 1]),
        ([], []),
    ],
)
def test_what_belongs_together_is_one_unit(history: list[Message], sizes: list[int]) -> None:
    """Parallel calls, results in any order, ids that repeat, reasoning and its follower, approvals (B61, B70)."""
    assert [len(unit) for unit in units(history)] == sizes


def test_a_nested_call_of_an_approval_request_counts_as_its_call() -> None:
    """A request alone (its call only inside it) is followed by approval and result: one unit, no orphan (B55)."""
    call = {"type": "function_call", "call_id": "a", "name": "pay"}
    asked = Message("assistant", [Content("function_approval_request", id="r", function_call=call)])
    said = Message("user", [Content("function_approval_response", id="r", approved=True, function_call=call)])
    history = [user(), asked, said, results("a")]
    assert [len(unit) for unit in units(history)] == [1, 3]
    assert without_orphans(history) == history


@pytest.mark.parametrize("kind", ["computer_tool", "mcp_server_tool", "shell_tool"])
def test_other_tools_pair_up_too(kind: str) -> None:
    """A framework's other kinds of calls stay with their results, and a result of another kind is none of theirs."""
    call, result = (Content(f"{kind}_{end}", call_id="a") for end in ("call", "result"))
    assert len(units([Message("assistant", [call]), Message("tool", [result])])) == 1
    assert without_orphans([calls("a"), Message("tool", [result])]) == [calls("a")]


def test_an_id_that_is_no_text_hides_nothing_else() -> None:
    """A framework's odd call id is none: the window is made all the same."""
    odd = Message("assistant", [Content("function_call", call_id=["a"], name="look", arguments="{}")])
    history = [
        odd,
        Message("tool", [Content("function_result", call_id={"a": 1}, result="42")]),
        Message("user", ["hi"]),
    ]
    assert without_orphans(history) == history
    assert read(history, Budget(max_messages=1)) == history[-1:]


def test_an_orphan_leaves_the_rest_of_its_message() -> None:
    """Only the result without a call goes, on a copy; a message of nothing else goes whole (B57, B60)."""
    mixed = results("gone", "a")
    shown = without_orphans([results("gone"), calls("a"), mixed])
    assert shown == [calls("a"), results("a")]
    assert len(mixed.contents) == 2


def test_a_hosted_result_without_an_id_is_no_orphan() -> None:
    """It never had a call of its own to be found."""
    picture = Message("assistant", [Content("image_generation_tool_result", outputs=["…"])])
    assert without_orphans([picture]) == [picture]


def test_the_newest_unit_is_whole_even_if_it_is_larger() -> None:
    """Five calls and their results stay together under a limit of one (B69)."""
    group = [calls(*"abcde"), *[results(name) for name in "abcde"]]
    assert window([user(), *group], max_messages=1) == group
    assert window([user(), *group], max_tokens=1) == group


def test_limit_zero_gives_nothing_and_below_is_refused() -> None:
    """0 = nothing; negative, bool and float: `ValueError` (B69, B136)."""
    assert window([user()], max_messages=0) == [] == window([user()], max_tokens=0)
    assert read([user()], Budget(max_messages=0)) == []
    for bad in (-1, True, 1.5, "3"):
        with pytest.raises(ValueError, match="max_messages"):
            Budget(max_messages=bad)  # type: ignore[arg-type]


def test_a_long_history_of_tools_only_can_be_cut_anywhere_between_its_pairs() -> None:
    """200 pairs and no user message (B69)."""
    history = [message for _ in range(200) for message in (calls("same"), results("same"))]
    assert [len(window(history, max_messages=limit)) for limit in (1, 2, 3, 4, 399, 400)] == [2, 2, 2, 4, 398, 400]


def test_tokens_are_counted_on_the_real_text() -> None:
    """10,000 characters of Japanese cost what their UTF-8 bytes do, not their escapes (B17)."""
    text = "履歴" * 5000
    assert estimate_tokens(user(text)) == 4 + len(text.encode()) // 4
    assert estimate_tokens(Message("tool", [Content("function_result", call_id="a", result=text)])) == 7504
    assert estimate_tokens(Message("user", [Content("data", uri="data:image/png;base64," + "A" * 10**6)])) == 1004


def test_max_tokens_takes_the_newest_that_fit() -> None:
    """The caller's own count decides; both limits hold at once."""
    history = [user(str(number)) for number in range(10)]
    assert window(history, max_tokens=35, count_tokens=lambda message: 10) == history[-3:]
    assert window(history, max_tokens=35, max_messages=2, count_tokens=lambda message: 10) == history[-2:]


@pytest.mark.parametrize("limit", range(1, 9))
def test_the_system_message_is_kept_and_counted(limit: int) -> None:
    """With `keep_system` it stands first under every limit, and takes a place (B58, B59)."""
    turn = [user(), calls("a"), results("a"), answer()]
    history = [Message("system", ["be kind"]), *turn, user("last")]
    shown = read(history, Budget(max_messages=limit), keep_system=True)
    kept = {1: [5], 2: [5], 3: [4, 5], 4: [4, 5], 5: [2, 3, 4, 5]}.get(limit, [1, 2, 3, 4, 5])
    assert places(shown, history) == [0, *kept]


def test_keep_system_looks_at_the_head_only_if_something_was_cut() -> None:
    """One more read of a page where the window cut, none where it did not."""

    async def main() -> list[int]:
        async with open_store("memory://") as store:
            chat = await stored(store, [Message("system", ["a"]), Message("system", ["b"]), *[user()] * 1, answer()])
            reads = count_reads(store)
            sizes = []
            for limit in (9, 3):
                reads.clear()
                await read_window(chat, Budget(max_messages=limit), keep_system=True)
                sizes.append(len(reads))
            return sizes

    assert asyncio.run(main()) == [1, 2]


def count_reads(store: HistoryStore) -> list[int]:
    """From now on, how many records each read of the backend gave."""
    backend, seen = store._gate.backend, list[int]()
    read = backend.read

    async def counted(*args: Any, **kwargs: Any) -> Any:
        found = await read(*args, **kwargs)
        seen.append(len(found))
        return found

    backend.read = counted  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
@pytest.mark.parametrize(
    ("budget", "most"),
    [(Budget(max_messages=20), 21), (Budget(max_tokens=1000), 256), (Budget(max_messages=1), 4)],
)
def test_a_window_reads_no_more_than_it_needs(tmp_path: Path, url: str, budget: Budget, most: int) -> None:
    """3,000 messages are stored; only the newest few are read, doubling until the cut is certain."""
    url = url if url == "memory://" else f"sqlite:///{tmp_path}/chat.db"
    turns = [message for _ in range(750) for message in (user(), calls("a"), results("a"), answer())]

    async def main() -> int:
        async with open_store(url) as store:
            chat = await stored(store, turns)
            reads = count_reads(store)
            await read_window(chat, budget)
            return sum(reads)

    assert asyncio.run(main()) <= most


def test_an_orphan_does_not_make_every_load_read_the_whole_history() -> None:
    """Its call is looked for among at least 1,000 older messages, then it is given up."""

    async def main() -> tuple[int, int]:
        async with open_store("memory://") as store:
            chat = await stored(store, [*[user() for _ in range(5000)], results("gone"), answer()])
            reads = count_reads(store)
            return len(await read_window(chat, Budget(max_messages=5))), sum(reads)

    shown, records = asyncio.run(main())
    assert shown == 5
    assert records < 3000


def test_a_far_call_is_still_found() -> None:
    """A result whose call is 300 messages back comes with it, as the newest unit."""
    history = [user(), calls("a"), *[user() for _ in range(300)], results("a")]
    assert places(read(history, Budget(max_messages=3)), history) == list(range(1, 303))


def test_an_answer_that_looks_like_an_orphan_does_not_move_the_cut() -> None:
    """Read from the end, an approval between reasoning and answer has no request yet; the window is the same."""
    thought = Message("assistant", [reasoning()])
    history = [request("a"), user(), user(), thought, approval("a"), answer(), user()]
    assert places(read(history, Budget(max_messages=2)), history) == [5, 6]


def test_a_window_says_what_it_was_cut_from() -> None:
    """`stored` are the raw messages of the window, orphans too, and `whole` whether older ones exist."""
    history = [results("gone"), user(), answer()]
    loaded = read(history, Budget(max_messages=9))
    assert (len(loaded), loaded.whole, list(loaded.stored)) == (2, True, history)
    loaded = read(history, Budget(max_messages=1))
    assert (loaded.whole, list(loaded.stored)) == (False, history[2:])


STEPS = "user, answer, reason, system, request a, approve a, call a, call b, call a b, call a a, call a+result a"
RESULTS = "result a, result b, result a b, result b a"
steps = st.sampled_from(f"{STEPS}, {RESULTS}".split(", "))


def message(step: str) -> Message:
    if step == "call a+result a":
        return Message("assistant", [*calls("a").contents, *results("a").contents])
    kind, _, ids = step.partition(" ")
    makers: dict[str, Any] = {"call": calls, "result": results, "request": request, "approve": approval}
    if kind in makers:
        return makers[kind](*ids.split())  # type: ignore[no-any-return]
    plain = {"user": user(), "answer": answer(), "reason": Message("assistant", [reasoning()])}
    return plain.get(kind) or Message("system", ["be kind"])


def unanswered(shown: Sequence[Message]) -> int:
    """Results, counted in order, that have no call before them."""
    pending: Counter[str] = Counter()
    orphans = 0
    for content in [content for message in shown for content in message.contents]:
        if content.type == "function_call":
            pending[content.call_id] += 1
        elif content.type == "function_result":
            pending[content.call_id] -= 1
            orphans += pending[content.call_id] < 0
    return orphans


@settings(max_examples=60, deadline=None)
@given(history=st.lists(steps, max_size=14).map(lambda names: [message(name) for name in names]))
def test_under_every_limit_a_window_has_no_orphan_and_whole_units(history: list[Message]) -> None:
    """For every limit 0..n over any history: the store's window is that of the whole list (B57, B58, B60, B61, B70)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            chat = await stored(store, history)
            clean = without_orphans(history)
            left = {message.message_id: message for message in clean}
            parts = [[left[m.message_id] for m in unit if m.message_id in left] for unit in units(history)]
            whole = [part for part in parts if part]
            for limit in range(len(history) + 2):
                shown = await read_window(chat, Budget(max_messages=limit))
                assert shown == window(history, max_messages=limit)
                check(shown, whole, clean, limit)
            assert await chat.messages() == history

    asyncio.run(main())


def check(shown: Sequence[Message], whole: list[list[Message]], clean: list[Message], limit: int) -> None:
    assert unanswered(shown) == 0
    assert list(shown) == clean[len(clean) - len(shown) :]
    sizes = [sum(map(len, whole[start:])) for start in range(len(whole) + 1)]
    assert len(shown) in sizes
    if limit == 0 or not whole:
        assert shown == []
        return
    assert len(shown) == max([size for size in sizes if size <= limit] + [len(whole[-1])])


@settings(max_examples=30, deadline=None)
@given(
    history=st.lists(steps, max_size=10).map(lambda names: [message(name) for name in names]),
    page=st.integers(1, 3),
)
def test_reading_backwards_in_small_pages_finds_the_same_window(history: list[Message], page: int) -> None:
    """However few records a page brings, and whatever counts the tokens, the window is that of the whole list."""

    async def main() -> None:
        async with open_store("memory://") as store:
            chat = await stored(store, history)
            for limit in range(1, len(history) + 2):
                budget = Budget(max_messages=max(page, limit), max_tokens=limit, count_tokens=lambda message: 1)
                assert await read_window(chat, budget) == window(history, max_messages=limit)

    asyncio.run(main())


def test_a_window_of_what_was_left_says_so() -> None:
    """Truncated, or with a summary in front: neighbours in a transcript are those behind the system messages only."""

    async def main() -> None:
        async with open_store("memory://") as store:
            chat = await stored(store, [Message("system", ["be kind"]), user("a"), user("b"), answer()])
            assert (await read_window(chat, Budget())).whole is True
            records = await chat.records()
            await chat.replace([record.message for record in records[2:]], after=1)
            loaded = await read_window(chat, Budget(max_messages=9))
            assert ([m.text for m in loaded], loaded.whole) == (["be kind", "b", "hello"], False)
            assert [m.text for m in loaded.stored] == ["b", "hello"]
            await chat.truncate(before=5)
            loaded = await read_window(chat, Budget())
            assert ([m.text for m in loaded.stored], loaded.whole) == (["b", "hello"], False)
            await chat.clear()
            assert (await read_window(chat, Budget())).whole is True
            summary = Message("user", ["so far"], additional_properties={SUMMARY: True})
            await chat.append([summary, answer("go on")])
            loaded = await read_window(chat, Budget())
            assert ([m.text for m in loaded], [m.text for m in loaded.stored]) == (["so far", "go on"], ["go on"])

    asyncio.run(main())
