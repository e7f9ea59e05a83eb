"""What comes out of a store is text: nothing in it may steer the terminal."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text with every control, format and line-separating character but the newline written as an escape."""
    return "".join([_escaped(char) if unicodedata.category(char) in _HIDDEN else char for char in text])


def _escaped(char: str) -> str:
    return char if char == "\n" else char.encode("unicode-escape", "surrogatepass").decode()
