"""The SQLite backend keeps every sentence of the contract, and those that only a file can break."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from agentstore.testing import BackendConformance
from agentstore.testing.scenes import Cost
from agentstore_sqlite import SQLiteBackend


class TestSQLiteBackend(BackendConformance):
    clock = "client"

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "chat.db"

    async def open_backend(self) -> SQLiteBackend:
        return SQLiteBackend(self.path)

    async def reopen_backend(self) -> SQLiteBackend:
        return SQLiteBackend(self.path)

    def backend_url(self) -> str:
        return f"sqlite:///{self.path}"

    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        """Statements and steps of SQLite's own machine, on every connection."""
        counts = {"statements": 0, "steps": 0}

        class Counted(sqlite3.Connection):
            def __init__(self, *args: object, **options: object) -> None:
                super().__init__(*args, **options)  # type: ignore[arg-type]
                self.set_trace_callback(lambda _: count("statements"))
                self.set_progress_handler(lambda: count("steps"), 1)

        def count(kind: str) -> int:
            counts[kind] += 1
            return 0

        def so_far() -> Mapping[str, int]:
            return dict(counts)

        connect = sqlite3.connect
        with patch("sqlite3.connect", lambda *args, **options: connect(*args, factory=Counted, **options)):
            yield so_far
