"""The Chat Completions interface: the whole conversation is sent each time. Every compatible server has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from agentstore.clients.openai_errors import nothing_said
from agentstore.clients.openai_parts import (
    arguments_text,
    chat_part,
    encodable,
    own,
    properties,
    result_text,
    said,
    sendable,
)
from agentstore.errors import ChatClientError, ConfigurationError
from agentstore.messages import Content, Message
from agentstore.responses import ChatResponse, ChatResponseUpdate

OPTIONS = frozenset(CompletionCreateParamsBase.__annotations__) - {
    "audio",
    "function_call",
    "functions",
    "messages",
    "modalities",
    "n",
    "tools",
}
"""The interface's own options; the others are the client's business, obsolete, or make answers that are no message."""


class ChatCompletions:
    """Calls in the terms of the Chat Completions interface. `service` names who made an answer."""

    options = OPTIONS

    def __init__(self, service: str) -> None:
        self._service = service

    def request(self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of `chat.completions.create`; raises `ConfigurationError` for a conversation of a service's."""
        if "conversation_id" in options:
            raise ConfigurationError(
                "Chat Completions keeps no conversation: a session with a service_session_id needs mode='responses'"
            )
        items = [item for message in messages for item in self._items_of(message)]
        request = {**options, "messages": encodable(items)}
        if "allow_multiple_tool_calls" in request:
            request["parallel_tool_calls"] = request.pop("allow_multiple_tool_calls")
        if tools:
            request["tools"] = [_tool(tool) for tool in tools]
        return request

    async def create(self, client: AsyncOpenAI, request: Mapping[str, Any]) -> Any:
        """The service's answer, or the stream of its chunks, which ends with the tokens that were used."""
        if request.get("stream"):
            request = {"stream_options": {"include_usage": True}, **request}
        return await client.chat.completions.create(**request)

    def answer(self, completion: Any, request: Mapping[str, Any]) -> ChatResponse:
        """The whole answer. Raises `ChatClientError` where there is none."""
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise ChatClientError("the service answered with no completion: is base_url that of such an interface?")
        choice = completion.choices[0]
        reason = getattr(choice, "finish_reason", None)
        message = Message("assistant", self._contents(choice.message), raw_representation=completion)
        if not message.contents:
            raise nothing_said(reason)
        return ChatResponse(
            message,
            response_id=getattr(completion, "id", None),
            model=getattr(completion, "model", None),
            finish_reason=reason,
            usage_details=_usage(completion.usage),
            raw_representation=completion,
        )

    def reader(self, request: Mapping[str, Any]) -> ChunkReader:
        """What makes updates of a stream's chunks."""
        return ChunkReader(self._service)

    def _contents(self, message: Any) -> list[Content]:
        contents = _texts(message, self._service)
        for note in message.annotations or ():
            if contents and contents[-1].type == "text":
                known = contents[-1].get("annotations") or []
                contents[-1].annotations = [*known, note.model_dump(mode="json", exclude_none=True)]
        return contents + [
            _call(getattr(call, "id", None), call.function.name, call.function.arguments) for call in _calls(message)
        ]

    def _items_of(self, message: Message) -> list[dict[str, Any]]:
        if message.role == "assistant":
            return _answer_items(said(message, "function_call"), self._service)
        if message.role == "tool":
            results = [content for content in message.contents if content.type == "function_result"]
            return [{"role": "tool", "tool_call_id": c.get("call_id"), "content": result_text(c)} for c in results]
        if message.role not in ("user", "system", "developer"):
            raise ConfigurationError(f"Chat Completions knows no role {message.role!r}")
        parts = [chat_part(content) for content in sendable(message)]
        return [{"role": message.role, "content": _plainly(parts)}] if parts else []


