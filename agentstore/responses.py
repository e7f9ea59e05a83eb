"""What a chat client and an agent answer with: whole, or update by update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from agentstore.merging import Merger
from agentstore.messages import Content, Message

R = TypeVar("R", bound="ChatResponse")


class ChatResponseUpdate:
    """A part of an answer that is still being streamed.

    `contents` continue the message that the updates before began, unless `message_id`, `role` or `author_name` is
    another one. A function call's arguments may come in pieces of text under one `call_id` (later pieces without one
    belong to the newest call). A content of the type `usage`, with `usage_details`, counts tokens.
    """

    def __init__(
        self,
        *,
        contents: Iterable[Content | str | Mapping[str, Any]] | Content | str | None = None,
        role: str | None = None,
        author_name: str | None = None,
        message_id: str | None = None,
        response_id: str | None = None,
        conversation_id: str | None = None,
        model: str | None = None,
        finish_reason: str | None = None,
        additional_properties: Mapping[str, Any] | None = None,
        raw_representation: Any = None,
    ) -> None:
        """`conversation_id` is the service's own: send it as early as it is known.

        `additional_properties` are those of the message.
        """
        self.contents: list[Content] = Message("assistant", contents).contents
        self.role = role
        self.author_name = author_name
        self.message_id = message_id
        self.response_id = response_id
        self.conversation_id = conversation_id
        self.model = model
        self.finish_reason = finish_reason
        self.additional_properties = dict(additional_properties or {})
        self.raw_representation = raw_representation

    @property
    def text(self) -> str:
        """The text contents as they follow each other."""
        return "".join([content.get("text") or "" for content in self.contents if content.type == "text"])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.contents!r})"


class AgentResponseUpdate(ChatResponseUpdate):
    """A part of what a streamed run of an agent adds: also its tools' results, with the role `tool`."""

    @classmethod
    def of(cls, update: ChatResponseUpdate) -> AgentResponseUpdate:
        """The chat client's update as the agent's."""
        made = cls.__new__(cls)
        made.__dict__.update(update.__dict__)
        return made


class ChatResponse:
    """The messages with which a model answered one call."""

    def __init__(
        self,
        messages: Message | Iterable[Message],
        conversation_id: str | None = None,
        *,
        response_id: str | None = None,
        model: str | None = None,
        finish_reason: str | None = None,
        usage_details: Mapping[str, int] | None = None,
        raw_representation: Any = None,
    ) -> None:
        """`conversation_id` is the service's own, where the service keeps the conversation.

        `usage_details` counts tokens: `input_token_count`, `output_token_count`, `total_token_count`, and more.
        """
        self.messages: list[Message] = [messages] if isinstance(messages, Message) else list(messages)
        self.conversation_id = conversation_id
        self.response_id = response_id
        self.model = model
        self.finish_reason = finish_reason
        self.usage_details: dict[str, int] = dict(usage_details or {})
        self.raw_representation = raw_representation

    @classmethod
    def from_updates(cls: type[R], updates: Iterable[ChatResponseUpdate]) -> R:
        """The whole answer that was streamed in these updates; see `Merger`."""
        given = list(updates)
        merger = Merger(given)
        response = cls(merger.messages, usage_details=merger.usage_details)
        for update in given:
            for name in ("conversation_id", "response_id", "model", "finish_reason"):
                setattr(response, name, getattr(update, name) or getattr(response, name))
        return response

    def to_updates(self) -> list[ChatResponseUpdate]:
        """The answer as updates, one for each message; `from_updates` makes an equal answer of them.

        A message without id gets one in its update: that is what keeps it apart from the next.
        """
        updates = [
            ChatResponseUpdate(
                contents=message.contents,
                role=message.role,
                author_name=message.author_name,
                message_id=message.message_id or uuid4().hex,
                additional_properties=message.additional_properties,
            )
            for message in self.messages
        ]
        usage = Content("usage", usage_details=self.usage_details)
        last = ChatResponseUpdate(
            contents=[usage] if self.usage_details else [],
            conversation_id=self.conversation_id,
            response_id=self.response_id,
            model=self.model,
            finish_reason=self.finish_reason,
        )
        return [*updates, last]

    @property
    def text(self) -> str:
        """The texts of the messages, joined with a newline; a message without text adds nothing."""
        return "\n".join([message.text for message in self.messages if message.text])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.messages!r})"


class AgentResponse(ChatResponse):
    """The messages that one run of an agent added after its input: the model's, and the results of its tools."""

    @property
    def user_input_requests(self) -> list[Content]:
        """The approvals that the run waits for; see `agentstore.approvals.approval_response`."""
        contents = [content for message in self.messages for content in message.contents]
        return [content for content in contents if content.type == "function_approval_request"]
