"""`check`: what a crash, a full memory or a full disk would cost, said before it happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from postgres_server import execute, server_url

from agentstore import ConfigurationError, HistoryStore, cli, open_store
from agentstore.backend import Finding
from agentstore.testing.faults import bare
from agentstore_memory import MemoryBackend
from agentstore_postgres_check import findings


def checked(url: str, **options: Any) -> list[Finding]:
    async def main() -> list[Finding]:
        async with open_store(url, **options) as store:
            return await store.check()

    return asyncio.run(main())


def level_of(found: Sequence[Finding], words: str) -> str:
    """The level of the one finding with these words in it."""
    (finding,) = [finding for finding in found if words in finding.text]
    return finding.level


def test_memory_is_gone_with_the_process() -> None:
    """It is said, as a warning."""
    assert level_of(checked("memory://"), "gone when the process ends") == "warning"


@pytest.mark.parametrize(("synchronous", "level"), [("full", "ok"), ("normal", "warning")])
def test_sqlite_says_what_a_power_cut_costs(tmp_path: Path, synchronous: str, level: str) -> None:
    """Nothing in full durability, the last turns otherwise; and no file is made by asking."""
    found = checked(f"sqlite:///{tmp_path}/chat.db", synchronous=synchronous)
    assert level_of(found, "power cut") == level
    assert list(tmp_path.iterdir()) == []


def test_postgres_says_what_a_crash_costs() -> None:
    """The server's own settings, as they hold for the role that asks, which needs no right to anything."""
    role = f"hasty_{uuid4().hex}"
    execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'", f"ALTER ROLE {role} SET synchronous_commit = off")
    server = urlsplit(server_url())
    place = {"netloc": f"{role}:{role}@{server.hostname}:{server.port}", "query": f"schema={role}"}  # nobody else's
    found = checked(urlunsplit(server._replace(**place)))
    execute(f"DROP ROLE {role}")
    assert level_of(found, "synchronous_commit is off") == "warning"
    assert level_of(found, "disk is full") == "ok"


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({}, "ok", "a crash or a power cut loses none"),
        ({"fsync": "off"}, "warning", "fsync is off"),
        ({"full_page_writes": "off"}, "warning", "full_page_writes is off"),
        ({"synchronous_commit": "off"}, "warning", "about the last second"),
        ({"synchronous_commit": "local"}, "ok", "loses none"),
        ({"recovery": "on"}, "error", "is a replica"),
    ],
)
def test_postgres_settings_are_put_in_words(settings: dict[str, str], level: str, words: str) -> None:
    """Each setting that costs something is named."""
    safe = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "recovery": "off"}
    assert level_of(list(findings({**safe, **settings})), words) == level


def test_a_backend_that_cannot_tell_is_named() -> None:
    """The ability is named."""

    async def main() -> None:
        async with HistoryStore(bare(MemoryBackend())) as store:
            with pytest.raises(
                ConfigurationError, match="check needs a backend with the ability Checkable; Bare lacks"
            ):
                await store.check()

    asyncio.run(main())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command in this process; what it printed, after its exit code was seen to be the expected one."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["agentstore", "check", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        printed = capsys.readouterr()
        assert exit.value.code == code, printed
        return printed.err if code == 2 else printed.out

    return run


def test_the_command_prints_a_line_a_finding(run: Callable[..., str], tmp_path: Path) -> None:
    """With the level before it; warnings are no failure."""
    lines = run(f"sqlite:///{tmp_path}/chat.db?synchronous=normal").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warning", "ok"]


def test_the_command_takes_the_store_of_the_environment(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `open_store` without a URL does."""
    monkeypatch.setenv("AGENTSTORE_URL", "memory://")
    assert "gone when the process ends" in run()


def test_the_command_fails_where_writes_would(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error among the findings is exit code 1, and all of them are printed."""

    async def failing(store: HistoryStore) -> list[Finding]:
        return [Finding("error", "writes fail"), Finding("ok", "the rest is \x1b[31mfine")]

    monkeypatch.setattr(HistoryStore, "check", failing)
    assert run("memory://", code=1).splitlines() == ["error: writes fail", r"ok: the rest is \x1b[31mfine"]


def test_the_command_answers_a_wrong_url_in_a_line(run: Callable[..., str]) -> None:
    """Exit code 2, no traceback."""
    assert run("nosuch://x", code=2).count("\n") == 1
