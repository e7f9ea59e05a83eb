"""One call of the model, streamed or not, through the chat middleware around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentstore.chat import checked_answer, checked_update
from agentstore.errors import ConfigurationError
from agentstore.merging import Merger
from agentstore.messages import Message
from agentstore.middleware import Chain, ChatContext, MiddlewareTermination
from agentstore.responses import ChatResponse, ChatResponseUpdate
from agentstore.streaming import ResponseStream


class ModelCall:
    """Read `updates` to their end; then the rest is known."""

    def __init__(self, context: ChatContext, chain: Chain[ChatContext]) -> None:
        self.answer: ChatResponse | None = None
        """The answer with which the run goes on; `None` where middleware gave none."""
        self.reached = False
        """Whether the client itself was called."""
        self.ended = False
        """Whether middleware ended the run here."""
        self._context = context
        self._chain = chain
        self._streamed = Merger()

    @property
    def shown(self) -> list[Message]:
        """What was streamed so far."""
        return self._streamed.messages

    async def updates(self) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Make the call. Raises what the client or the middleware raises, and `AgentStoreError` for no answer."""
        try:
            await self._chain.run(self._context, self._reach)
        except MiddlewareTermination as end:
            self.ended = True
            self._context.result = self._context.result if end.result is None else end.result
        result = self._context.result
        if result is None:
            self.ended = True
        elif isinstance(result, ResponseStream):
            async with result:
                for update in list(result.updates):  # middleware has read it so far
                    self._streamed.add(update)
                    yield update
                async for update in result:
                    self._streamed.add(checked_update(self._context.client, update))
                    yield update
                self.answer = checked_answer(self._context.client, await result.get_final_response())
        else:
            self.answer = checked_answer(self._context.client, result)
            for update in self.answer.to_updates():
                self._streamed.add(update)
                yield update

    async def _reach(self, context: ChatContext) -> None:
        self.reached = True
        client = context.client
        if not context.stream:
            answer = await client.get_response(context.messages, tools=tuple(context.tools), options=context.options)
            context.result = checked_answer(client, answer)
            return
        if not hasattr(client, "stream_response"):
            raise ConfigurationError(
                f"the chat client {type(client).__name__} has no stream_response: it cannot stream"
            )
        context.result = ResponseStream(
            client.stream_response(context.messages, tools=tuple(context.tools), options=context.options),
            finalizer=ChatResponse.from_updates,
        )
