"""Writes that a cancellation cannot tear: they settle first, then the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
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
    future: asyncio.Future[T] = asyncio.ensure_future(write)
    try:
        await _Firm(future)
        result = future.result()
    except asyncio.CancelledError:
        _report(future)
        raise
    return result


class Unbroken(Generic[T]):
    """A coroutine that goes on when the task that awaits it is cancelled, without a task of its own, which is quicker.

    Not for one that has its own task cancelled, as `asyncio.timeout` does: it would not notice.
    """

    def __init__(self, write: Coroutine[Any, Any, T]) -> None:
        self._write = write

    def __await__(self) -> Generator[Any, None, T]:
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                future = self._write.send(None)
            except StopIteration as end:
                if cancelled is not None:
                    raise cancelled from None
                value: T = end.value
                return value
            except Exception as error:
                if cancelled is None:
                    raise
                _logger.warning("the write of a cancelled call failed", exc_info=error)
                raise cancelled from None
            try:
                yield from _paused() if future is None else _Firm(future)
            except asyncio.CancelledError as error:
                cancelled = error
                if future is not None and not future.done():
                    _report(asyncio.ensure_future(_finished(self._write, future)))
                    raise
            except GeneratorExit:
                self._write.close()
                raise


def _paused() -> Generator[None, None, None]:
    yield


async def _finished(write: Coroutine[Any, Any, T], future: asyncio.Future[Any]) -> T:
    """What a coroutine that waits for the future comes to."""
    await asyncio.wait({future})
    return await Unbroken(write)


class _Firm:
    """A future, done or not, as a task waits for it that is not to be cancelled before: it then learns of that.

    To tasks it is a future, as far as they use one (`_asyncio_future_blocking` is how they know it). A shield would do
    too, and cost a second future and a turn of the event loop.
    """

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._asyncio_future_blocking = False
        self._future = future
        self._wake: Callable[[Any], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[Any, None, None]:
        """Raises nothing but a cancellation of the task, once the future is done or that took too long."""
        self._future._asyncio_future_blocking = False
        if self._future.done():
            return
        self._asyncio_future_blocking = True
        try:
            yield self
        except GeneratorExit:
            raise
        except BaseException:
            if self._timer is not None or not self._future.done():
                raise  # the task's cancellation
        finally:
            if self._timer is not None:
                self._timer.cancel()

    __iter__ = __await__

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake = wake
        self._future.add_done_callback(wake, context=context)

    def cancel(self, msg: Any = None) -> bool:
        """A cancelled task asks for it, and learns that it must wait."""
        if self._timer is None:
            self._timer = self.get_loop().call_later(SETTLE_SECONDS, self._give_up)
        return False

    def _give_up(self) -> None:
        assert self._wake is not None
        if self._future.remove_done_callback(self._wake):
            self._wake(self)

    def result(self) -> None:
        """What a task that is woken too early looks at."""


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
