"""The core's codec: what it takes, what it refuses before a write, what it makes of records that are not its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstore import Codec, Content, Message, UnsupportedValueError, codec, untagged
from agentstore.backend import Limits
from agentstore.batch import encode_batch
from agentstore.codec import MessageCodec, decode_record, digest, register_converter
from agentstore.messages import same

CORE = MessageCodec()

odd_texts = st.sampled_from(
    ["", "a", "v", "$int", "$fields", "type", "role", "a\x00", "\ud800", "%00", "\u00e9", "__class__"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | odd_texts | st.binary(max_size=4) | st.datetimes()
plain_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(odd_texts, inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.dictionaries(odd_texts.filter(lambda name: name != "type"), plain_values, max_size=3)
contents = st.builds(
    lambda kind, given: Content.from_dict({"type": kind, **given}), st.sampled_from(["text", "x", "\u00e9"]), fields
)
KNOWN = {"type", "role", "contents", "author_name", "message_id", "additional_properties", "raw_representation"}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Any message that can be kept: odd names, odd values, unknown fields at each level."""
    unknown = {name: value for name, value in draw(fields).items() if name not in KNOWN}
    message = Message.from_dict({"role": draw(odd_texts), **unknown})
    message.contents = draw(st.lists(contents, max_size=3))
    message.additional_properties = draw(fields)
    message.author_name, message.message_id = draw(st.none() | odd_texts), draw(st.none() | odd_texts)
    return message


bounded = settings(deadline=None, max_examples=150)


@bounded
@given(messages())
def test_values_without_tags_have_a_short_way_to_the_same_bytes(message: Message) -> None:
    """Payload and identity are those of the walk that tags, whichever way is taken."""
    encoded = CORE.encode(message)
    with patch.object(untagged, "dump", return_value=None):
        assert CORE.encode(message) == encoded


odd_numbers = [float("nan"), float("inf"), 2**63, -(2**63) - 1]
odd_dicts = [{"$a": 1}, {"$dict": 1, "a": 2}, {"a\x00": 1}, {"a": {"\ud800": 1}}]


@pytest.mark.parametrize(
    "odd",
    [
        *odd_numbers,
        *odd_dicts,
        "\x00",
        "\ud800",
        b"a",
        (1,),
        [[(1,)]],
        datetime(2026, 1, 1),
        Content("x", y=b"a"),
        Message("u"),
    ],
)
def test_what_needs_a_tag_takes_the_long_way(odd: Any) -> None:
    """... at any depth."""
    for value in (odd, [odd], {"a": odd}, {"a": [{"b": odd}], "c": 1}):
        assert untagged.dump({"a": value, "b": 1}) is None
    assert untagged.dump({"a": {"b": [1, 1.5, None, True, "\u00e9", Content("x", y={"z": "\n"})]}}) is not None


@bounded
@given(messages())
def test_a_decoded_message_equals_the_encoded_one(message: Message) -> None:
    """Unknown fields at each level, whatever their names and values (B01, B13, B18)."""
    payload = CORE.encode(message).payload
    decoded = CORE.decode(payload)
    assert decoded == message
    assert CORE.encode(decoded) == CORE.encode(message)


@bounded
@given(messages())
def test_plain_text_stays_at_fixed_paths(message: Message) -> None:
    """`jq .role` and `jq .contents[0].type` work on every payload, and `v` comes first."""
    stored = json.loads(CORE.encode(message).payload)
    assert next(iter(stored)) == "v"
    assert stored["v"] == 1
    assert stored["type"] == "message"
    assert len(stored["contents"]) == len(message.contents)
    assert {"role", "contents"} <= stored.keys()


def reordered(message: Message) -> Message:
    """The message with the keys of every dict in it the other way round."""

    def turned(value: Any) -> Any:
        if type(value) is dict:
            return {name: turned(value[name]) for name in reversed(value)}
        return type(value)(map(turned, value)) if type(value) in (list, tuple) else value

    return Message.from_dict(turned(message.to_dict()))


@bounded
@given(messages())
def test_the_digest_does_not_depend_on_the_order_of_keys(message: Message) -> None:
    """A framework that rebuilds its dicts in another order still meets its own message."""
    assert digest(CORE.encode(reordered(message)).identity) == digest(CORE.encode(message).identity)


