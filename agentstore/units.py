"""Units: what of a history belongs together. A call without its results, or a result without its call, is of no use.

Works on any messages with `role` and `contents` whose contents have a `type`: the core's and the Agent Framework's.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from agentstore.codec import OPAQUE

M = TypeVar("M")

Key = tuple[str, Any]  # what joins a call and its result: the kind of call, and the call's id


class Pairing(NamedTuple):
    reach: list[int]
    """For each message, the last one that must stay with it."""
    orphans: dict[int, set[int]]
    """By message, the places of contents that answer a call which is not there, or that nobody can read."""


def units(messages: Sequence[M]) -> list[list[M]]:
    """The messages in runs of neighbours that only go together.

    A unit is a message with calls and all their results, with whatever stands between; a reasoning item and what
    follows it; an approval with its request and the call's result; or one plain message. Calls and results pair up by
    id, each occurrence once: a result belongs to the nearest open call before it.
    """
    return [list(messages[start:stop]) for start, stop in spans(pair(messages).reach)]


def without_orphans(messages: Sequence[M]) -> list[M]:
    """The messages without results (and answers to approvals) whose call is not among them, and without the opaque.

    A message of which nothing is left is left out; one of which something is left is copied.
    """
    return [message for _, message in cleaned(messages, pair(messages).orphans)]


def clean_units(messages: Sequence[M], pairing: Pairing) -> list[list[tuple[int, M]]]:
    """The units without orphans, as far as something is left of them; each message with its place."""
    reach, orphans = pairing
    kept = dict(cleaned(messages, orphans))
    parts = [[(place, kept[place]) for place in range(*span) if place in kept] for span in spans(reach)]
    return [part for part in parts if part]


def without_open_calls(messages: Sequence[M], following: Sequence[Any] = ()) -> list[M]:
    """The messages without function calls that nothing answers, neither among them nor in what follows.

    A failed run can leave one, and no model takes a conversation with it. One that waits for an approval stays.
    """
    kept = cleaned(messages, open_calls([*messages, *following]))
    return [message for _, message in kept]


def open_calls(messages: Sequence[Any]) -> dict[int, set[int]]:
    """By message, the places of function calls without a result, unless an approval is pending for them."""
    unanswered: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    asked: set[Any] = set()
    for index, message in enumerate(messages):
        for place, content in enumerate(message.contents):
            if content.type == "function_call" and not field(content, "hosted"):
                unanswered[_id(content, "call_id")].append((index, place))
            elif content.type == "function_approval_request":
                asked.add(_id(field(content, "function_call"), "call_id"))
            elif content.type == "function_result" and unanswered[_id(content, "call_id")]:
                unanswered[_id(content, "call_id")].pop()
    found: dict[int, set[int]] = defaultdict(set)
    for call_id, places in unanswered.items():
        for index, place in places if call_id not in asked else ():
            found[index].add(place)
    return found


def pair(messages: Sequence[Any]) -> Pairing:
    """Who belongs with whom; for the newest part of a history the same as for all of it, but for its orphans."""
    reach = list(range(len(messages)))
    orphans: dict[int, set[int]] = defaultdict(set)
    pending: dict[Key, list[int]] = defaultdict(list)  # the messages with open calls, oldest first
    for index, message in enumerate(messages):
        reach[index] = max(reach[index], _follower(messages, index))
        for place, content in enumerate(message.contents):
            if content.type == OPAQUE:  # no model can read it
                orphans[index].add(place)
                continue
            _open(pending, content, index)
            if (key := _answered(content)) is None:
                continue
            if pending[key]:
                caller = pending[key].pop()
                reach[caller] = max(reach[caller], index)
            else:
                orphans[index].add(place)
    return Pairing(reach, orphans)


def _open(pending: dict[Key, list[int]], content: Any, index: int) -> None:
    if (key := _called(content)) is not None:
        pending[key].append(index)
    if content.type != "function_approval_request":
        return
    call = field(content, "function_call")
    key = ("function", _id(call, "call_id"))
    # A request repeats the call that it is about, often beside it in the same message.
    if call is not None and pending[key][-1:] != [index]:
        pending[key].append(index)


def _called(content: Any) -> Key | None:
    if content.type == "function_approval_request":
        return ("approval", _id(content, "id"))
    return _pair_key(content, "call")


def _answered(content: Any) -> Key | None:
    if content.type == "function_approval_response":
        return ("approval", _id(content, "id"))
    return _pair_key(content, "result")


def _pair_key(content: Any, end: str) -> Key | None:
    kind, _, last = content.type.rpartition("_")
    if last != end:
        return None
    call_id = _id(content, "call_id")
    # A hosted tool's result may stand alone, then without an id; a function's never does.
    return (kind, call_id) if call_id or kind == "function" else None


def _follower(messages: Sequence[Any], index: int) -> int:
    """The message that must follow this one: the next of the model's behind reasoning, else itself."""
    contents = messages[index].contents
    if not contents or contents[-1].type != "text_reasoning":
        return index
    after = range(index + 1, len(messages))
    following = next((place for place in after if messages[place].role != "tool"), index)
    return following if messages[following].role == "assistant" else index


def spans(reach: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Start and stop of each unit."""
    start, end = 0, -1
    for index, farthest in enumerate(reach):
        if index > end and index:
            yield start, index
            start = index
        end = max(end, farthest)
    if reach:
        yield start, len(reach)


def cleaned(messages: Sequence[Any], orphans: Mapping[int, set[int]]) -> list[tuple[int, Any]]:
    """The messages without their orphans, each with its place."""
    kept: list[tuple[int, Any]] = []
    for index, message in enumerate(messages):
        if index not in orphans:
            kept.append((index, message))
        elif contents := [c for place, c in enumerate(message.contents) if place not in orphans[index]]:
            rest = copy.copy(message)
            rest.contents = contents
            kept.append((index, rest))
    return kept


def field(value: Any, name: str) -> Any:
    """A field of a content, or of a content in plain form; `None` where it is missing."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _id(value: Any, name: str) -> str | None:
    """As `field`, of an id: what is no text is none."""
    found = field(value, name)
    return found if type(found) is str else None
