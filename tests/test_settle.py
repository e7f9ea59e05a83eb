"""A cancelled call settles first: its write is done or failed before the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from agentstore import HistoryStore, Message, SessionKey, UnavailableError, open_store, settle
from agentstore.backend import Append, Refused, Written
from agentstore.settle import Unbroken, settled
from agentstore.testing.faults import wrapped
from agentstore_memory import MemoryBackend

FORMS: dict[str, Callable[[Any], Any]] = {
    "coroutine": lambda write: write,
    "future": asyncio.ensure_future,
    "unbroken": Unbroken,
}
"""What a backend may give for a write."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Write, "form", staticmethod(FORMS[request.param]))


in_each_form = pytest.mark.usefixtures("form")


class Write:
    """A write in two steps, which goes on when it is let."""

    form: Callable[[Any], Any] = staticmethod(Unbroken)

    def __init__(self, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self._error = error

    def ask(self) -> Awaitable[str]:
        answer: Awaitable[str] = self.form(self._run())
        return answer

    async def _run(self) -> str:
        await asyncio.sleep(0)
        self.steps.append("first")
        self.begun.set()
        await self.let.wait()
        if self._error is not None:
            raise self._error
        self.steps.append("second")
        return "done"


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 10))


async def pause() -> None:
    """Let everything that is ready go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def cancelled(write: Write, *, times: int = 1) -> asyncio.Task[str]:
    """A call of the write, cancelled in its middle."""
    call = asyncio.ensure_future(settled(write.ask()))
    await write.begun.wait()
    for _ in range(times):
        call.cancel()
        await pause()
    return call


@in_each_form
def test_the_result_and_the_error_of_a_write_come_through() -> None:
    """Nothing is added where nobody cancels."""

    async def scene() -> None:
        good, bad = Write(), Write(UnavailableError("away"))
        good.let.set()
        bad.let.set()
        assert await settled(good.ask()) == "done"
        with pytest.raises(UnavailableError, match="away"):
            await settled(bad.ask())

    run(scene)


@in_each_form
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_cancelled_call_waits_for_its_write(times: int) -> None:
    """However often it is asked, it leaves as cancelled, and only once the write is whole."""

    async def scene() -> None:
        write = Write()
        call = await cancelled(write, times=times)
        assert not call.done()
        write.let.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert write.steps == ["first", "second"]

    run(scene)


@in_each_form
def test_a_cancellation_that_came_before_the_write_lets_it_be_whole() -> None:
    """Cancelled while it prepared: it learns of it at the write, which is then done or not begun."""

    async def scene() -> None:
        write = Write()
        write.let.set()

        async def call() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await settled(write.ask())

        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(call())
        assert write.steps in ([], ["first", "second"])

    run(scene)


@in_each_form
def test_a_write_that_fails_after_the_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets its `CancelledError`; the failure is not lost, and not reported twice."""

    async def scene() -> None:
        write = Write(UnavailableError("away"))
        call = await cancelled(write)
        write.let.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert write.steps == ["first"]

    with caplog.at_level(logging.WARNING):
        run(scene)
    (record,) = caplog.records
    assert record.name == "agentstore"
    assert record.exc_info
    assert "away" in str(record.exc_info[1])


@in_each_form
def test_past_the_bound_a_cancelled_call_leaves_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that does not answer holds nobody for ever; that the outcome is unknown is said."""
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.05)

    async def scene() -> None:
        write = Write()
        call = await cancelled(write)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert write.steps == ["first"]
        write.let.set()  # the server answers at last
        await pause()
        assert write.steps == ["first", "second"]

    with caplog.at_level(logging.WARNING):
        run(scene)
    (record,) = caplog.records
    assert "outcome" in record.getMessage()
    assert "unknown" in record.getMessage()


@in_each_form
def test_cancelling_again_and_again_does_not_move_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound counts from the first cancellation."""
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.1)

    async def scene() -> None:
        call = await cancelled(Write())
        loop = asyncio.get_running_loop()
        start = loop.time()
        while not call.done():
            call.cancel()
            await asyncio.sleep(0.02)
        assert loop.time() - start < 1

    run(scene)


