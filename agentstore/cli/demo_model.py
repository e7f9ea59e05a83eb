"""What is said in the demo: by the user, and by a model that works offline."""

from __future__ import annotations

from collections.abc import Sequence

SESSION = "demo"
REQUEST = "Please remember this: "
THANKS = "Thank you, that is all for now."
QUESTION = "What did I ask you to remember?"


def reply(user_texts: Sequence[str]) -> str:
    """What the model says to the user's messages, oldest first. It knows nothing else: its memory is the history."""
    newest = user_texts[-1]
    told = [text.removeprefix(REQUEST) for text in user_texts if text.startswith(REQUEST)]
    if newest.startswith(REQUEST):
        return "I will."
    if newest != QUESTION:
        return "You are welcome."
    return f"You asked me to remember: {told[-1]}" if told else "You have not asked me to remember anything."
