"""Items of the OpenAI Agents SDK in the form `openai-agents/1`: the item's own JSON, its odd values tagged."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentstore import untagged, values
from agentstore.adapters.downcast import downcast, log_downcast
from agentstore.adapters.openai_agents_messages import FORMAT
from agentstore.codec import Encoded
from agentstore.errors import UnsupportedValueError


class Given(NamedTuple):
    """An item to be stored. One that is given twice is stored twice: items have no identity, whatever ids they hold."""

    item: Any


class Unreadable(NamedTuple):
    """A stored item that cannot be read, as it lies in the store."""

    payload: bytes


class ItemCodec:
    """Takes `Given` and `Unreadable`; gives the item, or an `Unreadable`, so that one broken row hides no other."""

    format = FORMAT

    def encode(self, obj: Given | Unreadable, /) -> Encoded:
        if isinstance(obj, Unreadable):
            return Encoded(None, obj.payload, obj.payload)
        if type(obj.item) is dict and (payload := untagged.dump(obj.item)) is not None:
            return Encoded(None, untagged.canonical(obj.item), payload)
        tagged = _tagged(obj.item)
        return Encoded(None, values.canonical(tagged), values.plain_json(tagged))

    def decode(self, payload: bytes, /) -> Any:
        try:
            return values.load(payload)
        except ValueError:
            return Unreadable(payload)

    def assign_id(self, obj: Given | Unreadable, message_id: str, /) -> bool:
        return False

    def find_id(self, obj: Given | Unreadable, /) -> None:
        return None


def _tagged(item: Any) -> Any:
    try:
        return values.tag(item)
    except UnsupportedValueError as error:
        log_downcast(error)
    return values.tag(downcast({"item": item})["item"])
