"""The Responses interface: a conversation that the service keeps, or one that is sent whole each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from agentstore.clients.openai_errors import nothing_said
from agentstore.clients.openai_items import answer_items, item_content, output_item
from agentstore.clients.openai_parts import encodable, properties, response_part, said, sendable
from agentstore.errors import ChatClientError, ConfigurationError
from agentstore.messages import Content, Message
from agentstore.responses import ChatResponse, ChatResponseUpdate

OPTIONS = frozenset(ResponseCreateParamsBase.__annotations__) - {
    "background",
    "background_options",
    "conversation",
    "input",
    "instructions",
    "previous_response_id",
    "tools",
}
"""The interface's own options; the others are the client's business, or are answered later than in one call."""

ENCRYPTED = "reasoning.encrypted_content"
_BROKEN_OFF = {"max_output_tokens": "length", "content_filter": "content_filter"}


class Responses:
    """Calls in the terms of the Responses interface. `service` names whose items may be sent back to it."""

    options = OPTIONS

    def __init__(self, service: str, *, store: bool) -> None:
        self._service = service
        self._store = store

    def request(self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of `responses.create`.

        Instructions go beside the conversation, so that the service does not keep a copy of them for each turn. Where
        it keeps nothing and `reasoning` is an option, it is asked for that in the encrypted form that can be sent back:
        a model that does not reason would refuse. Raises `ConfigurationError` for a conversation that the service
        keeps, where it is not to keep this turn.
        """
        instructions, rest = _split(messages)
        request = {"store": self._store, **_translated(options), "input": encodable(self._items(rest))}
        if not request["store"] and request.get("reasoning"):
            request.setdefault("include", [ENCRYPTED])
        if instructions:
            request["instructions"] = encodable(instructions)
        if tools:
            request["tools"] = [_tool(tool) for tool in tools]
        return self._going_on(request, request.pop("conversation_id", None))

    async def create(self, client: AsyncOpenAI, request: Mapping[str, Any]) -> Any:
        """The service's answer, or the stream of its events."""
        return await client.responses.create(**request)

    def answer(self, response: Any, request: Mapping[str, Any]) -> ChatResponse:
        """The whole answer. Raises `ChatClientError` where the service failed or gave none."""
        if not isinstance(response, Response):
            raise ChatClientError("the service answered with no response: is base_url that of a Responses interface?")
        reader = self.reader(request)
        answer = ChatResponse.from_updates([reader.finished(response)])
        answer.messages[0].raw_representation = answer.raw_representation = response
        return answer

    def reader(self, request: Mapping[str, Any]) -> ResponseReader:
        """What makes updates of a stream's events."""
        return ResponseReader(self._service, keeps=bool(request["store"]))

    def _going_on(self, request: dict[str, Any], conversation_id: str | None) -> dict[str, Any]:
        """The request in its conversation, which is named by its own id or by that of its newest response."""
        if not conversation_id:
            return request
        if not request["store"]:
            raise ConfigurationError(
                f"the service keeps this conversation ({conversation_id!r}), and store=False would leave this turn out"
            )
        name = "conversation" if conversation_id.startswith("conv") else "previous_response_id"
        return {**request, name: conversation_id}

    def _items(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return [item for message in messages for item in self._items_of(message)]

    def _items_of(self, message: Message) -> list[dict[str, Any]]:
        if message.role == "assistant":
            return answer_items(said(message, "text_reasoning", "function_call", "openai_item"), self._service)
        if message.role == "tool":
            return [output_item(content) for content in message.contents if content.type == "function_result"]
        if message.role not in ("user", "system", "developer"):
            raise ConfigurationError(f"the Responses interface knows no role {message.role!r}")
        parts = [response_part(content) for content in sendable(message)]
        return [{"type": "message", "role": message.role, "content": parts}] if parts else []


class ResponseReader:
    """Makes updates of the events of one streamed response.

    Texts come as they are said; every other item once it is whole. An item's last content tells what the service wants
    to see again with it.
    """

    def __init__(self, service: str, *, keeps: bool) -> None:
        self._service = service
        self._keeps = keeps
        self._shown: dict[str, str] = {}  # by item, the text that has gone out
        self._done: set[int] = set()
        self._finished = False

    def read(self, event: Any) -> Iterator[ChatResponseUpdate]:
        """The updates, if any, that the event brings. Raises `ChatClientError` where it tells of a failure."""
        kind = event.type
        if kind in _DELTAS:
            yield self._delta(_DELTAS[kind], event.item_id, event.delta, refusal=kind == "response.refusal.delta")
        elif kind == "response.reasoning_summary_part.added" and self._shown.get(event.item_id):
            yield self._delta("text_reasoning", event.item_id, "\n\n")
        elif kind == "response.output_item.done":
            self._done.add(event.output_index)
            yield ChatResponseUpdate(contents=self._rest(event.item), role="assistant", raw_representation=event)
        elif kind == "response.created":
            yield self._begun(event.response)
        elif kind in ("response.completed", "response.incomplete"):
            yield self.finished(event.response)
        elif kind in ("response.failed", "error"):
            raise _failure(event.response.error if kind == "response.failed" else event)

    def end(self) -> None:
        """Call behind the last event. Raises `ChatClientError` where the response had not come to its end."""
        if not self._finished:
            raise ChatClientError("the service's stream ended before its answer did")

    def finished(self, response: Response) -> ChatResponseUpdate:
        """The last update: what of the response was not shown yet, its tokens, and where the conversation goes on."""
        if response.status not in (None, "completed", "incomplete"):
            raise _failure(response.error, f"the response is {response.status}")
        self._finished = True
        output = list(getattr(response, "output", None) or ())
        rest = [c for place, item in enumerate(output) if place not in self._done for c in self._rest(item)]
        if not (rest or self._done or self._shown):
            raise nothing_said(_finish_reason(response))
        usage = [Content("usage", usage_details=_usage(response))] if response.usage else []
        return ChatResponseUpdate(
            contents=[*rest, *usage],
            role="assistant",
            response_id=response.id,
            conversation_id=_kept_as(response) or (response.id if self._keeps else None),
            model=getattr(response, "model", None),
            finish_reason=_finish_reason(response),
            raw_representation=response,
        )

    def _begun(self, response: Response) -> ChatResponseUpdate:
        # Not the response's own id: nothing can go on from a response that is broken off.
        return ChatResponseUpdate(role="assistant", response_id=response.id, conversation_id=_kept_as(response))

    def _delta(self, kind: str, item_id: str, text: str, *, refusal: bool = False) -> ChatResponseUpdate:
        self._shown[item_id] = self._shown.get(item_id, "") + text
        fields = {"additional_properties": properties(self._service, refusal=True)} if refusal else {}
        return ChatResponseUpdate(contents=[Content(kind, text=text, id=item_id, **fields)], role="assistant")

    def _rest(self, item: Any) -> list[Content]:
        content = item_content(item, self._service)
        shown = self._shown.get(getattr(item, "id", None) or "", "")
        if shown and content.type in ("text", "text_reasoning"):
            content.text = content.text.removeprefix(shown) if content.text.startswith(shown) else ""
        return [content]


_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "text_reasoning",
    "response.reasoning_text.delta": "text_reasoning",
}


