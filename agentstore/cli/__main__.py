"""`python -m agentstore.cli` is the `agentstore` command."""

from __future__ import annotations

from agentstore.cli import main

if __name__ == "__main__":
    main()
