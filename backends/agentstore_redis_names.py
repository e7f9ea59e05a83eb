"""What keys and values look like: key names, entries of the session index, records."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote, unquote

from agentstore.backend import Record, StoredRecord
from agentstore.errors import ConfigurationError, CorruptRecordError
from agentstore.keys import SessionKey

LAYOUT = b"1"
"""The version that is in every key's name, and under `layout`."""
SHARDS = 16
"""Parts of a namespace's index, each in a slot of its own."""

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_HEAD = struct.Struct(">QQ16s16sB")
_PLACE = struct.Struct(">QQ")
_LONGEST_FORMAT = 255
_COUNTERS_BYTES = 64


class Names:
    """Names of keys, which all begin with `<prefix>:1:`; those of one session share the slot of `{<hash>}`."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigurationError("prefix must be 1 to 200 letters, digits, or any of _ . : / -")
        self._start = f"{prefix}:".encode() + LAYOUT + b":"
        self.layout = self._start + b"layout"
        self.indexes = self._start + b"index:*"
        """The pattern of all index keys."""

    def session(self, key: SessionKey) -> tuple[bytes, bytes, bytes]:
        """Its hash, records and ids."""
        start = self._session(key)
        return start + b"s", start + b"m", start + b"i"

    def burnt(self, key: SessionKey, incarnation: bytes) -> bytes:
        """Is there while an incarnation must not begin any more."""
        return self._session(key) + b"burnt:" + incarnation.hex().encode()

    def staged(self, key: SessionKey, stage: bytes) -> list[bytes]:
        """Records and ids of a restore that is not finished."""
        start = self._session(key) + b"r:" + stage.hex().encode()
        return [start + b":m", start + b":i"]

    def index(self, key: SessionKey) -> bytes:
        """The part of the index in which the session is."""
        return self._shard(key.hash[0] % SHARDS, key.namespace)

    def shards(self, namespace: str) -> list[bytes]:
        """All parts of a namespace's index."""
        return [self._shard(shard, namespace) for shard in range(SHARDS)]

    def namespace(self, index: bytes) -> str:
        """The namespace of an index key."""
        return unquote(index.removeprefix(self.indexes[:-1]).partition(b":")[2].decode())

    def _session(self, key: SessionKey) -> bytes:
        return b"%b{%b}:" % (self._start, key.hash.hex().encode())

    def _shard(self, shard: int, namespace: str) -> bytes:
        return b"%bindex:%d:%b" % (self._start, shard, _quoted(namespace))


@lru_cache(maxsize=1024)
def _quoted(namespace: str) -> bytes:
    return quote(namespace, safe="").encode()


def member(key: SessionKey, incarnation: bytes) -> bytes:
    """The session's entry in the index. Entries sort by source and session; below 0x80, an incarnation ends both."""
    return behind(key.source_id, key.session_id)[:-1] + incarnation


def behind(source_id: str, session_id: str) -> bytes:
    """Sorts behind all entries of that session, and before those of the next."""
    return _escaped(source_id) + b"\0" + _escaped(session_id) + b"\0\x80"


def parse_member(entry: bytes) -> tuple[str, str, bytes]:
    """Source, session and incarnation of an entry."""
    try:
        source, session = re.split(rb"\0(?!\xff)", entry[:-17])
        return _unescaped(source), _unescaped(session), entry[-16:]
    except ValueError as error:
        raise CorruptRecordError("what stands in the index of sessions is not agentstore's") from error


def _escaped(text: str) -> bytes:
    return text.encode().replace(b"\0", b"\0\xff")


def _unescaped(part: bytes) -> str:
    return part.replace(b"\0\xff", b"\0").decode()


def lives(clock: Sequence[bytes], fields: Sequence[bytes | None]) -> bool:
    """Whether the session with these `inc` and `n` exists, by the server's `TIME`."""
    incarnation, counters = fields
    if incarnation is None:
        return False
    if counters is None or len(counters) != _COUNTERS_BYTES:
        raise CorruptRecordError("what stands in place of the session's counters is not agentstore's")
    expires = int.from_bytes(counters[-8:], "big")
    return not expires or expires > int(clock[0]) * 1_000_000 + int(clock[1])


def packed(record: Record) -> bytes:
    """A record as the scripts get it: the server puts seq and time in front."""
    kind = record.format.encode()
    if len(kind) > _LONGEST_FORMAT:
        raise ConfigurationError(f"the name of a format has at most {_LONGEST_FORMAT} bytes on Redis")
    return b"%b%b%c%b%b" % (record.id_hash, record.digest, len(kind), kind, record.payload)


def packed_whole(record: StoredRecord) -> bytes:
    """A record that has its seq and time already."""
    given = Record(record.id_hash, record.digest, record.format, record.payload)
    return _PLACE.pack(record.seq, record.created_at) + packed(given)


def unpacked(rows: Sequence[bytes]) -> list[StoredRecord]:
    """Records as they are kept."""
    records: list[StoredRecord] = []
    head, unpack = _HEAD.size, _HEAD.unpack_from
    for row in rows:
        if len(row) < head:
            raise CorruptRecordError("what stands between the session's records is not agentstore's")
        seq, created, id_hash, digest, length = unpack(row)
        end = head + length
        records.append(StoredRecord(seq, created, id_hash, digest, text(row[head:end]), row[end:]))
    return records


@lru_cache(maxsize=256)
def text(kind: bytes) -> str:
    """The name of a format; where it is none of ours, one that nobody can read."""
    return kind.decode(errors="replace")
