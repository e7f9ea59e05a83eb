"""The conformance kit: every sentence of the contract as a test, for any backend.

import pytest
from agentstore.testing import BackendConformance

class TestMine(BackendConformance):
    async def open_backend(self):
        return MyBackend()

Needs the extra `testing` (pytest and hypothesis). Nothing here is a pytest plugin: the class is all there is.
"""

from __future__ import annotations

import pkgutil

from agentstore.errors import MissingDependencyError

try:
    import hypothesis  # noqa: F401
    import pytest
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        f"agentstore.testing needs {error.name}: pip install 'agentstore-history[testing]'"
    ) from error

pytest.register_assert_rewrite(*[f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)])

from agentstore.testing.conformance import BackendConformance  # noqa: E402

__all__ = ["BackendConformance"]