@bounded
@given(messages(), messages())
def test_the_digest_stands_for_role_and_contents_alone(one: Message, other: Message) -> None:
    """Equal where these are equal, different where they differ; ids, names and properties do not count."""

    def identity(message: Message) -> list[Any]:
        return [message.role, [content.to_dict() for content in message.contents]]

    digests = [digest(CORE.encode(message).identity) for message in (one, other)]
    assert (digests[0] == digests[1]) == same(identity(one), identity(other))


def test_the_digest_of_plain_values_is_that_of_their_canonical_form() -> None:
    """A codec of an adapter hands over values; they need not be JSON."""
    assert digest(["u", {"a\x00": (1, b"x"), "b": 2}]) == digest(["u", {"b": 2, "a\x00": (1, b"x")}])
    assert digest(["u", {"a": (1,)}]) != digest(["u", {"a": [1]}])


def test_the_core_codec_is_a_codec() -> None:
    """It gives a message its id, and says which one it has."""
    message = Message("u")
    assert isinstance(CORE, Codec)
    assert CORE.format == "agentstore/1"
    assert CORE.encode(message).message_id is None
    assert CORE.assign_id(message, "m")
    assert message.message_id == CORE.encode(message).message_id == "m"


def changed(**attributes: Any) -> Message:
    message = Message("user", ["hi"])
    for name, value in attributes.items():
        setattr(message, name, value)
    return message


def retyped(kind: Any) -> Message:
    message = Message("user", ["hi", "ho"])
    message.contents[1].type = kind
    return message


class SubMessage(Message):
    __slots__ = ()


class SubContent(Content):
    __slots__ = ()


REFUSED: dict[str, tuple[Any, str]] = {
    "role none": (changed(role=None), "role"),
    "role int": (changed(role=5), "role"),
    "role str subclass": (changed(role=type("Role", (str,), {})("user")), "role"),
    "id": (changed(message_id=5), "message_id"),
    "author": (changed(author_name=b"a"), "author_name"),
    "properties list": (changed(additional_properties=[1]), "additional_properties"),
    "properties int": (changed(additional_properties=5), "additional_properties"),
    "contents none": (changed(contents=None), "contents"),
    "contents text": (changed(contents="hi"), "contents"),
    "contents of text": (changed(contents=["hi"]), r"contents\[0\]"),
    "content subclass": (changed(contents=[SubContent("x")]), r"contents\[0\]"),
    "content type int": (retyped(5), r"contents\[1\]"),
    "content type none": (retyped(None), r"contents\[1\]"),
    "value in content": (Message("u", ["a", Content("x", a=[object()])]), r"contents\[1\]\.a\[0\]"),
    "value in nested content": (
        Message("u", [Content("x", items=[Content("y", b={1})])]),
        r"contents\[0\]\.items\[0\]\.b",
    ),
    "value in properties": (Message("u", additional_properties={"a": {"b": {1}}}), r"additional_properties\.a\.b"),
    "value in unknown field": (Message.from_dict({"role": "u", "new": [{1}]}), r"new\[0\]"),
    "key in content": (Message("u", [Content("x", a={1: 2})]), r"contents\[0\]\.a"),
    "subclass": (SubMessage("u"), "SubMessage"),
    "dict": ({"role": "u"}, "dict"),
    "text": ("hi", "str"),
    "none": (None, "NoneType"),
}


