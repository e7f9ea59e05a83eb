"""The commands on stored sessions, as a user runs them; and every command of docs/command-line.md."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from transfer_scene import Held, fill, held

import agentstore_sqlite_schema as schema
from agentstore import Message, SessionKey, cli, open_store
from agentstore.cli.app import app
from agentstore.testing.scenes import LONG_AGO

Run = Callable[..., str]
PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; what it printed, after its exit code was seen to be the expected one."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: str, code: int = 0, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["agentstore", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exit:
            cli.main()
        printed = capsys.readouterr()
        assert exit.value.code == code, printed
        return printed.out + printed.err

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


@pytest.fixture
def other(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/other.db"


def write(
    url: str, session: str = "s", *, text: str = "hi", namespace: str = "default", source: str = "history"
) -> None:
    async def append() -> None:
        async with open_store(url, namespace=namespace) as store:
            await store.session(session, source_id=source).append([Message("user", [text])])

    asyncio.run(append())


def filled(url: str) -> dict[SessionKey, Held]:
    """The store with sessions that are hard to keep; what it holds."""

    async def main() -> dict[SessionKey, Held]:
        async with open_store(url) as store:
            await fill(store)
            return await held(store)

    return asyncio.run(main())


def kept(url: str, namespace: str = "default") -> dict[SessionKey, Held]:
    """What the store holds."""

    async def main() -> dict[SessionKey, Held]:
        async with open_store(url, namespace=namespace) as store:
            return await held(store)

    return asyncio.run(main())


def names(url: str, namespace: str = "default") -> set[str]:
    return {f"{key.source_id}/{key.session_id}" for key in kept(url, namespace)}


def test_every_command_of_the_page_does_what_it_shows(tmp_path: Path) -> None:
    """One after another in an empty folder; the lines below a command are in what it prints."""
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    commands = [block.splitlines() for block in re.split(r"^\$ ", shown, flags=re.MULTILINE) if block]
    there = {re.search(r"agentstore (\w+)", command)[1] for command, *_ in commands[1:]}  # type: ignore[index]
    assert there == {command.name for command in app.registered_commands}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTORE_")}
    environment |= {
        "COLUMNS": "200",
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for command, *expected in commands[1:]:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done
        assert [line for line in expected if line not in done.stdout + done.stderr] == [], done


def test_setup_makes_a_store_ready(run: Run, url: str, tmp_path: Path) -> None:
    """Once or twice; afterwards a store that may not set itself up can be written to."""
    assert "ready" in run("setup", url)
    assert "ready" in run("setup", url)

    async def main() -> None:
        async with open_store(url, auto_setup=False) as store:
            await store.session("s").append([Message("user", ["hi"])])

    asyncio.run(main())


def test_sessions_lists_page_by_page(run: Run, url: str) -> None:
    """With counts and metadata as text; each page says where the next begins."""
    for name in ("a", "b", "c"):
        write(url, name)
    write(url, "d", source="audit")

    async def annotate() -> None:
        async with open_store(url) as store:
            await store.session("a").annotate({"title": "\x1b[31m[bold]red", "odd": b"\xff"})

    asyncio.run(annotate())
    first = run("sessions", url, "--source", "history", "--limit", "2")
    assert re.search(r"a +history +1 +\d+ .*Z +\{\"title\": \"\\u001b\[31m\[bold\]red\", \"odd\": ", first)
    cursor = re.search(r"More with --cursor (\S+)", first)
    assert cursor
    rest = run("sessions", url, "--source", "history", "--cursor", cursor[1])
    assert re.findall(r"^ *(\w+) +(?:history|audit)", rest, re.MULTILINE) == ["c"]
    assert "More with" not in rest
    assert "\x1b" not in first


def test_copy_moves_everything_and_can_be_run_again(run: Run, url: str, other: str) -> None:
    """Equal sessions; the second run leaves them alone and says so."""
    before = filled(url)
    assert f"{len(before)} sessions copied, 0 there already" in run("copy", url, other)
    assert kept(other) == before
    again = run("copy", url, other)
    assert again.count("there already, the very same") == len(before)
    assert f"0 sessions copied, {len(before)} there already" in again


def test_export_and_import_give_back_everything(run: Run, url: str, other: str, tmp_path: Path) -> None:
    """Through a file; an older file of that name is replaced, and nothing else is left in the folder."""
    before = filled(url)
    file = tmp_path / "out" / "export.jsonl"
    file.parent.mkdir()
    file.write_text("older")
    assert f"{len(before)} sessions exported" in run("export", url, str(file))
    assert [path.name for path in file.parent.iterdir()] == ["export.jsonl"]
    assert f"{len(before)} sessions copied, 0 there already" in run("import", other, str(file))
    assert kept(other) == before


def test_export_and_import_are_a_pipe(url: str, other: str) -> None:
    """`-` is the standard output and input; only sessions go there."""
    before = filled(url)
    command = f"{sys.executable} -m agentstore.cli"
    pipe = f"{command} export {url} - | {command} import {other} -"
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert f"{len(before)} sessions copied" in done.stdout
    assert kept(other) == before


def test_what_is_moved_can_be_chosen(run: Run, url: str, other: str, tmp_path: Path) -> None:
    """By namespaces, source and session, in both commands alike."""
    for namespace, source, session in ("n1", "x", "s"), ("n1", "y", "s"), ("n1", "x", "t"), ("n2", "x", "s"):
        write(url, session, namespace=namespace, source=source)
    run("copy", url, other, "--namespace", "n1", "--session", "s")
    assert names(other, "n1") == {"x/s", "y/s"}
    file = str(tmp_path / "export.jsonl")
    assert "2 sessions exported" in run(
        "export", url, file, "--namespace", "n2", "--namespace", "n1", "--source", "x", "--session", "s"
    )
    assert "1 sessions copied, 1 there already" in run("import", other, file)
    assert names(other, "n2") == {"x/s"}


@pytest.mark.parametrize("choice", [[], ["--session", "none"], ["--namespace", "none"]])
def test_nothing_to_move_is_said(run: Run, url: str, other: str, tmp_path: Path, choice: list[str]) -> None:
    """A typing error in a URL or a name is no success; no store and no file is made."""
    if choice:
        write(url)
    before = sorted(tmp_path.iterdir())
    assert "there is no such session" in run("copy", url, other, *choice, code=1)
    assert "there is no such session" in run("export", url, str(tmp_path / "export"), *choice, code=1)
    assert sorted(tmp_path.iterdir()) == before


def test_a_conflict_is_named_and_the_rest_is_moved(run: Run, url: str, other: str, tmp_path: Path) -> None:
    """Exit code 1; the session that was there is left as it is."""
    for name in ("a", "b", "c"):
        write(url, name)
    write(other, "b", text="mine")
    before = kept(other)
    shown = run("copy", url, other, code=1)
    assert "default/history/b: NOT COPIED: another session default/history/b is there already" in shown
    assert names(other) == {"history/a", "history/b", "history/c"}
    file = str(tmp_path / "export.jsonl")
    run("export", url, file)
    assert "default/history/b: NOT COPIED" in run("import", other, file, code=1)
    assert {key: kept(other)[key] for key in before} == before


@pytest.mark.parametrize("content", ["", "hello\n", '{"line":"export","format":"agentstore.export/1"}\n'])
def test_a_file_that_is_no_export_is_answered_in_a_line(run: Run, other: str, tmp_path: Path, content: str) -> None:
    """The line is named; exit code 1."""
    (tmp_path / "file").write_text(content)
    shown = run("import", other, str(tmp_path / "file"), code=1)
    assert re.match(r"agentstore: line [12] of the export: [^\n]+\n$", shown)


def test_a_failed_export_leaves_the_older_file(run: Run, url: str, tmp_path: Path) -> None:
    """Also where the folder is missing, or the name is a folder's."""
    write(url)
    assert "cannot be written" in run("export", url, str(tmp_path / "none" / "file"), code=1)
    assert "is a directory" in run("export", url, str(tmp_path), code=2)
    file = tmp_path / "export.jsonl"
    file.write_text("older")
    run("export", url, str(file), "--session", "none", code=1)
    assert file.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_delete_asks_first(run: Run, url: str) -> None:
    """Without a yes nothing goes; with one, or `--yes`, the session goes with every trace."""
    write(url)
    write(url, source="audit")
    for answer in ("", "n\n", "\n"):
        assert "Delete the session default/history/s in" in run("delete", url, "s", code=1, stdin=answer)
    assert names(url) == {"history/s", "audit/s"}
    assert "deleted" in run("delete", url, "s", stdin="y\n")
    assert names(url) == {"audit/s"}
    assert "deleted" in run("delete", url, "s", "--source", "audit", "--yes")
    assert names(url) == set()
    assert "there is no session default/history/s" in run("delete", url, "s", "--yes", code=1)


