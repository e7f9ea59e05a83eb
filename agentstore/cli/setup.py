"""`agentstore setup`: create or migrate what a store needs, once, at deployment."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from agentstore.cli.printing import print_line
from agentstore.registry import open_store
from agentstore.urls import parse_url


def setup(url: Annotated[str, typer.Argument(help="The store, such as postgresql://host/chat")]) -> None:
    """Create or migrate what the store needs. Any number of times, also at once."""
    asyncio.run(_setup(url))
    print_line(f"{parse_url(url)}: ready")


async def _setup(url: str) -> None:
    store = open_store(url)
    try:
        await store.setup()
    finally:
        await store.aclose()
