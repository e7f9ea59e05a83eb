"""What the frameworks' converters to and from core messages share: marks, opaque contents, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agentstore import values
from agentstore.codec import OPAQUE
from agentstore.messages import Content, Message

ROLE = "role"
"""In a content's `additional_properties`: who says it, where that is another than its message's role."""


def marked(content: Content, role: str, of_message: str) -> Content:
    """The content, marked with its role if the message has another."""
    if role != of_message:
        content.additional_properties = {**(content.get("additional_properties") or {}), ROLE: role}
    return content


def role_of(message: Message, content: Content) -> str:
    """Who says the content."""
    properties = content.get("additional_properties")
    own = properties.get(ROLE) if isinstance(properties, dict) else None
    return own if type(own) is str else message.role


def text_in(content: Content, name: str) -> str:
    """The field, where it is a text: anybody can store anything in a message."""
    text = content.get(name)
    return text if type(text) is str else ""


def opaque(format: str, value: Any) -> Content:
    """A content for a value of the format that has no counterpart."""
    return Content(OPAQUE, format=format, payload=values.dump(value))


def opened(content: Content, format: str) -> list[Any]:
    """The value for which `opaque` made the content; none where it is another format's, or cannot be read."""
    payload = content.get("payload")
    if content.type != OPAQUE or content.get("format") != format or type(payload) is not bytes:
        return []
    try:
        return [values.load(payload)]
    except ValueError:
        return []


def original(message: Message, format: str, convert: Callable[[Any], Message]) -> Any:
    """The object of the format of which `convert` made the message, unless somebody changed it; else `None`."""
    if format not in message.additional_properties:
        return None
    kept = message.additional_properties[format]
    try:
        made = convert(kept)
    except ValueError:  # anybody can give a message any properties
        return None
    return kept if (made.role, made.contents) == (message.role, message.contents) else None


def contents_in(items: Any) -> list[Content]:
    """The contents in a content's list, as objects."""
    if not isinstance(items, list | tuple):
        return []
    objects = [Content.from_dict(item) if _is_shape(item) else item for item in items]
    return [item for item in objects if isinstance(item, Content)]


def _is_shape(item: Any) -> bool:
    return isinstance(item, dict) and type(item.get("type")) is str


def kind_of(content: Content) -> str:
    """What to call the content in a report of what was left out."""
    return str(content.get("format") or content.type)


def text_of_json(value: Any) -> str:
    """A text as it is, nothing as an empty one, any other value as JSON."""
    if type(value) is str:
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
