"""Redis behind TLS, as `rediss://` and its options say."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from redis_server import LocalServer, debian, started
from servers import free_port, missing

from agentstore import ConfigurationError, UnavailableError, open_store


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of `localhost`, with its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    openssl = shutil.which("openssl") or missing("openssl", "no openssl on this machine")
    command = [openssl, "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "certificate"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "certificate"


@pytest.fixture(scope="module")
def tls_port(certificate: Path) -> Generator[int]:
    port = free_port()
    server: LocalServer = started(
        debian(),
        tls_port=str(port),
        tls_cert_file=str(certificate),
        tls_key_file=str(certificate.with_name("key")),
        tls_auth_clients="no",
    )
    yield port
    server.remove()


def ping(url: str, **options: Any) -> None:
    async def main() -> None:
        store = open_store(url, connect_timeout=5, **options)
        try:
            await store.ping()
        finally:
            await store.aclose()

    asyncio.run(main())


def test_the_right_certificate_is_taken(tls_port: int, certificate: Path) -> None:
    """... by its authority and its name; or, where nothing is checked, any."""
    ping(f"rediss://localhost:{tls_port}", ssl_ca_certs=str(certificate))
    ping(f"rediss://127.0.0.1:{tls_port}?ssl_cert_reqs=none")


@pytest.mark.parametrize(
    ("host", "trusted", "why"),
    [("localhost", False, "a stranger's certificate"), ("127.0.0.1", True, "another name")],
)
def test_a_wrong_certificate_is_refused(tls_port: int, certificate: Path, host: str, trusted: bool, why: str) -> None:
    """A stranger's certificate, or that of another name: nothing is sent."""
    options = {"ssl_ca_certs": str(certificate)} if trusted else {}
    with pytest.raises((UnavailableError, ConfigurationError), match=r"(?i)certificate"):
        ping(f"rediss://{host}:{tls_port}", **options)


def test_no_tls_where_the_server_wants_it_is_a_clear_error(tls_port: int) -> None:
    """`redis://` to a port with TLS: `UnavailableError`, in time."""
    with pytest.raises(UnavailableError):
        ping(f"redis://localhost:{tls_port}", timeout=5)


def test_files_for_tls_without_tls_are_refused(certificate: Path) -> None:
    """They would be ignored: `ConfigurationError`, which names `rediss://`."""
    with pytest.raises(ConfigurationError, match="rediss://"):
        open_store("redis://localhost", ssl_ca_certs=str(certificate))
