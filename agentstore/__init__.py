"""One durable conversation history for every Python agent.

from agentstore import Message, open_store

async with open_store("sqlite:///chat.db", namespace="acme") as store:
    chat = store.session("user-42")
    await chat.append([Message("user", ["hi"]), Message("assistant", ["hello"])])
    recent = await chat.messages(limit=20)
"""

from agentstore.codec import Codec
from agentstore.errors import (
    AgentStoreError,
    ClosedError,
    ConfigurationError,
    ConflictError,
    CorruptRecordError,
    MissingDependencyError,
    PayloadTooLargeError,
    SaveError,
    StorageError,
    UnavailableError,
    UnknownBackendError,
    UnsupportedValueError,
)
from agentstore.history import SessionHistory
from agentstore.keys import SessionKey
from agentstore.messages import Content, Message
from agentstore.registry import backend_names, load_backend, open_store
from agentstore.session import AgentSession
from agentstore.shapes import Appended, SessionInfo, SessionPage, Snapshot, StoredMessage
from agentstore.store import HistoryStore

__all__ = [
    "AgentSession",
    "AgentStoreError",
    "Appended",
    "ClosedError",
    "Codec",
    "ConfigurationError",
    "ConflictError",
    "Content",
    "CorruptRecordError",
    "HistoryStore",
    "Message",
    "MissingDependencyError",
    "PayloadTooLargeError",
    "SaveError",
    "SessionHistory",
    "SessionInfo",
    "SessionKey",
    "SessionPage",
    "Snapshot",
    "StorageError",
    "StoredMessage",
    "UnavailableError",
    "UnknownBackendError",
    "UnsupportedValueError",
    "backend_names",
    "load_backend",
    "open_store",
]
