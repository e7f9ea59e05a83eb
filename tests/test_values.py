"""Exact values: what goes in comes out equal to the type, as strict JSON; what cannot is refused with its path."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import json
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstore import UnsupportedValueError, values
from agentstore.messages import same

TAGS = ("$float", "$int", "$text", "$bytes", "$tuple", "$datetime", "$dict", "$", "$unknown")

ODD_TEXTS = (
    "\x00",
    "\ud800",
    "\udfff",
    "\udfff\ud800",  # a reversed pair
    "\ud83d\ude00",  # two code points, not the emoji
    "\U0001f600",
    "%",
    "%00",
    "%25",
    "%uD800",
    "%ud800",
    "\\u0000",
    "\\ud800",
    '"',
    "#fold",
    "e\u0301",
    "\u00e9",
    "\u2028",
    "\ufeff",
    "\uffff",
    "\x1f",
    "\x7f",
    *TAGS,
)

texts = st.lists(st.sampled_from(ODD_TEXTS) | st.text(max_size=3), max_size=4).map("".join)


class RepeatedHour(tzinfo):
    """A zone whose offset depends on `fold` at every moment, as real ones do for an hour a year."""

    def utcoffset(self, dt: datetime | None, /) -> timedelta:
        return timedelta(hours=1 if dt is not None and dt.fold else 2)

    def dst(self, dt: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None, /) -> str:
        return "RPT"


REPEATED = RepeatedHour()

offsets = st.timedeltas(min_value=timedelta(hours=-23, minutes=-59), max_value=timedelta(hours=23, minutes=59))
zones = st.none() | offsets.map(timezone) | st.just(timezone.utc) | st.just(REPEATED)
datetimes = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.sampled_from((0, 1))
)
ints = st.integers() | st.sampled_from((2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, -(10**400)))
floats = st.floats() | st.sampled_from((-0.0, 5e-324, 2.2250738585072014e-308, 1e22, 1e16, 1.7976931348623157e308))

leaves = st.none() | st.booleans() | ints | floats | texts | st.binary(max_size=8) | datetimes
plain_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(texts, inner, max_size=4)
        | st.tuples(st.sampled_from(TAGS), inner).map(lambda pair: {pair[0]: pair[1]})
    ),
    max_leaves=12,
)

bounded = settings(deadline=None, max_examples=150)


def described(value: Any) -> Any:
    """The value in a form whose `==` sees everything: types, signs of zero, offsets, folds, order of keys."""
    kind = type(value)
    if kind is dict:
        return kind, [(name, described(item)) for name, item in value.items()]
    if kind in (list, tuple):
        return kind, [described(item) for item in value]
    if kind is float:
        return kind, value.hex()
    if kind is datetime:
        offset = value.utcoffset()
        return kind, value.replace(tzinfo=None, fold=0), offset, value.fold if offset is None else None
    return kind, value


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    """A value with that many containers around `1`."""
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def strict_json(data: bytes) -> Any:
    """The bytes read as strict RFC 8259 JSON; fails for a constant, a repeated key, or an escape that is not needed."""

    def refuse(token: str) -> Any:
        raise AssertionError(f"{token} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names)
        return dict(pairs)

    text = data.decode("utf-8")
    escapes = re.findall(r"(?<!\\)(?:\\\\)*\\u([0-9a-fA-F]{4})", text)
    assert all(0 < int(escape, 16) < 0x20 for escape in escapes), "only control characters may be escaped"
    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


@bounded
@given(plain_values)
def test_what_is_dumped_loads_exactly(value: Any) -> None:
    """Types, signs, offsets, folds and the order of keys come back (B01)."""
    assert described(values.load(values.dump(value))) == described(value)


@bounded
@given(plain_values)
def test_a_loaded_value_is_the_same_as_the_dumped_one(value: Any) -> None:
    """The library's own equality agrees, also for NaN and for moments in a repeated hour."""
    assert same(values.load(values.dump(value)), value)


