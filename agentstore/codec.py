"""Codecs: how an object becomes a stored record's payload, and back. The core's stored form is `agentstore/1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from agentstore import untagged, values
from agentstore.errors import UnsupportedValueError
from agentstore.messages import MESSAGE_FIELDS, Content, Message

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OPAQUE = "opaque"
"""Type of the content that stands for a record in a format that nobody here can read, with its format and payload."""

FORMATS = "agentstore.formats"
"""The entry-point group of formats that can be read as core messages: a name, and what `register_converter` takes."""

UNREADABLE = "agentstore.unreadable"
"""The format of a record that the store holds a place for and cannot give back; its payload says why, as text."""

ODD_FIELDS = "$fields"
"""Holds a message's unknown fields whose names could be taken for something else in stored form."""


class Encoded(NamedTuple):
    """What a codec makes of an object."""

    message_id: str | None
    identity: Any
    """Role and contents, from which the digest is made: plain values, or bytes that are equal when they are."""
    payload: bytes


@runtime_checkable
class Codec(Protocol):
    """Turns one kind of object into payloads and back; `format` names the stored form, with its version.

    It may also have `find_id(obj) -> str | None`, which spares a new message from being encoded twice.
    """

    @property
    def format(self) -> str: ...

    def encode(self, obj: Any, /) -> tuple[str | None, Any, bytes]:
        """`(message_id, role and contents, payload)`; raises `UnsupportedValueError` for what it cannot keep."""
        ...

    def decode(self, payload: bytes, /) -> Any:
        """An object equal to the encoded one; raises `ValueError` for a payload that it cannot read."""
        ...

    def assign_id(self, obj: Any, message_id: str, /) -> bool:
        """Give the object its id; `False` where it has no place for one."""
        ...


class MessageCodec:
    """The core's codec: `Message` objects in stored form v1.

    A payload is the message's dict (see `Message.to_dict`; without `additional_properties` where there are none) with
    `"v": 1` in front, as strict JSON in UTF-8 whose odd values are tagged (see `agentstore.values`).
    """

    format = "agentstore/1"

    def encode(self, obj: Message, /) -> Encoded:
        return encode_shape(_message(obj).shape())

    def decode(self, payload: bytes, /) -> Message:
        return Message.adopt(decode_shape(payload))

    def assign_id(self, obj: Message, message_id: str, /) -> bool:
        obj.message_id = message_id
        return True

    def find_id(self, obj: Message, /) -> str | None:
        return _message(obj).message_id


def _message(obj: Message) -> Message:
    if type(obj) is not Message:
        raise UnsupportedValueError(f"a history takes Message objects, not {type(obj).__name__}; nothing was written")
    return obj


def encode_shape(shape: dict[str, Any]) -> Encoded:
    """Stored form v1 of a message given in the dict shape of `Message.to_dict`, or `Message.shape`."""
    _check_types(shape)
    contents = [_fields(content, index) for index, content in enumerate(shape["contents"])]
    if not MESSAGE_FIELDS.issuperset(shape) and (odd := [name for name in shape if not _is_safe(name)]):
        kept = {name: value for name, value in shape.items() if name not in odd}
        shape = {**kept, ODD_FIELDS: {name: shape[name] for name in odd}}
    whole = {"v": 1, **shape, "contents": contents}
    if not whole.get("additional_properties"):
        whole.pop("additional_properties", None)  # as most messages have none, leave out what says nothing
    payload = untagged.dump(whole)
    if payload is not None:
        return Encoded(whole.get("message_id"), untagged.canonical([whole["role"], whole["contents"]]), payload)
    tagged = values.tag(whole)
    identity = values.canonical([tagged["role"], tagged["contents"]])
    return Encoded(whole.get("message_id"), identity, values.plain_json(tagged))


def decode_shape(payload: bytes) -> dict[str, Any]:
    """The dict shape in a payload of stored form v1; raises `ValueError` for anything else."""
    shape: dict[str, Any] = values.load(payload)
    version = shape.pop("v", None) if type(shape) is dict else None
    if type(version) is not int:
        raise ValueError("not a message in a stored form of agentstore")
    if version != 1:
        raise ValueError(f"stored form v{version} is not known to this version of agentstore: upgrade it to read this")
    if ODD_FIELDS in shape:
        odd = shape.pop(ODD_FIELDS)
        if type(odd) is not dict or any(map(_is_safe, odd)):
            raise ValueError(f"a {ODD_FIELDS!r} that no version known here writes")
        shape.update(odd)
    return shape


def _is_safe(name: object) -> bool:
    """Whether a field can stand in stored form as it is."""
    return type(name) is str and name != "v" and name[:1] != "$" and values.is_plain_text(name)


def _fields(content: Any, index: int) -> dict[str, Any]:
    fields = content.shape() if type(content) is Content else content
    if type(fields) is not dict or type(fields.get("type")) is not str:
        raise UnsupportedValueError(f"contents[{index}] is no Content whose type is a str; nothing was written")
    return fields


def _check_types(shape: dict[str, Any]) -> None:
    for name, kinds in _FIELD_TYPES:
        if (kind := type(shape.get(name))) not in kinds:
            what = f"{name} must be a {kinds[0].__name__}, not {kind.__name__}"
            raise UnsupportedValueError(f"{what}; nothing was written")


_FIELD_TYPES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("role", (str,)),
    ("contents", (list,)),
    ("message_id", (str, type(None))),
    ("author_name", (str, type(None))),
    ("additional_properties", (dict, type(None))),
)


def digest(identity: Any) -> bytes:
    """16 bytes that are equal for messages of the same role and contents, whatever the order of their keys."""
    hashed = _hash.copy()  # quicker than a new one
    hashed.update(identity if type(identity) is bytes else values.canonical(values.tag(identity)))
    return hashed.digest()


_hash = blake2b(digest_size=16, person=b"agentstore.msg1")


_converters: dict[str, Callable[[bytes], Message]] = {}


def register_converter(format: str, convert: Callable[[bytes], Message]) -> None:
    """Let sessions with another codec read records of `format` as core messages.

    `convert` takes a payload and raises `ValueError` for one that it cannot read.
    """
    _converters[format] = convert


@cache
def _installed() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes longer to import than all of the core

    return {entry.name: entry for entry in entry_points(group=FORMATS)}


def _converter(format: str) -> Callable[[bytes], Message] | None:
    if format not in _converters and (entry := _installed().get(format)):
        _converters[format] = entry.load()
    return _converters.get(format)


def decode_record(codec: Codec, format: str, payload: bytes) -> Any:
    """What a session with `codec` gets for a record: its own object, a core message, or an opaque one.

    Raises `ValueError` for a payload that cannot be read or was written in a newer version of a known form.
    """
    if format == UNREADABLE:
        raise ValueError(payload.decode())
    if format == codec.format:
        return codec.decode(payload)
    if convert := _converter(format):
        return convert(payload)
    if _is_newer(format, (codec.format, *_converters, *_installed())):
        raise ValueError(f"stored form {format} is newer than this version of agentstore: upgrade it to read this")
    return Message("unknown", [Content(OPAQUE, format=format, payload=payload)])


def _is_newer(format: str, known: tuple[str, ...]) -> bool:
    name, version = _parted(format)
    return any(name == other and version > number for other, number in map(_parted, known))


def _parted(format: str) -> tuple[str, int]:
    name, _, version = format.rpartition("/")
    return (name, int(version)) if version.isascii() and version.isdecimal() else (format, 0)


register_converter(MessageCodec.format, MessageCodec().decode)
