"""`agentstore sessions`: what sessions a store has. It reads only."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from agentstore.cli.asking import check_names, existing
from agentstore.cli.printing import print_table
from agentstore.shapes import SessionInfo, SessionPage
from agentstore.urls import parse_url


def sessions(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db")],
    namespace: Annotated[str, typer.Option(help="The namespace to look into")] = "default",
    source: Annotated[str | None, typer.Option(help="Who wrote them; without it, all sources")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a listing ended, as it said")] = None,
) -> None:
    """List sessions, newest activity first, with size and metadata. Changes nothing."""
    check_names(namespace=namespace, source=source)
    try:
        page = asyncio.run(_page(url, namespace, source, limit, cursor))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    columns = ["Session", "Source", "Messages", "Bytes", "Last activity", "Expires", "Metadata"]
    print_table(f"{parse_url(url)}, {namespace}", columns, [_row(info) for info in page.items])
    if page.cursor is not None:
        print(f"More with --cursor {page.cursor}")


async def _page(url: str, namespace: str, source: str | None, limit: int, cursor: str | None) -> SessionPage:
    async with existing(url) as store:
        return await store.sessions(namespace=namespace, source_id=source, limit=limit, cursor=cursor)


def _row(info: SessionInfo) -> list[str]:
    expires = "" if info.expires_at is None else f"{info.expires_at:%Y-%m-%d %H:%M:%S}Z"
    name, size = (info.key.session_id, info.key.source_id), (str(info.count), str(info.bytes))
    return [*name, *size, f"{info.updated_at:%Y-%m-%d %H:%M:%S}Z", expires, _text(info)]


def _text(info: SessionInfo) -> str:
    return json.dumps(info.metadata, ensure_ascii=False, default=repr) if info.metadata else ""
