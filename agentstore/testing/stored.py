"""Sentences about the stored form, and about records that cannot be read."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from agentstore import Content, CorruptRecordError, Message
from agentstore.backend import Catalog, Rewriting, Snapshots, SnapshotWrite
from agentstore.testing.faults import plant
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence

KOLKATA = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
BROKEN = (b"{broken", b"", b"[]", b"null", b'{"v":1}', b'{"v":1,"role":"user","contents":[1]}', b"\xff\xfe")
NEWER = b'{"v":2,"type":"message","role":"user","contents":[],"message_id":"planted"}'
FROZEN = (
    b'{"v":1,"type":"message","role":"user","contents":[{"type":"text","text":"caf\xc3\xa9"},'
    b'{"type":"data","data":{"$bytes":"AP8="},"odd":[{"$text":"a%00b"},{"$float":"nan"},{"$int":"0x8000000000000000"},'
    b'{"$tuple":[1]},{"$datetime":"2024-01-01T00:00:00+05:30"},{"$dict":[["$bytes","x"]]}]}],'
    b'"author_name":"Ann","message_id":"m1","additional_properties":{"k":null}}'
)


class Messages(logging.Handler):
    """The texts that agentstore logs while entered."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> list[str]:
        logging.getLogger("agentstore").addHandler(self)
        return self.texts

    def __exit__(self, *_: object) -> None:
        logging.getLogger("agentstore").removeHandler(self)


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


class StoredFormSentences(Stage):
    @sentence()
    async def test_the_stored_form_is_frozen(self, scene: Scene) -> None:
        """The stored form v1: these bytes, with plain text at fixed paths."""
        odd: list[Any] = ["a\x00b", float("nan"), 2**63, (1,), KOLKATA, {"$bytes": "x"}]
        contents = [Content("text", text="café"), Content("data", data=b"\x00\xff", odd=odd)]
        message = Message("user", contents, message_id="m1", author_name="Ann", additional_properties={"k": None})
        await scene.chat.append([message])
        (stored,) = await scene.backend.read(scene.chat.key)
        assert (stored.format, stored.payload) == ("agentstore/1", FROZEN)

    @sentence()
    async def test_the_frozen_form_can_be_read(self, scene: Scene) -> None:
        """Files of released stored forms are kept for ever."""
        await plant(scene.backend, scene.chat, FROZEN)
        (message,) = await scene.chat.messages()
        assert (message.text, message.contents[1].data, message.author_name) == ("café", b"\x00\xff", "Ann")

    @sentence()
    async def test_the_stored_form_is_strict_json(self, scene: Scene) -> None:
        """Strict RFC 8259 JSON in UTF-8, no U+0000 or surrogate escape and no NaN token, in keys too."""
        odd = {"nul\x00key": "\x00", "\ud800": "\udfff", "nan": float("nan"), "inf": [float("-inf")], "big": 10**30}
        await scene.chat.append([Message("user", ["a\x00\ud800"], additional_properties=odd, author_name="\x00")])
        (stored,) = await scene.backend.read(scene.chat.key)
        text = stored.payload.decode("utf-8", "strict")
        json.loads(text, parse_constant=refuse_constant)
        assert not re.search(r"\\u0000|\\u[dD][89a-fA-F]|\x00", text)

    @sentence()
    async def test_the_stored_form_is_not_ascii_escaped(self, scene: Scene) -> None:
        """Not ASCII-escaped: a text costs its UTF-8 length (B17)."""
        await scene.chat.append(said("漢字" * 5000))
        (stored,) = await scene.backend.read(scene.chat.key)
        assert len(stored.payload) < 1.05 * len("漢字".encode()) * 5000

    @sentence()
    async def test_stored_data_names_no_code(self, scene: Scene) -> None:
        """Nothing stored can name code: an envelope is only data (B96)."""
        payload = b'{"v":1,"role":"user","contents":[{"type":"x","__reduce__":["os.system","true"],"py/object":"os"}]}'
        await plant(scene.backend, scene.chat, payload)
        (message,) = await scene.chat.messages()
        assert message.contents[0].to_dict()["py/object"] == "os"

    @sentence()
    async def test_an_unknown_format_is_opaque(self, scene: Scene) -> None:
        """A record of another format comes as an opaque message that keeps its payload."""
        await plant(scene.backend, scene.chat, b"\x00 anything", format="elsewhere/3")
        (message,) = await scene.chat.messages()
        content = message.contents[0]
        assert (content.type, content.format, content.payload) == ("opaque", "elsewhere/3", b"\x00 anything")


