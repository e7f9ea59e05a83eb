"""A chat client that answers from a script: offline, for tests, demos and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentstore.agent import BaseChatClient
from agentstore.messages import Message
from agentstore.responses import ChatResponse

Step = str | Message | Sequence[Message] | BaseException


class ScriptedChatClient(BaseChatClient):
    """Answers each call with the next step of the script: a text, a message, several messages; an exception is raised.

    Without a script, or behind its end, it repeats the text of the last message. `calls` holds the messages of each
    call. Its answers carry the `conversation_id`, as those of a service that keeps the conversation.
    """

    def __init__(self, script: Iterable[Step] = (), *, conversation_id: str | None = None) -> None:
        self.calls: list[list[Message]] = []
        self._steps = list(script)
        self._conversation_id = conversation_id

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The next step of the script."""
        self.calls.append(list(messages))
        step = self._steps.pop(0) if self._steps else _echo(messages)
        if isinstance(step, BaseException):
            raise step
        return ChatResponse(Message("assistant", [step]) if isinstance(step, str) else step, self._conversation_id)


def _echo(messages: Sequence[Message]) -> str:
    return messages[-1].text if messages else ""
