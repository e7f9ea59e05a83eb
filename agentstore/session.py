"""What an agent run carries: the session with its state, and the context that providers fill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from agentstore.messages import plain


class AgentSession:
    """One conversation as the agent sees it: its ids and its state, which providers and users share.

    `state` holds plain values and messages; `to_dict` and `from_dict` carry the whole session across processes.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        service_session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._session_id = session_id or str(uuid4())
        self.service_session_id = service_session_id
        self.state: dict[str, Any] = dict(state or {})

    @property
    def session_id(self) -> str:
        """The conversation's own id: given, or made at random. It never changes."""
        return self._session_id

    def to_dict(self) -> dict[str, Any]:
        """The session as a new dict of plain values; messages in the state become dicts."""
        return {name: plain(value) for name, value in self.shape().items()}

    def shape(self) -> dict[str, Any]:
        """The dict of `to_dict` with the session's own state in it: for reading only."""
        return {
            "type": "session",
            "session_id": self._session_id,
            "service_session_id": self.service_session_id,
            "state": self.state,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentSession:
        """The session that `to_dict` described; raises `ValueError` where the mapping is no session."""
        session_id: Any = data.get("session_id")
        state: Any = data.get("state")
        if not isinstance(session_id, str) or not session_id:
            raise ValueError("a session needs a 'session_id' that is a non-empty str")
        if not isinstance(state, Mapping | None):
            raise ValueError("a session's 'state' must be a mapping")
        return cls(session_id=session_id, service_session_id=data.get("service_session_id"), state=state)

    def __repr__(self) -> str:
        return f"AgentSession(session_id={self._session_id!r}, service_session_id={self.service_session_id!r})"
