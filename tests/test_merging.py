"""Updates become whole messages again, and messages updates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstore import AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content, Message

update = ChatResponseUpdate


def reasoning(text: str, **fields: Any) -> Content:
    return Content("text_reasoning", text=text, **fields)


@pytest.mark.parametrize(
    ("updates", "messages"),
    [
        ([update(contents="a"), update(contents="b", role="assistant")], [Message("assistant", ["ab"])]),
        (
            [update(contents="a", message_id="1"), update(contents="b", message_id="2"), update(contents="c")],
            [Message("assistant", ["a"], message_id="1"), Message("assistant", ["bc"], message_id="2")],
        ),
        (
            [update(contents="a"), update(contents="b", role="tool")],
            [Message("assistant", ["a"]), Message("tool", ["b"])],
        ),
        (
            [update(contents="a", author_name="x"), update(contents="b", author_name="y")],
            [Message("assistant", ["a"], author_name="x"), Message("assistant", ["b"], author_name="y")],
        ),
        (
            [update(contents=[reasoning("a")]), update(contents=[reasoning("b", signature="s")]), update(contents="c")],
            [Message("assistant", [reasoning("ab", signature="s"), "c"])],
        ),
        (
            [update(contents=[reasoning("a", id="1")]), update(contents=[reasoning("b", id="2")])],
            [Message("assistant", [reasoning("a", id="1"), reasoning("b", id="2")])],
        ),
        ([update(role="assistant"), update(contents="a"), update(finish_reason="stop")], [Message("assistant", ["a"])]),
        ([update(role="assistant")], [Message("assistant")]),
        ([update(finish_reason="stop"), update(message_id="1")], []),
    ],
)
def test_pieces_are_joined(updates: list[ChatResponseUpdate], messages: list[Message]) -> None:
    """Neighbouring texts become one; another id, role or author begins another message."""
    assert ChatResponse.from_updates(updates).messages == messages


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (['{"a"', ": 1}"], '{"a": 1}'),
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ([None, "{}"], "{}"),
        (["", {"a": 1}], {"a": 1}),
        (['{"a": 1}', {"b": 2}], {"a": 1, "b": 2}),
    ],
)
def test_arguments_are_joined(pieces: list[Any], arguments: Any) -> None:
    """Pieces of text one behind the other, mappings by key."""
    parts = [Content("function_call", call_id="1", name="f", arguments=piece) for piece in pieces]
    (message,) = ChatResponse.from_updates([update(contents=[part]) for part in parts]).messages
    assert [content.arguments for content in message.contents] == [arguments]


def test_joining_changes_no_update() -> None:
    """The pieces stay what they were."""
    pieces = [update(contents="a"), update(contents="b")]
    ChatResponse.from_updates(pieces)
    assert [piece.text for piece in pieces] == ["a", "b"]


def test_what_is_no_message_is_in_the_response() -> None:
    """Ids, model, reason and the sum of the usage."""
    usage = [Content("usage", usage_details={"input_token_count": 2, "note": "x"})]
    response = ChatResponse.from_updates(
        [
            update(contents="a", conversation_id="conv_1", model="m"),
            update(contents=usage, response_id="resp_1"),
            update(contents=usage, finish_reason="stop"),
        ]
    )
    assert (response.conversation_id, response.response_id, response.model) == ("conv_1", "resp_1", "m")
    assert (response.finish_reason, response.usage_details) == ("stop", {"input_token_count": 4})
    assert str(response) == "a"


def test_an_agents_updates_are_its_own() -> None:
    """They say the same, and make an agent's response."""
    given_update = update(contents="a", role="assistant", message_id="1")
    shown = AgentResponseUpdate.of(given_update)
    assert (str(shown), shown.message_id, repr(shown)[:19]) == ("a", "1", "AgentResponseUpdate")
    assert isinstance(AgentResponse.from_updates([shown]), AgentResponse)


kinds = st.sampled_from(["text", "text_reasoning", "uri"])
contents = kinds.map(lambda kind: Content(kind, text="x", uri="u"))


@given(
    st.lists(st.tuples(st.sampled_from(["assistant", "tool"]), st.lists(contents, min_size=1, max_size=3)), max_size=4)
)
def test_a_response_survives_its_updates(shapes: list[tuple[str, list[Content]]]) -> None:
    """`from_updates(to_updates())` is the same answer; only ids are added, which keep messages apart."""
    messages = [Message(role, parts, additional_properties={"k": 1}) for role, parts in shapes]
    response = ChatResponse(messages, "conv_1", finish_reason="stop", usage_details={"total_token_count": 3})
    again = ChatResponse.from_updates(response.to_updates())
    assert all(message.message_id for message in again.messages)
    for message in again.messages:
        message.message_id = None
    assert again.messages == messages
    assert (again.conversation_id, again.finish_reason, again.usage_details) == (
        "conv_1", "stop", {"total_token_count": 3},
    )  # fmt: skip
