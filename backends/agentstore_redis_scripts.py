"""The scripts: each is one step of the server, on the keys of one slot. See docs/waist.md."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A text, and the name by which a server that ran it once knows it."""

    text: bytes
    sha: bytes


def _read(name: str) -> str:
    return Path(__file__).with_name(f"agentstore_redis_{name}.lua").read_text("utf-8")


def _script(text: str) -> Script:
    encoded = text.encode()
    return Script(encoded, sha1(encoded, usedforsecurity=False).hexdigest().encode())


def _on_session(name: str) -> Script:
    return _script(_read("session") + _read(name))


APPEND = _on_session("append")
READ = _on_session("read")
TRUNCATE = _on_session("truncate")
REPLACE = _on_session("replace")
UPDATE = _on_session("update")
REMOVE_NEWEST = _on_session("remove_newest")
STAGE = _on_session("stage")
LINK = _on_session("link")
INFO = _on_session("info")
ANNOTATE = _on_session("annotate")
EXPIRE = _on_session("expire")
DELETE = _on_session("delete")
SAVE_SNAPSHOT = _on_session("save_snapshot")
LOAD_SNAPSHOT = _on_session("load_snapshot")
PAGE = _script(_read("page"))
