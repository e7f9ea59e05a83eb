"""Core messages, of whatever framework, as messages of Pydantic AI."""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Literal

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)

from agentstore.adapters.foreign import contents_in, kind_of, original, role_of, text_in, text_of_json
from agentstore.adapters.pydantic_ai_codec import messages_of
from agentstore.adapters.pydantic_ai_messages import FORMAT, message_of
from agentstore.messages import Content, Message

_Makers = dict[str, Callable[[Content], ModelResponsePart | None]]

_logger = logging.getLogger("agentstore")


class Reader:
    """Reads the messages of one history in their order: a result gets the name of the tool that its call named."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def read(self, message: Message, time: datetime) -> ModelMessage | None:
        """The message; `None`, and a warning, where the framework has no counterpart for any of it."""
        if (kept := _kept(message)) is not None:
            return kept
        self._names.update({content.call_id: content.name for content in message.contents if _is_named_call(content)})
        left_out: set[str] = set()
        read = self._response if message.role == "assistant" else self._request
        found = read(message, time, left_out)
        if left_out:
            _logger.warning("left out for Pydantic AI, kept in the store: %s", ", ".join(sorted(left_out)))
        return found

    def _response(self, message: Message, time: datetime, left_out: set[str]) -> ModelMessage | None:
        parts: list[ModelResponsePart] = []
        done = {text_in(content, "call_id") for content in message.contents if content.type == "function_result"}
        native: _Makers = {**_NATIVE, "function_result": partial(self._native_result, time=time)}
        for content in message.contents:
            # A call with its result beside it was made by the service: nobody else is to answer it.
            maker = (native if text_in(content, "call_id") in done else _RESPONSE).get(content.type)
            if maker is not None and (part := maker(content)) is not None:
                parts.append(part)
            else:
                left_out.add(kind_of(content))
        return ModelResponse(parts=parts, timestamp=time) if parts else None

    def _request(self, message: Message, time: datetime, left_out: set[str]) -> ModelMessage | None:
        parts: list[ModelRequestPart] = []
        prompt: list[Any] = []
        for content in message.contents:
            role = role_of(message, content)
            if content.type == "function_result":
                parts.append(self._result(content, time))
            elif (item := _item(content)) is None:
                left_out.add(kind_of(content))
            elif role in _SYSTEM and isinstance(item, str):
                parts.append(SystemPromptPart(item, timestamp=time))
            else:
                if not prompt:
                    parts.append(UserPromptPart(prompt, timestamp=time))
                prompt.append(item)
        for part in parts:
            if isinstance(part, UserPromptPart) and len(part.content) == 1 and isinstance(part.content[0], str):
                part.content = part.content[0]
        return ModelRequest(parts=parts, timestamp=time) if parts else None

    def _result(self, content: Content, time: datetime) -> ToolReturnPart:
        name, result, call_id, outcome = self._returned(content)
        return ToolReturnPart(name, result, call_id, timestamp=time, outcome=outcome)

    def _native_result(self, content: Content, time: datetime) -> NativeToolReturnPart:
        name, result, call_id, outcome = self._returned(content)
        return NativeToolReturnPart(name, result, call_id, timestamp=time, outcome=outcome)

    def _returned(self, content: Content) -> tuple[str, Any, str, Literal["success", "failed"]]:
        """Name of the tool, result, id of the call, and outcome."""
        call_id = text_in(content, "call_id")
        result, items = content.get("result"), [_item(item) for item in contents_in(content.get("items"))]
        if result is None:
            result = content.get("exception")
        if any(not isinstance(item, str) for item in items if item is not None):
            result = [item for item in items if item is not None]
        failed = content.get("exception") is not None
        return self._names.get(call_id, "unknown"), result, call_id, "failed" if failed else "success"


def _kept(message: Message) -> ModelMessage | None:
    """The framework's own message of which this one was made, if it still says the same."""
    shape = original(message, FORMAT, message_of)
    try:
        return None if shape is None else messages_of([shape])[0]
    except ValueError:  # not a whole message: somebody made that property up
        return None


def _is_named_call(content: Content) -> bool:
    return content.type == "function_call" and bool(text_in(content, "call_id")) and bool(text_in(content, "name"))


def _item(content: Content) -> Any:
    """What a prompt or a result can hold; `None` for what it cannot."""
    if content.type == "text":
        return content.text if type(content.get("text")) is str else None
    if content.type not in ("uri", "data") or type(uri := content.get("uri")) is not str:
        return None
    if uri.startswith("data:"):
        return _binary(uri)
    media_type = str(content.get("media_type") or "image/*")
    kind = next((kind for start, kind in _URLS.items() if media_type.startswith(start)), DocumentUrl)
    return kind(uri, media_type=None if media_type.endswith("*") else media_type)


def _binary(uri: str) -> BinaryContent | None:
    match = _DATA.fullmatch(uri)
    if match is None:
        return None
    try:
        return BinaryContent(b64decode(match[2]), media_type=match[1])
    except ValueError:  # cut off
        return None


def _file_part(content: Content) -> FilePart | None:
    item = _item(content)
    return FilePart(item) if isinstance(item, BinaryContent) else None


def _thinking_part(content: Content) -> ThinkingPart:
    return ThinkingPart(text_in(content, "text"), signature=text_in(content, "protected_data") or None)


def _call_part(content: Content) -> ToolCallPart:
    arguments = content.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        arguments = text_of_json(arguments)
    return ToolCallPart(text_in(content, "name"), arguments, text_in(content, "call_id"))


def _native_call(content: Content) -> NativeToolCallPart:
    part = _call_part(content)
    return NativeToolCallPart(part.tool_name, part.args, part.tool_call_id)


def _text_part(content: Content) -> TextPart | None:
    return TextPart(content.text) if type(content.get("text")) is str else None


_DATA = re.compile("data:([^;,]+);base64,([A-Za-z0-9+/=]*)")
_SYSTEM = ("system", "developer")
_URLS: dict[str, Callable[..., Any]] = {"image/": ImageUrl, "audio/": AudioUrl, "video/": VideoUrl}
_RESPONSE: _Makers = {
    "text": _text_part,
    "text_reasoning": _thinking_part,
    "function_call": _call_part,
    "data": _file_part,
}
_NATIVE: _Makers = {**_RESPONSE, "function_call": _native_call}
