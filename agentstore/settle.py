"""Writes that a cancellation cannot tear: they settle first, then the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SETTLE_SECONDS = 30.0
"""How long a cancelled call waits for its write to settle."""

_logger = logging.getLogger("agentstore")


async def settled(write: Awaitable[T]) -> T:
    """The write's result. A cancellation meanwhile leaves once the write is done or failed.

    After 30 seconds without either it leaves anyway, with a logged warning that the outcome is unknown. A future or an
    `Unbroken` is waited for even where `asyncio.run` tears down all tasks.
    """
    result: T
    if isinstance(write, Unbroken):
        result = await write
        return result
    held, future = _Held(), asyncio.ensure_future(write)
    try:
        await _wait(future, held)
        if held.error is not None:
            _report(future)
            raise held.error
        result = future.result()
        return result
    finally:
        held.error = None
        del write, future  # what was raised leads here: together a circle


class Unbroken(Generic[T]):
    """A coroutine that goes on when the task that awaits it is cancelled, without a task of its own, which is quicker.

    Not for one that has its own task cancelled, as `asyncio.timeout` does: it would not notice.
    """

    def __init__(self, write: Coroutine[Any, Any, T]) -> None:
        self._write = write

    def __await__(self) -> Generator[Any, None, T]:
        held = _Held()
        try:
            try:
                result = yield from self._driven(held)
            except Exception as error:
                if held.error is None:
                    raise
                _logger.warning("the write of a cancelled call failed", exc_info=error)
            if held.error is not None:
                raise held.error
            return result
        except GeneratorExit:
            self._write.close()
            raise
        finally:
            held.error = None  # its traceback leads here: together a circle

    def _driven(self, held: _Held) -> Generator[Any, None, T]:
        step = partial(self._write.send, None)
        while True:
            try:
                future = step()
            except StopIteration as end:
                result: T = end.value
                return result
            step = partial(self._write.send, None)
            if future is None:
                yield from _pause(held)
                continue
            future = _taken_over(future)
            try:
                yield from _wait(future, held)
            except Exception as error:  # the task's, not the future's
                step = partial(self._write.throw, error)
                continue
            if not future.done():
                assert held.error is not None
                _report(asyncio.ensure_future(_finished(self._write, future)))
                raise held.error


async def _finished(write: Coroutine[Any, Any, T], future: asyncio.Future[Any]) -> T:
    """What a coroutine that waits for the future comes to."""
    await asyncio.wait({future})
    return await Unbroken(write)


class _Held:
    """The cancellation of a task that waits for its write."""

    error: asyncio.CancelledError | None = None
    until: float | None = None
    """By the event loop's clock."""


@types.coroutine
def _wait(future: asyncio.Future[Any], held: _Held) -> Generator[Any, None, None]:
    """Wait until the future is done, or a cancellation has been held back for so long. Its outcome is not looked at."""
    while not future.done():
        firm = _Firm(future, held.until)
        try:
            yield firm
        except asyncio.CancelledError as error:
            if firm.asked:
                held.error = error
        except Exception:
            if not future.done():
                raise
        finally:
            firm.leave()
        if held.error is not None:
            held.until = firm.until
            return


def _pause(held: _Held) -> Generator[None, None, None]:
    try:
        yield
    except asyncio.CancelledError as error:
        held.error = error
        held.until = held.until or asyncio.get_running_loop().time() + SETTLE_SECONDS


class _Firm:
    """A future as a task waits for it whose cancellation is held back until the future is done, or `until`.

    To tasks it is a future, as far as they use one (`_asyncio_future_blocking` is how they know it). A shield would do
    too, and cost a second future and a turn of the event loop.
    """

    def __init__(self, future: asyncio.Future[Any], until: float | None) -> None:
        self._asyncio_future_blocking = True
        self.future = future
        self.until = until
        self.asked = False
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._timer: asyncio.TimerHandle | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.future.get_loop()

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake, self._context = wake, context
        self.future.add_done_callback(wake, context=context)
        if self.until is not None:
            self._limit(self.until)

    def cancel(self, msg: Any = None) -> bool:
        """A cancelled task asks for it, and learns that it must wait."""
        self.asked = True
        if self.until is None:
            self._limit(self.get_loop().time() + SETTLE_SECONDS)
        return False

    def result(self) -> None:
        """What a task that is woken too early looks at."""

    def leave(self) -> None:
        """The task goes on."""
        if self._timer is not None:
            self._timer.cancel()

    def _limit(self, until: float) -> None:
        self.until = until
        self._timer = self.get_loop().call_at(until, self._give_up, context=self._context)

    def _give_up(self) -> None:
        assert self._wake is not None
        if self.future.remove_done_callback(self._wake):
            self._wake(self)


def _taken_over(future: Any) -> asyncio.Future[Any]:
    """The future that a coroutine waits for, which is no longer its task's to wait for."""
    future._asyncio_future_blocking = False
    inner: asyncio.Future[Any] = future.future if isinstance(future, _Firm) else future
    return inner


def _report(future: asyncio.Future[Any]) -> None:
    if not future.done():
        _logger.warning(
            "cancelled, and the store did not answer for %.0f s: the write's outcome is unknown", SETTLE_SECONDS
        )
        future.add_done_callback(_report)
    elif future.cancelled():
        _logger.warning("torn down with its event loop: the write's outcome is unknown")
    elif (error := future.exception()) is not None:
        _logger.warning("the write of a cancelled call failed", exc_info=error)