@bounded
@given(plain_values)
def test_what_is_dumped_is_strict_json(value: Any) -> None:
    """UTF-8, no U+0000 or surrogate escape, no NaN token, no key twice: in keys too."""
    strict_json(values.dump(value))


@bounded
@given(plain_values)
def test_a_dumped_value_is_left_as_it_was(value: Any) -> None:
    """Dumping reads; it never changes what it is given."""
    before = described(value)
    values.dump(value)
    assert described(value) == before


def shuffled(value: Any) -> Any:
    """The value with every dict's keys in reverse order."""
    if type(value) is dict:
        return {name: shuffled(value[name]) for name in reversed(value)}
    if type(value) in (list, tuple):
        return type(value)(shuffled(item) for item in value)
    return value


@bounded
@given(plain_values)
def test_the_canonical_form_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    """At any depth, and for keys that need a tag."""
    assert values.canonical(values.tag(value)) == values.canonical(values.tag(shuffled(value)))


def test_the_canonical_form_sorts_keys_that_need_a_tag() -> None:
    """The pairs of a tagged dict are keys too."""
    one, other = {"a\x00": 1, "b": 2, "c": 3}, {"c": 3, "b": 2, "a\x00": 1}
    assert values.canonical(values.tag(one)) == values.canonical(values.tag(other))


@bounded
@given(plain_values, plain_values)
def test_the_canonical_form_tells_different_values_apart(one: Any, other: Any) -> None:
    """No value imitates another one's stored form; what is the same has one form."""
    equal = values.canonical(values.tag(one)) == values.canonical(values.tag(other))
    assert equal == same(one, other)


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("body", ["nan", "0x5", "a%00b", "YQ==", [1], "2024-01-01T00:00:00", [["a", 1]], None])
def test_a_dict_that_looks_like_a_tag_stays_a_dict(name: str, body: Any) -> None:
    """Our own markers are ordinary data, bare, nested in themselves, and beside other keys."""
    for value in ({name: body}, {name: {name: body}}, {name: body, "b": 1}, [{name: body}], {"a": {name: body}}):
        assert described(values.load(values.dump(value))) == described(value)


@pytest.mark.parametrize("number", [10**5000, -(10**5000), 2**63, -(2**63) - 1], ids=int.bit_length)
def test_ints_of_any_size_come_back(number: int) -> None:
    """Also those that Python refuses to turn into decimal text."""
    assert values.load(values.dump([number])) == [number]


def test_plain_text_stays_readable() -> None:
    """Nothing is escaped that JSON does not ask for, and no plain value is tagged."""
    assert values.dump({"gr\u00fc\u00df": "\u2028 \U0001f600 $int %00", "n": [1, -0.0, None, True]}) == (
        '{"gr\u00fc\u00df":"\u2028 \U0001f600 $int %00","n":[1,-0.0,null,true]}'.encode()
    )


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (float("nan"), '{"$float":"nan"}'),
        (float("-inf"), '{"$float":"-inf"}'),
        (2**64, '{"$int":"0x10000000000000000"}'),
        (-(2**64), '{"$int":"-0x10000000000000000"}'),
        ("%\x00\ud800", '{"$text":"%25%00%uD800"}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        ((1, (2,)), '{"$tuple":[1,{"$tuple":[2]}]}'),
        (datetime(2024, 1, 2, 3, 4, 5, 6), '{"$datetime":"2024-01-02T03:04:05.000006"}'),
        (datetime(2024, 1, 2, fold=1), '{"$datetime":"2024-01-02T00:00:00#fold"}'),
        (datetime(2024, 1, 2, tzinfo=timezone.utc), '{"$datetime":"2024-01-02T00:00:00+00:00"}'),
        (
            datetime(2024, 1, 2, tzinfo=timezone(-timedelta(hours=1, seconds=2, microseconds=3))),
            '{"$datetime":"2024-01-02T00:00:00-01:00:02.000003"}',
        ),
        ({"$int": 1}, '{"$dict":[["$int",1]]}'),
        ({"a\x00": 1}, '{"$dict":[[{"$text":"a%00"},1]]}'),
        ({"a": None}, '{"a":null}'),
        ({}, "{}"),
    ],
)
def test_the_table_of_tags(value: Any, stored: str) -> None:
    """Each kind of odd value has exactly the stored form that the module's table promises."""
    assert values.dump(value).decode() == stored
    assert described(values.load(stored.encode())) == described(value)


