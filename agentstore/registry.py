"""Backends by URL scheme, through the entry points of the group `agentstore.backends`.

One entry per scheme; a backend's module is imported only when its scheme is asked for; our own come through the same
door.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentstore.backend import BackendFactory, Log
from agentstore.errors import AgentStoreError, ConfigurationError, MissingDependencyError, UnknownBackendError
from agentstore.history import OnCorrupt
from agentstore.store import HistoryStore
from agentstore.urls import parse_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "agentstore.backends"
URL_VARIABLE = "AGENTSTORE_URL"
_DISTRIBUTION = "agentstore-history"
# Where each platform keeps a user's data: the variable that says so, and the folder below home without it.
_DATA_FOLDERS = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Application Support")}
# Module to extra, for those of our own backends that need a driver.
_EXTRAS = {"agentstore_postgres": "postgres", "agentstore_redis": "redis", "agentstore_azblob": "azure-blob"}


def open_store(
    url: str | None = None,
    /,
    *,
    namespace: str = "default",
    ttl: float | timedelta | None = None,
    auto_setup: bool = True,
    on_corrupt: OnCorrupt = "raise",
    **options: Any,
) -> HistoryStore:
    """The store at the URL; no I/O, callable outside an event loop.

    `url=None` reads the variable `AGENTSTORE_URL`; unset, it is a SQLite file in the user's data directory. `ttl` is in
    seconds. `options` are the backend's, as its URL's query parameters are. Raises `UnknownBackendError`,
    `MissingDependencyError` (naming the extra) or `ConfigurationError` (naming the known options).
    """
    parsed = parse_url(url if url is not None else os.environ.get(URL_VARIABLE) or default_url())
    factory = load_backend(parsed.scheme)
    try:
        backend: Log = factory.from_url(parsed, options)
    except (AgentStoreError, ImportError):
        raise
    except Exception as error:  # a stranger's factory can raise anything
        raise ConfigurationError(f"the backend for {parsed.scheme}:// is broken: {error!r}") from error
    if not isinstance(backend, Log):
        raise ConfigurationError(f"the backend for {parsed.scheme}:// is broken: it makes {type(backend).__name__}")
    return HistoryStore(backend, namespace=namespace, ttl=ttl, auto_setup=auto_setup, on_corrupt=on_corrupt)


def store_of(store_or_url: HistoryStore | str) -> tuple[HistoryStore, bool]:
    """The store, or one made of the URL; and whether it was made here, so that whoever asked for it closes it.

    Raises `TypeError` for anything else, and what `open_store` raises.
    """
    if isinstance(store_or_url, HistoryStore):
        return store_or_url, False
    if not isinstance(store_or_url, str):
        raise TypeError(f"a store or its URL is needed, not {type(store_or_url).__name__}")
    return open_store(store_or_url), True


def default_url() -> str:
    """The SQLite URL of the user's own store, by the platform's custom."""
    variable, below_home = _DATA_FOLDERS.get(sys.platform, ("XDG_DATA_HOME", ".local/share"))
    folder = Path(os.environ.get(variable, ""))
    if not folder.is_absolute():  # unset, or no use: https://specifications.freedesktop.org/basedir-spec
        folder = _home() / below_home
    return f"sqlite:///{quote(str(folder / 'agentstore' / 'history.db'))}"


def backend_names() -> list[str]:
    """The URL schemes that installed distributions answer to, sorted; imports none of them."""
    return sorted({entry.name for entry in _entries()})


def load_backend(scheme: str) -> BackendFactory:
    """What the scheme's entry point names; raises as `open_store` does, also where two distributions claim one name."""
    entry = _only_one(scheme)
    try:
        factory: BackendFactory = entry.load()
        _ = factory.from_url  # without it, the factory is as broken as a module that does not import
    except ImportError as error:
        raise MissingDependencyError(f"the backend {scheme!r} needs {_missing(error)}: {_remedy(entry)}") from error
    except Exception as error:  # a stranger's module can raise anything while it is imported
        raise ConfigurationError(f"the backend {scheme!r} of {_owner(entry)} is broken: {error!r}") from error
    return factory


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigurationError(f"there is no home directory for a default store: set {URL_VARIABLE}") from error


def _only_one(scheme: str) -> EntryPoint:
    # One distribution can be seen twice (installed and editable): what it names is the same.
    entries = {(_owner(entry), entry.value): entry for entry in _entries() if entry.name == scheme}
    if not entries:
        raise UnknownBackendError(f"no backend for {scheme}://; installed: {', '.join(backend_names()) or 'none'}")
    if len(entries) > 1:
        owners = " and ".join(sorted(f"{owner} ({value})" for owner, value in entries))
        raise ConfigurationError(f"more than one backend claims {scheme}://: {owners}; uninstall one")
    return next(iter(entries.values()))


def _entries() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # takes longer to import than all of the core

    return entry_points(group=GROUP)


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown distribution"


def _missing(error: ImportError) -> str:
    known = isinstance(error, ModuleNotFoundError) and error.name
    return f"the module {error.name!r}" if known else f"what cannot be imported ({error})"


def _remedy(entry: EntryPoint) -> str:
    if _owner(entry) == _DISTRIBUTION and entry.module in _EXTRAS:
        return f"pip install '{_DISTRIBUTION}[{_EXTRAS[entry.module]}]'"
    return f"install what {_owner(entry)} asks for"
