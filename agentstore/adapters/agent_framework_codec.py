"""The Microsoft Agent Framework's messages in the core's stored form: core and adapter read each other's records.

A shape is built from an object's attributes, not by its `to_dict()`, which drops bytes and tuples and turns datetimes
into text. Back, contents of the common kinds are built directly, equal to what `Content.from_dict` gives; the rest goes
through it. What the installed framework does not know stays in the store and is left out of the object.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent_framework import Content, Message
from agent_framework.exceptions import ContentError

from agentstore import messages
from agentstore.adapters.downcast import downcast, log_downcast, text_of
from agentstore.codec import Encoded, MessageCodec, decode_shape, encode_shape
from agentstore.errors import UnsupportedValueError
from agentstore.session import ATTRIBUTION
from agentstore.values import MAX_DEPTH, on_any_stack

_logger = logging.getLogger("agentstore")


class AgentFrameworkCodec:
    """`agent_framework.Message` objects in the form `agentstore/1`."""

    format = "agentstore/1"

    def encode(self, obj: Message | messages.Message, /) -> Encoded:
        if isinstance(obj, messages.Message):
            return MessageCodec().encode(obj)  # such a one stands for a record in another library's format
        if not isinstance(obj, Message):
            raise UnsupportedValueError(f"a history takes agent_framework.Message objects, not {type(obj).__name__}")
        return on_any_stack(_encode, obj)

    def decode(self, payload: bytes, /) -> Message:
        return on_any_stack(build_message, decode_shape(payload))

    def assign_id(self, obj: Message, message_id: str, /) -> bool:
        obj.message_id = message_id
        return True

    def find_id(self, obj: Message, /) -> str | None:
        return obj.message_id or None  # some services answer with an empty one


def native(message: Message | messages.Message) -> Message:
    """The framework's message for one of the core's, which stands for a record in another library's format."""
    return build_message(message.to_dict()) if isinstance(message, messages.Message) else message


def _encode(message: Message) -> Encoded:
    try:
        return encode_shape(message_shape(message, _nested))
    except UnsupportedValueError as error:
        log_downcast(error)
    shape = downcast(message_shape(message, _same), _fields_of_content)
    shape.update([(name, text_of(shape[name])) for name in _TEXTS if name in shape])
    return encode_shape(shape)


def message_shape(message: Message, nested: Callable[[Any], Any]) -> dict[str, Any]:
    """The message as the dict shape that both libraries share; `nested` makes what its fields hold."""
    shape: dict[str, Any] = {
        "type": "message",
        "role": message.role,
        "contents": [_content_shape(content, nested) for content in message.contents],
    }
    if message.author_name is not None:
        shape["author_name"] = message.author_name
    if message.message_id:
        shape["message_id"] = message.message_id
    properties = message.additional_properties or {}
    if ATTRIBUTION in properties:
        properties = {name: value for name, value in properties.items() if name != ATTRIBUTION}
    shape["additional_properties"] = nested(properties) if properties else {}
    return shape


def _content_shape(content: Content, nested: Callable[[Any], Any]) -> dict[str, Any]:
    shape = {name: value for name, value in vars(content).items() if value is not None}
    shape.pop("raw_representation", None)
    if not shape.get("informational_only") or shape["type"] not in _INFORMATIONAL:
        shape.pop("informational_only", None)
    if "annotations" in shape:
        shape["annotations"] = [_without_raw(annotation) for annotation in shape["annotations"]]
    if "exception" in shape:
        shape["exception"] = _FAILED  # as the framework has it: diagnostics may hold secrets
    for name, value in shape.items():
        if type(value) is not str:
            shape[name] = nested(value)
    return shape


def _without_raw(annotation: Any) -> Any:
    if not isinstance(annotation, Mapping):
        return annotation
    return {name: value for name, value in annotation.items() if name != "raw_representation"}


def _fields_of_content(value: Any) -> dict[str, Any] | None:
    return _content_shape(value, _same) if isinstance(value, Content) else None


def _same(value: Any) -> Any:
    return value


def _nested(value: Any, depth: int = 0) -> Any:
    """The value with the contents in it as dicts."""
    kind = type(value)
    if kind not in _NESTING:
        return value
    if depth > MAX_DEPTH:  # no later than the core: what contains itself must not be walked for ever
        raise UnsupportedValueError(f"a value is nested deeper than {MAX_DEPTH} levels")
    if kind is dict:
        return {name: item if type(item) is str else _nested(item, depth + 1) for name, item in value.items()}
    if kind is Content:
        return _content_shape(value, lambda inner: _nested(inner, depth + 1))
    items = [_nested(item, depth + 1) for item in value]
    return items if kind is list else tuple(items)


def build_message(shape: Mapping[str, Any]) -> Message:
    """The message that the shape describes, without what this version of the framework does not know (logged).

    Nothing of the shape is copied. Raises `ValueError` where it describes no message.
    """
    role, contents, properties = shape.get("role"), shape.get("contents"), shape.get("additional_properties")
    author_name, message_id = shape.get("author_name"), shape.get("message_id")
    if type(role) is not str or type(author_name) not in _TEXT or type(message_id) not in _TEXT:
        raise ValueError("a message's 'role' must be a str, and 'author_name' and 'message_id' too where present")
    if type(contents) is not list or type(properties) not in _DICT:
        raise ValueError("a message's 'contents' must be a list, and its 'additional_properties' an object")
    unknown: set[str] = set()
    message = Message.__new__(Message)
    message.role = role
    message.contents = [built for given in contents if (built := _build_content(given, unknown)) is not None]
    message.author_name = author_name
    message.message_id = message_id
    message.additional_properties = {} if properties is None else properties
    message.raw_representation = None
    if unknown or not _MESSAGE_FIELDS.issuperset(shape):
        _log_unknown(unknown.union([f"message.{name}" for name in shape if name not in _MESSAGE_FIELDS]))
    return message


