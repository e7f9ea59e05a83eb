"""What the catalog keeps about sessions, in public form: infos, metadata, and the cursors of a listing."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from agentstore import values
from agentstore.backend import StoredInfo, activity_minute
from agentstore.errors import CorruptRecordError, PayloadTooLargeError
from agentstore.keys import SessionKey
from agentstore.shapes import SessionInfo, to_datetime

_logger = logging.getLogger("agentstore")

MAX_METADATA_BYTES = 16 * 1024
"""Largest metadata of one session, in stored form."""

Start = tuple[int, str, str]  # where a page ended: minute of last activity, source id, session id


def session_info(stored: StoredInfo, *, skip_corrupt: bool = False) -> SessionInfo:
    """The public form; unreadable metadata raise `CorruptRecordError`, or are logged and left out."""
    try:
        metadata = _load_metadata(stored.key, stored.metadata)
    except CorruptRecordError as error:
        if not skip_corrupt:
            raise
        _logger.warning("skipped: %s", error)
        metadata = {}
    return SessionInfo(
        key=stored.key,
        count=stored.count,
        first_seq=stored.first_seq,
        last_seq=stored.last_seq,
        created_at=to_datetime(stored.created_at),
        updated_at=to_datetime(stored.updated_at),
        expires_at=None if stored.expires_at is None else to_datetime(stored.expires_at),
        bytes=stored.size,
        metadata=metadata,
    )


def merge_metadata(key: SessionKey, old: bytes | None, changes: dict[str, Any]) -> bytes | None:
    """The metadata with the changes, `None` where nothing is left; raises `PayloadTooLargeError` over 16 KiB."""
    merged = {**_load_metadata(key, old), **changes}
    kept = {name: value for name, value in merged.items() if value is not None}
    data = values.dump(kept)
    if len(data) > MAX_METADATA_BYTES:
        raise PayloadTooLargeError(f"the metadata would have {len(data)} bytes, more than {MAX_METADATA_BYTES}")
    return data if kept else None


def start_after(stored: StoredInfo) -> Start:
    """Where the page behind this session starts."""
    return activity_minute(stored.updated_at), stored.key.source_id, stored.key.session_id


def write_cursor(start: Start) -> str:
    """The start of a page as opaque text."""
    return urlsafe_b64encode(msgspec.json.encode(start)).decode()


def read_cursor(cursor: str) -> Start:
    """The start of a page; raises `ValueError` for text that `write_cursor` did not make."""
    try:
        start: Start = msgspec.json.decode(urlsafe_b64decode(cursor), type=Start)
    except (ValueError, TypeError, msgspec.DecodeError) as error:
        raise ValueError("not a cursor of a session listing") from error
    if not 0 <= start[0] < 2**53:
        raise ValueError("not a cursor of a session listing")
    return start


def _load_metadata(key: SessionKey, data: bytes | None) -> dict[str, Any]:
    try:
        metadata = values.load(data) if data else {}
    except ValueError as error:
        raise CorruptRecordError(f"the metadata of session {key} cannot be read: {error}") from error
    if type(metadata) is not dict:
        raise CorruptRecordError(f"the metadata of session {key} are not a JSON object")
    return metadata