def test_delete_takes_a_whole_namespace_only_by_name(run: Run, url: str) -> None:
    """All its sources, and no other namespace; a forgotten session id deletes nothing."""
    write(url, namespace="acme")
    write(url, namespace="acme", source="audit")
    write(url)
    run("delete", url, "--namespace", "acme", "--yes", code=2)
    run("delete", url, "s", "--whole-namespace", "--yes", code=2)
    assert "all sessions of the namespace acme" in run(
        "delete", url, "--whole-namespace", "--namespace", "acme", code=1
    )
    assert names(url, "acme") == {"history/s", "audit/s"}
    assert "2 sessions deleted" in run("delete", url, "--whole-namespace", "--namespace", "acme", "-y")
    assert names(url, "acme") == set()
    assert names(url) == {"history/s"}


def test_purge_frees_the_room_of_what_expired(run: Run, url: str) -> None:
    """In all namespaces, after a yes; what lives stays."""

    async def expire() -> None:
        async with open_store(url, namespace="acme") as store:
            await store.session("s").expire(LONG_AGO + timedelta(days=1))

    write(url, namespace="acme")
    write(url)
    asyncio.run(expire())
    assert "Remove what has expired in sqlite" in run("purge", url, code=1)
    assert "1 expired sessions removed" in run("purge", url, stdin="y\n")
    assert "0 expired sessions removed" in run("purge", url, "--yes")
    assert names(url) == {"history/s"}


