"""Snapshots in stored form: an `AgentSession`, or a plain mapping of an adapter's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentstore import values
from agentstore.backend import Limits, SnapshotWrite, StoredSnapshot
from agentstore.batch import check_size
from agentstore.errors import UnsupportedValueError
from agentstore.session import AgentSession

SESSION_FORMAT = "agentstore.session/1"
MAPPING_FORMAT = "agentstore.mapping/1"
_KNOWN = frozenset({SESSION_FORMAT, MAPPING_FORMAT})


def encode(session: AgentSession | Mapping[str, Any], expected_version: int | None, limits: Limits) -> SnapshotWrite:
    """The snapshot to be saved; raises `UnsupportedValueError` or `PayloadTooLargeError`."""
    if isinstance(session, AgentSession):
        format, data = SESSION_FORMAT, session.shape()
    elif isinstance(session, Mapping):
        format, data = MAPPING_FORMAT, dict(session)
    else:
        raise UnsupportedValueError(f"a snapshot is an AgentSession or a mapping, not {type(session).__name__}")
    payload = values.dump(data)
    check_size(payload, limits, "the snapshot")
    return SnapshotWrite(format, payload, _KNOWN, expected_version)


def decode(stored: StoredSnapshot) -> AgentSession | dict[str, Any]:
    """What was saved; raises `ValueError` for what this version cannot read."""
    if stored.format not in _KNOWN:
        raise ValueError(f"its format {stored.format} is newer or unknown: upgrade agentstore to read it")
    data = values.load(stored.payload)
    if type(data) is not dict:
        raise ValueError("a snapshot must be a JSON object")
    return AgentSession.from_dict(data) if stored.format == SESSION_FORMAT else data
