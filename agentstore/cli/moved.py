"""What `copy` and `import` print: a line for each session that is not simply copied, and how many were."""

from __future__ import annotations

from agentstore.cli.printing import print_line
from agentstore.transfer import Moved, Transferred


def print_moved(moved: Moved) -> None:
    """Print what became of a session, unless it was copied."""
    if moved.outcome == "equal":
        print_line(f"{moved.key}: there already, the very same")
    elif moved.error is not None:
        print_line(f"{moved.key}: NOT COPIED: {moved.error}")


def print_total(done: Transferred) -> None:
    """Print the last line."""
    print_line(f"{done.copied} sessions copied, {done.equal} there already")
