"""`HistoryStore`: a backend plus everything that all backends share."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType

from agentstore.backend import Catalog, Checkable, Finding, Log
from agentstore.catalog import read_cursor, session_info, start_after, write_cursor
from agentstore.codec import Codec, MessageCodec
from agentstore.errors import ConfigurationError
from agentstore.gate import Gate
from agentstore.history import OnCorrupt, SessionHistory
from agentstore.keys import SessionKey, check_id
from agentstore.settle import settled
from agentstore.shapes import SessionPage, ttl_microseconds

_DELETE_PAGE = 200


class HistoryStore:
    """One durable store of conversations. Making one does no I/O; it connects on first use.

    Works from several event loops, threads and forked children. `aclose` (or leaving `async with`) closes what it
    opened; afterwards every call raises `ClosedError`.
    """

    def __init__(
        self,
        backend: Log,
        *,
        namespace: str = "default",
        ttl: float | timedelta | None = None,
        auto_setup: bool = True,
        on_corrupt: OnCorrupt = "raise",
    ) -> None:
        """`ttl` in seconds; each append sets the session's expiry to the store's now plus ttl."""
        if not isinstance(backend, Log):
            raise TypeError(
                f"a HistoryStore takes a backend, not {type(backend).__name__}; for a URL use open_store(url)"
            )
        check_id("namespace", namespace)
        if on_corrupt not in ("raise", "skip"):
            raise ValueError("on_corrupt must be 'raise' or 'skip'")
        self.namespace = namespace
        self._ttl = ttl_microseconds(ttl)
        if self._ttl is not None and not isinstance(backend, Catalog):
            raise ConfigurationError(f"ttl needs a backend with the ability Catalog; {type(backend).__name__} lacks it")
        self._on_corrupt: OnCorrupt = on_corrupt
        self._gate = Gate(backend, auto_setup=auto_setup)

    def __repr__(self) -> str:
        return f"HistoryStore({self._gate.backend!r}, namespace={self.namespace!r})"

    async def open(self) -> None:
        """Connect, and see that what is there is ours and not newer; raises `ConfigurationError` if not."""
        await self._gate.readable()

    async def aclose(self) -> None:
        """Close the clients of all event loops; idempotent."""
        await self._gate.close()

    async def __aenter__(self) -> HistoryStore:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def setup(self) -> None:
        """Create or migrate what the backend needs: idempotent, and safe when many processes do it at once."""
        await self._gate.setup()

    async def ping(self) -> None:
        """Raise `UnavailableError` unless the store answers."""
        await self._gate.ping()

    async def check(self) -> list[Finding]:
        """What a crash, a full memory or a full disk would cost, as the backend is set up. Reads only.

        Raises `ConfigurationError` where the backend cannot tell.
        """
        return list(await self._gate.able(Checkable, "check").check())

    def session(
        self,
        session_id: str,
        *,
        source_id: str = "history",
        namespace: str | None = None,
        codec: Codec | None = None,
    ) -> SessionHistory:
        """The history of one session; no I/O. Raises `TypeError` or `ValueError` for a bad id (see `SessionKey`)."""
        self._gate.check_open()
        if codec is not None and not isinstance(codec, Codec):
            raise TypeError(f"a codec has format, encode, decode and assign_id; {type(codec).__name__} has not")
        key = SessionKey(self.namespace if namespace is None else namespace, source_id, session_id)
        return SessionHistory(
            self._gate, key, MessageCodec() if codec is None else codec, ttl=self._ttl, on_corrupt=self._on_corrupt
        )

    async def sessions(
        self,
        *,
        namespace: str | None = None,
        source_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> SessionPage:
        """A page of the sessions in the namespace (`None`: the store's own), newest activity first to the minute.

        A session that is not written meanwhile is listed exactly once over all pages. Raises `ValueError` for a limit
        below 1 or a cursor that no page gave.
        """
        catalog = self._gate.able(Catalog, "sessions")
        namespace = self._checked(namespace)
        if source_id is not None:
            check_id("source_id", source_id)
        if type(limit) is not int or limit < 1:
            raise ValueError(f"limit must be an int of at least 1, not {limit!r}")
        start = None if cursor is None else read_cursor(cursor)
        if not await self._gate.readable():
            return SessionPage([], None)
        # One more than asked for tells whether there is a next page.
        found = await catalog.list(namespace, source_id=source_id, limit=limit + 1, start=start)
        items = [session_info(stored, skip_corrupt=self._on_corrupt == "skip") for stored in found[:limit]]
        return SessionPage(items, write_cursor(start_after(found[limit - 1])) if len(found) > limit else None)

    async def delete_namespace(self, namespace: str) -> int:
        """Delete the namespace's sessions, all sources; returns how many. Not one transaction: one written meanwhile
        may stay.
        """
        catalog = self._gate.able(Catalog, "delete_namespace")
        check_id("namespace", namespace)
        if not await self._gate.readable():
            return 0
        deleted, start = 0, None
        while found := await catalog.list(namespace, source_id=None, limit=_DELETE_PAGE, start=start):
            for stored in found:
                deleted += await settled(catalog.delete(stored.key))
            start = start_after(found[-1])
        await settled(catalog.purge(namespace))
        return deleted

    async def purge_expired(self) -> int:
        """Remove what is left of expired sessions, in all namespaces; returns how many. Not one transaction."""
        catalog = self._gate.able(Catalog, "purge_expired")
        return await settled(catalog.purge(None)) if await self._gate.readable() else 0

    def _checked(self, namespace: str | None) -> str:
        if namespace is None:
            return self.namespace
        check_id("namespace", namespace)
        return namespace
