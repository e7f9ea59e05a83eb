"""JSON of values that need no tags, as nearly all do: the same bytes as `agentstore.values` makes, in less time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from agentstore.messages import Content

_BARE = frozenset({str, bool, type(None)})
_NAMES = frozenset({str})
_SHALLOW = 20
"""What is nested deeper is left to the walk that tags."""


def _shape(content: Content) -> dict[str, Any]:
    return content.shape()


_encode = msgspec.json.Encoder(enc_hook=_shape).encode
_encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=_shape).encode


def dump(value: dict[str, Any]) -> bytes | None:
    """What `values.dump` gives for the dict, which may hold contents; `None` where something in it needs a tag."""
    if not _is_bare(value, 0):
        return None
    try:
        data = _encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return None
    # To look for the one byte first is quicker.
    odd = (b"\\" in data and b"\\u0000" in data) or (b"$" in data and b'"$dict"' in data)
    return None if odd else data


def canonical(value: object) -> bytes:
    """What `values.canonical` gives for a part of a value that `dump` took."""
    return _encode_sorted(value)


def _is_bare(value: dict[Any, Any], depth: int) -> bool:
    """Whether no tag is needed but perhaps for an odd text, which shows in the JSON."""
    if not _NAMES.issuperset(map(type, value)) or (len(value) == 1 and next(iter(value))[:1] == "$"):
        return False
    return _BARE.issuperset(map(type, value.values())) or _are_bare(value.values(), depth)


def _are_bare(items: Iterable[Any], depth: int) -> bool:
    for item in items:
        kind = type(item)
        if kind in _BARE:
            continue
        if kind is dict or kind is Content:
            bare = depth < _SHALLOW and _is_bare(item if kind is dict else item.shape(), depth + 1)
        elif kind is list:
            bare = depth < _SHALLOW and _are_bare(item, depth + 1)
        elif kind is int:
            bare = -(2**63) <= item < 2**63
        else:
            bare = kind is float and math.isfinite(item)
        if not bare:
            return False
    return True
