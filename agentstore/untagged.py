"""JSON of values that need no tags, as nearly all do: the same bytes as `agentstore.values` makes, in less time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import methodcaller
from typing import Any

import msgspec

from agentstore.messages import Content

_SHALLOW = 20
"""What is nested deeper is left to the walk that tags."""
_BACKSLASH, _DOLLAR = ord("\\"), ord("$")
_LEAST_INT, _GREATEST_INT = -(2**63), 2**63 - 1

_shape = methodcaller("shape")  # in C, unlike a function
_encode = msgspec.json.Encoder(enc_hook=_shape).encode
_encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=_shape).encode


def dump(value: dict[str, Any]) -> bytes | None:
    """What `values.dump` gives for the dict, which may hold contents; `None` where something in it needs a tag."""
    try:
        if not _are_bare((value,), 0):
            return None
        data = _encode(value)
    except (UnicodeEncodeError, RecursionError):  # a lone surrogate; a caller whose stack is full
        return None
    # To look for one byte first, as a number, is quick.
    odd = (_BACKSLASH in data and b"\\u0000" in data) or (_DOLLAR in data and b'"$dict"' in data)
    return None if odd else data


def canonical(value: object) -> bytes:
    """What `values.canonical` gives for a part of a value that `dump` took."""
    return _encode_sorted(value)


def _are_bare(items: Iterable[Any], depth: int) -> bool:
    """Whether no tag is needed but perhaps for an odd text, which shows in the JSON."""
    for item in items:
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is dict or kind is Content:
            fields = item if kind is dict else item.shape()
            for name in fields:
                if type(name) is not str:
                    return False
            if len(fields) == 1 and name[:1] == "$":
                return False
            if depth > _SHALLOW or not _are_bare(fields.values(), depth + 1):
                return False
        elif kind is list:
            if depth > _SHALLOW or not _are_bare(item, depth + 1):
                return False
        elif kind is int:
            if not _LEAST_INT <= item <= _GREATEST_INT:
                return False
        elif kind is not float or not math.isfinite(item):
            return False
    return True
