"""What the documents show, runs: every fenced Python block of the README and of `docs/`, on every server too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import uuid4

import postgres_server
import pytest
import redis_server

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_ELSEWHERE = {
    "openai.md",  # it needs a service: test_openai_agent
    "write-a-backend.md",  # it needs its backend installed: test_write_a_backend
}

NEEDS = {"pydantic-ai.md": (3, 11)}
"""The oldest Python that the page's framework is there for."""

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.+)$", re.MULTILINE)

Server = Callable[[], AbstractContextManager[str]]


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """Skips the page, by name, where its framework is not there for this Python."""
    oldest = NEEDS.get(page.name, (3, 10))
    return [pytest.mark.skipif(sys.version_info < oldest, reason=f"{page.name} needs Python {oldest[0]}.{oldest[1]}")]


EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}", marks=marks(page))
    for page in PAGES
    if page.name not in RUN_ELSEWHERE
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
]
ON_SQLITE = re.compile(r"sqlite:///[\w.]+")
ON_SERVERS = [example for example in EXAMPLES if ON_SQLITE.search(str(example.values[0]))]


@contextmanager
def postgres() -> Generator[str]:
    """The URL of a schema of its own; gone afterwards."""
    server, schema = postgres_server.server_url(), f"documents-{uuid4().hex}"
    try:
        yield f"{server}{'&' if '?' in server else '?'}schema={schema}"
    finally:
        postgres_server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', url=server)


@contextmanager
def redis() -> Generator[str]:
    """The URL of a prefix of its own; gone afterwards."""
    server, prefix = redis_server.server_url(), f"documents-{uuid4().hex}"
    try:
        yield f"{server}{'&' if '?' in server else '?'}prefix={prefix}"
    finally:
        redis_server.unlink(server, f"{prefix}:")


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs_and_prints_what_it_says(code: str, tmp_path: Path) -> None:
    """In an empty folder, without warnings; the comment behind a `print` is what it prints."""
    check(code, tmp_path)


@pytest.mark.parametrize("server", [postgres, redis])
@pytest.mark.parametrize("code", ON_SERVERS)
def test_an_example_runs_on_a_server_too(code: str, server: Server, tmp_path: Path) -> None:
    """With nothing changed but the URL of its store."""
    with server() as url:
        check(ON_SQLITE.sub(url, code), tmp_path)
    assert list(tmp_path.glob("*.db")) == []


def check(code: str, folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "AGENTSTORE_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**environment, "HOME": str(folder), "XDG_DATA_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED.findall(code)


def test_every_feature_of_the_agent_page_has_its_test() -> None:
    """39 rows, and for each a test of its number."""
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "agent.md").read_text(), re.MULTILINE)
    tests = re.findall(r"^def test_row_(\d\d)_", (ROOT / "tests" / "test_features.py").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == sorted({int(test) for test in tests}) == list(range(1, 40))


def test_the_readme_shows_examples() -> None:
    """The core's agent, an Agent Framework agent, and the store itself; in under 200 lines."""
    readme = (ROOT / "README.md").read_text()
    assert len(BLOCK.findall(readme)) >= 3
    assert len(readme.splitlines()) < 200
