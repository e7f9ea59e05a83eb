"""What a model's calls of tools come to: one result for each, in their order, whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from agentstore.messages import Content, Message
from agentstore.middleware import Chain, FunctionInvocationContext, MiddlewareFailure, MiddlewareTermination
from agentstore.session import AgentSession
from agentstore.tools import ArgumentsError, FunctionTool, as_mapping, tool_name

_logger = logging.getLogger("agentstore")


def calls_in(messages: Iterable[Message]) -> list[Content]:
    """The calls that somebody here must answer: not those that the service itself makes, or made."""
    contents = [content for message in messages for content in message.contents]
    answered = [content.get("call_id") for content in contents if content.type == "function_result"]
    return [
        content
        for content in contents
        if content.type == "function_call"
        and not (content.get("hosted") or content.get("informational_only"))
        and content.get("call_id") not in answered
    ]


def refused(calls: Iterable[Content], reason: str) -> Message:
    """Results that say why the calls were not made."""
    return Message("tool", [_failure(call, reason) for call in calls])


class Invoker:
    """Makes the calls of one run, with its tools and function middleware."""

    def __init__(self, tools: Iterable[Any], middleware: Iterable[Any], session: AgentSession) -> None:
        self._tools = {tool_name(item): item for item in tools if isinstance(item, FunctionTool)}
        self._chain: Chain[FunctionInvocationContext] = Chain("function", middleware)
        self._session = session

    def must_wait(self, calls: Iterable[Content]) -> bool:
        """Whether one of the calls needs the user's approval: then all of them wait for it."""
        tools = [self._tools.get(call.get("name")) for call in calls]
        return any(tool is not None and tool.approval_mode == "always_require" for tool in tools)

    async def answer(self, calls: Sequence[Content]) -> tuple[Message, bool]:
        """The results, in the order of the calls, which run at once; and whether one of them ends the run.

        An unknown name, bad arguments, an exception or a tool that cancels itself become a result that the model sees.
        Raises what must fail the run: `MiddlewareFailure`, and the cancellation of the run, for which the others are
        cancelled too.
        """
        tasks = [asyncio.ensure_future(self._answer(call)) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure
        answers = [_outcome(call, task) for call, task in zip(calls, tasks, strict=True)]
        return Message("tool", [content for content, _ in answers]), any(ended for _, ended in answers)

    async def _answer(self, call: Content) -> tuple[Content, bool]:
        function = self._tools.get(call.get("name"))
        if function is None:
            return _failure(call, f"there is no tool {call.get('name')!r}"), False
        try:
            context = FunctionInvocationContext(
                function, as_mapping(call.get("arguments")), self._session, call_id=call.get("call_id")
            )
        except ArgumentsError as error:
            return _failure(call, str(error)), False
        return await self._made(call, context)

    async def _made(self, call: Content, context: FunctionInvocationContext) -> tuple[Content, bool]:
        try:
            ended = await self._ended(context)
            return _success(call, context.result), ended
        except ArgumentsError as error:
            return _failure(call, str(error)), False
        except MiddlewareFailure:
            raise
        except (Exception, GeneratorExit) as error:  # a stranger's tool can raise anything; the model goes on with it
            _logger.warning("tool %r failed", context.function.name, exc_info=error)
            return _failure(call, f"{type(error).__name__}: {error}"), False

    async def _ended(self, context: FunctionInvocationContext) -> bool:
        """Make the call, through the middleware; whether it ends the run."""
        try:
            await self._chain.run(context, _invoke)
        except MiddlewareTermination as end:
            context.result = context.result if end.result is None else end.result
            return True
        return False


def _outcome(call: Content, task: asyncio.Future[tuple[Content, bool]]) -> tuple[Content, bool]:
    # The run goes on, so it was the tool itself that gave up.
    return (_failure(call, "the tool was cancelled"), False) if task.cancelled() else task.result()


async def _invoke(context: FunctionInvocationContext) -> None:
    context.result = await context.function.invoke(context.arguments, context=context)


def _success(call: Content, value: Any) -> Content:
    items = [value] if isinstance(value, Content) else value
    if isinstance(items, list) and items and all(isinstance(item, Content) for item in items):
        text = "\n".join([item.get("text") or "" for item in items if item.type == "text"])
        return Content("function_result", call_id=call.get("call_id"), result=text, items=items)
    return Content("function_result", call_id=call.get("call_id"), result=result_text(value))


def _failure(call: Content, reason: str) -> Content:
    return Content("function_result", call_id=call.get("call_id"), result=f"Error: {reason}", exception=reason)


def result_text(value: Any) -> str:
    """What the model reads of a tool's result: a text as it is, `None` as nothing, all else as JSON if it can be."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return msgspec.json.encode(value, enc_hook=_as_plain).decode()
    except (TypeError, ValueError, RecursionError):  # keys or texts that JSON does not have, or no end
        return str(value)


def _as_plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else str(value)
