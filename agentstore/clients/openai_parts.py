"""What a message holds, as the parts that OpenAI's two interfaces take: texts, images, sounds and files."""

from __future__ import annotations

import base64
import json
import logging
import mimetypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentstore.errors import ConfigurationError
from agentstore.messages import Content, Message

_logger = logging.getLogger("agentstore")

MEDIA = frozenset({"data", "uri", "hosted_file"})
LEFT_OUT = frozenset(
    {"text_reasoning", "openai_item", "usage", "error", "function_approval_request", "function_approval_response"}
)
"""Contents that are not for the model, or that only the service knows that made them."""


class Media(NamedTuple):
    """A content that is no text: where it is, or what it holds as a `data:` URL."""

    url: str
    media_type: str
    name: str | None
    file_id: str | None
    detail: str

    @classmethod
    def of(cls, content: Content) -> Media:
        """What the content points to or holds."""
        url = content.get("uri") or _data_url(content)
        properties = content.get("additional_properties") or {}
        guessed = mimetypes.guess_type(url.partition("?")[0])[0]
        return cls(
            url,
            content.get("media_type") or guessed or "application/octet-stream",
            content.get("name"),
            content.get("file_id"),
            properties.get("detail") or "auto",
        )

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def is_data(self) -> bool:
        return self.url.startswith("data:")

    @property
    def file_name(self) -> str:
        """Its name; one is made where a service needs it."""
        return self.name or f"file{mimetypes.guess_extension(self.media_type) or ''}"


def response_part(content: Content) -> dict[str, Any]:
    """The content as an input of the Responses interface; raises `ConfigurationError` for what that cannot take."""
    if content.type == "text":
        return {"type": "input_text", "text": content.get("text") or ""}
    media = _media(content)
    if media.is_image:
        where = {"file_id": media.file_id} if media.file_id else {"image_url": media.url}
        return {"type": "input_image", "detail": media.detail, **where}
    if media.media_type.startswith(("audio/", "video/")):
        raise _refused(content, f"the Responses interface takes no {media.media_type}")
    if media.file_id:
        return {"type": "input_file", "file_id": media.file_id}
    if media.is_data:
        return {"type": "input_file", "file_data": media.url, "filename": media.file_name}
    return {"type": "input_file", "file_url": media.url}


def chat_part(content: Content) -> dict[str, Any]:
    """The content as a part of a chat message; raises `ConfigurationError` for what Chat Completions cannot take."""
    if content.type == "text":
        return {"type": "text", "text": content.get("text") or ""}
    media = _media(content)
    if media.file_id:
        return {"type": "file", "file": {"file_id": media.file_id}}
    if media.is_image:
        return {"type": "image_url", "image_url": {"url": media.url, "detail": media.detail}}
    if not media.is_data:
        raise _refused(content, f"Chat Completions takes no address of {media.media_type}, only its data")
    if (kind := _SOUNDS.get(media.media_type)) is not None:
        return {"type": "input_audio", "input_audio": {"data": media.url.partition(",")[2], "format": kind}}
    return {"type": "file", "file": {"file_data": media.url, "filename": media.file_name}}


def sendable(message: Message) -> list[Content]:
    """The contents of the user's (or system's) message that are for the model."""
    return [content for content in message.contents if content.type not in LEFT_OUT]


def said(message: Message, *others: str) -> list[Content]:
    """The texts in an answer, and its contents of the other types; what else there is, is logged and left out."""
    known = {"text", *others}
    unknown = {content.type for content in message.contents} - known - LEFT_OUT
    if unknown:
        _logger.warning("left out of what the model sees of its own answers: %s", ", ".join(sorted(unknown)))
    return [content for content in message.contents if content.type in known]


def arguments_text(content: Content) -> str:
    """The arguments of a call as JSON text: as the service gave it, or as another one's mapping reads."""
    arguments = content.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        return arguments
    return to_json(arguments) if isinstance(arguments, Mapping) else "{}"


def result_text(content: Content) -> str:
    """What a tool gave, as text."""
    result = content.get("result")
    return result if isinstance(result, str) else to_json(result)


def properties(service: str, **more: Any) -> dict[str, Any]:
    """The `additional_properties` of a content that this service made; `more` is what only it understands."""
    return {"openai": {"service": service, **{name: value for name, value in more.items() if value}}}


def own(content: Content, service: str) -> dict[str, Any] | None:
    """What this service noted on the content; `None` for a content that is not from this service."""
    noted = (content.get("additional_properties") or {}).get("openai")
    return dict(noted) if isinstance(noted, Mapping) and noted.get("service") == service else None


def _media(content: Content) -> Media:
    if content.type not in MEDIA:
        raise _refused(content, "no model takes it")
    return Media.of(content)


def _data_url(content: Content) -> str:
    data = content.get("data")
    if not isinstance(data, bytes):
        return ""
    return f"data:{content.get('media_type') or ''};base64,{base64.b64encode(data).decode()}"


def encodable(value: Any) -> Any:
    """The value with a question mark for every lone surrogate: a history keeps them, but no request can hold one."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(item) for name, item in value.items()}
    return [encodable(item) for item in value] if isinstance(value, list | tuple) else value


def to_json(value: Any) -> str:
    """A plain value as JSON text; what JSON does not know becomes its `str`."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _refused(content: Content, why: str) -> ConfigurationError:
    return ConfigurationError(f"a content of the type {content.type!r} cannot be sent: {why}")


_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