@pytest.mark.parametrize("command", [["sessions"], ["delete", "s", "--yes"], ["purge", "--yes"], ["copy"], ["export"]])
def test_a_store_that_is_not_there_is_not_created(
    run: Run, url: str, other: str, tmp_path: Path, command: list[str]
) -> None:
    """To look into it or to take from it makes nothing."""
    more = {"copy": [other], "export": [str(tmp_path / "file")]}.get(command[0], [])
    run(command[0], url, *command[1:], *more, code=0 if command[0] in ("sessions", "purge") else 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["sessions"], ["delete", "s", "--yes"], ["purge", "--yes"], ["copy"], ["export"]])
def test_an_older_store_is_left_as_it_is(run: Run, url: str, other: str, tmp_path: Path, command: list[str]) -> None:
    """Only `setup`, and what brings sessions in, migrates."""
    write(url)
    before = (tmp_path / "chat.db").read_bytes()
    more = {"copy": [other], "export": [str(tmp_path / "file")]}.get(command[0], [])
    with patch.object(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE extra (a)",))):
        assert "older schema" in run(command[0], url, *command[1:], *more, code=2)
        assert not {"other.db", "file"} & {path.name for path in tmp_path.iterdir()}
        assert (tmp_path / "chat.db").read_bytes() == before
        run("setup", url)
        assert "1 sessions copied" in run("copy", url, other)


SECRET = "sqlite://user:hunter2@host/x.db?synchronous=hunter2"


@pytest.mark.parametrize(
    "arguments",
    [
        ["setup", SECRET],
        ["sessions", SECRET],
        ["copy", SECRET, "memory://"],
        ["copy", "memory://", SECRET],
        ["export", SECRET, "-"],
        ["import", SECRET, __file__],
        ["delete", SECRET, "s", "--yes"],
        ["delete", SECRET, "--whole-namespace", "--yes"],
        ["purge", SECRET, "--yes"],
    ],
)
def test_no_command_prints_a_secret(run: Run, arguments: list[str]) -> None:
    """A password or an option's value in a URL appears in no error."""
    assert "hunter2" not in run(*arguments, code=2)


@pytest.mark.parametrize(
    "command", [["delete", SECRET, "s"], ["delete", SECRET, "--whole-namespace"], ["purge", SECRET]]
)
def test_no_question_shows_a_secret(run: Run, command: list[str]) -> None:
    """The store is named, without its password."""
    assert "***@host" in (shown := run(*command, code=1))
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sessions", "memory://", "--namespace", ""], "must not be empty"),
        (["sessions", "memory://", "--cursor", "nonsense"], "not a cursor"),
        (["sessions", "memory://", "--limit", "0"], "--limit"),
        (["copy", "memory://", "memory://", "--namespace", "x" * 2000], "more than 1024"),
        (["copy", "memory://", "nosuch://"], "no backend for nosuch://"),
        (["export", "memory://", "-", "--session", ""], "must not be empty"),
        (["import", "memory://", "/no/such/file"], "/no/such/file"),
        (["delete", "memory://"], "--whole-namespace"),
        (["delete", "memory://", ""], "must not be empty"),
        (["purge", "nonsense", "--yes"], "a store URL looks like"),
    ],
)
def test_a_wrong_argument_is_answered_in_a_line(run: Run, arguments: list[str], said: str) -> None:
    """No traceback, and an exit code of 2."""
    shown = run(*arguments, code=2)
    assert said in shown
    assert "Traceback" not in shown
