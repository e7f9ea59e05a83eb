"""The demo's agent process: `python -m agentstore.cli.demo_process URL`.

It says what agent it is, then answers texts from stdin until that ends; each is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec


def main() -> None:
    """Be the process."""
    url = sys.argv[1]
    # The real framework's agent where it is installed; a broken one may show its error.
    if find_spec("agent_framework"):
        from agentstore.cli.demo_framework import make_agent

        print(json.dumps("an agent of the Microsoft Agent Framework"), flush=True)
    else:
        from agentstore.cli.demo_core import make_agent

        print(json.dumps("an agent of agentstore's core (the Agent Framework is not installed)"), flush=True)
    asyncio.run(_converse(make_agent(url)))


async def _converse(ask: Callable[[str], Awaitable[str]]) -> None:
    for line in sys.stdin:  # nothing else runs in this loop that the wait could hold up
        print(json.dumps(await ask(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
