"""`agentstore backends`: what URL schemes are installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from agentstore.cli.printing import print_table
from agentstore.registry import GROUP


def backends() -> None:
    """List the installed backends: URL scheme, distribution, and what its entry point names. Imports none of them."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    print_table(
        "Backends", ["URL", "Distribution", "Entry point"], [[f"{e.name}://", _owner(e), e.value] for e in entries]
    )


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
