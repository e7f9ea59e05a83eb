"""A chat client that answers from a script: offline, for tests, demos and examples."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentstore.clients.base import BaseChatClient
from agentstore.messages import Content, Message
from agentstore.responses import ChatResponse, ChatResponseUpdate

Step = str | Message | Sequence[Message] | BaseException


class ScriptedChatClient(BaseChatClient):
    """Answers each call with the next step of the script: a text, a message, several messages; an exception is raised.

    A message with a content `function_call` calls a tool. Streamed, a text comes word by word, and a call's name before
    its arguments. Without a script, or behind its end, the text of the newest message is repeated. `calls` holds the
    messages of each call. All answers carry the `conversation_id`, as those of a service that keeps the conversation.
    """

    def __init__(self, script: Iterable[Step] = (), *, conversation_id: str | None = None) -> None:
        self.calls: list[list[Message]] = []
        self._steps = list(script)
        self._conversation_id = conversation_id
        self.stores_by_default = conversation_id is not None

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The next step of the script."""
        self.calls.append(list(messages))
        step = self._steps.pop(0) if self._steps else _echo(messages)
        if isinstance(step, BaseException):
            raise step
        return ChatResponse(Message("assistant", [step]) if isinstance(step, str) else step, self._conversation_id)

    async def stream_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        """The same step in pieces, in an update each."""
        response = await self.get_response(messages, tools=tools, options=options)
        for whole in response.to_updates():
            for contents in _pieces(whole.contents):
                piece = copy.copy(whole)
                piece.contents = contents
                piece.conversation_id = response.conversation_id
                yield piece


def _echo(messages: Sequence[Message]) -> str:
    return messages[-1].text if messages else ""


def _pieces(contents: list[Content]) -> list[list[Content]]:
    """The contents in several updates that become the same message again."""
    calls = [content.get("call_id") or "" for content in contents if content.type == "function_call"]
    joined = any(one.type == other.type in ("text", "text_reasoning") for one, other in pairwise(contents))
    if joined or len({"", *calls}) <= len(calls):
        return [contents]  # in pieces two texts would be one, and so would two calls under one id
    return [[part] for content in contents for part in _parts(content)] or [[]]


def _parts(content: Content) -> list[Content]:
    fields = content.to_dict()
    if fields.keys() == {"type", "text"} and content.type == "text":
        return [Content("text", text=word) for word in re.findall(r"\S*\s*", content.text) if word] or [content]
    arguments = content.get("arguments")
    if content.type != "function_call" or not isinstance(arguments, str):
        return [content]
    called = Content.from_dict({**fields, "arguments": ""})
    return [called, Content("function_call", call_id=content.get("call_id"), name="", arguments=arguments)]
