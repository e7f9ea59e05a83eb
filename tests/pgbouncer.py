"""A real PgBouncer in transaction mode before the tests' PostgreSQL."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from postgres_server import server_url, server_user
from servers import free_port, missing, spawn


@cache
def pooler_url() -> str:
    """The URL of the server's database through PgBouncer, with fewer connections than clients."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("pgbouncer", "no pgbouncer on this machine (apt-get install pgbouncer)")
    server = urlsplit(server_url())
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="agentstore-pgbouncer-", dir="/tmp"))
    user = server_user()
    (folder / "users").write_text(f'"{server.username}" "{server.password or ""}"\n')
    (folder / "ini").write_text(_settings(server.hostname or "", server.port or 5432, port, folder))
    folder.chmod(0o755)
    if user:
        shutil.chown(folder, *user)
    process = spawn([program, str(folder / "ini")], cwd=folder, log=folder / "log", user=user)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.terminate)
    _wait(port, folder / "log")
    return urlunsplit(server._replace(netloc=f"{server.username}@127.0.0.1:{port}"))


def _settings(host: str, port: int, own: int, folder: Path) -> str:
    return f"""[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = 6
max_client_conn = 400
"""


def _wait(port: int, log: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail(f"PgBouncer did not start:\n{log.read_text()[-2000:]}")
