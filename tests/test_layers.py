"""Who may import whom: arrows point down only. The two tables here are the rule."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("errors",),
    ("keys", "loops", "messages", "settle", "urls"),
    ("merging",),
    ("responses", "tools"),
    ("chat", "session", "streaming"),
    ("untagged", "values"),
    ("codec",),
    ("backend",),
    ("batch", "shapes"),
    ("catalog", "gate", "snapshots"),
    ("history",),
    ("store",),
    ("registry",),
    ("moving", "replay", "units"),
    ("export_file", "windows"),
    ("compaction", "providers", "reducers", "transfer"),
    ("history_providers", "fingerprint", "middleware", "owed"),
    ("calls", "model", "remembering"),
    ("approvals",),
    ("runs",),
    ("agent",),
    ("clients",),
    ("__init__",),
    ("adapters",),
    ("cli", "testing"),
)
"""The core's modules from the bottom up: each imports only those of layers below its own, or of its own package."""

OUTSIDE = {
    "agentstore/": {"msgspec"},
    "agentstore/adapters/agent_framework": {"msgspec", "agent_framework"},
    "agentstore/adapters/openai_agents": {"msgspec", "agents", "openai"},
    "agentstore/adapters/pydantic_ai": {"msgspec", "pydantic", "pydantic_ai"},
    "agentstore/clients/openai": {"msgspec", "openai"},
    "agentstore/cli/": {"msgspec", "typer", "rich"},
    "agentstore/cli/demo_framework.py": {"agent_framework"},
    "agentstore/testing/": {"msgspec", "pytest", "hypothesis", "agentstore_memory"},
    "backends/": {"msgspec"},
    "backends/agentstore_postgres": {"msgspec", "asyncpg", "sqlalchemy"},
    "backends/agentstore_redis": {"msgspec", "redis"},
    "backends/agentstore_azblob": {"msgspec", "azure", "aiohttp"},
}
"""What a file may import beside the standard library and our own: the longest beginning of its path decides."""

BACKEND_SEES = {"backend", "errors", "keys", "loops", "urls"}
"""What a backend may import of the core; beside it, its own family: `agentstore_x` and `agentstore_x_*`."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(
    path.relative_to(ROOT).as_posix() for tree in ("agentstore", "backends") for path in ROOT.glob(f"{tree}/**/*.py")
)


@pytest.mark.parametrize("file", FILES)
def test_a_module_imports_only_what_lies_below_it(file: str) -> None:
    """The core stands on the standard library and msgspec, a backend on the waist, a framework on nobody."""
    assert violations(file, (ROOT / file).read_text()) == []


@pytest.mark.parametrize(
    ("file", "source", "why"),
    [
        ("agentstore/keys.py", "from agentstore.store import HistoryStore", "store is not below keys"),
        ("agentstore/keys.py", "from agentstore import store", "store is not below keys"),
        ("agentstore/store.py", "from agentstore import Message", "__init__ is not below store"),
        ("agentstore/store.py", "import agentstore.cli.show", "cli is not below store"),
        ("agentstore/store.py", "def f():\n    import typer", "typer"),
        ("agentstore/store.py", "import agentstore_memory", "agentstore_memory"),
        ("agentstore/store.py", "from .keys import SessionKey", "relative"),
        ("agentstore/surprise.py", "", "surprise has no layer"),
        ("agentstore/adapters/downcast.py", "import agent_framework", "agent_framework"),
        ("agentstore/cli/demo.py", "import agent_framework", "agent_framework"),
        ("agentstore/testing/suite.py", "import backends.agentstore_memory", "backends"),
        ("backends/agentstore_redis.py", "from agentstore.codec import Codec", "codec is above the waist"),
        ("backends/agentstore_redis.py", "from agentstore import Message", "__init__ is above the waist"),
        ("backends/agentstore_redis.py", "import agentstore_memory", "agentstore_memory"),
    ],
)
def test_an_import_that_points_up_is_found(file: str, source: str, why: str) -> None:
    """Each rule of the tables refuses what breaks it."""
    assert any(why in found for found in violations(file, source))


def violations(file: str, source: str) -> list[str]:
    """What the file imports and may not."""
    own = _core_module(file)
    if own is not None and own not in LEVEL:
        return [f"{own} has no layer: give it one in LAYERS"]
    allowed = OUTSIDE[max((start for start in OUTSIDE if file.startswith(start)), key=len)]
    return [why for name in _imports(ast.parse(source)) if (why := _refusal(file, own, name, allowed))]


def _refusal(file: str, own: str | None, name: str, allowed: set[str]) -> str | None:
    top, _, rest = name.partition(".")
    if top != "agentstore":
        fine = top in sys.stdlib_module_names or top in allowed or _family(top) == _family(Path(file).stem) != ""
        return None if fine else f"{name} is not among what {file} may import"
    imported = rest.partition(".")[0] or "__init__"
    if own is None:
        return None if imported in BACKEND_SEES else f"{imported} is above the waist"
    same_package = imported == own and "/" in file.removeprefix("agentstore/")
    return None if same_package or LEVEL.get(imported, len(LAYERS)) < LEVEL[own] else f"{imported} is not below {own}"


def _core_module(file: str) -> str | None:
    """`store` for `agentstore/store.py`, `cli` for `agentstore/cli/show.py`, `None` for a backend."""
    folder, _, rest = file.partition("/")
    return rest.partition("/")[0].removesuffix(".py") if folder == "agentstore" else None


def _family(module: str) -> str:
    """`sqlite` for `agentstore_sqlite` and `agentstore_sqlite_log`."""
    return module.split("_")[1] if module.startswith("agentstore_") else ""


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "relative imports"
        elif isinstance(node, ast.ImportFrom) and node.module == "agentstore":
            yield from (f"agentstore.{alias.name}" if alias.name in LEVEL else "agentstore" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
