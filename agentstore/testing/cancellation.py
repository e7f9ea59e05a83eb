"""Sentences about cancelled calls: wholly done or not at all, and settled before the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from agentstore import SessionHistory, settle
from agentstore.backend import Catalog, Rewriting, Snapshots
from agentstore.testing.faults import gated
from agentstore.testing.scenes import Scene, Stage, heard, named, said, sentence
from agentstore.testing.stored import Messages

STEPS = 12
"""A call is cancelled after each of so many turns of the event loop, then after ever longer waits."""
PAUSES = tuple(0.0001 * 2**power for power in range(10))

Call = Callable[[SessionHistory], Awaitable[Any]]
State = Callable[[SessionHistory], Awaitable[Any]]


class CancellationSentences(Stage):
    @sentence()
    async def test_a_cancelled_append_is_whole_or_nothing(self, scene: Scene) -> None:
        """A cancelled call happened wholly or not at all, wherever it was cancelled (B45)."""
        await _cancel_everywhere(scene, lambda chat: chat.append(said("x", "y", "z")), heard)

    @sentence()
    async def test_a_cancelled_truncation_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `truncate` and `clear`."""
        await _cancel_everywhere(scene, lambda chat: chat.clear(), heard)

    @sentence(Rewriting)
    async def test_a_cancelled_replace_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `replace`: old or new, never neither (B52)."""
        await _cancel_everywhere(scene, lambda chat: chat.replace([named("m2", "x"), named("m9", "y")]), heard)

    @sentence(Rewriting)
    async def test_a_cancelled_update_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `update`."""
        await _cancel_everywhere(scene, lambda chat: chat.update(named("m1", "x")), heard)

    @sentence(Rewriting)
    async def test_a_cancelled_pop_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `pop`."""
        await _cancel_everywhere(scene, lambda chat: chat.pop(), heard)

    @sentence(Rewriting)
    async def test_a_cancelled_fork_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `fork`: the target appears whole or not at all."""

        def target(chat: SessionHistory) -> str:
            return f"fork of {chat.key.session_id}"

        async def forked(chat: SessionHistory) -> list[str]:
            return await heard(scene.session(target(chat)))

        await _cancel_everywhere(scene, lambda chat: chat.fork(target(chat)), forked)

    @sentence(Catalog)
    async def test_a_cancelled_annotation_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `annotate`."""

        async def metadata(chat: SessionHistory) -> Any:
            info = await chat.info()
            return info and info.metadata

        await _cancel_everywhere(scene, lambda chat: chat.annotate({"a": 1, "b": 2}), metadata)

    @sentence(Catalog)
    async def test_a_cancelled_delete_is_whole_or_nothing(self, scene: Scene) -> None:
        """... `delete`."""

        async def parts(chat: SessionHistory) -> Any:
            return await heard(chat), await chat.info() is None

        await _cancel_everywhere(scene, lambda chat: chat.delete(), parts)

    @sentence(Snapshots)
    async def test_a_cancelled_turn_with_snapshot_is_whole_or_nothing(self, scene: Scene) -> None:
        """... messages and snapshot together."""

        async def parts(chat: SessionHistory) -> Any:
            return await heard(chat), await chat.load_snapshot()

        await _cancel_everywhere(scene, lambda chat: chat.append(said("x", "y"), snapshot={"step": 1}), parts)

    @sentence()
    async def test_a_cancelled_append_leaves_no_rows_for_others(self, scene: Scene) -> None:
        """The cancelled call's rows are not committed by the next, unrelated call (B45)."""
        for steps in range(STEPS):
            chat, other = scene.session(), scene.session()
            settled = await _cancelled(chat.append(said("x", "y")), steps)
            before = await heard(chat)
            await other.append(said("next"))
            assert await heard(chat) == before
            assert before == ["x", "y"] or not settled

    @sentence()
    async def test_a_cancelled_append_can_be_made_again(self, scene: Scene) -> None:
        """The same call made again leaves exactly one copy (B46)."""
        for steps in range(STEPS):
            chat, messages = scene.session(), said("x", "y")
            await _cancelled(chat.append(messages), steps)
            await chat.append(messages)
            assert await heard(chat) == ["x", "y"]

    @sentence()
    async def test_a_cancelled_write_settles_before_the_error_leaves(self, scene: Scene) -> None:
        """... settled before `CancelledError` leaves (B46)."""
        reached, gate = asyncio.Event(), asyncio.Event()
        chat = scene.another(gated(scene.backend, "append", reached=reached, gate=gate))
        task = asyncio.ensure_future(chat.append(said("a")))
        await reached.wait()
        for _ in range(3):  # an impatient caller asks more than once
            task.cancel()
            await asyncio.sleep(0.005)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await heard(scene.chat) == ["a"]

    @sentence()
    async def test_past_a_bound_the_error_leaves_with_a_warning(self, scene: Scene) -> None:
        """Past a bound (a stopped server) it leaves with a logged warning that the outcome is unknown."""
        reached, gate = asyncio.Event(), asyncio.Event()
        chat = scene.another(gated(scene.backend, "append", reached=reached, gate=gate))
        with patch.object(settle, "SETTLE_SECONDS", 0.02), Messages() as texts:
            task = asyncio.ensure_future(chat.append(said("a")))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 5)
        assert [text for text in texts if "unknown" in text]

    @sentence()
    async def test_a_cancelled_read_changes_nothing(self, scene: Scene) -> None:
        """A cancelled read leaves the store as usable as before (B105)."""
        await scene.chat.append(said("a"))
        for steps in range(STEPS):
            await _cancelled(scene.chat.messages(), steps)
        assert await heard(scene.chat) == ["a"]


async def _cancelled(call: Awaitable[Any], steps: int, pause: float = 0) -> bool:
    """Cancel the call after so many turns of the loop and a pause; whether it had finished before."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    if pause:
        await asyncio.sleep(pause)
    finished = task.done()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        assert not finished
    return finished


async def _cancel_everywhere(scene: Scene, call: Call, state: State) -> None:
    """The state is the old or the new one, wherever the call is cancelled, and does not change later."""
    old, new = await _both(scene, call, state)
    for steps, pause in [(steps, 0.0) for steps in range(STEPS)] + [(0, pause) for pause in PAUSES]:
        chat = await _filled(scene)
        finished = await _cancelled(call(chat), steps, pause)
        found = await state(chat)
        assert found == new or (found == old and not finished)
        await asyncio.sleep(0)
        assert await state(chat) == found
        await scene.session().append(said("another"))
        assert await state(chat) == found
        if finished:
            return


async def _both(scene: Scene, call: Call, state: State) -> tuple[Any, Any]:
    chat = await _filled(scene)
    old = await state(chat)
    await call(chat)
    return old, await state(chat)


async def _filled(scene: Scene) -> SessionHistory:
    chat = scene.session()
    await chat.append([named("m1", "a"), named("m2", "b"), named("m3", "c")])
    return chat
