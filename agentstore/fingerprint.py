"""Which providers a session was kept with: restored under others, it is not the same conversation any more."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from agentstore.session import AgentSession

_logger = logging.getLogger("agentstore")


def fingerprint(providers: Sequence[Any]) -> list[str]:
    """The providers in their order, each as `source_id:ClassName`."""
    return [f"{provider.source_id}:{type(provider).__name__}" for provider in providers]


def recognise(session: AgentSession, providers: Sequence[Any]) -> None:
    """Record the providers in the session; log a warning where a restored one was kept with others."""
    own = fingerprint(providers)
    if session.restored and session.providers is not None and session.providers != own:
        _logger.warning(
            "session %r was kept by an agent with the providers [%s] and goes on with [%s]: what they keep in its "
            "state, or beside it, may be missing",
            session.session_id,
            ", ".join(session.providers),
            ", ".join(own),
        )
    session.providers = own
    session.restored = False
