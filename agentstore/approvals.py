"""Calls that wait for the user: the request in the answer, the user's response in a later input, the call made then."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from agentstore.calls import Invoker, refused
from agentstore.messages import Content, Message
from agentstore.session import AgentSession

REQUEST = "function_approval_request"
RESPONSE = "function_approval_response"

STATE = "agentstore.approvals"
"""Where a session's state has the requests of a conversation that the service keeps, by id."""


def approval_response(request: Content, approved: bool) -> Content:
    """What to put into the next input, in a user message, for a request among `AgentResponse.user_input_requests`."""
    return Content(RESPONSE, id=request.get("id"), approved=approved, function_call=request.get("function_call"))


def with_requests(message: Message, calls: Iterable[Content]) -> Message:
    """A copy of the model's message that also asks for the user's approval of these calls of it."""
    asking = copy.copy(message)
    requests = [Content(REQUEST, id=call.get("call_id"), function_call=call.to_dict()) for call in calls]
    asking.contents = [*message.contents, *requests]
    return asking


def remember(session: AgentSession, requests: Iterable[Content]) -> None:
    """Keep the requests in the session's state: no history here has them."""
    pending = session.state.setdefault(STATE, {})
    pending.update({request.id: request.to_dict() for request in requests})


def forget(session: AgentSession, inputs: Iterable[Message]) -> None:
    """The run that these inputs answered has ended well: what they answered is not asked any more."""
    for response in _contents(inputs, RESPONSE):
        session.state.get(STATE, {}).pop(response.get("id"), None)


async def settle(
    invoker: Invoker, session: AgentSession, inputs: Sequence[Message], known: Sequence[Message]
) -> tuple[Message | None, bool]:
    """The results of the calls that the input approves or refuses, if it does; and whether one of them ends the run.

    What is called is what the request says that is among the `known` messages or remembered, never what a response
    does. Raises `ValueError` for a response to no request.
    """
    remembered = session.state.get(STATE, {})
    asked = {name: Content.from_dict(request) for name, request in remembered.items()}
    asked |= {content.get("id"): content for content in _contents(known, REQUEST)}
    answered = {content.get("call_id") for content in _contents(known, "function_result")}
    results: list[Content] = []
    ends = False
    for response in _contents(inputs, RESPONSE):
        request = asked.get(response.get("id"))
        if request is None:
            raise ValueError(f"the approval {response.get('id')!r} answers no request of this conversation")
        call = _call_of(request)
        if call.get("call_id") not in answered:
            made, ended = await _settled(invoker, call, approved=response.get("approved") is True)
            results += made.contents
            ends = ends or ended
    return Message("tool", results) if results else None, ends


async def _settled(invoker: Invoker, call: Content, *, approved: bool) -> tuple[Message, bool]:
    if not approved:
        return refused([call], "the user did not approve this call"), False
    return await invoker.answer([call])


def _contents(messages: Iterable[Message], kind: str) -> list[Content]:
    return [content for message in messages for content in message.contents if content.type == kind]


def _call_of(asking: Content) -> Content:
    call = asking.get("function_call")
    return call if isinstance(call, Content) else Content.from_dict(call)
