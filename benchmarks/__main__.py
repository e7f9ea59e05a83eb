"""`python -m benchmarks [--quick] [NAME …]`: exits with 1 if a promise was missed."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.report import Report

NAMES = (
    "appending",
    "file_provider",
    "newest",
    "many_sessions",
    "memory",
    "disk",
    "start",
    "decoding",
    "others",
    "agent_framework",
    "openai_agents",
    "pydantic_ai",
    "postgres_appending",
    "postgres_newest",
    "postgres_many_sessions",
    "postgres_writers",
    "postgres_disk",
    "redis_appending",
    "redis_newest",
    "redis_many_sessions",
    "redis_memory",
    "azblob_appending",
    "azblob_newest",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of: {', '.join(NAMES)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    missed = 0
    for name in arguments.names or NAMES:
        start = perf_counter()
        report = _run(name, arguments.quick)
        print(f"{report}\n    ({name}, {perf_counter() - start:.1f} s)\n", flush=True)
        missed += sum(not goal.met for goal in report.goals)
    return 1 if missed else 0


def _run(name: str, quick: bool) -> Report:
    """One benchmark, on fresh files."""
    with TemporaryDirectory(prefix="agentstore-bench-") as folder:
        report: Report = importlib.import_module(f"benchmarks.{name}").run(Path(folder), quick)
    return report


if __name__ == "__main__":
    sys.exit(main())
