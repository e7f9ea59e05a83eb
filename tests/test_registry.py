"""Backends come through entry points: found by scheme, imported when asked for, broken only for who asks."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentstore import (
    ConfigurationError,
    Message,
    MissingDependencyError,
    UnknownBackendError,
    backend_names,
    load_backend,
    open_store,
    registry,
)
from agentstore.urls import parse_url

Install = Callable[..., None]

STRANGER = """
import agentstore_memory

class StrangerBackend(agentstore_memory.MemoryBackend):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with entry points on `sys.path`, as an installer would; gone after the test."""
    before = set(sys.modules)

    def put(name: str, entries: dict[str, str], **modules: str) -> None:
        folder = tmp_path / name
        metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{scheme} = {target}" for scheme, target in entries.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[agentstore.backends]", *lines, ""]))
        for module, source in modules.items():
            (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)

    yield put
    for module in set(sys.modules) - before:
        del sys.modules[module]
    importlib.invalidate_caches()


def test_our_own_backends_come_through_the_same_door() -> None:
    """The two that need no driver are always there."""
    assert {"memory", "sqlite"} <= set(backend_names())
    assert backend_names() == sorted(backend_names())
    assert load_backend("memory").__module__ == "agentstore_memory"
    assert load_backend("sqlite").__module__ == "agentstore_sqlite"


def test_a_strangers_backend_is_found_and_works(install: Install) -> None:
    """By its own entry point, without a word about it here."""
    install("stranger-store", {"stranger": "stranger_plugin:StrangerBackend"}, stranger_plugin=STRANGER)
    assert "stranger" in backend_names()

    async def scene() -> list[Message]:
        async with open_store("stranger://", max_message_bytes=1000) as store:
            await store.session("s").append([Message("user", ["hi"])])
            return await store.session("s").messages()

    assert [message.text for message in asyncio.run(scene())] == ["hi"]


def test_a_module_is_imported_only_when_its_scheme_is_asked_for(install: Install) -> None:
    """Listing names imports nothing, and opening one store does not import another one's driver."""
    install("stranger-store", {"stranger": "stranger_plugin:StrangerBackend"}, stranger_plugin=STRANGER)
    assert "stranger" in backend_names()
    open_store("memory://")
    assert "stranger_plugin" not in sys.modules
    load_backend("stranger")
    assert "stranger_plugin" in sys.modules


