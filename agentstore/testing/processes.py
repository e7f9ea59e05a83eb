"""Sentences about several processes on one store."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from agentstore.backend import Rewriting
from agentstore.testing import worker
from agentstore.testing.scenes import Scene, Stage, heard, said, sentence

WORKERS = 4


class ProcessSentences(Stage):
    @sentence()
    def test_processes_append_whole_turns(self, scene: Scene) -> None:
        """Appends of several processes: all kept, none mixed (B30, B42)."""
        scene.url()
        _work(scene, "append")
        texts = scene.run(heard(scene.session(worker.SESSION)))
        expected = sorted(f"{name}-{number} {part}" for name in range(WORKERS) for number in range(10) for part in "ab")
        assert sorted(texts) == expected
        assert [first.split()[0] for first in texts[::2]] == [second.split()[0] for second in texts[1::2]]

    @sentence(Rewriting)
    def test_processes_pop_each_message_once(self, scene: Scene) -> None:
        """Handed out once, across processes too (B31)."""
        scene.url()
        chat = scene.session(worker.SESSION)
        given = scene.run(chat.append(said(*map(str, range(30))))).seqs
        popped = _work(scene, "pop")
        assert sorted(seq for seqs in popped for seq in seqs) == given

    @sentence(set_up=False)
    def test_processes_set_up_at_once(self, scene: Scene) -> None:
        """setup: safe when many processes do it at once (B29)."""
        scene.url()
        names = _work(scene, "set_up")
        assert [scene.run(heard(scene.session(name))) for name in names] == [[name] for name in names]

    @sentence()
    def test_processes_send_one_turn_once(self, scene: Scene) -> None:
        """With a key, a retry from another process is exact (B46)."""
        scene.url()
        assert sorted(_work(scene, "replay")) == [0] * (WORKERS - 1) + [2]

    @sentence()
    def test_a_forked_child_works_and_the_parent_goes_on(self, scene: Scene) -> None:
        """... and in a forked child, which drops the parent's clients without closing them."""
        scene.url()
        if not hasattr(os, "fork"):
            pytest.skip("this platform has no fork")
        asyncio.run(_say(scene, "parent"))
        assert _in_child(lambda: asyncio.run(_say(scene, "child"))) == 0
        asyncio.run(_say(scene, "parent again"))
        assert scene.run(heard(scene.chat)) == ["parent", "child", "parent again"]


async def _say(scene: Scene, text: str) -> None:
    await scene.chat.append(said(text))
    assert await heard(scene.chat, limit=1) == [text]


def _in_child(work: Any) -> int:
    """The exit status of a forked child that does the work; -9 if it hung."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return _status(child)


def _status(child: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work(scene: Scene, job: str) -> list[Any]:
    """What the workers answer, who all start at once."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    workers = [
        subprocess.Popen(
            [sys.executable, worker.__file__, scene.url(), scene.namespace, job, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(WORKERS)
    ]
    for process in workers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = [process.communicate(timeout=60)[0] for process in _started(workers)]
    assert [process.returncode for process in workers] == [0] * WORKERS
    return [json.loads(answer) for answer in answers]


def _started(workers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return workers
