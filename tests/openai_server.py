"""A small OpenAI-compatible server on loopback that keeps conversations itself, as the service does.

Every request and every answer is checked against the official SDK's own types, to the last field. Beyond the types it
refuses what the service refuses: a tool call without its output, an output without its call, reasoning without what
follows it or the other way round, ids that it never gave out, and sealed reasoning that it did not seal.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import uvicorn
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.conversations import Conversation, ConversationItemList
from openai.types.conversations.conversation_create_params import ConversationCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter
from servers import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.responses import Response as HTTPResponse
from starlette.routing import Route

KEY = "sk-test-0123456789abcdefghij"
MODEL = "small-model"

Item = dict[str, Any]
Step = str | list[Item]


def said(text: str, **fields: Any) -> Item:
    """A message of the model's."""
    part = {"type": "output_text", "text": text, "annotations": fields.pop("annotations", [])}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **fields}


def refused(text: str) -> Item:
    """A message in which the model refuses."""
    return {**said(""), "content": [{"type": "refusal", "refusal": text}]}


def called(name: str, call_id: str, **arguments: Any) -> Item:
    """A call of a function tool."""
    text = json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text, "status": "completed"}


def thought(*texts: str) -> Item:
    """A reasoning item with these summaries."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts]}


class RefusedError(Exception):
    """What the service answers instead."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.status = status
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


