"""`OpenAIChatClient` against a server on loopback that keeps conversations itself, alone and in an agent."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai_server import KEY, MODEL, OpenAIServer, called, refused, said, thought
from starlette.responses import PlainTextResponse

from agentstore import (
    ChatClient,
    ChatClientError,
    ConfigurationError,
    Content,
    Message,
    tool,
)
from agentstore.clients.openai import OpenAIChatClient
from agentstore.clients.openai_errors import without_key
from agentstore.responses import ChatResponse

MODES = ("responses", "chat_completions")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer().running() as running:
        yield running


def client_of(server: OpenAIServer, mode: str = "responses", **settings: Any) -> OpenAIChatClient:
    return OpenAIChatClient(MODEL, **{"mode": mode, "api_key": KEY, "base_url": server.url, **settings})  # type: ignore[arg-type]


def ask(client: OpenAIChatClient, *messages: Message, stream: bool = False, **settings: Any) -> ChatResponse:
    """One call to the model, whole or streamed, and the connection closed behind it."""

    async def main() -> ChatResponse:
        try:
            if not stream:
                return await client.get_response(messages, **settings)
            return ChatResponse.from_updates([u async for u in client.stream_response(messages, **settings)])
        finally:
            await client.aclose()

    return asyncio.run(main())


def user(*contents: Any) -> Message:
    return Message("user", list(contents))


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- one call --


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_streamed_answer_is_the_whole_one(server: OpenAIServer, mode: str, stream: bool) -> None:
    """Reasoning, text and parallel calls: in one message, in order, with the counted tokens and why it ended."""
    calls = [called("add", "c1", a=1, b=2), called("add", "c2", a=30, b=4)]
    server.script = [
        [thought("hm", "so"), said("Adding."), *calls] if mode == "responses" else [said("Adding."), *calls]
    ]
    answer = ask(client_of(server, mode), user("1 + 2, 30 + 4"), stream=stream, tools=[add])
    (message,) = answer.messages
    assert (message.role, message.text) == ("assistant", "Adding.")
    arguments = [(c.call_id, c.name, json.loads(c.arguments)) for c in message.contents if c.type == "function_call"]
    assert arguments == [("c1", "add", {"a": 1, "b": 2}), ("c2", "add", {"a": 30, "b": 4})]
    assert [c.text for c in message.contents if c.type == "text_reasoning"] == ["hm\n\nso"] * (mode == "responses")
    assert answer.finish_reason == "tool_calls"
    assert answer.usage_details["total_token_count"] == 12
    assert (answer.model, bool(answer.response_id)) == (MODEL, True)


@pytest.mark.parametrize("mode", MODES)
def test_whole_and_streamed_contents_are_equal(server: OpenAIServer, mode: str) -> None:
    """Down to the service's ids and notes, so that either can go back to it."""
    note = {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "t", "url": "https://a.example"}
    whole = said("It is so.", id="msg_fixed", annotations=[note], phase="final_answer")
    fixed = [{**thought("a", "b"), "id": "rs_fixed"}, whole, {**called("add", "c1", a=1), "id": "fc_fixed"}]
    answers = []
    for stream in (False, True):
        server.script = [fixed if mode == "responses" else [said("It is so."), called("add", "c1", a=1)]]
        answers.append(ask(client_of(server, mode), user("so?"), stream=stream).messages)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("mode", MODES)
def test_the_raw_answer_is_at_hand(server: OpenAIServer, mode: str) -> None:
    """The SDK's object, on the message and on the response; it is never stored."""
    answer = ask(client_of(server, mode), user("hi"))
    assert answer.messages[0].raw_representation is answer.raw_representation
    assert type(answer.raw_representation).__module__.startswith("openai.types")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_shown_and_goes_back_as_one(server: OpenAIServer, mode: str, stream: bool) -> None:
    """Its text reads as text; the service sees that it refused."""
    reasoning = [thought("no")] if mode == "responses" else []
    server.script = [[*reasoning, refused("I will not.")], "ok"]
    client = client_of(server, mode, **({"store": False} if mode == "responses" else {}))
    answer = ask(client, user("do it"), stream=stream)
    assert answer.text == "I will not."
    ask(client, user("do it"), *answer.messages, user("please"))
    assert '"refusal": "I will not."' in json.dumps(server.bodies[-1])


