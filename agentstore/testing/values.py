"""Sentences about values: exact at any depth and place, independent, or refused with their path."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstore import AgentSession, Content, Message, SessionHistory, UnsupportedValueError
from agentstore.backend import Catalog, Rewriting, Snapshots
from agentstore.testing.catalog import info_of
from agentstore.testing.scenes import Scene, Stage, named, said, sentence

KOLKATA = timezone(timedelta(hours=5, minutes=30))

NUL: tuple[Any, ...] = ("\x00", "a\x00b", "\x00a", "a\x00", {"a\x00": "\x00"}, "\\u0000", "\\x00", "%00")
SURROGATES: tuple[Any, ...] = (
    "\ud83d",
    "\ude00",
    "\ude00\ud83d",
    "a\ud800b",
    {"\ud800": "\udfff"},
    "\\ud800",
    "%uD800",
    "\U0001f600",
)
MARKERS: tuple[Any, ...] = (
    *({"$bytes": "x"}, {"$bytes": "YQ=="}, {"$float": "nan"}, {"$int": "0x1"}, {"$text": "%00"}, {"$tuple": []}),
    *({"$dict": [["a", 1]]}, {"$datetime": "2020-01-01"}, {"$": 1}, {"$x": {"$bytes": ""}}, {"$bytes": "x", "b": 1}),
    *({"__type__": "builtins.eval"}, {"py/object": "os.system"}, {"lc": 1, "type": "constructor"}, {"v": 2}, {"": {}}),
)
FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1.0, 1e16, 1e22)
INTS = (0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, True, False)
BYTES = (b"", b"a", b"\x00\xff\xfe", bytes(range(256)), [b"\x80", {"deep": b"\x81"}])
TUPLES: tuple[Any, ...] = ((), (1,), ("a", (b"b", [(), {}])), [(), [], ((),)], {"t": ("x",)})
TIMES = (
    *(datetime(2024, 2, 29, 12, 0), datetime(2024, 2, 29, 12, 0, 0, 1), datetime(1, 1, 1), datetime.max),
    *(datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, 0, 0, 0, 7, tzinfo=KOLKATA)),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
    datetime(2024, 10, 27, 2, 30, fold=1),
)
SHAPES: tuple[Any, ...] = (
    None,
    {},
    [],
    "",
    {"a": None},
    {"": ""},
    [None],
    {"b": 1, "a": 2},
    {"z": {"y": 1, "x": 2}, "a": [[[[]]]]},
)
SCRIPTS = (
    "Ελλάδα",
    "日本語",
    "हिन्दी",
    "العربية",
    "עברית",
    "👩‍👩‍👧",
    "e\u0301",
    "\u2028",
    "\ufeff",
    "\r\n\t",
    "'\"\\",
    "</s>",
)

texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\x00", "\ud800", "$bytes", "%00", "$text", "v", ""])
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | offsets)
    | st.sampled_from(MARKERS)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=12,
)
"""Any value that a history keeps exactly."""


class Colour(str, Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Text(str):
    pass


class Point(NamedTuple):
    x: int


REFUSED: tuple[tuple[str, Any], ...] = (
    *(("set", {1}), ("frozenset", frozenset({1})), ("enum", Colour.RED), ("int enum", Number.ONE)),
    *(("str subclass", Text("a")), ("object", object()), ("class", int), ("Decimal", Decimal("1.5"))),
    *(("UUID", UUID(int=1)), ("path", Path("a")), ("date", date(2024, 1, 1)), ("timedelta", timedelta(1))),
    *(("fraction", Fraction(1, 3)), ("complex", 1j), ("bytearray", bytearray(b"a")), ("generator", iter([]))),
    *(("OrderedDict", OrderedDict(a=1)), ("defaultdict", defaultdict(int))),
    *(("named tuple", Point(1)), ("int key", {1: "a"}), ("bytes key", {b"a": 1})),
    *(("None key", {None: 1}), ("tuple key", {("a",): 1}), ("str subclass as key", {Text("a"): 1})),
)


def exact(left: Any, right: Any) -> bool:
    """Whether two values are the same to the type, the order of keys and the offset."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(exact(item, right[name]) for name, item in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(exact, left, right))
    if isinstance(left, float):
        return bool(left.hex() == right.hex())
    if isinstance(left, datetime):
        folds = (left.fold, right.fold) if left.tzinfo is None else (0, 0)  # an offset says all that a fold could
        return bool((left, left.utcoffset(), folds[0]) == (right, right.utcoffset(), folds[1]))
    return bool(left == right)


