"""The backend of `docs/write-a-backend.md`, as a stranger's distribution that is found through its own entry point."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "write-a-backend.md"
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))

Python = Callable[..., str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs the interpreter beside the page's files, its distribution installed; what was printed."""
    project, site = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (project / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(site), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The build backend is installed with the tests, so this needs no network.
    python("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site), ".")
    return python


def test_the_backend_fits_on_the_page() -> None:
    """In under 150 lines."""
    assert len(FILES["json_history.py"].splitlines()) < 150


def test_it_is_found_through_its_own_entry_point(python: Python) -> None:
    """`open_store` and `agentstore backends` know its scheme; the history outlives the process."""
    assert python("chat.py") == "2\n"
    assert python("chat.py") == "4\n"
    assert "jsonfiles:// " in python("-m", "agentstore.cli", "backends")


def test_a_look_into_it_needs_no_more_than_the_log(python: Python) -> None:
    """`agentstore show` prints a session; a listing names the missing ability."""
    python("chat.py")
    assert "hello" in python("-m", "agentstore.cli", "show", "jsonfiles:///histories", "user-42", "--namespace", "acme")
    refusal = "from agentstore.cli import main\ntry: main()\nexcept SystemExit as exit: print(exit.code)"
    assert python("-c", refusal, "show", "jsonfiles:///histories") == "2\n"


def test_it_keeps_every_sentence_of_the_contract(python: Python) -> None:
    """The conformance kit passes; what needs another ability is skipped by its name."""
    shown = python("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_json_history.py")
    assert re.search(r"^\d+ passed, \d+ skipped", shown, re.MULTILINE)
    for ability in ("Catalog", "Rewriting", "Snapshots"):
        assert f"lacks the ability {ability}" in shown
