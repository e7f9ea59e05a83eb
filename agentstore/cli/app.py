"""The command line as a whole."""

from __future__ import annotations

import typer

from agentstore.cli.backends import backends
from agentstore.cli.demo import demo
from agentstore.cli.show import show

app = typer.Typer(
    help="Durable conversation histories for Python agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, and a URL may hold a password
)
for command in (demo, backends, show):
    app.command()(command)
