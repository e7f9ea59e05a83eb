"""One durable conversation history for every Python agent.

from agentstore import Message, open_store

async with open_store("sqlite:///chat.db", namespace="acme") as store:
    chat = store.session("user-42")
    await chat.append([Message("user", ["hi"]), Message("assistant", ["hello"])])
    recent = await chat.messages(limit=20)
"""

from agentstore.agent import Agent
from agentstore.chat import ChatClient
from agentstore.clients.base import BaseChatClient
from agentstore.clients.scripted import ScriptedChatClient
from agentstore.codec import Codec
from agentstore.compaction import Compacted, compact
from agentstore.errors import (
    AgentStoreError,
    ChatClientError,
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
from agentstore.middleware import (
    ChatContext,
    ChatMiddleware,
    FunctionInvocationContext,
    FunctionMiddleware,
    MiddlewareFailure,
    MiddlewareTermination,
    chat_middleware,
    function_middleware,
)
from agentstore.providers import BaseContextProvider, BaseHistoryProvider, HistoryProvider
from agentstore.reducers import keep_newest, summarize
from agentstore.registry import backend_names, load_backend, open_store
from agentstore.responses import AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate
from agentstore.session import AgentSession, ProviderSessionState, SessionContext
from agentstore.shapes import Appended, SessionInfo, SessionPage, Snapshot, StoredMessage
from agentstore.store import HistoryStore
from agentstore.streaming import ResponseStream
from agentstore.tools import FunctionTool, tool

__all__ = [
    "Agent",
    "AgentResponse",
    "AgentResponseUpdate",
    "AgentSession",
    "AgentStoreError",
    "Appended",
    "BaseChatClient",
    "BaseContextProvider",
    "BaseHistoryProvider",
    "ChatClient",
    "ChatClientError",
    "ChatContext",
    "ChatMiddleware",
    "ChatResponse",
    "ChatResponseUpdate",
    "ClosedError",
    "Codec",
    "Compacted",
    "ConfigurationError",
    "ConflictError",
    "Content",
    "CorruptRecordError",
    "FunctionInvocationContext",
    "FunctionMiddleware",
    "FunctionTool",
    "HistoryProvider",
    "HistoryStore",
    "InMemoryHistoryProvider",
    "Message",
    "MiddlewareFailure",
    "MiddlewareTermination",
    "MissingDependencyError",
    "PayloadTooLargeError",
    "ProviderSessionState",
    "ResponseStream",
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
    "chat_middleware",
    "compact",
    "function_middleware",
    "keep_newest",
    "load_backend",
    "open_store",
    "summarize",
    "tool",
]
