"""Writes that a cancellation cannot tear: they settle first, then the `CancelledError` leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

SETTLE_SECONDS = 30.0
"""How long a cancelled call waits for its write to settle."""

_logger = logging.getLogger("agentstore")


async def settled(write: Coroutine[Any, Any, T]) -> T:
    """The write's result. A cancellation meanwhile leaves once the write is done or failed.

    After 30 seconds without either it leaves anyway, with a logged warning that the outcome is unknown.
    """
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait(task)
        raise


async def _wait(task: asyncio.Task[Any]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS
    while not task.done() and (left := deadline - loop.time()) > 0:
        with suppress(asyncio.CancelledError):  # asked again: the promise stays the same
            await asyncio.wait({task}, timeout=left)
    if not task.done():
        _logger.warning(
            "cancelled while the store did not answer for %.0f s: outcome of the write unknown", SETTLE_SECONDS
        )
    elif not task.cancelled() and (error := task.exception()) is not None:
        _logger.warning("the write of a cancelled call failed", exc_info=error)
