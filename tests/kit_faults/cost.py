"""Faults that the sentences about cost catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentstore import (
    SessionKey,
)
from agentstore.backend import (
    StoredInfo,
)
from agentstore_memory import MemoryBackend
from kit_faults.stage import (
    Model,
    fault,
    in_memory,
)


def scanning(*names: str) -> type[Model]:
    """A backend in which these methods look at every record."""

    def method(name: str) -> Any:
        async def slow(self: Model, key: SessionKey, *args: Any, **options: Any) -> Any:
            session = in_memory(self, key)
            for _ in session.records if session else ():
                pass
            return await getattr(MemoryBackend, name)(self, key, *args, **options)

        return slow

    return type("Scanning", (Model,), {name: method(name) for name in names})


@fault(
    "an_append_costs_the_same",
    "an_append_with_ids_costs_the_same",
    "a_replay_costs_the_same",
    "an_append_with_a_condition_costs_the_same",
)
class AppendsScan(scanning("append")):  # type: ignore[misc]
    pass


@fault(
    "the_newest_cost_the_same",
    "an_older_window_costs_the_same",
    "the_first_page_costs_the_same",
    also=("a_pop_costs_the_same",),
)
class ReadsScan(scanning("read")):  # type: ignore[misc]
    pass


@fault("a_pop_costs_the_same")
class PopsScan(scanning("remove_newest")):  # type: ignore[misc]
    pass


@fault("an_update_costs_the_same")
class UpdatesScan(scanning("update")):  # type: ignore[misc]
    pass


@fault("info_costs_the_same", also=("an_annotation_costs_the_same",))
class InfoScans(scanning("info")):  # type: ignore[misc]
    pass


@fault("an_annotation_costs_the_same")
class AnnotationsScan(scanning("annotate")):  # type: ignore[misc]
    pass


@fault("a_snapshot_costs_the_same")
class SnapshotsScan(scanning("save_snapshot")):  # type: ignore[misc]
    pass


@fault("a_page_of_the_listing_costs_the_same")
class ListingsScan(Model):
    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        seen = 0
        for key in self._shared:
            for _ in in_memory(self, key).records:
                seen += 1
        return await super().list(namespace, **options)
