"""The framework's own loops, workflows and harness: however often they send a message again, it is stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import (
    AgentLoopMiddleware,
    Content,
    FileHistoryProvider,
    InMemoryHistoryProvider,
    Message,
    MessageInjectionMiddleware,
    WorkflowAgent,
    WorkflowBuilder,
    create_harness_agent,
    enqueue_messages,
    tool,
)
from agent_framework_scene import Scripted, add, agent, call, kept, opened, run, session, show

from agentstore import open_store
from agentstore.adapters.agent_framework import StoreHistoryProvider

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["run", "stream"])


def rounds(count: int) -> Callable[..., bool]:
    """Goes on for that many more rounds."""
    left = iter(range(count))
    return lambda **given: next(left, None) is not None


def bare(messages: list[Message]) -> list[Message]:
    """The messages as a host rebuilds them: the same contents, no ids."""
    return [Message.from_dict({**message.to_dict(), "message_id": None}) for message in messages]


@STREAM
def test_a_loop_that_sends_the_same_input_again_stores_it_once(stream: bool) -> None:
    """`AgentLoopMiddleware`, its `next_message` giving `None`: the same objects come again (B72)."""

    async def main() -> None:
        async with opened() as provider:
            loop = AgentLoopMiddleware(should_continue=rounds(2), next_message=lambda **given: None)
            one = agent(provider, "a1", "a2", "a3", middleware=[loop])
            await run(one, "go", session(), stream)
            assert await kept(provider) == ["go", "a1", "a2", "a3"]

    asyncio.run(main())


@STREAM
@pytest.mark.parametrize("rebuilt", [False, True], ids=["the same objects", "rebuilt without ids"])
def test_a_loop_that_sends_the_whole_conversation_adds_what_is_new(stream: bool, rebuilt: bool) -> None:
    """An accumulated list in each round, with and without ids; the model sees it once (B72, B78)."""
    said: list[Message] = [Message("user", ["go"])]

    def everything(*, last_result: Any, **given: Any) -> list[Message]:
        said.extend([*last_result.messages, Message("user", ["more"])])
        return bare(said) if rebuilt else list(said)

    async def main() -> None:
        async with opened() as provider:
            loop = AgentLoopMiddleware(should_continue=rounds(2), next_message=everything, inject_progress=False)
            one = agent(provider, "a1", "a2", "a3", middleware=[loop])
            chat = session()
            if stream:
                await run(one, list(said), chat, stream=True)
            else:
                await one.run(list(said), session=chat)
            assert await kept(provider) == ["go", "a1", "more", "a2", "more", "a3"]
            assert one.client.seen[-1] == ["go", "a1", "more", "a2", "more"]

    asyncio.run(main())


def test_a_workflow_of_agents_with_histories_stores_each_message_once() -> None:
    """The outer agent and each inner one under sources of their own; executors pass on whole lists (B77, B78)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            outer, inner = StoreHistoryProvider(store), StoreHistoryProvider(store, "inner")
            first, second = agent(inner, "w1", "w2", name="first"), agent([], "v1", "v2", name="second")
            flow = WorkflowBuilder(start_executor=first).add_edge(first, second).build()
            whole, chat = WorkflowAgent(flow, context_providers=[outer]), session()
            for text in ("q1", "q2"):
                await whole.run(text, session=chat)
            assert await kept(outer) == ["q1", "w1", "v1", "q2", "w2", "v2"]
            (name,) = await inner.list_sessions()
            assert await kept(inner, name) == ["q1", "w1", "v1", "q2", "w2"]
            assert first.client.seen[-1] == ["q1", "w1", "v1", "q2"]
            assert whole.context_providers == [outer]

    asyncio.run(main())


def test_results_that_a_workflow_holds_back_are_stored_when_it_resumes(tmp_path: Path) -> None:
    """A turn that waits for a computer: its ready results come again with the resumption, and are stored then.

    Up to the pause it is what the framework's own file provider stores.
    """
    held_back = "workflow.defer_computer_function_results"
    click = Content.from_computer_tool_call(id="click-1", call_id="c9", actions=[{"type": "click"}])
    click.user_input_request = True

    async def paused(provider: Any) -> tuple[Any, list[str]]:
        asked = call()
        asked.id = "occurrence-1"
        one, chat = agent(provider, Message("assistant", [click, asked]), "ok", tools=[add]), session()
        chat.state[held_back] = True
        await one.run("go", session=chat)
        del chat.state[held_back]
        return one, [kinds(message) for message in await provider.get_messages("s", state={})]

    def kinds(message: Message) -> str:
        return " ".join(content.type for content in message.contents)

    async def main() -> None:
        async with opened() as provider:
            one, stored = await paused(provider)
            assert stored == (await paused(FileHistoryProvider(tmp_path)))[1]
            assert stored == ["text", "computer_tool_call function_call"]
            results = [Content.from_function_result("c1", result="3")]
            await one.run(Message("tool", results), session=session())
            stored = [kinds(message) for message in await provider.history("s").messages()]
            assert stored == ["text", "computer_tool_call function_call", "function_result", "text"]

    asyncio.run(main())


