"""Messages and contents: the Agent Framework's dict shape, nothing lost, plain rules for attributes and equality."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

import pytest

from agentstore import Content, Message

FULL: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "contents": [
        {
            "type": "text",
            "text": "hi",
            "additional_properties": {"a": None},
            "annotations": [{"type": "citation", "x": 1}],
        },
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": {"a": (1, b"2")},
            "new_field": {"deep": [1]},
        },
        {"type": "function_result", "call_id": "c", "result": None, "items": [{"type": "image", "uri": "data:,x"}]},
        {"type": "hologram", "beam": 1.5},
    ],
    "author_name": "bot",
    "message_id": "m1",
    "additional_properties": {"usage": {"in": 1, "new": None}, "when": datetime(2024, 1, 1, tzinfo=timezone.utc)},
    "new_message_field": {"a": [1, None]},
    "another": None,
}


def test_every_field_survives_the_dict_shape() -> None:
    """Known or not, at each level: message, properties, content, nested content (B13, B18)."""
    assert Message.from_dict(FULL).to_dict() == FULL
    assert list(Message.from_dict(FULL).to_dict()) == list(FULL)


def test_unknown_fields_keep_their_order() -> None:
    """From run to run: what is stored does not depend on a hash seed."""
    names = [f"field{number}" for number in (3, 1, 4, 2, 9, 5, 8, 7)]
    assert list(Message.from_dict({"role": "u", **dict.fromkeys(names)}).to_dict())[-8:] == names


def test_any_mapping_can_be_read() -> None:
    """Not only a dict: a read-only view works, and is not held on to."""
    source = dict(FULL)
    message = Message.from_dict(MappingProxyType(source))
    source["role"] = "user"
    assert message == Message.from_dict(FULL)


def test_the_smallest_message() -> None:
    """A role is enough; what is not set is not in the dict, but for contents and properties, which are empty."""
    expected = {"type": "message", "role": "user", "contents": [], "additional_properties": {}}
    assert Message("user").to_dict() == Message.from_dict({"role": "user"}).to_dict() == expected


@pytest.mark.parametrize(
    ("given", "contents"),
    [
        (None, []),
        ([], []),
        ("hi", [{"type": "text", "text": "hi"}]),
        ("", [{"type": "text", "text": ""}]),
        (["a", "b"], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        (("a",), [{"type": "text", "text": "a"}]),
        (iter(["a"]), [{"type": "text", "text": "a"}]),
        ([{"type": "x", "y": 1}], [{"type": "x", "y": 1}]),
        ([MappingProxyType({"type": "x", "y": 1})], [{"type": "x", "y": 1}]),
        ([Content("x", y=1)], [{"type": "x", "y": 1}]),
        (Content("x", y=1), [{"type": "x", "y": 1}]),
        ({"type": "x", "y": 1}, [{"type": "x", "y": 1}]),
    ],
)
def test_what_contents_can_be_made_of(given: Any, contents: list[dict[str, Any]]) -> None:
    """Contents, texts and mappings, in any iterable; a single one is a list of one."""
    message = Message("user", given)
    assert [content.to_dict() for content in message.contents] == contents
    assert all(type(content) is Content for content in message.contents)


@pytest.mark.parametrize("given", [[None], [5], [b"a"], 5, b"a", [["a"]]])
def test_other_contents_are_a_type_error(given: Any) -> None:
    """Nothing is turned into text by accident."""
    with pytest.raises(TypeError):
        Message("user", given)


def test_text_joins_the_text_contents() -> None:
    """With one space; other contents and text contents without a text add nothing."""
    assert Message("user", ["a", Content("image", text="no"), "b", ""]).text == "a b "
    assert Message("user", [Content("text"), Content("text", text=None)]).text.strip() == ""
    assert Message("user").text == ""


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"role": None},
        {"role": 5},
        {"role": "u", "contents": "hi"},
        {"role": "u", "contents": 5},
        {"role": "u", "contents": {"type": "text"}},
        {"role": "u", "contents": [5]},
        {"role": "u", "contents": [{"text": "no type"}]},
        {"role": "u", "contents": [{"type": 5}]},
        {"role": "u", "additional_properties": [1]},
        {"role": "u", "author_name": 5},
        {"role": "u", "message_id": 5},
    ],
    ids=repr,
)
def test_a_mapping_that_is_no_message_is_a_value_error(data: dict[str, Any]) -> None:
    """It says what is wrong, and is always the same kind of error."""
    with pytest.raises(ValueError, match=r"\w"):
        Message.from_dict(data)


@pytest.mark.parametrize("data", [{}, {"text": "a"}, {"type": None}, {"type": 5}])
def test_a_content_needs_a_type(data: dict[str, Any]) -> None:
    """Nothing else is required of it."""
    with pytest.raises(ValueError, match="type"):
        Content.from_dict(data)


def test_raw_representation_is_left_out_at_every_level() -> None:
    """The provider's own object never reaches the dict, so nothing has to serialize it (B15)."""
    raw = object()
    inner = Content("image", uri="u", raw_representation=raw)
    content = Content("function_result", items=[inner], pair=(inner,), by_name={"a": inner}, raw_representation=raw)
    message = Message("tool", [content], additional_properties={"m": Message("u", raw_representation=raw)})
    message.raw_representation = raw
    assert message.raw_representation is content.raw_representation is raw
    image = {"type": "image", "uri": "u"}
    assert message.to_dict()["contents"] == [
        {"type": "function_result", "items": [image], "pair": (image,), "by_name": {"a": image}}
    ]
    assert "raw" not in repr(message.to_dict())
    assert Message.from_dict({**FULL, "raw_representation": raw}).raw_representation is None


