"""What an agent run carries: the session with its state, and the context that providers fill."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, get_args
from uuid import uuid4

import msgspec

from agentstore.messages import Message, plain
from agentstore.responses import AgentResponse

T = TypeVar("T")

ATTRIBUTION = "_attribution"
"""Where a message's `additional_properties` say which provider brought it into the run."""


class AgentSession:
    """One conversation as the agent sees it: its ids and its state, which providers and users share.

    `state` holds plain values and messages; `to_dict` and `from_dict` carry the whole session across processes.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        service_session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(session_id, str | None):
            raise TypeError(f"session_id must be a str, not {type(session_id).__name__}")
        self._session_id = session_id or str(uuid4())
        self.service_session_id = service_session_id
        self.state: dict[str, Any] = dict(state or {})
        self.providers: list[str] | None = None
        """The providers of the agent that ran it last, kept with it; see `agentstore.fingerprint`."""
        self.restored = False
        """Whether it comes from `from_dict` and no agent has run it since."""

    @property
    def session_id(self) -> str:
        """The conversation's own id: given, or made at random. It never changes."""
        return self._session_id

    def to_dict(self) -> dict[str, Any]:
        """The session as a new dict of plain values; messages in the state become dicts."""
        return {name: plain(value) for name, value in self.shape().items()}

    def shape(self) -> dict[str, Any]:
        """The dict of `to_dict` with the session's own state in it: for reading only."""
        shape: dict[str, Any] = {
            "type": "session",
            "session_id": self._session_id,
            "service_session_id": self.service_session_id,
            "state": self.state,
        }
        return shape if self.providers is None else {**shape, "providers": self.providers}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentSession:
        """The session that `to_dict` described; raises `ValueError` where the mapping is no session."""
        session_id: Any = data.get("session_id")
        state: Any = data.get("state")
        providers: Any = data.get("providers")
        if not isinstance(session_id, str) or not session_id:
            raise ValueError("a session needs a 'session_id' that is a non-empty str")
        if not isinstance(state, Mapping | None):
            raise ValueError("a session's 'state' must be a mapping")
        session = cls(session_id=session_id, service_session_id=data.get("service_session_id"), state=state)
        session.providers = [str(name) for name in providers] if isinstance(providers, list | tuple) else None
        session.restored = True
        return session

    def __repr__(self) -> str:
        return f"AgentSession(session_id={self._session_id!r}, service_session_id={self.service_session_id!r})"


class Source(Protocol):
    """Whoever adds to a context: usually a provider."""

    @property
    def source_id(self) -> str: ...