def test_importing_the_library_imports_no_backend() -> None:
    """Nor a driver, nor an agent framework, nor what tests need."""
    code = (
        "import sys, agentstore; agentstore.backend_names();"
        "print([name for name in sys.modules if name.partition('.')[0] in"
        "('agentstore_memory', 'agentstore_sqlite', 'sqlite3', 'pytest', 'hypothesis', 'agent_framework', 'agents')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_two_distributions_that_claim_one_name_are_an_error_that_names_both(install: Install) -> None:
    """Neither wins by its place on the path; every other name still works."""
    install(
        "first-store",
        {"twice": "first_plugin:StrangerBackend", "first": "first_plugin:StrangerBackend"},
        first_plugin=STRANGER,
    )
    install("second-store", {"twice": "second_plugin:StrangerBackend"}, second_plugin=STRANGER)
    with pytest.raises(ConfigurationError, match=r"(?=.*twice)(?=.*first-store)(?=.*second-store)"):
        open_store("twice://")
    assert backend_names().count("twice") == 1
    assert load_backend("first").__module__ == "first_plugin"
    open_store("memory://")


def test_one_of_our_own_names_cannot_be_taken_in_silence(install: Install) -> None:
    """A distribution that claims `sqlite` is reported, not used."""
    install("thief-store", {"sqlite": "thief_plugin:StrangerBackend"}, thief_plugin=STRANGER)
    with pytest.raises(ConfigurationError, match=r"(?=.*thief-store)(?=.*agentstore-history)"):
        open_store("sqlite:///chat.db")
    assert "thief_plugin" not in sys.modules


def test_a_distribution_seen_twice_is_one(install: Install) -> None:
    """As after an editable install over an ordinary one."""
    install("stranger-store", {"stranger": "stranger_plugin:StrangerBackend"}, stranger_plugin=STRANGER)
    install("stranger_store", {"stranger": "stranger_plugin:StrangerBackend"}, stranger_plugin=STRANGER)
    assert load_backend("stranger").__module__ == "stranger_plugin"


BROKEN = {
    "raises": ("broken_plugin:Backend", "raise RuntimeError('half installed')", ConfigurationError, "half installed"),
    "syntax": ("broken_plugin:Backend", "def (", ConfigurationError, "broken"),
    "no attribute": ("broken_plugin:Backend", "", ConfigurationError, "Backend"),
    "no module": ("nowhere_plugin:Backend", "", MissingDependencyError, "nowhere_plugin"),
    "no driver": ("broken_plugin:Backend", "import no_such_driver", MissingDependencyError, "no_such_driver"),
    "no part of a driver": ("broken_plugin:Backend", "from json import nope", MissingDependencyError, "nope"),
    "says no": ("broken_plugin:Backend", "raise ImportError('needs libpq')", MissingDependencyError, "needs libpq"),
    "says no without a name": (
        "broken_plugin:Backend",
        "raise ModuleNotFoundError('needs a wheel')",
        MissingDependencyError,
        "needs a wheel",
    ),
    "not a reference": ("broken plugin!", "", ConfigurationError, "broken-store"),
    "no factory": ("broken_plugin:Backend", "Backend = 5", ConfigurationError, "from_url"),
}


@pytest.mark.parametrize(("target", "source", "error", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_hurts_only_who_asks_for_it(
    install: Install, target: str, source: str, error: type[Exception], told: str
) -> None:
    """With an error of ours that names it, its distribution, and what is wrong."""
    install("broken-store", {"broken": target}, broken_plugin=source)
    assert "broken" in backend_names()
    open_store("memory://")
    with pytest.raises(error, match=rf"(?s)(?=.*broken)(?=.*broken-store)(?=.*{told})") as caught:
        open_store("broken://")
    assert isinstance(caught.value, ConfigurationError)
    assert type(caught.value) is error


def test_a_missing_driver_is_an_import_error_too(install: Install) -> None:
    """For callers who guard their imports; the real one is its cause."""
    install("needy-store", {"needy": "needy_plugin:Backend"}, needy_plugin="import no_such_driver")
    with pytest.raises(ImportError) as caught:
        load_backend("needy")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("driver", "scheme", "extra"),
    [("asyncpg", "postgresql", "postgres"), ("redis", "rediss", "redis"), ("azure", "azblob", "azure-blob")],
)
def test_a_missing_driver_of_our_own_names_the_extra(driver: str, scheme: str, extra: str) -> None:
    """For each backend that needs one; the text can be pasted into a shell."""
    code = f"""
import sys
from agentstore import MissingDependencyError, open_store
sys.modules[{driver!r}] = None
try:
    open_store("{scheme}://host/container")
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{driver}" in done.stdout
    assert f"pip install 'agentstore-history[{extra}]'" in done.stdout


def test_an_unknown_scheme_names_the_installed_ones() -> None:
    """And is its own kind of error."""
    with pytest.raises(UnknownBackendError, match=r"mongodb://.*installed: .*memory.*sqlite"):
        open_store("mongodb://user:s3cr3t@host/db")
    with pytest.raises(UnknownBackendError, match="nope"):
        load_backend("nope")


def test_an_unknown_scheme_does_not_show_the_password() -> None:
    """Only the scheme is repeated."""
    with pytest.raises(UnknownBackendError) as caught:
        open_store("mongodb://user:s3cr3t@host/db?key=s3cr3t")
    assert "s3cr3t" not in str(caught.value)
    assert "user" not in str(caught.value)


@pytest.mark.parametrize("url", ["memory://?max_message_byte=1", "sqlite:///chat.db?journal=wal"])
def test_an_unknown_option_names_the_known_ones(url: str) -> None:
    """From the URL and as a keyword."""
    with pytest.raises(ConfigurationError, match=r"known: .*max_message_bytes"):
        open_store(url)
    with pytest.raises(ConfigurationError, match=r"unknown option colour.*known: .*max_message_bytes"):
        open_store(url.partition("?")[0], colour="red")


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """When none is given; a given one comes first."""
    monkeypatch.setenv("AGENTSTORE_URL", "memory://from-the-environment")
    assert "Memory" in repr(open_store())
    assert "SQLite" in repr(open_store("sqlite:///chat.db"))
    monkeypatch.setenv("AGENTSTORE_URL", "nope://user:s3cr3t@host")
    with pytest.raises(UnknownBackendError) as caught:
        open_store()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_without_a_url_there_is_a_file_in_the_users_data_directory(
    value: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It needs no preparation: the folder is made at the first write, not before."""
    if value is None:
        monkeypatch.delenv("AGENTSTORE_URL", raising=False)
    else:
        monkeypatch.setenv("AGENTSTORE_URL", value)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def files() -> list[Path]:
        return list(tmp_path.iterdir())

    async def scene() -> int:
        async with open_store() as store:
            assert not files()
            await store.session("s").append([Message("user")])
            return len(await store.session("s").messages())

    assert asyncio.run(scene()) == 1
    assert (tmp_path / "data" / "agentstore" / "history.db").exists()


PLATFORMS = {
    "linux": ("linux", {}, "/home/me/.local/share"),
    "linux xdg": ("linux", {"XDG_DATA_HOME": "/data/x y%#?\u00fc"}, "/data/x y%#?\u00fc"),
    "linux xdg empty": ("linux", {"XDG_DATA_HOME": ""}, "/home/me/.local/share"),
    "linux xdg relative": ("linux", {"XDG_DATA_HOME": "data"}, "/home/me/.local/share"),
    "freebsd": ("freebsd14", {}, "/home/me/.local/share"),
    "macos": ("darwin", {"XDG_DATA_HOME": "/ignored"}, "/home/me/Library/Application Support"),
    "windows": ("win32", {"LOCALAPPDATA": "/c/local"}, "/c/local"),
    "windows bare": ("win32", {"LOCALAPPDATA": ""}, "/home/me/AppData/Local"),
}


@pytest.mark.parametrize(("platform", "variables", "folder"), PLATFORMS.values(), ids=PLATFORMS.keys())
def test_the_default_file_is_where_the_platform_keeps_data(
    platform: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the folder's name holds; a relative XDG folder is not to be used, as its standard says."""
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    url = parse_url(registry.default_url())
    assert (url.scheme, url.host, url.path) == ("sqlite", "", f"{folder}/agentstore/history.db")


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_can_still_say_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with a number for a user: the variable is enough; without it the error says what to do."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert str(tmp_path) in registry.default_url()
    monkeypatch.delenv("XDG_DATA_HOME")
    with pytest.raises(ConfigurationError, match="AGENTSTORE_URL"):
        registry.default_url()


@pytest.mark.parametrize("url", ["memory://a/b", "memory:///name", "memory://user@name", "memory://user:pw@name"])
def test_a_memory_url_with_more_than_a_name_is_refused(url: str) -> None:
    """What is not used is not ignored: two of them would share a store, or share none, in silence."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/chat.db", "sqlite://me@/a.db"]
)
def test_a_sqlite_url_without_a_file_is_refused(url: str) -> None:
    """At once, not at the first write."""
    with pytest.raises(ConfigurationError, match="sqlite"):
        open_store(url)
