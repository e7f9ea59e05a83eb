"""Options of the Redis backend, and what redis-py is told of them and of the URL."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from agentstore.errors import ConfigurationError
from agentstore.urls import StoreURL

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Size = Annotated[int, msgspec.Meta(gt=0, le=500 * 2**20)]
Address = tuple[str, int]

PORT = 6379
SENTINEL_PORT = 26379


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every backend, also on a client that was handed in."""

    prefix: str = "agentstore"
    """Begins every key's name. Two prefixes in one database stay apart."""
    timeout: Seconds = 30.0
    """Seconds that a call may take, with all its tries while a server is replaced."""
    connect_timeout: Seconds = 10.0
    """Seconds that making a connection may take."""
    pool_size: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    """Most connections per server, event loop and process: one that all calls share, the others for large calls."""
    max_message_bytes: Size = 100 * 2**20
    max_append_bytes: Size = 400 * 2**20


class ServerOptions(RedisOptions, frozen=True, kw_only=True):
    """What else a URL may say. Names of TLS files and checks are redis-py's."""

    username: str | None = None
    password: str | None = None
    """Where neither is in the URL."""
    db: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The database's number, where the URL's path does not say it. A cluster has only 0."""
    client_name: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    ssl: bool | None = None
    """TLS for a cluster or a service of sentinels; `rediss://` says it for one server."""
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_cert_reqs: Literal["required", "optional", "none"] = "required"
    ssl_check_hostname: bool = True


def addresses(url: StoreURL) -> list[Address]:
    """The hosts and ports that the URL names."""
    port = SENTINEL_PORT if url.scheme == "redis+sentinel" else PORT
    return [_address(place, port) for place in (url.host or "localhost").split(",")]


def service_name(url: StoreURL) -> str:
    """What the sentinels call the master."""
    if not url.path:
        raise ConfigurationError("a redis+sentinel URL names the service behind its hosts: redis+sentinel://h1,h2/NAME")
    return url.path


def connect_arguments(url: StoreURL, options: ServerOptions) -> dict[str, Any]:
    """Keywords for redis-py's connections, but for host and port."""
    user, password = _once("username", url.user or None, options.username), url.password
    return {
        "username": user,
        "password": _once("password", password, options.password),
        "db": _database(url, options),
        "client_name": options.client_name,
        "socket_timeout": None,  # a lane waits by itself, for all of its calls together
        "socket_connect_timeout": options.connect_timeout,
        "socket_keepalive": True,
        "protocol": 2,
    }


def sentinel_arguments(options: ServerOptions) -> dict[str, Any]:
    """Keywords for connections to sentinels."""
    return {
        "username": options.sentinel_username,
        "password": options.sentinel_password,
        "socket_timeout": options.connect_timeout,
        "socket_connect_timeout": options.connect_timeout,
        "protocol": 2,
    }


def tls_arguments(url: StoreURL, options: ServerOptions) -> dict[str, Any] | None:
    """Keywords for a connection with TLS; `None`: without."""
    given = {
        "ssl_ca_certs": options.ssl_ca_certs,
        "ssl_certfile": options.ssl_certfile,
        "ssl_keyfile": options.ssl_keyfile,
    }
    if url.scheme != "rediss" and not options.ssl:
        if any(given.values()):
            raise ConfigurationError(f"TLS files are given, but {url.scheme}:// is without TLS: rediss:// or ssl=true")
        return None
    checks = options.ssl_cert_reqs != "none"
    return {
        **given,
        "ssl_cert_reqs": options.ssl_cert_reqs,
        "ssl_check_hostname": options.ssl_check_hostname and checks,
    }


def _database(url: StoreURL, options: ServerOptions) -> int:
    if url.scheme == "redis+sentinel" or not url.path:
        number = options.db or 0
    elif not url.path.isdecimal():
        raise ConfigurationError(f"the path of a {url.scheme} URL is a database's number: {url.scheme}://host/0")
    elif options.db is not None:
        raise ConfigurationError("the database is in the URL's path and in db=: choose one")
    else:
        number = int(url.path)
    if number and url.scheme == "redis+cluster":
        raise ConfigurationError("a Redis cluster has only database 0")
    return number


def _once(name: str, in_url: str | None, option: str | None) -> str | None:
    if in_url is not None and option is not None:
        raise ConfigurationError(f"the {name} is in the URL and in {name}=: choose one")
    return option if in_url is None else in_url


def _address(place: str, default: int) -> Address:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(default)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError("each host in a Redis URL is HOST or HOST:PORT, the port from 1 to 65535")
    return host.strip("[]"), int(port)
