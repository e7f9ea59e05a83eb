"""A session written by one adapter is read by every other: each writer with each reader."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import agent_framework
import pytest
from adapter_stores import STORES

from agentstore import Content, HistoryStore, Message, open_store
from agentstore.adapters import openai_agents_messages, pydantic_ai_messages
from agentstore.adapters.agent_framework import StoreHistoryProvider
from agentstore.adapters.foreign import contents_in
from agentstore.adapters.openai_agents import StoreSession
from agentstore.codec import OPAQUE

pytest.importorskip("pydantic_ai", reason="Pydantic AI needs Python 3.11")

from pydantic_ai import Agent, Conversation
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.test import TestModel

from agentstore.adapters.pydantic_ai import StoreConversationStore
from agentstore.adapters.pydantic_ai_codec import shape_of
from agentstore.adapters.pydantic_ai_native import Reader

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

IMAGE = "https://example.org/harbour.png"
ARGUMENTS = {"query": "harbour", "limit": 3}

FACTS = [
    ("system", "be brief"),
    ("user", "what is this?"),
    ("image", IMAGE),
    ("reasoning", "a picture"),
    ("call", "c1", "search", ARGUMENTS),
    ("result", "c1", "a harbour"),
    ("assistant", "It is a harbour."),
]
"""What the session says, whoever tells it."""


# Writers


def core_messages(message: Any, content: Any) -> list[Any]:
    """The session in the shape that the core and the Agent Framework share."""
    return [
        message("system", [content("text", text="be brief")]),
        message("user", [content("text", text="what is this?"), content("uri", uri=IMAGE, media_type="image/png")]),
        message(
            "assistant",
            [
                content("text_reasoning", text="a picture"),
                content("function_call", call_id="c1", name="search", arguments=json.dumps(ARGUMENTS)),
            ],
        ),
        message("tool", [content("function_result", call_id="c1", result="a harbour")]),
        message("assistant", [content("text", text="It is a harbour.")]),
    ]


ITEMS: list[Any] = [
    {"role": "system", "content": "be brief"},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "what is this?"},
            {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a picture"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "search", "arguments": json.dumps(ARGUMENTS)},
    {"type": "function_call_output", "call_id": "c1", "output": "a harbour"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is a harbour.", "annotations": []}],
    },
]

REQUESTS = [
    ModelRequest(parts=[SystemPromptPart("be brief"), UserPromptPart(["what is this?", ImageUrl(IMAGE)])]),
    ModelResponse(parts=[ThinkingPart("a picture"), ToolCallPart("search", ARGUMENTS, "c1")]),
    ModelRequest(parts=[ToolReturnPart("search", "a harbour", "c1")]),
    ModelResponse(parts=[TextPart("It is a harbour.")]),
]


async def write_core(store: HistoryStore) -> None:
    await store.session("s").append(core_messages(Message, Content))


async def write_agent_framework(store: HistoryStore) -> None:
    messages = core_messages(agent_framework.Message, agent_framework.Content)
    await StoreHistoryProvider(store).save_messages("s", messages)


async def write_openai_agents(store: HistoryStore) -> None:
    await StoreSession(store, "s").add_items(ITEMS)


async def write_pydantic_ai(store: HistoryStore) -> None:
    await StoreConversationStore(store).save(Conversation(conversation_id="s", messages=REQUESTS))


# Readers


def facts_of_messages(messages: list[Any]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        for content in message.contents:
            role = (getattr(content, "additional_properties", None) or {}).get("role", message.role)
            match content.type:
                case "text":
                    found.append((role, content.text))
                case "uri":
                    found.append(("image", content.uri))
                case "text_reasoning":
                    found.append(("reasoning", content.text))
                case "function_call":
                    found.append(("call", content.call_id, content.name, json.loads(content.arguments)))
                case "function_result":
                    found.append(("result", content.call_id, content.result))
    return found


def facts_of_items(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        match item:
            case {"type": "reasoning"}:
                found.append(("reasoning", item["summary"][0]["text"]))
            case {"type": "function_call"}:
                found.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
            case {"type": "function_call_output"}:
                found.append(("result", item["call_id"], item["output"]))
            case {"content": str(text)}:
                found.append((item["role"], text))
            case _:
                found += [
                    ("image", part["image_url"]) if "image_url" in part else (item["role"], part["text"])
                    for part in item["content"]
                ]
    return found


def facts_of_requests(messages: list[Any]) -> list[Any]:
    found: list[Any] = []
    for part in [part for message in messages for part in message.parts]:
        match part:
            case SystemPromptPart():
                found.append(("system", part.content))
            case UserPromptPart():
                parts = [part.content] if isinstance(part.content, str) else part.content
                found += [("image", one.url) if isinstance(one, ImageUrl) else ("user", one) for one in parts]
            case ThinkingPart():
                found.append(("reasoning", part.content))
            case ToolCallPart():
                found.append(("call", part.tool_call_id, part.tool_name, part.args_as_dict()))
            case ToolReturnPart():
                assert part.tool_name == "search"
                found.append(("result", part.tool_call_id, part.content))
            case TextPart():
                found.append(("assistant", part.content))
    return found


async def read_core(store: HistoryStore) -> list[Any]:
    return facts_of_messages(await store.session("s").messages())


async def read_agent_framework(store: HistoryStore) -> list[Any]:
    return facts_of_messages(await StoreHistoryProvider(store).get_messages("s"))


async def read_openai_agents(store: HistoryStore) -> list[Any]:
    return facts_of_items(await StoreSession(store, "s").get_items())


async def read_pydantic_ai(store: HistoryStore) -> list[Any]:
    conversation = await StoreConversationStore(store).load("s")
    assert conversation is not None
    return facts_of_requests(conversation.messages)


WRITERS = [write_core, write_agent_framework, write_openai_agents, write_pydantic_ai]
READERS = [read_core, read_agent_framework, read_openai_agents, read_pydantic_ai]


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_reader_reads_every_writer(
    write: Callable[[HistoryStore], Awaitable[None]],
    read: Callable[[HistoryStore], Awaitable[list[Any]]],
    url: str,
    tmp_path: Path,
) -> None:
    """Text, image by reference, reasoning, call and result, in order, with their roles and call ids."""

    async def check() -> None:
        async with open_store(STORES[url](tmp_path), namespace=uuid4().hex) as store:
            await write(store)
            assert await read(store) == FACTS

    asyncio.run(check())


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_session_of_any_writer_goes_on_in_the_openai_agents_sdk(write: Any) -> None:
    """(B82) No id of another service's item is made up or carried over; a pop takes the newest item."""

    async def check() -> None:
        async with open_store("memory://") as store:
            await write(store)
            session = StoreSession(store, "s")
            await session.add_items([{"role": "user", "content": "thanks"}])
            assert facts_of_items(await session.get_items()) == [*FACTS, ("user", "thanks")]
            assert facts_of_items(await session.get_items(2)) == [FACTS[-1], ("user", "thanks")]
            if write is not write_openai_agents:
                assert not any("id" in item for item in await session.get_items())
            for expected in (("user", "thanks"), *reversed(FACTS)):
                if expected[0] == "image":
                    continue
                assert facts_of_items([await session.pop_item()])[0] == expected
            assert await session.pop_item() is None

    asyncio.run(check())


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_session_of_any_writer_goes_on_in_pydantic_ai(write: Any) -> None:
    """The new turn stands behind it, for every reader."""

    async def check() -> None:
        async with open_store("memory://") as store:
            await write(store)
            conversations = StoreConversationStore(store)
            conversation = await conversations.load("s")
            assert conversation is not None
            conversation.messages.append(ModelRequest(parts=[UserPromptPart("thanks")]))
            await conversations.save(conversation)
            for read in READERS:
                assert await read(store) == [*FACTS, ("user", "thanks")]

    asyncio.run(check())


