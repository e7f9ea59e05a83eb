"""What asyncpg raises, as errors of ours: by SQLSTATE, and by whether an answer came at all."""

from __future__ import annotations

import asyncio

import asyncpg

from agentstore.errors import AgentStoreError, ConfigurationError, PayloadTooLargeError, StorageError, UnavailableError

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, asyncio.TimeoutError)

# Beginnings of SQLSTATEs: https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = ("08", "57P", "25P03", "25P04")
_NOT_NOW = ("25006", "40", "53", "55", "57", "58")
_SET_UP_WRONG = {
    "28": "check user and password",
    "3D000": "create the database",
    "3F000": "create the schema, or name another with schema=",
    "42501": "grant what docs/postgres.md names",
    "42703": "what is there is not agentstore's; name another prefix=",
    "42704": "check its options",
    "42804": "what is there is not agentstore's; name another prefix=",
    "42809": "what is there is not agentstore's; name another prefix=",
    "42883": "call setup()",
    "42P01": "call setup()",
    "42P06": "name another schema=",
    "42P07": "what is there is not agentstore's; name another prefix=",
    "42710": "what is there is not agentstore's; name another prefix=",
    "42723": "what is there is not agentstore's; name another prefix=",
}


def is_doubtful(error: BaseException | None) -> bool:
    """Whether other connections to the same server may be as useless: it is gone, or after a failover no primary."""
    return was_lost(error) or isinstance(error, asyncpg.ReadOnlySQLTransactionError)


def was_never_sent(error: asyncpg.InternalClientError) -> bool:
    """Whether the server had ended the connection while nobody used it."""
    return str(error).startswith("cannot switch to state")


def was_lost(error: BaseException | None) -> bool:
    """Whether the connection ended, or was given up, without an answer to what was asked."""
    if isinstance(error, asyncpg.PostgresError):
        return _state(error).startswith(_LOST)
    return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, asyncio.TimeoutError))


def translated(error: Exception, *, maybe_done: bool) -> AgentStoreError:
    """Our error for the driver's; `maybe_done` says what a lost answer would mean."""
    if isinstance(error, asyncio.TimeoutError):
        return UnavailableError("PostgreSQL did not answer in time", maybe_done=maybe_done)
    if isinstance(error, asyncpg.DataError) or not isinstance(error, (asyncpg.InternalClientError, *DRIVER_ERRORS)):
        return StorageError(f"PostgreSQL: {error}")
    if was_lost(error):
        return UnavailableError(f"PostgreSQL cannot be reached: {_text(error)}", maybe_done=maybe_done)
    return _answered(error)


def _answered(error: Exception) -> AgentStoreError:
    state, text = _state(error), _text(error)
    for beginning, remedy in _SET_UP_WRONG.items():
        if state.startswith(beginning):
            return ConfigurationError(f"PostgreSQL: {text}; {remedy}")
    if state.startswith("54"):
        return PayloadTooLargeError(f"PostgreSQL: {text}; nothing was written")
    if state.startswith(_NOT_NOW):
        return UnavailableError(f"PostgreSQL: {text}")
    return StorageError(f"PostgreSQL: {text}")


def _state(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _text(error: Exception) -> str:
    # Not its detail, which may show a row.
    message = getattr(error, "message", None) or str(error)
    return message or type(error).__name__
