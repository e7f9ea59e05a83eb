"""Messages of Pydantic AI, in the form `pydantic-ai/1`, as core messages. Needs no framework.

A request can hold parts of several roles. The core's message has the role of its most telling part (tool, then user,
then system); a content of another role is marked with it, in its `additional_properties["role"]`. Parts without a
counterpart become opaque contents. The request or response itself lies beside the contents, in the message's
`additional_properties` under the name of the format.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from agentstore import values
from agentstore.adapters.foreign import marked, opaque, text_of_json
from agentstore.codec import OPAQUE
from agentstore.messages import Content, Message

FORMAT = "pydantic-ai/1"

Shape = dict[str, Any]


def convert(payload: bytes) -> Message:
    """A stored entry as a message; raises `ValueError` where it cannot be read."""
    stored = values.load(payload)
    if type(stored) is not dict or type(stored.get("message")) is not dict:
        raise ValueError("not an entry of Pydantic AI")
    return message_of(stored["message"])


def message_of(shape: Shape) -> Message:
    """A request's or response's dict as a message; raises `ValueError` where it is neither."""
    kind, parts = (shape.get("kind"), shape.get("parts")) if type(shape) is dict else (None, None)
    if kind not in ("request", "response") or type(parts) is not list:
        raise ValueError("neither a request nor a response of Pydantic AI")
    properties = {FORMAT: shape}
    if kind == "response":
        contents = [content for part in parts for content in _response_contents(part)]
        return Message("assistant", contents, additional_properties=properties)
    spoken = [(role, content) for part in parts for role, content in _request_contents(part)]
    roles = {role for role, _ in spoken}
    role = next((role for role in ("tool", "user", "system") if role in roles), "user")
    return Message(role, [marked(content, own, role) for own, content in spoken], additional_properties=properties)


def _response_contents(part: Any) -> Iterator[Content]:
    kind = part.get("part_kind") if type(part) is dict else None
    if kind == "text" and type(part.get("content")) is str:
        yield Content("text", text=part["content"])
    elif kind == "thinking" and type(part.get("content")) is str:
        secret = {"protected_data": part["signature"]} if part.get("signature") else {}
        yield Content("text_reasoning", text=part["content"], **secret)
    elif kind == "tool-call" and type(part.get("tool_call_id")) is str:
        arguments = text_of_json(part.get("args"))
        yield Content("function_call", call_id=part["tool_call_id"], name=part.get("tool_name"), arguments=arguments)
    elif kind == "file":
        yield _file(part.get("content"))
    else:
        yield opaque(FORMAT, part)


def _request_contents(part: Any) -> Iterator[tuple[str, Content]]:
    kind = part.get("part_kind") if type(part) is dict else None
    content = part.get("content") if type(part) is dict else None
    if kind in ("system-prompt", "instruction") and type(content) is str:
        yield "system", Content("text", text=content)
    elif kind == "user-prompt" and type(content) in (str, list, tuple):
        items = [content] if type(content) is str else content
        yield from [("user", _file(item)) for item in items or ()]
    elif kind in _RESULTS and type(part.get("tool_call_id")) is str and (part.get("tool_name") or kind != _RETRY):
        yield "tool", _result(part["tool_call_id"], content)
    elif kind in (_RETRY, "retry-feedback") and content is not None:
        yield "user", Content("text", text=text_of_json(content))
    else:
        yield "user", opaque(FORMAT, part)


def _result(call_id: str, content: Any) -> Content:
    """Texts and files of a result as items; anything else as JSON."""
    parts = [_file(item) for item in content] if type(content) in (list, tuple) else [_file(content)]
    if any(part.type in ("data", "uri") for part in parts):
        items = [Content("text", text=text_of_json(values.load(p.payload))) if p.type == OPAQUE else p for p in parts]
        text = "\n".join([item.text for item in items if item.type == "text"])
        return Content("function_result", call_id=call_id, result=text, items=items)
    return Content("function_result", call_id=call_id, result=text_of_json(content))


def _file(item: Any) -> Content:
    """What a user's prompt may hold: a text, or a file by its URL, its bytes or a provider's id."""
    if type(item) is str:
        return Content("text", text=item)
    reader = _ITEMS.get(str(item.get("kind"))) if type(item) is dict else None
    try:
        return opaque(FORMAT, item) if reader is None else reader(item)
    except (KeyError, TypeError):
        return opaque(FORMAT, item)


def _data(item: Shape) -> Content:
    uri = f"data:{item['media_type']};base64,{b64encode(item['data']).decode()}"
    return Content("data", uri=uri, media_type=item["media_type"])


def _uri(item: Shape) -> Content:
    media = {"media_type": item["media_type"]} if item.get("media_type") else {}
    return Content("uri", uri=item["url"], **(media or {"media_type": f"{item['kind'].removesuffix('-url')}/*"}))


_RETRY = "retry-prompt"
_RESULTS = ("tool-return", _RETRY)
_ITEMS: dict[str, Callable[[Shape], Content]] = {
    "text-content": lambda item: Content("text", text=item["content"]),
    "image-url": _uri,
    "audio-url": _uri,
    "video-url": _uri,
    "document-url": _uri,
    "binary": _data,
    "uploaded-file": lambda item: Content("hosted_file", file_id=item["file_id"]),
}
