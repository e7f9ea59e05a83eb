"""The Python examples of the Agent Framework's storage and context-provider pages, with our names and a scripted model.

The examples themselves stand in the functions as a reader would type them; around them is what checks what they say.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from agentstore import (
    Agent,
    AgentSession,
    BaseContextProvider,
    BaseHistoryProvider,
    InMemoryHistoryProvider,
    Message,
    ScriptedChatClient,
    SessionContext,
    tool,
)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_a_session_carries_the_conversation() -> None:
    """Create a session, run twice, keep it, go on."""

    async def main() -> None:
        client = ScriptedChatClient(["Nice to meet you, Alice!", "Your name is Alice.", "Alice."])
        agent = Agent(client, name="Friendly", instructions="You are a friendly assistant.")
        session = agent.create_session()
        print(await agent.run("My name is Alice.", session=session))
        response = await agent.run("What is my name?", session=session)
        assert response.text == str(response) == "Your name is Alice."
        serialized = json.dumps(session.to_dict())
        resumed = AgentSession.from_dict(json.loads(serialized))
        await agent.run("And now?", session=resumed)
        assert texts(client.calls[2])[1:4] == ["My name is Alice.", "Nice to meet you, Alice!", "What is my name?"]

    asyncio.run(main())


def test_the_in_memory_provider_is_configured_by_name() -> None:
    """And its messages are in the session's state."""

    async def main() -> None:
        agent = ScriptedChatClient(["Noted.", "Italian."]).as_agent(
            name="StorageAgent",
            instructions="You are a helpful assistant.",
            context_providers=[InMemoryHistoryProvider("memory", load_messages=True)],
        )
        session = agent.create_session()
        await agent.run("Remember that I like Italian food.", session=session)
        messages = session.state["memory"]["messages"]
        assert texts(messages) == ["Remember that I like Italian food.", "Noted."]
        assert (await agent.run("What do I like?", session=session)).text == "Italian."

    asyncio.run(main())


class Database:
    """Somebody's database."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}

    async def load_messages(self, key: str) -> list[dict[str, Any]]:
        return list(self.rows.get(key, []))

    async def save_messages(self, key: str, rows: list[dict[str, Any]]) -> None:
        self.rows.setdefault(key, []).extend(rows)


class DatabaseHistoryProvider(BaseHistoryProvider):
    def __init__(self, db: Any) -> None:
        super().__init__("db-history", load_messages=True)
        self._db = db

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        key = (state or {}).get(self.source_id, {}).get("history_key", session_id or "default")
        rows = await self._db.load_messages(key)
        return [Message.from_dict(row) for row in rows]

    async def save_messages(
        self, session_id: str | None, messages: Any, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if not messages:
            return
        if state is not None:
            key = state.setdefault(self.source_id, {}).setdefault("history_key", session_id or "default")
        else:
            key = session_id or "default"
        await self._db.save_messages(key, [message.to_dict() for message in messages])


def test_a_history_provider_of_ones_own() -> None:
    """Two methods over a database."""

    async def main() -> None:
        db, client = Database(), ScriptedChatClient(["Hello!", "I do."])
        agent = client.as_agent(context_providers=[DatabaseHistoryProvider(db)])
        session = agent.create_session()
        await agent.run("Hi.", session=session)
        await agent.run("Remember me?", session=session)
        assert texts(client.calls[1]) == ["Hi.", "Hello!", "Remember me?"]
        assert [len(rows) for rows in db.rows.values()] == [4]

    asyncio.run(main())


class UserPreferenceProvider(BaseContextProvider):
    def __init__(self) -> None:
        super().__init__("user-preferences")

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        if favorite := state.get("favorite_food"):
            context.extend_instructions(self.source_id, f"User's favorite food is {favorite}.")

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        for message in context.input_messages:
            text = (message.text or "") if hasattr(message, "text") else ""
            if isinstance(text, str) and "favorite food is" in text.lower():
                state["favorite_food"] = text.split("favorite food is", 1)[1].strip().rstrip(".")


def test_a_context_provider_of_ones_own() -> None:
    """It learns from one run and adds to the next; its state travels with the session."""

    async def main() -> None:
        client = ScriptedChatClient(["Got it!", "Pizza."])
        agent = client.as_agent(instructions="Be brief.", context_providers=[UserPreferenceProvider()])
        session = agent.create_session()
        await agent.run("My favorite food is pizza.", session=session)
        restored = AgentSession.from_dict(session.to_dict())
        await agent.run("What should I eat?", session=restored)
        assert restored.state["user-preferences"] == {"favorite_food": "pizza"}
        assert client.calls[1][0].text == "Be brief.\nUser's favorite food is pizza."

    asyncio.run(main())


def test_primary_memory_and_an_audit() -> None:
    """Several providers on one agent: one loads, the other records what the model was told."""

    async def main() -> None:
        primary = InMemoryHistoryProvider("memory", load_messages=True)
        audit = InMemoryHistoryProvider("audit", load_messages=False, store_context_messages=True)
        agent = ScriptedChatClient(["one", "two"]).as_agent(
            context_providers=[primary, UserPreferenceProvider(), audit]
        )
        session = agent.create_session()
        await agent.run("My favorite food is rice.", session=session)
        await agent.run("And drink?", session=session)
        told = ["My favorite food is rice.", "one", "And drink?", "two"]
        assert texts(session.state["memory"]["messages"]) == texts(session.state["audit"]["messages"]) == told

    asyncio.run(main())


def test_a_service_managed_session() -> None:
    """Resumed by the service's id, with no history here."""

    async def main() -> None:
        client = ScriptedChatClient(["Hi."], conversation_id="conv_abc")
        agent = client.as_agent(name="Service")
        session = agent.get_session(service_session_id="conv_abc")
        response = await agent.run("Hello", session=session)
        assert (response.text, session.service_session_id, session.state) == ("Hi.", "conv_abc", {})

    asyncio.run(main())


@tool(approval_mode="never_require")
def get_weather(location: Annotated[str, "The location to get the weather for."]) -> str:
    """Get the weather for a given location."""
    return f"The weather in {location} is cloudy with a high of 15°C."


def test_tools_and_a_stream() -> None:
    """A decorated function, a call, and the answer piece by piece."""

    async def main() -> None:
        call = {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": '{"location": "Rome"}'}
        agent = Agent(
            client=ScriptedChatClient([Message("assistant", [call]), "Cloudy, 15 degrees."]),
            instructions="You are a weather agent.",
            tools=[get_weather],
        )
        session = agent.create_session()
        shown = ""
        async for chunk in agent.run("What's the weather in Rome?", session=session, stream=True):
            if chunk.text:
                shown += chunk.text
        assert shown == "Cloudy, 15 degrees."
        stored = session.state["memory"]["messages"]
        assert stored[2].contents[0].result == "The weather in Rome is cloudy with a high of 15°C."

    asyncio.run(main())


def test_history_around_each_call_of_the_model() -> None:
    """One keyword on the agent."""

    async def main() -> None:
        agent = ScriptedChatClient(["Hi."]).as_agent(
            name="PerCall",
            context_providers=[InMemoryHistoryProvider("memory")],
            require_per_service_call_history_persistence=True,
        )
        session = agent.create_session()
        await agent.run("Hello", session=session)
        assert texts(session.state["memory"]["messages"]) == ["Hello", "Hi."]

    asyncio.run(main())
