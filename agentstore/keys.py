"""The key of a session, and its one injective encoding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from urllib.parse import quote, unquote

MAX_ID_BYTES = 1024
"""Longest namespace, source id or session id, in UTF-8 bytes."""


@dataclass(frozen=True, order=True)
class SessionKey:
    """Names one session: `(namespace, source_id, session_id)`, opaque text, ordered by code points.

    Raises `TypeError` for a part that is not `str`, and `ValueError` for one that is empty, longer than
    1,024 UTF-8 bytes, or not encodable as UTF-8. Parts are never trimmed, folded or normalised.
    """

    namespace: str
    source_id: str
    session_id: str

    def __post_init__(self) -> None:
        check_id("namespace", self.namespace)
        check_id("source_id", self.source_id)
        check_id("session_id", self.session_id)

    def __str__(self) -> str:
        """The three parts, percent-encoded and joined by `/`: injective, readable, safe in any URL, path or log."""
        return "/".join([_encode(part) for part in (self.namespace, self.source_id, self.session_id)])

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """The key that `str()` turned into `text`; raises `ValueError` if there is none."""
        parts = [unquote(part, errors="strict") for part in text.split("/")]
        if len(parts) != 3 or str(key := cls(*parts)) != text:
            raise ValueError("not the text of a SessionKey")
        return key

    @cached_property
    def hash(self) -> bytes:
        """16 bytes that stand for the key where an index wants it short (BLAKE2b of the encoded text)."""
        return blake2b(str(self).encode(), digest_size=16, person=b"agentstore.key1").digest()


def _encode(part: str) -> str:
    encoded = quote(part, safe="")
    # Clients of URLs and file systems resolve segments of dots.
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def check_id(name: str, value: object) -> None:
    """Raise unless `value` can be a namespace, source id or session id (see `SessionKey`)."""
    if type(value) is not str:
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty: every session needs an id of its own")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode text (lone surrogate at {error.start})") from error
    if size > MAX_ID_BYTES:
        raise ValueError(f"{name} has {size} UTF-8 bytes, more than {MAX_ID_BYTES}")
