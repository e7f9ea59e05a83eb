"""`agentstore delete`: remove a session, or all of a namespace."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from agentstore.cli.asking import check_names, confirm, existing
from agentstore.cli.printing import print_line
from agentstore.errors import AgentStoreError
from agentstore.keys import SessionKey
from agentstore.urls import parse_url


def delete(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db")],
    session: Annotated[str | None, typer.Argument(help="The session's id")] = None,
    namespace: Annotated[str, typer.Option(help="The namespace")] = "default",
    source: Annotated[str, typer.Option(help="Who wrote it")] = "history",
    whole_namespace: Annotated[
        bool, typer.Option("--whole-namespace", help="All sessions of the namespace, of all sources")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Remove every trace of a session, or of all sessions of a namespace.

    Exit code 1 if there is no such session.
    """
    if (session is None) != whole_namespace:
        raise typer.BadParameter("give either a session's id or --whole-namespace")
    check_names(namespace=namespace, source=source, session=session)
    address = parse_url(url)
    if session is None:
        confirm(f"Delete all sessions of the namespace {namespace} in {address}?", yes=yes)
        print_line(f"{asyncio.run(_delete_namespace(url, namespace))} sessions deleted")
    else:
        key = SessionKey(namespace, source, session)
        confirm(f"Delete the session {key} in {address}?", yes=yes)
        if not asyncio.run(_delete(url, key)):
            raise AgentStoreError(f"there is no session {key}")
        print_line(f"{key}: deleted")


async def _delete(url: str, key: SessionKey) -> bool:
    async with existing(url) as store:
        chat = store.session(key.session_id, source_id=key.source_id, namespace=key.namespace)
        existed = await chat.info() is not None
        await chat.delete()
        return existed


async def _delete_namespace(url: str, namespace: str) -> int:
    async with existing(url) as store:
        return await store.delete_namespace(namespace)
