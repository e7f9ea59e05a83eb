"""The `agentstore` command (extra `cli`): one file per command, put together in `app`."""

from __future__ import annotations

import sys

from agentstore.cli.escaping import visible
from agentstore.errors import AgentStoreError, ConfigurationError, MissingDependencyError


def main() -> None:
    """Run the command line. An error of ours becomes one line; exit code 2 for a wrong set-up, 1 for all else."""
    try:
        _run()
    except AgentStoreError as error:
        print("agentstore:", visible(" ".join(str(error).split())), file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


def _run() -> None:
    try:
        from agentstore.cli.app import app
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the command line needs the module {error.name!r}: pip install 'agentstore-history[cli]'"
        ) from error
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app()
