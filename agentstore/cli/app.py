"""The command line as a whole."""

from __future__ import annotations

import typer

from agentstore.cli.backends import backends
from agentstore.cli.chat import chat
from agentstore.cli.check import check
from agentstore.cli.copy import copy
from agentstore.cli.delete import delete
from agentstore.cli.demo import demo
from agentstore.cli.export import export
from agentstore.cli.import_ import import_
from agentstore.cli.purge import purge
from agentstore.cli.sessions import sessions
from agentstore.cli.setup import setup
from agentstore.cli.show import show

app = typer.Typer(
    help="Durable conversation histories for Python agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, and a URL may hold a password
)
for command in (demo, chat, backends, setup, check, sessions, show, export, import_, copy, delete, purge):
    app.command(command.__name__.rstrip("_"))(command)
