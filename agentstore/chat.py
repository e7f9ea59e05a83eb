"""What an agent needs of a model: the protocol of chat clients, and the options that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentstore.errors import AgentStoreError
from agentstore.messages import Content, Message
from agentstore.responses import ChatResponse, ChatResponseUpdate

CHAT_OPTIONS = frozenset(
    {
        "model",
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "seed",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        "tool_choice",
        "allow_multiple_tool_calls",
        "response_format",
        "metadata",
        "user",
        "store",
        "conversation_id",
    }
)
"""The options that every chat client knows by name (it may refuse one that its model cannot do)."""


@runtime_checkable
class ChatClient(Protocol):
    """A model, or what stands for one. It makes one call to the model, and runs no tools itself.

    `messages` is the conversation to answer, instructions first, as a system message; a client must not change them.
    `tools` are `FunctionTool` objects (name, description, `parameters()` as JSON schema), and whatever else the caller
    offered, such as the mapping with which a service's own tool is named. `options` are those of `CHAT_OPTIONS` and
    of the client's `known_options`; with a `conversation_id` in them, the service has the conversation already and
    `messages` holds only what is new. A client whose service keeps conversations says so with `stores_by_default`
    (see `BaseChatClient`).
    """

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The model's answer: at least one message. A call of a tool is a content

        `Content("function_call", call_id=..., name=..., arguments=...)` with the arguments as JSON text or a mapping.
        """
        ...

    def stream_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        """The same answer as it comes. An async generator: closing it gives up the call to the model."""
        ...


def checked_answer(client: object, answer: Any) -> ChatResponse:
    """The client's answer; raises `AgentStoreError` where it is no `ChatResponse` that an agent can go on with."""
    name = type(client).__name__
    messages = getattr(answer, "messages", None)
    if not messages or not all(isinstance(message, Message) for message in messages):
        raise AgentStoreError(
            f"the chat client {name} must answer with a ChatResponse of at least one Message, not with "
            f"{'an empty one' if messages == [] else type(answer).__name__}"
        )
    if not all(_is_named(content) for message in messages for content in message.contents):
        raise AgentStoreError(f"the chat client {name} must give its function_calls a name and a call_id that are text")
    checked: ChatResponse = answer
    return checked


def checked_update(client: object, update: Any) -> ChatResponseUpdate:
    """The client's update; raises `AgentStoreError` where it is none."""
    if not isinstance(update, ChatResponseUpdate):
        raise AgentStoreError(
            f"the chat client {type(client).__name__} must stream ChatResponseUpdates, not {type(update).__name__}"
        )
    return update


def _is_named(content: Content) -> bool:
    if content.type != "function_call":
        return True
    return all(isinstance(content.get(field), str | None) for field in ("name", "call_id"))
