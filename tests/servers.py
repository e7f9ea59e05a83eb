"""What the tests' servers share: child processes that end with the run, free ports, and what happens without them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

SKIP_VARIABLE = "AGENTSTORE_TEST_SKIP"
"""Names the kinds of server, separated by commas, whose tests are left out."""
REQUIRED_VARIABLE = "AGENTSTORE_TEST_REQUIRE"
"""Names what must be there, separated by commas, where it would be skipped for want of a program."""

_random = random.SystemRandom()  # workers must not draw the same ones
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None


def skip_if_named(kind: str) -> None:
    """Skip where the environment says in so many words that this kind of server is left out."""
    if kind in os.environ.get(SKIP_VARIABLE, "").split(","):
        pytest.skip(f"{SKIP_VARIABLE} names {kind}")


def missing(name: str, what: str) -> NoReturn:
    """Skip what a plain machine lacks, and say so; fail where the environment demands it, as .ci/run does."""
    if name in os.environ.get(REQUIRED_VARIABLE, "").split(","):
        pytest.fail(what)
    pytest.skip(f"NOT RUN: {what}; .ci/run installs it")


def docker_answers() -> bool:
    """Whether testcontainers could start a server here."""
    if not find_spec("testcontainers") or not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0


def free_port() -> int:
    """One below those that the system gives to outgoing connections, so that none of them takes it meanwhile."""
    while True:
        port = _random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if _reserved(port) and probe.connect_ex(("127.0.0.1", port)):
                return port


def _reserved(port: int) -> bool:
    """Whether the port is this process's from now on: no other run's, and not given out before."""
    folder = Path(tempfile.gettempdir()) / f"agentstore-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    held = os.open(folder / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends
    except BlockingIOError:
        os.close(held)
        return False
    return True


def spawn(
    command: list[str],
    *,
    cwd: Path,
    log: Path,
    user: tuple[int, int] | None = None,
    end: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """A child that gets the signal `end` when the thread that called this ends; as another user if need be."""

    def die_with_parent() -> None:
        if _LIBC is not None and hasattr(_LIBC, "prctl"):
            _LIBC.prctl(1, end)  # PR_SET_PDEATHSIG

    account: dict[str, Any] = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
            **account,
        )