@in_each_form
def test_a_failure_past_the_bound_makes_no_noise_about_unretrieved_errors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome was called unknown already: asyncio has nothing to complain about when the task is collected."""
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.05)

    async def scene() -> None:
        write = Write(UnavailableError("away"))
        call = await cancelled(write)
        with pytest.raises(asyncio.CancelledError):
            await call
        write.let.set()
        await pause()

    with caplog.at_level(logging.WARNING):
        run(scene)
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_the_bound_holds_for_all_steps_of_a_write_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation that came in the first step is not forgotten in the second."""
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.1)

    async def scene() -> None:
        async def write() -> None:
            await asyncio.sleep(0.02)
            await asyncio.sleep(10)

        call = asyncio.ensure_future(settled(Unbroken(write())))
        await asyncio.sleep(0.01)
        call.cancel()
        done, _ = await asyncio.wait({call}, timeout=2)
        assert done
        assert call.cancelled()

    run(scene)


@in_each_form
def test_a_call_that_leaves_at_the_bound_keeps_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its `finally` sees is what it has set, and not what is set where it was cancelled."""
    monkeypatch.setattr(settle, "SETTLE_SECONDS", 0.05)
    where: ContextVar[str] = ContextVar("where", default="outside")
    seen: list[str] = []

    async def scene() -> None:
        write = Write()

        async def call() -> None:
            where.set("call")
            try:
                await settled(write.ask())
            finally:
                seen.append(where.get())

        task = asyncio.ensure_future(call())
        await write.begun.wait()
        task.cancel()
        await asyncio.wait({task})
        write.let.set()
        await pause()

    run(scene)
    assert seen == ["call"]


@in_each_form
def test_a_write_may_settle_another_in_itself() -> None:
    """A backend that wraps another: both are whole, and the caller leaves as cancelled."""

    async def scene() -> None:
        write = Write()

        async def wrapped() -> str:
            return await settled(write.ask())

        call = asyncio.ensure_future(settled(Unbroken(wrapped())))
        await write.begun.wait()
        call.cancel()
        await pause()
        write.let.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert write.steps == ["first", "second"]

    run(scene)


def test_what_the_task_itself_finds_wrong_reaches_the_write() -> None:
    """A future of another event loop: the write can clean up."""
    other = asyncio.new_event_loop()
    steps: list[str] = []

    async def scene() -> None:
        async def write() -> None:
            try:
                await other.create_future()
            except RuntimeError:
                steps.append("learned")
                raise

        with pytest.raises(RuntimeError, match="loop"):
            await settled(Unbroken(write()))

    run(scene)
    other.close()
    assert steps == ["learned"]


@in_each_form
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_call_leaves_no_circle_behind(fails: bool, cancels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller held is free when the call is over, not when garbage is collected."""
    monkeypatch.setattr(settle._logger, "disabled", True)  # pytest keeps what is logged, with its traceback

    class Held:
        pass

    async def write() -> None:
        await asyncio.sleep(0.01)
        if fails:
            raise UnavailableError("away")

    async def call(seen: list[weakref.ref[Held]]) -> None:
        held = Held()
        seen.append(weakref.ref(held))
        with suppress(UnavailableError, asyncio.CancelledError):
            await settled(Write.form(write()))
        assert held

    async def scene() -> None:
        seen: list[weakref.ref[Held]] = []
        task = asyncio.ensure_future(call(seen))
        await asyncio.sleep(0.001)
        if cancels:
            task.cancel()
        await task
        del task
        await pause()
        assert seen[0]() is None

    gc.collect()
    gc.disable()
    try:
        run(scene)
    finally:
        gc.enable()