def test_a_compaction_snapshot_of_another_writer_splits_between_items() -> None:
    """A record that holds several items may be cut within: its first items stay."""

    async def check() -> None:
        async with open_store("memory://") as store:
            await write_core(store)
            session = StoreSession(store, "s")
            snapshot = await session._get_compaction_snapshot(3)
            assert snapshot is not None
            assert facts_of_items(snapshot.items) == FACTS[3:]
            assert await snapshot.replace_suffix(1, [{"role": "user", "content": "summary"}])
            assert facts_of_items(await session.get_items()) == [*FACTS[:4], ("user", "summary")]

    asyncio.run(check())


# One item, one message


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: str(item.get("type", item.get("role"))))
def test_an_item_comes_back_through_a_message(item: Any) -> None:
    """To the last field, its ids too; changed contents are converted anew."""
    message = openai_agents_messages.message_of(item)
    assert openai_agents_messages.items_of(message) == [item]
    if item.get("role") == "system":
        message.contents[0].text = "changed"
        assert openai_agents_messages.items_of(message) == [{"role": "system", "content": "changed"}]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": 7},
        {"type": "function_call_output", "call_id": None},
        {"role": "user", "content": 7},
        {"role": None},
        {"type": ["odd"]},
        {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "x"},
        "no dict",
        None,
    ],
)
def test_an_item_without_counterpart_is_kept_under_its_own_format(item: Any) -> None:
    """As the core keeps what it cannot read; and it comes back as it was."""
    message = openai_agents_messages.message_of(item)
    assert (message.role, message.contents[0].type) == ("unknown", OPAQUE)
    assert message.contents[0].format == "openai-agents/1"
    assert openai_agents_messages.items_of(message) == [item]


