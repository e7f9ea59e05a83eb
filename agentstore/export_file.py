"""The export file: sessions as JSON Lines, one line a message. Its form is described in docs/command-line.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from typing import BinaryIO

import msgspec
from msgspec import UNSET, UnsetType

from agentstore.backend import StoredRecord
from agentstore.errors import AgentStoreError
from agentstore.keys import SessionKey
from agentstore.moving import Beside, Pages, Whole

FORMAT = "agentstore.export/1"

_PAGE_BYTES = 2 * 2**20
_PAGE_RECORDS = 500
_LONGEST_FIRST = 4096
_LONGEST_LINE = 2**30
_MARGIN = 200  # levels of nesting that a payload must leave to whoever reads its line


class ExportFileError(AgentStoreError, ValueError):
    """The file is torn, changed or no export; the text names the line. No part of the session there was imported."""


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes: as the JSON that they are, or else in base64."""

    json: msgspec.Raw | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    payload: _Payload


class _Line(msgspec.Struct, forbid_unknown_fields=True, tag_field="line", tag=lambda name: name.lstrip("_").lower()):
    pass


class _Export(_Line):
    format: str


class _Session(_Line):
    namespace: str
    source: str
    session: str
    expires_at: int | None = None
    metadata: _Payload | None = None
    snapshot: _Snapshot | None = None


class _Message(_Line):
    seq: int
    created_at: int
    id: str
    digest: str
    format: str
    payload: _Payload


class _End(_Line):
    messages: int
    checksum: str


class _Last(_Line):
    sessions: int


_AnyLine = _Export | _Session | _Message | _End | _Last
_decoder: msgspec.json.Decoder[_AnyLine] = msgspec.json.Decoder(_AnyLine)
_encoder = msgspec.json.Encoder()