class SessionContext:
    """One run of an agent, as its providers see it: they add to it before the model is called, and read it after.

    `input_messages` are the caller's own objects. `context_messages` holds what providers added, by source id, in the
    order of the providers, and `middleware` in the same way; `response` is set once the model has answered; `metadata`
    is for providers to share.
    """

    def __init__(
        self,
        *,
        input_messages: Iterable[Message],
        session_id: str | None = None,
        service_session_id: str | None = None,
        context_messages: Mapping[str, Iterable[Message]] | None = None,
        instructions: Iterable[str] = (),
        tools: Iterable[Any] = (),
        middleware: Mapping[str, Iterable[Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.service_session_id = service_session_id
        self.input_messages = list(input_messages)
        self.context_messages = {source: list(added) for source, added in (context_messages or {}).items()}
        self.instructions = list(instructions)
        self.tools = list(tools)
        self.middleware = {source: list(added) for source, added in (middleware or {}).items()}
        self.options = dict(options or {})
        self.metadata = dict(metadata or {})
        self.response: AgentResponse | None = None

    def extend_messages(self, source: str | Source, messages: Iterable[Message]) -> None:
        """Put copies of the messages before the input, stamped with their source.

        The stamp is `{"source_id": ..., "source_type": ...}` (the type only of a source that is an object) under
        `additional_properties["_attribution"]`; a message that has one keeps it.
        """
        stamp = {"source_id": _source_id(source)}
        if not isinstance(source, str):
            stamp["source_type"] = type(source).__name__
        added = self.context_messages.setdefault(_source_id(source), [])
        added.extend([_stamped(message, stamp) for message in messages])

    def extend_instructions(self, source: str | Source, instructions: str | Iterable[str]) -> None:
        """Add instructions for this run, after the agent's own."""
        self.instructions.extend([instructions] if isinstance(instructions, str) else instructions)

    def extend_tools(self, source: str | Source, tools: Any) -> None:
        """Offer the model more tools in this run, one or many: plain callables, or `FunctionTool`s."""
        self.tools.extend([tools] if callable(tools) or isinstance(tools, Mapping) else tools)

    def extend_middleware(self, source: str | Source, middleware: Any) -> None:
        """Put middleware, one or many, around each call of the model or of a tool in this run.

        What was added first stands outermost; see `agentstore.middleware`.
        """
        given = middleware if isinstance(middleware, list | tuple) else [middleware]
        self.middleware.setdefault(_source_id(source), []).extend(given)

    def get_middleware(self) -> list[Any]:
        """The middleware of all sources, in order."""
        return [item for added in self.middleware.values() for item in added]

    def get_messages(
        self,
        *,
        sources: Collection[str] | None = None,
        exclude_sources: Collection[str] | None = None,
        include_input: bool = False,
        include_response: bool = False,
    ) -> list[Message]:
        """The context messages, of these sources (`None`: of all) without the excluded ones, in order.

        With `include_input` the input follows them, with `include_response` then the response, if there is one.
        """
        found = [
            message
            for source, added in self.context_messages.items()
            if (sources is None or source in sources) and source not in (exclude_sources or ())
            for message in added
        ]
        if include_input:
            found += self.input_messages
        if include_response and self.response is not None:
            found += self.response.messages
        return found


class ProviderSessionState(Generic[T]):
    """A typed value that a provider keeps in a session's state, under `state[key]["value"]`, in plain form.

    `factory(session)` makes the first one. `encode` and `decode` turn it to plain values and back; msgspec structs and
    dataclasses need neither. Write `ProviderSessionState[Preferences](...)` where the value's type is not simply that
    of what the factory makes.
    """

    def __init__(
        self,
        key: str,
        factory: Callable[[AgentSession], T],
        encode: Callable[[T], Any] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> None:
        self.key = key
        self._factory = factory
        self._encode = encode or msgspec.to_builtins
        self._decode = decode
        self._type: Any = None

    def get(self, session: AgentSession) -> T:
        """The session's value, made and saved if there is none; changing it changes nothing before `save`.

        Raises `ValueError` where what the state holds cannot be such a value.
        """
        kept = session.state.get(self.key)
        if not isinstance(kept, dict) or "value" not in kept:
            self.save(session, self._factory(session))
        value = session.state[self.key]["value"]
        return self._decode(value) if self._decode else self._converted(session, value)

    def save(self, session: AgentSession, value: T) -> None:
        """Make this the session's value. Raises `TypeError` for one that needs an `encode` and has none."""
        self._type = self._type or type(value)
        session.state.setdefault(self.key, {})["value"] = self._encode(value)

    def _converted(self, session: AgentSession, value: Any) -> T:
        declared = get_args(getattr(self, "__orig_class__", None))
        if not declared and self._type is None:
            self._type = type(self._factory(session))
        converted: T = msgspec.convert(value, declared[0] if declared else self._type)
        return converted


def attributed_to(message: Message) -> str | None:
    """The id of the provider that brought the message into this run; `None` for one that the caller made."""
    stamp = message.additional_properties.get(ATTRIBUTION)
    return stamp.get("source_id") if isinstance(stamp, Mapping) else None


def without_attribution(message: Message) -> Message:
    """The message itself, or a copy without the stamp where it has one."""
    if ATTRIBUTION not in message.additional_properties:
        return message
    bare = copy.copy(message)
    bare.additional_properties = {
        name: value for name, value in message.additional_properties.items() if name != ATTRIBUTION
    }
    return bare


def _source_id(source: str | Source) -> str:
    return source if isinstance(source, str) else source.source_id


def _stamped(message: Message, stamp: Mapping[str, str]) -> Message:
    stamped = copy.copy(message)
    stamped.contents = list(message.contents)
    stamped.additional_properties = {ATTRIBUTION: dict(stamp), **message.additional_properties}
    return stamped