def test_parts_of_an_item_become_contents() -> None:
    """Files by reference, a refusal, encrypted reasoning, a result with an image; an unknown part stays in place."""
    parts = [
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_url": "https://x/a.pdf", "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file-2"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "refusal", "refusal": "no"},
        {"type": "hologram", "x": 1},
    ]
    contents = openai_agents_messages.message_of({"role": "user", "content": parts}).contents
    assert [content.type for content in contents] == ["hosted_file", "uri", "hosted_file", "data", "text", OPAQUE]
    assert contents[3].media_type == "image/png"
    back = openai_agents_messages.items_of(Message("user", contents))
    assert [part["type"] for part in back[0]["content"]] == [
        "input_image",
        "input_file",
        "input_file",
        "input_image",
        "input_text",
        "hologram",
    ]
    secret = {"type": "reasoning", "summary": [], "encrypted_content": "s"}
    reasoning = openai_agents_messages.message_of(secret)
    assert openai_agents_messages.items_of(Message("assistant", reasoning.contents)) == [secret]
    output = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}, parts[3]]}
    result = openai_agents_messages.message_of(output).contents
    (again,) = openai_agents_messages.items_of(Message("tool", result))
    assert [part["type"] for part in again["output"]] == ["input_text", "input_image"]


def test_what_the_sdk_has_no_counterpart_for_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Left out of the items, with a warning that names it; the rest is there, and the store keeps all."""

    async def check() -> None:
        async with open_store("memory://") as store:
            contents = [Content("text", text="hi"), Content("usage", usage_details={}), Content(OPAQUE, format="x/1")]
            await store.session("s").append([Message("assistant", contents)])
            assert await StoreSession(store, "s").get_items() == [{"role": "assistant", "content": "hi"}]
            assert len((await store.session("s").messages())[0].contents) == 3

    asyncio.run(check())
    assert "left out for the OpenAI Agents SDK, kept in the store: usage, x/1" in caplog.text


def test_other_values_become_json_for_the_sdk() -> None:
    """Arguments and results that are no text; a failed result; a file that is no image."""
    message = Message(
        "assistant",
        [
            Content("function_call", call_id="c", name="n", arguments={"a": 1}),
            Content("function_result", call_id="c", result={"b": [1]}),
            Content("function_result", call_id="d", exception="boom"),
            Content("function_result", call_id="e"),
        ],
    )
    items = openai_agents_messages.items_of(message)
    assert [item.get("arguments", item.get("output")) for item in items] == ['{"a": 1}', '{"b": [1]}', "boom", ""]
    pdf = Message("user", [Content("uri", uri="https://x/a.pdf", media_type="application/pdf")])
    assert openai_agents_messages.items_of(pdf) == [
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://x/a.pdf"}]}
    ]


# One request or response, one message


def test_a_request_comes_back_through_a_message() -> None:
    """Of several roles, with parts that have no counterpart: as it was, unless its message was changed."""
    for request in [
        *REQUESTS,
        ModelRequest(parts=[ToolReturnPart("t", {"a": b"\xff"}, "c"), UserPromptPart(["x", CachePoint()])]),
    ]:
        message = pydantic_ai_messages.message_of(shape_of(request))
        assert Reader().read(message, None) == request  # type: ignore[arg-type]


def test_parts_of_a_request_become_contents() -> None:
    """Roles are marked where they differ; files by reference or bytes; the unknown is opaque, in its place."""
    request = ModelRequest(
        parts=[
            SystemPromptPart("be brief"),
            ToolReturnPart("t", {"n": 1}, "c1"),
            ToolReturnPart("t", ["see", BinaryContent(b"\x01", media_type="image/png")], "c2"),
            UserPromptPart([UploadedFile("f", "openai", media_type="image/png"), CachePoint()]),
        ]
    )
    shape = shape_of(request)
    retry = {"part_kind": "retry-prompt", "content": "again", "tool_name": "t", "tool_call_id": "c3"}
    shape["parts"].insert(3, retry)  # as older versions wrote it
    message = pydantic_ai_messages.message_of(shape)
    assert message.role == "tool"
    kinds = [(content.type, (content.get("additional_properties") or {}).get("role")) for content in message.contents]
    assert kinds == [
        ("text", "system"),
        ("function_result", None),
        ("function_result", None),
        ("function_result", None),
        ("hosted_file", "user"),
        (OPAQUE, "user"),
    ]
    assert [content.get("result") for content in message.contents[1:4]] == ['{"n": 1}', "see", "again"]
    assert [item.type for item in contents_in(message.contents[2].items)] == ["text", "data"]


def test_parts_of_a_response_become_contents() -> None:
    """A signature, a file, and a tool call of the service's own."""
    response = ModelResponse(
        parts=[
            ThinkingPart("hm", signature="sig"),
            FilePart(BinaryContent(b"\x01", media_type="image/png")),
            NativeToolCallPart("web_search", {"q": 1}, "n1"),
        ]
    )
    message = pydantic_ai_messages.message_of(shape_of(response))
    assert [content.type for content in message.contents] == ["text_reasoning", "data", OPAQUE]
    assert message.contents[0].protected_data == "sig"
    assert message.contents[1].uri == "data:image/png;base64,AQ=="


