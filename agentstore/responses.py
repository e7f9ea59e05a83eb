"""What a chat client and an agent answer with."""

from __future__ import annotations

from collections.abc import Iterable

from agentstore.messages import Message


class ChatResponse:
    """The messages with which a model answered one call."""

    def __init__(self, messages: Message | Iterable[Message], conversation_id: str | None = None) -> None:
        """`conversation_id` is the service's own, where the service keeps the conversation."""
        self.messages: list[Message] = [messages] if isinstance(messages, Message) else list(messages)
        self.conversation_id = conversation_id

    @property
    def text(self) -> str:
        """The texts of the messages, joined with a newline; a message without text adds nothing."""
        return "\n".join([message.text for message in self.messages if message.text])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.messages!r})"


class AgentResponse(ChatResponse):
    """The messages that one run of an agent added after its input."""
