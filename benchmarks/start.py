"""How long does a fresh interpreter take to import the package?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.report import Goal, Report

_TIMED = "from time import perf_counter as now; start = now(); {statement}; print(now() - start)"


def run(folder: Path, quick: bool) -> Report:
    # Bytecode is cached, as it is for an installed package; the first round fills the cache.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    times = [
        [_seconds(statement, environment) for statement in ("import agentstore", "import asyncio, msgspec")]
        for _ in range(6 if quick else 16)
    ]
    ours, base = [1000 * median(own[1:]) for own in zip(*times, strict=True)]
    return Report(
        "start of a fresh interpreter",
        [("import agentstore", f"{ours:.1f} ms"), ("of that: import asyncio, msgspec", f"{base:.1f} ms")],
        [Goal("import agentstore, ms", ours, 100)],
    )


def _seconds(statement: str, environment: dict[str, str]) -> float:
    child = [sys.executable, "-c", _TIMED.format(statement=statement)]
    return float(subprocess.run(child, check=True, capture_output=True, text=True, env=environment).stdout)
