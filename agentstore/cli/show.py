"""`agentstore show`: a look into a store. It reads only, below the codecs, so that no broken record hides the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from agentstore.backend import Catalog, Log, StoredInfo, StoredRecord
from agentstore.cli.printing import print_line, print_table
from agentstore.codec import MessageCodec, decode_record
from agentstore.errors import ConfigurationError
from agentstore.keys import SessionKey, check_id
from agentstore.messages import Content, Message
from agentstore.registry import load_backend
from agentstore.shapes import to_datetime
from agentstore.urls import parse_url

LONGEST = 300
"""Characters shown of a content that is not text."""


def show(
    url: Annotated[str, typer.Argument(help="The store, such as sqlite:///chat.db")],
    session: Annotated[str | None, typer.Argument(help="A session's id; without it, the sessions are listed")] = None,
    namespace: Annotated[str, typer.Option(help="The namespace to look into")] = "default",
    source: Annotated[
        str | None, typer.Option(help="Who wrote it; without it, `history`, or all sources in a listing")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest of all")] = 50,
) -> None:
    """Show the sessions of a store, or the newest messages of one. Changes nothing."""
    try:
        for name, value in (("namespace", namespace), ("source", source), ("session", session)):
            if value is not None:
                check_id(name, value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    address = parse_url(url)
    asyncio.run(
        _show(load_backend(address.scheme).from_url(address, {}), str(address), namespace, source, session, limit)
    )


async def _show(backend: Log, title: str, namespace: str, source: str | None, session: str | None, limit: int) -> None:
    try:
        if not await _ready(backend):
            print_line(f"{title}: nothing is stored there")
        elif session is None:
            _print_sessions(
                f"{title}, {namespace}",
                await _catalog(backend).list(namespace, source_id=source, limit=limit, start=None),
            )
        else:
            key = SessionKey(namespace, source or "history", session)
            _print_messages(f"{title}, {key}", await backend.read(key, limit=limit, newest=True))
    finally:
        await backend.aclose()


async def _ready(backend: Log) -> bool:
    readiness = await backend.readiness()
    if readiness == "outdated":
        raise ConfigurationError(
            "the store has an older schema, which `show` leaves as it is: its next writer updates it"
        )
    return readiness == "ready"


def _catalog(backend: Log) -> Catalog:
    if not isinstance(backend, Catalog):
        raise ConfigurationError(f"listing sessions needs the ability Catalog; {type(backend).__name__} lacks it")
    return backend


def _print_sessions(title: str, sessions: Sequence[StoredInfo]) -> None:
    rows = [
        [info.key.session_id, info.key.source_id, str(info.count), _time(info.updated_at), _time(info.expires_at)]
        for info in sessions
    ]
    print_table(title, ["Session", "Source", "Messages", "Last activity", "Expires"], rows)


def _print_messages(title: str, records: Sequence[StoredRecord]) -> None:
    rows = [[str(record.seq), *_time_role_and_text(record)] for record in records]
    print_table(title, ["Seq", "Time", "Role", "Message"], rows)


def _time_role_and_text(record: StoredRecord) -> tuple[str, str, str]:
    try:
        time = _time(record.created_at)
        message: Message = decode_record(MessageCodec(), record.format, record.payload)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        return "", "UNREADABLE", f"{record.format}, {len(record.payload)} bytes: {error}"
    author = f" ({message.author_name})" if message.author_name else ""
    return time, f"{message.role}{author}", "\n".join(map(_content, message.contents))


def _content(content: Content) -> str:
    if content.type == "text":
        return str(content.get("text", ""))
    fields = ", ".join(f"{name}={value!r}" for name, value in content.to_dict().items() if name != "type")
    return f"[{content.type}] {fields[:LONGEST]}{'…' if len(fields) > LONGEST else ''}"


def _time(microseconds: int | None) -> str:
    return "" if microseconds is None else f"{to_datetime(microseconds):%Y-%m-%d %H:%M:%S}Z"
