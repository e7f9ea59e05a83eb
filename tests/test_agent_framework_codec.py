"""The Agent Framework's messages in stored form: every field of every kind, what is unknown, and what is odd."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from agent_framework import Content, Message
from agent_framework_contents import (
    CODEC,
    CORE,
    KINDS,
    NOON,
    ODD,
    PLAIN,
    alike,
    arguments_of,
    full,
    reloaded,
    storable,
    text,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import agentstore
from agentstore import UnsupportedValueError
from agentstore.adapters.agent_framework_codec import build_message
from agentstore.codec import decode_shape, digest, encode_shape
from agentstore.messages import same

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "agentstore"]


# Every kind, every field


def test_every_kind_has_a_factory() -> None:
    """The kinds known here, taken from the framework's public factories, are all that the framework knows."""
    factories = {name.removeprefix("from_") for name in dir(Content) if name.startswith("from_")} - {"dict"}
    assert factories == set(KINDS)
    assert len(KINDS) >= 26


def test_the_fields_that_are_populated_are_all_there_are() -> None:
    """A field of a newer framework is seen here first; every one of them is in some kind's factory."""
    populated = {name for kind in KINDS for name, value in vars(full(kind)).items() if value is not None}
    assert populated == set(vars(Content("text")))
    assert len(populated) >= 46


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_kind_survives(kind: str) -> None:
    """The whole dumps are equal, and so is the dump of the core's message for the same record (B13, B18)."""
    message = Message("assistant", [full(kind)], author_name="Ada", message_id="m", additional_properties=PLAIN)
    loaded, expected = reloaded(message), storable(message)
    assert loaded.contents[0].to_dict(exclude_none=False) == expected.contents[0].to_dict(exclude_none=False)
    assert loaded.to_dict(exclude_none=False) == expected.to_dict(exclude_none=False)
    assert CORE.decode(CODEC.encode(message).payload) == agentstore.Message.from_dict(expected.to_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_any_field_survives_in_any_kind(kind: str) -> None:
    """All fields at once, also those that the kind's own factory does not take, as far as the framework allows it."""
    only_of_calls = {"hosted": ("function_call",), "informational_only": ("function_call", "computer_tool_call")}
    fields = {name: value for name, value in arguments_of(PLAIN).items() if kind in only_of_calls.get(name, (kind,))}
    names = inspect.signature(Content).parameters.keys() - {"type", "merge_mode"}  # that one it takes with few kinds
    content = Content(kind, user_input_request=True, **{name: fields[name] for name in names & fields.keys()})
    message = Message("assistant", [content], author_name="Ada", message_id="m")
    assert alike(reloaded(message), storable(message))


@pytest.mark.parametrize("kind", KINDS)
def test_odd_values_survive_in_every_kind(kind: str) -> None:
    """Bytes, tuples, times, NaN, large ints, NUL, surrogates, in whatever takes them (B01, B04 to B08, trap 2)."""
    message = Message("assistant", [full(kind, ODD)], additional_properties=ODD)
    assert alike(reloaded(message), storable(message))
    assert alike(reloaded(reloaded(message)), storable(message))


@pytest.mark.parametrize("kind", KINDS)
def test_the_framework_itself_reads_what_is_stored(kind: str) -> None:
    """The stored shape is the framework's own: its `from_dict` makes the same object of it."""
    payload = CODEC.encode(Message("assistant", [full(kind)], message_id="m")).payload
    assert alike(Message.from_dict(decode_shape(payload)), CODEC.decode(payload))


def test_any_result_survives_that_was_set_on_the_object() -> None:
    """A result that did not go through the factory, which makes text of it, is stored as it is."""
    content = Content("function_result", call_id="c", result=ODD)
    assert same(reloaded(Message("tool", [content])).contents[0].result, ODD)


def test_a_message_without_optional_fields_gets_none() -> None:
    """No name, no id, no properties: absent in the store, and `None` or empty when loaded."""
    payload = CODEC.encode(Message("user", ["hi"])).payload
    assert json.loads(payload).keys() == {"v", "type", "role", "contents"}
    assert vars(CODEC.decode(payload)) | {"contents": []} == vars(Message("user"))


def test_tuples_of_contents_are_contents_when_loaded() -> None:
    """The fields take any sequence; a tuple stays one."""
    content = Content("function_result", call_id="c", items=(text("a"), text("b")))
    loaded = reloaded(Message("tool", [content])).contents[0]
    assert type(loaded.items) is tuple
    assert [item.text for item in loaded.items] == ["a", "b"]


def test_contents_in_properties_are_dicts_when_loaded() -> None:
    """As with the framework's own `from_dict`; also within a tuple."""
    loaded = reloaded(Message("user", ["hi"], additional_properties={"kept": (text("a"),), "more": [text("b")]}))
    assert loaded.additional_properties["kept"][0]["text"] == "a"
    assert loaded.additional_properties["more"][0]["text"] == "b"


def test_provider_objects_are_left_out() -> None:
    """`raw_representation` of message, content, nested content and annotation is not stored (B15)."""
    inner = Content.from_text("inner", raw_representation=object())
    annotation: Any = {"type": "citation", "raw_representation": object()}
    outer = Content.from_function_result("c", result=[inner], annotations=[annotation], raw_representation=object())
    message = Message("tool", [outer], raw_representation=object())
    payload = CODEC.encode(message).payload
    assert b"raw_representation" not in payload
    assert alike(CODEC.decode(payload), Message.from_dict(message.to_dict()))


def test_diagnostics_are_redacted_as_the_framework_does() -> None:
    """The text of an exception may hold secrets: the fixed marker is stored, also in nested contents."""
    call = Content.from_function_call("c", "pay", exception="hunter2", id="x", hosted=False)
    message = Message(
        "tool",
        [
            Content.from_function_result("c", result="failed", exception="hunter2"),
            Content.from_function_approval_request("x", call),
            Content.from_function_result("c", result=[Content("error", exception="hunter2")]),
        ],
        additional_properties={"deep": [{"call": call}, (call,), Wrapper(call)]},
    )
    payload = CODEC.encode(message).payload
    assert b"hunter2" not in payload
    assert CODEC.decode(payload).contents[0].exception == message.to_dict()["contents"][0]["exception"]


@dataclass
class Wrapper:
    inner: Any


def test_the_mark_of_the_provider_is_not_stored() -> None:
    """Attribution says who loaded a message in this run; the caller's object keeps it."""
    message = Message("user", ["hi"], additional_properties={"_attribution": {"source_id": "rag"}, "kept": 1})
    assert reloaded(message).additional_properties == {"kept": 1}
    assert "_attribution" in message.additional_properties


@pytest.mark.parametrize("given", ["", None])
def test_an_empty_id_is_none(given: str | None) -> None:
    """Some services answer with an empty id: the message is given a real one."""
    message = Message("user", ["hi"], message_id=given)
    assert CODEC.find_id(message) is None
    assert CODEC.encode(message).message_id is None


def test_loaded_messages_can_be_copied_and_pickled() -> None:
    """A directly built object is a whole one."""
    message = Message("assistant", [full(kind) for kind in KINDS], author_name="Ada", message_id="m")
    loaded = reloaded(message)
    for twin in (copy.copy(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert alike(twin, loaded)


def test_nothing_is_shared_between_loaded_messages() -> None:
    """Changing one loaded message changes no other, now or later (B97)."""
    payload = CODEC.encode(Message("tool", [full("function_result"), text()])).payload
    first = CODEC.decode(payload)
    first.additional_properties["new"] = first.contents[1].additional_properties["new"] = 1
    first.contents[0].items.append(1)  # type: ignore[union-attr]
    first.contents[1].annotations = []
    first.contents.clear()
    assert alike(CODEC.decode(payload), CODEC.decode(payload))
    assert len(CODEC.decode(payload).contents) == 2
    assert CODEC.decode(payload).contents[1].additional_properties == {}
    bare = CODEC.decode(written()).contents[0]
    bare.additional_properties["new"] = 1
    assert CODEC.decode(written()).contents[0].additional_properties == {}


# Direct building equals the framework's

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
texts = st.text(max_size=5)
properties = st.dictionaries(st.sampled_from(["a", "b", "server_label"]), anything | texts, max_size=2)
FIELDS = [
    *("text", "id", "call_id", "name", "arguments", "status", "hosted", "informational_only", "result", "exception"),
    *("uri", "media_type", "file_id", "protected_data", "server_name", "merge_mode", "user_input_request", "items"),
    *("inputs", "outputs", "output", "screenshot", "function_call", "approved", "data", "annotations"),
]
likely = {
    "text": texts,
    "hosted": st.booleans(),
    "informational_only": st.booleans(),
    "merge_mode": st.sampled_from(["append", "replace"]),
    "annotations": st.lists(properties, max_size=2),
    "data": st.binary(max_size=3),
}


@st.composite
def content_shapes(draw: st.DrawFn, depth: int = 0) -> dict[str, Any]:
    """Stored contents of any known kind, most of them right, with fields that their factory may not take."""
    kinds = ["text", "text_reasoning", "function_call", "function_result", "uri", "data"]
    shape: dict[str, Any] = {"type": draw(st.sampled_from(kinds) | st.sampled_from(KINDS))}
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=5, unique=True)):
        nested = name in ("items", "inputs", "outputs", "output", "screenshot", "function_call")
        if nested and depth < 2:
            inner = content_shapes(depth=depth + 1)
            shape[name] = draw(
                inner if name in ("screenshot", "function_call") else st.lists(inner | scalars, max_size=2)
            )
        else:
            shape[name] = draw(likely.get(name, texts) | anything)
    if draw(st.booleans()):
        shape["additional_properties"] = draw(properties | scalars)
    return shape


@settings(deadline=None, max_examples=600)
@given(content_shapes())
def test_a_content_is_what_the_frameworks_from_dict_makes_of_it(shape: dict[str, Any]) -> None:
    """Whichever way it is built, all attributes are equal; what the framework refuses is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = build_message({"role": "user", "contents": [copy.deepcopy(shape)]})
        try:
            expected = Content.from_dict(copy.deepcopy(shape))
        except Exception:
            return  # see the tests of what is unknown
    assert alike(message.contents, [expected])


@settings(deadline=None, max_examples=200)
@given(
    role=texts,
    contents=st.lists(content_shapes(), max_size=3),
    optional=st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("message"),
            "author_name": st.none() | texts,
            "message_id": st.none() | texts,
            "additional_properties": st.none() | st.dictionaries(texts, anything, max_size=2),
        },
    ),
)
def test_a_message_is_what_the_frameworks_from_dict_makes_of_it(
    role: str, contents: list[dict[str, Any]], optional: dict[str, Any]
) -> None:
    """All attributes are equal."""
    shape = {"role": role, "contents": contents, **optional}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = build_message(copy.deepcopy(shape))
        try:
            expected = Message.from_dict(copy.deepcopy(shape))
        except Exception:
            return
    assert alike(built, expected)


def test_the_common_kinds_do_not_go_through_from_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run with tools stores is built directly."""
    result = Content.from_function_result("c", id="x", result="3", exception="failed", status="completed")
    call = Content.from_function_call("c", "add", arguments={"a": 1}, id="x", status="completed")
    reasoning = Content.from_text_reasoning(
        text="hm", protected_data="s", id="r", additional_properties={"a": {"b": 1}}
    )
    contents = [text(), reasoning, call, result, Content.from_data(b"x", "image/png"), Content.from_uri("https://a/b")]
    message = Message("assistant", contents)
    payload = CODEC.encode(message).payload

    def refused(*args: object) -> None:
        raise AssertionError("from_dict was called")

    expected = storable(message)
    monkeypatch.setattr(Content, "from_dict", refused)
    assert alike(CODEC.decode(payload), expected)


# What a newer or another writer left behind


def written(**fields: Any) -> bytes:
    shape = {"type": "message", "role": "assistant", "contents": [{"type": "text", "text": "hi"}], **fields}
    return encode_shape(shape).payload


def test_unknown_fields_are_left_out_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A row of a newer framework stays readable; at each level the known part is there (B18, trap 1)."""
    new = {"new": {"a": 1}}
    contents = [
        {"type": "text", "text": "hi", **new},
        {"type": "function_result", "call_id": "c", "items": [{"type": "text", "text": "item", **new}]},
        {"type": "code_interpreter_tool_call", "call_id": "c", "inputs": [{"type": "text", "text": "input", **new}]},
        {"type": "shell_tool_result", "outputs": [{"type": "shell_command_output", "stdout": "out", **new}]},
        {"type": "computer_tool_result", "call_id": "c", "screenshot": {"type": "hosted_file", "file_id": "f", **new}},
        {
            "type": "function_approval_request",
            "id": "a",
            "function_call": {"type": "function_call", "call_id": "c", "name": "pay", **new},
        },
    ]
    loaded = CODEC.decode(written(contents=contents, mood="calm", new=1))
    first, result, interpreter, shell, computer, approval = loaded.contents
    assert first.text == "hi"
    assert result.items[0].text == "item"  # type: ignore[index]
    assert interpreter.inputs[0].text == "input"  # type: ignore[index]
    assert shell.outputs[0].stdout == "out"  # type: ignore[index]
    assert computer.screenshot.file_id == "f"  # type: ignore[union-attr]
    assert approval.function_call.name == "pay"  # type: ignore[union-attr]
    assert not any("new" in vars(content) for content in loaded.contents)
    (line,) = logged(caplog)
    for name in ("message.mood", "message.new", "text.new", "shell_command_output.new", "function_call.new"):
        assert name in line


def test_an_unknown_field_of_the_message_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Also where all contents are known."""
    assert CODEC.decode(written(mood="calm")).text == "hi"
    assert len(logged(caplog)) == 1
    assert "message.mood" in logged(caplog)[0]


def test_a_field_of_another_kind_is_no_reason_to_lose_the_content() -> None:
    """`data` belongs to data contents only; elsewhere it is unknown like any other."""
    content = {"type": "text", "text": "hi", "data": b"x", "media_type": "text/plain"}
    assert CODEC.decode(written(contents=[content])).text == "hi"


def test_an_unknown_kind_of_content_is_left_out_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The rest of the message is there, at the top and within another content."""
    strange = {"type": "hologram", "beam": [1, 2], "text": "x"}
    result = {"type": "function_result", "call_id": "c", "items": [strange, {"type": "text", "text": "item"}, None, 5]}
    loaded = CODEC.decode(written(contents=[strange, {"type": "text", "text": "hi"}, result]))
    assert [content.type for content in loaded.contents] == ["text", "function_result"]
    assert [getattr(item, "text", item) for item in loaded.contents[1].items or []] == ["item", None, 5]
    assert len(logged(caplog)) == 1
    assert "hologram" in logged(caplog)[0]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "data", "data": "not bytes", "media_type": "image/png"},
        {"type": "text", "text": "x", "merge_mode": "sideways"},
        {"type": "uri", "uri": "https://a/b", "hosted": True},
        {"type": "function_call", "call_id": "c", "name": "f", "hosted": "yes"},
        {"type": "function_call", "call_id": "c", "additional_properties": {"server_label": 5}},
        {"type": "text", "text": "x", "additional_properties": 5},
    ],
    ids=lambda content: "-".join(content),
)
def test_a_content_that_the_framework_refuses_does_not_hide_the_history(
    content: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What the core may write, and the framework cannot be given, is left out with one line."""
    loaded = CODEC.decode(written(contents=[{"type": "text", "text": "hi"}, content]))
    assert [content.text for content in loaded.contents] == ["hi"]
    assert len(logged(caplog)) == 1


def test_plain_values_in_outputs_stay() -> None:
    """A tool's JSON beside contents is no content, and is not lost."""
    outputs = [{"logs": "a"}, "text", 5, None, {"type": 5}, {"type": "text", "text": "x"}]
    content = Content("code_interpreter_tool_result", call_id="c", outputs=outputs)
    loaded = reloaded(Message("assistant", [content])).contents[0].outputs
    assert loaded is not None
    assert loaded[:5] == outputs[:5]
    assert loaded[5].text == "x"


@pytest.mark.parametrize(
    "fields",
    [
        {"role": 5},
        {"role": None},
        {"contents": None},
        {"contents": "hi"},
        {"contents": {"type": "text"}},
        {"contents": ["hi"]},
        {"contents": [{"text": "hi"}]},
        {"contents": [{"type": 5}]},
        {"author_name": 5},
        {"message_id": 5},
        {"additional_properties": [1]},
    ],
    ids=str,
)
def test_what_is_no_message_is_a_value_error(fields: dict[str, Any]) -> None:
    """So that the store names the session and the seq of a record that cannot be read."""
    shape = {"v": 1, "type": "message", "role": "user", "contents": [], **fields}
    with pytest.raises(ValueError, match=r"message|content"):
        CODEC.decode(json.dumps({name: value for name, value in shape.items() if name}).encode())


# Core and adapter read each other


def test_the_cores_message_reads_as_the_frameworks_and_back() -> None:
    """Role, contents, name, id and properties are the same; the digest too, where the core's came from the dict."""
    ours = agentstore.Message(
        "assistant",
        [agentstore.Content("text", text="hi"), agentstore.Content("function_call", call_id="c", arguments=ODD)],
        author_name="Ada",
        message_id="m",
        additional_properties=ODD,
    )
    loaded = CODEC.decode(CORE.encode(ours).payload)
    assert loaded.text == "hi"
    assert same(loaded.contents[1].arguments, ODD)
    assert (loaded.author_name, loaded.message_id) == ("Ada", "m")
    assert same(loaded.additional_properties, ODD)
    again = CORE.decode(CODEC.encode(loaded).payload)
    assert digest(CORE.encode(again).identity) == digest(CODEC.encode(loaded).identity)


def test_a_message_of_the_core_is_encoded_by_the_core() -> None:
    """It stands for a record that only the core can read; a replay check meets it in a loaded window."""
    opaque = agentstore.Message("unknown", [agentstore.Content("opaque", format="x/1", payload=b"\xff")])
    assert CODEC.encode(opaque) == CORE.encode(opaque)


@pytest.mark.parametrize("given", ["hi", {"role": "user"}, None, 5])
def test_nothing_else_is_taken_for_a_message(given: Any) -> None:
    """A text or dict in a list of messages is a mistake, not a value to bend."""
    with pytest.raises(UnsupportedValueError, match=r"agent_framework\.Message"):
        CODEC.encode(given)


# Values that the core refuses


class Colour(Enum):
    RED = "red"


class Role(str, Enum):
    TOOL = "tool"


class Explosive:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def cycle() -> dict[str, Any]:
    ring: dict[str, Any] = {"a": 1}
    ring["ring"] = ring
    ring["branches"] = [ring, [ring, ring]]
    return ring


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "red"),
        (Wrapper(Colour.RED), {"inner": "red"}),
        ({"b", "a"}, ["a", "b"]),
        (Decimal("1.5"), "1.5"),
        (Explosive(), "<Explosive without a text>"),
        ({1: "a", "1": "b"}, {"1 (int)": "a", "1": "b"}),
        (cycle(), None),
        (deep(100_000), None),
        ([text("nested"), Decimal(1), b"\xff"], None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refused_value_is_stored_as_a_plain_one_and_told_once(
    value: Any, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In arguments, results and properties alike; everything beside it stays exact (B09, B10, B11)."""
    message = Message("assistant", [Content.from_function_call("c", "f", arguments={"odd": value, "bytes": b"\xff"})])
    message.contents.append(Content("function_result", call_id="c", result=[value, (1, NOON)]))
    message.additional_properties = {"odd": value, "time": NOON}
    loaded = reloaded(message)
    assert len(logged(caplog)) == 1
    call, result = loaded.contents
    assert call.arguments["bytes"] == b"\xff"  # type: ignore[index]
    assert result.result[1] == (1, NOON)
    assert loaded.additional_properties["time"] == NOON
    if expected is not None:
        assert same(call.arguments["odd"], expected)  # type: ignore[index]
        assert same(result.result[0], expected)
        assert same(loaded.additional_properties["odd"], expected)


def test_the_line_names_the_path_and_not_the_value(caplog: pytest.LogCaptureFixture) -> None:
    """Where the value stands and of what type it is; its text may be a secret."""
    CODEC.encode(
        Message("user", ["hi", Content.from_function_call("c", "f", arguments={"price": [Decimal("1.2345")]})])
    )
    (line,) = logged(caplog)
    assert "contents[1].arguments.price[0]" in line
    assert "Decimal" in line
    assert "1.2345" not in line


def test_nested_contents_are_whole_beside_a_refused_value(caplog: pytest.LogCaptureFixture) -> None:
    """Down-casting reads contents by their attributes too, where the framework's `to_dict` would lose bytes."""
    inner = Content.from_function_call("c", "f", arguments={"b": b"\xff", "t": (1,)}, id="x", hosted=False)
    request = Content.from_function_approval_request("x", inner, additional_properties={"odd": Colour.RED})
    loaded = reloaded(Message("assistant", [request])).contents[0]
    assert loaded.function_call.arguments == {"b": b"\xff", "t": (1,)}  # type: ignore[union-attr]
    assert loaded.additional_properties == {"odd": "red"}
    assert len(logged(caplog)) == 1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("role", Role.TOOL, "tool"), ("message_id", 5, "5"), ("author_name", Colour.RED, "red"), ("role", None, "None")],
)
def test_the_fields_of_a_message_become_text(name: str, value: Any, expected: str) -> None:
    """An enum as the role, a number as the id: never a failed run."""
    message = Message("user", ["hi"])
    setattr(message, name, value)
    assert getattr(reloaded(message), name) == expected