def test_instructions_go_beside_the_conversation(server: OpenAIServer) -> None:
    """In the Responses interface: the service would keep a copy of them for each turn."""
    ask(client_of(server), Message("system", ["be", "brief"]), user("hi"))
    assert server.bodies[0]["instructions"] == "be brief"
    assert [item["role"] for item in server.bodies[0]["input"]] == ["user"]
    ask(client_of(server, "chat_completions"), Message("system", ["be brief"]), user("hi"))
    assert server.bodies[1]["messages"][0] == {"role": "system", "content": "be brief"}


@pytest.mark.parametrize("mode", MODES)
def test_images_and_files_reach_the_model(server: OpenAIServer, mode: str) -> None:
    """As the Agent Framework's contents have them: data, an address, or an id at the service."""
    pixel = "data:image/png;base64,iVBORw0KGgo="
    ask(
        client_of(server, mode),
        user(
            "look",
            Content("data", uri=pixel, media_type="image/png"),
            Content("data", data=b"\x89PNG", media_type="image/png"),
            Content("uri", uri="https://a.example/cat.jpg?size=1", additional_properties={"detail": "low"}),
            Content("data", uri="data:application/pdf;base64,JVBERg==", media_type="application/pdf", name="a.pdf"),
            Content("hosted_file", file_id="file-1"),
        ),
    )
    sent = json.dumps(server.bodies[0])
    assert all(part in sent for part in (pixel, "iVBORw==", "cat.jpg?size=1", '"low"', "JVBERg==", '"a.pdf"', "file-1"))


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        ("responses", Content("data", uri="data:audio/wav;base64,UklGRg==", media_type="audio/wav")),
        ("chat_completions", Content("uri", uri="https://a.example/a.pdf", media_type="application/pdf")),
        *[(mode, Content("vector_store", id="vs")) for mode in MODES],
    ],
)
def test_a_content_that_the_interface_does_not_take_is_refused(
    server: OpenAIServer, mode: str, content: Content
) -> None:
    """Not left out: the user believes that the model has seen it. Nothing is sent."""
    with pytest.raises(ConfigurationError, match=content.type):
        ask(client_of(server, mode), user("hear", content))
    assert server.requests == []


