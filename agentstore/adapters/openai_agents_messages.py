"""Items of the OpenAI Agents SDK as core messages, and core messages as items. Needs no SDK.

Ids of items belong to the service that made them: a message shows none. The item itself lies beside the contents, in
`additional_properties` under the name of its format: so it comes back as it was, as long as nobody changes the message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from mimetypes import guess_type
from typing import Any

from agentstore import values
from agentstore.adapters.foreign import contents_in, kind_of, opaque, opened, original, role_of, text_in, text_of_json
from agentstore.messages import Content, Message

FORMAT = "openai-agents/1"

Item = dict[str, Any]

_logger = logging.getLogger("agentstore")


def message_of(item: Any) -> Message:
    """The item as a message; one that has no counterpart as an opaque one, as the core has it."""
    kind = item.get("type", "message") if type(item) is dict else None
    reader = _READERS.get(kind) if type(kind) is str else None
    found = reader(item) if reader is not None else None
    if found is None:
        return Message("unknown", [opaque(FORMAT, item)])
    role, contents = found
    return Message(role, contents, additional_properties={FORMAT: item})


def convert(payload: bytes) -> Message:
    """A stored item as a message; raises `ValueError` where it cannot be read."""
    return message_of(values.load(payload))


def items_of(message: Message) -> list[Any]:
    """The message as items, none for what the SDK has no counterpart for: that is logged, and stays in the store."""
    if (kept := _kept(message)) is not None:
        return kept
    items: list[Any] = []
    parts: list[Item] = []
    left_out: set[str] = set()
    for content in message.contents:
        role = role_of(message, content)
        if (part := _part(content)) is not None and role != "assistant":
            parts = _added(items, parts, role, part)
        elif (item := _item(content)) is not None:
            items.append(item)
            parts = []
        else:
            left_out.add(kind_of(content))
    if left_out:
        _logger.warning("left out for the OpenAI Agents SDK, kept in the store: %s", ", ".join(sorted(left_out)))
    return [_shortened(item) for item in items]


def _kept(message: Message) -> list[Any] | None:
    """The item of which the message was made, if it still says the same."""
    if len(message.contents) == 1 and (item := opened(message.contents[0], FORMAT)):
        return item
    item = original(message, FORMAT, message_of)
    return None if item is None else [item]


# From items to contents


def _read_message(item: Item) -> tuple[str, list[Content]] | None:
    role, content = item.get("role"), item.get("content")
    if type(role) is not str:
        return None
    if type(content) is str:
        return role, [Content("text", text=content)]
    return (role, [_read_part(part) for part in content]) if type(content) is list else None


def _read_part(part: Any) -> Content:
    kind = part.get("type") if type(part) is dict else None
    if kind in _TEXTS and type(text := part.get("text")) is str:
        return Content("text", text=text)
    if kind == "refusal" and type(text := part.get("refusal")) is str:
        return Content("text", text=text, additional_properties={"refusal": True})
    if kind == "input_image" and type(uri := part.get("image_url")) is str:
        return _file(uri, "image/*")
    if kind == "input_file" and type(uri := part.get("file_url") or part.get("file_data")) is str:
        return _file(uri, guess_type(str(part.get("filename") or uri))[0], part.get("filename"))
    if kind in ("input_image", "input_file") and type(file_id := part.get("file_id")) is str:
        return Content("hosted_file", file_id=file_id, **({"media_type": "image/*"} if kind == "input_image" else {}))
    return opaque(FORMAT, part)


def _file(uri: str, media_type: str | None, name: Any = None) -> Content:
    is_data = uri.startswith("data:")
    media_type = uri[5:].partition(",")[0].partition(";")[0] or media_type if is_data else media_type
    fields = {"media_type": media_type, "name": name}
    return Content(
        "data" if is_data else "uri", uri=uri, **{key: value for key, value in fields.items() if type(value) is str}
    )


def _read_call(item: Item) -> tuple[str, list[Content]] | None:
    call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if not all(type(text) is str for text in (call_id, name, arguments)):
        return None
    return "assistant", [Content("function_call", call_id=call_id, name=name, arguments=arguments)]


def _read_output(item: Item) -> tuple[str, list[Content]] | None:
    call_id, output = item.get("call_id"), item.get("output")
    if type(call_id) is not str or type(output) not in (str, list):
        return None
    result = Content("function_result", call_id=call_id)
    items = [Content("text", text=output)] if type(output) is str else [_read_part(part) for part in output or ()]
    result.result = "\n".join([part.get("text") for part in items if part.type == "text"])
    result.items = items
    return "tool", [result]


def _read_reasoning(item: Item) -> tuple[str, list[Content]] | None:
    texts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    if not all(type(part) is dict and type(part.get("text")) is str for part in texts):
        return None
    secret = item.get("encrypted_content")
    contents = [Content("text_reasoning", text=part["text"]) for part in texts]
    if type(secret) is str:
        contents = contents or [Content("text_reasoning")]
        contents[-1].protected_data = secret
    return ("assistant", contents) if contents else None


_TEXTS = ("input_text", "output_text", "text")
_READERS: dict[str, Callable[[Item], tuple[str, list[Content]] | None]] = {
    "message": _read_message,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "reasoning": _read_reasoning,
}


# From contents to items


def _part(content: Content) -> Item | None:
    """What a message of the user or the system can hold."""
    if content.type == "text" and type(text := content.get("text")) is str:
        return {"type": "input_text", "text": text}
    media_type = content.get("media_type") or guess_type(str(content.get("uri")))[0]
    is_image = str(media_type).startswith("image/")
    if content.type in ("uri", "data") and type(uri := content.get("uri")) is str:
        if is_image:
            return {"type": "input_image", "image_url": uri, "detail": "auto"}
        place = "file_data" if uri.startswith("data:") else "file_url"
        name = {"filename": content.name} if type(content.get("name")) is str else {}
        return {"type": "input_file", place: uri, **name}
    if content.type == "hosted_file" and type(file_id := content.get("file_id")) is str:
        if is_image:
            return {"type": "input_image", "file_id": file_id, "detail": "auto"}
        return {"type": "input_file", "file_id": file_id}
    return next((part for part in opened(content, FORMAT) if type(part) is dict), None)


def _added(items: list[Any], parts: list[Item], role: str, part: Item) -> list[Item]:
    """The parts of the message item at hand, with one more; another role begins another message."""
    if parts and items[-1]["role"] == role:
        parts.append(part)
        return parts
    items.append({"role": role if role in _ROLES else "user", "content": [part]})
    return items[-1]["content"]  # type: ignore[no-any-return]


def _item(content: Content) -> Item | None:
    """What is an item of its own."""
    if content.type == "text" and type(text := content.get("text")) is str:
        return {"role": "assistant", "content": text}
    if content.type == "function_call":
        return {
            "type": "function_call",
            "call_id": text_in(content, "call_id"),
            "name": text_in(content, "name"),
            "arguments": text_of_json(content.get("arguments")),
        }
    if content.type == "function_result":
        return {"type": "function_call_output", "call_id": text_in(content, "call_id"), "output": _output(content)}
    if content.type == "text_reasoning":
        text, secret = text_in(content, "text"), text_in(content, "protected_data")
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "summary": summary, **({"encrypted_content": secret} if secret else {})}
    return None


def _output(content: Content) -> str | list[Item]:
    parts = [part for part in map(_part, contents_in(content.get("items"))) if part is not None]
    if any(part["type"] != "input_text" for part in parts):
        return parts
    result = content.get("result")
    return text_of_json(content.get("exception") if result is None else result)


def _shortened(item: Any) -> Any:
    """A message of one text, as people write it."""
    match item:
        case {"role": role, "content": [{"type": "input_text", "text": text}]}:
            return {"role": role, "content": text}
    return item


_ROLES = ("user", "system", "developer")