@pytest.mark.parametrize(("message", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_could_not_be_read_back_is_refused_at_the_write(message: Any, named: str) -> None:
    """Our own error, naming the place; a record that nobody can read is never made."""
    with pytest.raises(UnsupportedValueError, match=named):
        CORE.encode(message)


def test_a_field_whose_name_is_no_text_is_refused() -> None:
    """As it is in a content, before anything is written."""
    with pytest.raises(UnsupportedValueError, match="key"):
        CORE.encode(Message.from_dict({"role": "user", "contents": [], 1: 2}))  # type: ignore[dict-item]


@pytest.mark.parametrize("seconds", [-1, 2**48 / 1000, 10**11])
def test_new_ids_are_their_own_bytes_whatever_the_clock_says(seconds: float) -> None:
    """Also before 1970 and after the year 6429: an id that was made and the same one found again have one hash."""
    with patch("time.time_ns", return_value=int(seconds * 10**9)):
        message = Message("user", ["hi"])
        made = encode_batch(CORE, [message], Limits(1000, 1000)).records[0]
    found = encode_batch(CORE, [message], Limits(1000, 1000)).records[0]
    assert made.fresh
    assert not found.fresh
    assert made.id_hash == found.id_hash


def test_a_content_with_odd_field_names_is_kept() -> None:
    """NUL and surrogates in a key of a content, at any depth (B01)."""
    message = Message("u", ["a", Content.from_dict({"type": "x", "a\x00": 1, "\ud800": {"b\x00": 2}})])
    assert CORE.decode(CORE.encode(message).payload) == message


def test_contents_in_a_tuple_are_the_same_contents() -> None:
    """A caller who sets a tuple is refused, or writes what a list would write."""
    as_list, as_tuple = Message("u", ["a"]), Message("u", ["a"])
    as_tuple.contents = tuple(as_tuple.contents)  # type: ignore[assignment]
    try:
        encoded = CORE.encode(as_tuple)
    except UnsupportedValueError:
        return
    assert encoded == CORE.encode(as_list)


def test_raw_representation_is_not_stored() -> None:
    """Whatever object it is, and wherever it hangs (B15)."""
    raw = object()
    message = Message("u", [Content("x", raw_representation=raw, items=[Content("y", raw_representation=raw)])])
    message.raw_representation = raw
    assert b"raw" not in CORE.encode(message).payload


def test_encoding_leaves_the_message_alone() -> None:
    """It has the same objects in it afterwards, and nothing more."""
    inner = Content("y", b=(b"1", float("nan")))
    message = Message("u", [Content("x", items=[inner])])
    CORE.encode(message)
    assert message.contents[0].items[0] is inner
    assert message == Message("u", [Content("x", items=[Content("y", b=(b"1", float("nan")))])])


NOT_PAYLOADS: list[Any] = [
    *(
        b"",
        b"nope",
        b"null",
        b"[]",
        b"5",
        b'"text"',
        b"{}",
        b'{"v":1}',
        b"\xff",
        b'{"v":1,"role":"u"',
        b'{"$tuple":[]}',
    ),
    *({"role": "u"}, {"v": 2, "role": "u"}, {"v": 0, "role": "u"}, {"v": "1", "role": "u"}, {"v": None, "role": "u"}),
    *({"v": True, "role": "u"}, {"v": 1.0, "role": "u"}, {"v": [1], "role": "u"}, {"v": 10**30, "role": "u"}),
    *(
        {"v": 1, "role": 5},
        {"v": 1, "role": None},
        {"v": 1, "role": "u", "contents": 5},
        {"v": 1, "role": {"$bytes": "YQ=="}},
    ),
    *(
        {"v": 1, "role": "u", "contents": [5]},
        {"v": 1, "role": "u", "contents": [{}]},
        {"v": 1, "role": "u", "contents": "a"},
    ),
    *({"v": 1, "role": "u", "contents": [{"type": 5}]}, {"v": 1, "role": "u", "additional_properties": 5}),
    *({"v": 1, "role": "u", "message_id": 5}, {"v": 1, "role": "u", "author_name": []}),
    *(
        {"v": 1, "role": "u", "$fields": 5},
        {"v": 1, "role": "u", "$fields": [["a"]]},
        {"v": 1, "role": "u", "$fields": None},
    ),
    *({"v": 1, "role": "u", "a": {"$new": 1}}, {"v": 1, "role": "u", "a": {"$datetime": "x"}}),
]


@pytest.mark.parametrize("payload", NOT_PAYLOADS, ids=lambda payload: str(payload)[:50])
def test_what_is_no_payload_is_a_value_error(payload: Any) -> None:
    """Damaged, foreign or newer: refused, never guessed, and never another error."""
    data = payload if type(payload) is bytes else json.dumps(payload).encode()
    with pytest.raises(ValueError, match=r"\w"):
        CORE.decode(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=6,
)


shape_fields = ("role", "contents", "additional_properties", "message_id", "$fields", "$dict", "a", "type")


@bounded
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(shape_fields, json_values)))
def test_any_json_is_a_message_or_a_value_error(shape: dict[str, Any]) -> None:
    """And what was read can be written again."""
    data = json.dumps({"v": 1, **shape}).encode("utf-8", "surrogatepass")
    try:
        message = CORE.decode(data)
    except ValueError:
        return
    assert CORE.decode(CORE.encode(message).payload) == message


