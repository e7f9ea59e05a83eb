"""Stored form v1 is a promise: its files are read for ever, and written the same (how they were made: see assets)."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from agentstore import Message
from agentstore.batch import derived_id, hash_id
from agentstore.codec import MessageCodec, decode_record, digest

FOLDER = Path(__file__).parent / "assets" / "stored_form_v1"
MESSAGES: dict[str, dict[str, Any]] = runpy.run_path(str(FOLDER / "expected.py"))["MESSAGES"]
DIGESTS: dict[str, str] = json.loads((FOLDER / "digests.json").read_text())
CORE = MessageCodec()

each_file = pytest.mark.parametrize("name", MESSAGES)


def payload(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes()


def test_no_frozen_file_is_left_out() -> None:
    """Every payload has its message and its digest."""
    assert {path.stem for path in FOLDER.glob("*.json")} - {"digests"} == set(MESSAGES) == set(DIGESTS)


@each_file
def test_a_frozen_file_is_read(name: str) -> None:
    """What was stored years ago comes back equal, also through another codec's session."""
    assert CORE.decode(payload(name)) == Message.from_dict(MESSAGES[name])
    assert decode_record(CORE, "agentstore/1", payload(name)).to_dict().keys() == MESSAGES[name].keys()


@each_file
def test_the_same_bytes_are_written(name: str) -> None:
    """So that two versions of the library can share a store."""
    assert CORE.encode(Message.from_dict(MESSAGES[name])).payload == payload(name)
    assert CORE.encode(CORE.decode(payload(name))).payload == payload(name)


@each_file
def test_the_digest_is_stable(name: str) -> None:
    """A retry by a later version of the library still meets its own message."""
    assert digest(CORE.encode(Message.from_dict(MESSAGES[name])).identity).hex() == DIGESTS[name]


@each_file
def test_a_frozen_file_is_strict_json(name: str) -> None:
    """UTF-8 as it is, no escape but for control characters, no constants: so every tool can read it."""
    text = payload(name).decode("utf-8")
    stored = json.loads(text, parse_constant=pytest.fail)
    assert stored["v"] == 1
    assert stored["type"] == "message"
    if name == "text":
        assert stored["contents"][0]["text"] == MESSAGES[name]["contents"][0]["text"]
        assert "Gr\u00fc\u00dfe \U0001f600 \u2028" in text


@pytest.mark.parametrize("version", [0, 2, 99, "1", None])
def test_another_version_is_refused(version: Any) -> None:
    """A newer stored form is never guessed (4.5)."""
    stored = {**json.loads(payload("text")), "v": version}
    with pytest.raises(ValueError, match="stored form"):
        CORE.decode(json.dumps(stored).encode())


def test_a_newer_format_is_refused() -> None:
    """Also when its payload looks like one of ours."""
    with pytest.raises(ValueError, match=r"agentstore/2.*upgrade"):
        decode_record(CORE, "agentstore/2", payload("text"))


def test_the_ids_made_from_an_idempotency_key_are_stable() -> None:
    """Another process, and another version, gives the same message the same id."""
    assert derived_id("turn-1", 0) == "as1-eb20c95da7ef0658fcca152e19c7b49c"
    assert derived_id("turn-1", 10) == "as1-565c8d9dd5e7de19549dda8265a2a181"
    assert derived_id("gr\u00fc\u00df\x00\ud800", 1) == "as1-0119c457d8ce51fa33255ceae5615443"


def test_the_hash_of_an_id_is_stable() -> None:
    """It stands for the id in every backend's index."""
    assert hash_id("m-1").hex() == "c86c9453558c4ac9d289f61d4ab03200"
    assert hash_id("id\x00\ud800").hex() == "ac5c4b78f8da4b4f7ee71d15f47d7256"


def test_derived_ids_of_different_parts_never_meet() -> None:
    """Lengths are part of what is hashed."""
    parts = [
        ("a", "b"),
        ("ab",),
        ("ab", ""),
        ("", "ab"),
        ("a", "b", ""),
        ("1:a",),
        ("a", 1),
        ("a1",),
        ("a", 11),
        ("a1", 1),
    ]
    assert len({derived_id(*given) for given in parts}) == len(parts)
