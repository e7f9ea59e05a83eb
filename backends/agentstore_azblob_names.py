"""Names of blobs: legal, injective, safe where case is folded, readable where they can be.

<prefix>v1/layout                                 the version of all that is below
<prefix>v1/<namespace>/<session>                  append blob: the session's own log, or the pointer to it
<prefix>v1/<namespace>/<session>.<16 hex>.log     append blob: a further log of the session
<prefix>v1/<namespace>/<session>.<16 hex>.ids     append blob: the ids of its records
"""

from __future__ import annotations

import base64
import os
import re
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from agentstore.keys import SessionKey

_UNREADABLE = re.compile(r"[^a-z0-9-]")
_NAME = re.compile(r"(?P<root>.+-[0-9a-f]{32})(?:\.[0-9a-f]{16}\.(?P<kind>log|ids))?")


class Parsed(NamedTuple):
    """What a blob below a namespace is."""

    root: str
    """The name of the session's own log."""
    kind: str
    """`root`, `log` or `ids`."""


class Names:
    """The names of one store."""

    def __init__(self, prefix: str) -> None:
        self.base = f"{prefix}/v1/" if prefix else "v1/"
        self.layout = f"{self.base}layout"

    def namespace(self, namespace: str) -> str:
        """What the names of all its blobs begin with, and no other's."""
        digest = blake2b(namespace.encode(), digest_size=16, person=b"agentstore.ns1").hexdigest()
        return f"{self.base}{_readable(namespace, 40)}-{digest}/"

    def root(self, key: SessionKey) -> str:
        readable = f"{_readable(key.session_id, 40)}.{_readable(key.source_id, 20)}"
        return f"{self.namespace(key.namespace)}{readable}-{key.hash.hex()}"

    def parse(self, name: str) -> Parsed | None:
        """`None` for what is not ours."""
        found = _NAME.fullmatch(name)
        return Parsed(found["root"], found["kind"] or "root") if found and name.startswith(self.base) else None


def new_log(root: str) -> str:
    return f"{root}.{os.urandom(8).hex()}.log"


def ids_log(root: str, born: bytes) -> str:
    return f"{root}.{born.hex()}.ids"


def key_text(key: SessionKey) -> str:
    """The key as a blob's metadata can hold it: ASCII, and short enough whatever the ids are."""
    parts = msgspec.msgpack.encode([key.namespace, key.source_id, key.session_id])
    return base64.urlsafe_b64encode(parts).decode()


def parse_key(text: str) -> SessionKey:
    """The key that `key_text` wrote; raises `ValueError` for anything else."""
    try:
        return SessionKey(*msgspec.msgpack.decode(base64.urlsafe_b64decode(text), type=tuple[str, str, str]))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError("not a session's key") from error


def _readable(text: str, length: int) -> str:
    return _UNREADABLE.sub("_", text[:length].lower())