class CorruptionSentences(Stage):
    @sentence()
    async def test_an_unreadable_record_is_named(self, scene: Scene) -> None:
        """A record that cannot be read raises `CorruptRecordError` (session and seq named) (B123)."""
        await scene.chat.append(said("a", "b"))
        seq = await plant(scene.backend, scene.chat, b"{broken")
        for read in (scene.chat.messages, scene.chat.records):
            with pytest.raises(CorruptRecordError) as caught:
                await read()
            assert scene.chat.key.session_id in str(caught.value)
            assert re.search(rf"\b{seq}\b", str(caught.value))

    @sentence()
    async def test_iterate_names_an_unreadable_record(self, scene: Scene) -> None:
        """`iterate` raises as reading does."""
        await scene.chat.append(said("a"))
        seq = await plant(scene.backend, scene.chat, b"{broken")
        with pytest.raises(CorruptRecordError, match=rf"\b{seq}\b"):
            [record async for record in scene.chat.iterate(page_size=1)]

    @sentence()
    async def test_no_broken_payload_is_taken_for_a_message(self, scene: Scene) -> None:
        """Whatever is broken about it: it is refused, not guessed."""
        for payload in BROKEN:
            chat = scene.session()
            try:
                await plant(scene.backend, chat, payload)
            except ValueError:
                continue  # a backend may refuse to keep what is not even text
            with pytest.raises(CorruptRecordError):
                await chat.messages()

    @sentence()
    async def test_a_newer_stored_version_is_refused(self, scene: Scene) -> None:
        """A newer stored version is refused, not guessed (B132)."""
        for format, payload in (("agentstore/1", NEWER), ("agentstore/2", b'{"v":1,"role":"user","contents":[]}')):
            chat = scene.session()
            await plant(scene.backend, chat, payload, format=format)
            with pytest.raises(CorruptRecordError, match="upgrade"):
                await chat.messages()

    @sentence()
    async def test_the_readable_rest_can_be_read(self, scene: Scene) -> None:
        """With `on_corrupt="skip"` reads return the readable rest."""
        chat = scene.another(on_corrupt="skip")
        await chat.append(said("a"))
        await plant(scene.backend, chat, b"{broken")
        await chat.append(said("b"))
        assert await heard(chat) == ["a", "b"]
        assert [record.message.text async for record in chat.iterate(page_size=1)] == ["a", "b"]

    @sentence()
    async def test_a_limit_counts_readable_records(self, scene: Scene) -> None:
        """`limit` counts readable ones (B123)."""
        chat = scene.another(on_corrupt="skip")
        for number in range(4):
            await chat.append(said(str(number)))
            for broken in range(3):
                await plant(scene.backend, chat, b"{broken", message_id=f"{number}-{broken}")
        assert [await heard(chat, limit=limit) for limit in (1, 2, 4, 9)] == [["3"], ["2", "3"], [*"0123"], [*"0123"]]

    @sentence()
    async def test_what_is_skipped_is_logged(self, scene: Scene) -> None:
        """... and a warning is logged."""
        chat = scene.another(on_corrupt="skip")
        seq = await plant(scene.backend, chat, b"{broken")
        with Messages() as texts:
            assert await chat.messages() == []
        assert [text for text in texts if chat.key.session_id in text and str(seq) in text]

    @sentence()
    async def test_reading_and_writing_keep_what_cannot_be_read(self, scene: Scene) -> None:
        """... and is never deleted or overwritten by accident."""
        seq = await plant(scene.backend, scene.chat, b"{broken")
        chat = scene.another(on_corrupt="skip")
        await chat.messages()
        await chat.append(said("a"))
        with pytest.raises(CorruptRecordError):
            await scene.chat.messages()
        first, *_ = await scene.backend.read(chat.key)
        assert (first.seq, first.payload) == (seq, b"{broken")

    @sentence(Snapshots)
    async def test_an_unreadable_snapshot_is_named(self, scene: Scene) -> None:
        """A snapshot of a newer or unknown format, or a broken one, raises `CorruptRecordError`."""
        for format, payload in (("agentstore.session/2", b"{}"), ("agentstore.session/1", b"{broken")):
            chat = scene.session()
            await scene.snapshots.save_snapshot(chat.key, SnapshotWrite(format, payload, frozenset()))
            with pytest.raises(CorruptRecordError, match=chat.key.session_id):
                await chat.load_snapshot()

    @sentence(Catalog)
    async def test_unreadable_metadata_is_named(self, scene: Scene) -> None:
        """Metadata that cannot be read raises `CorruptRecordError`, and is not overwritten."""
        await scene.catalog.annotate(scene.chat.key, None, b"{broken")
        with pytest.raises(CorruptRecordError, match=scene.chat.key.session_id):
            await scene.chat.info()
        with pytest.raises(CorruptRecordError):
            await scene.chat.annotate({"a": 1})

    @sentence(Rewriting)
    async def test_a_fork_copies_what_cannot_be_read(self, scene: Scene) -> None:
        """A copy loses nothing, not even what only a newer version can read."""
        await plant(scene.backend, scene.chat, NEWER)
        await scene.chat.append([named("m1")])
        fork = await scene.chat.fork(scene.session().key.session_id)
        copied = [record.payload for record in await scene.backend.read(fork.key)]
        assert copied == [record.payload for record in await scene.backend.read(scene.chat.key)]