def _log_unknown(names: set[str]) -> None:
    _logger.warning(
        "left out of a loaded message, kept in the store: %s, unknown to this agent_framework", ", ".join(sorted(names))
    )


def _build_content(shape: Any, unknown: set[str]) -> Content | None:
    """The content that the shape describes; `None` where the framework knows no such one."""
    if type(shape) is not dict or type(kind := shape.get("type")) is not str:
        raise ValueError("a content must be an object with a 'type'")
    direct = _find_direct(kind, shape)
    if direct is None:
        return _build_from_dict(kind, shape, unknown)
    content = Content.__new__(Content)
    content.__dict__ = fields = direct.template | shape
    if "additional_properties" not in shape:
        fields["additional_properties"] = {}
    if "items" in shape:
        fields["items"] = _build_items(shape["items"], unknown)
    return content


def _find_direct(kind: str, shape: dict[str, Any]) -> _Direct | None:
    """The way to build the content directly, if `Content.from_dict` would do nothing but set these fields."""
    direct = _DIRECT.get(kind)
    if direct is None or not direct.fields.issuperset(shape):
        return None
    for name, exact in direct.kinds:
        if name in shape and type(shape[name]) is not exact:
            return None
    properties = shape.get("additional_properties", _NO_PROPERTIES)
    return direct if type(properties) is dict and "server_label" not in properties else None


def _build_from_dict(kind: str, shape: dict[str, Any], unknown: set[str]) -> Content | None:
    if kind not in _KINDS:
        unknown.add(f"content {kind}")
        return None
    known = {name: value for name, value in shape.items() if name in _CONTENT_FIELDS}
    if kind == "data" and "data" in shape and "media_type" in shape:
        known = {name: shape[name] for name in _DATA_FIELDS if name in shape}  # all that it takes along with bytes
    if len(known) < len(shape):
        unknown.update([f"{kind}.{name}" for name in shape if name not in known])
    for name in ("function_call", "screenshot"):
        if _is_content(known.get(name)):
            known[name] = _build_content(known[name], unknown)
    items = {name: known.pop(name) for name in _ITEMS if type(known.get(name)) in (list, tuple)}
    try:
        content = Content.from_dict(known)
    except (ContentError, TypeError, ValueError) as error:
        unknown.add(f"content {kind} ({error})")
        return None
    for name, given in items.items():
        setattr(content, name, type(given)(_build_items(given, unknown)))
    return content


def _build_items(items: list[Any], unknown: set[str]) -> list[Any]:
    """Contents in a content; what is no content is a plain value, and stays."""
    built: list[Any] = []
    for item in items:
        if not _is_content(item):
            built.append(item)
        elif (content := _build_content(item, unknown)) is not None:
            built.append(content)
    return built


def _is_content(value: Any) -> bool:
    return type(value) is dict and type(value.get("type")) is str


class _Direct(NamedTuple):
    """How a kind of content is built without `Content.from_dict`."""

    fields: frozenset[str]
    kinds: tuple[tuple[str, type], ...]
    """Fields that must be of this type, where present."""
    template: dict[str, Any]
    """The attributes of a content of this kind without any field."""


def _direct(kind: str, *fields: str, **kinds: type) -> _Direct:
    template = vars(Content.from_dict({"type": kind}))
    del template["additional_properties"]
    return _Direct(
        frozenset({"annotations", *fields, *kinds}).intersection(_CONTENT_FIELDS) | {"type", "additional_properties"},
        tuple(kinds.items()),
        template,
    )


_CONTENT_FIELDS = frozenset(inspect.signature(Content).parameters)
_DIRECT = {
    "text": _direct("text", text=str),
    "text_reasoning": _direct("text_reasoning", "id", "text", "protected_data", "status"),
    "function_call": _direct(
        "function_call", "id", "call_id", "name", "arguments", "status", hosted=bool, informational_only=bool
    ),
    "function_result": _direct("function_result", "id", "call_id", "result", "status", "exception", items=list),
    "uri": _direct("uri", "uri", "media_type", "name", "file_id"),
    "data": _direct("data", "uri", "media_type", "name", "file_id"),
}
_KINDS = frozenset([name.removeprefix("from_") for name in dir(Content) if name.startswith("from_")]) - {"dict"}
_NO_PROPERTIES: dict[str, Any] = {}
_MESSAGE_FIELDS = frozenset(inspect.signature(Message).parameters) | {"type"}
_FAILED = Content("error", exception="x").to_dict()["exception"]
_INFORMATIONAL = ("function_call", "computer_tool_call")
_DATA_FIELDS = ("type", *inspect.signature(Content.from_data).parameters)
_ITEMS = ("items", "inputs", "outputs")
_NESTING = frozenset({dict, list, tuple, Content})
_TEXTS = ("role", "author_name", "message_id")
_TEXT = (str, type(None))
_DICT = (dict, type(None))
