"""Several providers of one Agent Framework agent, and replays: each message is stored once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import agent_framework
import pytest
from agent_framework import (
    Message,
)
from agent_framework_scene import Rag, add, agent, call, kept, opened, session

from agentstore import ConfigurationError
from agentstore.adapters.agent_framework import StoreHistoryProvider

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


# Several providers


def test_an_audit_provider_stores_each_message_once(url: str) -> None:
    """Six messages after three turns, not the whole history again each turn (FEATURES 35, B78, B83)."""

    async def main() -> None:
        async with opened(url) as provider:
            audit = StoreHistoryProvider(provider.store, "audit", load_messages=False, store_context_messages=True)
            one, chat = agent([provider, audit]), session()
            for _ in range(3):
                await one.run("yes", session=chat)
            assert await kept(audit) == ["yes", "done"] * 3
            assert await kept(provider) == ["yes", "done"] * 3
            assert await provider.clear("s") == 6
            assert len(await kept(audit)) == 6

    asyncio.run(main())


def test_an_audit_provider_stores_a_history_that_it_names() -> None:
    """`store_context_from` decides; a history that another loaded is then context like any other."""

    async def main() -> None:
        async with opened() as provider:
            store = provider.store
            named = StoreHistoryProvider(
                store, "named", load_messages=False, store_context_messages=True, store_context_from={"history"}
            )
            rest = StoreHistoryProvider(store, "rest", load_messages=False, store_context_messages=True)
            one, chat = agent([provider, Rag(), named, rest]), session()
            for text in ("a", "b"):
                await one.run(text, session=chat)
            assert await kept(named) == ["a", "done", "b", "done"]  # what it holds already is not written again
            assert await kept(rest) == ["fact", "a", "done", "fact", "b", "done"]
            assert await kept(provider) == ["a", "done", "b", "done"]

    asyncio.run(main())


@pytest.mark.parametrize("own", [True, False], ids=["two of ours", "one of the framework's"])
def test_two_loading_providers_are_refused(own: bool) -> None:
    """The framework would show the model everything twice; the error names both (FEATURES 6)."""

    async def main() -> None:
        async with opened() as provider:
            other = StoreHistoryProvider("memory://", "b") if own else agent_framework.InMemoryHistoryProvider("b")
            one = agent([other, provider])
            with pytest.raises(ConfigurationError, match=r"'b', 'history'"):
                await one.run("hi", session=session())
            assert one.client.calls == []

    asyncio.run(main())


def test_the_agent_keeps_its_providers_and_gets_no_other() -> None:
    """No second memory is added beside one that loads, and none is taken away (FEATURES 2)."""

    async def main() -> None:
        async with opened() as provider:
            rag = Rag()
            one = agent([provider, rag])
            await one.run("hi", session=session())
            await one.run("hi")
            assert one.context_providers == [provider, rag]

    asyncio.run(main())


# Replays


def test_a_replay_of_the_same_objects_adds_only_what_is_new(url: str) -> None:
    """Ids are given to the live objects, of input and answer (B72, B75)."""

    async def main() -> None:
        async with opened(url) as provider:
            one, chat = agent(provider, "a1", "a2"), session()
            transcript = [Message("user", ["q1"])]
            transcript += (await one.run(transcript, session=chat)).messages
            assert all(message.message_id for message in transcript)
            transcript.append(Message("user", ["q2"]))
            await one.run(transcript, session=chat)
            assert await kept(provider) == ["q1", "a1", "q2", "a2"]
            assert one.client.seen[-1] == ["q1", "a1", "q2"]

    asyncio.run(main())


@pytest.mark.parametrize("max_messages", [None, 2, 3], ids=["whole", "two", "three"])
def test_a_replay_rebuilt_without_ids_adds_only_what_is_new(url: str, max_messages: int | None) -> None:
    """The whole history as a prefix, or the window that was loaded, wherever it stands (B72)."""

    async def main() -> None:
        async with opened(url, max_messages=max_messages) as provider:
            one, chat = agent(provider, "a1", "a2", "a3", "a4"), session()
            transcript: list[tuple[str, str]] = []
            for number in range(1, 5):
                transcript.append(("user", f"q{number}"))
                rebuilt = [Message(role, [text]) for role, text in transcript]
                await one.run(rebuilt, session=chat)
                transcript.append(("assistant", f"a{number}"))
            assert await kept(provider) == [text for _, text in transcript]
            assert one.client.seen[-1] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4"]

    asyncio.run(main())


def test_a_replay_with_tools_adds_only_what_is_new(url: str) -> None:
    """Calls and results too, with and without ids; a second, equal call is an honest repeat."""

    async def main() -> None:
        async with opened(url) as provider:
            one = agent(provider, call(), "3", call(), "3", "bye", tools=[add])
            chat = session()
            transcript = [Message("user", ["1+2?"])]
            for _ in range(2):
                transcript += (await one.run(transcript, session=chat)).messages
                transcript.append(Message("user", ["again"]))
            bare = [Message.from_dict({**message.to_dict(), "message_id": None}) for message in transcript]
            await one.run(bare, session=chat)
            expected = ["1+2?", "add()", "=3", "3", "again", "add()", "=3", "3", "again", "bye"]
            assert await kept(provider) == expected

    asyncio.run(main())


def test_two_messages_under_one_framework_id_are_both_kept(url: str) -> None:
    """Also several in one answer; a replay of either adds nothing."""

    async def main() -> None:
        async with opened(url) as provider:
            answers = [[Message("assistant", [text], message_id="same")] for text in ("one", "two")]
            one, chat = agent(provider, *answers), session()
            first = await one.run("a", session=chat)
            second = await one.run("b", session=chat)
            assert await kept(provider) == ["a", "one", "b", "two"]
            assert len({message.message_id for message in await provider.history("s").messages()}) == 4
            for replayed in (first.messages, second.messages, [*first.messages, *second.messages]):
                await provider.save_messages("s", replayed)
            assert await kept(provider) == ["a", "one", "b", "two"]
            twice = [Message("assistant", [text], message_id="dup") for text in ("x", "y", "x")]
            await provider.save_messages("s", twice)
            await provider.save_messages("s", twice)
            assert await kept(provider) == ["a", "one", "b", "two", "x", "y"]

    asyncio.run(main())
