"""The stores on which every adapter runs: one line each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import azurite_server
import postgres_server
import redis_server


def _new_container() -> str:
    os.environ["AZURE_STORAGE_CONNECTION_STRING"] = azurite_server.connection_string()
    return f"azblob://{azurite_server.ACCOUNT}/adapters-{uuid4().hex}"


STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: f"memory://{uuid4().hex}",
    "sqlite": lambda folder: f"sqlite:///{folder}/chat.db",
    "postgresql": lambda folder: postgres_server.server_url(),
    "redis": lambda folder: redis_server.server_url(),
    "azblob": lambda folder: _new_container(),
}
"""For each the URL of a store in which an empty folder's tests meet nobody else's, given a namespace of their own."""
