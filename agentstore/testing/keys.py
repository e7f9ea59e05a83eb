"""Sentences about ids of sessions: opaque text that no backend folds, and keys that never meet."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from agentstore import Message, SessionHistory
from agentstore.backend import Catalog
from agentstore.testing.catalog import listed
from agentstore.testing.scenes import Scene, Stage, heard, sentence

CONFUSABLE = (
    *("a", "A", "ab", "a ", " a", "a\t", "a\n", "a_b", "a-b", "a.b", "a%", "a%b", "a*", "a?", "[a]", "[a]*", "a\\b"),
    *("a/b", "a//b", "/a", "a/", "..", ".", "../a", "..\\a", "%2e%2e", "%2F", "a%2Fb", "a%00", "~", "$a", "#", "a#b"),
    *("a:b", "a|b", "a;b", "a,b", "a'b", 'a"b', "a`b", "{a}", "{}", "{", "}", "a}{b", "a{b", "a\x00", "a\x00b", "\x00"),
    *("é", "e\u0301", "É", "ß", "ss", "ſ", "İ", "i\u0307", "ı", "I", "i", "Å", "\u212b", "ﬁ", "fi", "ａ", "\ufeffa"),
    *(
        "CON",
        "con",
        "NUL.txt",
        "COM\u00b9",
        "a.",
        "a..",
        "null",
        "None",
        "0",
        "00",
        "-1",
        "1e3",
        "\U0001f600",
        "\u200d",
    ),
    *(
        "x" * 300,
        "x" * 299,
        "x" * 1024,
        "x" * 1023,
        "é" * 512,
        "default",
        "history",
        "a\u2028b",
        "\uffff",
        "\U00010000",
    ),
)
"""Session ids that some store, file system, database or pattern takes for one another (B85, B86, B89, B90)."""

JOINED = (
    *(("a", "b:c"), ("a:b", "c"), ("a", "b/c"), ("a/b", "c"), ("a", "b|c"), ("a|b", "c"), ("a", "b\x00c")),
    *(("a\x00b", "c"), ("a", "b\x1fc"), ("a\x1fb", "c"), ("a", "b~c"), ("a~b", "c"), ("ab", "c"), ("a", "bc")),
    *(("a%3A", "b"), ("a:", "b"), ("a", ":b"), ("1:a", "b"), ("a", "1:b"), ("a%2Fb", "c"), ("b", "a"), ("c", "b:a")),
)
"""Pairs that meet where two ids are joined by some sign."""

BAD_IDS: tuple[Any, ...] = (None, "", 1, b"a", "\ud800", "a\udfff", "x" * 1025, "é" * 513, uuid4(), True, ["a"])


def write(chat: SessionHistory, text: str) -> Any:
    return chat.append([Message("user", [text], message_id="same")])


class KeySentences(Stage):
    @sentence()
    async def test_session_ids_never_meet(self, scene: Scene) -> None:
        """Ids are opaque text, never trimmed, folded or normalised; NUL is fine (B85, B89, B90)."""
        assert len(set(CONFUSABLE)) == len(CONFUSABLE)
        await _meet_nowhere([scene.session(name) for name in CONFUSABLE])

    @sentence()
    async def test_source_ids_never_meet(self, scene: Scene) -> None:
        """The source is part of the key, and as opaque (B83)."""
        await _meet_nowhere([scene.session("s", source_id=name) for name in CONFUSABLE])

    @sentence()
    async def test_namespaces_never_meet(self, scene: Scene) -> None:
        """The namespace is part of the key, and as opaque (B87)."""
        names = [name for name in CONFUSABLE if len(name.encode()) < 900]
        await _meet_nowhere([scene.session("s", namespace=scene.namespace + name) for name in names])

    @sentence()
    async def test_joined_parts_never_meet(self, scene: Scene) -> None:
        """No two keys ever meet, whatever sign stands in their parts (B86)."""
        chats = [scene.session(session, source_id=source) for source, session in JOINED]
        chats += [scene.session(session, namespace=scene.namespace + source) for source, session in JOINED]
        chats += [scene.session("s", namespace=f"{scene.namespace}{left}", source_id=right) for left, right in JOINED]
        await _meet_nowhere(chats)

    @sentence(Catalog)
    async def test_every_id_can_be_listed(self, scene: Scene) -> None:
        """Every id that can be written can be listed, as it was given."""
        keys = [scene.session(name, source_id=name).key for name in CONFUSABLE]
        for key in keys:
            await write(scene.session(key.session_id, source_id=key.source_id), "x")
        assert sorted(await listed(scene.store, limit=17)) == sorted(keys)

    @sentence(Catalog)
    async def test_every_id_can_be_deleted_alone(self, scene: Scene) -> None:
        """Every id that can be written can be deleted, and with it no other (B85)."""
        chats = [scene.session(name) for name in CONFUSABLE]
        for chat in chats:
            await write(chat, chat.key.session_id)
        for chat in chats[::2]:
            await chat.delete()
        left = [(await heard(chat)) for chat in chats]
        assert left == [[] if place % 2 == 0 else [chat.key.session_id] for place, chat in enumerate(chats)]

    @sentence()
    async def test_bad_session_ids_are_refused(self, scene: Scene) -> None:
        """`None`, `""`, non-`str`, more than 1,024 UTF-8 bytes, or not UTF-8: raise from `session()` (B84, B92)."""
        for bad in BAD_IDS:
            with pytest.raises((ValueError, TypeError), match="session_id"):
                scene.store.session(bad)

    @sentence()
    async def test_bad_source_ids_and_namespaces_are_refused(self, scene: Scene) -> None:
        """Session, namespace, source: `ValueError` or `TypeError` from `session()` (B84)."""
        for bad in BAD_IDS:
            with pytest.raises((ValueError, TypeError), match="source_id"):
                scene.store.session("s", source_id=bad)
            if bad is not None:  # there it means the store's own
                with pytest.raises((ValueError, TypeError), match="namespace"):
                    scene.store.session("s", namespace=bad)

    @sentence()
    async def test_a_session_knows_its_key(self, scene: Scene) -> None:
        """`SessionHistory.key`: namespace, source id, session id."""
        key = scene.store.session("s", source_id="audit", namespace="n").key
        assert (key.namespace, key.source_id, key.session_id) == ("n", "audit", "s")
        own = scene.store.session("s").key
        assert (own.namespace, own.source_id) == (scene.namespace, "history")


async def _meet_nowhere(chats: list[SessionHistory]) -> None:
    """Each of the sessions reads what was written to it, and nothing else."""
    for place, chat in enumerate(chats):
        await write(chat, str(place))
    assert [await heard(chat) for chat in chats] == [[str(place)] for place in range(len(chats))]
