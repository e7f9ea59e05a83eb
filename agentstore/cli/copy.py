"""`agentstore copy`: sessions from one store to another, exactly."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from agentstore.cli.asking import check_names
from agentstore.cli.moved import print_moved, print_total
from agentstore.errors import AgentStoreError
from agentstore.registry import open_store
from agentstore.transfer import Transferred, copy_sessions
from agentstore.urls import parse_url


def copy(
    source_url: Annotated[str, typer.Argument(metavar="SRC_URL", help="The store that has the sessions")],
    target_url: Annotated[str, typer.Argument(metavar="DST_URL", help="The store that gets them; set up if need be")],
    namespace: Annotated[list[str] | None, typer.Option(help="A namespace; may be given several times")] = None,
    source: Annotated[str | None, typer.Option(help="Only what this source wrote")] = None,
    session: Annotated[str | None, typer.Option(help="Only the session of this id, of all sources")] = None,
) -> None:
    """Copy sessions, each whole or not at all, under the same ids. What is there already is left alone.

    Exit code 1 if one could not be copied, or there is nothing to copy.
    """
    namespaces = namespace or ["default"]
    check_names(namespace=namespaces, source=source, session=session)
    done = asyncio.run(_copy(source_url, target_url, namespaces, source, session))
    if done == Transferred(0, 0):
        raise AgentStoreError(f"there is no such session in {parse_url(source_url)}: nothing was copied")
    print_total(done)


async def _copy(
    source_url: str, target_url: str, namespaces: list[str], source: str | None, session: str | None
) -> Transferred:
    async with open_store(source_url, auto_setup=False) as store, open_store(target_url) as target:
        return await copy_sessions(
            store, target, namespaces=namespaces, source_id=source, session_id=session, report=print_moved
        )
