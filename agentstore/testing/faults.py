"""Backends around a backend: what a network, a stopped server or another writer would do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from agentstore import Message, SessionHistory, UnavailableError
from agentstore.backend import Append, Catalog, Limits, Log, Record, Rewriting, Snapshots, Written
from agentstore.batch import encode_batch, hash_id
from agentstore.codec import MessageCodec

LOG = ("readiness", "setup", "ping", "aclose", "append", "read", "truncate")
ABILITIES = {
    Rewriting: ("replace", "update", "remove_newest", "restore"),
    Catalog: ("info", "list", "annotate", "expire", "delete", "purge"),
    Snapshots: ("save_snapshot", "load_snapshot"),
}
METHODS = (*LOG, *(method for methods in ABILITIES.values() for method in methods))

_PLENTY = Limits(message_bytes=2**40, append_bytes=2**40)


def wrapped(backend: Log, **methods: Callable[..., Any]) -> Log:
    """The backend with some of its methods replaced; it has the same abilities."""
    there = {name: getattr(backend, name) for name in METHODS if hasattr(backend, name)}
    return _made("Wrapped", {**there, **methods}, backend.limits)


def limited(backend: Log, limits: Limits) -> Log:
    """The backend with other limits."""
    return _made("Limited", {name: getattr(backend, name) for name in METHODS if hasattr(backend, name)}, limits)


def bare(backend: Log) -> Log:
    """The backend as a `Log` without other abilities."""
    return _made("Bare", {name: getattr(backend, name) for name in LOG}, backend.limits)


def _made(name: str, methods: Mapping[str, Callable[..., Any]], limits: Limits) -> Log:
    # A class of its own: `isinstance` looks for an ability's methods in the class.
    body = {method: staticmethod(function) for method, function in methods.items()}
    return cast("Log", type(name, (), {**body, "limits": limits})())


class Calls(list[str]):
    """Names of the backend's methods, in the order in which they were called."""


def counted(backend: Log, calls: Calls) -> Log:
    """The backend, and in `calls` what is asked of it."""

    def noting(name: str) -> Callable[..., Any]:
        def method(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return getattr(backend, name)(*args, **options)

        return method

    return wrapped(backend, **{name: noting(name) for name in METHODS if hasattr(backend, name)})


def losing_answers(backend: Log, name: str, *, times: int = 1, meanwhile: Callable[[], Any] | None = None) -> Log:
    """The method works, but the first answers get lost; `meanwhile` then happens before anyone knows."""
    left = [times]

    async def method(*args: Any, **options: Any) -> Any:
        answer = await getattr(backend, name)(*args, **options)
        if not left[0]:
            return answer
        left[0] -= 1
        if meanwhile:
            await meanwhile()
        raise UnavailableError("the answer was lost", maybe_done=True)

    return wrapped(backend, **{name: method})


def failing(backend: Log, name: str, *, maybe_done: bool = False, times: int = 1) -> Log:
    """The first calls of the method fail before anything happens."""
    left = [times]

    async def method(*args: Any, **options: Any) -> Any:
        if not left[0]:
            return await getattr(backend, name)(*args, **options)
        left[0] -= 1
        raise UnavailableError("not reached", maybe_done=maybe_done)

    return wrapped(backend, **{name: method})


def gated(backend: Log, name: str, *, reached: asyncio.Event, gate: asyncio.Event) -> Log:
    """Calls of the method say that they were reached, and wait at the gate before they do anything."""

    async def method(*args: Any, **options: Any) -> Any:
        reached.set()
        await gate.wait()
        return await getattr(backend, name)(*args, **options)

    return wrapped(backend, **{name: method})


def interrupted(backend: Log, name: str, meanwhile: Callable[[], Any]) -> Log:
    """Something else happens once, right before the method's first call takes effect."""
    left = [1]

    async def method(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] = 0
            await meanwhile()
        return await getattr(backend, name)(*args, **options)

    return wrapped(backend, **{name: method})


def records_of(messages: Iterable[Message]) -> tuple[Record, ...]:
    """The waist's records of messages."""
    return encode_batch(MessageCodec(), list(messages), _PLENTY).records


async def plant(
    backend: Log, chat: SessionHistory, payload: bytes, *, message_id: str = "planted", format: str = "agentstore/1"
) -> int:
    """Put a record there that was not written by this version of agentstore; its seq."""
    record = Record(hash_id(message_id), hash_id(payload.decode("latin-1")), format, payload)
    answer = await backend.append(chat.key, Append((record,), hash_id(f"{chat.key} {message_id}")))
    assert isinstance(answer, Written)
    return answer.seqs[0]
