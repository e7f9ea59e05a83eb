"""`agentstore export`: sessions into a file of JSON Lines."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from agentstore.cli.asking import check_names
from agentstore.errors import AgentStoreError
from agentstore.registry import open_store
from agentstore.transfer import export_sessions
from agentstore.urls import parse_url


def export(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db")],
    file: Annotated[
        Path, typer.Argument(dir_okay=False, allow_dash=True, help="The file to write, or - for the standard output")
    ],
    namespace: Annotated[list[str] | None, typer.Option(help="A namespace; may be given several times")] = None,
    source: Annotated[str | None, typer.Option(help="Only what this source wrote")] = None,
    session: Annotated[str | None, typer.Option(help="Only the session of this id, of all sources")] = None,
) -> None:
    """Write sessions to a file, exactly. It takes the place of an older one when it is whole.

    Exit code 1 if there is nothing to export.
    """
    namespaces = namespace or ["default"]
    check_names(namespace=namespaces, source=source, session=session)
    try:
        with _written(file) as out:
            count = asyncio.run(_export(url, out, namespaces, source, session))
            if not count:
                raise AgentStoreError(f"there is no such session in {parse_url(url)}: no file was written")
    except OSError as error:
        raise AgentStoreError(f"{file} cannot be written: {error.strerror}") from error
    print(f"{count} sessions exported", file=sys.stderr)


async def _export(url: str, out: BinaryIO, namespaces: list[str], source: str | None, session: str | None) -> int:
    async with open_store(url, auto_setup=False) as store:
        return await export_sessions(store, out, namespaces=namespaces, source_id=source, session_id=session)


@contextmanager
def _written(path: Path) -> Generator[BinaryIO]:
    """A file that gets its name when it is whole, and leaves nothing before."""
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
