"""Tables and lines of stored text: no control character and no markup in it takes effect."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentstore.cli.escaping import visible


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print stored texts as a table; long ones are folded, never cut."""
    table = Table(title=Text(visible(title)), title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[Text(visible(cell)) for cell in row])
    Console().print(table)


def print_line(text: str) -> None:
    """Print one paragraph of stored text."""
    Console().print(Text(visible(text)))
