"""The `agentstore` command, as a user runs it."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentstore import Content, Message, cli, open_store
from agentstore.cli.demo_model import QUESTION, REQUEST

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; what it printed, after its exit code was seen to be the expected one."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["agentstore", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        printed = capsys.readouterr()
        assert exit.value.code == code, printed
        return printed.err if code else printed.out

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


def write(url: str, *messages: Message, session: str = "user-42", source: str = "history") -> None:
    async def append() -> None:
        async with open_store(url) as store:
            await store.session(session, source_id=source).append(messages)

    asyncio.run(append())


def test_the_demo_brings_the_word_back_from_a_killed_process() -> None:
    """One process is killed right after its answer, another answers with the word, and both are named."""
    word = "[bold]Grüße[/bold] 'x' $HOME"
    shown = subprocess.run(
        [sys.executable, "-m", "agentstore.cli", "demo", "--remember", word],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "200"},
        timeout=120,
        check=True,
    )
    killed = re.search(rf"Process (\d+): killed with SIGKILL .*exit code -{signal.SIGKILL:d}", shown.stdout)
    resumed = re.search(r"Process (\d+): resumed", shown.stdout)
    assert killed
    assert resumed
    assert killed[1] != resumed[1]
    assert f"You asked me to remember: {word}" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize("kind", ["demo_core", "demo_framework"])
def test_the_demo_has_an_agent_with_and_without_the_framework(kind: str, url: str) -> None:
    """Both remember through the store only: a second agent on the same URL knows what the first was told."""
    make_agent = importlib.import_module(f"agentstore.cli.{kind}").make_agent
    assert asyncio.run(make_agent(url)(QUESTION)) == "You have not asked me to remember anything."
    assert asyncio.run(make_agent(url)(f"{REQUEST}heron")) == "I will."
    assert asyncio.run(make_agent(url)(QUESTION)) == "You asked me to remember: heron"


def test_the_demo_refuses_an_empty_word(run: Run) -> None:
    """There is nothing to bring back."""
    assert "something to remember" in run("demo", "--remember", " ", code=2)


def test_backends_lists_schemes_with_distribution_and_entry(run: Run) -> None:
    """What is installed, and where it comes from."""
    shown = run("backends")
    assert re.search(r"memory:// +agentstore-history \S+ +agentstore_memory:MemoryBackend", shown)
    assert re.search(r"sqlite:// +agentstore-history \S+ +agentstore_sqlite:SQLiteBackend", shown)


def test_show_lists_the_sessions_of_a_namespace(run: Run, url: str) -> None:
    """Session, source and count; `--source` leaves out the others, another namespace has none of them."""
    write(url, Message("user", ["hi"]), Message("assistant", ["hello"]))
    write(url, Message("user", ["hi"]), source="audit")
    assert re.search(r"user-42 +history +2 ", run("show", url))
    assert "history " not in run("show", url, "--source", "audit")
    assert "user-42" not in run("show", url, "--namespace", "other")


def test_show_prints_the_newest_messages_of_a_session(run: Run, url: str) -> None:
    """Oldest first; contents that are not text with their fields; `--limit` keeps the newest."""
    call = Content("function_call", name="add", call_id="c1")
    write(url, Message("user", ["one"]), Message("assistant", [call], author_name="Ada"), Message("user", ["three"]))
    shown = run("show", url, "user-42")
    assert shown.index("one") < shown.index("[function_call] name='add', call_id='c1'") < shown.index("three")
    assert "assistant (Ada)" in shown
    assert "one" not in run("show", url, "user-42", "--limit", "1")


def test_show_prints_messages_as_text_only(run: Run, url: str) -> None:
    """Control characters, bidirectional marks, lone surrogates and markup are shown, never obeyed."""
    write(url, Message("user", ["\x1b[31mred\x07 [bold]b[/bold] \u202eabc \ud800"], author_name="[link=x]\x1b"))
    shown = run("show", url, "user-42")
    assert r"\x1b[31mred\x07 [bold]b[/bold] \u202eabc \ud800" in shown
    assert r"([link=x]\x1b)" in shown
    assert "\x1b" not in shown


def test_show_marks_a_corrupt_record_and_shows_the_rest(run: Run, url: str) -> None:
    """A broken payload is one visible row."""
    write(url, Message("user", ["first"]), Message("user", ["broken"]), Message("user", ["third"]))
    file = sqlite3.connect(url.removeprefix("sqlite:///"))
    broken = file.execute("update message set payload = '{not json' where instr(payload, 'broken')")
    file.commit()
    file.close()
    assert broken.rowcount == 1
    shown = run("show", url, "user-42")
    assert "first" in shown
    assert "third" in shown
    assert re.search(r"2 .* UNREADABLE +agentstore/1, 9 bytes", shown)


def test_show_changes_nothing(run: Run, url: str, tmp_path: Path) -> None:
    """A store that is not there is not created."""
    assert "nothing is stored there" in run("show", url)
    assert list(tmp_path.iterdir()) == []


def test_show_prints_no_secret(run: Run) -> None:
    """A password in a URL appears in no error."""
    shown = run("show", "sqlite://user:hunter2@host/x.db?synchronous=hunter2", code=2)
    assert shown.startswith("agentstore: ")
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "nonsense"], 2, "a store URL looks like"),
        (["show", "nosuch://x"], 2, "no backend for nosuch://"),
        (["show", "sqlite:///x.db?colour%1b[31m=red"], 2, "unknown option colour\\x1b[31m"),
        (["show", "memory://", ""], 2, "must not be empty"),
        (["show", "memory://", "s" * 2000], 2, "more than 1024"),
        (["show", "memory://", "--limit", "0"], 2, "--limit"),
    ],
)
def test_a_wrong_argument_is_answered_in_a_line(run: Run, arguments: list[str], code: int, said: str) -> None:
    """No traceback, and an exit code of 2."""
    shown = run(*arguments, code=code)
    assert said in shown
    assert "Traceback" not in shown


def test_a_file_that_is_not_a_store_is_answered_in_a_line(run: Run, tmp_path: Path) -> None:
    """An error of ours, and nothing changed."""
    (tmp_path / "notes.db").write_text("not a database, but a long enough text to be sure of it" * 20)
    before = (tmp_path / "notes.db").read_bytes()
    assert run("show", f"sqlite:///{tmp_path}/notes.db", code=2).count("\n") == 1
    assert (tmp_path / "notes.db").read_bytes() == before
