"""Middleware: functions around each call of the model and around each call of a tool."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentstore.chat import ChatClient
from agentstore.errors import AgentStoreError, ConfigurationError
from agentstore.messages import Message
from agentstore.responses import ChatResponse, ChatResponseUpdate
from agentstore.streaming import ResponseStream
from agentstore.tools import FunctionTool

if TYPE_CHECKING:
    from agentstore.session import AgentSession

C = TypeVar("C")
CallNext = Callable[[], Awaitable[None]]


class MiddlewareTermination(AgentStoreError):  # noqa: N818 - the framework's name
    """Raised by middleware or a tool to end the run here, without an error.

    `result` stands for the answer (in chat middleware) or for the tool's result, if it is not `None`.
    """

    def __init__(self, message: str = "the run was ended by middleware", *, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class MiddlewareFailure(AgentStoreError):  # noqa: N818 - the framework's name
    """Raised by function middleware or a tool to fail the run: it is no result that the model gets to see."""


class ChatContext:
    """One call of the model, as chat middleware sees it.

    `messages` (all that the model is to see), `tools` and `options` may be changed before `call_next()`. After it,
    `result` is the `ChatResponse`, or, with `stream`, a `ResponseStream` that nobody has read yet; setting it replaces
    the answer, without `call_next()` the model is not called. `metadata` is for middleware to share.
    """

    def __init__(
        self,
        client: ChatClient,
        messages: Sequence[Message],
        options: Mapping[str, Any] | None = None,
        *,
        tools: Iterable[Any] = (),
        stream: bool = False,
        session: AgentSession | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.messages = list(messages)
        self.options = dict(options or {})
        self.tools = list(tools)
        self.stream = stream
        self.session = session
        self.metadata = dict(metadata or {})
        self.result: ChatResponse | ResponseStream[ChatResponseUpdate, ChatResponse] | None = None


class FunctionInvocationContext:
    """One call of a tool, as function middleware (and a tool with a parameter of this type) sees it.

    `arguments` may be changed before `call_next()`; they are checked by the tool itself. After it, `result` is what
    the function returned; setting it replaces that. `metadata` is for middleware to share.
    """

    def __init__(
        self,
        function: FunctionTool,
        arguments: Mapping[str, Any],
        session: AgentSession | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
    ) -> None:
        self.function = function
        self.arguments: Mapping[str, Any] = dict(arguments)
        self.session = session
        self.metadata = dict(metadata or {})
        self.call_id = call_id
        self.result: Any = None


class ChatMiddleware(ABC):
    """Stands around each call of the model; see `ChatContext`."""

    @abstractmethod
    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Do something, `await call_next()`, do something; or raise `MiddlewareTermination`."""


class FunctionMiddleware(ABC):
    """Stands around each call of a tool; see `FunctionInvocationContext`."""

    @abstractmethod
    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Do something, `await call_next()`, do something; or raise `MiddlewareTermination`."""


F = TypeVar("F", bound=Callable[..., Awaitable[None]])

_KIND = "_agentstore_middleware"
_CONTEXTS = {"ChatContext": "chat", "FunctionInvocationContext": "function"}


def chat_middleware(function: F) -> F:
    """Mark an async function of a `ChatContext` and `call_next` as chat middleware."""
    setattr(function, _KIND, "chat")
    return function


def function_middleware(function: F) -> F:
    """Mark an async function of a `FunctionInvocationContext` and `call_next` as function middleware."""
    setattr(function, _KIND, "function")
    return function


def kind_of(middleware: Any) -> str:
    """`"chat"` or `"function"`: by class, decorator, or the type of the first parameter.

    Raises `ConfigurationError` for what is neither.
    """
    if isinstance(middleware, ChatMiddleware | FunctionMiddleware):
        return "chat" if isinstance(middleware, ChatMiddleware) else "function"
    kind = getattr(middleware, _KIND, None) or _CONTEXTS.get(_first_type(middleware))
    if kind is None:
        raise ConfigurationError(
            f"{middleware!r} is neither chat nor function middleware: use a subclass of ChatMiddleware or "
            "FunctionMiddleware, or mark a function with @chat_middleware or @function_middleware"
        )
    return str(kind)


class Chain(Generic[C]):
    """Middleware of one kind, the first one outermost."""

    def __init__(self, kind: str, middleware: Iterable[Any]) -> None:
        self._steps = [item for item in middleware if kind_of(item) == kind]

    async def run(self, context: C, last: Callable[[C], Awaitable[None]]) -> None:
        """Go through all of it, then do the last thing."""
        await self._step(0, context, last)

    async def _step(self, place: int, context: C, last: Callable[[C], Awaitable[None]]) -> None:
        if place == len(self._steps):
            await last(context)
            return

        async def call_next() -> None:
            await self._step(place + 1, context, last)

        step = self._steps[place]
        await getattr(step, "process", step)(context, call_next)


def _first_type(middleware: Any) -> str:
    try:
        first = next(iter(inspect.signature(middleware).parameters.values()), None)
    except (TypeError, ValueError):  # nothing to call, or a builtin that does not tell
        return ""
    hint = getattr(first, "annotation", "")
    return str(getattr(hint, "__name__", hint)).rpartition(".")[2]