class ExportWriter:
    """Writes sessions one after another to an open binary file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sessions = 0

    async def begin(self) -> None:
        await self._write(_line(_Export(FORMAT)))

    async def add(self, key: SessionKey, whole: Whole) -> None:
        """Write one session; raises what its pages raise, and the file is of no use then."""
        beside = whole.beside
        head = _Session(
            *(key.namespace, key.source_id, key.session_id),
            beside.expires_at,
            _packed(beside.metadata) if beside.metadata is not None else None,
            _Snapshot(beside.snapshot[0], _packed(beside.snapshot[1])) if beside.snapshot else None,
        )
        lines, count = _line(head), 0
        hashed = _new_hash(lines)
        await self._write(lines)
        async for page in whole.pages:
            lines = b"".join([_line(_as_message(record)) for record in page])
            hashed.update(lines)
            count += len(page)
            await self._write(lines)
        await self._write(_line(_End(count, hashed.hexdigest())))
        self._sessions += 1

    async def finish(self) -> None:
        await self._write(_line(_Last(self._sessions)))

    async def _write(self, lines: bytes) -> None:
        await asyncio.to_thread(self._file.write, lines)


class ExportReader:
    """Reads an export from an open binary file, page by page."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []  # those read and not yet looked at, the next one at the end
        self._number = 0
        self._hash = _new_hash(b"")
        self._count = 0
        self._last = 0
        self._open = False

    async def sessions(self) -> AsyncIterator[tuple[SessionKey, Whole]]:
        """Each session, whose pages are read before the next is asked for, or else passed over.

        Raises `ExportFileError`; the pages do so too, at the latest in place of their end.
        """
        await self._begin()
        done = 0
        while isinstance(line := await self._next(), _Session):
            yield self._session(line)
            while self._open:
                await self._page()
            done += 1
        if not isinstance(line, _Last) or line.sessions != done:
            raise self._error(f"the line of a session, or the last one, after {done} sessions, should stand here")
        if self._lines or await self._more():
            self._number += 1
            raise self._error("something stands behind the last line")

    async def _begin(self) -> None:
        self._lines = [await asyncio.to_thread(self._file.readline, _LONGEST_FIRST)]
        if not isinstance(self._lines[0], bytes):
            raise TypeError("an export is read from a file that is open in binary mode")
        first = await self._next()
        if not isinstance(first, _Export):
            raise self._error(f"it does not begin as an export ({FORMAT})")
        if first.format != FORMAT:
            raise self._error(f"the form {first.format!r} is not known to this version of agentstore: upgrade it")

    def _session(self, line: _Session) -> tuple[SessionKey, Whole]:
        self._open, self._count, self._last = True, 0, 0
        try:
            key = SessionKey(line.namespace, line.source, line.session)
            metadata = None if line.metadata is None else _unpacked(line.metadata)
            snapshot = None if line.snapshot is None else (line.snapshot.format, _unpacked(line.snapshot.payload))
        except ValueError as error:
            raise self._error(str(error)) from error
        return key, Whole(Beside(metadata, snapshot, line.expires_at), self._pages())

    async def _pages(self) -> Pages:
        while self._open:
            if page := await self._page():
                yield page

    async def _page(self) -> Sequence[StoredRecord]:
        """The next records of the session; at its end, the rest of them, once they are proven whole."""
        page: list[StoredRecord] = []
        size = 0
        while size < _PAGE_BYTES and len(page) < _PAGE_RECORDS:
            hashed = self._hash.hexdigest()
            line = await self._next()
            if isinstance(line, _End):
                if (line.messages, line.checksum) != (self._count, hashed):
                    raise self._error("the session was changed since it was exported: its checksum differs")
                self._open = False
                break
            page.append(self._record(line))
            size += len(page[-1].payload)
            self._count += 1
        return page

    def _record(self, line: _AnyLine) -> StoredRecord:
        if not isinstance(line, _Message):
            raise self._error("a message or the end of the session should stand here")
        try:
            id_hash, digest = bytes.fromhex(line.id), bytes.fromhex(line.digest)
            payload = _unpacked(line.payload)
        except ValueError as error:
            raise self._error(str(error)) from error
        if len(id_hash) != 16 or len(digest) != 16:
            raise self._error("id and digest must be 32 hex digits")
        if not (self._last < line.seq < 2**63 and 0 <= line.created_at < 2**63):
            raise self._error(f"seq {line.seq} and its time do not follow seq {self._last}")
        self._last = line.seq
        return StoredRecord(line.seq, line.created_at, id_hash, digest, line.format, payload)

    async def _next(self) -> _AnyLine:
        self._number += 1
        if not self._lines and not await self._more():
            raise self._error("the file ends here, before its last line: it is torn")
        line = self._lines.pop()
        if line[-1:] != b"\n":
            raise self._error("the file ends within this line: it is torn")
        try:
            found: _AnyLine = _decoder.decode(line)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            raise self._error(f"no line of an export: {error}") from error
        if isinstance(found, _Session):
            self._hash = _new_hash(line)
        else:
            self._hash.update(line)
        return found

    async def _more(self) -> bool:
        self._lines = await asyncio.to_thread(self._read)
        return bool(self._lines)

    def _read(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while size < _PAGE_BYTES and (line := self._file.readline(_LONGEST_LINE)):
            lines.append(line)
            size += len(line)
        return lines[::-1]

    def _error(self, what: str) -> ExportFileError:
        return ExportFileError(f"line {self._number} of the export: {what}")


def _line(line: _AnyLine) -> bytes:
    return _encoder.encode(line) + b"\n"


def _as_message(record: StoredRecord) -> _Message:
    ids = record.id_hash.hex(), record.digest.hex()
    return _Message(record.seq, record.created_at, *ids, record.format, _packed(record.payload))


def _packed(payload: bytes) -> _Payload:
    return _Payload(json=msgspec.Raw(payload)) if _is_json_line(payload) else _Payload(base64=payload)


def _is_json_line(payload: bytes) -> bool:
    """Whether the bytes can stand in a line as they are, and come back as they are."""
    if b"\n" in payload or b"\r" in payload or payload != payload.strip():
        return False
    try:
        msgspec.json.decode(payload)
        if payload.count(b"[") + payload.count(b"{") > _MARGIN:
            msgspec.json.decode(b"[" * _MARGIN + payload + b"]" * _MARGIN)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _unpacked(payload: _Payload) -> bytes:
    if isinstance(payload.json, msgspec.Raw) and payload.base64 is UNSET:
        return bytes(payload.json)
    if isinstance(payload.base64, bytes) and payload.json is UNSET:
        return payload.base64
    raise ValueError("a payload is either json or base64")


def _new_hash(begin: bytes) -> blake2b:
    return blake2b(begin, digest_size=16, person=b"agentstore.exp1")
