"""`agentstore purge`: free the room of what has expired."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from agentstore.cli.asking import confirm, existing
from agentstore.cli.printing import print_line
from agentstore.urls import parse_url


def purge(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Remove what is left of expired sessions, in all namespaces, and of copies that were broken off."""
    confirm(f"Remove what has expired in {parse_url(url)}?", yes=yes)
    print_line(f"{asyncio.run(_purge(url))} expired sessions removed")


async def _purge(url: str) -> int:
    async with existing(url) as store:
        return await store.purge_expired()
