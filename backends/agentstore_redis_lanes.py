"""Lanes: calls that wait for one connection share its next request, and are answered one after another.

A script is one step by itself, so it does not matter whose calls travel together. A lane's task ends with its event
loop: where `asyncio.run` cancels all tasks, it first brings home what is under way, then closes its connection.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ReadOnlyError

from agentstore.errors import ClosedError
from agentstore_redis_errors import ANSWERS, DRIVER_ERRORS, LostError, NotSentError

TOGETHER = 128
"""Most calls that share a request."""
CLOSE_SECONDS = 5.0
"""How long closing waits for calls under way before it cuts their connections."""


class Source(Protocol):
    """Where a lane has its connection from."""

    keeps: bool
    """Whether a lane may keep a connection while it has nothing to ask."""

    def connect(self) -> Awaitable[AbstractConnection]:
        """A connection that is ready to be used."""
        ...

    async def release(self, connection: AbstractConnection, *, broken: bool) -> None: ...


class Answer(Protocol):
    """Who waits for an answer: a future, or what is like one."""

    def done(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Call(NamedTuple):
    command: bytes
    answers: int
    """How many the server gives; of several, the result is the list, or the first that is an error."""
    answer: Answer
    deadline: float
    """By the loop's clock: so long it waits, also for others."""


