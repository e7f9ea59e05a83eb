"""Down-casting: whatever a message holds becomes a plain value, and nothing of it stops a run."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections import Counter, OrderedDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from agentstore import values
from agentstore.adapters.downcast import downcast
from agentstore.messages import same


class Colour(Enum):
    RED = "red"
    NONE = None
    PAIR = (Decimal(1), "x")


class Paint(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Flags(Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: Any
    y: Any = field(default_factory=set)


@dataclass
class Node:
    parent: Any = None


class Model(BaseModel):
    name: str
    level: Level
    secret: SecretStr = SecretStr("hunter2")


class Struct(msgspec.Struct):
    when: date


Pair = namedtuple("Pair", "left right")


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Stamp(datetime):
    pass


class Frozen(Mapping[Any, Any]):
    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __getitem__(self, name: Any) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Explosive:
    """Whatever one asks of it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Textless:
    def __repr__(self) -> str:
        return repr(self)


class Dumping:
    def to_dict(self) -> Any:
        raise ValueError("not now")

    def __str__(self) -> str:
        return "dumping"


class Subtext:
    def __str__(self) -> str:
        return Text("as it is")


class Broken(Frozen):
    def __iter__(self) -> Iterator[Any]:
        raise OSError("gone")

    def __str__(self) -> str:
        return "broken"


NOON = datetime(2024, 10, 27, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))


def plain(value: Any) -> Any:
    return downcast({"value": value})["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "red"),
        (Colour.NONE, None),
        (Colour.PAIR, ("1", "x")),
        (Level.HIGH, 3),
        (Flags.A | Flags.B, 3),
        (Point(1, Decimal("1.5")), {"x": 1, "y": "1.5"}),
        (Model(name="a", level=Level.HIGH), {"name": "a", "level": 3, "secret": "**********"}),
        (Struct(date(2024, 2, 29)), {"when": "2024-02-29"}),
        (Pair(1, {2}), (1, [2])),
        (SimpleNamespace(a=1), "namespace(a=1)"),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({(1, 2), (3, 4)}), [(1, 2), (3, 4)]),
        ({1: "a", 2: "b"}.keys(), [1, 2]),
        (deque([1, {2}]), [1, [2]]),
        (UserList([1]), [1]),
        (array("i", [1, 2]), [1, 2]),
        (range(3), "range(0, 3)"),
        (range(10**12), "range(0, 1000000000000)"),
        (UserString("abc"), "abc"),
        (bytearray(b"\xff"), b"\xff"),
        (memoryview(b"\xff"), b"\xff"),
        (Text("as it is"), "as it is"),
        (Decimal("1.10"), "1.10"),
        (Fraction(1, 3), "1/3"),
        (1 + 2j, "(1+2j)"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(seconds=1), "0:00:01"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a"), "/a"),
        (Stamp(2024, 10, 27, 2, 30, fold=1), datetime(2024, 10, 27, 2, 30, fold=1)),
        (Stamp(2024, 10, 27, 12, tzinfo=NOON.tzinfo), NOON),
        (defaultdict(list, {"a": [Level.HIGH]}), {"a": [3]}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Frozen(a={1}), {"a": [1]}),
        (Explosive(), "<Explosive without a text>"),
        (Textless(), "<Textless without a text>"),
        (Dumping(), "dumping"),
        (Subtext(), "as it is"),
        (Broken(a=1), "broken"),
        (Point, str(Point)),
        ([Explosive(), Level.HIGH], ["<Explosive without a text>", 3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_becomes_the_nearest_plain_one(value: Any, expected: Any) -> None:
    """Enum to value, model and dataclass to dict, set to list, subclass to base, the rest to text (B09, B10, B11)."""
    assert same(plain(value), expected)
    assert same(plain({"deep": [value]}), {"deep": [expected]})


def test_a_mock_is_a_text() -> None:
    """An object that answers to every name is no model."""
    assert "MagicMock" in plain(MagicMock())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}),
        ({1: "int", "1": "str"}, {"1 (int)": "int", "1": "str"}),
        ({"1": "str", 1: "int"}, {"1": "str", "1 (int)": "int"}),
        ({1: "a", "1": "b", "1 (int)": "c"}, {"1 (int 2)": "a", "1": "b", "1 (int)": "c"}),
        ({Colour.RED: 1, "red": 2, b"r": 3}, {"red (Colour)": 1, "red": 2, "b'r'": 3}),
        ({Colour.RED: 1, Paint.RED: 2}, {"red": 1, "red (Paint)": 2}),
        ({None: 1, True: 2, (1, 2): 3, 1.5: 4}, {"None": 1, "True": 2, "(1, 2)": 3, "1.5": 4}),
    ],
)
def test_no_two_keys_become_one(fields: dict[Any, Any], expected: dict[str, Any]) -> None:
    """Keys become text; one that is a text already keeps its own, and none is lost."""
    assert same(plain(fields), expected)
    assert list(plain(fields)) == list(expected)


def test_what_contains_itself_ends() -> None:
    """A cycle, also a branching one, is cut where it closes; what merely stands twice is kept twice."""
    ring: list[Any] = [1]
    ring += [ring, {"again": ring}]
    mark = "<list that contains itself>"
    assert plain(ring) == [1, mark, {"again": mark}]
    node = Node()
    node.parent = node
    assert plain(node) == {"parent": "<Node that contains itself>"}
    twice = {"a": {1}}
    assert plain([twice, twice]) == [{"a": [1]}, {"a": [1]}]


@pytest.mark.parametrize("depth", [150, 250, 100_000])
def test_what_is_too_deep_for_the_core_becomes_text(depth: int) -> None:
    """The outer levels stay what they are, as many as the core takes."""
    deep: Any = [Level.HIGH]
    for _ in range(depth):
        deep = [deep]
    shape = downcast({"value": deep})
    restored = values.load(values.dump(shape))["value"]
    levels = 0
    while type(restored) is list:
        restored, levels = restored[0], levels + 1
    assert levels == min(depth + 1, values.MAX_DEPTH - 1)
    assert restored == 3 if depth == 150 else isinstance(restored, str)


def test_a_set_is_the_same_list_in_every_process() -> None:
    """The order does not hang on hash seeds: a retry from another process finds the same digest."""
    code = "from agentstore.adapters.downcast import downcast; print(downcast({'v': {'a', 'b', 'c', 1, None, 2.5}}))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_a_frameworks_own_objects_are_read_by_its_rule() -> None:
    """Where `fields` knows an object, at any depth, it decides."""

    class Own:
        pass

    shape = downcast({"value": [Own(), {Own()}]}, lambda value: {"own": {1}} if type(value) is Own else None)
    assert shape == {"value": [{"own": [1]}, [{"own": [1]}]]}


exact = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
    max_leaves=10,
)
odd = st.recursive(
    exact | st.decimals() | st.fractions() | st.uuids() | st.dates() | st.complex_numbers() | st.sampled_from(Colour),
    lambda inner: (
        st.lists(inner).map(deque)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.builds(Point, inner, inner)
        | st.frozensets(st.text() | st.integers())
    ),
    max_leaves=10,
)


@given(exact)
def test_what_the_core_takes_is_left_as_it_is(value: Any) -> None:
    """Down-casting a whole message for one odd value changes none of the others."""
    assert same(plain(value), value)


@given(odd)
def test_whatever_comes_out_can_be_stored_exactly(value: Any) -> None:
    """The core takes the result, gives it back equal, and it is its own down-cast."""
    once = plain(value)
    assert same(values.load(values.dump({"value": once}))["value"], once)
    assert same(plain(once), once)
