"""Exact values: any value that we accept as strict JSON, and back, equal to the type.

Plain JSON values stand for themselves. What JSON cannot say is a tag, an object with one key that starts with `$`:

| value | stored as |
|---|---|
| NaN, infinities | `{"$float": "nan"}`, `"inf"`, `"-inf"` |
| int outside 64 bits | `{"$int": "0x…"}` |
| text with NUL or lone surrogates | `{"$text": "a%00b"}`: `%`, NUL and surrogates as `%25`, `%00`, `%uD800` |
| bytes | `{"$bytes": "<base64>"}` |
| tuple | `{"$tuple": […]}` |
| datetime | `{"$datetime": "<ISO 8601>"}`, with `#fold` behind a naive one in its second hour |
| dict that looks like a tag, or with NUL or surrogates in a key | `{"$dict": [[key, value], …]}` |

So no ordinary value can imitate a tag, and nothing stored can name code.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from operator import is_
from typing import Any, TypeVar

import msgspec

from agentstore.errors import UnsupportedValueError
from agentstore.messages import Content, Message

T = TypeVar("T")

MAX_DEPTH = 200
"""Deepest nesting of containers in one message, metadata or snapshot: what Python can walk on a stack of its own."""

Path = tuple[Any, Any] | None  # (path of the parent, key or index), so that the happy path never builds text

_ODD = re.compile("[%\x00\ud800-\udfff]")
_ESCAPED = re.compile("%(25|00|u[0-9A-F]{4})")
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{6}))?)?$")

DOLLAR = ord("$")
"""Begins every tag."""

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def dump(value: object) -> bytes:
    """The value as strict JSON in UTF-8; raises `UnsupportedValueError` with the path of what it refuses."""
    return plain_json(tag(value))


def load(data: bytes) -> Any:
    """The value that `dump` was given; raises `ValueError` for anything that `dump` does not write."""
    try:
        value = _decode(data)
        # Without a "$ there is no tag anywhere, and the walk is saved. To look for one byte, as a number, is quick.
        return untag(value) if DOLLAR in data and b'"$' in data else value
    except msgspec.DecodeError as error:
        raise ValueError(f"not readable as JSON: {error}") from error
    except RecursionError:
        return _load_deep(data)


def plain_json(tagged: object) -> bytes:
    """A tagged value as JSON."""
    return on_any_stack(_encode, tagged)


def canonical(tagged: object) -> bytes:
    """A tagged value as JSON with sorted keys: equal for equal values, whatever the order of their keys."""
    data = on_any_stack(_encode_sorted, tagged)
    if DOLLAR in data and b'"$dict"' in data:
        return on_any_stack(_encode_sorted, on_any_stack(_sorted_pairs, tagged))
    return data


def tag(value: object, path: Path = None) -> Any:
    """The value with only plain JSON left in it, copied where that differs; `path` is where it stands, for errors."""
    return on_any_stack(_tag, value, path, 0)


def untag(value: Any) -> Any:
    """The value that `tag` was given."""
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((name, body),) = value.items()
            if name[:1] == "$":
                return _untag_special(name, body)
        return {name: untag(item) for name, item in value.items()}
    if kind is list:
        return [untag(item) for item in value]
    return value


def _tag(value: object, path: Path, depth: int) -> Any:
    tagger = _TAGGERS.get(type(value))
    if tagger is None:
        raise _refusal(f"is a {type(value).__module__}.{type(value).__qualname__}, not a plain value", path)
    return tagger(value, path, depth)


def _same(value: Any, path: Path, depth: int) -> Any:
    return value


def _tag_int(value: int, path: Path, depth: int) -> Any:
    return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}


def _tag_float(value: float, path: Path, depth: int) -> Any:
    return value if math.isfinite(value) else {"$float": str(value)}


def _tag_str(value: str, path: Path, depth: int) -> Any:
    return value if is_plain_text(value) else {"$text": _ODD.sub(_escape, value)}


def _tag_bytes(value: bytes, path: Path, depth: int) -> Any:
    return {"$bytes": b64encode(value).decode()}


def _tag_datetime(value: datetime, path: Path, depth: int) -> Any:
    fold = "#fold" if value.fold and value.utcoffset() is None else ""
    return {"$datetime": value.isoformat() + fold}


def _tag_list(value: list[Any], path: Path, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise _refusal(f"is nested deeper than {MAX_DEPTH} levels", path)
    tagged = [_tag(item, (path, index), depth + 1) for index, item in enumerate(value)]
    return value if all(map(is_, tagged, value)) else tagged


def _tag_tuple(value: tuple[Any, ...], path: Path, depth: int) -> Any:
    return {"$tuple": _tag_list(value, path, depth)}  # type: ignore[arg-type]


def _tag_dict(value: dict[Any, Any], path: Path, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise _refusal(f"is nested deeper than {MAX_DEPTH} levels", path)
    changed: dict[str, Any] = {}
    odd = False
    for name, item in value.items():
        if type(name) is not str:
            raise _refusal(f"has a key of the type {type(name).__name__}, not str", path)
        odd = odd or not is_plain_text(name)
        if type(item) is str and is_plain_text(item):
            continue  # as the tagger would have it, without the call: most items are texts
        tagged = _tag(item, (path, name), depth + 1)
        if tagged is not item:
            changed[name] = tagged
    whole = {**value, **changed} if changed else value
    if odd or (len(whole) == 1 and next(iter(whole))[:1] == "$"):
        return {"$dict": [[_tag_str(name, path, depth), item] for name, item in whole.items()]}
    return whole


def _tag_object(value: Content | Message, path: Path, depth: int) -> Any:
    return _tag_dict(value.shape(), path, depth)


_TAGGERS: dict[type, Callable[[Any, Path, int], Any]] = {
    type(None): _same,
    bool: _same,
    int: _tag_int,
    float: _tag_float,
    str: _tag_str,
    bytes: _tag_bytes,
    datetime: _tag_datetime,
    list: _tag_list,
    tuple: _tag_tuple,
    dict: _tag_dict,
    Content: _tag_object,
    Message: _tag_object,
}


def _load_deep(data: bytes) -> Any:
    try:
        return on_any_stack(lambda: untag(_decode(data)))
    except RecursionError as error:
        raise ValueError("not readable as JSON: nested too deeply") from error


def _untag_special(name: str, body: Any) -> Any:
    kind, reader = _READERS.get(name, (None, None))
    if kind is None or reader is None or type(body) is not kind:
        raise ValueError(f"a {name!r} tag that no version known here writes")
    return reader(body)


def _read_datetime(body: str) -> datetime:
    text, mark, _ = body.partition("#fold")
    match = _OFFSET.search(text)
    if match is None:
        return datetime.fromisoformat(text).replace(fold=1 if mark else 0)
    # Read here: the standard library's parser takes an offset below a second for none.
    sign, hours, minutes, seconds, micros = match.groups(default="0")
    size = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=int(micros))
    return datetime.fromisoformat(text[: match.start()]).replace(tzinfo=timezone(-size if sign == "-" else size))


def _read_dict(body: list[Any]) -> dict[str, Any]:
    names = [untag(pair[0]) for pair in body if type(pair) is list and len(pair) == 2]
    if len(names) != len(body) or not all(type(name) is str for name in names) or len(set(names)) != len(names):
        raise ValueError("a '$dict' tag must hold pairs of different names and their values")
    return {name: untag(pair[1]) for name, pair in zip(names, body, strict=True)}


_READERS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "$float": (str, float),
    "$int": (str, lambda body: int(body, 16)),
    "$text": (str, lambda body: _ESCAPED.sub(_unescape, body)),
    "$bytes": (str, lambda body: b64decode(body, validate=True)),
    "$tuple": (list, lambda body: tuple([untag(item) for item in body])),
    "$datetime": (str, _read_datetime),
    "$dict": (list, _read_dict),
}


def _sorted_pairs(tagged: Any) -> Any:
    """The tagged value with the pairs of every `$dict` sorted by their names."""
    if type(tagged) is list:
        return [_sorted_pairs(item) for item in tagged]
    if type(tagged) is not dict:
        return tagged
    if tagged.keys() == {"$dict"}:
        pairs = [[name, _sorted_pairs(item)] for name, item in tagged["$dict"]]
        return {"$dict": sorted(pairs, key=lambda pair: _encode_sorted(pair[0]))}
    return {name: _sorted_pairs(item) for name, item in tagged.items()}


def on_any_stack(work: Callable[..., T], *arguments: Any) -> T:
    """Do the work, if need be in a thread of its own: what can be stored and read must not depend on who asks."""
    try:
        return work(*arguments)
    except RecursionError:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(work, *arguments).result()


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"%{code:02X}" if code < 256 else f"%u{code:04X}"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match.group(1).lstrip("u"), 16))


def is_plain_text(text: str) -> bool:
    """Whether the text stands for itself: no NUL, no lone surrogate."""
    if "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(what: str, path: Path) -> UnsupportedValueError:
    return UnsupportedValueError(f"{_show(path)} {what}; nothing was written")


def _show(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, step = path
        # A lone surrogate in a name would make the error unprintable.
        parts.append(f"[{step}]" if isinstance(step, int) else "." + step.encode("utf-8", "backslashreplace").decode())
    if len(parts) > 20:
        parts[10:-10] = ["…"]
    return "".join(reversed(parts)).lstrip(".") or "the value"
