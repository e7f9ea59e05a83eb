"""Results that a conversation of the service's still waits for: it takes nothing new before it has them."""

from __future__ import annotations

from agentstore.messages import Message
from agentstore.session import AgentSession

STATE = "agentstore.owed"
"""Where a session's state has the results, by the service's id of the conversation."""


def owe(session: AgentSession, results: Message) -> None:
    """Keep the results for the next input to the conversation where the session is now."""
    if isinstance(session.service_session_id, str):
        session.state.setdefault(STATE, {})[session.service_session_id] = results.to_dict()


def owed(session: AgentSession) -> list[Message]:
    """What has to go out before the next input."""
    kept = session.state[STATE].get(session.service_session_id) if STATE in session.state else None
    return [] if kept is None else [Message.from_dict(kept)]


def paid(session: AgentSession, conversation_id: str | None) -> None:
    """Forget what this conversation waited for: the service has it."""
    kept = session.state.get(STATE)
    if kept is not None:
        kept.pop(conversation_id, None)
        if not kept:
            del session.state[STATE]
