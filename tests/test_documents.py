"""What the documents show, runs: every fenced Python block of the README and of `docs/`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_ELSEWHERE = {"write-a-backend.md"}  # it needs its backend installed: test_write_a_backend

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"print\(.*\)  # (.+)$", re.MULTILINE)

EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in RUN_ELSEWHERE
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs_and_prints_what_it_says(code: str, tmp_path: Path) -> None:
    """In an empty folder, without warnings; the comment behind a `print` is what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "AGENTSTORE_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PRINTED.findall(code)


def test_the_readme_shows_examples() -> None:
    """The core's agent, an Agent Framework agent, and the store itself; in under 200 lines."""
    readme = (ROOT / "README.md").read_text()
    assert len(BLOCK.findall(readme)) >= 3
    assert len(readme.splitlines()) < 200
