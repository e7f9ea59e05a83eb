"""Calls of different sessions that wait in one event loop share a statement, a round trip and a commit.

A call that finds no other of its kind under way is sent alone and at once. Those that come while one is under way wait
for it, but for no more than `PATIENCE`, and leave together: whoever waits for a lock keeps nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from agentstore.backend import Unbroken
from agentstore.errors import AgentStoreError, UnavailableError
from agentstore_postgres_errors import DRIVER_ERRORS

Call = TypeVar("Call")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

PATIENCE = 0.003
"""Most seconds that a call waits for others under way before it is sent."""
MOST_TOGETHER = 32
"""Most calls that share a statement."""


@dataclass(slots=True)
class _Waiting(Generic[Call, Answer]):
    session: bytes
    call: Call
    answer: asyncio.Future[Answer]


class Lane(Generic[Call, Answer]):
    """The calls of one kind in one event loop."""

    def __init__(
        self,
        alone: Callable[[Call], Coroutine[Any, Any, Answer]],
        together: Callable[[Sequence[Call]], Coroutine[Any, Any, Sequence[Answer | None]]],
        *,
        unbroken: bool,
    ) -> None:
        """`together` takes calls of different sessions and answers `None` for those that must be sent alone.

        `unbroken`: what was sent is waited for even where `asyncio.run` tears down all tasks.
        """
        self._unbroken = unbroken
        self._alone = alone
        self._together = together
        self._loop = asyncio.get_running_loop()
        self._line: list[_Waiting[Call, Answer]] = []
        self._under_way = 0
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def do(self, session: bytes, call: Call) -> Answer:
        """The answer to the call. What it raises is the call's own: no other call's fault shows in it."""
        if not self._line and (not self._under_way or self._loop.time() - self._sent_at > PATIENCE):
            return await self._sent(self._alone(call))
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._line.append(_Waiting(session, call, answer))
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._leave)
        return await answer

    async def _sent(self, sending: Awaitable[Result]) -> Result:
        self._under_way += 1
        self._sent_at = self._loop.time()
        try:
            return await sending
        finally:
            self._under_way -= 1
            if self._line:
                self._leave()

    def _leave(self) -> None:
        """Send those who wait, one call a session: others of it come after."""
        if self._timer is not None:
            self._timer.cancel()
        sent: dict[bytes, _Waiting[Call, Answer]] = {}
        left: list[_Waiting[Call, Answer]] = []
        for waiting in self._line:
            if waiting.answer.done():
                continue  # its caller has left
            if waiting.session in sent or len(sent) == MOST_TOGETHER:
                left.append(waiting)
            else:
                sent[waiting.session] = waiting
        self._line = left
        self._timer = self._loop.call_later(PATIENCE, self._leave) if left else None
        if len(sent) > 1:
            self._send_together(list(sent.values()))
        else:
            for waiting in sent.values():
                self._send_alone(waiting)

    def _send_alone(self, waiting: _Waiting[Call, Answer]) -> None:
        task = self._send(self._alone(waiting.call))
        task.add_done_callback(partial(_hand_over, waiting.answer))

    def _send_together(self, waiting: Sequence[_Waiting[Call, Answer]]) -> None:
        task = self._send(self._together([each.call for each in waiting]))
        task.add_done_callback(partial(self._arrived, waiting))

    def _send(self, sending: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        return self._loop.create_task(self._sent(Unbroken(sending) if self._unbroken else sending))

    def _arrived(self, waiting: Sequence[_Waiting[Call, Answer]], task: asyncio.Task[Sequence[Answer | None]]) -> None:
        error = None if task.cancelled() else task.exception()
        answers: Sequence[Answer | None] = [None] * len(waiting)
        if error is None and not task.cancelled():
            answers = task.result()
        elif not _is_undone(error):
            for each in waiting:
                _fail(each.answer, error)
        for each, answer in zip(waiting, answers, strict=True):
            if each.answer.done():
                continue
            if answer is None:
                self._send_alone(each)
            else:
                each.answer.set_result(answer)


def _hand_over(answer: asyncio.Future[Answer], task: asyncio.Task[Answer]) -> None:
    if task.cancelled() or (error := task.exception()) is not None:
        _fail(answer, None if task.cancelled() else error)
    elif not answer.done():
        answer.set_result(task.result())


def _fail(answer: asyncio.Future[Answer], error: BaseException | None) -> None:
    """`None`: the loop is torn down."""
    if answer.done():
        return
    if error is None:
        answer.cancel()
        return
    own = copy(error)  # raised by several callers, one would gather the traces of all
    own.__cause__ = error.__cause__
    answer.set_exception(own)


def _is_undone(error: BaseException | None) -> bool:
    """Whether the server or the way to it failed and nothing was done: alone, most may fare better."""
    if not isinstance(error, AgentStoreError) or not isinstance(error.__cause__, DRIVER_ERRORS):
        return False
    return not (isinstance(error, UnavailableError) and error.maybe_done)
