"""The gate before every call: is the store open, is its schema there, can the backend do this."""

from __future__ import annotations

from typing import TypeVar

from agentstore.backend import Log
from agentstore.errors import ClosedError, ConfigurationError
from agentstore.settle import settled

Ability = TypeVar("Ability")


class Gate:
    """One per store; holds the backend."""

    def __init__(self, backend: Log, *, auto_setup: bool) -> None:
        self.backend = backend
        self._auto_setup = auto_setup
        self._closed = False
        self._ready = False

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._closed:
            raise ClosedError("the store is closed: open a new one")

    def able(self, ability: type[Ability], method: str) -> Ability:
        """The backend as one that has the ability; raises `ConfigurationError` naming what it lacks."""
        self.check_open()
        if not isinstance(self.backend, ability):
            name = type(self.backend).__name__
            raise ConfigurationError(f"{method} needs a backend with the ability {ability.__name__}; {name} lacks it")
        return self.backend

    async def readable(self) -> bool:
        """Whether there is anything to read; `False` before set-up. An older schema is brought up to date."""
        self.check_open()
        if not self._ready:
            readiness = await self.backend.readiness()
            if readiness == "outdated":
                await self.writable()
            self._ready = readiness != "absent"
        self.check_open()
        return self._ready

    async def writable(self) -> None:
        """Make sure that a write finds everything there; raises `ConfigurationError` where it may not be made."""
        self.check_open()
        if self._ready:
            return
        readiness = await self.backend.readiness()
        if readiness != "ready":
            if not self._auto_setup:
                what = "is not set up" if readiness == "absent" else "has an older schema"
                raise ConfigurationError(f"the store {what}, and auto_setup is off: call setup() once, at deployment")
            await self.setup()
        self._ready = True
        self.check_open()

    async def setup(self) -> None:
        """Create or migrate what is missing."""
        self.check_open()
        await settled(self.backend.setup())
        self._ready = True

    async def ping(self) -> None:
        self.check_open()
        await self.backend.ping()

    async def close(self) -> None:
        self._closed = True
        await settled(self.backend.aclose())
