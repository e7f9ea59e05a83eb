"""The messages of the frozen payloads beside this file."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any


def _message(*contents: dict[str, Any], role: str = "user", properties: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": role,
        "contents": list(contents),
        **fields,
        "additional_properties": {} if properties is None else properties,
    }


MESSAGES: dict[str, dict[str, Any]] = {
    "text": _message(
        {"type": "text", "text": 'Gr\u00fc\u00dfe \U0001f600 \u2028 "quoted" back\\slash \\u0000 %00 $int'}
    ),
    "empty": _message(),
    "full": _message(
        {
            "type": "text",
            "text": "hi",
            "annotations": [{"type": "citation", "title": None}],
            "additional_properties": {},
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": {"b": 1, "a": [1.5, -0.0, None, True]}},
        {"type": "function_result", "call_id": "c1", "items": [{"type": "image", "uri": "data:image/png;base64,AA=="}]},
        role="assistant",
        author_name="bot",
        message_id="m-1",
        properties={"usage": {"in": 1, "out": 2}, "none": None},
    ),
    "unknown_fields": {
        **_message({"type": "hologram", "beam": {"deep": [1]}, "new": None}, role="oracle"),
        "new_field": {"a": [1, None]},
        "another": None,
        "third": "",
        "fourth": 4,
    },
    "odd_unknown_fields": {
        **_message({"type": "x"}, properties={"$int": "0x1"}),
        "v": 7,
        "$float": "nan",
        "plain": 1,
        "n\x00": None,
    },
    "odd_content_fields": _message({"type": "x", "a\x00": 1}, {"type": "y", "\ud800": {"\udfff": 2}}),
    "numbers": _message(
        {"type": "x", "ints": [0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**200, -(2**200)]},
        {"type": "x", "floats": [0.0, -0.0, 1.0, 1e22, 5e-324, 1.7976931348623157e308, 0.1]},
        {"type": "x", "others": [float("nan"), float("inf"), float("-inf"), True, False]},
    ),
    "texts": _message(
        {"type": "text", "text": "a\x00b"},
        {"type": "text", "text": "\ud800"},
        {"type": "text", "text": "\udfff\ud800 \ud83d\ude00"},
        {"type": "text", "text": "%\x00%00%uD800"},
        {"type": "text", "text": "\x01\x1f\x7f\t\n"},
        role="tool\x00",
        author_name="\udc00",
        message_id="id\x00",
    ),
    "containers": _message(
        {"type": "x", "bytes": [b"", b"\x00\xff", b"abcd"]},
        {"type": "x", "tuples": [(), (1,), ((1, (2,)), [3])]},
        {"type": "x", "dicts": [{}, {"$bytes": "AA=="}, {"$dict": {"$dict": []}}, {"$": 1}, {"$a": 1, "b": 2}]},
        {"type": "x", "keys": [{"a\x00": 1, "b": {"\ud800": 2}}, {"%00": 3}, {"": 4}]},
    ),
    "moments": _message(
        {
            "type": "x",
            "naive": [datetime(1, 1, 1), datetime(2024, 2, 29, 23, 59, 59, 999999), datetime(2024, 1, 1, fold=1)],
        },
        {"type": "x", "utc": datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)},
        {"type": "x", "offset": datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=45)))},
        {"type": "x", "odd": datetime(9999, 12, 31, tzinfo=timezone(-timedelta(hours=1, seconds=2, microseconds=3)))},
        {"type": "x", "tiny": datetime(2024, 1, 2, tzinfo=timezone(timedelta(microseconds=1)))},
    ),
}
