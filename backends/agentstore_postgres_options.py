"""Options of the PostgreSQL backend, and what asyncpg is told of them and of the URL."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec

from agentstore.errors import ConfigurationError
from agentstore.urls import StoreURL

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]

# An index must be used however small a table was when it was last looked at, and compiling costs more than any call.
_PLANS = {"enable_seqscan": "off", "jit": "off"}


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every backend, also on a pool or engine that was handed in."""

    schema: str = "public"
    """The schema of all tables and functions; any legal identifier. `setup` creates it where it is missing."""
    prefix: str = "agentstore_"
    """Begins every name; any legal identifier of at most 44 bytes. Two prefixes in one database stay apart."""
    pooler: Literal["auto", "none", "transaction"] = "auto"
    """Whether a transaction pooler (PgBouncer) stands between: four round trips a call instead of one."""
    statement_timeout: Seconds = 30.0
    """Seconds that a call may take on the server. 0: no bound."""
    lock_timeout: Seconds = 10.0
    """Seconds that a writer waits in line behind other writers of its session. 0: no bound."""
    pool_timeout: Seconds = 30.0
    """Seconds that a call waits for a free connection."""
    max_message_bytes: Annotated[int, msgspec.Meta(gt=0, le=900 * 2**20)] = 100 * 2**20
    max_append_bytes: Annotated[int, msgspec.Meta(gt=0, le=900 * 2**20)] = 400 * 2**20

    def settings(self) -> dict[str, str]:
        """What is set for each call behind a pooler."""
        bounds = {"statement_timeout": self.statement_timeout, "lock_timeout": self.lock_timeout}
        return {name: f"{int(seconds * 1000)}ms" for name, seconds in bounds.items()} | _PLANS

    def session_settings(self) -> dict[str, str]:
        """What is set once for each direct connection."""
        return {**self.settings(), "default_transaction_isolation": "read committed"}

    def direct(self) -> bool | None:
        """Whether connections are direct; `None`: to be found out."""
        return {"auto": None, "none": True, "transaction": False}[self.pooler]


class ServerOptions(PostgresOptions, frozen=True, kw_only=True):
    """What else a URL may say. Names are libpq's where it has one."""

    pool_size: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Most connections per event loop and process; they are opened when needed, and closed after idle minutes."""
    connect_timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    host: str | None = None
    """A directory with a Unix socket, where the URL names no host."""
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    target_session_attrs: Literal["any", "primary", "read-write"] | None = None
    """Which of several hosts will do; by default one that can be written to."""
    application_name: str = "agentstore"


def connect_arguments(url: StoreURL, options: ServerOptions) -> dict[str, Any]:
    """Keywords for `asyncpg.connect`. Without a host, user or password, asyncpg looks where libpq does."""
    if url.host and options.host:
        raise ConfigurationError("the host is in the URL and in host=: choose one")
    hosts, ports = _hosts(url.host)
    given = {
        "host": hosts or options.host,
        "port": ports,
        "user": url.user,
        "password": url.password,
        "database": url.path or None,
        "timeout": options.connect_timeout,
        "target_session_attrs": options.target_session_attrs or ("read-write" if len(hosts) > 1 else None),
        "server_settings": {"application_name": options.application_name},
        "dsn": _tls(options),
    }
    return {name: value for name, value in given.items() if value is not None}


def _hosts(netloc: str) -> tuple[list[str], list[int] | None]:
    hosts: list[str] = []
    ports: list[int] = []
    for place in netloc.split(",") if netloc else ():
        host, port = _host(place)
        hosts.append(host)
        ports.append(port)
    return hosts, ports or None


def _host(place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "5432"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError("the port in a PostgreSQL URL must be a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _tls(options: ServerOptions) -> str | None:
    names = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    return f"postgresql://?{urlencode(given)}" if given else None
