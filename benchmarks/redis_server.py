"""A real Valkey for the benchmarks, from the wheel, and Debian's Redis where it is installed: in default settings."""

from __future__ import annotations

import atexit
import shutil
from pathlib import Path

from tests.redis_server import LocalServer, valkey


class DefaultServer(LocalServer):
    """As it starts with no configuration: snapshots now and then, no log of appends, no memory limit."""

    def _arguments(self) -> list[str]:
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]


def new_server(program: Path | None = None) -> str:
    """The URL of a new, empty server, Valkey unless another program is given."""
    server = DefaultServer(program or valkey())
    atexit.register(server.remove)
    server.start()
    return server.url


def programs() -> dict[str, Path]:
    """The servers' programs that are on this machine, by name."""
    debian = shutil.which("redis-server")
    return {"Valkey": valkey(), **({"Debian's Redis": Path(debian)} if debian else {})}