@pytest.mark.parametrize(
    "moment",
    [datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 2, 30, fold=1), datetime(2024, 3, 31, 2, 30)],
    ids=["first", "second", "skipped"],
)
def test_moments_of_a_clock_change_come_back_equal(moment: datetime) -> None:
    """Python calls no such moment equal to one of another zone; what counts is instant and offset."""
    zoneinfo = pytest.importorskip("zoneinfo")
    try:
        zone = zoneinfo.ZoneInfo("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        pytest.skip("no time zone database here")
    aware = moment.replace(tzinfo=zone)
    loaded = values.load(values.dump(aware))
    assert described(loaded) == described(aware)
    assert same(loaded, aware)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        ((1,), [1]),
        (b"a", "a"),
        (datetime(2024, 1, 1), datetime(2024, 1, 1, fold=1)),
        (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=timezone.utc)),
        (datetime(2024, 1, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))),
        (0.0, -0.0),
        ({"a": None}, {}),
        ("\u00e9", "e\u0301"),
        ({"a": 1}, [("a", 1)]),
        (None, False),
    ],
)
def test_values_that_are_not_the_same(one: Any, other: Any) -> None:
    """Equality looks at the type, and at everything that the stored form keeps."""
    assert not same(one, other)
    assert not same({"a": [one]}, {"a": [other]})


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    __slots__ = ()


class WordEnum(str, enum.Enum):
    A = "a"


class Count(int):
    pass


class Moment(datetime):
    pass


class Items(list[Any]):
    pass


class Pair(NamedTuple):
    a: int


@dataclasses.dataclass
class Point:
    x: int


REFUSED: list[Any] = [
    Colour.RED,
    Level.LOW,
    WordEnum.A,
    Word("a"),
    Count(1),
    Moment(2024, 1, 1),
    Items([1]),
    Pair(1),
    Point(1),
    decimal.Decimal("1.5"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=1),
    pathlib.PurePosixPath("/a"),
    date(2024, 1, 1),
    time(1),
    timedelta(1),
    timezone.utc,
    {1},
    frozenset({(1, 2)}),
    collections.defaultdict(list),
    collections.OrderedDict(a=1),
    collections.Counter("a"),
    types.MappingProxyType({}),
    bytearray(b"a"),
    memoryview(b"a"),
    complex(1),
    range(3),
    object(),
    object,
    len,
    ...,
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_any_other_object_is_refused_with_its_path(value: Any) -> None:
    """No subclass and no other type is turned into something near it."""
    with pytest.raises(UnsupportedValueError, match=r"^a\.b\[1\]\.c "):
        values.dump({"a": {"b": [0, {"c": value}]}})
    with pytest.raises(UnsupportedValueError, match=re.escape(type(value).__qualname__)):
        values.dump(value)


@pytest.mark.parametrize(
    "key", [1, True, None, 1.5, b"a", ("a",), Word("a"), WordEnum.A, 10**5000], ids=lambda key: type(key).__name__
)
def test_a_key_that_is_not_text_is_refused_with_its_path(key: Any) -> None:
    """JSON would make text of it, so that it came back as another key."""
    with pytest.raises(UnsupportedValueError, match=r"^a\[0\] "):
        values.dump({"a": [{key: 1}]})


def test_a_refusal_is_a_type_error_too() -> None:
    """Callers that know only Python's errors catch it."""
    with pytest.raises(TypeError):
        values.dump(object())


def test_a_refusal_can_always_be_logged() -> None:
    """A path with odd text in it does not make the error's own text unprintable."""
    with pytest.raises(UnsupportedValueError) as caught:
        values.dump({"a\ud800": object()})
    assert str(caught.value).encode()


def cyclic_list() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {}
    value["a"] = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        cyclic_list(),
        cyclic_dict(),
        nested(5_000, lambda value: [value]),
        nested(values.MAX_DEPTH + 1, lambda value: [value]),
        nested(values.MAX_DEPTH + 1, lambda value: {"a": value}),
        nested(values.MAX_DEPTH + 1, lambda value: (value,)),
    ],
    ids=["cyclic list", "cyclic dict", "very deep", "list", "dict", "tuple"],
)
def test_what_is_nested_too_deeply_is_refused(value: Any) -> None:
    """Python's own recursion limit is never the one that answers."""
    with pytest.raises(UnsupportedValueError, match="nested"):
        values.dump({"a": value})