def test_sound_goes_to_chat_completions(server: OpenAIServer) -> None:
    """As data with its format."""
    sound = Content("data", uri="data:audio/wav;base64,UklGRg==", media_type="audio/wav")
    server.script = ["a bird"]
    ask(client_of(server, "chat_completions"), user(sound))
    (part,) = server.bodies[0]["messages"][0]["content"]
    assert part == {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


@pytest.mark.parametrize("mode", MODES)
def test_what_no_request_can_hold_does_not_stop_a_conversation(server: OpenAIServer, mode: str) -> None:
    """A lone surrogate in a stored message goes out as a question mark."""
    assert ask(client_of(server, mode), user("a \ud800 b")).text == "a ? b"


def test_a_tools_images_go_to_the_model(server: OpenAIServer) -> None:
    """Where the interface takes them; to the other goes its text."""
    call = Content("function_call", call_id="c1", name="look", arguments={"far": True})
    seen = [Content("text", text="a cat"), Content("data", uri="data:image/png;base64,aaaa", media_type="image/png")]
    result = Message("tool", [Content("function_result", call_id="c1", result="a cat", items=seen)])
    for mode in MODES:
        settings = {"store": False} if mode == "responses" else {}
        ask(client_of(server, mode, **settings), user("look"), Message("assistant", [call]), result)
    assert server.bodies[0]["input"][-1]["output"][1]["image_url"] == "data:image/png;base64,aaaa"
    assert server.bodies[0]["input"][-2]["arguments"] == '{"far": true}'
    assert server.bodies[1]["messages"][-1]["content"] == "a cat"


# -- options and set-up --


def test_options_have_one_name_for_both_interfaces(server: OpenAIServer) -> None:
    """Those that every chat client knows are translated, a run's come before the client's, others go as they are."""
    schema = {"name": "answer", "schema": {"type": "object", "properties": {}}, "strict": False}
    options = {
        "max_tokens": 9,
        "allow_multiple_tool_calls": False,
        "temperature": 0.1,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "tool_choice": "auto",
        "metadata": {"a": "b"},
    }
    ask(client_of(server, options={"temperature": 0.9, "top_p": 0.5}), user("hi"), options=options)
    ask(client_of(server, "chat_completions"), user("hi"), options={**options, "seed": 7, "model": "other"})
    first, second = server.bodies
    assert (first["max_output_tokens"], first["parallel_tool_calls"], first["temperature"]) == (9, False, 0.1)
    assert (first["top_p"], first["text"]) == (0.5, {"format": {"type": "json_schema", **schema}})
    assert (second["max_tokens"], second["parallel_tool_calls"], second["model"]) == (9, False, "other")
    assert second["response_format"] == options["response_format"]


@pytest.mark.parametrize(
    ("mode", "option"),
    [
        ("responses", "seed"),
        ("responses", "temprature"),
        ("responses", "background"),
        ("responses", "previous_response_id"),
        ("chat_completions", "reasoning"),
        ("chat_completions", "n"),
        ("chat_completions", "stream"),
    ],
)
def test_an_option_that_the_interface_does_not_have_is_refused(server: OpenAIServer, mode: str, option: str) -> None:
    """With the known ones; in a call, and when the client is made. Nothing is sent."""
    with pytest.raises(ConfigurationError, match=rf"has no option {option}; it knows .*temperature"):
        ask(client_of(server, mode), user("hi"), options={option: 1})
    with pytest.raises(ConfigurationError, match=option):
        client_of(server, mode, options={option: 1})
    assert server.requests == []


def test_a_service_s_own_tools_go_as_they_are(server: OpenAIServer) -> None:
    """Beside functions; what comes of them returns to the same service, and to no other."""
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    server.script = [[search, said("found")]]
    client = client_of(server, store=False)
    answer = ask(client, user("find"), tools=[{"type": "web_search"}, add])
    assert [spec["type"] for spec in server.bodies[0]["tools"]] == ["web_search", "function"]
    ask(client, user("find"), *answer.messages, user("more"))
    assert search in server.bodies[1]["input"]
    ask(client_of(server, "chat_completions"), user("find"), *answer.messages, user("more"))
    assert server.bodies[2]["messages"][1] == {"role": "assistant", "content": "found"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"api_key": None}, "OPENAI_API_KEY"),
        ({"api_key": KEY + "\n"}, "line break"),
        ({"api_key": "sk-\N{HORIZONTAL ELLIPSIS}"}, "no key has"),
        ({"model": None}, "OPENAI_MODEL"),
        ({"mode": "assistants"}, "'assistants'"),
    ],
)
def test_a_client_that_cannot_work_is_refused_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], why: str
) -> None:
    """Before anything is sent, and without a word of the key."""
    for name in ("OPENAI_API_KEY", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=why) as raised:
        OpenAIChatClient(**{"model": MODEL, "api_key": KEY, **settings})
    assert KEY not in str(raised.value)


