"""Reducers: functions that make a history shorter, in whole units, at each load or once and for all (`compact`)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agentstore.windows import SUMMARY, Budget, divide, is_summary

Summarizer = Callable[[list[Any]], Any]
"""Gets the older messages, oldest first, and gives a text or a message for them; sync or async."""


def keep_newest(
    max_messages: int | None = None,
    *,
    max_tokens: int | None = None,
    count_tokens: Callable[[Any], int] | None = None,
    keep_system: bool = True,
) -> Callable[[list[Any]], list[Any]]:
    """A reducer that keeps the newest units which fit both limits, and the system messages at the beginning.

    The newest unit is always whole, even if it is larger than the limits; a limit of 0 keeps nothing. Tokens are
    counted per message, by default roughly (`agentstore.windows.estimate_tokens`). Raises `ValueError` without a limit,
    or for one below 0.
    """
    budget = _limited(max_messages, max_tokens, count_tokens)

    def reduce(messages: list[Any]) -> list[Any]:
        parts = divide(messages, budget, keep_system=keep_system)
        return [*parts.system, *parts.newest]

    return reduce


def summarize(
    summarizer: Summarizer,
    max_messages: int | None = None,
    *,
    max_tokens: int | None = None,
    count_tokens: Callable[[Any], int] | None = None,
    keep_system: bool = True,
    threshold: int = 1,
) -> Callable[[list[Any]], Awaitable[list[Any]]]:
    """A reducer that keeps what `keep_newest` keeps, and puts a summary in the place of what is older.

    `summarizer` is called once at least `threshold` messages are older than what fits; until then nothing changes. It
    gets all of them, an earlier summary first. A text becomes a system message; whatever it gives is marked with
    `additional_properties["summary"]`. The summary comes on top of the limits.

    The reducer raises what the summarizer raises, and `ValueError` for an empty summary. As a provider's `reducer` it
    summarizes anew at each load: with a model behind it, use it with `compact`.
    """
    budget = _limited(max_messages, max_tokens, count_tokens)
    if type(threshold) is not int or threshold < 1:
        raise ValueError("threshold must be an int of at least 1")

    async def reduce(messages: list[Any]) -> list[Any]:
        parts = divide(messages, budget, keep_system=keep_system)
        if sum(not is_summary(message) for message in parts.older) < threshold:
            return messages
        given = summarizer(list(parts.older))
        summary = _marked(await given if inspect.isawaitable(given) else given, parts.older)
        return [*parts.system, summary, *parts.newest]

    return reduce


def _limited(max_messages: int | None, max_tokens: int | None, count_tokens: Callable[[Any], int] | None) -> Budget:
    budget = Budget(max_messages, max_tokens, count_tokens)
    if budget.unlimited:
        raise ValueError("a reducer needs a limit: max_messages or max_tokens")
    return budget


def _marked(given: Any, older: Sequence[Any]) -> Any:
    """The summary as a message of the history's own kind, with its mark."""
    if isinstance(given, str):
        summary = type(older[-1])("system", [given])
    elif hasattr(given, "contents"):
        summary = copy.copy(given)
    else:
        raise TypeError(f"a summarizer gives a str or a message, not {type(given).__name__}")
    if all(content.type == "text" and not (content.text or "").strip() for content in summary.contents):
        raise ValueError("the summary is empty: what it stands for would be lost")
    summary.additional_properties = {**(summary.additional_properties or {}), SUMMARY: True}
    return summary