@pytest.mark.parametrize(
    "part", [{}, None, 7, {"part_kind": "text"}, {"part_kind": "user-prompt", "content": 7}, {"part_kind": "file"}]
)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_part_of_any_shape_becomes_a_content(kind: str, part: Any) -> None:
    """What is not understood is opaque: nothing is dropped, and nothing raises."""
    message = pydantic_ai_messages.message_of({"kind": kind, "parts": [part]})
    assert [content.type for content in message.contents] == [OPAQUE]


def test_what_pydantic_ai_has_no_counterpart_for_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Left out of the messages, with a warning; a message of nothing else is left out whole, and its place is kept."""

    async def check() -> None:
        async with open_store("memory://") as store:
            await store.session("s").append(
                [
                    Message("user", ["a"]),
                    Message("assistant", [Content("usage", usage_details={})]),
                    Message("user", [Content("text", text="b"), Content("hosted_file", file_id="f")]),
                ]
            )
            conversations = StoreConversationStore(store)
            entries = await conversations.load_entries("s")
            assert entries is not None
            assert facts_of_requests([entry.message for entry in entries]) == [("user", "a"), ("user", "b")]

    asyncio.run(check())
    assert "left out for Pydantic AI, kept in the store: usage" in caplog.text
    assert "left out for Pydantic AI, kept in the store: hosted_file" in caplog.text


def test_contents_become_parts_of_pydantic_ai() -> None:
    """Bytes, media by their kind, a failed result, a result with an image."""
    message = Message(
        "user",
        [
            Content("data", uri="data:image/png;base64,AQ==", media_type="image/png"),
            Content("uri", uri="https://x/a.mp3", media_type="audio/mpeg"),
            Content("uri", uri="https://x/a.mp4", media_type="video/mp4"),
            Content("uri", uri="https://x/a.pdf", media_type="application/pdf"),
            Content("function_result", call_id="c", exception="boom"),
            Content(
                "function_result",
                call_id="d",
                result="x",
                items=[{"type": "text", "text": "x"}, {"type": "data", "uri": "data:image/png;base64,AQ=="}],
            ),
        ],
    )
    request = Reader().read(message, None)  # type: ignore[arg-type]
    assert request is not None
    prompt, failed, seen = request.parts
    assert [type(item) for item in prompt.content] == [BinaryContent, AudioUrl, VideoUrl, DocumentUrl]
    assert (failed.outcome, failed.content) == ("failed", "boom")
    assert seen.content == ["x", BinaryContent(b"\x01", media_type="image/png")]


def test_pydantic_ai_goes_on_where_a_service_ran_the_tool() -> None:
    """Call and result in one answer: the agent takes them for the service's own, and waits for no result."""

    async def check() -> None:
        async with open_store("memory://") as store:
            call = Content("function_call", call_id="c", name="search", arguments='{"n": 1}')
            answer = Message("assistant", [call, Content("function_result", call_id="c", result="hit"), "found"])
            await store.session("s").append([Message("user", ["q"]), answer])
            conversations = StoreConversationStore(store)
            conversation = await conversations.load("s")
            assert conversation is not None
            made, result, text = conversation.messages[1].parts
            assert isinstance(made, NativeToolCallPart)
            assert isinstance(result, NativeToolReturnPart)
            assert (made.tool_name, made.args, made.tool_call_id) == ("search", '{"n": 1}', "c")
            assert (result.tool_name, result.content, result.tool_call_id) == ("search", "hit", "c")
            assert text == TextPart("found")
            assert await conversations.load("s") == conversation
            await conversations.save(await Agent(TestModel()).run("next", conversation=conversation))

    asyncio.run(check())


