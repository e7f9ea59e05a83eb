"""`agentstore import`: sessions out of a file that `agentstore export` wrote."""

from __future__ import annotations

import asyncio
from typing import Annotated, BinaryIO

import typer

from agentstore.cli.moved import print_moved, print_total
from agentstore.registry import open_store
from agentstore.transfer import Transferred, import_sessions


def import_(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db; set up if need be")],
    file: Annotated[typer.FileBinaryRead, typer.Argument(help="The file to read, or - for the standard input")],
) -> None:
    """Bring in the sessions of a file, each whole or not at all. What is there already is left alone.

    Exit code 1 if one could not be brought in, or the file is torn or changed.
    """
    print_total(asyncio.run(_import(url, file)))


async def _import(url: str, file: BinaryIO) -> Transferred:
    async with open_store(url) as store:
        return await import_sessions(store, file, report=print_moved)
