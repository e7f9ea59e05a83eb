"""The marks of the framework's compaction on stored messages, and which of them still hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_framework import (
    EXCLUDED_KEY,
    GROUP_ANNOTATION_KEY,
    SUMMARIZED_BY_SUMMARY_ID_KEY,
    SUMMARY_OF_MESSAGE_IDS_KEY,
    Message,
)


def included(messages: list[Message], *, all_marks: bool) -> list[Message]:
    """The messages without those that were excluded and whose summary is among them.

    With `all_marks`, also without those that were excluded for no summary. One whose summary is not here stays: the
    framework stores a message's mark with it, and not always the summary that it made, and nothing may vanish by that.
    """
    if not any(message.additional_properties.get(EXCLUDED_KEY) for message in messages):
        return messages
    is_summed = _summed(messages)
    return [
        message
        for message in messages
        if not message.additional_properties.get(EXCLUDED_KEY)
        or not (is_summed(message) or (all_marks and _group(message).get(SUMMARIZED_BY_SUMMARY_ID_KEY) is None))
    ]


def _summed(messages: list[Message]) -> Callable[[Message], bool]:
    """Whether a summary among the messages stands for a message."""
    summaries = {message.message_id: _group(message).get(SUMMARY_OF_MESSAGE_IDS_KEY) for message in messages}
    ids = {name for name, covered in summaries.items() if name is not None and covered is not None}
    lists = [names for names in summaries.values() if isinstance(names, list | tuple)]
    covered = {name for names in lists for name in names if type(name) is str}

    def is_summed(message: Message) -> bool:
        return message.message_id in covered or _summary_of(message) in ids

    return is_summed


def _summary_of(message: Message) -> str | None:
    summary_id = _group(message).get(SUMMARIZED_BY_SUMMARY_ID_KEY)
    return summary_id if type(summary_id) is str else None


def _group(message: Message) -> Mapping[str, Any]:
    group = message.additional_properties.get(GROUP_ANNOTATION_KEY)
    return group if isinstance(group, Mapping) else {}
