"""PostgreSQL of another major version than the wheel's: Debian's own."""

from __future__ import annotations

from postgres_server import debian_server
from test_postgres_backend import OnASchema


class TestOnDebiansPostgreSQL(OnASchema):
    def server(self) -> str:
        return debian_server().url
