"""Messages and their contents, in the dict shape of the Microsoft Agent Framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any


class Content:
    """One part of a message: a `type` and any fields, which are attributes.

    Fields and types that this version does not know are kept and given back. A missing field raises
    `AttributeError`; a field set to `None` is not a missing one. Names that start with `_` are reached by `get` only.
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, /, type: str, **fields: Any) -> None:
        _set_fields(self, {"type": type, **fields})

    def to_dict(self) -> dict[str, Any]:
        """The fields as a new dict, without `raw_representation`; nested contents become dicts too."""
        return {name: plain(value) for name, value in self.shape().items()}

    def shape(self) -> dict[str, Any]:
        """The fields as `to_dict` has them, but not copied: for reading only."""
        if "raw_representation" not in self._fields:
            return self._fields
        return {name: value for name, value in self._fields.items() if name != "raw_representation"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Content:
        """The content that the mapping describes; raises `ValueError` where it has no `type`."""
        return cls.adopt(dict(data))

    @classmethod
    def adopt(cls, data: dict[str, Any]) -> Content:
        """As `from_dict`, for a dict that nobody else holds: nothing is copied."""
        if type(data.get("type")) is not str:
            raise ValueError("a content needs a 'type' that is a str")
        content = cls.__new__(cls)
        _set_fields(content, data)
        return content

    def get(self, name: str, default: Any = None) -> Any:
        """The field's value, or `default` where the content has no such field."""
        return self._fields.get(name, default)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._fields:
            return self._fields[name]
        raise AttributeError(f"this content has no field {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise AttributeError(f"a field named {name!r} can be given in from_dict only")
        self._fields[name] = value

    def __delattr__(self, name: str) -> None:
        if name == "type" or name not in self._fields:
            raise AttributeError(f"cannot delete {name!r}")
        del self._fields[name]

    def __eq__(self, other: object) -> bool:
        return same(self.to_dict(), other.to_dict()) if isinstance(other, Content) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields.items() if name != "type")
        return f"Content({self.type!r}{', ' if fields else ''}{fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Content.from_dict, (self._fields,)


_set_fields = Content.__dict__["_fields"].__set__  # a field's own name goes through `Content.__setattr__`


class Message:
    """One chat message. Mutable; compared by value, leaving out `raw_representation`.

    `contents` takes `Content` objects, texts (each becomes a text content), and mappings (read by
    `Content.from_dict`); a single one of them counts as a list of one.
    """

    __slots__ = (
        "_extra",
        "additional_properties",
        "author_name",
        "contents",
        "message_id",
        "raw_representation",
        "role",
    )

    def __init__(
        self,
        role: str,
        contents: Iterable[Content | str | Mapping[str, Any]] | Content | Mapping[str, Any] | None = None,
        *,
        author_name: str | None = None,
        message_id: str | None = None,
        additional_properties: Mapping[str, Any] | None = None,
        raw_representation: Any = None,
    ) -> None:
        self.role = role
        self.contents: list[Content] = _as_contents(contents)
        self.author_name = author_name
        self.message_id = message_id
        self.additional_properties: dict[str, Any] = dict(additional_properties or {})
        self.raw_representation = raw_representation
        self._extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The text contents, joined with one space."""
        return " ".join([content.get("text") or "" for content in self.contents if content.type == "text"])

    def to_dict(self) -> dict[str, Any]:
        """The message as a new dict; `author_name` and `message_id` only when set, `raw_representation` never."""
        return {name: plain(value) for name, value in self.shape().items()}

    def shape(self) -> dict[str, Any]:
        """The dict of `to_dict` with the message's own contents and values in it: for reading only."""
        data: dict[str, Any] = {"type": "message", "role": self.role, "contents": self.contents}
        if self.author_name is not None:
            data["author_name"] = self.author_name
        if self.message_id is not None:
            data["message_id"] = self.message_id
        data["additional_properties"] = self.additional_properties or {}
        data.update(self._extra)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The message that the mapping describes; fields it does not know are kept and given back.

        Raises `ValueError` where `role` is missing or `contents` is not a list of contents.
        """
        copied = dict(data)
        if isinstance(contents := data.get("contents"), (list, tuple)):
            copied["contents"] = [dict(item) if isinstance(item, Mapping) else item for item in contents]
        if isinstance(properties := data.get("additional_properties"), Mapping):
            copied["additional_properties"] = dict(properties)
        return cls.adopt(copied)

    @classmethod
    def adopt(cls, data: dict[str, Any]) -> Message:
        """As `from_dict`, for a dict that nobody else holds: nothing is copied."""
        role, contents, properties = data.get("role"), data.get("contents"), data.get("additional_properties")
        author_name, message_id = data.get("author_name"), data.get("message_id")
        if type(role) is not str or type(author_name) not in _TEXT or type(message_id) not in _TEXT:
            raise ValueError("a message's 'role' must be a str, and 'author_name' and 'message_id' too where present")
        if not isinstance(contents, _LISTS):
            raise ValueError("a message's 'contents' must be a list")
        if type(properties) not in _DICTS:
            raise ValueError("a message's 'additional_properties' must be a mapping")
        message = cls.__new__(cls)
        message.role = role
        message.contents = [Content.adopt(item) if type(item) is dict else _adopted(item) for item in contents or ()]
        message.author_name = author_name
        message.message_id = message_id
        message.additional_properties = {} if properties is None else properties
        message.raw_representation = None
        message._extra = {} if data.keys() <= MESSAGE_FIELDS else _unknown(data)
        return message

    def __eq__(self, other: object) -> bool:
        return same(self.to_dict(), other.to_dict()) if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {"author_name": self.author_name, "message_id": self.message_id}
        fields = "".join(f", {name}={value!r}" for name, value in shown.items() if value is not None)
        return f"Message({self.role!r}, {self.contents!r}{fields})"


_TEXT = (str, type(None))
_DICTS = (dict, type(None))
_LISTS = (list, tuple, type(None))
MESSAGE_FIELDS = frozenset(
    {"type", "role", "contents", "author_name", "message_id", "additional_properties", "raw_representation"}
)
"""The fields of a message's dict that this version knows."""


def _unknown(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in MESSAGE_FIELDS}


def same(left: Any, right: Any) -> bool:
    """Whether two plain values are equal to the last bit: NaN equals NaN; 1 is not 1.0 or True, 0.0 not -0.0, and a
    time with another offset, or in the other fold, is another one.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, datetime):
        return _as_naive(left) == _as_naive(right)
    return bool(left == right)


def _as_naive(time: datetime) -> tuple[datetime, Any]:
    """What tells two times apart; `==` between zones is never true in a repeated or skipped hour (PEP 495)."""
    offset = time.utcoffset()
    return time.replace(tzinfo=None), time.fold if offset is None else offset


def _adopted(item: Any) -> Content:
    try:
        return _as_content(item)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _as_contents(given: Any) -> list[Content]:
    if given is None:
        return []
    if isinstance(given, (str, Content, Mapping)):
        return [_as_content(given)]
    return [_as_content(item) for item in given]


def _as_content(item: Any) -> Content:
    if isinstance(item, Content):
        return item
    if isinstance(item, str):
        return Content("text", text=item)
    if isinstance(item, Mapping):
        return Content.from_dict(item)
    raise TypeError(f"a message's contents are Content, str or mappings, not {type(item).__name__}")


def plain(value: Any) -> Any:
    """A copy in which messages and contents, at any depth of lists, tuples and dicts, are plain dicts."""
    kind = type(value)
    if kind is Message or kind is Content:
        return value.to_dict()
    if kind is dict:
        return {name: plain(item) for name, item in value.items()}
    if kind is list:
        return [plain(item) for item in value]
    if kind is tuple:
        return tuple([plain(item) for item in value])
    return value