class ChunkReader:
    """Makes updates of the chunks of one streamed completion: texts as they come, the calls at the end, whole."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._calls: list[_Begun] = []
        self._reason: str | None = None
        self._said = False

    def read(self, chunk: Any) -> Iterator[ChatResponseUpdate]:
        """The updates, if any, that the chunk brings."""
        contents: list[Content] = []
        reason = None
        for choice in (chunk.choices or ())[:1]:
            contents += _texts(choice.delta, self._service)
            self._collect(choice.delta.tool_calls or ())
            if (reason := choice.finish_reason) is not None:
                self._reason = reason
                contents += self._whole_calls()
            self._said = self._said or bool(contents)
        if usage := _usage(chunk.usage):
            contents.append(Content("usage", usage_details=usage))
        if contents or reason:
            yield ChatResponseUpdate(
                contents=contents,
                role="assistant",
                response_id=getattr(chunk, "id", None),
                model=getattr(chunk, "model", None),
                finish_reason=reason,
                raw_representation=chunk,
            )

    def end(self) -> None:
        """Call behind the last chunk. Raises `ChatClientError` where there is no whole answer."""
        if self._reason is None:
            raise ChatClientError("the service's stream ended before its answer did")
        if not self._said:
            raise nothing_said(self._reason)

    def _collect(self, pieces: Sequence[Any]) -> None:
        for piece in pieces:
            call = self._call_of(piece)
            call.call_id = call.call_id or piece.id
            if piece.function is not None:
                call.name = call.name or piece.function.name
                call.arguments += piece.function.arguments or ""

    def _call_of(self, piece: Any) -> _Begun:
        for call in reversed(self._calls):
            # Some servers count every call as the first one: an id of its own makes it another.
            if call.index == piece.index and (not piece.id or not call.call_id or call.call_id == piece.id):
                return call
        begun = _Begun(piece.index)
        self._calls.append(begun)
        return begun

    def _whole_calls(self) -> list[Content]:
        calls, self._calls = self._calls, []
        return [_call(call.call_id, call.name, call.arguments) for call in calls]


@dataclass
class _Begun:
    """A call of which some pieces have come."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


def _texts(message: Any, service: str) -> list[Content]:
    """Reasoning, text and refusal, of a message or of a piece of one."""
    reasoning = getattr(message, "reasoning_content", None)  # not OpenAI's own, but many compatible servers'
    contents = [Content("text_reasoning", text=reasoning)] if isinstance(reasoning, str) and reasoning else []
    if message.content:
        contents.append(Content("text", text=message.content))
    if message.refusal:
        refused = properties(service, refusal=True)
        contents.append(Content("text", text=message.refusal, additional_properties=refused))
    return contents


def _calls(message: Any) -> list[Any]:
    calls = list(message.tool_calls or ())
    if other := [call.type for call in calls if call.type not in (None, "function")]:
        raise ChatClientError(f"the model called a tool of the kind {other[0]!r}, which this client does not know")
    return calls


def _call(call_id: str | None, name: str | None, arguments: str | None) -> Content:
    # A call needs an id for its result; a few compatible servers give none.
    return Content("function_call", call_id=call_id or f"call_{uuid4().hex}", name=name, arguments=arguments or "")


def _answer_items(contents: Sequence[Content], service: str) -> list[dict[str, Any]]:
    refusals = [
        content for content in contents if content.type == "text" and (own(content, service) or {}).get("refusal")
    ]
    texts = [content for content in contents if content.type == "text" and content not in refusals]
    parts = [chat_part(content) for content in texts if content.get("text")]
    calls = [
        {
            "id": content.get("call_id"),
            "type": "function",
            "function": {"name": content.get("name"), "arguments": arguments_text(content)},
        }
        for content in contents
        if content.type == "function_call"
    ]
    item: dict[str, Any] = {"role": "assistant", "content": _plainly(parts) if parts else None}
    if calls:
        item["tool_calls"] = calls
    if refusals:
        item["refusal"] = "".join([content.get("text") or "" for content in refusals])
    return [item] if parts or calls or refusals else []


def _plainly(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One text as a plain text, which every server knows."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _tool(tool: Any) -> dict[str, Any]:
    spec: Mapping[str, Any] = tool if isinstance(tool, Mapping) else tool.to_json_schema_spec()
    return dict(spec)


def _usage(usage: Any) -> dict[str, int]:
    if usage is None:
        return {}
    counted = {
        "input_token_count": usage.prompt_tokens,
        "output_token_count": usage.completion_tokens,
        "total_token_count": usage.total_tokens,
        "openai.cached_input_tokens": getattr(usage.prompt_tokens_details, "cached_tokens", None),
        "openai.reasoning_tokens": getattr(usage.completion_tokens_details, "reasoning_tokens", None),
    }
    return {name: count for name, count in counted.items() if count is not None}
