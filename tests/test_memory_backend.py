"""The in-memory backend keeps every sentence of the contract."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

import agentstore_memory
from agentstore.testing import BackendConformance
from agentstore.testing.scenes import Cost
from agentstore_memory import MemoryBackend


class TestMemoryBackend(BackendConformance):
    clock = "client"

    @pytest.fixture(autouse=True)
    def _name(self) -> None:
        self.name = uuid4().hex

    async def open_backend(self) -> MemoryBackend:
        return MemoryBackend(self.name)

    async def reopen_backend(self) -> MemoryBackend:
        return MemoryBackend(self.name)

    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        """Lines of the backend that were run: there is nothing below it."""
        lines = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal lines
            if frame.f_code.co_filename != agentstore_memory.__file__:
                return None
            lines += event == "line"
            return trace

        def so_far() -> Mapping[str, int]:
            return {"lines": lines}

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield so_far
        finally:
            sys.settrace(before)
