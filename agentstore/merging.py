"""Streamed updates become whole messages again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from agentstore.messages import Content, Message

_JOINED = frozenset({"text", "text_reasoning"})


class Update(Protocol):
    """A part of an answer, as far as its messages go."""

    contents: list[Content]
    role: str | None
    author_name: str | None
    message_id: str | None
    additional_properties: dict[str, Any]


class Merger:
    """The messages of the updates that were added so far, and the tokens that they report.

    An update belongs to the newest message unless its id, role or author is another one. A text goes on where the
    update before ended with one, and a function call's arguments where an earlier update began the call; contents of
    one update stay apart. Usage is summed up and stands in no message.
    """

    def __init__(self, updates: Iterable[Update] = ()) -> None:
        self.messages: list[Message] = []
        self.usage_details: dict[str, int] = {}
        for update in updates:
            self.add(update)

    def add(self, update: Update) -> None:
        """Go on with the next update; it stays as it is."""
        usage = [content for content in update.contents if content.type == "usage"]
        self.usage_details = add_usage(self.usage_details, *[content.get("usage_details") for content in usage])
        contents = [content for content in update.contents if content.type != "usage"]
        if not contents and not update.role:
            return
        message = self._message_of(update)
        message.author_name = update.author_name or message.author_name
        message.message_id = update.message_id or message.message_id
        message.additional_properties.update(update.additional_properties)
        if contents and (joined := _continued(message.contents, contents[0])) is not None:
            message.contents[-1] = joined
            del contents[0]
        begun = [content for content in message.contents if content.type == "function_call"]
        for content in contents:
            _add_content(message.contents, begun, content)

    def _message_of(self, update: Update) -> Message:
        newest = self.messages[-1] if self.messages else None
        if newest is None or _is_another(newest, update):
            newest = Message(update.role or "assistant")
            self.messages.append(newest)
        return newest


def add_usage(*reports: Mapping[str, Any] | None) -> dict[str, int]:
    """The sum of token counts by name; what is no number is left out."""
    total: dict[str, int] = {}
    for report in reports:
        for name, count in (report or {}).items():
            if isinstance(count, int):
                total[name] = total.get(name, 0) + count
    return total


def _is_another(message: Message, update: Update) -> bool:
    pairs = (
        (message.role, update.role),
        (message.message_id, update.message_id),
        (message.author_name, update.author_name),
    )
    return any(known and new and known != new for known, new in pairs)


def _continued(contents: list[Content], content: Content) -> Content | None:
    """The newest content with this text behind it; `None` where that is no text of its kind."""
    newest = contents[-1] if contents else None
    if newest is None or content.type not in _JOINED or newest.type != content.type:
        return None
    known, new = newest.get("id"), content.get("id")
    if known and new and known != new:  # reasoning items have ids of their own
        return None
    # Fields beside the text, such as the signature with which reasoning ends, may come with any piece.
    fields = {name: value for name, value in content.shape().items() if value is not None}
    text = (newest.get("text") or "") + (content.get("text") or "")
    return Content.from_dict({**newest.shape(), **fields, "text": text})


def _add_content(contents: list[Content], begun: list[Content], content: Content) -> None:
    call = _same_call(begun, content) if content.type == "function_call" else None
    if call is None:
        contents.append(copy.copy(content))
        return
    call.arguments = _joined(call.get("arguments"), content.get("arguments"))
    call.name = call.get("name") or content.get("name")


def _same_call(calls: list[Content], content: Content) -> Content | None:
    """The call that this piece goes on with: of its id, or, without one, the newest."""
    call_id = content.get("call_id")
    if not call_id:
        return calls[-1] if calls else None
    return next((known for known in reversed(calls) if known.get("call_id") == call_id), None)


def _joined(known: Any, more: Any) -> Any:
    if not known or not more:
        return known or more
    if isinstance(known, str) and isinstance(more, str):
        return known + more
    return {**_as_mapping(known), **_as_mapping(more)}


def _as_mapping(arguments: Any) -> dict[str, Any]:
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    return dict(value)