def _split(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The instructions that lead the conversation, and the rest of it."""
    count = 0
    while count < len(messages) and messages[count].role == "system" and _is_text(messages[count]):
        count += 1
    return "\n".join([message.text for message in messages[:count] if message.text]), messages[count:]


def _is_text(message: Message) -> bool:
    return all(content.type == "text" for content in message.contents)


def _translated(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that every chat client knows, in the interface's own words."""
    request = dict(options)
    for ours, theirs in (("max_tokens", "max_output_tokens"), ("allow_multiple_tool_calls", "parallel_tool_calls")):
        if ours in request:
            request[theirs] = request.pop(ours)
    if isinstance(wanted := request.pop("response_format", None), Mapping):
        schema = wanted.get("json_schema")
        wanted = {"type": "json_schema", **schema} if isinstance(schema, Mapping) else dict(wanted)
        request["text"] = {**request.get("text", {}), "format": wanted}
    return request


def _tool(tool: Any) -> dict[str, Any]:
    if isinstance(tool, Mapping):
        return dict(tool)
    about = {"name": tool.name, "description": tool.description, "parameters": tool.parameters()}
    return {"type": "function", **about, "strict": False}


def _kept_as(response: Response) -> str | None:
    return response.conversation.id if response.conversation else None


def _finish_reason(response: Response) -> str:
    if response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details else None
        return _BROKEN_OFF.get(reason or "", "length")
    called = any(item.type == "function_call" for item in response.output or ())
    return "tool_calls" if called else "stop"


def _usage(response: Response) -> dict[str, int]:
    usage = response.usage
    assert usage is not None
    counted = {
        "input_token_count": usage.input_tokens,
        "output_token_count": usage.output_tokens,
        "total_token_count": usage.total_tokens,
        "openai.cached_input_tokens": getattr(usage.input_tokens_details, "cached_tokens", None),
        "openai.reasoning_tokens": getattr(usage.output_tokens_details, "reasoning_tokens", None),
    }
    return {name: count for name, count in counted.items() if count is not None}


def _failure(error: Any, otherwise: str = "the service could not answer") -> ChatClientError:
    message, code = getattr(error, "message", None) or otherwise, getattr(error, "code", None)
    return ChatClientError(f"{message} ({code})" if code else message)
