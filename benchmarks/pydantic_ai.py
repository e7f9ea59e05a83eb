"""Is a turn of Pydantic AI on our conversation store flat, and a load never slower than on the framework's own?

The framework ships one store, in memory. For information: what its chat example does, which keeps no conversations but
the messages of each run as a row of JSON.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from pydantic_ai import Conversation
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from agentstore import open_store
from agentstore.adapters.pydantic_ai import StoreConversationStore
from agentstore.adapters.pydantic_ai_codec import EntryCodec, Link, messages_of
from benchmarks.postgres_server import new_database
from benchmarks.report import Goal, Report, milliseconds
from benchmarks.sample import Shape, turn_shapes
from benchmarks.timing import Contender, Rounds, by_turns, medians, ratio

LONG = 10_000
LOADED = 1000
SHOWN = 20
_BEHIND = LONG


def run(folder: Path, quick: bool) -> Report:
    rounds = 60 if quick else 200
    report = Report(f"Pydantic AI: a turn of four messages on a conversation of {LONG:,}, and a load of {LOADED:,}")
    turns, loads, rows, decoding = asyncio.run(_on_sqlite(folder, rounds))
    ours, memory, json_rows = medians(loads)
    codec, adapter = medians(decoding)
    save, row = medians(rows)
    report.lines += [
        *_turn_lines("SQLite", turns),
        (f"SQLite: load {LOADED:,}", milliseconds(ours)),
        (f"load {LOADED:,}, InMemoryConversationStore", milliseconds(memory)),
        (f"for information: decode {LOADED:,} payloads", milliseconds(codec)),
        (f"for information: ModelMessagesTypeAdapter, {LOADED:,}", milliseconds(adapter)),
        ("for information, SQLite: save alone", milliseconds(save)),
        ("for information, SQLite: insert a row of JSON", milliseconds(row)),
        (f"for information, SQLite: load {LOADED:,} from such rows", milliseconds(json_rows)),
    ]
    report.goals += [
        Goal(f"SQLite: {LONG:,} against empty", ratio(turns, 1, to=0), 1.3),
        Goal("a load against InMemoryConversationStore", ratio(loads, 0, to=1), 1),
    ]
    turns = asyncio.run(_on_postgres(new_database("pydantic"), rounds))
    report.lines += _turn_lines("PostgreSQL", turns)
    report.goals.append(Goal(f"PostgreSQL: {LONG:,} against empty", ratio(turns, 1, to=0), 1.3))
    return report


def _turn_lines(server: str, turns: Rounds) -> list[tuple[str, str]]:
    empty, long = medians(turns)
    return [
        (f"{server}: a turn on an empty conversation", milliseconds(empty)),
        (f"{server}: a turn on {LONG:,}", milliseconds(long)),
    ]


async def _on_sqlite(folder: Path, rounds: int) -> tuple[Rounds, Rounds, Rounds, Rounds]:
    async with open_store(f"sqlite:///{folder}/ours.db") as history:
        store = StoreConversationStore(history)
        turns = await _turns(store, rounds)
        memory, rows = InMemoryConversationStore(), Rows(folder / "theirs.db")
        await _fill(store, "loaded", LOADED)
        await _fill(memory, "loaded", LOADED)
        for start in range(0, LOADED, 4):
            rows.add(_messages(start, 4))
        conversation = await store.load("long", limit=SHOWN)
        assert conversation is not None

        async def save(number: int) -> None:
            conversation.messages += _turn(_BEHIND + number)
            await store.save(conversation)

        async def add_row(number: int) -> None:
            await asyncio.to_thread(rows.add, _turn(_BEHIND + number))

        saves = await by_turns(range(rounds), save, add_row)
        loads = await by_turns(range(max(10, rounds // 4)), _load(store), _load(memory), _load_rows(rows))
        rows.close()
        decoding = await by_turns(range(max(10, rounds // 4)), *_decoders())
        return turns, loads, saves, decoding


async def _on_postgres(url: str, rounds: int) -> Rounds:
    async with open_store(url) as history:
        return await _turns(StoreConversationStore(history), rounds)


async def _turns(store: StoreConversationStore, rounds: int) -> Rounds:
    await _fill(store, "long", LONG)
    await _fill(store, "empty", 4)
    return await by_turns(range(rounds), _turn_on(store, "empty"), _turn_on(store, "long"))


def _turn_on(store: ConversationStore, conversation_id: str) -> Contender:
    async def turn(number: int) -> None:
        conversation = await store.load(conversation_id, limit=SHOWN)
        assert conversation is not None
        conversation.messages += _turn(_BEHIND + number)
        await store.save(conversation)

    return turn


def _load(store: ConversationStore) -> Contender:
    async def load(number: int) -> None:
        await store.load("loaded")

    return load


def _load_rows(rows: Rows) -> Contender:
    async def load(number: int) -> None:
        await asyncio.to_thread(rows.load)

    return load


def _decoders() -> tuple[Contender, Contender]:
    codec, messages = EntryCodec(), _messages(0, LOADED)
    payloads = [codec.encode(Link("id", None, None, message)).payload for message in messages]
    texts = [ModelMessagesTypeAdapter.dump_json([message]) for message in messages]

    async def ours(number: int) -> list[ModelMessage]:
        return messages_of([codec.decode(payload).message for payload in payloads])

    async def theirs(number: int) -> list[ModelMessage]:
        return [ModelMessagesTypeAdapter.validate_json(text)[0] for text in texts]

    return ours, theirs


class Rows:
    """One conversation of the framework's documented way: each run's messages as a row of JSON."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")  # as durable as we are
        self._connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, list TEXT)")

    def add(self, messages: list[ModelMessage]) -> None:
        with self._connection:
            row = (ModelMessagesTypeAdapter.dump_json(messages),)
            self._connection.execute("INSERT INTO messages (list) VALUES (?)", row)

    def load(self) -> list[ModelMessage]:
        rows = self._connection.execute("SELECT list FROM messages ORDER BY id")
        return [message for (row,) in rows for message in ModelMessagesTypeAdapter.validate_json(row)]

    def close(self) -> None:
        self._connection.close()


async def _fill(store: ConversationStore, conversation_id: str, count: int) -> None:
    for start in range(0, count, LOADED):
        conversation = await store.load(conversation_id, limit=0) or Conversation(conversation_id=conversation_id)
        conversation.messages += _messages(start, min(LOADED, count - start))
        await store.save(conversation)


def _messages(start: int, count: int) -> list[ModelMessage]:
    return [message for number in range(start // 4, (start + count) // 4) for message in _turn(number)]


def _turn(number: int) -> list[ModelMessage]:
    return [_message(shape) for shape in turn_shapes(number)]


def _message(shape: Shape) -> ModelMessage:
    content = shape["contents"][0]
    if content["type"] == "function_call":
        return ModelResponse(parts=[ToolCallPart(content["name"], content["arguments"], content["call_id"])])
    if content["type"] == "function_result":
        return ModelRequest(parts=[ToolReturnPart("search_documents", content["result"], content["call_id"])])
    if shape["role"] == "user":
        return ModelRequest(parts=[UserPromptPart(content["text"])])
    return ModelResponse(parts=[TextPart(content["text"])])
