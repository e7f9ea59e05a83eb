"""What commands on stored sessions ask for: a store by URL, names that can be names, and leave to remove."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import typer

from agentstore.cli.escaping import visible
from agentstore.keys import check_id
from agentstore.registry import open_store
from agentstore.store import HistoryStore


@asynccontextmanager
async def existing(url: str) -> AsyncGenerator[HistoryStore]:
    """The store at the URL, to look into or to take away from: nothing is created or migrated."""
    async with open_store(url, auto_setup=False, on_corrupt="skip") as store:
        yield store


def check_names(**names: str | list[str] | None) -> None:
    """Refuse, as a wrong argument, what cannot be a namespace, source or session id."""
    try:
        for name, given in names.items():
            for value in given if isinstance(given, list) else [given]:
                if value is not None:
                    check_id(name, value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is removed; anything but a yes ends the command with exit code 1."""
    if not yes:
        typer.confirm(visible(question), abort=True, err=True)
