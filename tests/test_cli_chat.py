"""`agentstore chat`, as a user types it: a process with lines on stdin and answers on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest
from openai_server import KEY, MODEL, OpenAIServer, said

from agentstore import open_store

COMMAND = (sys.executable, "-m", "agentstore.cli", "chat")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer().running() as running:
        yield running


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


def chat(*arguments: str, lines: str = "", code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; its exit code was seen to be the expected one."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AGENTSTORE_"))}
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=lines,
        capture_output=True,
        encoding="utf-8",
        env={**bare, **environment},
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done
    return done


def texts(url: str, session: str = "chat") -> list[str]:
    async def main() -> list[str]:
        async with open_store(url) as store:
            return [message.text for message in await store.session(session).messages()]

    return asyncio.run(main())


def test_each_line_is_a_turn_and_the_next_start_goes_on(url: str) -> None:
    """Answers on stdout, the rest on stderr; empty lines are nothing. The offline client repeats what it is told."""
    first = chat(url, "--session", "s", lines="one\n\n  \ntwo\n")
    assert first.stdout == "one\ntwo\n"
    assert "s: the model remembers 0 messages" in first.stderr
    second = chat(url, "--session", "s", lines="three")
    assert second.stdout == "three\n"
    assert "remembers 4 messages" in second.stderr
    assert texts(url, "s") == ["one", "one", "two", "two", "three", "three"]
    assert "remembers 0 messages" in chat(url, "--session", "other").stderr
    assert "remembers 0 messages" in chat(url, "--session", "s", "--namespace", "acme").stderr


@pytest.mark.parametrize("mode", ["responses", "chat_completions"])
def test_a_model_remembers_over_restarts(server: OpenAIServer, url: str, mode: str) -> None:
    """What the second process asks the service holds the first one's turn; the service keeps nothing itself."""
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "OPENAI_MODEL": MODEL}
    arguments = (url, "--client", "openai", "--mode", mode, "--instructions", "be brief")
    assert chat(*arguments, lines="one\n", **environment).stdout == "one\n"
    assert chat(*arguments, lines="two\n", **environment).stdout == "one | two\n"
    assert server.responses == {}
    assert "be brief" in str(server.bodies[1])
    assert texts(url) == ["one", "one", "two", "one | two"]


def test_a_turn_that_fails_is_told_and_the_chat_goes_on(server: OpenAIServer, url: str) -> None:
    """Its error is one line without the key, nothing of it is stored, and the exit code says so in the end."""
    environment = {"OPENAI_API_KEY": f"{KEY}x", "OPENAI_BASE_URL": server.url}
    done = chat(url, "--client", "openai", "--model", MODEL, lines="one\ntwo\n", code=1, **environment)
    assert done.stderr.count("agentstore: the service refused the API key") == 2
    assert KEY not in done.stderr
    assert texts(url) == []


def test_an_answer_cannot_steer_the_terminal(server: OpenAIServer, url: str) -> None:
    """Its control characters are shown as escapes, also where a piece of the stream ends within a sequence."""
    server.script = [[said("1234\x1b[31mred\r")]]
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
    done = chat(url, "--client", "openai", "--model", MODEL, lines="hi\n", **environment)
    assert done.stdout == "1234\\x1b[31mred\\r\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--client", "openai"), "OPENAI_API_KEY"),
        (("--client", "nobody"), "nobody"),
        (("--session", ""), "session"),
        (("--max-messages", "0"), "max-messages"),
    ],
)
def test_a_chat_that_cannot_begin_says_why(url: str, arguments: tuple[str, ...], why: str) -> None:
    """Exit code 2, and no traceback."""
    done = chat(url, *arguments, lines="hi\n", code=2)
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background was started without


def test_an_interrupt_ends_the_chat_and_stores_no_half_turn(server: OpenAIServer, url: str) -> None:
    """Ctrl-C while the model speaks: the turns before it stay, and the service sees the client go."""
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "OPENAI_MODEL": MODEL}
    command = [*COMMAND, url, "--client", "openai"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        preexec_fn=_heed_interrupts,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        after_a_while = Timer(30, process.kill)  # so that what fails here does not hang
        after_a_while.start()
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        server.waiting_after = 5
        process.stdin.write(b"a long question\n")
        process.stdin.flush()
        assert process.stdout.read(5) == b"one |"
        process.send_signal(signal.SIGINT)
        _, said_last = process.communicate(timeout=20)
        after_a_while.cancel()
    assert process.returncode != 0
    assert b"Traceback" not in said_last
    assert server.left.wait(5)
    assert texts(url) == ["one", "one"]
