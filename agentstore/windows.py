"""Windows: how much of a history the model gets to see, counted in messages and tokens, always in whole units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Generic, NamedTuple, TypeVar

from agentstore.history import SessionHistory
from agentstore.shapes import StoredMessage
from agentstore.units import clean_units, cleaned, field, pair

M = TypeVar("M")

REACH = 1000
"""A call is looked for among at least this many messages before its result; so reading a tail stays bounded."""

MEDIA_TOKENS = 1000
"""What `estimate_tokens` counts for an image, a file or another content that is not text."""

_FIRST_PAGE = 64  # records, where only tokens are limited
_LARGEST_FIRST_PAGE = 1024
_HEAD_PAGE = 8
_SYSTEM_ROLES = frozenset({"system", "developer"})
SUMMARY = "summary"
"""In the `additional_properties` of a message that stands for older ones; see `agentstore.reducers.summarize`."""

_READ_AS_TEXT = ("text", "name", "arguments", "result", "exception")
_MEDIA = frozenset({"data", "uri", "hosted_file"})


class Window(list[M], Generic[M]):
    """The messages that the model is to see.

    `stored` are the neighbouring stored messages that they were made from, `whole` whether that is all there ever was.
    """

    def __init__(self, shown: Iterable[M], *, stored: Sequence[M], whole: bool) -> None:
        super().__init__(shown)
        self.stored = stored
        self.whole = whole


@dataclass(frozen=True)
class Budget:
    """How large a window may be; `None` is no limit, 0 no window at all."""

    max_messages: int | None = None
    max_tokens: int | None = None
    count_tokens: Callable[[Any], int] | None = None
    """Tokens of one message; `None` is `estimate_tokens`."""

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{name} must be None or an int of at least 0, not {value!r}")

    @property
    def unlimited(self) -> bool:
        return self.max_messages is None and self.max_tokens is None

    @property
    def nothing(self) -> bool:
        return self.max_messages == 0 or self.max_tokens == 0

    def fitting(self, parts: Sequence[Sequence[Any]]) -> int:
        """How many of the newest of these units fit; the newest one counts as fitting, whatever its size."""
        left: Budget | None = self
        for count, unit in enumerate(reversed(parts)):
            left = left.less(unit) if left else None
            if left is None and count:
                return count
        return len(parts)

    def less(self, messages: Iterable[Any]) -> Budget | None:
        """What is left of the budget after these messages; `None` where they do not fit."""
        given = list(messages)
        left_messages = None if self.max_messages is None else self.max_messages - len(given)
        left_tokens = None if self.max_tokens is None else self.max_tokens - self._tokens(given)
        if (left_messages or 0) < 0 or (left_tokens or 0) < 0:
            return None
        return replace(self, max_messages=left_messages, max_tokens=left_tokens)

    def _tokens(self, messages: list[Any]) -> int:
        return sum(map(self.count_tokens or estimate_tokens, messages))


def window(
    messages: Sequence[M],
    *,
    max_messages: int | None = None,
    max_tokens: int | None = None,
    count_tokens: Callable[[M], int] | None = None,
) -> list[M]:
    """The newest units of a whole history that fit both limits; see `Budget`. No orphan is ever among them.

    The newest unit is always whole, even if it is larger than the limits; a limit of 0 gives nothing.
    """
    budget = Budget(max_messages, max_tokens, count_tokens)
    return [] if budget.nothing else _cut(messages, budget).shown


@dataclass(frozen=True)
class Parts(Generic[M]):
    """A whole history, divided by a budget. Orphans are nowhere but among the older messages."""

    system: list[M]
    """The system messages with which it begins, if they are kept; they are counted. A summary is none of them."""
    older: list[M]
    newest: list[M]


def divide(messages: Sequence[M], budget: Budget, *, keep_system: bool = False) -> Parts[M]:
    """The window of a whole history, and what is older. A limit of 0 leaves nothing, no system message either."""
    if budget.nothing:
        return Parts([], list(messages), [])
    cut = _cut(messages, budget)
    before = messages[: cut.first] if keep_system else ()
    head = list(takewhile(lambda message: _is_system(message) and not is_summary(message), before))
    if head:
        cut = _cut(messages, _left(budget, head))
    return Parts(head, list(messages[len(head) : cut.first]), cut.shown)


def is_summary(message: Any) -> bool:
    """Whether the message stands for older ones."""
    properties = getattr(message, "additional_properties", None)
    return isinstance(properties, Mapping) and properties.get(SUMMARY) is True


async def read_window(chat: SessionHistory, budget: Budget, *, keep_system: bool = False) -> Window[Any]:
    """The window of a stored history, read from its end without reading more than is needed.

    With `keep_system`, the system messages with which the history begins are kept and counted: where the window cut
    something, that is one more read of the history's head.
    """
    if budget.nothing:
        return Window((), stored=(), whole=False)
    tail, complete = await _read_tail(chat, budget)
    messages = [record.message for record in tail]
    cut = _cut(messages, budget)
    if cut.first == 0 and complete:
        gap = _gap(tail)
        return Window(cut.shown, stored=messages[gap or 0 :], whole=gap is None)
    head = await _system_head(chat, tail[cut.first].seq) if keep_system else []
    if head:
        cut = _cut(messages, _left(budget, head))
    return Window([*head, *cut.shown], stored=messages[cut.first :], whole=False)


def estimate_tokens(message: Any) -> int:
    """A rough count of one message's tokens: 4, and one for every 4 bytes of its texts in UTF-8, rounded up.

    Texts are what the model reads: text, names, arguments and results, as they are, not escaped. Other contents
    (images, files) count 1,000 each.
    """
    size = sum([_text_bytes(content) for content in message.contents])
    media = sum([content.type in _MEDIA for content in message.contents])
    return 4 + -(-size // 4) + MEDIA_TOKENS * media


class _Cut(NamedTuple):
    shown: list[Any]
    first: int
    """Place of the window's first message."""
    certain: bool
    """Whether older messages could not change it."""