class Lane:
    """One connection, made when it is needed."""

    def __init__(self, source: Source, *, timeout: float, connect_timeout: float) -> None:
        """`timeout`: seconds that a call waits; then the connection is given up."""
        self._source = source
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call] = deque()
        self._asked = 0  # sent, and not answered yet
        self._connection: AbstractConnection | None = None
        self._rested = False
        self._stale = False
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._silent = False
        self._ending = False
        self._closed = False

    @property
    def load(self) -> int:
        """How many calls wait for their answer."""
        return len(self._calls) + self._asked

    def ask(self, command: bytes, answer: Answer, answers: int = 1) -> None:
        """Gives `answer` the server's, or `NotSentError`, `LostError`, or what it said as redis-py's error."""
        if self._closed:
            raise ClosedError("the Redis backend is closed")
        self._calls.append(Call(command, answers, answer, self._loop.time() + self._timeout))
        if self._wake is not None:
            if not self._wake.done():
                self._wake.set_result(None)
        elif self._task is None:
            self._task = self._loop.create_task(self._work())
            _working.add(self._task)
            self._task.add_done_callback(_working.discard)

    def renew(self) -> None:
        """Use the connection for nothing new: its server may no longer be the right one."""
        self._stale = True

    async def close(self) -> None:
        """Calls under way have a while to finish."""
        self._closed = True
        task = self._task
        if task is None:
            return
        self._ending = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if not task.done():
            self._silent = True
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_SECONDS)

    async def _work(self) -> None:
        try:
            while self._calls or not self._ending:
                if self._calls:
                    await self._batch()
                else:
                    await self._rest()
        finally:
            self._task = None
            _fail(self._calls, NotSentError, asyncio.CancelledError())
            await self._let_go(broken=False)

    async def _rest(self) -> None:
        self._rested = True
        if not self._source.keeps:
            await self._let_go(broken=False)
        if self._calls or self._ending:
            return
        self._wake = self._loop.create_future()
        try:
            await self._wake
        except asyncio.CancelledError:
            self._was_cancelled()
        finally:
            self._wake = None

    async def _batch(self) -> None:
        _fail(self._overdue(), NotSentError, asyncio.TimeoutError())
        calls = deque([self._calls.popleft() for _ in range(min(len(self._calls), TOGETHER))])
        if not calls:
            return
        self._asked = len(calls)
        self._timer = self._loop.call_at(calls[0].deadline, self._watch, calls)
        failure: type[Exception] = NotSentError
        try:
            connection = await self._connected()
            failure = LostError
            await connection.send_packed_command([call.command for call in calls], check_health=False)
            while calls:
                await self._answer(connection, calls[0])
                calls.popleft()
                self._asked -= 1
        except DRIVER_ERRORS as error:
            await self._broken(calls, failure, error)
        except asyncio.CancelledError as error:
            await self._broken(calls, failure, asyncio.TimeoutError() if self._was_cancelled() else error)
        finally:
            self._asked = 0
            self._timer.cancel()

    def _overdue(self) -> deque[Call]:
        calls: deque[Call] = deque()
        while self._calls and self._calls[0].deadline <= self._loop.time():
            calls.append(self._calls.popleft())
        return calls

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None and (self._stale or (self._rested and await connection.can_read())):
            await self._let_go(broken=True)  # nothing is waited for: what can be read is the connection's end
        self._rested = self._stale = False
        if self._connection is None:
            self._connection = await asyncio.wait_for(self._source.connect(), self._connect_timeout)
        return self._connection

    async def _answer(self, connection: AbstractConnection, call: Call) -> None:
        answer = await (self._read(connection) if call.answers == 1 else self._read_all(connection, call.answers))
        if call.answer.done():  # nobody waits any more
            return
        if isinstance(answer, Exception):
            call.answer.set_exception(answer)
        else:
            call.answer.set_result(answer)

    async def _read_all(self, connection: AbstractConnection, count: int) -> Any:
        answers = [await self._read(connection) for _ in range(count)]
        return next((answer for answer in answers if isinstance(answer, Exception)), answers)

    async def _read(self, connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response(True, math.inf, disconnect_on_error=False)
        except ANSWERS as error:
            return error
        except asyncio.CancelledError:
            if self._silent:
                raise
            self._ending = True
        except DRIVER_ERRORS as error:
            if not isinstance(error.__context__, ReadOnlyError):
                raise
            return error.__context__  # a pool of sentinels' hides it, and closes the connection
        return await self._read(connection)  # the loop ends: what was asked is waited for all the same

    async def _broken(self, calls: deque[Call], failure: type[Exception], error: BaseException) -> None:
        _fail(calls, failure, error)
        await self._let_go(broken=True)

    async def _let_go(self, *, broken: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*DRIVER_ERRORS):  # it is of no use any more
                await self._source.release(connection, broken=broken)

    def _watch(self, calls: deque[Call]) -> None:
        if calls and calls[0].deadline > self._loop.time():  # it was asked later than the one that was first
            self._timer = self._loop.call_at(calls[0].deadline, self._watch, calls)
        elif self._task is not None:
            self._silent = True
            self._task.cancel()

    def _was_cancelled(self) -> bool:
        """Whether it was by our own watch; else the loop ends."""
        silent, self._silent = self._silent, False
        self._ending = self._ending or not silent
        return silent


class Server:
    """The lanes to one server: small calls share two, so that it works on one's while the other's answers are read.

    Large ones take others, so that small ones need not wait.
    """

    def __init__(self, source: Source, *, size: int, timeout: float, connect_timeout: float) -> None:
        self._new: Callable[[], Lane] = partial(Lane, source, timeout=timeout, connect_timeout=connect_timeout)
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._shared = [self._new() for _ in range(min(size, 2))]
        self._spare: list[Lane] = []

    def ask(self, command: bytes, answers: int = 1, *, large: bool = False) -> asyncio.Future[Any]:
        """What `Lane.ask` gives."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.tell(command, answer, answers, large=large)
        return answer

    def tell(self, command: bytes, answer: Answer, answers: int = 1, *, large: bool = False) -> None:
        """As `Lane.ask`."""
        (self._for_large() if large else _idlest(self._shared)).ask(command, answer, answers)

    def renew(self) -> None:
        """As `Lane.renew`."""
        for lane in self._all():
            lane.renew()

    async def close(self) -> None:
        self._size = 0  # a large call that is tried again makes no new lane
        await asyncio.gather(*[lane.close() for lane in self._all()])

    def _all(self) -> list[Lane]:
        return [*self._shared, *self._spare]

    def _for_large(self) -> Lane:
        if len(self._all()) < self._size and all(lane.load for lane in self._spare):
            self._spare.append(self._new())
        return _idlest(self._spare or self._shared)


def _idlest(lanes: Sequence[Lane]) -> Lane:
    """The first that has nothing to do, or the least."""
    return lanes[0] if not lanes[0].load else min(lanes, key=lambda lane: lane.load)


def _fail(calls: deque[Call], failure: type[Exception], cause: BaseException) -> None:
    while calls:
        answer = calls.popleft().answer
        if not answer.done():
            error = failure()
            error.__cause__ = cause
            answer.set_exception(error)


_working: set[asyncio.Task[None]] = set()  # the loop itself holds its tasks only weakly
