"""Faults that the sentences about agreement with the model catch."""

from __future__ import annotations

from agentstore import (
    SessionKey,
)
from kit_faults.stage import (
    Model,
    fault,
    in_memory,
)


@fault("it_agrees_with_the_model")
class DroppingTheOldestDropsTheSnapshot(Model):
    async def truncate(self, key: SessionKey, *, after: int | None = None, before: int | None = None) -> int:
        if before is not None and (session := in_memory(self, key)):
            session.snapshot = None
        return await super().truncate(key, after=after, before=before)
