"""Where faults are planted, how a sentence is played on one, and what faults share."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import msgspec
import pytest
from hypothesis import Phase, settings

import agentstore_memory
from agentstore import (
    HistoryStore,
    SessionHistory,
    SessionKey,
)
from agentstore.backend import (
    Append,
    Log,
    Readiness,
    Refused,
    StoredInfo,
    Written,
)
from agentstore.codec import MessageCodec
from agentstore.testing import BackendConformance
from agentstore.testing.faults import wrapped
from agentstore.testing.scenes import Cost
from agentstore_memory import MemoryBackend

change = msgspec.structs.replace

WIDE = {
    "test_any_contents_are_exact",
    "test_any_additional_properties_are_exact",
    "test_any_metadata_is_exact",
    "test_any_snapshot_is_exact",
    "test_it_agrees_with_the_model",
}
"""Sentences that hypothesis tries: they catch faults of other sentences too, so they are played only where named."""

BEYOND = {
    "test_processes_append_whole_turns": "the in-memory model has one process",
    "test_processes_pop_each_message_once": "the in-memory model has one process",
    "test_processes_set_up_at_once": "the in-memory model has one process",
    "test_processes_send_one_turn_once": "the in-memory model has one process",
    "test_a_forked_child_works_and_the_parent_goes_on": "the in-memory model has one process",
    "test_abilities_are_printed": "it prints; its own test is below",
}
"""Sentences that no planted fault can break here, and why."""


class Model(MemoryBackend):
    """What the faults are planted in: the in-memory backend, with a set-up that can be seen."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        self.key_of_set_up = SessionKey("set up", "set up", "set up")

    async def readiness(self) -> Readiness:
        return "ready" if self.name in SET_UP else "absent"

    async def setup(self) -> None:
        SET_UP.add(self.name)


SET_UP: set[str] = set()  # names of the models that are set up


@dataclass
class Fault:
    """What is broken, and the sentences that must say so."""

    name: str
    sentences: frozenset[str]
    backend: type[Model] = Model
    store: type[HistoryStore] = HistoryStore
    history: type[SessionHistory] | None = None
    codec: type[MessageCodec] | None = None
    patches: Mapping[str, Any] | None = None


FAULTS: list[Fault] = []


def _kind(broken: type) -> str:
    """Which part of a `Fault` the class is."""
    bases = {"backend": Model, "store": HistoryStore, "history": SessionHistory}
    return next((kind for kind, base in bases.items() if issubclass(broken, base)), "codec")


def fault(*sentences: str, also: tuple[str, ...] = (), patches: Mapping[str, Any] | None = None) -> Any:
    """Names the sentences that must fail for what it decorates: those meant, and those that it breaks inevitably."""

    def plant(broken: type) -> type:
        given: dict[str, Any] = {_kind(broken): broken}
        names = frozenset(f"test_{name}" for name in (*sentences, *also))
        FAULTS.append(Fault(broken.__name__, names, patches=patches, **given))
        return broken

    return plant


class Stage(BackendConformance):
    """Plays sentences on a fault, in this process; time is a number that is moved, not waited for."""

    clock = "client"
    long_history = 400
    agreement_steps = 25

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.name = uuid4().hex
        self.late = 0

    async def open_backend(self) -> Log:
        return self.fault.backend(self.name)

    async def reopen_backend(self) -> Log:
        return self.fault.backend(self.name)

    async def let_pass(self, seconds: float) -> None:
        self.late += int(seconds * 1e9)

    def tries(self) -> settings:
        return settings(
            super().tries(), max_examples=100, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False
        )

    def make_store(self, backend: Log, **options: Any) -> HistoryStore:
        store = self.fault.store(backend, **options)
        if self.fault.history or self.fault.codec:
            store.session = self._sessions_of(store.session)  # type: ignore[method-assign]
        return store

    def _sessions_of(self, session: Callable[..., SessionHistory]) -> Any:
        def broken(session_id: str, **options: Any) -> SessionHistory:
            if self.fault.codec:
                options.setdefault("codec", self.fault.codec())
            chat = session(session_id, **options)
            if self.fault.history:
                chat.__class__ = self.fault.history
            return chat

        return broken

    @contextmanager
    def count_cost(self) -> Generator[Cost]:
        lines = [0]
        ours = agentstore_memory.__file__, str(Path(__file__).parent)

        def trace(frame: Any, event: str, argument: Any) -> Any:
            if not frame.f_code.co_filename.startswith(ours):
                return None
            lines[0] += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield lambda: {"lines": lines[0]}
        finally:
            sys.settrace(before)

    def fails(self, name: str) -> str | None:
        """Why the sentence fails, or `None`."""
        real = time.time_ns
        with ExitStack() as stack:
            stack.enter_context(patch("time.time_ns", lambda: real() + self.late))
            for target, value in (self.fault.patches or {}).items():
                stack.enter_context(patch(target, value))
            try:
                getattr(self, name)()
            except pytest.skip.Exception:
                return None
            except (Exception, pytest.fail.Exception, asyncio.CancelledError) as error:
                return repr(error)
        return None


