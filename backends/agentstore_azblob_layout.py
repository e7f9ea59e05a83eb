"""The blob that says that a prefix is agentstore's, and in which version."""

from __future__ import annotations

from agentstore.backend import Readiness
from agentstore.errors import ConfigurationError, StorageError
from agentstore_azblob_container import Container, NoContainerError, UnmetError
from agentstore_azblob_names import Names

VERSION = b"1"


async def inspect(container: Container, names: Names) -> Readiness:
    """What is there; raises `ConfigurationError` where it is not ours, or newer."""
    try:
        found = await container.get(names.layout, 0)
    except NoContainerError:
        return "absent"
    if found is None:
        return "absent"
    if found.data.strip() != VERSION:
        raise ConfigurationError(f"the blob {names.layout} is not of this version of agentstore: upgrade, or move it")
    return "ready"


async def set_up(container: Container, names: Names) -> None:
    """Write the layout, and create the container only where it is missing."""
    for _ in range(2):
        try:
            await container.put(names.layout, VERSION)
        except UnmetError:
            await inspect(container, names)
        except NoContainerError:
            await container.ensure()
            continue
        return
    raise StorageError("the container was removed while it was set up")
