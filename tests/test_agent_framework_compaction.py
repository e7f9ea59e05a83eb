"""The framework's compaction beside the provider: its marks are stored, obeyed, and make nothing vanish."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from agent_framework import (
    CompactionProvider,
    Content,
    InMemoryHistoryProvider,
    Message,
    SlidingWindowStrategy,
    SummarizationStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
    apply_compaction,
)
from agent_framework_scene import Scripted, add, agent, call, kept, logged, opened, run, session, show

from agentstore import compact

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def turns(count: int) -> list[Message]:
    return [
        message
        for number in range(count)
        for message in (Message("user", [f"q{number}"]), Message("assistant", [f"a{number}"]))
    ]


def marked(text: str, reason: str, **group: Any) -> Message:
    """A message that compaction excluded."""
    marks = {"_excluded": True, "_exclude_reason": reason, "_group": {"id": "g", **group}}
    return Message("user", [text], message_id=text, additional_properties=marks)


def summary(text: str, of: list[str], **marks: Any) -> Message:
    group = {"id": "g", "_summary_of_message_ids": of}
    return Message("assistant", [text], message_id=text, additional_properties={"_group": group, **marks})


# Strategies before and in a run


@pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])
def test_a_strategy_before_the_run_works_on_the_loaded_window(stream: bool) -> None:
    """`CompactionProvider(before_strategy=…)`: the model sees less, the store keeps all and no mark (FEATURES 9)."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", turns(5))
            compaction = CompactionProvider(before_strategy=SlidingWindowStrategy(keep_last_groups=2))
            one, chat = agent([provider, compaction]), session()
            await run(one, "more", chat, stream)
            assert one.client.seen == [["q4", "a4", "more"]]
            await run(one, "again", chat, stream)
            assert one.client.seen[-1] == ["more", "done", "again"]
            stored = await provider.history("s").messages()
            assert len(stored) == 14
            assert not any(message.additional_properties for message in stored)

    asyncio.run(main())


def test_a_summary_before_the_run_is_seen_and_not_stored() -> None:
    """What a strategy makes for one run is that run's; the originals stay."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", turns(5))
            strategy = SummarizationStrategy(client=Scripted("in short"), target_count=1, threshold=0)
            one = agent([provider, CompactionProvider(before_strategy=strategy)])
            await one.run("more", session=session())
            assert "in short" in one.client.seen[0]
            assert len(one.client.seen[0]) < 11
            assert await kept(provider) == [show(message) for message in turns(5)] + ["more", "done"]

    asyncio.run(main())


@pytest.mark.parametrize("each_call", [False, True], ids=["per run", "per call"])
def test_marks_of_a_strategy_in_the_run_are_stored_and_hide_nothing(each_call: bool) -> None:
    """The framework marks the run's own tool messages; its mark is there, the message is too (B67)."""

    async def main() -> None:
        async with opened() as provider:
            one = agent(
                provider,
                call(),
                call(call_id="c2"),
                "3",
                tools=[add],
                compaction_strategy=SlidingWindowStrategy(keep_last_groups=1),
                require_per_service_call_history_persistence=each_call,
            )
            await one.run("q", session=session())
            stored = await provider.history("s").messages()
            assert [show(message) for message in stored] == ["q", "add()", "=3", "add()", "=3", "3"]
            if not each_call:
                assert [message.additional_properties.get("_excluded") for message in stored[1:3]] == [True, True]
            two = agent(provider)
            await two.run("next", session=session())
            assert two.client.seen == [["q", "add()", "=3", "add()", "=3", "3", "next"]]

    asyncio.run(main())


# Marks in the store


def test_an_excluded_message_is_shown_until_its_summary_is_stored() -> None:
    """B67: a mark alone makes nothing vanish; with the summary in the window, the originals are not shown beside it."""

    async def main() -> None:
        async with opened() as provider:
            originals = [marked(text, "summarized", _summarized_by_summary_id="S") for text in ("a", "b")]
            await provider.save_messages("s", [*originals, Message("user", ["c"])])
            assert [show(message) for message in await provider.get_messages("s")] == ["a", "b", "c"]
            await provider.save_messages("s", [summary("S", ["a"])])  # by its own list, or by the message's mark
            assert [show(message) for message in await provider.get_messages("s")] == ["c", "S"]
            assert await kept(provider) == ["a", "b", "c", "S"]
            one = agent(provider)
            await one.run("more", session=session())
            assert one.client.seen == [["c", "S", "more"]]

    asyncio.run(main())


def test_a_summary_of_summaries_stands_for_all_of_them() -> None:
    """Nested: only the last one is shown; where that is missing, the one before."""

    async def main() -> None:
        async with opened() as provider:
            first = summary("S1", ["a"], _excluded=True)
            first.additional_properties["_group"]["_summarized_by_summary_id"] = "S2"
            await provider.save_messages("s", [marked("a", "summarized", _summarized_by_summary_id="S1"), first])
            assert [show(message) for message in await provider.get_messages("s")] == ["S1"]
            await provider.save_messages("s", [summary("S2", ["S1"])])
            assert [show(message) for message in await provider.get_messages("s")] == ["S2"]

    asyncio.run(main())