def test_missing_properties_are_none_at_all() -> None:
    """`None` where a mapping belongs is an empty one."""
    message = Message("user", ["hi"])
    message.additional_properties = None  # type: ignore[assignment]
    message.contents[0].additional_properties = None  # type: ignore[assignment]
    assert alike(reloaded(message), Message("user", ["hi"]))


def test_a_subclass_of_a_content_is_a_content() -> None:
    """At the top, within another, and within a tuple."""

    class Special(Content):
        pass

    special = Special("function_call", call_id="c", arguments={"t": (1,)}, hosted=False)
    outer = Content("function_result", call_id="c", items=[special])
    loaded = reloaded(Message("tool", [special, outer]))
    assert loaded.contents[0].arguments == {"t": (1,)}
    assert loaded.contents[1].items[0].arguments == {"t": (1,)}  # type: ignore[index]


def test_the_same_set_makes_the_same_digest() -> None:
    """So that a retry finds what is stored."""
    sets = [set("abcdef"), set("fedcba")]
    digests = {
        digest(CODEC.encode(Message("user", [Content("text", text="x", result=value)])).identity) for value in sets
    }
    assert len(digests) == 1


def test_what_can_be_stored_does_not_hang_on_who_asks() -> None:
    """The deepest values go in and come out whole from deep within other calls."""
    value = deep(190)
    refused = {"deep": value, "odd": Colour.RED}

    inner = text("innermost")
    for _ in range(80):
        inner = Content("function_result", call_id="c", items=[inner])

    def check() -> None:
        message = Message("user", [Content.from_function_call("c", "f", arguments={"deep": value}), inner])
        loaded = reloaded(message)
        assert loaded.contents[0].arguments == {"deep": value}
        assert loaded.contents[1].to_dict() == inner.to_dict()
        message = Message("user", [Content.from_function_call("c", "f", arguments=refused)])
        assert reloaded(message).contents[0].arguments == {"deep": value, "odd": "red"}

    check()
    from_deep_within(lambda: CODEC.decode(CODEC.encode(Message("user", [inner])).payload), room=100)
    from_deep_within(lambda: CODEC.encode(Message("user", [Content("text", text="x", result=refused)])), room=100)


def from_deep_within(work: Callable[[], object], room: int) -> object:
    """Do the work with that many frames left on the stack."""
    if len(inspect.stack(0)) + room < sys.getrecursionlimit():
        return from_deep_within(work, room)
    return work()
