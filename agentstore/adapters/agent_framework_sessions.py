"""`StoreSessionStore`: the sessions of a server's agents, durable on every backend.

Its base class is experimental in the framework, which says so in a warning when this module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any
from uuid import uuid4

from agentstore.errors import CorruptRecordError, MissingDependencyError, UnsupportedValueError
from agentstore.history import SessionHistory
from agentstore.keys import check_id
from agentstore.registry import store_of
from agentstore.store import HistoryStore

try:
    from agent_framework import AgentSession, SessionStore
except ImportError as error:
    raise MissingDependencyError(
        "StoreSessionStore needs an agent-framework-core with a SessionStore: "
        "pip install -U 'agentstore-history[agent-framework]'"
    ) from error

__all__ = ["StoreSessionStore"]

VERSION = "1.0"
"""Of the snapshot, as the framework's own `FileSessionStore` writes it."""


_VERSIONS = "_agentstore_versions"  # on the session: hosts go on with a deep copy of the one that they stored


class StoreSessionStore(SessionStore):
    """A session store of the framework in a store: each session is a snapshot under the source `source_id`.

    What is in a session's `state` is stored through the framework's own codecs (`register_state_type`), beside that
    exactly; a type that it does not know raises `UnsupportedValueError`, and nothing is written. A store with a `ttl`
    lets a session expire that long after its last `set`.

    With `compare_and_set`, `set` raises `ConflictError` where the stored session is not the one that this object, or
    one that it was copied from, was loaded from or last stored as: two continuations of one session cannot overwrite
    each other. A session that was made, not loaded, must then be the first under its id.

    Of a URL it makes a store, which connects on first use and which `aclose` closes; a store given is never closed.
    """

    def __init__(
        self,
        store_or_url: HistoryStore | str,
        *,
        source_id: str = "sessions",
        namespace: str | None = None,
        compare_and_set: bool = False,
    ) -> None:
        """`namespace` is by default the store's."""
        super().__init__()
        self.store, self._owns_store = store_of(store_or_url)
        self.source_id = source_id
        self.namespace = namespace
        self.compare_and_set = compare_and_set
        self._token = uuid4().hex

    def __repr__(self) -> str:
        return f"StoreSessionStore({self.store!r}, source_id={self.source_id!r})"

    @staticmethod
    def validate_session_id(session_id: str) -> None:
        """Raise `ValueError` unless the id is a non-empty str of at most 1,024 bytes in UTF-8."""
        SessionStore.validate_session_id(session_id)
        check_id("session_id", session_id)

    async def get(self, session_id: str) -> AgentSession | None:
        """A new object with what was stored last; `None` where there is nothing.

        Raises `CorruptRecordError` for what cannot be read: broken, of a newer version, or with a state that its
        registered type refuses. It stays in the store.
        """
        found = await self._chat(session_id).load_snapshot()
        if found is None:
            return None
        session = _restored(session_id, found.session)
        self._remember(session, session_id, found.version)
        return session

    async def set(self, session_id: str, session: AgentSession) -> None:
        """Store the session under the id, in place of what is there. A cancelled call finishes its write first.

        Raises `UnsupportedValueError` for a value that cannot be stored, by its path, and for a subclass of
        `AgentSession`; with `compare_and_set`, `ConflictError`. Then nothing was written.
        """
        chat = self._chat(session_id)
        if type(session) is not AgentSession:
            raise UnsupportedValueError(f"only an AgentSession itself can be stored, not {type(session).__name__}")
        expected = self._version(session, session_id) if self.compare_and_set else None
        # An append, though of no message: it also renews the expiry, in the same step.
        done = await chat.append((), snapshot=_snapshot(session), expected_version=expected)
        if done.snapshot_version is not None:
            self._remember(session, session_id, done.snapshot_version)

    async def delete(self, session_id: str) -> None:
        """Remove the session, if it is there."""
        await self._chat(session_id).delete()

    async def aclose(self) -> None:
        """Close the store that was made of a URL; idempotent."""
        if self._owns_store:
            await self.store.aclose()

    async def __aenter__(self) -> StoreSessionStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _chat(self, session_id: str) -> SessionHistory:
        self.validate_session_id(session_id)
        return self.store.session(session_id, source_id=self.source_id, namespace=self.namespace)

    def _remember(self, session: AgentSession, session_id: str, version: int) -> None:
        vars(session).setdefault(_VERSIONS, {})[self._token, session_id] = version

    def _version(self, session: AgentSession, session_id: str) -> int:
        versions: dict[tuple[str, str], int] = vars(session).get(_VERSIONS, {})
        return versions.get((self._token, session_id), 0)


def _snapshot(session: AgentSession) -> dict[str, Any]:
    data = {**session.to_dict(), "version": VERSION}
    if isinstance(service := session.service_session_id, Mapping):
        data["service_session_id"] = dict(service)
    return data


def _restored(session_id: str, data: Any) -> AgentSession:
    where = f"the snapshot of session {session_id!r}"
    if not isinstance(data, Mapping) or data.get("type") != "session":
        raise CorruptRecordError(f"{where} is none of an Agent Framework session")
    if (version := data.get("version")) != VERSION:
        raise CorruptRecordError(f"{where} has version {version!r}, not {VERSION!r}: upgrade agentstore to read it")
    if type(data.get("session_id")) is not str or not isinstance(data.get("state"), dict):
        raise CorruptRecordError(f"{where} needs a 'session_id' that is a str and a 'state' that is an object")
    try:
        return AgentSession.from_dict(dict(data))
    except (TypeError, ValueError) as error:  # of a registered type's decoder, as the framework reports them
        raise CorruptRecordError(f"{where} cannot be restored: {error}") from error