class OpenAIServer:
    """The service, with the model's answers in `script`: a text or a list of output items for each call.

    Behind the end of the script the model says all that users have told it in this conversation.
    """

    def __init__(self) -> None:
        self.script: list[Step] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """Path and body of each request that was understood."""
        self.responses: dict[str, Item] = {}
        """By id, what is kept: the response's `items`, up to and with its own, and its `response`."""
        self.conversations: dict[str, list[Item]] = {}
        self.failing: int | None = None
        """Every call is answered with this status."""
        self.cut_after: int | None = None
        """A stream ends after so many events, without a word."""
        self.waiting_after: int | None = None
        """A stream stops after so many events until the client goes away."""
        self.left = threading.Event()
        """A client went away from a stream."""
        self.url = ""
        self._numbers = count(1)
        self._made: dict[str, tuple[Item, str | None]] = {}  # by id, each item, and the reasoning that it came with

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body in self.requests]

    @contextmanager
    def running(self) -> Iterator[OpenAIServer]:
        """Serve on a free port of loopback, in a thread, until the block ends."""
        port = free_port()
        config = uvicorn.Config(self._app(), host="127.0.0.1", port=port, log_level="critical", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield self
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)

    def _app(self) -> Starlette:
        routes = [
            Route("/v1/responses", self._guarded(self._respond), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self._complete), methods=["POST"]),
            Route("/v1/conversations", self._guarded(self._begin), methods=["POST"]),
            Route("/v1/conversations/{id}/items", self._guarded(self._items), methods=["GET"]),
        ]
        return Starlette(routes=routes)

    def _guarded(self, endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> HTTPResponse:
            try:
                self._admit(request)
                answered: HTTPResponse = await endpoint(request)
            except RefusedError as refusal:
                # The SDK would try some of them again, and wait in between.
                return JSONResponse(refusal.body, refusal.status, headers={"x-should-retry": "false"})
            return answered

        return answer

    def _admit(self, request: Request) -> None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            raise RefusedError(
                401, f"Incorrect API key provided: {key[:7]}*****{key[-4:]}, in full {key}.", "invalid_api_key"
            )
        if self.failing:
            raise RefusedError(self.failing, f"The server had an error; the request came with the key {key}.")

    def _id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers):08}"

    # -- Responses and conversations --

    async def _respond(self, request: Request) -> HTTPResponse:
        body = await request.json()
        kind = ResponseCreateParamsStreaming if body.get("stream") else ResponseCreateParamsNonStreaming
        _check_params(kind, body)
        self.requests.append(("/responses", body))
        given = _as_items(body["input"])
        self._check_ids(given)
        known = [*self._known(body), *given]
        _check_calls(known)
        response = self._response(body, self._output(known, sealed=body.get("store") is False))
        if body.get("stream"):
            return StreamingResponse(self._events(response, body, given, known), media_type="text/event-stream")
        self._keep(response, body, given, known)
        return JSONResponse(_checked(Response, response))

    def _known(self, body: Mapping[str, Any]) -> list[Item]:
        """The items of the conversation that the call goes on with."""
        conversation, previous = body.get("conversation"), body.get("previous_response_id")
        if conversation and previous:
            raise RefusedError(400, "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.")
        if conversation:
            name = conversation if isinstance(conversation, str) else conversation["id"]
            if name not in self.conversations:
                raise RefusedError(404, f"Conversation with id '{name}' not found.")
            return list(self.conversations[name])
        if previous and previous not in self.responses:
            raise RefusedError(400, f"Previous response with id '{previous}' not found.", "previous_response_not_found")
        return list(self.responses[previous]["items"]) if previous else []

    def _check_ids(self, given: Sequence[Item]) -> None:
        """What the service made comes back under its id as it was, and beside the reasoning that it came with."""
        for place, item in enumerate(given):
            if item.get("type") == "reasoning" and not self._is_sealed(item):
                raise RefusedError(400, f"The encrypted content for item {item.get('id')} could not be verified.")
            if "id" not in item:
                continue
            if item["id"] not in self._made:
                raise RefusedError(404, f"Item with id '{item['id']}' not found.")
            made, reasoning = self._made[item["id"]]
            if reasoning and reasoning not in [other.get("id") for other in given[:place]]:
                raise RefusedError(400, f"Item '{item['id']}' was provided without its required 'reasoning' item.")
            if item != made:
                raise RefusedError(400, f"Item '{item['id']}' was {made}, and is {item}.")

    def _is_sealed(self, item: Item) -> bool:
        return str(item.get("encrypted_content")).startswith(f"sealed by {self.url}")

    def _output(self, known: Sequence[Item], *, sealed: bool) -> list[Item]:
        step = self.script.pop(0) if self.script else " | ".join(_user_texts(known))
        items = [said(step)] if isinstance(step, str) else step
        output: list[Item] = []
        for item in items:
            named = self._named(item, sealed=sealed)
            reasoning = next((other["id"] for other in reversed(output) if other["type"] == "reasoning"), None)
            self._made[named["id"]] = named, reasoning
            output.append(named)
        return output

    def _named(self, item: Item, *, sealed: bool) -> Item:
        kinds = {"message": "msg", "function_call": "fc", "reasoning": "rs", "web_search_call": "ws"}
        named = {"id": self._id(kinds[item["type"]]), **item}
        if item["type"] == "reasoning" and sealed:
            named["encrypted_content"] = f"sealed by {self.url}: {named['id']}"
        return named

    def _response(self, body: Mapping[str, Any], output: list[Item]) -> Item:
        conversation = body.get("conversation")
        tokens = {
            "input_tokens": 7,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 12,
        }
        named = conversation if isinstance(conversation, dict) or not conversation else {"id": conversation}
        return {
            "id": self._id("resp"),
            "object": "response",
            "created_at": 1764500000.0,
            "model": body["model"],
            "status": "completed",
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []),
            "usage": tokens,
            **({"conversation": named} if named else {}),
        }

    def _keep(self, response: Item, body: Mapping[str, Any], given: list[Item], known: list[Item]) -> None:
        if body.get("store", True):
            self.responses[response["id"]] = {"items": [*known, *response["output"]], "response": response}
        if "conversation" in response:
            self.conversations[response["conversation"]["id"]] += [*given, *response["output"]]

    async def _events(
        self, response: Item, body: Mapping[str, Any], given: list[Item], known: list[Item]
    ) -> AsyncIterator[str]:
        for number, event in enumerate(_response_events(response)):
            await self._pause(number)
            checked = _checked(ResponseStreamEvent, {**event, "sequence_number": number})
            if event["type"] == "response.completed":
                self._keep(response, body, given, known)
            if (event_sent := self.sent(checked)) is not None:
                yield f"event: {event['type']}\ndata: {json.dumps(event_sent)}\n\n"

    def sent(self, event: Item) -> Item | None:
        """The event or chunk as it goes out, `None` for not at all; overridden for servers with ways of their own."""
        return event

    async def _pause(self, number: int) -> None:
        if number == self.cut_after:
            raise ConnectionResetError("the test wants the stream cut here")
        if number == self.waiting_after:
            try:
                await asyncio.sleep(60)
            finally:
                self.left.set()

    async def _begin(self, request: Request) -> HTTPResponse:
        body = await request.json()
        _check_params(ConversationCreateParams, body)
        name = self._id("conv")
        self.conversations[name] = list(body.get("items") or [])
        made = {"id": name, "object": "conversation", "created_at": 1764500000, "metadata": {}}
        return JSONResponse(_checked(Conversation, made))

    async def _items(self, request: Request) -> HTTPResponse:
        items = [_as_kept(item, place) for place, item in enumerate(self.conversations[request.path_params["id"]])]
        ids = [item["id"] for item in items] or [""]
        page = {"object": "list", "data": items, "first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return JSONResponse(_checked(ConversationItemList, page))

    # -- Chat Completions --

    async def _complete(self, request: Request) -> HTTPResponse:
        body = await request.json()
        kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
        _check_params(kind, body)
        self.requests.append(("/chat/completions", body))
        _check_chat_calls(body["messages"])
        users = [message for message in body["messages"] if message["role"] == "user"]
        step = self.script.pop(0) if self.script else " | ".join([_chat_text(message) for message in users])
        message = _chat_message([said(step)] if isinstance(step, str) else step)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        about = {"id": self._id("chatcmpl"), "created": 1764500000, "model": body["model"]}
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        if body.get("stream"):
            asked = (body.get("stream_options") or {}).get("include_usage")
            chunks = [*_chat_chunks(message, reason), *([{"choices": [], "usage": usage}] if asked else [])]
            return StreamingResponse(self._chunks(about, chunks), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": reason}
        completion = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
        return JSONResponse(_checked(ChatCompletion, completion))

    async def _chunks(self, about: Item, chunks: Sequence[Item]) -> AsyncIterator[str]:
        for number, chunk in enumerate(chunks):
            await self._pause(number)
            checked = _checked(ChatCompletionChunk, {**about, "object": "chat.completion.chunk", **chunk})
            if (chunk_sent := self.sent(checked)) is not None:
                yield f"data: {json.dumps(chunk_sent)}\n\n"
        yield "data: [DONE]\n\n"


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _checked(kind: Any, data: Item) -> Item:
    """The data, after the SDK's type took every field of it; raises `ValueError` naming what it does not know."""
    adapter = _ADAPTERS.setdefault(kind, TypeAdapter(kind))
    _check_same(_plain(adapter.validate_python(data)), data, "")
    return data


def _plain(value: Any) -> Any:
    """What was read, as plain values; what the types call an iterable is only read now."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value if isinstance(value, str) or not isinstance(value, Iterable) else [_plain(item) for item in value]


def _check_params(kind: Any, body: Item) -> None:
    try:
        _checked(kind, body)
    except ValueError as error:
        raise RefusedError(400, f"The SDK's {kind.__name__} refuses this request: {error}") from error


def _check_same(kept: Any, data: Any, path: str) -> None:
    if isinstance(data, dict) and isinstance(kept, dict):
        if unknown := data.keys() - kept.keys():
            raise ValueError(f"unknown in {path or 'the body'}: {', '.join(sorted(unknown))}")
        for name, value in data.items():
            _check_same(kept[name], value, f"{path}.{name}")
    elif isinstance(data, list) and isinstance(kept, list):
        for place, (left, right) in enumerate(zip(kept, data, strict=True)):
            _check_same(left, right, f"{path}[{place}]")
    elif kept != data:
        raise ValueError(f"{path} is {data!r}, read as {kept!r}")


def _as_items(given: str | list[Item]) -> list[Item]:
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _as_kept(item: Item, place: int) -> Item:
    """An item as a listing shows it, with an id and a status."""
    kept = {"id": f"item_{place:08}", "status": "completed", **item}
    if item["type"] == "message" and isinstance(item["content"], str):
        kept["content"] = [{"type": "input_text", "text": item["content"]}]
    return kept


def _user_texts(items: Sequence[Item]) -> list[str]:
    return [_chat_text(item) for item in items if item.get("role") == "user"]


def _chat_text(message: Item) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join([part["text"] for part in content if "text" in part])


def _check_calls(items: Sequence[Item]) -> None:
    """As the service does: every call has its output and every output its call; reasoning has what follows it."""
    open_calls: list[str] = []
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind == "function_call":
            open_calls.append(item["call_id"])
        elif kind == "function_call_output" and item["call_id"] not in open_calls:
            raise RefusedError(400, f"No tool call found for function call output with call_id {item['call_id']}.")
        elif kind == "function_call_output":
            open_calls.remove(item["call_id"])
        elif kind == "reasoning" and _answers(items, place + 1) is None:
            raise RefusedError(
                400, f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            )
    if open_calls:
        raise RefusedError(400, f"No tool output found for function call {open_calls[0]}.")


def _answers(items: Sequence[Item], place: int) -> Item | None:
    follows = items[place] if place < len(items) else {}
    mine = follows.get("role") == "assistant" or str(follows.get("type")).endswith(("_call", "reasoning"))
    return follows if mine and "id" in follows else None


def _check_chat_calls(messages: Sequence[Item]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                raise RefusedError(
                    400, "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                )
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            break
        open_calls += [call["id"] for call in message.get("tool_calls", [])]
    if open_calls:
        raise RefusedError(
            400, f"An assistant message with 'tool_calls' must be followed by tool messages: {open_calls}"
        )


def _chat_message(items: Sequence[Item]) -> Item:
    message: Item = {"role": "assistant", "content": None, "refusal": None}
    for item in items:
        if item["type"] == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            message.setdefault("tool_calls", []).append(
                {"id": item["call_id"], "type": "function", "function": function}
            )
        elif item["type"] == "message":
            (part,) = item["content"]
            message["refusal" if part["type"] == "refusal" else "content"] = part.get("text") or part.get("refusal")
    return message


def _chat_chunks(message: Item, reason: str) -> Iterator[Item]:
    yield _chunk({"role": "assistant", "content": ""})
    for name in ("content", "refusal"):
        for piece in _pieces(message[name] or ""):
            yield _chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls", [])):
        yield _chunk(
            {"tool_calls": [{**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}]}
        )
        for piece in _pieces(call["function"]["arguments"]):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk({}, reason)


def _chunk(delta: Item, reason: str | None = None) -> Item:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def _pieces(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _response_events(response: Item) -> Iterator[Item]:
    begun = {**response, "status": "in_progress", "output": []}
    begun.pop("usage")
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        about = {"item_id": item["id"], "output_index": index}
        started = {"message": {"content": [], "status": "in_progress"}, "function_call": {"arguments": ""}}
        yield _indexed("response.output_item.added", index, {**item, **started.get(item["type"], {})})
        yield from _item_events(item, about)
        yield _indexed("response.output_item.done", index, item)
    yield {"type": "response.completed", "response": response}


def _indexed(kind: str, index: int, item: Item) -> Item:
    return {"type": kind, "output_index": index, "item": item}


def _item_events(item: Item, about: Item) -> Iterator[Item]:
    if item["type"] == "function_call":
        for piece in _pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **about, "delta": piece}
    for place, summary in enumerate(item.get("summary", [])):
        part = {**about, "summary_index": place}
        yield {"type": "response.reasoning_summary_part.added", **part, "part": {"type": "summary_text", "text": ""}}
        for piece in _pieces(summary["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **part, "delta": piece}
    for place, content in enumerate(item.get("content", [])):
        part = {**about, "content_index": place}
        kind = "refusal" if content["type"] == "refusal" else "output_text"
        extra = {} if kind == "refusal" else {"logprobs": []}
        for piece in _pieces(content.get("text") or content.get("refusal") or ""):
            yield {"type": f"response.{kind}.delta", **part, "delta": piece, **extra}
