"""The Microsoft Agent Framework's messages in the core's stored form: core and adapter read each other's records.

A shape is built from an object's attributes, not by its `to_dict()`, which drops bytes and tuples and turns datetimes
into text. Back, contents of the common kinds are built directly, equal to what `Content.from_dict` gives; the rest goes
through it. What the installed framework does not know stays in the store and is left out of the object.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

from agent_framework import Content, Message
from agent_framework.exceptions import ContentError

from agentstore.adapters.downcast import encoded_or_downcast
from agentstore.codec import Encoded, decode_shape, encode_shape
from agentstore.errors import UnsupportedValueError

ATTRIBUTION = "_attribution"
"""The mark in a message's `additional_properties` that tells which provider loaded it; never stored."""

_logger = logging.getLogger("agentstore")


class AgentFrameworkCodec:
    """`agent_framework.Message` objects in the form `agentstore/1`."""

    format = "agentstore/1"

    def encode(self, obj: Message, /) -> Encoded:
        return encoded_or_downcast(encode_shape, message_shape(obj))

    def decode(self, payload: bytes, /) -> Message:
        return build_message(decode_shape(payload))

    def assign_id(self, obj: Message, message_id: str, /) -> bool:
        obj.message_id = message_id
        return True

    def find_id(self, obj: Message, /) -> str | None:
        return obj.message_id


def message_shape(message: Message) -> dict[str, Any]:
    """The message as the dict shape that both libraries share."""
    if not isinstance(message, Message):
        raise UnsupportedValueError(f"a history takes agent_framework.Message objects, not {type(message).__name__}")
    shape: dict[str, Any] = {
        "type": "message",
        "role": message.role,
        "contents": [_content_shape(content) for content in message.contents],
    }
    if message.author_name is not None:
        shape["author_name"] = message.author_name
    if message.message_id is not None:
        shape["message_id"] = message.message_id
    properties = message.additional_properties
    if ATTRIBUTION in properties:
        properties = {name: value for name, value in properties.items() if name != ATTRIBUTION}
    shape["additional_properties"] = _nested(properties)
    return shape


def build_message(shape: Mapping[str, Any]) -> Message:
    """The message that the shape describes, without what this version of the framework does not know (logged)."""
    unknown = {f"message.{name}" for name in shape if name not in _MESSAGE_FIELDS}
    message = Message(
        shape["role"],
        author_name=shape.get("author_name"),
        message_id=shape.get("message_id"),
        additional_properties=shape.get("additional_properties"),
    )
    message.contents = [_build_content(content, unknown) for content in shape["contents"]]
    if unknown:
        names = ", ".join(sorted(unknown))
        _logger.warning("left out of a loaded message, kept in the store: %s, unknown to this agent_framework", names)
    return message


def _content_shape(content: Content) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": content.type}
    for name, value in vars(content).items():
        if value is not None and name not in _NOT_STORED:
            shape[name] = value if type(value) is str else _nested(value)
    if not shape.get("informational_only") or content.type not in _INFORMATIONAL:
        shape.pop("informational_only", None)
    if annotations := shape.get("annotations"):
        shape["annotations"] = [{k: v for k, v in item.items() if k != "raw_representation"} for item in annotations]
    if "exception" in shape:
        # The framework keeps diagnostics out of what is stored: they may hold secrets.
        shape["exception"] = content.to_dict()["exception"]
    return shape


def _nested(value: Any) -> Any:
    """The value with the contents in it as dicts."""
    kind = type(value)
    if kind is Content:
        return _content_shape(value)
    if kind is dict:
        return {name: _nested(item) for name, item in value.items()}
    if kind is list:
        return [_nested(item) for item in value]
    return value


def _build_content(shape: Any, unknown: set[str]) -> Content:
    if type(shape) is not dict:
        raise ValueError("a content must be a JSON object")
    if _is_direct(shape):
        return _build_directly(shape, unknown)
    strange = [name for name in shape if name not in _CONTENT_FIELDS]
    unknown.update([f"{shape.get('type')}.{name}" for name in strange])
    known = {name: value for name, value in shape.items() if name in _CONTENT_FIELDS}
    try:
        return Content.from_dict(known)
    except ContentError as error:
        raise ValueError(f"not a content of agent_framework: {error}") from error


def _is_direct(shape: dict[str, Any]) -> bool:
    """Whether `Content.from_dict` would do nothing but set these fields."""
    direct = _DIRECT.get(shape.get("type", ""))
    if direct is None or not shape.keys() <= direct:
        return False
    properties = shape.get("additional_properties", {})
    return (
        type(properties) is dict
        and "server_label" not in properties
        and type(shape.get("hosted", False)) is bool
        and type(shape.get("text", "")) is str
        and type(shape.get("items", [])) is list
    )


def _build_directly(shape: dict[str, Any], unknown: set[str]) -> Content:
    content = Content.__new__(Content)
    fields = vars(content)
    fields.update(_TEMPLATES[shape["type"]])
    fields.update(shape)
    fields["additional_properties"] = {
        name: dict(value) if type(value) is dict else value
        for name, value in shape.get("additional_properties", {}).items()
    }
    if "items" in shape:
        items = shape["items"]
        fields["items"] = [_build_content(item, unknown) if type(item) is dict else item for item in items]
    return content


_MESSAGE_FIELDS = frozenset(inspect.signature(Message).parameters) | {"type"}
_CONTENT_FIELDS = frozenset(inspect.signature(Content).parameters) | {"type", "data"}
_COMMON = frozenset({"type", "annotations", "additional_properties"})
_DIRECT: dict[str, frozenset[str]] = {
    "text": _COMMON | {"text"},
    "text_reasoning": _COMMON | {"id", "text", "protected_data"},
    "function_call": _COMMON | {"id", "call_id", "name", "arguments", "hosted"},
    "function_result": _COMMON | {"call_id", "name", "result", "items"},
}
_TEMPLATES = {kind: vars(Content.from_dict({"type": kind})) for kind in _DIRECT}
_NOT_STORED = frozenset({"type", "raw_representation"})
_INFORMATIONAL = ("function_call", "computer_tool_call")
