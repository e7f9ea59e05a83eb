"""How a sentence is played: its own event loop, a fresh namespace, a fresh store; and what a subclass tells the kit."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from functools import partial, wraps
from typing import Any, Literal, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from agentstore import AgentStoreError, HistoryStore, Message, SessionHistory
from agentstore.backend import Catalog, Log, Rewriting, Snapshots

T = TypeVar("T")
Cost = Callable[[], Mapping[str, int]]  # what was counted so far, by kind of work

SENTENCE_SECONDS = 120.0
"""A sentence that takes longer has hung: it fails."""

LONG_AGO = datetime(2001, 1, 1, tzinfo=timezone.utc)
FAR_AHEAD = datetime(2100, 1, 1, tzinfo=timezone.utc)


class Stage(ABC):
    """What the kit asks of a backend's test class. Only `open_backend` must be written."""

    clock: Literal["store", "client"] = "store"
    """`client`: the backend's times are this process's `time.time_ns()`, so the kit may turn it back."""

    examples = 30
    """How many examples hypothesis tries for each property."""

    @abstractmethod
    async def open_backend(self) -> Log:
        """A backend object that nothing used yet. Its store may be shared with other tests and need not be empty."""

    async def reopen_backend(self) -> Log | None:
        """Another backend object on the data of this test's `open_backend`; `None`: the data lives in the object."""
        return None

    def backend_url(self) -> str | None:
        """The URL by which another process reaches this test's data through `open_store`; `None`: it cannot."""
        return None

    def count_cost(self) -> AbstractContextManager[Cost] | None:
        """Counts the backend's work (statements, rows, requests, bytes) while entered; `None`: it is not counted."""
        return None

    async def let_pass(self, seconds: float) -> None:
        """Let the store's clock go on."""
        await asyncio.sleep(seconds)

    def make_store(self, backend: Log, **options: Any) -> HistoryStore:
        """The store under test on this backend."""
        return HistoryStore(backend, **options)

    def tries(self) -> settings:
        """How hypothesis tries properties."""
        slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
        return settings(max_examples=self.examples, deadline=None, database=None, suppress_health_check=slow)


class Scene:
    """One sentence's surroundings. `chat` is a session that does not exist yet, in a namespace of its own."""

    def __init__(self, stage: Stage, backend: Log, run: Callable[[Coroutine[Any, Any, Any]], Any], cost: Cost) -> None:
        self.stage = stage
        self.backend = backend
        self.run = run
        self.cost = cost
        self.namespace = f"kit-{uuid4().hex}"
        self._stores: list[HistoryStore] = []
        self._backends = [backend]
        self.store = self.another_store()
        self.chat = self.session()

    def another_store(self, backend: Log | None = None, **options: Any) -> HistoryStore:
        """A store object on the scene's backend, or on one that wraps it, in the scene's namespace."""
        made = self.stage.make_store(backend or self.backend, **{"namespace": self.namespace, **options})
        self._stores.append(made)
        return made

    def another(self, backend: Log | None = None, **options: Any) -> SessionHistory:
        """The scene's chat, seen through `another_store`."""
        return self.another_store(backend, **options).session(self.chat.key.session_id)

    def session(self, session_id: str | None = None, **options: Any) -> SessionHistory:
        """Another session of the store; by default one that does not exist yet."""
        return self.store.session(session_id or uuid4().hex, **options)

    async def reopened(self, **options: Any) -> SessionHistory:
        """The scene's chat through another backend object on the same data; skips where there is none."""
        backend = await self.stage.reopen_backend()
        if backend is None:
            pytest.skip("the data lives in the backend object: reopen_backend() gives None")
        self._backends.append(backend)
        return self.another(backend, **options)

    def url(self) -> str:
        """How another process reaches the data; skips where it cannot."""
        url = self.stage.backend_url()
        if url is None:
            pytest.skip("no other process reaches this backend: backend_url() gives None")
        return url

    @property
    def rewriting(self) -> Rewriting:
        return self._ability(Rewriting)

    @property
    def catalog(self) -> Catalog:
        return self._ability(Catalog)

    @property
    def snapshots(self) -> Snapshots:
        return self._ability(Snapshots)

    def _ability(self, ability: type[T]) -> T:
        if not isinstance(self.backend, ability):
            pytest.skip(f"{type(self.backend).__name__} lacks the ability {ability.__name__}")
        return self.backend

    def has(self, ability: type) -> bool:
        return isinstance(self.backend, ability)

    def require(self, *abilities: type) -> None:
        """Skip where the backend lacks one of them."""
        for ability in abilities:
            self._ability(ability)

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()
        for backend in self._backends:
            await backend.aclose()


@contextmanager
def played(stage: Stage, *needs: type, set_up: bool = True, counted: bool = False) -> Generator[Scene]:
    """A scene in a new event loop, where the backend has the abilities it needs; else the test is skipped."""
    counter = stage.count_cost() if counted else nullcontext[Cost](dict)
    if counter is None:
        pytest.skip("the work is not counted: count_cost() gives None")
    with counter as cost, _loop() as run:
        scene = Scene(stage, run(stage.open_backend()), run, cost)
        try:
            scene.require(*needs)
            if set_up:
                run(scene.store.setup())
            yield scene
        finally:
            run(scene.aclose())


@contextmanager
def _loop() -> Generator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    loop = asyncio.new_event_loop()
    try:
        yield lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, SENTENCE_SECONDS))
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def sentence(
    *needs: type, set_up: bool = True, counted: bool = False
) -> Callable[[Callable[[Any, Scene], Awaitable[None] | None]], Callable[[Any], None]]:
    """Makes a scenario an ordinary test. A coroutine runs in the scene's loop; a plain function runs loops itself.

    `set_up=False` leaves the store as the backend gives it; `counted` fills `scene.cost`.
    """

    def decorate(scenario: Callable[[Any, Scene], Any]) -> Callable[[Any], None]:
        @wraps(scenario)
        def test(stage: Stage) -> None:
            with played(stage, *needs, set_up=set_up, counted=counted) as scene:
                if inspect.iscoroutinefunction(scenario):
                    scene.run(scenario(stage, scene))
                else:
                    scenario(stage, scene)

        del test.__wrapped__  # pytest would take the scene for a fixture
        return test

    return decorate


def said(*texts: str, role: str = "user") -> list[Message]:
    """Messages without ids."""
    return [Message(role, [text]) for text in texts]


def named(message_id: str, text: str = "hello", *, role: str = "user") -> Message:
    return Message(role, [text], message_id=message_id)


async def heard(chat: SessionHistory, **options: Any) -> list[str]:
    """The texts of a session's messages."""
    return [message.text for message in await chat.messages(**options)]


async def seqs(chat: SessionHistory) -> list[int]:
    return [record.seq for record in await chat.records()]


async def attempted(call: Awaitable[T]) -> T | type[AgentStoreError]:
    """The call's result, or the kind of our error that it raised."""
    try:
        return await call
    except AgentStoreError as error:
        return type(error)


def soon(seconds: float) -> datetime:
    """The aware time in so many seconds, by this process's clock."""
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


async def together(count: int, work: Callable[[int], Awaitable[T]]) -> list[T]:
    """The results of that many tasks at once."""
    return list(await asyncio.gather(*map(partial(work), range(count))))