class TextCodec:
    """Another codec, of plain texts."""

    format = "text/1"

    def encode(self, obj: str, /) -> tuple[None, str, bytes]:
        return None, obj, obj.encode()

    def decode(self, payload: bytes, /) -> str:
        return payload.decode()

    def assign_id(self, obj: str, message_id: str, /) -> bool:
        return False


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`register_converter`, undone after the test."""
    monkeypatch.setattr(codec, "_converters", dict(codec._converters))
    return register_converter


def test_a_codec_reads_its_own_format() -> None:
    """The record's format decides, not the look of the payload."""
    assert decode_record(TextCodec(), "text/1", b"hi") == "hi"
    assert decode_record(CORE, "agentstore/1", CORE.encode(Message("u")).payload) == Message("u")


def test_every_codec_reads_the_cores_records() -> None:
    """As core messages: a session may hold both."""
    assert decode_record(TextCodec(), "agentstore/1", CORE.encode(Message("u", ["a"])).payload) == Message("u", ["a"])


def test_an_unknown_format_comes_as_an_opaque_message() -> None:
    """Its payload is kept, so that nothing is lost and a copy can be made of it."""
    for format in ("strange/7", "strange", "strange/x", "other/agentstore/1", ""):
        message = decode_record(CORE, format, b"\x00\xff")
        assert (message.role, message.text) == ("unknown", "")
        assert message.contents == [Content("opaque", format=format, payload=b"\x00\xff")]
        assert CORE.decode(CORE.encode(message).payload) == message


@pytest.mark.parametrize("format", ["agentstore/2", "agentstore/10"])
@pytest.mark.parametrize("reader", [CORE, TextCodec()], ids=lambda reader: reader.format)
def test_a_newer_version_of_a_known_format_is_refused(format: str, reader: Codec) -> None:
    """It may mean something else: it is not guessed, and not opaque either (4.5)."""
    with pytest.raises(ValueError, match=f"{format}.*newer.*upgrade"):
        decode_record(reader, format, CORE.encode(Message("u")).payload)
    with pytest.raises(ValueError, match=r"text/2.*newer.*upgrade"):
        decode_record(TextCodec(), "text/2", b"hi")


def test_a_registered_converter_reads_its_format(converter: Callable[..., None]) -> None:
    """For every session whose codec is another one; its own codec still comes first."""
    assert decode_record(CORE, "text/1", b"hi").role == "unknown"
    converter("text/1", lambda payload: Message("user", [payload.decode()]))
    assert decode_record(CORE, "text/1", b"hi") == Message("user", ["hi"])
    assert decode_record(TextCodec(), "text/1", b"hi") == "hi"
    with pytest.raises(ValueError, match="newer"):
        decode_record(CORE, "text/2", b"hi")


def test_markers_of_other_serializers_are_plain_data() -> None:
    """Nothing in a payload can name code, in any field (B96)."""
    marker = {
        "__class__": "os.system",
        "py/object": "os.system",
        "lc": 1,
        "type": "constructor",
        "id": ["os", "system"],
    }
    payload = json.dumps(
        {"v": 1, "role": "u", "contents": [marker], "__class__": "x", "additional_properties": marker}
    ).encode()
    message = CORE.decode(payload)
    assert type(message) is Message
    assert type(message.contents[0]) is Content
    assert message.contents[0].to_dict() == marker == message.additional_properties
    assert message.to_dict()["__class__"] == "x"


def test_a_moment_in_a_content_keeps_its_fold() -> None:
    """The digest sees it too."""
    first, second = (Message("u", [Content("x", at=datetime(2024, 1, 1, fold=fold))]) for fold in (0, 1))
    assert first != second
    assert CORE.encode(first).identity != CORE.encode(second).identity
