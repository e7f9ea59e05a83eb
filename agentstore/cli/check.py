"""`agentstore check`: what a store's set-up is worth when something breaks, in plain words. It reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from agentstore.backend import Finding
from agentstore.cli.printing import print_line
from agentstore.registry import open_store


def check(
    url: Annotated[
        str | None, typer.Argument(help="The store, such as redis://127.0.0.1; without it, as the library chooses")
    ] = None,
) -> None:
    """Say what a crash, a full memory or a full disk would cost. Exit code 1 where writes fail, 0 otherwise."""
    findings = asyncio.run(_check(url))
    for finding in findings:
        print_line(f"{finding.level}: {finding.text}")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


async def _check(url: str | None) -> Sequence[Finding]:
    store = open_store(url)
    try:
        return await store.check()
    finally:
        await store.aclose()
