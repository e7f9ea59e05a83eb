"""A streamed answer: update by update, and whole at its end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from agentstore.errors import AgentStoreError

U = TypeVar("U")
F = TypeVar("F")
T = TypeVar("T")


class ResponseStream(AsyncIterator[U], Generic[U, F]):
    """Updates to iterate over, once; then `get_final_response` gives the whole answer.

    `finalizer` makes the answer of the updates. `with_transform_hook` adds a function that changes each update,
    `with_result_hook` one that changes the answer (sync or async; `None` leaves it), `with_cleanup_hook` one that is
    called when the stream ends, however it does. Close a stream that you do not read to its end: with
    `await stream.aclose()`, or by reading it in an `async with`. Where several tasks read, each update goes to one.
    """

    def __init__(
        self,
        stream: AsyncIterable[U] | Awaitable[AsyncIterable[U]],
        *,
        finalizer: Callable[[Sequence[U]], F | Awaitable[F]],
    ) -> None:
        self.updates: list[U] = []
        self._source = stream
        self._iterator: AsyncIterator[U] | None = None
        self._finalizer = finalizer
        self._transform_hooks: list[Callable[[U], Any]] = []
        self._result_hooks: list[Callable[[F], Any]] = []
        self._cleanup_hooks: list[Callable[[], Any]] = []
        self._ended = False
        self._final: list[F] = []
        self._failure: BaseException | None = None
        self._reading = asyncio.Lock()

    def with_transform_hook(self, hook: Callable[[U], Any]) -> ResponseStream[U, F]:
        """Let the hook see each update, and replace it by what it returns unless that is `None`."""
        self._transform_hooks.append(hook)
        return self

    def with_result_hook(self, hook: Callable[[F], Any]) -> ResponseStream[U, F]:
        """Let the hook see the whole answer, and replace it by what it returns unless that is `None`."""
        self._result_hooks.append(hook)
        return self

    def with_cleanup_hook(self, hook: Callable[[], Any]) -> ResponseStream[U, F]:
        """Call the hook once when the stream ends, fails or is closed."""
        self._cleanup_hooks.append(hook)
        return self

    async def get_final_response(self) -> F:
        """The whole answer, after reading what is left. Raises what the stream raised, also a second time."""
        async for _ in self:
            pass
        if self._failure is not None:
            raise self._failure
        if not self._final:
            self._final.append(await _changed(self._result_hooks, await _value(self._finalizer(self.updates))))
        return self._final[0]

    async def aclose(self) -> None:
        """Give up the rest of the stream; idempotent."""
        if self._ended:
            return
        self._failure = AgentStoreError("the stream was closed before its end")
        close = getattr(self._iterator or self._source, "aclose", None) or getattr(self._source, "close", None)
        try:
            if close is not None:
                await _value(close())
        finally:
            await self._end()

    async def __anext__(self) -> U:
        async with self._reading:  # two tasks may read: each update goes to one of them
            return await self._next()

    async def _next(self) -> U:
        if self._ended:
            raise StopAsyncIteration
        try:
            if self._iterator is None:
                self._iterator = aiter(await _value(self._source))
            update = await _changed(self._transform_hooks, await anext(self._iterator))
        except StopAsyncIteration:
            await self._end()
            raise
        except BaseException as error:
            self._failure = error
            await self._end()
            raise
        self.updates.append(update)
        return update

    async def _end(self) -> None:
        self._ended = True
        hooks, self._cleanup_hooks = self._cleanup_hooks, []
        for hook in hooks:
            await _value(hook())

    def __aiter__(self) -> ResponseStream[U, F]:
        return self

    def __await__(self) -> Any:
        """The stream itself: `await agent.run(..., stream=True)` is the same as without `await`."""

        async def itself() -> ResponseStream[U, F]:
            return self

        return itself().__await__()

    async def __aenter__(self) -> ResponseStream[U, F]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _changed(hooks: Sequence[Callable[[T], Any]], value: T) -> T:
    for hook in hooks:
        new = await _value(hook(value))
        value = value if new is None else new
    return value


async def _value(given: Any) -> Any:
    # A stream is awaitable too, and means itself: no need to ask it.
    return await given if inspect.isawaitable(given) and not isinstance(given, ResponseStream) else given