def test_a_dict_is_independent_of_its_message() -> None:
    """Changing one, at any depth, leaves the other as it was (B97)."""
    message = Message.from_dict(copy.deepcopy(FULL))
    data = message.to_dict()
    data["contents"][1]["new_field"]["deep"].append(2)
    data["additional_properties"]["usage"]["in"] = 9
    data["new_message_field"]["a"].append(3)
    assert message.to_dict() == FULL


def test_fields_of_a_content_are_attributes() -> None:
    """Read, set, deleted; a missing one is an `AttributeError`, one that is `None` is not missing."""
    content = Content("text", text="a", note=None)
    content.text = "b"
    content.extra = [1]
    assert (content.type, content.text, content.note, content.extra) == ("text", "b", None, [1])
    assert content.get("note", "x") is None
    assert content.get("missing", "x") == "x"
    assert not hasattr(content, "missing")
    del content.extra
    assert content.to_dict() == {"type": "text", "text": "b", "note": None}
    with pytest.raises(AttributeError, match="missing"):
        _ = content.missing
    for name in ("missing", "type"):
        with pytest.raises(AttributeError, match=name):
            delattr(content, name)


ODD_NAMES = [
    *("self", "cls", "type_", "data", "to_dict", "from_dict", "get", "shape", "_fields", "__class__", "__dict__"),
    *("__deepcopy__", "__reduce_ex__", "__getstate__", "", " ", "a b", "$int", "v", "role", "a.b", "\u00e9"),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_text_can_name_a_field(name: str) -> None:
    """A field never collides with a method, with Python's protocols, or with how a content is kept."""
    data = {"type": "x", name: "value"}
    content = Content.from_dict(data)
    assert type(content) is Content
    assert content.get(name) == "value"
    assert content == Content("x", **{name: "value"})
    for same in (copy.copy(content), copy.deepcopy(content), pickle.loads(pickle.dumps(content)), content):
        assert same.to_dict() == data
    assert repr(content) == f"Content('x', {name}='value')"


@pytest.mark.parametrize("name", [*ODD_NAMES, "text", "_extra"])
def test_any_text_can_name_an_unknown_field_of_a_message(name: str) -> None:
    """Kept and given back, through a copy too."""
    data = {"type": "message", "contents": [], "additional_properties": {}, name: "value"}
    data.setdefault("role", "user")
    message = Message.from_dict(data)
    for same in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message)), message):
        assert same.to_dict() == data
        assert same == message


