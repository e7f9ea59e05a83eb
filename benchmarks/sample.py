"""The messages that are measured: turns of a user's text, a tool call, its result of 1 KB, and an answer.

Their JSON has 1 KB a message on average, as the Agent Framework writes it: a result stands twice in its message.
"""

from __future__ import annotations

from random import Random
from typing import Any

from agentstore import Message, SessionHistory

TURN = 4
_FILL = 500  # messages per append while a session is filled
_WORDS = ("agent", "history", "turn", "window", "answer", "question", "weather", "harbour", "train", "paper", "seven")

Shape = dict[str, Any]


def turn_shapes(number: int) -> list[Shape]:
    """The turn's messages as dicts, without ids."""
    random = Random(number)
    result, call = _text(random, 1160), f"call_{number:08d}"
    arguments = f'{{"query": "{_text(random, 180)}", "limit": 20}}'
    return [
        _message("user", {"type": "text", "text": _text(random, 220)}),
        _message(
            "assistant",
            {"type": "function_call", "call_id": call, "name": "search_documents", "arguments": arguments},
        ),
        _message(
            "tool",
            {
                "type": "function_result",
                "call_id": call,
                "result": result,
                "items": [{"type": "text", "text": result}],
            },
        ),
        _message("assistant", {"type": "text", "text": _text(random, 660)}),
    ]


def turn(number: int) -> list[Message]:
    """The turn as new message objects, without ids."""
    return [Message.from_dict(shape) for shape in turn_shapes(number)]


def shapes(count: int) -> list[Shape]:
    """That many messages of successive turns, as dicts."""
    return [shape for number in range(count // TURN) for shape in turn_shapes(number)]


async def fill(chat: SessionHistory, count: int) -> None:
    """Append that many messages, many at once."""
    for start in range(0, count, _FILL):
        numbers = range(start // TURN, min(start + _FILL, count) // TURN)
        await chat.append([message for number in numbers for message in turn(number)])


def _message(role: str, content: Shape) -> Shape:
    return {"type": "message", "role": role, "contents": [content], "additional_properties": {}}


def _text(random: Random, length: int) -> str:
    return " ".join(random.choices(_WORDS, k=length // 5))[:length]