async def _read_tail(chat: SessionHistory, budget: Budget) -> tuple[list[StoredMessage], bool]:
    """The newest records, enough of them that older ones cannot change the window, and whether these are all."""
    if budget.unlimited:
        return await chat.records(), True
    tail: list[StoredMessage] = []
    size = _FIRST_PAGE if budget.max_messages is None else min(budget.max_messages + 1, _LARGEST_FIRST_PAGE)
    while True:
        page = await chat.records(limit=size, before=tail[0].seq if tail else None)
        tail = page + tail
        if len(page) < size:
            return tail, True
        if _cut([record.message for record in tail], budget).certain:
            return tail, False
        size = len(tail)


def _cut(messages: Sequence[Any], budget: Budget) -> _Cut:
    """The window of these messages, if they are all."""
    pairing = pair(messages)
    if budget.unlimited:  # nothing to count, and nothing older
        return _Cut([message for _, message in cleaned(messages, pairing.orphans)], 0, certain=False)
    parts = clean_units(messages, pairing)
    fit = budget.fitting([[message for _, message in part] for part in parts])
    chosen = [entry for part in parts[len(parts) - fit :] for entry in part]
    first = chosen[0][0] if fit < len(parts) else 0
    # An early result may have its call before these messages: all up to there would then be one unit with it.
    early = max([index for index in pairing.orphans if index < REACH], default=0)
    return _Cut([message for _, message in chosen], first, certain=first > early)


def _left(budget: Budget, head: Sequence[Any]) -> Budget:
    return budget.less(head) or replace(budget, max_messages=0)  # no room left: the newest unit alone


def _gap(records: Sequence[StoredMessage]) -> int | None:
    """Where something was truncated or compacted, behind system messages and a summary at most; `None`: nowhere.

    What was left of a beginning has other neighbours in a transcript than here.
    """
    head = list(takewhile(lambda record: _is_system(record.message) or is_summary(record.message), records))
    untouched = len(head) == len(records) or records[len(head)].seq == len(head) + 1
    return None if untouched else len(head)


def _is_system(message: Any) -> bool:
    return message.role in _SYSTEM_ROLES


async def _system_head(chat: SessionHistory, before: int) -> list[Any]:
    """The system messages with which the history begins, as far as they stand before that seq."""
    head: list[Any] = []
    async for record in chat.iterate(page_size=_HEAD_PAGE):
        if record.seq >= before or not _is_system(record.message):
            break
        head.append(record.message)
    return head


def _text_bytes(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        return sum([_text_bytes(key) + _text_bytes(item) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return sum(map(_text_bytes, value))
    if hasattr(value, "type"):
        return sum([_text_bytes(field(value, name)) for name in _READ_AS_TEXT])
    return len(str(value))
