"""Session keys: opaque text, one injective encoding, no key that two people could share by accident."""

from __future__ import annotations

import itertools
import pickle
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstore import SessionKey
from agentstore.keys import MAX_ID_BYTES, check_id

CONFUSABLE = [
    *("a", "A", "ab", "a_b", "a-b", "a%", "a\\b", "[a]*", "a*", "a?"),
    *(
        "a:b",
        "a/b",
        "a|b",
        "a\x00",
        "a\x00b",
        "\x00",
        "a ",
        " a",
        " ",
        "a.",
        ".",
        "..",
        "...",
        "../a",
        "/",
        "//",
        "a//b",
    ),
    *("%2F", "%2f", "/%2F", "%252F", "%00", "%2E", "a%2Fb", "a+b", "a b", "a%20b", "a#b", "a?b=c", "~", "{a}", "{}"),
    *("\u00e9", "e\u0301", "\u212b", "\u00c5", "\u0130", "i", "\u00df", "ss", "\uff41", "\u200b", "\ufeff", "\u202e"),
    *(
        "NUL",
        "COM\u00b9",
        "nul.txt",
        "con",
        "default",
        "None",
        "null",
        "'",
        '"',
        "; drop table sessions",
        "$a",
        "\n",
        "a\n",
    ),
    *("\U0001f600", "x" * 300, "x" * 301, "\u00e9" * 512),
]

ids = (st.text(min_size=1, max_size=12) | st.sampled_from(CONFUSABLE)).filter(
    lambda text: 0 < len(text.encode()) <= MAX_ID_BYTES
)
keys = st.builds(SessionKey, ids, ids, ids)
bounded = settings(deadline=None, max_examples=150)


@bounded
@given(keys)
def test_parse_gives_the_key_whose_text_it_was(key: SessionKey) -> None:
    """The encoding has an inverse (B86)."""
    assert SessionKey.parse(str(key)) == key


@bounded
@given(keys, keys)
def test_two_keys_never_meet(one: SessionKey, other: SessionKey) -> None:
    """Different parts, different text and different hash (B85, B86)."""
    assert (str(one) == str(other)) == (one == other)
    assert (one.hash == other.hash) == (one == other)


def test_confusable_keys_never_meet() -> None:
    """No trimming, folding, normalising, escaping or joining makes two ids one (B85, B86, B87, B90)."""
    made = [SessionKey(*parts) for parts in itertools.product(CONFUSABLE[:30], repeat=2) for parts in [(*parts, "s")]]
    made += [SessionKey("n", text, other) for text, other in itertools.product(CONFUSABLE, repeat=2)]
    assert len({str(key) for key in made}) == len({key.hash for key in made}) == len(set(made)) == len(made)


@pytest.mark.parametrize("text", CONFUSABLE, ids=ascii)
def test_the_text_of_a_key_is_safe_in_a_url_and_in_a_path(text: str) -> None:
    """ASCII that no client resolves, folds or cuts: no separators, spaces, controls, or segments of dots (B89)."""
    encoded = str(SessionKey(text, text, text))
    segments = encoded.split("/")
    assert len(segments) == 3
    assert encoded.isascii()
    assert encoded.isprintable()
    assert not set(encoded) & set(" ?#\\\"'<>;&:*[]{}|")
    assert all(segment.strip(".") for segment in segments)


@pytest.mark.parametrize("name", ["namespace", "source_id", "session_id"])
@pytest.mark.parametrize(
    "value", [None, 123, uuid.UUID(int=1), b"a", True, ["a"], type("Id", (str,), {})("a")], ids=repr
)
def test_an_id_that_is_not_text_is_a_type_error(name: str, value: Any) -> None:
    """An int or a UUID is never turned into text on one path and not on another (B92)."""
    parts = {"namespace": "n", "source_id": "s", "session_id": "i", name: value}
    with pytest.raises(TypeError, match=rf"^{name} must be a str, not {type(value).__name__}$"):
        SessionKey(**parts)


@pytest.mark.parametrize("name", ["namespace", "source_id", "session_id"])
@pytest.mark.parametrize("value", ["", "\ud800", "a\udfff", "x" * 1025, "\u00e9" * 513, "\U0001f600" * 257])
def test_an_id_that_cannot_be_kept_is_a_value_error(name: str, value: str) -> None:
    """Empty (B84), not encodable, or longer than 1,024 bytes in UTF-8."""
    parts = {"namespace": "n", "source_id": "s", "session_id": "i", name: value}
    with pytest.raises(ValueError, match=rf"^{name} ") as caught:
        SessionKey(**parts)
    assert str(caught.value).isascii()


@pytest.mark.parametrize("value", ["x" * 1024, "\u00e9" * 512, "\U0001f600" * 256, " ", "\x00"])
def test_every_other_text_is_an_id(value: str) -> None:
    """Up to and with 1,024 bytes; white space and NUL are ids of their own, never trimmed (B84)."""
    check_id("session_id", value)
    assert SessionKey.parse(str(SessionKey(value, value, value))).session_id == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a/b",
        "a/b/c/d",
        "/b/c",
        "a//c",
        "a/b/",
        "a/b/%FF",
        "a/b/%ZZ",
        "%41/b/c",
        "a/b/c d",
        "a/b/%2f",
        "a/b/\u00e9",
    ],
)
def test_parse_refuses_what_no_key_has_as_its_text(text: str) -> None:
    """Each key has one text, and no other one leads to it."""
    with pytest.raises(ValueError, match=r"\w"):
        SessionKey.parse(text)


def test_keys_are_ordered_by_code_points_of_their_parts() -> None:
    """Namespace first; the order does not depend on a locale or on the encoding."""
    made = [SessionKey(*parts) for parts in itertools.product(["A", "a", "\u00e9", "\uffff", "\U0001f600"], repeat=3)]
    assert sorted(made[1::2] + made[::2]) == made


def test_a_key_is_a_value() -> None:
    """Equal, hashable, unchangeable and picklable, also after its hash was asked for."""
    key = SessionKey("n", "s", "i")
    assert key.hash == SessionKey("n", "s", "i").hash
    assert pickle.loads(pickle.dumps(key)) == key
    assert {key: 1}[SessionKey("n", "s", "i")] == 1
    with pytest.raises(AttributeError):
        key.session_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("parts", "text", "hashed"),
    [
        (("default", "history", "user-42"), "default/history/user-42", "53d84149fcbade5675b3ea4fdb55a743"),
        (("a/b", "\x00", "\u00e9 %"), "a%2Fb/%00/%C3%A9%20%25", "a9e482bb29b6f84db8ad66f0e31f20ef"),
    ],
)
def test_keys_of_released_versions_stay_reachable(parts: tuple[str, str, str], text: str, hashed: str) -> None:
    """Text and hash of a key are part of what is stored: they never change (B134)."""
    key = SessionKey(*parts)
    assert str(key) == text
    assert key.hash.hex() == hashed
