"""Sentences about opening, set-up, closing, loops and threads, sizes, and abilities that are missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from agentstore import ClosedError, ConfigurationError, PayloadTooLargeError
from agentstore.backend import Catalog, Limits, Rewriting, Snapshots
from agentstore.testing.faults import ABILITIES, LOG, Calls, bare, counted, limited
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence, together

SMALL = Limits(message_bytes=1000, append_bytes=2500)


class LifecycleSentences(Stage):
    @sentence(set_up=False)
    async def test_before_set_up_reads_find_nothing_and_create_nothing(self, scene: Scene) -> None:
        """Before set-up, reads find nothing and create nothing."""
        await _needs_a_bare_place(scene)
        await scene.store.open()
        await scene.store.ping()
        assert await scene.chat.messages(limit=5) == []
        assert [record async for record in scene.chat.iterate()] == []
        assert (await scene.chat.clear(), await scene.chat.truncate(before=4)) == (0, 0)
        assert await scene.backend.readiness() == "absent"

    @sentence(Catalog, Rewriting, Snapshots, set_up=False)
    async def test_before_set_up_every_look_up_creates_nothing(self, scene: Scene) -> None:
        """... whatever is looked up or removed."""
        await _needs_a_bare_place(scene)
        assert (await scene.chat.pop(), await scene.chat.info(), await scene.chat.load_snapshot()) == (None,) * 3
        assert (await scene.chat.update(named("m1")), await scene.store.purge_expired()) == (False, 0)
        await scene.chat.expire(None)
        await scene.chat.delete()
        await scene.chat.replace([])
        await scene.chat.fork("other")
        assert (await scene.store.sessions()).items == []
        assert await scene.store.delete_namespace(scene.namespace) == 0
        assert await scene.backend.readiness() == "absent"

    @sentence(set_up=False)
    async def test_the_first_write_sets_up(self, scene: Scene) -> None:
        """The first write checks the schema version and creates only what is missing."""
        await scene.chat.append(said("a"))
        assert await scene.backend.readiness() == "ready"
        assert await heard(scene.chat) == ["a"]

    @sentence(set_up=False)
    async def test_without_auto_setup_a_write_is_refused(self, scene: Scene) -> None:
        """With `auto_setup=False` the first write raises `ConfigurationError`, and creates nothing."""
        await _needs_a_bare_place(scene)
        with pytest.raises(ConfigurationError, match="setup"):
            await scene.another(auto_setup=False).append(said("a"))
        assert await scene.backend.readiness() == "absent"

    @sentence(set_up=False)
    async def test_after_setup_no_auto_setup_is_needed(self, scene: Scene) -> None:
        """`setup()` creates all; then a store with `auto_setup=False` works."""
        await scene.store.setup()
        chat = scene.another(auto_setup=False)
        await chat.append(said("a"))
        assert await heard(chat) == ["a"]

    @sentence()
    async def test_setup_keeps_what_is_there(self, scene: Scene) -> None:
        """setup: idempotent (B99)."""
        await scene.chat.append(said("a"))
        await scene.store.setup()
        await scene.another_store().setup()
        assert await heard(scene.chat) == ["a"]

    @sentence(set_up=False)
    async def test_setup_may_be_raced(self, scene: Scene) -> None:
        """setup: safe when many do it at once (B29)."""
        await together(8, lambda _: scene.another_store().setup())
        assert await scene.backend.readiness() == "ready"

    @sentence(set_up=False)
    def test_making_a_store_does_no_io(self, scene: Scene) -> None:
        """No I/O, callable outside any event loop: agents are built at import time."""
        calls = Calls()
        store = scene.another_store(counted(scene.backend, calls))
        store.session("s").iterate()
        assert calls == []
        assert "HistoryStore" in repr(store)

    @sentence()
    async def test_closing_twice_is_fine(self, scene: Scene) -> None:
        """`aclose()`: idempotent (B117)."""
        await scene.chat.append(said("a"))
        await scene.store.aclose()
        await scene.store.aclose()
        await scene.backend.aclose()

    @sentence()
    async def test_a_store_that_was_never_used_closes(self, scene: Scene) -> None:
        """`aclose()` of what never connected."""
        await scene.another_store().aclose()

    @sentence()
    async def test_after_closing_every_read_raises(self, scene: Scene) -> None:
        """Afterwards every call raises `ClosedError`: `limit=0` too (B117)."""
        chat, store = scene.chat, scene.store
        await store.aclose()
        calls: list[Callable[[], Any]] = [store.open, store.ping, store.setup, chat.messages, chat.records]
        calls += [lambda: chat.messages(limit=0), lambda: anext(chat.iterate()), lambda: store.session("s").messages()]
        await _all_closed(calls)

    @sentence()
    async def test_after_closing_every_write_raises(self, scene: Scene) -> None:
        """... an empty append too (B117)."""
        chat = scene.chat
        await scene.store.aclose()
        calls: list[Callable[[], Any]] = [lambda: chat.append(said("a")), lambda: chat.append([]), chat.clear]
        await _all_closed([*calls, lambda: chat.truncate(after=1)])

    @sentence(Catalog, Rewriting, Snapshots)
    async def test_after_closing_every_ability_raises(self, scene: Scene) -> None:
        """... and every call that needs an ability (B117)."""
        chat, store = scene.chat, scene.store
        await store.aclose()
        calls: list[Callable[[], Any]] = [chat.pop, chat.info, chat.delete, chat.load_snapshot, store.purge_expired]
        calls += [lambda: chat.replace([]), lambda: chat.update(named("m1")), lambda: chat.fork("s")]
        calls += [lambda: chat.annotate({}), lambda: chat.annotate({"a": 1}), lambda: chat.expire(None)]
        calls += [lambda: chat.save_snapshot({}), store.sessions, lambda: store.delete_namespace("n")]
        await _all_closed(calls)

    @sentence()
    async def test_leaving_async_with_closes(self, scene: Scene) -> None:
        """`async with` closes, by an error too."""
        with suppress(KeyError):
            async with scene.store:
                raise KeyError
        with pytest.raises(ClosedError):
            await scene.chat.messages()

    @sentence()
    async def test_closing_lets_a_write_finish_or_refuses_it(self, scene: Scene) -> None:
        """A write that is under way while the store closes happens wholly or not at all (B117)."""
        reader = await scene.reopened()
        written = scene.another()
        tasks = [asyncio.ensure_future(written.append(said(f"{n}a", f"{n}b"))) for n in range(8)]
        await asyncio.sleep(0)
        await scene.store.aclose()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [answer for answer in answers if isinstance(answer, Exception) and type(answer) is not ClosedError] == []
        done = [number for number, answer in enumerate(answers) if not isinstance(answer, ClosedError)]
        stored = await heard(reader)
        assert sorted(zip(stored[::2], stored[1::2], strict=True)) == [(f"{number}a", f"{number}b") for number in done]

    @sentence()
    async def test_what_was_acknowledged_is_there_after_reopening(self, scene: Scene) -> None:
        """Whatever dies, the history holds every finished turn (B103)."""
        await scene.chat.append(said("a", "b"))
        await scene.store.aclose()
        assert await heard(await scene.reopened()) == ["a", "b"]

    @sentence()
    async def test_another_backend_object_sees_writes_at_once(self, scene: Scene) -> None:
        """Read your writes, through another backend object too (B40, B126)."""
        chat = await scene.reopened()
        for number in range(3):
            await scene.chat.append(said(str(number)))
            assert await heard(chat, limit=1) == [str(number)]

    @sentence()
    async def test_ids_are_exact_from_another_backend_object(self, scene: Scene) -> None:
        """A retry from another process is exact (B46)."""
        await scene.chat.append(said("a"), idempotency_key="k")
        chat = await scene.reopened()
        assert (await chat.append(said("a"), idempotency_key="k")).written == 0

    @sentence(set_up=False)
    def test_successive_event_loops_work(self, scene: Scene) -> None:
        """One store object works from successive `asyncio.run()` calls (B119)."""
        for number in range(3):
            asyncio.run(_write_and_read(scene, number))
        assert scene.run(heard(scene.chat)) == ["0", "1", "2"]

    @sentence()
    def test_threads_with_loops_of_their_own_work(self, scene: Scene) -> None:
        """... and threads that each run a loop (B119)."""
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                asyncio.run(_many(scene, number))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sorted(scene.run(heard(scene.chat))) == sorted(f"{n}-{turn}" for n in range(2) for turn in range(8))

    @sentence()
    def test_a_store_closes_from_any_loop(self, scene: Scene) -> None:
        """`aclose()` closes the clients of all loops."""
        asyncio.run(_write_and_read(scene, 0))
        scene.run(heard(scene.chat))
        asyncio.run(scene.store.aclose())
        with pytest.raises(ClosedError):
            scene.run(heard(scene.chat))

    @sentence()
    async def test_a_missing_ability_is_named(self, scene: Scene) -> None:
        """A method whose ability the backend lacks raises `ConfigurationError` naming it; the log works."""
        store = scene.another_store(bare(scene.backend))
        chat = store.session("s")
        await chat.append(said("a"))
        assert await heard(chat) == ["a"]
        needs: list[tuple[str, Callable[[], Awaitable[Any]]]] = [("Rewriting", chat.pop), ("Catalog", chat.info)]
        needs += [("Rewriting", lambda: chat.replace([])), ("Catalog", store.sessions), ("Catalog", chat.delete)]
        needs += [("Snapshots", chat.load_snapshot), ("Snapshots", lambda: chat.append([], snapshot={"a": 1}))]
        for ability, call in needs:
            with pytest.raises(ConfigurationError, match=ability):
                await call()

    @sentence()
    async def test_an_ability_is_whole_or_absent(self, scene: Scene) -> None:
        """The waist: a backend has all methods of an ability or none of them."""
        there = {name: [hasattr(scene.backend, method) for method in methods] for name, methods in ABILITIES.items()}
        assert [ability.__name__ for ability, found in there.items() if any(found) and not all(found)] == []
        assert [method for method in LOG if not hasattr(scene.backend, method)] == []


class SizeSentences(Stage):
    @sentence()
    async def test_a_backend_names_its_limits(self, scene: Scene) -> None:
        """Sizes are limited per backend."""
        limits = scene.backend.limits
        assert 0 < limits.message_bytes <= limits.append_bytes

    @sentence()
    async def test_a_message_over_the_limit_is_refused_before_the_work(self, scene: Scene) -> None:
        """Sizes are limited before the work is done: `PayloadTooLargeError` (B120)."""
        calls = Calls()
        chat = scene.another(counted(limited(scene.backend, SMALL), calls))
        with pytest.raises(PayloadTooLargeError, match="1000"):
            await chat.append([*said("small"), *said("x" * 1000)])
        assert calls == []
        await chat.append(said("x" * 500))

    @sentence()
    async def test_a_batch_over_the_limit_is_refused_before_the_work(self, scene: Scene) -> None:
        """... of one write: the sum counts."""
        calls = Calls()
        chat = scene.another(counted(limited(scene.backend, SMALL), calls))
        with pytest.raises(PayloadTooLargeError, match="2500"):
            await chat.append(said(*["x" * 800] * 3))
        assert calls == []
        await chat.append(said(*["x" * 800] * 2))

    @sentence(Rewriting)
    async def test_rewriting_has_the_same_limits(self, scene: Scene) -> None:
        """... of `update` and `replace` too."""
        await scene.chat.append([named("m1", "a")])
        chat = scene.another(limited(scene.backend, SMALL))
        with pytest.raises(PayloadTooLargeError):
            await chat.update(named("m1", "x" * 1000))
        with pytest.raises(PayloadTooLargeError):
            await chat.replace(said(*["x" * 800] * 3))
        assert await heard(chat) == ["a"]

    @sentence(Snapshots)
    async def test_a_snapshot_has_the_same_limit(self, scene: Scene) -> None:
        """... and of a snapshot, alone or with a turn."""
        chat = scene.another(limited(scene.backend, SMALL))
        with pytest.raises(PayloadTooLargeError):
            await chat.save_snapshot({"a": "x" * 1000})
        with pytest.raises(PayloadTooLargeError):
            await chat.append(said("a"), snapshot={"a": "x" * 1000})
        assert (await heard(chat), await chat.load_snapshot()) == ([], None)


async def _needs_a_bare_place(scene: Scene) -> None:
    if await scene.backend.readiness() != "absent":
        pytest.skip("the backend is set up already, or needs no set-up")


async def _all_closed(calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        with pytest.raises(ClosedError):
            await call()


async def _write_and_read(scene: Scene, number: int) -> None:
    await scene.chat.append(said(str(number)))
    assert await heard(scene.chat, limit=1) == [str(number)]


async def _many(scene: Scene, number: int) -> None:
    for turn in range(8):
        await scene.chat.append(said(f"{number}-{turn}"))
        await scene.chat.messages(limit=2)