def test_setting_a_name_that_cannot_be_read_back_is_refused() -> None:
    """An attribute is either a field or an error, never a field that is not found again."""
    content = Content("x")
    try:
        content._note = 1  # type: ignore[attr-defined]
    except AttributeError:
        return
    assert content._note == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_deep_copy_is_equal_and_independent(copied: Callable[[Any], Any]) -> None:
    """Messages travel between processes, and can be kept aside."""
    message = Message.from_dict(copy.deepcopy(FULL))
    message.raw_representation = {"raw": 1}
    other = copied(message)
    assert other == message
    assert other.raw_representation == {"raw": 1}
    other.contents[1].new_field["deep"].append(2)
    other.additional_properties["usage"]["in"] = 9
    assert message == Message.from_dict(FULL)


def test_a_shallow_copy_has_its_own_fields() -> None:
    """Setting a field of the copied content leaves the original's alone."""
    content = Content("text", text="a")
    other = copy.copy(content)
    other.text = "b"
    assert content.text == "a"


@pytest.mark.parametrize(
    "other",
    [
        Message("user", ["a"]),
        Message("assistant", ["a "]),
        Message("assistant", ["a", ""]),
        Message("assistant", ["a"], message_id="m"),
        Message("assistant", ["a"], author_name="n"),
        Message("assistant", ["a"], additional_properties={"a": None}),
        Message("assistant", [Content("text", text="a", note=None)]),
        Message.from_dict({"role": "assistant", "contents": ["a"], "new": None}),
        Message("assistant", [Content("text", text=("a",))]),
    ],
    ids=repr,
)
def test_messages_that_differ_anywhere_are_not_equal(other: Message) -> None:
    """All values count, `None` and absent are two things."""
    assert Message("assistant", ["a"]) == Message("assistant", [{"text": "a", "type": "text"}])
    assert Message("assistant", ["a"]) != other


def test_equality_is_by_value_and_to_the_type() -> None:
    """NaN equals NaN, the order of keys and the raw object do not count, 1 is not 1.0; nothing is hashable."""

    def made(value: Any) -> Message:
        return Message("u", [Content("x", value=value)], additional_properties={"p": [value]})

    assert made(float("nan")) == made(float("nan"))
    assert made({"a": 1, "b": 2}) == made({"b": 2, "a": 1})
    assert made(1) != made(1.0)
    assert made([1]) != made((1,))
    assert Message("u", raw_representation=object()) == Message("u")
    assert Message("u") != {"type": "message", "role": "u", "contents": [], "additional_properties": {}}
    assert Content("x") != "x"
    for unhashable in (Message("u"), Content("x")):
        with pytest.raises(TypeError):
            hash(unhashable)


def test_messages_are_mutable() -> None:
    """Every documented attribute can be set, and counts."""
    message = Message("user", ["a"])
    message.role, message.author_name, message.message_id = "assistant", "n", "m"
    message.contents.append(Content("text", text="b"))
    message.additional_properties["k"] = 1
    expected = Message("assistant", ["a", "b"], author_name="n", message_id="m", additional_properties={"k": 1})
    assert message == expected


def test_the_repr_reads_like_the_constructor() -> None:
    """For people; ids are shown when set."""
    message = Message("user", ["hi"], message_id="m")
    assert repr(message) == "Message('user', [Content('text', text='hi')], message_id='m')"


@pytest.fixture(scope="module")
def framework() -> Any:
    """The Microsoft Agent Framework."""
    return pytest.importorskip("agent_framework")


