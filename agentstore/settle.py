"""Writes that a cancellation cannot tear: they settle first, then the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

SETTLE_SECONDS = 30.0
"""How long a cancelled call waits for its write to settle."""

_logger = logging.getLogger("agentstore")


async def settled(write: Awaitable[T]) -> T:
    """The write's result. A cancellation meanwhile leaves once the write is done or failed.

    After 30 seconds without either it leaves anyway, with a logged warning that the outcome is unknown. A future is
    waited for even where `asyncio.run` tears down all tasks.
    """
    future = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _wait(future)
        raise


async def _wait(future: asyncio.Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS
    while not future.done() and (left := deadline - loop.time()) > 0:
        with suppress(asyncio.CancelledError):  # asked again: the promise stays the same
            await asyncio.wait({future}, timeout=left)
    if not future.done():
        _logger.warning(
            "cancelled, and the store did not answer for %.0f s: the write's outcome is unknown", SETTLE_SECONDS
        )
        future.add_done_callback(_report)
    else:
        _report(future)


def _report(future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        _logger.warning("torn down with its event loop: the write's outcome is unknown")
    elif (error := future.exception()) is not None:
        _logger.warning("the write of a cancelled call failed", exc_info=error)