ODD: dict[str, Message] = {
    "properties that are no dict": Message("user", [Content("text", text="odd", additional_properties=5)]),
    "an item that is none": Message("user", ["odd"], additional_properties={openai_agents_messages.FORMAT: None}),
    "an entry that is a text": Message("user", ["odd"], additional_properties={pydantic_ai_messages.FORMAT: "x"}),
    "an entry without parts": Message("user", ["odd"], additional_properties={pydantic_ai_messages.FORMAT: {}}),
    "an entry with a wrong time": Message(
        "user",
        ["odd"],
        additional_properties={
            pydantic_ai_messages.FORMAT: {
                "kind": "request",
                "parts": [{"part_kind": "user-prompt", "content": "odd"}],
                "timestamp": "noon",
            }
        },
    ),
    "an image that was cut off": Message("user", ["odd", Content("data", uri="data:image/png;base64,AQ")]),
    "an answered image that was cut off": Message(
        "assistant", ["odd", Content("data", uri="data:image/png;base64,AQ")]
    ),
    "an address that is none": Message("user", ["odd", Content("uri", uri=5, media_type=6)]),
    "a media type that is none": Message("user", ["odd", Content("uri", uri="https://x/y", media_type=["a"])]),
    "a text that is none": Message("user", ["odd", Content("text", text=5)]),
    "a call without texts": Message("assistant", ["odd", Content("function_call", call_id=[5], name=7)]),
    "a result without a text": Message("tool", ["odd", Content("function_result", call_id=["x"], items=5)]),
    "a thought without a text": Message("assistant", ["odd", Content("text_reasoning", text=5, protected_data=7)]),
    "an opaque item that is none": Message(
        "user", ["odd", Content(OPAQUE, format=openai_agents_messages.FORMAT, payload=b"{")]
    ),
    "an opaque item without a payload": Message("user", ["odd", Content(OPAQUE, format=openai_agents_messages.FORMAT)]),
}
"""Messages that the core stores, as it looks at no field of a content, and that no framework would make."""


@pytest.mark.parametrize("name", ODD)
def test_a_message_of_odd_fields_hides_no_other(name: str) -> None:
    """What of it can be said is there, and so are the messages around it."""

    async def check() -> None:
        async with open_store("memory://") as store:
            await store.session("s").append([Message("user", ["first"]), ODD[name], Message("user", ["last"])])
            items = json.dumps(await StoreSession(store, "s").get_items())
            conversation = await StoreConversationStore(store).load("s")
            assert conversation is not None
            for text in (items, ModelMessagesTypeAdapter.dump_json(conversation.messages).decode()):
                assert [word for word in ("first", "odd", "last") if word in text] == ["first", "odd", "last"]

    asyncio.run(check())


@pytest.mark.parametrize("payload", [b"{", b"[]", b"{}", b'{"message":{}}', b'{"message":{"kind":"x","parts":[]}}'])
def test_a_payload_that_cannot_be_read_is_a_value_error(payload: bytes) -> None:
    """So that the core tells which record is corrupt."""
    with pytest.raises(ValueError, match=r"."):
        pydantic_ai_messages.convert(payload)


def test_formats_are_read_without_their_frameworks() -> None:
    """A process that has none of them installed reads what they wrote: the converters are entry points."""
    code = """
import sys
sys.modules["agents"] = sys.modules["pydantic_ai"] = sys.modules["pydantic"] = sys.modules["agent_framework"] = None
from agentstore.codec import MessageCodec, decode_record
print(decode_record(MessageCodec(), "openai-agents/1", b'{"role":"user","content":"hi"}').text)
print(decode_record(MessageCodec(), "pydantic-ai/1",
    b'{"id":"a","parent_id":null,"kind":"message","message":{"kind":"response","parts":[{"part_kind":"text","content":"ho"}]}}').text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "hi\nho\n")


@pytest.mark.parametrize("write", [write_openai_agents, write_pydantic_ai], ids=lambda write: write.__name__)
def test_the_command_line_shows_a_session_without_its_framework(write: Any, tmp_path: Path) -> None:
    """Its texts, its image and its call, where none of the frameworks can be imported."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async def fill() -> None:
        async with open_store(url) as store:
            await write(store)

    asyncio.run(fill())
    code = f"""
import sys
sys.modules["agents"] = sys.modules["pydantic_ai"] = sys.modules["agent_framework"] = None
from agentstore.cli import main
sys.argv = ["agentstore", "show", {url!r}, "s"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("be brief", "what is this?", IMAGE, "a picture", "search", "a harbour", "It is a harbour."):
        assert text in done.stdout
