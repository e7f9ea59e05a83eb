"""A chat client for OpenAI and every server that speaks its language (extra `openai`, the official SDK).

from agentstore.clients.openai import OpenAIChatClient

agent = OpenAIChatClient("gpt-6-astra").as_agent(instructions="Be brief.")
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import urlsplit

from agentstore.chat import CHAT_OPTIONS
from agentstore.clients.base import BaseChatClient
from agentstore.errors import ConfigurationError, MissingDependencyError
from agentstore.messages import Message
from agentstore.responses import ChatResponse, ChatResponseUpdate

try:
    import openai
except ImportError as error:
    raise MissingDependencyError(
        f"the chat client needs the module {error.name!r}: pip install 'agentstore-history[openai]'"
    ) from error

from agentstore.clients import openai_chat, openai_responses
from agentstore.clients.openai_errors import raised_as_ours
from agentstore.clients.openai_pairs import in_pairs

OPENAI = "https://api.openai.com/v1"

Mode = Literal["responses", "chat_completions"]

CALL_OPTIONS = frozenset({"timeout", "extra_headers", "extra_query", "extra_body"})
"""Options of the SDK for one call: seconds, and what a compatible server wants besides."""

_OURS = frozenset({"model", "max_tokens", "allow_multiple_tool_calls", "response_format", "conversation_id"})
_Key = str | Callable[[], Awaitable[str]]


class _Reader(Protocol):
    def read(self, event: Any) -> Iterator[ChatResponseUpdate]: ...

    def end(self) -> None: ...


class _Interface(Protocol):
    options: frozenset[str]

    def request(
        self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any]
    ) -> dict[str, Any]: ...

    async def create(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Any: ...

    def answer(self, given: Any, request: Mapping[str, Any]) -> ChatResponse: ...

    def reader(self, request: Mapping[str, Any]) -> _Reader: ...


class OpenAIChatClient(BaseChatClient):
    """Answers with a model of OpenAI, or of any server at `base_url` that speaks one of its two interfaces.

    * `mode="responses"`: the service keeps the conversation. Its id (that of a conversation, `conv_…`, or of the newest
      response, `resp_…`) comes with every answer and goes into the session; only what is new is sent. With
      `store=False` the service keeps nothing: histories are local, and with the option `reasoning` the model's comes
      back to it encrypted.
    * `mode="chat_completions"`: histories are local; what nearly every other server offers.

    `model`, `api_key` and `base_url` default to `OPENAI_MODEL`, `OPENAI_API_KEY` and `OPENAI_BASE_URL`; `api_key` may
    be an async function. `options` go with every call, below those of a run: the common ones (`CHAT_OPTIONS`), those of
    the interface under its own names, and the SDK's `timeout`, `extra_headers`, `extra_query`, `extra_body`. An option
    that the interface does not have is a `ConfigurationError`. A ready `AsyncOpenAI` (or Azure's) goes in as `client`:
    it is used, never closed, and belongs to its event loop. Without one, the client works from several event loops.

    Calls raise `ChatClientError` where the service fails. Nothing shows the key.
    """

    known_options: ClassVar[frozenset[str]] = (
        CHAT_OPTIONS | CALL_OPTIONS | openai_responses.OPTIONS | openai_chat.OPTIONS
    ) - {"stream"}

    def __init__(
        self,
        model: str | None = None,
        *,
        mode: Mode = "responses",
        store: bool = True,
        api_key: _Key | None = None,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self.model = model or os.environ.get("OPENAI_MODEL") or ""
        self.mode = mode
        self._given = client
        self._base_url = base_url
        self._key: _Key = "" if client is not None else _checked_key(api_key)
        self._clients: dict[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = {}
        self._interface = _interface(mode, self._service(), store)
        self._options = self._checked(options or {})
        self.stores_by_default = mode == "responses" and bool(self._options.get("store", store))
        if not self.model and "model" not in self._options:
            raise ConfigurationError("an OpenAIChatClient needs a model: give its name, or set OPENAI_MODEL")

    async def get_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> ChatResponse:
        """The model's answer: one message, with its reasoning, its texts and its calls of tools in their order."""
        request = self._request(messages, tools, options)
        client = self._client()
        with raised_as_ours(client):
            return self._interface.answer(await self._interface.create(client, request), request)

    async def stream_response(
        self, messages: Sequence[Message], *, tools: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ChatResponseUpdate]:
        """The same answer: texts as they are said, calls of tools whole.

        A conversation's id comes first; a response's own comes last, since nothing can go on from one that is broken
        off. Closing the iterator ends the call.
        """
        request = {**self._request(messages, tools, options), "stream": True}
        client, reader = self._client(), self._interface.reader(request)
        with raised_as_ours(client):
            async with await self._interface.create(client, request) as events:
                async for event in events:
                    for update in reader.read(event):
                        yield update
            reader.end()

    async def aclose(self) -> None:
        """Close this event loop's connections; the next call makes new ones. A client handed in stays open."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _request(
        self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return self._interface.request(
            in_pairs(messages), tools, {"model": self.model, **self._options, **self._checked(options or {})}
        )

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        known = (self._interface.options | CALL_OPTIONS | _OURS) - {"stream"}
        if unknown := sorted(options.keys() - known):
            raise ConfigurationError(
                f"{type(self).__name__}(mode={self.mode!r}) has no option {', '.join(unknown)}; "
                f"it knows {', '.join(sorted(known))}"
            )
        return dict(options)

    def _client(self) -> openai.AsyncOpenAI:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for dead in [known for known in tuple(self._clients) if known.is_closed()]:
                self._clients.pop(dead, None)
            self._clients[loop] = openai.AsyncOpenAI(api_key=self._key, base_url=self._base_url)
        return self._clients[loop]

    def _service(self) -> str:
        """The host of the service: what it made is only its own to understand."""
        given = str(self._given.base_url) if self._given is not None else self._base_url
        return urlsplit(given or os.environ.get("OPENAI_BASE_URL") or OPENAI).netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, mode={self.mode!r})"


def _interface(mode: Mode, service: str, store: bool) -> _Interface:
    if mode == "responses":
        return openai_responses.Responses(service, store=store)
    if mode == "chat_completions":
        return openai_chat.ChatCompletions(service)
    raise ConfigurationError(f"mode must be 'responses' or 'chat_completions', not {mode!r}")


def _checked_key(key: _Key | None) -> _Key:
    """The key; refused where it is missing, or where it could not stand in a header, with no word of it."""
    found = key if key is not None else os.environ.get("OPENAI_API_KEY") or ""
    if not found:
        raise ConfigurationError(
            "an OpenAIChatClient needs an API key: set OPENAI_API_KEY, or give api_key (any text where none is needed)"
        )
    if isinstance(found, str) and not (found.isascii() and found.isprintable() and " " not in found):
        raise ConfigurationError("the API key holds a blank, a line break or a character that no key has")
    return found
