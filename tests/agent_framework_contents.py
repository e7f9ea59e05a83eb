"""The framework's messages with every field of every kind, for the tests that store them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

from agent_framework import Content, Message
from agent_framework._types import ContentType

from agentstore.adapters.agent_framework_codec import AgentFrameworkCodec
from agentstore.codec import MessageCodec
from agentstore.messages import same

CODEC = AgentFrameworkCodec()
CORE = MessageCodec()
KINDS = sorted(get_args(ContentType))
NOON = datetime(2024, 10, 27, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))

ODD: dict[str, Any] = {
    "nul": "a\x00b",
    "surrogate": "half \ud83d",
    "escape": "\\u0000 %00",
    "a\x00key": "\udc00",
    "nan": float("nan"),
    "infinite": [float("inf"), float("-inf")],
    "zero": -0.0,
    "large": 2**70,
    "bytes": b"\xff\x00",
    "tuple": (1, (2, [3])),
    "times": [NOON, NOON.replace(tzinfo=None), NOON.replace(tzinfo=None, fold=1)],
    "none": None,
    "tag": {"$bytes": "AA=="},
    "deep": {"list": [{"bytes": b"\x80"}]},
    "order": {"b": 1, "a": 2},
}
"""Values that JSON, or the framework's own `to_dict`, would lose or change."""

PLAIN = {"kind": "plain", "list": [1, 2.5, None, True], "deep": {"a": "b"}}


def text(value: str = "inner") -> Content:
    return Content.from_text(value)


def arguments_of(odd: dict[str, Any]) -> dict[str, Any]:
    """A value for every parameter that a factory of `Content` has."""
    call = Content.from_function_call("c2", "pay", arguments=odd, id="occurrence", hosted=False, server_name="s")
    return {
        "acknowledged_safety_checks": [{"id": "1", "code": "x", "message": "y"}],
        "actions": [{"type": "click", "x": 1, "y": 2}],
        "additional_properties": odd,
        "annotations": [
            {"type": "citation", "title": "t", "additional_properties": odd, "raw_representation": object()}
        ],
        "approved": True,
        "arguments": odd,
        "call_id": "c1",
        "commands": ["ls", "pwd"],
        "consent_link": "https://example.org/consent",
        "data": b"\x89PNG\xff",
        "error_code": "E1",
        "error_details": "details",
        "exception": "RuntimeError: password=hunter2",
        "exit_code": 1,
        "file_id": "file-1",
        "function_call": call,
        "hosted": True,
        "id": "occurrence",
        "image_id": "image-1",
        "informational_only": True,
        "inputs": [text(), Content.from_hosted_file("f")],
        "items": [text(), Content.from_data(b"\xff", "image/png")],
        "max_output_length": 10,
        "media_type": "image/png",
        "merge_mode": "append",
        "message": "it broke",
        "name": "search",
        "output": [text(), {"tool": "json"}],
        "outputs": [text(), Content.from_uri("https://example.org/a.png", media_type="image/png")],
        "pending_safety_checks": [{"id": "1"}],
        "protected_data": "signature",
        "raw_representation": object(),
        "result": odd,
        "screenshot": Content.from_data(b"\x00", "image/png"),
        "server_name": "server",
        "status": "completed",
        "stderr": "err",
        "stdout": "out",
        "text": "hello",
        "timed_out": False,
        "timeout_ms": 1000,
        "tool_name": "tool",
        "uri": "https://example.org/b.png",
        "usage_details": {"input_token_count": 2**70, "output_token_count": None, "other": 3},
        "vector_store_id": "vs",
    }


def full(kind: str, odd: dict[str, Any] | None = None) -> Content:
    """A content of the kind whose factory was given every parameter it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factory: Callable[..., Content] = getattr(Content, f"from_{kind}")
        values = arguments_of(copy.deepcopy(PLAIN if odd is None else odd))
        return factory(**{name: values[name] for name in inspect.signature(factory).parameters})


def reloaded(message: Message) -> Message:
    return CODEC.decode(CODEC.encode(message).payload)


def alike(left: Any, right: Any) -> bool:
    """Whether two values are equal to the last attribute, contents included."""
    if isinstance(left, Content) and isinstance(right, Content):
        return alike(vars(left), vars(right))
    if isinstance(left, Message) and isinstance(right, Message):
        return alike(vars(left), vars(right))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    return same(left, right)


def storable(value: Any) -> Any:
    """The object as it is expected back: without what a provider's object holds, diagnostics redacted."""
    value = copy.deepcopy(value)
    for content in value.contents:
        content.raw_representation = None
        content.exception = None if content.exception is None else content.to_dict()["exception"]
        for annotation in content.annotations or []:
            annotation.pop("raw_representation", None)
    value.raw_representation = None
    return value
