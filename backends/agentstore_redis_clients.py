"""The servers as each event loop asks them: connections of its own, or the client that was handed in."""

from __future__ import annotations

from agentstore.loops import PerLoop
from agentstore_redis_errors import NotSentError, translated
from agentstore_redis_servers import Servers


class Clients(PerLoop[Servers]):
    """The `Servers` of each event loop of this process."""

    def ready(self) -> Servers | None:
        """The running loop's, if they are open."""
        servers = self.find()
        return servers if servers is not None and servers.opened else None

    async def here(self) -> Servers:
        """The running loop's, open."""
        servers = self.client()
        try:
            await servers.open()
        except NotSentError as error:
            raise translated(error, writes=False) from error
        return servers