def framework_contents(framework: Any) -> dict[str, Any]:
    """One content of each kind that the framework can make."""
    make = framework.Content
    text, call = make.from_text("a"), make.from_function_call("c", "f", arguments='{"a": 1}')
    image = make.from_data(b"\x00\x01", "image/png", name="n")
    return {
        "text": make.from_text(
            "hi \U0001f600",
            annotations=[{"type": "citation", "title": "t", "url": "u", "annotated_regions": [{"start_index": 0}]}],
            additional_properties={"k": None, "n": [1.5, {"a": "b"}]},
        ),
        "reasoning": make.from_text_reasoning(id="r", text="why", protected_data="xyz"),
        "data": image,
        "uri": make.from_uri("https://example.org/a.png", media_type="image/png"),
        "error": make.from_error(message="m", error_code="c", error_details="d"),
        "call": make.from_function_call("c", "f", arguments={"a": {"b": [1, None]}}, id="i", status="done"),
        "call with text": call,
        "result": make.from_function_result("c", result=[text, image], exception="boom"),
        "usage": make.from_usage({"input_token_count": 1, "output_token_count": 2, "other": 3}),
        "hosted file": make.from_hosted_file("f", media_type="text/plain", name="n"),
        "vector store": make.from_hosted_vector_store("v"),
        "interpreter call": make.from_code_interpreter_tool_call(call_id="c", inputs=[text]),
        "interpreter result": make.from_code_interpreter_tool_result(call_id="c", outputs=[text, image]),
        "computer call": make.from_computer_tool_call(id="i", call_id="c", actions=[{"type": "click", "x": 1}]),
        "computer result": make.from_computer_tool_result(call_id="c", screenshot=image),
        "image call": make.from_image_generation_tool_call(image_id="i"),
        "image result": make.from_image_generation_tool_result(image_id="i", outputs=[image]),
        "mcp call": make.from_mcp_server_tool_call("c", "t", server_name="s", arguments={"a": 1}),
        "mcp result": make.from_mcp_server_tool_result("c", output=[text]),
        "approval request": make.from_function_approval_request("i", call),
        "approval response": make.from_function_approval_response(True, "i", call),
        "consent": make.from_oauth_consent_request("https://example.org"),
        "search call": make.from_search_tool_call("c", tool_name="t", arguments={"q": "x"}),
        "search result": make.from_search_tool_result("c", tool_name="t", result="r", items=[text]),
        "shell call": make.from_shell_tool_call(call_id="c", commands=["ls"], timeout_ms=1),
        "shell output": make.from_shell_command_output(stdout="a", stderr="", exit_code=0, timed_out=False),
        "shell result": make.from_shell_tool_result(
            call_id="c", outputs=[make.from_shell_command_output(stdout="a", exit_code=0)]
        ),
    }


def test_the_agent_frameworks_messages_come_back(framework: Any) -> None:
    """Its dict shape is ours: every kind of content goes through, and it reads back what we give (B13)."""
    with warnings.catch_warnings():  # some kinds are experimental
        warnings.simplefilter("ignore")
        contents = framework_contents(framework)
    for kind, content in contents.items():
        theirs = framework.Message(
            "assistant", [content, "and text"], author_name="n", message_id="m", additional_properties={"k": [1, None]}
        )
        shape: Mapping[str, Any] = theirs.to_dict()
        ours = Message.from_dict(shape)
        assert ours.to_dict() == shape, kind
        assert framework.Message.from_dict(ours.to_dict()).to_dict() == shape, kind


def test_our_messages_are_read_by_the_agent_framework(framework: Any) -> None:
    """A plain message made here is one there, with the same text."""
    theirs = framework.Message.from_dict(Message("user", ["a", "b"], message_id="m").to_dict())
    assert (theirs.role, theirs.text, theirs.message_id) == ("user", "a b", "m")
    assert Message.from_dict(theirs.to_dict()).text == theirs.text
