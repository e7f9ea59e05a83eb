"""Calls and results as OpenAI's interfaces take them: each call with its result, right behind it."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from agentstore.messages import Content, Message


def in_pairs(messages: Sequence[Message]) -> list[Message]:
    """The conversation with each result right behind the message that called for it.

    One that came later, because the call waited for the user's approval, stands there too; a call that still waits is
    left out for now. A result whose call is not among the messages (the service has it) stays in its place.
    """
    results = _results_by_caller(messages)
    moved = {id(content) for found in results.values() for _, content in found}
    answered = {id(call) for found in results.values() for call, _ in found}
    paired: list[Message] = []
    for place, message in enumerate(messages):
        kept = [content for content in message.contents if _stays(content, moved, answered)]
        paired += [_with(message, kept)] if kept else []
        if place in results:
            paired.append(Message("tool", [content for _, content in results[place]]))
    return paired


def _results_by_caller(messages: Sequence[Message]) -> dict[int, list[tuple[Content, Content]]]:
    """By the place of the calling message, its calls with their results, in the order of the results."""
    waiting: dict[Any, list[tuple[int, Content]]] = defaultdict(list)
    found: dict[int, list[tuple[Content, Content]]] = defaultdict(list)
    for place, message in enumerate(messages):
        for content in message.contents:
            call_id = content.get("call_id")
            if content.type == "function_call":
                waiting[call_id].append((place, content))
            elif content.type == "function_result" and waiting[call_id]:
                caller, call = waiting[call_id].pop()
                found[caller].append((call, content))
    return found


def _stays(content: Content, moved: set[int], answered: set[int]) -> bool:
    return id(content) in answered if content.type == "function_call" else id(content) not in moved


def _with(message: Message, contents: list[Content]) -> Message:
    if len(contents) == len(message.contents):
        return message
    part = copy.copy(message)
    part.contents = contents
    return part