@pytest.mark.parametrize("group", [{"_summarized_by_summary_id": ["S"]}, {"_summary_of_message_ids": [["a"], 5]}, {}])
def test_a_mark_of_odd_values_hides_nothing(group: dict[str, Any]) -> None:
    """Anybody can store any property: such a mark names no summary."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", [marked("a", "odd", **group), Message("user", ["b"])])
            assert [message.text for message in await provider.get_messages("s")] == ["a", "b"]

    asyncio.run(main())


def test_with_skip_excluded_other_marks_hide_as_in_the_frameworks_providers() -> None:
    """Side by side with its in-memory provider; only what lost its summary is shown here and not there."""

    async def main() -> None:
        lost = marked("lost", "summarized", _summarized_by_summary_id="nowhere")
        given = [Message("user", ["a"]), marked("b", "truncation"), marked("c", "sliding_window"), lost]
        theirs = InMemoryHistoryProvider(skip_excluded=True)
        shown = await theirs.get_messages("s", state={"messages": given})
        assert [show(message) for message in shown] == ["a"]
        async with opened(skip_excluded=True) as provider:
            await provider.save_messages("s", given)
            assert [show(message) for message in await provider.get_messages("s")] == ["a", "lost"]
            whole = type(provider)(provider.store)
            assert [show(message) for message in await whole.get_messages("s")] == ["a", "b", "c", "lost"]

    asyncio.run(main())


def test_a_result_whose_call_was_excluded_is_no_orphan() -> None:
    """Half of a pair is not shown, whatever the marks say (E)."""

    async def main() -> None:
        async with opened(skip_excluded=True) as provider:
            pair = [
                Message("assistant", [call()], additional_properties={"_excluded": True}),
                Message("tool", [Content.from_function_result("c1", result="3")]),
            ]
            await provider.save_messages("s", [Message("user", ["q"]), *pair, Message("assistant", ["3"])])
            assert [show(message) for message in await provider.get_messages("s")] == ["q", "3"]

    asyncio.run(main())


def test_a_replay_is_known_by_what_is_stored_not_by_what_is_shown() -> None:
    """The caller sends the transcript, without ids, that he has; excluded or not, it is not stored again (F)."""

    async def main() -> None:
        async with opened(skip_excluded=True) as provider:
            await provider.save_messages("s", [marked("q", "truncation"), Message("assistant", ["a"])])
            one = agent(provider)
            replay = [Message("user", ["q"]), Message("assistant", ["a"]), Message("user", ["new"])]
            await one.run(replay, session=session())
            assert await kept(provider) == ["q", "a", "new", "done"]

    asyncio.run(main())


# For good


def test_a_strategy_makes_the_stored_history_shorter_through_compact() -> None:
    """What `after_strategy` does to a list in the session, `compact` does to a stored history, whole or not at all."""

    async def main() -> None:
        async with opened() as provider:
            await provider.save_messages("s", turns(6))
            strategy = TruncationStrategy(max_n=6, compact_to=4)
            done = await compact(provider.history("s"), partial(apply_compaction, strategy=strategy))
            assert (done.before, done.after) == (12, 4)
            assert await kept(provider) == ["q4", "a4", "q5", "a5"]
            assert len(await done.archive.messages()) == 8

    asyncio.run(main())


def test_a_strategy_can_be_the_providers_reducer() -> None:
    """At each load; also in the mode in which the framework never asks a `CompactionProvider`."""

    async def main() -> None:
        strategy = ToolResultCompactionStrategy(keep_last_tool_call_groups=0)
        async with opened(reducer=partial(apply_compaction, strategy=strategy)) as provider:
            one = agent(provider, call(), "3", tools=[add])
            chat = session()
            await one.run("1+2?", session=chat)
            await one.run("thanks", session=chat)
            shown = one.client.seen[-1]
            assert (shown[0], shown[-2:]) == ("1+2?", ["3", "thanks"])
            assert "add()" not in shown
            assert await kept(provider) == ["1+2?", "add()", "=3", "3", "thanks", "done"]

    asyncio.run(main())


def test_an_after_strategy_that_cannot_work_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It looks for a list in the session's state, where we keep none; of another source's we say nothing."""

    async def main() -> None:
        async with opened() as provider:
            strategy = SlidingWindowStrategy(keep_last_groups=1)
            other = CompactionProvider(after_strategy=strategy)
            await agent([provider, other]).run("hi", session=session())
            assert logged(caplog) == []
            mine = CompactionProvider(after_strategy=strategy, history_source_id="history")
            one, chat = agent([provider, mine]), session()
            for _ in range(2):
                await one.run("hi", session=chat)
            (line,) = logged(caplog)
            assert "after_strategy" in line
            assert "agentstore.compact" in line
            assert len(await kept(provider)) == 6

    asyncio.run(main())
