"""One run of an agent: calls of the model and of tools in turn, until the model has nothing more to ask."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from agentstore.approvals import forget, remember, settle, with_requests
from agentstore.calls import Invoker, calls_in, refused
from agentstore.errors import ConfigurationError, SaveError
from agentstore.merging import add_usage
from agentstore.messages import Content, Message
from agentstore.middleware import Chain, ChatContext
from agentstore.model import ModelCall
from agentstore.owed import owe, owed, paid
from agentstore.providers import check_not_mixed
from agentstore.remembering import PerCall, PerTurn, Provider
from agentstore.responses import AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate
from agentstore.session import AgentSession, SessionContext
from agentstore.tools import as_tools

FOR_THE_AGENT = frozenset({"tools", "instructions"})
"""Options of a run that the agent sees to itself; its client never gets them."""


class Run:
    """Read `updates` to their end; then `response` is the whole answer, and it is saved."""

    def __init__(
        self,
        agent: Any,
        session: AgentSession,
        context: SessionContext,
        providers: Sequence[Provider],
        *,
        tools: Any = None,
        stream: bool = False,
    ) -> None:
        self.response = AgentResponse([])
        self._agent = agent
        self._session = session
        self._context = context
        self._providers = providers
        self._given_tools = tools
        self._stream = stream
        memory = PerCall if agent.require_per_service_call_history_persistence else PerTurn
        self._memory = memory(agent, session, context, providers, self.response)
        self._call: ModelCall | None = None
        self._before = context.service_session_id
        self._due: Message | None = None  # the results that the model's newest answer waits for
        self._reached = False

    async def updates(self) -> AsyncGenerator[AgentResponseUpdate, None]:
        """Run. The last update, without contents, comes once the turn is saved: with it the run is over."""
        await self._memory.begin()
        self._check_client()
        finished = False
        try:
            async with aclosing(self._rounds()) as updates:
                async for update in updates:
                    yield update
            finished = True
        except (SaveError, ConfigurationError):
            raise
        except BaseException:
            await self._memory.interrupted([] if self._call is None else _whole_parts(self._call.shown))
            raise
        finally:
            self._leave_service(finished=finished)
        await self._memory.end()
        yield AgentResponseUpdate(response_id=self.response.response_id, finish_reason=self.response.finish_reason)

    async def _rounds(self) -> AsyncGenerator[AgentResponseUpdate, None]:
        tools = self._tools()
        invoker = Invoker(tools, self._context.get_middleware(), self._session)
        known = owed(self._session) + self._context.get_messages(include_input=True)
        settled, ended = await settle(invoker, self._session, self._context.input_messages, known)
        if settled is not None:
            yield self._with_results(settled)
        if ended:
            return
        for left in range(self._agent.max_iterations, -1, -1):
            call = await self._next_call(tools, last=not left)
            async with aclosing(call.updates()) as updates:
                async for update in updates:
                    self._adopt(update.conversation_id)
                    if update.contents:
                        yield _shown(update)
            requests, calls = await self._answered(call, invoker, last=not left)
            if requests:
                yield AgentResponseUpdate(contents=requests, role="assistant")
            if not calls:
                return
            results, ended = await invoker.answer(calls)
            yield self._with_results(results)
            if ended:
                return

    def _with_results(self, results: Message) -> AgentResponseUpdate:
        self.response.messages.append(results)
        self._due = results
        return AgentResponseUpdate(contents=results.contents, role="tool")

    def _check_client(self) -> None:
        """Refuse before the call of the model what would be refused after it."""
        client = self._agent.client
        stores = getattr(client, "stores_by_default", False) and self._context.options.get("store") is not False
        if stores and self._context.service_session_id is None:
            self._check_kept_by_service(type(client).__name__)

    def _check_kept_by_service(self, conversation: str) -> None:
        if self._agent.require_per_service_call_history_persistence:
            raise ConfigurationError(
                f"the service keeps this conversation ({conversation}), and the agent requires its history to be saved "
                "here around each call: use a client that does not store, or an agent that does not require it"
            )
        check_not_mixed(self._providers, self._context, conversation)

    def _leave_service(self, *, finished: bool) -> None:
        """See to it that the service takes the next input: it takes none behind an open call.

        A failed run is gone on from where the conversation was before it, if that has an id of its own; otherwise the
        next input brings the results.
        """
        moved = self._session.service_session_id != self._before
        if finished:
            forget(self._session, self._context.input_messages)
        if self._reached and (finished or not moved):
            paid(self._session, self._before)
        if self._due is not None and moved and not finished:
            self._session.service_session_id = self._before
        elif self._due is not None:
            owe(self._session, self._due)

    def _tools(self) -> list[Any]:
        offered = [self._agent.tools, self._context.options.get("tools"), self._given_tools, self._context.tools]
        return as_tools([item for some in offered for item in as_tools(some)])

    async def _next_call(self, tools: Sequence[Any], *, last: bool) -> ModelCall:
        context = ChatContext(
            self._agent.client,
            self._system() + await self._memory.conversation(),
            self._options(last=last and bool(tools)),
            tools=tools,
            stream=self._stream,
            session=self._session,
        )
        self._call = ModelCall(context, Chain("chat", self._context.get_middleware()))
        return self._call

    async def _answered(self, call: ModelCall, invoker: Invoker, *, last: bool) -> tuple[list[Content], list[Content]]:
        """Go on with the answer: the approvals that it now waits for, and the calls of tools that are to be made."""
        self._call = None
        self._reached = self._reached or call.reached
        answer = call.answer
        if answer is None:
            return [], []
        self._adopt(answer.conversation_id)
        self._note(answer)
        # Copies: a client may answer with one object again and again, and each turn's gets an id of its own.
        messages = [copy.copy(message) for message in answer.messages]
        asked = calls_in(messages)
        calls = [] if call.ended else asked
        waiting = invoker.must_wait(calls)
        if waiting:
            messages = [with_requests(message, calls_in([message])) for message in messages]
        self.response.messages += messages
        self._due = refused(asked, _BROKEN_OFF) if asked and not waiting and call.reached else None
        if calls and last and not waiting:
            self._with_results(refused(calls, _LIMIT))
        if call.reached:
            await self._memory.answered()
        requests = self.response.user_input_requests if waiting else []
        if requests and self._session.service_session_id:
            remember(self._session, requests)
        return requests, [] if last or waiting else calls

    def _note(self, answer: ChatResponse) -> None:
        response = self.response
        response.conversation_id = self._session.service_session_id
        response.response_id = answer.response_id or response.response_id
        response.model = answer.model or response.model
        response.finish_reason = answer.finish_reason or "stop"
        response.usage_details = add_usage(response.usage_details, answer.usage_details)

    def _adopt(self, conversation_id: str | None) -> None:
        """From here on the session is the service's, under this id."""
        if conversation_id is None or conversation_id == self._session.service_session_id:
            return
        self._check_kept_by_service(repr(conversation_id))
        self._session.service_session_id = conversation_id
        self._context.service_session_id = conversation_id

    def _system(self) -> list[Message]:
        texts = [self._agent.instructions, self._context.options.get("instructions"), *self._context.instructions]
        known = [text for text in texts if text]
        return [Message("system", ["\n".join(known)])] if known else []

    def _options(self, *, last: bool) -> dict[str, Any]:
        given = {name: value for name, value in self._context.options.items() if name not in FOR_THE_AGENT}
        given["conversation_id"] = self._context.service_session_id
        if last:
            given["tool_choice"] = "none"
        return {name: value for name, value in given.items() if value is not None}


_BROKEN_OFF = "not known: the run ended before the call was answered"
_LIMIT = "not called: the run has reached its limit of calls (max_iterations)"


def _shown(update: ChatResponseUpdate) -> AgentResponseUpdate:
    shown = AgentResponseUpdate.of(update)
    shown.finish_reason = None
    return shown


def _whole_parts(messages: Sequence[Message]) -> list[Message]:
    """What can be kept of messages that broke off: no call, whose arguments may be cut, and no reasoning at the end."""
    kept: list[Message] = []
    for message in messages:
        contents = [content for content in message.contents if content.type != "function_call"]
        while contents and contents[-1].type == "text_reasoning":
            contents.pop()
        if contents:
            kept.append(Message(message.role, contents, author_name=message.author_name, message_id=message.message_id))
    return kept