def test_the_environment_names_model_key_and_server(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the SDK has it."""
    for name, value in (("MODEL", MODEL), ("API_KEY", KEY), ("BASE_URL", server.url)):
        monkeypatch.setenv(f"OPENAI_{name}", value)
    assert ask(OpenAIChatClient(), user("hi")).text == "hi"


def test_a_client_serves_several_event_loops_and_leaves_a_borrowed_sdk_client_open(server: OpenAIServer) -> None:
    """One after the other, as `asyncio.run` makes them."""
    client = client_of(server)
    assert [ask(client, user(text)).text for text in ("a", "b")] == ["a", "b"]

    async def main() -> None:
        lent = openai.AsyncOpenAI(api_key=KEY, base_url=server.url)
        borrower = OpenAIChatClient(MODEL, client=lent)
        assert (await borrower.get_response([user("c")])).text == "c"
        await borrower.aclose()
        assert not lent.is_closed()
        await lent.close()

    asyncio.run(main())


def test_a_dead_loop_s_connections_are_let_go(server: OpenAIServer) -> None:
    """At the next use, though nobody closed them."""
    client = client_of(server)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.get_response([user("hi")])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        ask(client, user("hi"))
        gc.collect()
    assert loops[0]() is None


def test_it_is_a_chat_client() -> None:
    """By the protocol, and its `repr` shows no key."""
    client = OpenAIChatClient(MODEL, api_key=KEY)
    assert isinstance(client, ChatClient)
    assert repr(client) == f"OpenAIChatClient({MODEL!r}, mode='responses')"


# -- failures --


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_key_is_shown_nowhere(server: OpenAIServer, mode: str, stream: bool) -> None:
    """Neither in the error, nor in its cause, though the service repeats it."""
    wrong = "sk-live-abcdefghijklmnopqrstuvwxyz"
    with pytest.raises(ChatClientError, match=r"refused the API key \(HTTP 401\)") as raised:
        ask(client_of(server, mode, api_key=wrong), user("hi"), stream=stream)
    assert raised.value.status == 401
    shown = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__cause__}"
    assert isinstance(raised.value.__cause__, openai.AuthenticationError)
    assert "sk-live" not in shown
    assert "wxyz" not in shown


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_service_is_told_without_the_key(server: OpenAIServer, mode: str, stream: bool) -> None:
    """Its status and its words."""
    server.failing = 500
    with pytest.raises(ChatClientError, match=r"The server had an error.*HTTP 500") as raised:
        ask(client_of(server, mode), user("hi"), stream=stream)
    assert raised.value.status == 500
    assert KEY not in f"{raised.value} {raised.value.__cause__}"


@pytest.mark.parametrize(
    ("text", "key", "shown"),
    [
        ("the key sk-abcdefgh is bad", "sk-abcdefgh", "the key *** is bad"),
        ("the key sk-ab****gh. Find", "sk-abcdefgh", "the key *** Find"),
        ("no model x", "x", "no model x"),
        ("a*b", "", "a*b"),
    ],
)
def test_a_key_is_taken_out_of_a_text(text: str, key: str, shown: str) -> None:
    """Whole, or as services print one; but for what only fills the place of a key."""
    assert without_key(text, key) == shown


@pytest.mark.parametrize("mode", MODES)
def test_a_service_that_cannot_be_reached_is_told(mode: str) -> None:
    """Also an address behind which something else answers."""
    lent = {"api_key": KEY, "max_retries": 0}

    async def main(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, **lent) as sdk:  # type: ignore[arg-type]
            await OpenAIChatClient(MODEL, mode=mode, client=sdk).get_response([user("hi")])  # type: ignore[arg-type]

    with pytest.raises(ChatClientError, match="cannot be reached"):
        asyncio.run(main("http://127.0.0.1:9/v1"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("events", [0, 3])
def test_a_stream_that_is_cut_is_no_answer(server: OpenAIServer, mode: str, events: int) -> None:
    """Half an answer never passes for a whole one."""
    server.cut_after = events
    with pytest.raises(ChatClientError):
        ask(client_of(server, mode), user("a long answer, please"), stream=True)


@pytest.mark.parametrize("mode", MODES)
def test_closing_a_stream_hangs_up(server: OpenAIServer, mode: str) -> None:
    """The service sees the client go."""
    server.waiting_after = 4

    async def main() -> None:
        client = client_of(server, mode)
        updates = client.stream_response([user("a long answer, please")])
        async for update in updates:
            if update.text:
                break
        await updates.aclose()  # type: ignore[attr-defined]
        await client.aclose()

    asyncio.run(main())
    assert server.left.wait(5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_holds_nothing_is_an_error(server: OpenAIServer, mode: str, stream: bool) -> None:
    """It is no message, whole or streamed."""
    server.script = [[]]
    with pytest.raises(ChatClientError, match="nothing at all"):
        ask(client_of(server, mode), user("hi"), stream=stream)


def test_a_response_that_failed_raises(server: OpenAIServer) -> None:
    """With the service's words and code."""

    class Failing(OpenAIServer):
        def _response(self, body: Any, output: Any) -> dict[str, Any]:
            error = {"code": "server_error", "message": "out of luck"}
            return {**super()._response(body, output), "status": "failed", "error": error}

    with Failing().running() as failing, pytest.raises(ChatClientError, match=r"out of luck \(server_error\)"):
        ask(client_of(failing), user("hi"))


# -- servers with ways of their own --


class Alike(OpenAIServer):
    """Counts every call of a stream as the first one."""

    def sent(self, event: dict[str, Any]) -> dict[str, Any]:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", []):
                call["index"] = 0
        return event


class Nameless(OpenAIServer):
    """Gives no ids to calls."""

    def sent(self, event: dict[str, Any]) -> dict[str, Any]:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", []):
                call.pop("id", None)
        return event


class Thinking(OpenAIServer):
    """Tells its reasoning in a field that the SDK's types do not have."""

    def sent(self, event: dict[str, Any]) -> dict[str, Any]:
        for choice in event["choices"]:
            if choice["delta"].get("role"):
                choice["delta"]["reasoning_content"] = "hm"
        return event


class Hasty(OpenAIServer):
    """Streams the whole response in its last event only."""

    def sent(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return event if event["type"] in ("response.created", "response.completed") else None


class Terse(OpenAIServer):
    """Streams whole items, and no pieces of them."""

    def sent(self, event: dict[str, Any]) -> dict[str, Any] | None:
        return None if event["type"].endswith(".delta") else event


CALLS = [called("add", "c1", a=1), called("add", "c2", a=2)]


@pytest.mark.parametrize("kind", [Alike, Nameless])
def test_calls_are_told_apart(kind: type[OpenAIServer]) -> None:
    """By an id of their own, or by their place; each has an id in the end, which its result can name."""
    with kind().running() as server:
        server.script = [CALLS]
        (message,) = ask(client_of(server, "chat_completions"), user("add"), stream=True).messages
    assert [json.loads(content.arguments) for content in message.contents] == [{"a": 1}, {"a": 2}]
    assert len({content.call_id for content in message.contents}) == 2
    assert all(content.call_id for content in message.contents)


def test_reasoning_that_a_compatible_server_tells_is_kept_and_not_sent_back() -> None:
    """As reasoning, before the text."""
    with Thinking().running() as server:
        client = client_of(server, "chat_completions")
        answer = ask(client, user("hi"), stream=True)
        assert [content.type for content in answer.messages[0].contents] == ["text_reasoning", "text"]
        ask(client, user("hi"), *answer.messages, user("again"))
        assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize("kind", [Hasty, Terse])
def test_what_was_not_streamed_comes_at_the_end(kind: type[OpenAIServer]) -> None:
    """Nothing is lost, nothing is doubled."""
    with kind().running() as server:
        server.script = [[thought("hm"), said("It is."), *CALLS]] * 2
        whole, streamed = (ask(client_of(server), user("so?"), stream=stream) for stream in (False, True))
        for answer in (whole, streamed):
            for content in answer.messages[0].contents:
                del content.id  # the server counts them
    assert streamed.messages == whole.messages


def test_an_address_with_something_else_behind_it_is_told(server: OpenAIServer) -> None:
    """A page is no answer."""

    class Page(OpenAIServer):
        async def _respond(self, request: Any) -> PlainTextResponse:
            return PlainTextResponse("<html>welcome</html>")

        _complete = _respond

    with Page().running() as page:
        for mode in MODES:
            with pytest.raises(ChatClientError, match="base_url"):
                ask(client_of(page, mode), user("hi"))
            with pytest.raises(ChatClientError):
                ask(client_of(page, mode), user("hi"), stream=True)
