"""Faults that the sentences about the ids of sessions catch."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Sequence
from typing import Any

from agentstore import (
    HistoryStore,
    SessionHistory,
    SessionKey,
)
from agentstore.backend import (
    StoredInfo,
)
from agentstore.testing.faults import METHODS
from agentstore_memory import MemoryBackend
from kit_faults.stage import (
    Model,
    change_id,
    fault,
)


class Keyed(Model):
    """A backend that files sessions under another key than the given one."""

    def at(self, key: SessionKey) -> SessionKey:
        raise NotImplementedError


def _filed(name: str) -> Any:
    async def method(self: Keyed, key: SessionKey, *args: Any, **options: Any) -> Any:
        return await getattr(MemoryBackend, name)(self, self.at(key), *args, **options)

    return method


for _name in METHODS:
    if "key" in inspect.signature(getattr(MemoryBackend, _name)).parameters:
        setattr(Keyed, _name, _filed(_name))


@fault(
    "session_ids_never_meet",
    "every_id_can_be_listed",
    "every_id_can_be_deleted_alone",
    also=("ties_are_in_the_order_of_keys",),
)
class SessionIdsAreFolded(Keyed):
    def at(self, key: SessionKey) -> SessionKey:
        return SessionKey(key.namespace, key.source_id, key.session_id.casefold()[:1000])


@fault(
    "source_ids_never_meet",
    also=(
        "a_listing_of_a_source_is_exact",
        "every_id_can_be_listed",
    ),
)
class SourceIdsAreTrimmed(Keyed):
    def at(self, key: SessionKey) -> SessionKey:
        return SessionKey(key.namespace, key.source_id.strip() or " ", key.session_id)


@fault("namespaces_never_meet")
class NamespacesAreNormalised(Keyed):
    def at(self, key: SessionKey) -> SessionKey:
        return SessionKey(unicodedata.normalize("NFC", key.namespace), key.source_id, key.session_id)


@fault("joined_parts_never_meet", also=("every_id_can_be_listed",))
class PartsAreJoined(Keyed):
    def at(self, key: SessionKey) -> SessionKey:
        name = f"{key.source_id}:{key.session_id}"
        return (
            key
            if len(name.encode()) > 1024 or ":" not in key.session_id + key.source_id
            else SessionKey(key.namespace, "joined", name)
        )


@fault("every_id_can_be_listed")
class ListingsLeaveOutOddIds(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        return [info for info in await super().list(namespace, **options) if info.key.session_id != "a\x00b"]


@fault("every_id_can_be_deleted_alone")
class DeleteTakesAPrefix(Model):
    async def delete(self, key: SessionKey) -> bool:
        for other in list(self._shared):
            if other.session_id.startswith(key.session_id) and change_id(other, key.session_id) == key:
                await super().delete(other)
        return True


@fault("bad_session_ids_are_refused")
class SessionIdsAreMadeText(HistoryStore):
    def session(self, session_id: Any, **options: Any) -> SessionHistory:
        return super().session(str(session_id), **options)


@fault("bad_source_ids_and_namespaces_are_refused")
class AnEmptySourceIsADefault(HistoryStore):
    def session(self, session_id: Any, *, source_id: Any = "history", **options: Any) -> SessionHistory:
        return super().session(session_id, source_id=source_id or "history", **options)


@fault("a_session_knows_its_key")
class AnotherDefaultSource(HistoryStore):
    def session(self, session_id: Any, *, source_id: Any = "main", **options: Any) -> SessionHistory:
        return super().session(session_id, source_id=source_id, **options)
