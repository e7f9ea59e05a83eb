"""Plain values from whatever a framework's message may hold: an adapter never fails a run over a value."""

from __future__ import annotations

import dataclasses
import logging
from collections import UserString
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from enum import Enum
from itertools import count
from typing import Any, TypeVar

import msgspec

from agentstore import values
from agentstore.errors import UnsupportedValueError

T = TypeVar("T")

Fields = Callable[[Any], Mapping[str, Any] | None]
"""Gives the fields of a framework's own object, not copied, and `None` for anything else."""

_EXACT = (type(None), bool, int, float, str, bytes, datetime)
_LEVELS = values.MAX_DEPTH - 1  # the message itself is the first
_TO_BASE: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (int, int.__index__),
    (float, float.__float__),
    (str, str.__str__),
    ((bytes, bytearray, memoryview), bytes),
    (datetime, lambda time: datetime.combine(time.date(), time.timetz())),
)
_logger = logging.getLogger("agentstore")


def log_downcast(error: UnsupportedValueError) -> None:
    """Tell which value the core refused, by its path."""
    _logger.warning("stored with plain values: %s", str(error).replace("; nothing was written", ""))


def downcast(shape: Mapping[str, Any], fields: Fields = lambda value: None) -> dict[str, Any]:
    """A message's dict shape with only values that the core stores exactly, as near to the given ones as can be.

    An enum becomes its value, a model, dataclass or other mapping a dict, a set a list (sorted, so that it is the same
    in every process), a subclass its base, the rest `str`; also what contains itself, or is nested too deep for the
    core. A key becomes text, and stays apart from those that are there already. Never raises.
    """
    walk = _Walk(fields)
    return {name: walk.plain(value) for name, value in shape.items()}


def text_of(value: Any) -> str:
    """`str(value)` as an exact str, also where the value has none."""
    text = _ask(lambda: str.__str__(str(value)))
    return f"<{type(value).__qualname__} without a text>" if text is None else text


class _Walk:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._within: set[int] = set()  # ids of the containers around the value at hand

    def plain(self, value: Any) -> Any:
        if type(value) in _EXACT:
            return value
        if _ask(lambda: isinstance(value, Enum)):
            return self.plain(value.value)
        if id(value) in self._within:
            return f"<{type(value).__qualname__} that contains itself>"
        surface = _ask(lambda: _surface(value, self._fields))
        if surface is None:
            return text_of(value)
        if type(surface) in _EXACT:
            return surface
        if len(self._within) >= _LEVELS:
            return text_of(value)
        self._within.add(id(value))
        inner = self._inner(surface)
        self._within.discard(id(value))
        return inner

    def _inner(self, surface: Any) -> Any:
        if type(surface) is dict:
            return {name: self.plain(surface[key]) for name, key in self._names(surface)}
        if type(surface) is list:
            return [self.plain(item) for item in surface]
        if type(surface) is tuple:
            return tuple([self.plain(item) for item in surface])
        return sorted([self.plain(item) for item in surface], key=_order)  # a set

    def _names(self, fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
        """A name for each key; keys that are texts keep theirs."""
        taken = {key for key in fields if type(key) is str}
        for key in fields:
            name = key if type(key) is str else next(name for name in self._candidates(key) if name not in taken)
            taken.add(name)
            yield name, key

    def _candidates(self, key: Any) -> Iterator[str]:
        name, kind = text_of(self.plain(key)), type(key).__qualname__
        yield name
        yield f"{name} ({kind})"
        for number in count(2):
            yield f"{name} ({kind} {number})"


def _surface(value: Any, fields: Fields) -> Any:
    """The value as a dict, list, tuple or set of whatever is in it, or as a plain one; `None` if it is neither."""
    if (found := fields(value)) is not None or (found := _fields_of(value)) is not None:
        return dict(found)
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, set | frozenset):
        return set(value)
    for base, to_base in _TO_BASE:
        if isinstance(value, base):
            return to_base(value)
    if isinstance(value, Sequence | Set) and not isinstance(value, range | UserString):
        return list(value)
    return None


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    for method in ("model_dump", "to_dict"):  # pydantic models, and the objects of most frameworks
        dump = getattr(value, method, None)
        if callable(dump) and isinstance(fields := dump(), Mapping):
            return fields
    return None


def _order(plain: Any) -> bytes:
    return values.canonical(values.tag(plain))


def _ask(question: Callable[[], T]) -> T | None:
    """The answer of a stranger's code; `None` where it fails."""
    try:
        return question()
    except Exception:  # it can raise anything, and a run must not fail over one of its values
        return None
