"""The wheel, installed alone with msgspec: what a user gets who asks for no extra."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = (
    "sqlite3",
    "asyncpg",
    "sqlalchemy",
    "redis",
    "azure",
    "typer",
    "rich",
    "pytest",
    "hypothesis",
    "agent_framework",
    "agents",
    "pydantic_ai",
    "openai",
    "agentstore.cli",
    "agentstore.testing",
)

Python = Callable[[str], str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what a source distribution holds."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("agentstore", "backends"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built), cwd=source)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs code in a fresh environment that holds the wheel and msgspec; what it printed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    site = Path(_run(str(interpreter), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    _copy_msgspec(site)  # from here, so that the tests need no network
    pip = (sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check")
    _run(*pip, "install", "-q", "--no-index", str(wheel))
    return lambda code: _run(str(interpreter), "-I", "-W", "error", "-c", code, cwd=folder)


def test_the_wheel_holds_every_backend_with_its_entry_point(wheel: Path) -> None:
    """`backends/` is a source root: its modules stand beside the package, and each backend has its scheme."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    modules = {path.name for path in (ROOT / "backends").iterdir() if path.name.startswith("agentstore_")}
    assert {name for name in names if name.startswith("agentstore_") and "/" not in name} == modules
    assert not any(name.startswith("backends/") for name in names)
    section = entry_points.partition("[agentstore.backends]")[2].partition("[")[0]
    named = {f"{module}.py" for module in re.findall(r"= (\w+):", section)}
    # Those of a family, such as agentstore_sqlite_log, serve the backend whose name they begin with.
    assert {module for module in modules if module.count("_") == 1} == named


def test_the_wheel_is_typed_and_holds_nothing_else(wheel: Path) -> None:
    """py.typed is in; tests, documents and benchmarks are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "agentstore/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names if "/" in name} == {"agentstore", "agentstore_history"}


def test_import_agentstore_imports_nothing_heavy(python: Python) -> None:
    """No driver, framework, command line or test package, and no backend before it is asked for."""
    loaded = python("import agentstore, sys; print(*sys.modules)").split()
    assert "agentstore.store" in loaded
    assert [name for name in loaded if name in HEAVY or name.startswith("agentstore_")] == []


def test_the_bare_install_keeps_histories_in_memory_and_on_sqlite(python: Python) -> None:
    """Both backends come with no extra."""
    code = """
import asyncio
from agentstore import Message, backend_names, open_store

async def main(url):
    async with open_store(url) as store:
        chat = store.session("user-42")
        await chat.append([Message("user", ["hi"])])
        return (await chat.messages())[0].text

assert {"memory", "sqlite"} <= set(backend_names())
print(asyncio.run(main("memory://")), asyncio.run(main("sqlite:///chat.db")))
"""
    assert python(code).strip() == "hi hi"


@pytest.mark.parametrize(
    ("wanted", "extra"),
    [
        ("from agentstore.testing import BackendConformance", "testing"),
        ("__import__('agentstore').open_store('postgresql://db/chat')", "postgres"),
        ("__import__('agentstore').open_store('redis+cluster://db')", "redis"),
        ("from agentstore.adapters.agent_framework import StoreHistoryProvider", "agent-framework"),
        ("from agentstore.clients.openai import OpenAIChatClient", "openai"),
    ],
)
def test_what_needs_an_extra_names_it(python: Python, wanted: str, extra: str) -> None:
    """A `MissingDependencyError`, which is an `ImportError` too."""
    code = f"""
from agentstore import MissingDependencyError
try:
    {wanted}
except ImportError as error:
    assert isinstance(error, MissingDependencyError), repr(error)
    print(error)
"""
    assert f"agentstore-history[{extra}]" in python(code)


def test_the_command_without_its_extra_names_it(python: Python) -> None:
    """`agentstore` ends with one line and exit code 2."""
    code = """
import contextlib, io
from agentstore.cli import main
with contextlib.redirect_stderr(io.StringIO()) as said:
    try:
        main()
    except SystemExit as exit:
        print(exit.code, said.getvalue())
"""
    code, _, said = python(code).strip().partition(" ")
    assert code == "2"
    assert said.startswith("agentstore: ")
    assert "pip install 'agentstore-history[cli]'" in said


def _copy_msgspec(site: Path) -> None:
    found = distribution("msgspec")
    for file in found.files or ():
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(found.locate_file(file)), site / file)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
