"""`agentstore chat`: talk to a model line by line. The conversation is in a store, and goes on at the next start."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, Protocol, TypeVar

import typer

from agentstore.agent import Agent
from agentstore.cli.escaping import visible
from agentstore.clients.base import BaseChatClient
from agentstore.clients.scripted import ScriptedChatClient
from agentstore.errors import AgentStoreError, ConfigurationError
from agentstore.history_providers import StoreHistoryProvider
from agentstore.registry import open_store
from agentstore.session import AgentSession

T = TypeVar("T")


class Client(str, Enum):
    """What answers."""

    scripted = "scripted"
    openai = "openai"


class Mode(str, Enum):
    """The interface of a model's service."""

    responses = "responses"
    chat_completions = "chat_completions"


def chat(
    url: Annotated[
        str | None, typer.Argument(help="The store, such as sqlite:///chat.db; without it, as the library chooses")
    ] = None,
    session: Annotated[str, typer.Option(help="The session's id")] = "chat",
    namespace: Annotated[str, typer.Option(help="The session's namespace")] = "default",
    client: Annotated[
        Client, typer.Option(help="What answers: `scripted` repeats offline, `openai` is OpenAI or a compatible server")
    ] = Client.scripted,
    model: Annotated[str | None, typer.Option(help="The model's name; without it, OPENAI_MODEL")] = None,
    mode: Annotated[Mode, typer.Option(help="The interface that the server has")] = Mode.responses,
    instructions: Annotated[str | None, typer.Option(help="What the model is told before everything else")] = None,
    max_messages: Annotated[int, typer.Option(min=1, help="How many remembered messages the model sees")] = 100,
) -> None:
    """Talk to a model: each line is a turn, stored once it is answered; the next start goes on with it. Ctrl-D ends.

    `--client openai` reads OPENAI_API_KEY and OPENAI_BASE_URL; the service keeps nothing. Exit code 1 if a line got no
    answer.
    """
    answers = _client(client, model, mode)
    try:
        store = open_store(url, namespace=namespace)
        store.session(session)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    history = StoreHistoryProvider(store, max_messages=max_messages)
    agent = answers.as_agent(instructions=instructions, context_providers=[history])
    with _loop() as run:
        try:
            answered = list(_turns(run, agent, history, agent.create_session(session)))
        finally:
            run(store.aclose())
            run(_closed(answers))
    if not all(answered):
        raise typer.Exit(1)


def _client(client: Client, model: str | None, mode: Mode) -> BaseChatClient:
    if client is Client.scripted:
        return ScriptedChatClient()
    from agentstore.clients.openai import OpenAIChatClient

    return OpenAIChatClient(model, mode=mode.value, store=False)


async def _closed(client: BaseChatClient) -> None:
    close = getattr(client, "aclose", None)
    if close is not None:
        await close()


class _Run(Protocol):
    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


@contextmanager
def _loop() -> Iterator[_Run]:
    """One event loop for all turns, but for the waits between them: so that Ctrl-C takes effect at once there.

    In a turn it cancels what runs, and is raised when that has ended: raised amid a driver's code it could get lost.
    """
    loop = asyncio.new_event_loop()

    def run(work: Coroutine[Any, Any, T], /) -> T:
        task = loop.create_task(work)
        heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if heeded:
            signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            if heeded:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        yield run
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _turns(run: _Run, agent: Agent, history: StoreHistoryProvider, session: AgentSession) -> Iterator[bool]:
    """Whether each line was answered."""
    remembered = run(history.get_messages(session.session_id))
    print(f"{visible(session.session_id)}: the model remembers {len(remembered)} messages", file=sys.stderr)
    for line in _lines():
        yield run(_answer(agent, session, line))


def _lines() -> Iterator[str]:
    """The lines of stdin that hold something, each after a prompt where somebody types them."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            return
        if line.strip():
            yield line.rstrip("\r\n")


async def _answer(agent: Agent, session: AgentSession, line: str) -> bool:
    """Print the answer as it comes; an error is printed too, unless no other line could do better."""
    try:
        async with agent.run_stream(line, session) as updates:
            async for update in updates:
                print(visible(update.text), end="", flush=True)
    except ConfigurationError:
        raise
    except AgentStoreError as error:
        print(f"\nagentstore: {visible(' '.join(str(error).split()))}", file=sys.stderr)
        return False
    finally:
        print(flush=True)
    return True