def test_results_that_a_workflow_holds_back_are_in_a_record_of_all_answers() -> None:
    """A provider that stores no inputs would never see them again: as with the framework's own, it keeps them."""

    async def main() -> None:
        async with opened(store_inputs=False, load_messages=False) as provider:
            click = Content.from_computer_tool_call(id="click-1", call_id="c9", actions=[{"type": "click"}])
            click.user_input_request = True
            asked = call()
            asked.id = "occurrence-1"
            one, chat = agent(provider, Message("assistant", [click, asked]), tools=[add]), session()
            one.client.STORES_BY_DEFAULT = True
            chat.state["workflow.defer_computer_function_results"] = True
            await one.run("go", session=chat)
            assert len(await provider.history("s").messages()) == 2

    asyncio.run(main())


@STREAM
def test_a_harness_agent_stores_each_message_once(stream: bool) -> None:
    """`create_harness_agent`: history around each call of the model, tools, compaction strategies (B74, B76)."""

    async def main() -> None:
        async with opened() as provider:
            client = Scripted(call(), "3", "bye")
            one = create_harness_agent(
                client,
                history_provider=provider,
                tools=[add],
                max_context_window_tokens=100_000,
                max_output_tokens=1000,
                disable_file_memory=True,
                disable_web_search=True,
                disable_todo=True,
                disable_mode=True,
            )
            chat = session()
            await run(one, "1+2?", chat, stream)
            await run(one, "thanks", chat, stream)
            assert await kept(provider) == ["1+2?", "add()", "=3", "3", "thanks", "bye"]
            assert client.seen[-1] == ["1+2?", "add()", "=3", "3", "thanks"]

    asyncio.run(main())


def test_a_host_that_sends_the_whole_conversation_each_time_adds_what_is_new() -> None:
    """As an AG-UI or Responses host does: per request a new agent and session object, messages without ids (B72)."""

    async def main() -> None:
        async with opened() as provider:
            transcript: list[Message] = []
            for number in range(5):
                transcript.append(Message("user", [f"q{number}"]))
                one = agent(provider, call(), f"a{number}", tools=[add])
                answer = await one.run(bare(transcript), session=session())
                transcript += answer.messages
                assert one.client.seen[-1] == [show(message) for message in transcript[:-1]]
            assert await kept(provider) == [show(message) for message in transcript]

    asyncio.run(main())


def test_an_agent_as_a_tool_has_a_history_of_its_own() -> None:
    """The inner run's messages are not the outer session's; the outer has call and result once (B77)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            outer, inner = StoreHistoryProvider(store), StoreHistoryProvider(store, "inner")
            expert = agent(inner, "42", name="expert", description="Knows.")
            ask = agent_framework.Content.from_function_call("c1", "expert", arguments={"task": "why?"})
            one = agent(outer, ask, "it is 42", tools=[expert.as_tool()])
            await one.run("why?", session=session())
            assert await kept(outer) == ["why?", "expert()", "=42", "it is 42"]
            (name,) = await inner.list_sessions()
            assert await kept(inner, name) == ["why?", "42"]

    asyncio.run(main())


@pytest.mark.parametrize("each_call", [False, True], ids=["per run", "per call"])
def test_messages_put_in_during_a_run_are_stored_as_with_the_frameworks_own(each_call: bool) -> None:
    """`MessageInjectionMiddleware`: the model sees them; around each call they are in the history, once."""

    async def stored(provider: Any) -> list[str]:
        chat = session()

        @tool(approval_mode="never_require")
        def poke() -> str:
            """Poke."""
            enqueue_messages(chat, "by the way")
            return "poked"

        one = agent(
            provider,
            Content.from_function_call("c1", "poke", arguments={}),
            "ok",
            tools=[poke],
            middleware=[MessageInjectionMiddleware()],
            require_per_service_call_history_persistence=each_call,
        )
        await one.run("q", session=chat)
        assert one.client.seen[-1] == ["q", "poke()", "=poked", "by the way"]
        messages = await provider.get_messages("s", state=chat.state.get(provider.source_id))
        return [show(message) for message in messages]

    async def main() -> None:
        async with opened() as provider:
            found = await stored(provider)
            assert found == await stored(InMemoryHistoryProvider())
            assert found == ["q", "poke()", "=poked", *["by the way"] * each_call, "ok"]

    asyncio.run(main())
