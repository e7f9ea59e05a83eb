"""From messages to records: ids, digests, sizes, and what one batch may not hold."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple

from agentstore.backend import Limits, Record
from agentstore.codec import Codec, digest
from agentstore.errors import ConflictError, PayloadTooLargeError, UnsupportedValueError

_random = (
    Random()
)  # of our own: users seed the common one, and a call to the system's lets go of the interpreter's lock
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)
_VERSION_7 = 0x7 << 76 | 0b10 << 62
_RANDOM = 2**80 - 1 & ~(0xF << 76 | 0b11 << 62)
_IMMUTABLE = (str, bytes, tuple, int, float, frozenset, type(None))
_is_bytes = re.compile("[0-7][0-9a-f]{31}").fullmatch


class Batch(NamedTuple):
    """The records of one write, each id once, and for each given message the place of its record."""

    token: bytes
    """16 bytes that no other call has."""
    records: tuple[Record, ...]
    ids: list[str]
    places: list[int]


def encode_batch(codec: Codec, messages: Sequence[Any], limits: Limits, *, idempotency_key: str | None = None) -> Batch:
    """Encode the messages; one without an id is given one, also on the caller's object.

    Raises `ConflictError` where one id stands for two different messages, `PayloadTooLargeError`, and what the codec
    raises; then nothing is written.
    """
    call = new_call()
    records: dict[str, Record] = {}
    ids: dict[int, str] = {}  # by object: one that comes twice is one message, also where it has no place for an id
    order: list[str] = []
    find_id = getattr(codec, "find_id", None)
    for position, message in enumerate(messages):
        if id(message) in ids:
            order.append(ids[id(message)])
            continue
        try:
            message_id, record = _encode(codec, find_id, message, call + position, position, idempotency_key)
        except UnsupportedValueError as error:
            raise UnsupportedValueError(f"message {position} of the batch: {error}") from error
        if len(record.payload) > limits.message_bytes:
            check_size(record.payload, limits, f"message {position}")
        if records.setdefault(message_id, record).digest != record.digest:
            text = f"two different messages of this batch have the id {message_id!r}; nothing was written"
            raise ConflictError(text, ids=[message_id])
        order.append(message_id)
        if not isinstance(message, _IMMUTABLE):  # equal ones may be one object, and still be honest repeats
            ids[id(message)] = message_id
    check_total(records.values(), limits)
    places = {message_id: place for place, message_id in enumerate(records)}
    token = call.to_bytes(16, "big")
    return Batch(token, tuple(records.values()), list(records), [places[message_id] for message_id in order])


def give_ids(codec: Codec, messages: Sequence[Any], idempotency_key: str | None) -> bool:
    """Give the messages without an id theirs; `False` where the codec cannot tell which those are."""
    find_id = getattr(codec, "find_id", None)
    if find_id is None:
        return False
    call = new_call()
    for position, message in enumerate(messages):
        if find_id(message) is None:
            codec.assign_id(message, _new_id(call + position, position, idempotency_key))
    return True


def check_messages(messages: Iterable[Any]) -> Sequence[Any]:
    """The messages as a list that nobody else changes; raises `TypeError` for a single one."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"messages must be a list of messages, not {type(messages).__name__}")
    return list(messages)


def encode_one(codec: Codec, message: Any, limits: Limits) -> Record:
    """The record of a message that has an id; raises `ValueError` where it has none."""
    message_id, identity, payload = codec.encode(message)
    if not message_id:
        raise ValueError("the message has no message_id: only a message with an id can be found")
    check_size(payload, limits, "the message")
    return Record(hash_id(message_id), digest(identity), codec.format, payload)


def hash_id(message_id: str) -> bytes:
    """16 bytes that stand for any text, lone surrogates too.

    32 hex digits below 8000… are those bytes themselves, so that ids with the time in front lie together in an index;
    any other text has a hash with the first bit set.
    """
    if _is_bytes(message_id):
        return bytes.fromhex(message_id)
    data = message_id.encode("utf-8", "surrogatepass")
    hashed = blake2b(data, digest_size=16, person=b"agentstore.id1").digest()
    return bytes([hashed[0] | 0x80]) + hashed[1:]


def new_call() -> int:
    """A number that no other call has: a UUID of version 7 (RFC 9562), the time in front; new ids count up from it."""
    return (time.time_ns() // 1_000_000 & 2**47 - 1) << 80 | _random.getrandbits(80) & _RANDOM | _VERSION_7


def derived_id(*parts: str | int) -> str:
    """An id that is a fixed function of its parts: `as1-` and 32 hex digits of the BLAKE2b of their lengths and texts.

    A message without an id, at position `n` (from 0) of an append with `idempotency_key=k`, gets `derived_id(k, n)`.
    """
    texts = [str(part) for part in parts]
    data = "".join([f"{len(text)}:{text}" for text in texts]).encode("utf-8", "surrogatepass")
    return "as1-" + blake2b(data, digest_size=16, person=b"agentstore.id1").hexdigest()


def check_size(payload: bytes, limits: Limits, what: str) -> None:
    """Raise `PayloadTooLargeError` for a payload over the limit of one."""
    if len(payload) > limits.message_bytes:
        raise PayloadTooLargeError(
            f"{what} has {len(payload)} bytes, more than max_message_bytes={limits.message_bytes}; nothing was written"
        )


def check_total(records: Iterable[Record], limits: Limits) -> None:
    """Raise `PayloadTooLargeError` for records over the limit of one write."""
    total = sum([len(record.payload) for record in records])
    if total > limits.append_bytes:
        raise PayloadTooLargeError(
            f"the batch has {total} bytes, more than max_append_bytes={limits.append_bytes}; nothing was written"
        )


def _new_id(number: int, position: int, idempotency_key: str | None) -> str:
    return f"{number:032x}" if idempotency_key is None else derived_id(idempotency_key, position)


def _encode(
    codec: Codec,
    find_id: Callable[[Any], str | None] | None,
    message: Any,
    number: int,
    position: int,
    idempotency_key: str | None,
) -> tuple[str, Record]:
    """The message's id and record; one without an id gets the new one, which is `fresh` if it was made at random."""
    new_id, has_place = None, True
    if find_id is not None and find_id(message) is None:
        new_id = _new_id(number, position, idempotency_key)
        has_place = codec.assign_id(message, new_id)
    message_id, identity, payload = codec.encode(message)
    if message_id is None:
        message_id = new_id = new_id or _new_id(number, position, idempotency_key)
        if has_place and codec.assign_id(message, message_id):
            _, identity, payload = codec.encode(message)
    if type(message_id) is not str or type(payload) is not bytes:
        raise TypeError(f"the codec {codec.format!r} must give a str or None as id, and bytes as payload")
    if not message_id:
        raise ValueError("a message has an empty message_id; nothing was written")
    fresh = message_id == new_id and idempotency_key is None
    id_hash = number.to_bytes(16, "big") if fresh else hash_id(message_id)
    return message_id, Record(id_hash, digest(identity), codec.format, payload, fresh)
