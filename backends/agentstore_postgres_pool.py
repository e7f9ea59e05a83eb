"""A pool of asyncpg connections in one event loop.

asyncpg's own makes a task and resets the connection each time one comes back: as dear as a small query. Calls of ours
change no connection, so here it is put on a stack. Its `command_timeout` makes a timer a call; here one serves all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg

from agentstore.errors import ClosedError, UnavailableError
from agentstore_postgres_errors import DRIVER_ERRORS, translated

IDLE_SECONDS = 300.0
"""A connection that nobody used for so long is closed."""
CLOSE_SECONDS = 5.0
"""How long closing waits for calls under way before it cuts their connections."""

_logger = logging.getLogger("agentstore")


class Pool:
    """At most `size` connections, made when they are needed."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[asyncpg.Connection]],
        *,
        size: int,
        timeout: float,
        patience: float | None,
    ) -> None:
        """`timeout` bounds the wait for a free one, and `patience` its use, in seconds."""
        self._connect = connect
        self._size = size
        self._timeout = timeout
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._idle: list[tuple[asyncpg.Connection, float]] = []  # the longest unused first
        self._busy: set[asyncpg.Connection] = set()
        self._due: dict[asyncpg.Connection, float] = {}  # when a busy one is cut, one from before a `renew` too
        self._making: set[asyncio.Task[asyncpg.Connection]] = set()
        self._made = 0  # idle, busy, and those being made
        self._line: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._closed = False
        self._returned = asyncio.Event()
        self._sweep: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def take(self, patience: float | None = None) -> asyncpg.Connection:
        """A connection that was open just now. Raises `UnavailableError` or `ConfigurationError` for none.

        It is cut if it does not come back in time; `patience` is for what takes longer than other calls.
        """
        connection: asyncpg.Connection | None
        while not self._closed:
            if self._idle:
                connection, _ = self._idle.pop()
                if connection.is_closed():
                    self._made -= 1
                    continue
                self._busy.add(connection)
            elif self._made < self._size:
                connection = await self._new()
            else:
                connection = await self._handed()
            if connection in self._busy:
                self._watch_over(connection, patience or self._patience)
                return connection
            if connection is not None:  # it came just before a `renew`
                connection.terminate()
        raise ClosedError("the PostgreSQL backend is closed")

    def give_back(self, connection: asyncpg.Connection) -> None:
        """It is free again, unless it was closed meanwhile."""
        self._due.pop(connection, None)
        if connection not in self._busy:  # from before a `renew` or `close`
            connection.terminate()
            return
        self._returned.set()
        if connection.is_closed():
            self._busy.discard(connection)
            self._made -= 1
            self._hand(None)
        elif not self._hand(connection):
            self._busy.discard(connection)
            self._idle.append((connection, self._loop.time()))
            if self._sweep is None:
                self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_unused)

    def renew(self) -> None:
        """Use none of today's connections again."""
        for connection, _ in self._idle:
            connection.terminate()
        self._made -= len(self._idle) + len(self._busy)
        self._idle.clear()
        self._busy.clear()
        while self._hand(None):
            pass

    async def close(self) -> None:
        """Close all; calls under way have a while to finish."""
        self._closed = True
        for timer in (self._sweep, self._watch):
            if timer is not None:
                timer.cancel()
        while self._hand(None):
            pass
        idle: list[asyncpg.Connection] = []
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._drained(), CLOSE_SECONDS)
            idle = [connection for connection, _ in self._idle]
            self._idle.clear()
            for connection in idle:
                with suppress(*DRIVER_ERRORS):
                    await connection.close(timeout=CLOSE_SECONDS)
        finally:
            for connection in (*self._busy, *idle):  # a closed one does not mind
                connection.terminate()
            self._busy.clear()
            for making in self._making:
                making.cancel()

    async def _drained(self) -> None:
        while self._busy or self._making:
            self._returned.clear()
            await self._returned.wait()

    def _watch_over(self, connection: asyncpg.Connection, patience: float | None) -> None:
        if patience:
            due = self._due[connection] = self._loop.time() + patience
            if self._watch is None or due < self._watch.when():
                self._watch_until(due)

    def _watch_until(self, due: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(due, self._cut_overdue)

    def _cut_overdue(self) -> None:
        self._watch = None
        now = self._loop.time()
        for connection in [each for each, due in self._due.items() if due <= now]:
            del self._due[connection]
            _logger.warning("PostgreSQL gave no answer in time: the connection is cut")
            connection.terminate()  # whoever waits for it learns that, and gives it back
        if self._due:
            self._watch_until(min(self._due.values()))

    async def _new(self) -> asyncpg.Connection:
        # In a task of its own: asyncpg leaves a socket open where the TLS connection that it makes is cancelled.
        self._made += 1
        making = self._loop.create_task(self._make())
        self._making.add(making)
        making.add_done_callback(self._made_up)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError as error:
            if self._closed and making.cancelled():
                raise ClosedError("the PostgreSQL backend is closed") from error
            making.add_done_callback(self._keep)
            raise

    async def _make(self) -> asyncpg.Connection:
        try:
            connection = await self._connect()
        except BaseException as error:
            self._made -= 1
            self._hand(None)
            if isinstance(error, DRIVER_ERRORS):
                raise translated(error, maybe_done=False) from error
            raise
        if self._closed:
            connection.terminate()
            raise ClosedError("the PostgreSQL backend is closed")
        self._busy.add(connection)
        return connection

    def _made_up(self, making: asyncio.Task[asyncpg.Connection]) -> None:
        self._making.discard(making)
        self._returned.set()

    def _keep(self, making: asyncio.Task[asyncpg.Connection]) -> None:
        """Whoever it was made for has left: it is for the next one."""
        if not making.cancelled() and making.exception() is None:
            self.give_back(making.result())

    async def _handed(self) -> asyncpg.Connection | None:
        """The next that comes back, to those who wait in the order in which they came; `None`: there is room again."""
        turn: asyncio.Future[asyncpg.Connection | None] = self._loop.create_future()
        self._line.append(turn)
        timer = self._loop.call_later(self._timeout, turn.cancel)
        try:
            return await turn
        except asyncio.CancelledError as error:
            if turn.done() and not turn.cancelled():  # it came just when the task was cancelled
                self._pass_on(turn.result())
                raise
            if self._loop.time() < timer.when():
                raise
            raise UnavailableError(f"no connection to PostgreSQL was free within {self._timeout:g} s") from error
        finally:
            timer.cancel()

    def _pass_on(self, connection: asyncpg.Connection | None) -> None:
        if connection is None:
            self._hand(None)
        else:
            self.give_back(connection)

    def _hand(self, connection: asyncpg.Connection | None) -> bool:
        """Whether somebody was waiting for it."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _close_unused(self) -> None:
        self._sweep = None
        old = self._loop.time() - IDLE_SECONDS
        unused = [connection for connection, since in self._idle if since <= old]
        del self._idle[: len(unused)]
        self._made -= len(unused)
        for connection in unused:
            connection.terminate()
        if self._idle:
            self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_unused)
