"""Does walking through a very long session stay within constant memory?"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from agentstore import open_store
from benchmarks.report import Goal, Report
from benchmarks.sample import fill

VERY_LONG = 100_000


def run(folder: Path, quick: bool) -> Report:
    url = f"sqlite:///{folder}/ours.db"
    asyncio.run(_prepare(url))
    # A process of its own: this one's peak is another benchmark's.
    child = [sys.executable, "-m", "benchmarks.memory", url]
    extra = int(subprocess.run(child, check=True, capture_output=True, text=True).stdout) / 2**20
    return Report(
        f"iterate over {VERY_LONG:,} messages in SQLite",
        [("peak memory above that of a reader of one message", f"{extra:.1f} MiB")],
        [Goal("MB", extra * 2**20 / 1e6, 50)],
    )


async def _prepare(url: str) -> None:
    async with open_store(url) as store:
        await fill(store.session("very long"), VERY_LONG)


async def _walk(url: str) -> int:
    """The bytes by which the peak grows."""
    async with open_store(url) as store:
        chat = store.session("very long")
        await chat.messages(limit=1)
        before, count = _peak(), 0
        async for _ in chat.iterate():
            count += 1
    if count != VERY_LONG:
        raise AssertionError(f"iterate gave {count} messages")
    return _peak() - before


def _peak() -> int:
    """The process's largest resident size so far, in bytes (Linux)."""
    # Not getrusage: that one's figure starts with the parent's.
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(asyncio.run(_walk(sys.argv[1])))
