"""Sessions, the context of a run, and typed state."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from agentstore import (
    AgentResponse,
    AgentSession,
    BaseContextProvider,
    Content,
    Message,
    ProviderSessionState,
    SessionContext,
    open_store,
)


class Preferences(msgspec.Struct):
    tone: str = "dry"
    since: datetime | None = None
    picture: bytes = b""


@dataclass
class Notes:
    lines: list[str] = field(default_factory=list)


def test_a_session_has_an_id_of_its_own() -> None:
    """Given or random, never shared, and the same for the object's life (B84)."""
    assert AgentSession(session_id="s").session_id == "s"
    assert AgentSession().session_id != AgentSession().session_id


def test_a_session_survives_its_dict() -> None:
    """Ids, state and the messages in it come back through JSON (FEATURES 27)."""
    session = AgentSession(session_id="s", service_session_id="conv_1", state={"memory": {"messages": [hello()]}})
    again = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert (again.session_id, again.service_session_id) == ("s", "conv_1")
    assert again.to_dict() == session.to_dict()


@pytest.mark.parametrize("data", [{}, {"session_id": ""}, {"session_id": 7}, {"session_id": "s", "state": []}])
def test_a_mapping_that_is_no_session_is_refused(data: dict[str, Any]) -> None:
    """`ValueError`, not a session with a made-up id."""
    with pytest.raises(ValueError, match="session"):
        AgentSession.from_dict(data)


def hello() -> Message:
    return Message("user", ["hi"], additional_properties={"tag": 1})


def test_context_messages_are_stamped_copies() -> None:
    """The stamp names the source, on copies: properties and contents of the given object stay (FEATURES 14)."""
    context = SessionContext(input_messages=[])
    given = hello()
    context.extend_messages(BaseContextProvider("notes"), [given])
    context.extend_messages("plain", [given])
    first, second = context.get_messages()
    assert first.additional_properties == {
        "_attribution": {"source_id": "notes", "source_type": "BaseContextProvider"},
        "tag": 1,
    }
    assert second.additional_properties["_attribution"] == {"source_id": "plain"}
    first.contents.append(Content("text", text="more"))
    assert given == hello()


def test_a_message_keeps_its_first_stamp() -> None:
    """What another provider hands on still says where it came from."""
    context = SessionContext(input_messages=[])
    context.extend_messages("history", [hello()])
    context.extend_messages("other", context.get_messages())
    assert [m.additional_properties["_attribution"]["source_id"] for m in context.get_messages()] == ["history"] * 2


def test_context_messages_can_be_picked_by_source() -> None:
    """In the order of the providers, with input and response behind them."""
    context = SessionContext(input_messages=[Message("user", ["in"])])
    for source in ("a", "b", "a"):
        context.extend_messages(source, [Message("user", [source])])
    assert texts(context.get_messages()) == ["a", "a", "b"]
    assert texts(context.get_messages(sources={"b"})) == ["b"]
    assert texts(context.get_messages(exclude_sources={"a"}, include_input=True)) == ["b", "in"]
    assert texts(context.get_messages(sources=(), include_response=True)) == []
    context.response = AgentResponse([Message("assistant", ["out"])])
    assert texts(context.get_messages(sources=(), include_input=True, include_response=True)) == ["in", "out"]


def test_providers_add_instructions_and_tools() -> None:
    """One or many, in order (FEATURES 37)."""
    context = SessionContext(input_messages=[], session_id="s", options={"temperature": 0})
    context.extend_instructions("a", "be kind")
    context.extend_instructions("b", ["be brief", "be right"])
    context.extend_tools("a", [len])
    assert context.instructions == ["be kind", "be brief", "be right"]
    assert (context.tools, context.options, context.session_id) == ([len], {"temperature": 0}, "s")


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_typed_state_is_made_once_and_saved() -> None:
    """The factory sees the session, the first time; what is changed without `save` is not kept (FEATURES 20)."""
    made: list[str] = []

    def factory(session: AgentSession) -> Notes:
        made.append(session.session_id)
        return Notes()

    state = ProviderSessionState("notes", factory)
    session = AgentSession(session_id="s")
    notes = state.get(session)
    notes.lines.append("tea")
    assert state.get(session) == Notes()
    state.save(session, notes)
    assert state.get(session) == Notes(["tea"])
    assert made == ["s"]


@pytest.mark.parametrize(
    "value", [Preferences("warm", datetime(2026, 1, 2, tzinfo=timezone.utc), b"\xff\x00"), Notes(["a"]), {"plain": [1]}]
)
def test_typed_state_survives_json_and_another_process(value: Any) -> None:
    """Structs, dataclasses and plain values need no encode and decode, also in an instance that never saved one."""
    session = AgentSession()
    ProviderSessionState("p", lambda session: value).save(session, value)
    restored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert ProviderSessionState("p", lambda session: type(value)()).get(restored) == value


def test_typed_state_takes_its_type_from_the_subscript() -> None:
    """`ProviderSessionState[list[Notes]]` decodes what a bare factory could not name, and does not call it."""

    def never(session: AgentSession) -> list[Notes]:
        raise AssertionError("the session has a value")

    session = AgentSession(state={"p": {"value": [{"lines": ["a"]}]}})
    assert ProviderSessionState[list[Notes]]("p", never).get(session) == [Notes(["a"])]


def test_typed_state_uses_the_given_encoding() -> None:
    """Anything can be kept with `encode` and `decode`."""
    state = ProviderSessionState("p", lambda session: {3, 1}, encode=sorted, decode=set)
    session = AgentSession()
    assert state.get(session) == {1, 3}
    assert session.state == {"p": {"value": [1, 3]}}


def test_typed_state_that_does_not_fit_is_an_error() -> None:
    """Never silently another type (B14)."""
    session = AgentSession(state={"p": {"value": {"tone": 7}}})
    with pytest.raises(ValueError, match="tone"):
        ProviderSessionState("p", lambda session: Preferences()).get(session)


def test_a_whole_session_is_kept_beside_its_messages() -> None:
    """`save_snapshot` and `load_snapshot` carry ids and state to another process (FEATURES 28, B127)."""

    async def main() -> None:
        async with open_store("memory://") as store:
            session = AgentSession(session_id="s", state={"memory": {"messages": [hello()]}})
            await store.session("s").save_snapshot(session)
            snapshot = await store.session("s").load_snapshot()
            assert snapshot is not None
            assert isinstance(snapshot.session, AgentSession)
            assert snapshot.session.to_dict() == session.to_dict()

    asyncio.run(main())