SENTENCES = sorted(
    name
    for name, test in inspect.getmembers(BackendConformance, inspect.isfunction)
    if name.startswith("test_") and name not in BEYOND
)


def failing(fault: Fault, names: Iterable[str]) -> dict[str, str]:
    """The sentences that fail for the fault, and why."""
    reasons = {name: Stage(fault).fails(name) for name in names if name in fault.sentences or name not in WIDE}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def history_of(chat: SessionHistory) -> Any:
    """The backend below a chat."""
    return chat._gate.backend


class TwoSteps(Model):
    """A backend whose appends are not one step: others come in between."""

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, append)

    async def one_by_one(self, key: SessionKey, append: Append) -> Written | Refused:
        """The records of an append, each by an append of its own."""
        seqs: list[int] = []
        written = version = 0
        for record in append.records:
            answer = await super().append(key, Append((record,), uuid4().bytes, ttl=append.ttl))
            assert isinstance(answer, Written)
            seqs += answer.seqs
            written += answer.written
            version = answer.snapshot_version
            await asyncio.sleep(0)
        return Written(seqs, written, version)


def in_memory(backend: Model, key: SessionKey) -> Any:
    """The model's own record of a session, or `None`."""
    return backend._shared.get(key)


@contextmanager
def undead(backend: Model, key: SessionKey) -> Generator[None]:
    """Meanwhile the session's expiry is not looked at."""
    session = in_memory(backend, key)
    expiry = session and session.expires_at
    if session:
        session.expires_at = None
    try:
        yield
    finally:
        if session and session.expires_at is None:
            session.expires_at = expiry


class ChangingCodec(MessageCodec):
    """The core's codec with something wrong about it."""


def changed(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of a value with `leaf` applied to everything in it, from the inside out."""
    if type(value) is dict:
        return leaf({leaf(name): changed(item, leaf) for name, item in value.items()})
    if type(value) is list:
        return leaf([changed(item, leaf) for item in value])
    if type(value) is tuple:
        return leaf(tuple(changed(item, leaf) for item in value))
    return leaf(value)


def downcast(value: Any) -> Any:
    """What an adapter would do with what the core refuses."""
    if type(value) in (type(None), bool, int, float, str, bytes, datetime):
        return value
    if isinstance(value, dict) and type(value) is dict:
        return {str(name): downcast(item) for name, item in value.items()}
    if type(value) in (list, tuple):
        return [downcast(item) for item in value]
    return str(value)


class WrongInfo(Model):
    """Tells something wrong about a session."""

    def told(self, info: StoredInfo) -> StoredInfo:
        raise NotImplementedError

    async def info(self, key: SessionKey) -> StoredInfo | None:
        info = await super().info(key)
        return info and self.told(info)

    async def list(self, namespace: str, **options: Any) -> Sequence[StoredInfo]:
        return [self.told(info) for info in await super().list(namespace, **options)]


def change_id(key: SessionKey, session_id: str) -> SessionKey:
    return SessionKey(key.namespace, key.source_id, session_id)


def store_with(**methods: Callable[[Log], Any]) -> type[HistoryStore]:
    """A store that puts something between itself and its backend."""

    class Between(HistoryStore):
        def __init__(self, backend: Log, **options: Any) -> None:
            there = {name: make(backend) for name, make in methods.items() if hasattr(backend, name)}
            super().__init__(wrapped(backend, **there), **options)

    return Between


def history_of_store(store: HistoryStore) -> Any:
    return store._gate.backend
