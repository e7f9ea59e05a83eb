"""Sessions with a codec of somebody else's: their objects, their formats, their mistakes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentstore import CorruptRecordError, HistoryStore, Message, open_store


class Items:
    """Plain dicts, which have no place for an id."""

    def __init__(self, format: str = "items/2") -> None:
        self.format = format

    def encode(self, obj: dict[str, Any], /) -> tuple[str | None, Any, bytes]:
        return None, (obj.get("role"), obj), json.dumps(obj).encode()

    def decode(self, payload: bytes, /) -> dict[str, Any]:
        item: dict[str, Any] = json.loads(payload)
        return {**item, "seen": item.get("seen", False)}

    def assign_id(self, obj: dict[str, Any], message_id: str, /) -> bool:
        return False


class Broken(Items):
    def decode(self, payload: bytes, /) -> dict[str, Any]:
        return json.loads(b"null").get("role")  # type: ignore[no-any-return]


class Careless(Items):
    def encode(self, obj: dict[str, Any], /) -> Any:
        return None, obj, json.dumps(obj)


def run(scene: Callable[[HistoryStore], Awaitable[None]], **options: Any) -> None:
    async def played() -> None:
        async with open_store("memory://", **options) as store:
            await scene(store)

    asyncio.run(played())


def test_one_object_twice_in_a_batch_is_one_record() -> None:
    """Also where it has no place for an id; an equal one that is another object is an honest repeat (B73)."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Items())
        item = {"role": "user", "text": "yes"}
        answer = await chat.append([item, item, dict(item)])
        assert (answer.seqs, answer.written) == ([1, 1, 2], 2)

    run(scene)


def test_an_idempotency_key_makes_a_retry_exact() -> None:
    """The ids are a function of key and position, and need no place on the object."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Items())
        for _ in range(2):
            await chat.append([{"role": "user", "text": "a"}, {"role": "user", "text": "a"}], idempotency_key="turn-1")
        assert len(await chat.messages()) == 2

    run(scene)


def test_whatever_a_codec_raises_is_a_corrupt_record() -> None:
    """A stranger's codec that fails over a payload in its own way hides nothing else."""

    async def scene(store: HistoryStore) -> None:
        await store.session("s", codec=Items()).append([{"role": "user"}])
        with pytest.raises(CorruptRecordError, match="record 1 of session"):
            await store.session("s", codec=Broken()).messages()

    run(scene)


def test_a_store_that_skips_skips_those_too(caplog: pytest.LogCaptureFixture) -> None:
    """... and the readable rest comes back, with a warning."""

    async def scene(store: HistoryStore) -> None:
        await store.session("s").append([Message("user", ["readable"])])
        await store.session("s", codec=Items()).append([{"role": "user"}])
        found = await store.session("s", codec=Broken()).messages()
        assert [message.text for message in found] == ["readable"]

    run(scene, on_corrupt="skip")
    assert "skipped" in caplog.text


def test_an_older_form_of_a_codecs_own_is_no_newer_one() -> None:
    """A form that nobody converts comes as an opaque message that keeps its payload; only a higher number is newer."""

    async def scene(store: HistoryStore) -> None:
        await store.session("s", codec=Items("items/1")).append([{"role": "user"}])
        [opaque] = await store.session("s", codec=Items("items/2")).messages()
        assert (opaque.role, opaque.contents[0].format, opaque.contents[0].payload) == (
            "unknown",
            "items/1",
            b'{"role": "user"}',
        )
        await store.session("s", codec=Items("items/3")).append([{"role": "user"}])
        with pytest.raises(CorruptRecordError, match="newer"):
            await store.session("s", codec=Items("items/2")).messages()

    run(scene)


def test_a_codec_that_gives_no_bytes_is_refused() -> None:
    """Before anything is written that nobody could read."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Careless())
        with pytest.raises(TypeError, match="bytes as payload"):
            await chat.append([{"role": "user"}])
        assert await chat.info() is None
        with pytest.raises(TypeError, match="a codec has"):
            store.session("s", codec=5)  # type: ignore[arg-type]

    run(scene)


class Lines:
    """Objects that Python itself makes one where they are equal."""

    format = "lines/1"

    def encode(self, obj: str, /) -> tuple[str | None, Any, bytes]:
        return None, obj, obj.encode()

    def decode(self, payload: bytes, /) -> str:
        return payload.decode()

    def assign_id(self, obj: str, message_id: str, /) -> bool:
        return False


def test_equal_texts_are_honest_repeats_though_they_are_one_object() -> None:
    """Losing is worse than keeping: what cannot change has no identity (B73)."""

    async def scene(store: HistoryStore) -> None:
        chat = store.session("s", codec=Lines())
        assert (await chat.append(["yes", "yes"])).written == 2

    run(scene)


def test_a_large_batch_appended_twice_at_once_is_there_once() -> None:
    """Ids are given before anything is awaited, whatever the size of the batch."""

    async def scene(store: HistoryStore) -> None:
        messages = [Message("user", [str(number)]) for number in range(300)]
        answers = await asyncio.gather(*[store.session("s").append(messages) for _ in range(3)])
        assert sorted(answer.written for answer in answers) == [0, 0, 300]
        assert len(await store.session("s").messages()) == 300

    run(scene)
