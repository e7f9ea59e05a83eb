"""The answers to a session's last appends, in its row: so that to remember one is no write of its own.

36 bytes a call, call number `n` at place `n % 32`: token, first seq, how many were written, snapshot version. A first
seq of 0 says that the seqs do not count up, as of a batch that was partly there: then they have a row in `answer`.
"""

from __future__ import annotations

import sqlite3
import struct

import msgspec

from agentstore.backend import ANSWERS_KEPT, Written
from agentstore_sqlite_rows import Found

SEQS = "SELECT seqs FROM answer WHERE session = ? AND slot = ?"
SAVE_SEQS = "INSERT OR REPLACE INTO answer (session, slot, seqs) VALUES (?, ?, ?)"

_ENTRY = struct.Struct(">16sqiq")


def noted(answers: bytes, call: int, token: bytes, first: int, written: int, version: int) -> bytes:
    """The answers with that of one more call."""
    start = call % ANSWERS_KEPT * _ENTRY.size
    return answers[:start] + _ENTRY.pack(token, first, written, version) + answers[start + _ENTRY.size :]


def note(connection: sqlite3.Connection, found: Found, token: bytes, answer: Written) -> bytes:
    """The same, for any answer."""
    first = found.last_seq + 1
    if answer.written < len(answer.seqs):
        first = 0
        connection.execute(SAVE_SEQS, (found.id, found.calls % ANSWERS_KEPT, msgspec.msgpack.encode(answer.seqs)))
    return noted(found.answers, found.calls, token, first, answer.written, answer.snapshot_version)


def remembered(connection: sqlite3.Connection, found: Found, token: bytes) -> Written | None:
    """The answer to the call, if it is one of the last."""
    for slot, (known, first, written, version) in enumerate(_ENTRY.iter_unpack(found.answers)):
        if known != token:
            continue
        if first:
            return Written(list(range(first, first + written)), written, version)
        (seqs,) = connection.execute(SEQS, (found.id, slot)).fetchone()
        return Written(msgspec.msgpack.decode(seqs, type=list[int]), written, version)
    return None
