"""Items of the Responses interface as contents, and back: what the service made returns to it as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentstore.clients.openai_parts import arguments_text, own, properties, response_part, result_text
from agentstore.messages import Content


def output_item(content: Content) -> dict[str, Any]:
    """A tool's result; what is not text in it goes as such."""
    given = content.get("items") or ()
    rich = any(part.type != "text" for part in given)
    output = [response_part(part) for part in given] if rich else result_text(content)
    return {"type": "function_call_output", "call_id": content.get("call_id"), "output": output}


def answer_items(contents: Sequence[Content], service: str) -> list[dict[str, Any]]:
    """What the model answered, as the service gave it where its reasoning can go back with it.

    Reasoning and what follows it go back together, under their ids; or the reasoning, and what only makes sense beside
    it, is left out, and nothing has an id. Nothing that only another service understands goes out.
    """
    reasoning = [content for content in contents if content.type == "text_reasoning"]
    exact = bool(reasoning) and all(_can_return(content, service) for content in reasoning)
    if reasoning and not exact:
        contents = [content for content in contents if content.type not in ("text_reasoning", "openai_item")]
    items = [item for content in contents if (item := _answer_item(content, service, exact)) is not None]
    while items and items[-1]["type"] == "reasoning":  # what followed it is gone
        items.pop()
    return items


def _can_return(content: Content, service: str) -> bool:
    return bool(content.get("protected_data") and content.get("id")) and own(content, service) is not None


def _answer_item(content: Content, service: str, exact: bool) -> dict[str, Any] | None:
    noted = own(content, service)
    extras = {} if noted is None else dict(noted.get("item") or {})
    named = {"id": content.get("id")} if exact and noted is not None and content.get("id") else {}
    if content.type == "text_reasoning":
        return {**extras, "type": "reasoning", **named, "encrypted_content": content.protected_data}
    if content.type == "openai_item":
        return extras or None
    if content.type == "function_call":
        call = {"call_id": content.get("call_id"), "name": content.get("name"), "arguments": arguments_text(content)}
        return {**extras, "type": "function_call", **named, **call}
    return _message_item(content, extras, named, refusal=bool((noted or {}).get("refusal")))


def _message_item(
    content: Content, extras: dict[str, Any], named: dict[str, Any], *, refusal: bool
) -> dict[str, Any] | None:
    text = content.get("text") or ""
    if not named:
        extras.pop("status", None)
        return {**extras, "type": "message", "role": "assistant", "content": text} if text else None
    part = {"type": "output_text", "text": text, "annotations": list(content.get("annotations") or ())}
    if refusal:
        part = {"type": "refusal", "refusal": text}
    return {"status": "completed", **extras, "type": "message", **named, "role": "assistant", "content": [part]}


def item_content(item: Any, service: str) -> Content:
    """An item of a response as a content, from which `answer_items` makes it again."""
    extras = item.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in _OWN_FIELDS.get(item.type, ()):
        extras.pop(name, None)
    if item.type == "message":
        return _text_content(item, properties(service, item=extras, refusal=_refuses(item)))
    noted = {"additional_properties": properties(service, item=extras)}
    if item.type == "reasoning":
        told = item.summary or item.content or ()
        text = "\n\n".join([part.text for part in told])
        sealed = {"protected_data": item.encrypted_content} if item.encrypted_content else {}
        return Content("text_reasoning", text=text, id=item.id, **sealed, **noted)
    if item.type == "function_call":
        named = {"id": item.id} if item.id else {}
        return Content(
            "function_call", call_id=item.call_id, name=item.name, arguments=item.arguments, **named, **noted
        )
    return Content("openai_item", **noted)


_OWN_FIELDS = {
    "message": ("type", "id", "role", "content"),
    "reasoning": ("type", "id", "encrypted_content"),
    "function_call": ("type", "id", "call_id", "name", "arguments"),
}
"""The fields of an item that have a place of their own in a content."""


def _text_content(item: Any, noted: dict[str, Any]) -> Content:
    text = "".join([part.refusal if part.type == "refusal" else part.text for part in item.content])
    cited = [note for part in item.content if part.type == "output_text" for note in part.annotations or ()]
    annotations = {"annotations": [note.model_dump(mode="json", exclude_none=True) for note in cited]} if cited else {}
    named = {"id": item_id} if (item_id := getattr(item, "id", None)) else {}
    return Content("text", text=text, **named, **annotations, additional_properties=noted)


def _refuses(item: Any) -> bool:
    return any(part.type == "refusal" for part in item.content)
