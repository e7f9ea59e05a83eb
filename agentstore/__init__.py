"""One durable conversation history for every Python agent.

from agentstore import Message, open_store

async with open_store("sqlite:///chat.db", namespace="acme") as store:
    chat = store.session("user-42")
    await chat.append([Message("user", ["hi"]), Message("assistant", ["hello"])])
    recent = await chat.messages(limit=20)
"""

from agentstore.agent import Agent, ChatClient
from agentstore.clients.scripted import ScriptedChatClient
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
from agentstore.history_providers import InMemoryHistoryProvider, StoreHistoryProvider
from agentstore.keys import SessionKey
from agentstore.messages import Content, Message
from agentstore.providers import BaseContextProvider, BaseHistoryProvider, HistoryProvider
from agentstore.registry import backend_names, load_backend, open_store
from agentstore.responses import AgentResponse, ChatResponse
from agentstore.session import AgentSession, ProviderSessionState, SessionContext
from agentstore.shapes import Appended, SessionInfo, SessionPage, Snapshot, StoredMessage
from agentstore.store import HistoryStore

__all__ = [
    "Agent",
    "AgentResponse",
    "AgentSession",
    "AgentStoreError",
    "Appended",
    "BaseContextProvider",
    "BaseHistoryProvider",
    "ChatClient",
    "ChatResponse",
    "ClosedError",
    "Codec",
    "ConfigurationError",
    "ConflictError",
    "Content",
    "CorruptRecordError",
    "HistoryProvider",
    "HistoryStore",
    "InMemoryHistoryProvider",
    "Message",
    "MissingDependencyError",
    "PayloadTooLargeError",
    "ProviderSessionState",
    "SaveError",
    "ScriptedChatClient",
    "SessionContext",
    "SessionHistory",
    "SessionInfo",
    "SessionKey",
    "SessionPage",
    "Snapshot",
    "StorageError",
    "StoreHistoryProvider",
    "StoredMessage",
    "UnavailableError",
    "UnknownBackendError",
    "UnsupportedValueError",
    "backend_names",
    "load_backend",
    "open_store",
]