async def kept(chat: SessionHistory, *given: Any) -> list[Any]:
    """The values of those that did not come back exactly from a message's contents; at best none."""
    messages = [Message("tool", [Content("function_result", call_id="c", result=value)]) for value in given]
    await chat.append(messages)
    loaded = (await chat.messages())[-len(given) :]
    back = [message.contents[0].result for message in loaded]
    return [(value, got) for value, got in zip(given, back, strict=True) if not exact(value, got)]


class ValueSentences(Stage):
    @sentence()
    async def test_nul_is_exact(self, scene: Scene) -> None:
        """NUL, at any place (B01, B03)."""
        assert await kept(scene.chat, *NUL) == []

    @sentence()
    async def test_lone_surrogates_are_exact(self, scene: Scene) -> None:
        """Lone surrogates (B04)."""
        assert await kept(scene.chat, *SURROGATES) == []

    @sentence()
    async def test_text_that_looks_like_a_marker_is_exact(self, scene: Scene) -> None:
        """The literal text of any escape or of our own markers (B07, B96)."""
        assert await kept(scene.chat, *MARKERS, [MARKERS], {"a": MARKERS[0]}) == []

    @sentence()
    async def test_floats_are_exact(self, scene: Scene) -> None:
        """NaN and infinities; a float stays a float (B05)."""
        assert await kept(scene.chat, *FLOATS, [FLOATS]) == []

    @sentence()
    async def test_ints_are_exact(self, scene: Scene) -> None:
        """Ints of any size; bools stay bools (B23)."""
        assert await kept(scene.chat, *INTS, [INTS]) == []

    @sentence()
    async def test_bytes_are_exact(self, scene: Scene) -> None:
        """Bytes, at any depth (B06)."""
        assert await kept(scene.chat, *BYTES) == []

    @sentence()
    async def test_tuples_are_exact(self, scene: Scene) -> None:
        """Tuples stay tuples, lists lists."""
        assert await kept(scene.chat, *TUPLES) == []

    @sentence()
    async def test_datetimes_are_exact(self, scene: Scene) -> None:
        """Aware (instant and offset) and naive datetimes (B08)."""
        assert await kept(scene.chat, *TIMES, {"when": TIMES}) == []

    @sentence()
    async def test_shapes_are_exact(self, scene: Scene) -> None:
        """`None` against absent, empty against `None`, key order."""
        assert await kept(scene.chat, *SHAPES) == []

    @sentence()
    async def test_text_of_any_script_is_exact(self, scene: Scene) -> None:
        """What goes in comes out equal (B16)."""
        assert await kept(scene.chat, *SCRIPTS) == []

    @sentence()
    async def test_deep_values_are_exact(self, scene: Scene) -> None:
        """At any depth."""
        deep: Any = b"bottom"
        for level in range(90):
            deep = {"down": deep} if level % 2 else [deep]
        assert await kept(scene.chat, deep) == []

    @sentence()
    def test_any_contents_are_exact(self, scene: Scene) -> None:
        """Exact on every backend, at any depth, in contents."""

        @self.tries()
        @given(st.lists(values, min_size=1, max_size=6))
        def check(given: list[Any]) -> None:
            assert scene.run(kept(scene.session(), *given)) == []

        check()

    @sentence()
    def test_any_additional_properties_are_exact(self, scene: Scene) -> None:
        """... in `additional_properties`."""

        async def back(given: dict[str, Any]) -> Any:
            chat = scene.session()
            await chat.append([Message("user", ["a"], additional_properties=given)])
            return (await chat.messages())[0].additional_properties

        @self.tries()
        @given(st.dictionaries(texts, values, max_size=3))
        def check(given: dict[str, Any]) -> None:
            assert exact(scene.run(back(given)), given)

        check()

    @sentence(Catalog)
    def test_any_metadata_is_exact(self, scene: Scene) -> None:
        """... in metadata; `None` at the top removes a key."""

        async def back(given: dict[str, Any]) -> Any:
            chat = scene.session()
            await chat.annotate({"first": 1})
            await chat.annotate(given)
            return (await info_of(chat)).metadata

        @self.tries()
        @given(st.dictionaries(texts, values, max_size=3))
        def check(given: dict[str, Any]) -> None:
            expected = {"first": 1, **given}
            found = scene.run(back(given))
            assert exact(found, {name: value for name, value in expected.items() if value is not None})

        check()

    @sentence(Snapshots)
    def test_any_snapshot_is_exact(self, scene: Scene) -> None:
        """... and snapshots."""

        async def back(given: dict[str, Any]) -> Any:
            chat = scene.session()
            await chat.save_snapshot(AgentSession(session_id="s", state=given))
            loaded = await chat.load_snapshot()
            assert loaded is not None
            assert isinstance(loaded.session, AgentSession)
            return loaded.session.state

        @self.tries()
        @given(st.dictionaries(texts, values, max_size=3))
        def check(given: dict[str, Any]) -> None:
            assert exact(scene.run(back(given)), given)

        check()

    @sentence()
    async def test_every_field_of_a_message_comes_back(self, scene: Scene) -> None:
        """What goes in comes out equal: role, contents, id, author, properties (B13)."""
        message = Message(
            "any role",
            ["text", Content("data", uri="x", media_type=None), {"type": "error", "message": "m", "error_code": 7}],
            author_name="Ann\x00",
            message_id="m1",
            additional_properties={"a": (1, None)},
        )
        await scene.chat.append([message, Message("assistant"), Message("", [""])])
        first, *others = await scene.chat.messages()
        assert first == message
        assert exact(first.to_dict(), message.to_dict())
        assert [(other.role, other.text, len(other.contents)) for other in others] == [
            ("assistant", "", 0),
            ("", "", 1),
        ]

    @sentence()
    async def test_unknown_fields_and_types_come_back(self, scene: Scene) -> None:
        """Fields and content types it does not know are kept and given back (B18)."""
        shape = {
            "type": "message",
            "role": "user",
            "contents": [{"type": "hologram", "depth": (3, b"z"), "parts": [{"type": "text", "text": "t", "new": 1}]}],
            "additional_properties": {},
            "usage_details": {"input_token_count": 5, "new_count": None},
            "conversation_id": None,
        }
        await scene.chat.append([Message.from_dict(shape)])
        (loaded,) = await scene.chat.messages()
        assert {**loaded.to_dict(), "message_id": None} == {**shape, "message_id": None}

    @sentence()
    async def test_a_second_cycle_changes_nothing(self, scene: Scene) -> None:
        """load(save(x)) == x, and again after a second cycle (B07)."""
        content = Content("data", data=b"%PDF\x00", looks_like="JVBERgA=", tag={"$bytes": "JVBERgA="})
        await scene.chat.append([Message("user", [content])])
        other = scene.session()
        await other.append(await scene.chat.messages())
        assert await other.messages() == await scene.chat.messages()
        assert exact((await other.messages())[0].contents[0].to_dict(), content.to_dict())

    @sentence()
    async def test_a_raw_representation_is_left_out(self, scene: Scene) -> None:
        """`raw_representation` is left out (B15)."""
        content = Content("text", text="a", raw_representation=object())
        await scene.chat.append([Message("user", [content], raw_representation=object())])
        (loaded,) = await scene.chat.messages()
        assert loaded.raw_representation is None
        assert "raw_representation" not in loaded.contents[0].to_dict()

    @sentence()
    async def test_contents_refuse_what_they_cannot_keep(self, scene: Scene) -> None:
        """Refused before anything is written: non-string keys, sets, subclasses, any other object (B09, B10, B11)."""
        for name, value in REFUSED:
            bad = Message("tool", [Content("function_result", result={"deep": [0, value]})])
            with pytest.raises(UnsupportedValueError) as caught:
                await scene.chat.append([*said("neighbour"), bad])
            assert "contents[0].result.deep[1]" in str(caught.value), name
        assert await scene.chat.messages() == []

    @sentence()
    async def test_properties_refuse_what_they_cannot_keep(self, scene: Scene) -> None:
        """... with the path of the value in the error."""
        for _, value in REFUSED:
            bad = Message("user", ["a"], additional_properties={"deep": (0, value)})
            with pytest.raises(UnsupportedValueError, match=r"additional_properties\.deep\[1\]"):
                await scene.chat.append([bad])
        assert await scene.chat.messages() == []

    @sentence(Snapshots)
    async def test_snapshots_refuse_what_they_cannot_keep(self, scene: Scene) -> None:
        """... in snapshots too, and the messages beside one are not written either."""
        for _, value in REFUSED:
            with pytest.raises(UnsupportedValueError, match=r"state\.deep\[1\]"):
                await scene.chat.append(said("a"), snapshot=AgentSession(state={"deep": [0, value]}))
        assert await scene.chat.messages() == []
        assert await scene.chat.load_snapshot() is None

    @sentence()
    async def test_only_messages_are_taken(self, scene: Scene) -> None:
        """A history takes messages: anything else is refused, nothing written."""
        bad: list[Any] = [[{"role": "user"}], ["text"], [None], "text", None, 5, [*said("a"), object()]]
        for messages in bad:
            with pytest.raises(TypeError):
                await scene.chat.append(messages)
        assert await scene.chat.messages() == []

    @sentence()
    async def test_changing_a_saved_object_changes_nothing_stored(self, scene: Scene) -> None:
        """Independent: mutating a saved object changes nothing stored (B97)."""
        inner = {"a": [1]}
        message = Message("user", [Content("data", value=inner)], message_id="m1", additional_properties={"x": inner})
        await scene.chat.append([message])
        inner["a"].append(2)
        message.contents.append(Content("text", text="late"))
        message.role, message.additional_properties["y"] = "system", 1
        (loaded,) = await scene.chat.messages()
        assert (loaded.role, loaded.contents[0].value) == ("user", {"a": [1]})
        assert (len(loaded.contents), loaded.additional_properties) == (1, {"x": {"a": [1]}})

    @sentence()
    async def test_changing_a_loaded_object_changes_nothing_stored(self, scene: Scene) -> None:
        """... or a loaded object (B97)."""
        await scene.chat.append([Message("user", [Content("data", value={"a": [1]})])])
        (loaded,) = await scene.chat.messages()
        loaded.contents[0].value["a"].append(2)
        loaded.role = "system"
        (record,) = await scene.chat.records()
        assert (record.message.role, record.message.contents[0].value) == ("user", {"a": [1]})

    @sentence(Catalog, Snapshots)
    async def test_metadata_and_snapshots_are_independent(self, scene: Scene) -> None:
        """What goes in comes out equal and independent, beside the messages too (B97)."""
        metadata, state = {"list": [1]}, {"list": [1]}
        session = AgentSession(session_id="s", state=state)
        await scene.chat.annotate({"m": metadata})
        await scene.chat.save_snapshot(session)
        for _ in range(2):
            metadata["list"].append(2)
            state["list"].append(2)
            info, loaded = await info_of(scene.chat), await scene.chat.load_snapshot()
            assert info.metadata == {"m": {"list": [1]}}
            assert loaded is not None
            assert isinstance(loaded.session, AgentSession)
            assert loaded.session.state == {"list": [1]}
            metadata, state = info.metadata["m"], loaded.session.state

    @sentence(Rewriting)
    async def test_updates_are_exact_and_independent(self, scene: Scene) -> None:
        """The same rules hold for what `update` and `replace` write."""
        odd: Any = {"a": [b"\x00", ("\ud800", math.nan)]}
        await scene.chat.append([named("m1")])
        message = Message("user", [Content("data", value=odd)], message_id="m1")
        await scene.chat.update(message)
        odd["a"].append(1)
        (loaded,) = await scene.chat.messages()
        assert exact(loaded.contents[0].value, {"a": [b"\x00", ("\ud800", math.nan)]})
        with pytest.raises(UnsupportedValueError, match=r"contents\[0\]\.value"):
            await scene.chat.update(Message("user", [Content("data", value={1})], message_id="m1"))
        with pytest.raises(UnsupportedValueError, match=r"contents\[0\]\.value"):
            await scene.chat.replace([Message("user", [Content("data", value={1})])])
