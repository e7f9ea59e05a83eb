"""Plain values from whatever a framework's message may hold: an adapter never fails a run over a value."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from agentstore.errors import UnsupportedValueError

T = TypeVar("T")

MAX_DEPTH = 100
"""Containers nested deeper than this become text."""

_EXACT = (type(None), bool, int, float, str, bytes, datetime)
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int),
    (float, float),
    (str, lambda text: str.__str__(text)),
    (bytes, bytes),
    (datetime, lambda time: datetime.fromisoformat(time.isoformat())),
)
_logger = logging.getLogger("agentstore")


def encoded_or_downcast(encode: Callable[[dict[str, Any]], T], shape: dict[str, Any]) -> T:
    """What `encode` makes of the shape; where it refuses a value, of the shape with plain ones, and the path is logged.

    An enum becomes its value, a model or dataclass a dict, a set a list, a subclass its base, the rest `str`.
    """
    try:
        return encode(shape)
    except UnsupportedValueError as error:
        _logger.warning("stored with plain values: %s", str(error).replace("; nothing was written", ""))
    return encode({name: downcast(value) for name, value in shape.items()})


def downcast(value: Any, depth: int = 0) -> Any:
    """A value that the core stores exactly, as near to the given one as it can be."""
    if type(value) in _EXACT:
        return value
    if isinstance(value, Enum):
        return downcast(value.value, depth)
    if depth >= MAX_DEPTH:
        return str(value)
    if (fields := _fields(value)) is not None:
        return {str(name): downcast(item, depth + 1) for name, item in fields.items()}
    if type(value) is tuple:
        return tuple([downcast(item, depth + 1) for item in value])
    if isinstance(value, Sequence | Set) and not isinstance(value, _EXACT):
        return [downcast(item, depth + 1) for item in value]
    return next((to_base(value) for base, to_base in _BASES if isinstance(value, base)), str(value))


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for method in ("model_dump", "to_dict"):  # pydantic models, and the objects of most frameworks
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type) and isinstance(fields := dump(), Mapping):
            return fields
    return None
