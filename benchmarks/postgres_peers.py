"""Peers' histories on PostgreSQL, each fed the objects of its framework. They come with the group `bench`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from benchmarks.postgres_server import CONNECTIONS
from benchmarks.sample import Shape


def engine_of(url: str) -> Any:
    """A SQLAlchemy engine with as many connections as the others have."""
    from sqlalchemy.ext.asyncio import create_async_engine

    address = url.replace("postgresql://", "postgresql+asyncpg://")
    return create_async_engine(address, pool_size=CONNECTIONS, max_overflow=0)


class OpenAISession:
    name = "OpenAI Agents SDK's SQLAlchemySession"

    def __init__(self, session: Any, engine: Any) -> None:
        self._session, self._engine = session, engine

    @classmethod
    async def open(cls, url: str) -> OpenAISession:
        from agents.extensions.memory import SQLAlchemySession

        engine = engine_of(url)
        return cls(SQLAlchemySession("long", engine=engine, create_tables=True), engine)

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        return list(shapes)  # it keeps any dict as it is

    async def append(self, messages: list[Any]) -> object:
        return await self._session.add_items(messages)

    async def newest(self, limit: int) -> Sequence[Any]:
        items: list[Any] = await self._session.get_items(limit=limit)
        return items

    async def close(self) -> None:
        await self._engine.dispose()


class LangChainHistory:
    name = "langchain-postgres"

    def __init__(self, history: Any, connection: Any) -> None:
        self._history, self._connection = history, connection

    @classmethod
    async def open(cls, url: str) -> LangChainHistory:
        from langchain_postgres import PostgresChatMessageHistory
        from psycopg import AsyncConnection

        connection = await AsyncConnection.connect(url)
        await PostgresChatMessageHistory.acreate_tables(connection, "langchain")
        history = PostgresChatMessageHistory("langchain", str(uuid.uuid4()), async_connection=connection)
        return cls(history, connection)

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        return [_langchain_message(shape["role"], shape["contents"][0]) for shape in shapes]

    async def append(self, messages: list[Any]) -> object:
        return await self._history.aadd_messages(messages)

    async def newest(self, limit: int) -> Sequence[Any]:
        messages: list[Any] = await self._history.aget_messages()  # it has no bounded read
        return messages[-limit:]

    async def close(self) -> None:
        await self._connection.close()


class ADKSession:
    name = "Google ADK's DatabaseSessionService"

    def __init__(self, service: Any, session: Any) -> None:
        self._service, self._session = service, session

    @classmethod
    async def open(cls, url: str) -> ADKSession:
        from google.adk.sessions import DatabaseSessionService

        address = url.replace("postgresql://", "postgresql+asyncpg://")
        service = DatabaseSessionService(address, pool_size=CONNECTIONS, max_overflow=0)
        return cls(service, await service.create_session(app_name="bench", user_id="user"))

    def native(self, shapes: Sequence[Shape]) -> list[Any]:
        return [_adk_event(shape["role"], shape["contents"][0]) for shape in shapes]

    async def append(self, messages: list[Any]) -> object:
        for event in messages:
            await self._service.append_event(self._session, event)
        return None

    async def newest(self, limit: int) -> Sequence[Any]:
        from google.adk.sessions.base_session_service import GetSessionConfig

        found = await self._service.get_session(
            app_name="bench",
            user_id="user",
            session_id=self._session.id,
            config=GetSessionConfig(num_recent_events=limit),
        )
        events: list[Any] = found.events
        return events

    async def close(self) -> None:
        await self._service.close()


def _langchain_message(role: str, content: Shape) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    if content["type"] == "function_call":
        arguments = {"arguments": content["arguments"]}
        call = {"name": content["name"], "args": arguments, "id": content["call_id"], "type": "tool_call"}
        return AIMessage("", tool_calls=[call])
    if content["type"] == "function_result":
        return ToolMessage(content["result"], tool_call_id=content["call_id"])
    return HumanMessage(content["text"]) if role == "user" else AIMessage(content["text"])


def _adk_event(role: str, content: Shape) -> Any:
    from google.adk.events import Event
    from google.genai import types

    if content["type"] == "function_call":
        arguments = {"arguments": content["arguments"]}
        call = types.FunctionCall(id=content["call_id"], name=content["name"], args=arguments)
        part = types.Part(function_call=call)
    elif content["type"] == "function_result":
        answer = {"result": content["result"]}
        part = types.Part(
            function_response=types.FunctionResponse(id=content["call_id"], name="search_documents", response=answer)
        )
    else:
        part = types.Part(text=content["text"])
    author = "user" if role == "user" else "assistant"
    return Event(invocation_id="turn", author=author, content=types.Content(role=role, parts=[part]))