def test_a_wait_that_somebody_else_cancels_is_cancelled_in_the_write() -> None:
    """The write learns of it, as it would in a task of its own."""

    async def scene() -> None:
        inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        steps: list[str] = []

        async def write() -> None:
            try:
                await inner
            except asyncio.CancelledError:
                steps.append("learned")
                raise

        call = asyncio.ensure_future(settled(Unbroken(write())))
        await pause()
        inner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert steps == ["learned"]

    run(scene)


def test_a_write_left_with_its_event_loop_is_closed() -> None:
    """Nobody can go on with it: it ends where it is, and no error shows."""
    ended: list[str] = []

    async def write() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("closed")

    loop = asyncio.new_event_loop()
    call = settled(Unbroken(write()))
    task = loop.create_task(call)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    call.close()
    assert ended == ["closed"]
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


@in_each_form
def test_a_time_out_around_a_call_still_is_one() -> None:
    """`asyncio.wait_for` sees its own cancellation come back, after the write is whole."""

    async def scene() -> None:
        write = Write()
        asyncio.get_running_loop().call_later(0.05, write.let.set)
        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await asyncio.wait_for(settled(write.ask()), 0.01)
        assert write.steps == ["first", "second"]

    run(scene)


def test_a_call_that_asyncio_run_tears_down_is_settled_too(tmp_path: Path) -> None:
    """When `main` returns, every task is cancelled, also the call's inner one: it leaves with its outcome known."""
    path = tmp_path / "chat.db"
    store = open_store(f"sqlite:///{path}")
    seen: list[int] = []

    def count() -> int:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            return int(reader.execute("select count(*) from message").fetchone()[0])

    async def call() -> None:
        try:
            await store.session("s").append([Message("user", ["a"])])
        finally:
            seen.append(count())

    async def main() -> None:
        await store.setup()
        locker.execute("begin immediate")
        threading.Timer(0.2, lambda: locker.execute("rollback")).start()
        tasks.append(asyncio.ensure_future(call()))
        await asyncio.sleep(0.05)

    tasks: list[asyncio.Task[None]] = []
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as locker:
        asyncio.run(main())
        asyncio.run(store.aclose())
    assert tasks[0].cancelled()
    assert seen == [count()]


def test_what_asyncio_run_tears_down_is_written_wholly_or_not_at_all(tmp_path: Path) -> None:
    """Calls that are still open when `main` returns leave whole turns behind, in a file that works."""
    store = open_store(f"sqlite:///{tmp_path}/chat.db")

    async def append(*texts: str) -> None:
        await store.session("s").append([Message("user", [text]) for text in texts])

    async def main() -> None:
        calls = [asyncio.ensure_future(append(*[f"{turn}.{part}" for part in range(4)])) for turn in range(20)]
        await asyncio.sleep(0.03)
        assert len(calls) == 20

    async def found() -> list[str]:
        async with store:
            await append("last.0")
            return [message.text for message in await store.session("s").messages()]

    asyncio.run(main())
    turns = [text.split(".")[0] for text in asyncio.run(found())]
    assert turns[-1] == "last"
    assert all(turns.count(turn) == 4 for turn in turns[:-1])


def test_a_retry_that_surely_failed_leaves_the_first_call_in_doubt() -> None:
    """The answer was lost, then nobody could be reached: the turn may be there, and the error says so (B46)."""

    async def append(key: SessionKey, append: Append) -> Written | Refused:
        raise UnavailableError("the way there is cut", maybe_done=not append.retry)

    async def scene() -> None:
        async with HistoryStore(wrapped(MemoryBackend(), append=append)) as store:
            with pytest.raises(UnavailableError, match=r"is cut.*may have happened") as caught:
                await store.session("s").append([Message("user", ["hi"])])
            assert caught.value.maybe_done
            assert isinstance(caught.value.__cause__, UnavailableError)

    asyncio.run(scene())
