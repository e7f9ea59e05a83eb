"""Reducers: what they keep is whole and never torn, what they leave out is known to the summary."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import agent_framework
import pytest
import redis_server
from adapter_stores import STORES
from hypothesis import given, settings
from hypothesis import strategies as st
from test_windows import answer, calls, message, request, results, steps, unanswered, user

from agentstore import (
    Agent,
    InMemoryHistoryProvider,
    Message,
    ScriptedChatClient,
    StoreHistoryProvider,
    keep_newest,
    open_store,
    summarize,
)
from agentstore.units import without_orphans
from agentstore.windows import SUMMARY

URLS = {**STORES, "redis": lambda folder: f"{redis_server.server_url()}?prefix=reducers-{uuid4().hex}"}
SYSTEM = Message("system", ["be kind"])


def texts(messages: Sequence[Any]) -> list[str]:
    return [message.text for message in messages]


def numbered(*numbers: int) -> list[Message]:
    return [user(str(number)) for number in numbers]


def joined(older: Sequence[Any]) -> str:
    return "+".join(texts(older))


def reduced(reducer: Callable[[list[Any]], Any], messages: list[Any]) -> list[Any]:
    async def main() -> list[Any]:
        result = reducer(messages)
        return list(await result if inspect.isawaitable(result) else result)

    return asyncio.run(main())


def test_the_newest_are_kept_by_count_and_by_tokens() -> None:
    """Both limits hold at once, and the system message is kept and counted (B59)."""
    history = [SYSTEM, *numbered(*range(10))]
    assert texts(keep_newest(3)(history)) == ["be kind", "8", "9"]
    assert texts(keep_newest(3, keep_system=False)(history)) == ["7", "8", "9"]
    tens = keep_newest(max_tokens=35, count_tokens=lambda message: 10)
    assert texts(tens(history)) == ["be kind", "8", "9"]
    assert texts(keep_newest(2, max_tokens=1000)(history)) == ["be kind", "9"]
    assert keep_newest(20)(history) == history
    assert keep_newest(5)([]) == []


def test_a_reducer_without_a_limit_or_with_a_bad_one_is_refused() -> None:
    """When it is made, not when it is used; 0 keeps nothing (B69)."""
    for make in (keep_newest, lambda **limits: summarize(joined, **limits)):
        with pytest.raises(ValueError, match="needs a limit"):
            make()
        for bad in (-1, True, 1.5):
            with pytest.raises(ValueError, match="max_messages"):
                make(max_messages=bad)
    for bad in (0, True, "3"):
        with pytest.raises(ValueError, match="threshold"):
            summarize(joined, 3, threshold=bad)  # type: ignore[arg-type]
    assert keep_newest(0)([SYSTEM, user()]) == []


def test_the_newest_unit_stays_whole_even_if_it_is_larger() -> None:
    """A call, its parallel results and a megabyte in one of them: never empty, never torn (B61, B68)."""
    group = [calls("a", "b"), results("b"), results("a")]
    group[1].contents[0].result = "x" * 1_000_000
    for reducer in (keep_newest(1), keep_newest(max_tokens=100)):
        assert reducer([*numbered(1, 2), *group]) == group
    assert texts(reduced(summarize(joined, max_tokens=100), [*numbered(1, 2), *group]))[0] == "1+2"


def test_a_pending_approval_is_not_taken_apart() -> None:
    """The request waits for its answer, and stays as the newest unit (B65)."""
    assert keep_newest(1)([user(), request("a")]) == [request("a")]


def test_older_messages_give_way_to_a_summary() -> None:
    """It stands behind the system message and on top of the limits; all older ones are in it, and no other."""
    history = [SYSTEM, *numbered(*range(6))]
    shown = reduced(summarize(joined, 3), history)
    assert texts(shown) == ["be kind", "0+1+2+3", "4", "5"]
    assert (shown[1].role, shown[1].additional_properties) == ("system", {SUMMARY: True})
    assert reduced(summarize(joined, 7), history) == history


def test_a_summarizer_may_be_async_and_give_a_message() -> None:
    """Its own is left as it is, and gets the mark on a copy."""
    own = Message("user", ["so far: numbers"], author_name="summarizer")

    async def think(older: list[Message]) -> Message:
        await asyncio.sleep(0)
        return own

    shown = reduced(summarize(think, 1), numbered(1, 2, 3))
    assert [(m.role, m.author_name, m.text) for m in shown] == [
        ("user", "summarizer", "so far: numbers"),
        ("user", None, "3"),
    ]
    assert shown[0].additional_properties == {SUMMARY: True}
    assert own.additional_properties == {}


def test_a_summary_is_summarized_again_only_with_something_new() -> None:
    """By itself it is no reason for another one; with older messages it is the first that the summarizer gets."""
    first = reduced(summarize(joined, 2), numbered(1, 2, 3, 4))
    assert texts(first) == ["1+2", "3", "4"]
    assert reduced(summarize(joined, 2), first) == first
    assert texts(reduced(summarize(joined, 2), [*first, user("5")])) == ["1+2+3", "4", "5"]
    with_system = reduced(summarize(joined, 2), [SYSTEM, *first, user("5")])
    assert texts(with_system) == ["be kind", "1+2+3+4", "5"]


def test_a_threshold_gathers_older_messages_first() -> None:
    """Until so many are older nothing changes; then all of them go at once."""
    asked: list[str] = []

    def counted(older: Sequence[Message]) -> str:
        asked.append(joined(older))
        return asked[-1]

    history: list[Message] = []
    for number in range(9):
        history = reduced(summarize(counted, 2, threshold=3), [*history, user(str(number))])
    assert texts(history) == ["0+1+2+3+4+5", "6", "7", "8"]
    assert asked == ["0+1+2", "0+1+2+3+4+5"]


@pytest.mark.parametrize(
    ("given", "error"), [("", ValueError), ("  \n", ValueError), (None, TypeError), (3, TypeError)]
)
def test_an_empty_summary_is_refused(given: Any, error: type[Exception]) -> None:
    """Otherwise what it stands for would vanish (B67)."""
    with pytest.raises(error, match="summar"):
        reduced(summarize(lambda older: given, 1), numbered(1, 2))
    with pytest.raises(ValueError, match="empty"):
        reduced(summarize(lambda older: Message("user", [" "]), 1), numbered(1, 2))


def test_messages_of_the_agent_framework_are_reduced_too() -> None:
    """Its own kind goes in, its own kind comes out."""
    history = [agent_framework.Message("user", [str(number)]) for number in range(4)]
    shown = reduced(summarize(joined, 2), history)
    assert texts(shown) == ["0+1", "2", "3"]
    assert type(shown[0]) is agent_framework.Message
    assert reduced(summarize(joined, 2), shown) == shown


@settings(max_examples=80, deadline=None)
@given(history=st.lists(steps, max_size=12).map(lambda names: [message(name) for name in names]))
def test_under_every_limit_a_reducer_keeps_units_whole(history: list[Message]) -> None:
    """No orphan, nothing twice, nothing lost: what is not kept, the summarizer was given (B57, B58, B60, B61, B70)."""
    given_order = {id(one): place for place, one in enumerate(history)}
    for limit in range(1, len(history) + 2):
        kept = keep_newest(limit)(history)
        assert unanswered(kept) == 0
        assert kept == without_orphans(kept)
        older: list[Message] = []
        shown = reduced(summarize(lambda gone, older=older: older.extend(gone) or "summary", limit), history)  # type: ignore[misc]
        if older:
            assert [m for m in shown if m.text != "summary"] == kept
            places = [given_order[id(one)] for one in older]
            assert places == list(range(places[0], places[0] + len(older)))
            assert len(older) + len(kept) >= len(without_orphans(history))
        else:
            assert shown == history


@pytest.mark.parametrize("kind", ["state", *URLS])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_reducer_works_at_load_on_every_backend(tmp_path: Path, kind: str, asynchronous: bool) -> None:
    """The model sees the reduced history; what is stored is whole, turn after turn."""
    reducer = summarize(joined, 2) if asynchronous else keep_newest(2)

    async def talk(provider: InMemoryHistoryProvider | StoreHistoryProvider) -> None:
        client = ScriptedChatClient([str(number) for number in range(1, 8, 2)])
        agent = Agent(client, context_providers=[provider])
        session = agent.create_session("s")
        for number in range(0, 8, 2):
            await agent.run(str(number), session)
        expected = ["0+1+2+3", "4", "5", "6"] if asynchronous else ["4", "5", "6"]
        assert texts(client.calls[3]) == expected
        provider.reducer = None
        whole = await provider.get_messages("s", state=session.state[provider.source_id])
        assert texts(whole) == [str(number) for number in range(8)]

    async def main() -> None:
        if kind == "state":
            await talk(InMemoryHistoryProvider(reducer=reducer))
            return
        async with open_store(URLS[kind](tmp_path), namespace=uuid4().hex) as store:
            await talk(StoreHistoryProvider(store, reducer=reducer))
            if kind != "memory":
                await store.delete_namespace(store.namespace)

    asyncio.run(main())


def test_a_window_comes_before_the_reducer() -> None:
    """`max_messages` bounds what is read, and the reducer gets that; an orphan that it makes is not shown."""
    seen: list[list[str]] = []

    def newest_one(messages: list[Message]) -> list[Message]:
        seen.append([m.role for m in messages])
        return messages[-2:]

    async def main() -> list[str]:
        async with open_store("memory://") as store:
            await store.session("s").append([user(), user(), calls("a"), results("a"), answer()])
            provider = StoreHistoryProvider(store, max_messages=3, reducer=newest_one)
            return [m.role for m in await provider.get_messages("s")]

    assert asyncio.run(main()) == ["assistant"]
    assert seen == [["assistant", "tool", "assistant"]]