def deeper(frames: int, call: Callable[[], Any]) -> Any:
    """The call's result, from that much further down the call stack."""
    return deeper(frames - 1, call) if frames else call()


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: [value],
    "dict": lambda value: {"a": value},
    "tuple": lambda value: (value,),
    "tagged dict": lambda value: {"$a": value},
    "odd key": lambda value: {"a\x00": value},
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_what_could_be_written_can_be_read_from_a_deeper_call_stack(wrap: Callable[[Any], Any]) -> None:
    """A record never looks corrupt because a web framework stands between its reader and `main`."""
    value = nested(values.MAX_DEPTH, wrap)
    data = values.dump(value)
    assert deeper(400, lambda: values.load(data)) == value


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_what_can_be_written_does_not_depend_on_the_call_stack(wrap: Callable[[Any], Any]) -> None:
    """The same value is dumped, and digested, by a caller far down the stack."""
    value = nested(values.MAX_DEPTH, wrap)
    assert deeper(400, lambda: values.dump(value)) == values.dump(value)
    assert deeper(400, lambda: values.canonical(values.tag(value))) == values.canonical(values.tag(value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nope",
        b"NaN",
        b"[1,]",
        b'"\xff"',
        b'"\\ud800"',
        b"[1] 2",
        b"[" * 100_000,
        b'{"$unknown": 1}',
        b'{"$": 1}',
        b'{"$float": []}',
        b'{"$float": 5}',
        b'{"$int": 5}',
        b'{"$int": "abcxyz"}',
        b'{"$text": 5}',
        b'{"$text": ["a"]}',
        b'{"$bytes": "a"}',
        b'{"$bytes": "\xc3\xa9"}',
        b'{"$bytes": [1]}',
        b'{"$tuple": 1}',
        b'{"$tuple": "abc"}',
        b'{"$tuple": {"a": 1}}',
        b'{"$datetime": "yesterday"}',
        b'{"$datetime": 5}',
        b'{"$dict": null}',
        b'{"$dict": ["ab"]}',
        b'{"$dict": {"ab": 1}}',
        b'{"$dict": [["a"]]}',
        b'{"$dict": [["a", 1, 2]]}',
        b'{"$dict": [[1, 2]]}',
        b'{"$dict": [[["a"], 1]]}',
        b'{"$dict": [[{"$bytes": "YQ=="}, 1]]}',
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_what_was_not_dumped_is_a_value_error(data: bytes) -> None:
    """Never another error, and never a guess."""
    with pytest.raises(ValueError, match=r"\w"):
        values.load(data)


MARKERS: list[dict[str, Any]] = [  # envelopes with which other serializers name code
    {"__class__": "os.system", "args": ["true"]},
    {"py/object": "subprocess.Popen"},
    {"py/reduce": ["os.system", ["true"]]},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"!!python/object/apply:os.system": ["true"]},
    {"$type": "System.Diagnostics.Process"},
    {"__reduce__": "cos\nsystem\n(S'true'\ntR."},
]


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: next(iter(marker)))
def test_nothing_stored_can_name_code(marker: dict[str, Any]) -> None:
    """An envelope of another serializer is plain data in a value, and plain data or an error in a payload (B96)."""
    assert described(values.load(values.dump(marker))) == described(marker)
    try:
        loaded = values.load(json.dumps(marker).encode())
    except ValueError:
        return
    assert described(loaded) == described(marker)
