"""Sentences about many at once: nothing lost, turns whole, one boundary."""

from __future__ import annotations

import asyncio
from typing import Any

from agentstore import ConflictError, SessionHistory
from agentstore.backend import Catalog
from agentstore.testing.catalog import info_of
from agentstore.testing.scenes import Scene, Stage, attempted, heard, named, said, sentence, together

WRITERS = 16
TURN = ("user", "call", "result", "answer")


def turn(name: str) -> list[Any]:
    return said(*[f"{name} {part}" for part in TURN])


def torn(texts: list[str]) -> list[str]:
    """Texts that do not stand in a whole turn; at best none."""
    whole = [f"{text.split()[0]} {part}" for text in texts[:: len(TURN)] for part in TURN]
    return [text for text, wanted in zip(texts, whole, strict=False) if text != wanted] + texts[len(whole) :]


class ConcurrencySentences(Stage):
    @sentence()
    async def test_turns_of_many_writers_are_whole_and_none_is_lost(self, scene: Scene) -> None:
        """All or nothing, in order: turns of concurrent writers are never mixed, none is lost (B30, B33)."""
        chats = [scene.another() for _ in range(4)]
        await together(WRITERS, lambda writer: _turns(chats[writer % 4], writer))
        texts = await heard(scene.chat)
        assert torn(texts) == []
        assert sorted(texts) == sorted(f"{w}-{n} {part}" for w in range(WRITERS) for n in range(3) for part in TURN)

    @sentence()
    async def test_one_writers_turns_stay_in_order(self, scene: Scene) -> None:
        """What was acknowledged first stands first, however many others write."""
        await together(WRITERS, lambda writer: _turns(scene.chat, writer))
        starts = [text.split()[0].split("-") for text in (await heard(scene.chat))[:: len(TURN)]]
        for writer in range(WRITERS):
            assert [number for name, number in starts if name == str(writer)] == ["0", "1", "2"]

    @sentence()
    async def test_readers_see_whole_turns_only(self, scene: Scene) -> None:
        """Readers see prefixes of whole turns."""
        stop = asyncio.Event()
        reader = asyncio.ensure_future(_watch(scene.another(), stop))
        await together(4, lambda writer: _turns(scene.chat, writer))
        stop.set()
        seen = await reader
        final = await heard(scene.chat)
        assert [texts for texts in seen if torn(texts) or texts != final[: len(texts)]] == []

    @sentence(set_up=False)
    async def test_the_first_write_may_be_raced(self, scene: Scene) -> None:
        """25 tasks write the first message of a fresh session: all are stored (B28)."""
        chats = [scene.another() for _ in range(5)]
        answers = await together(25, lambda number: chats[number % 5].append(said(str(number))))
        assert len({seq for answer in answers for seq in answer.seqs}) == 25
        assert sorted(await heard(scene.chat)) == sorted(map(str, range(25)))

    @sentence()
    async def test_one_message_sent_by_many_is_one_record(self, scene: Scene) -> None:
        """Ids first, also where all come at once (B77)."""
        answers = await together(WRITERS, lambda _: scene.another().append([named("m1")]))
        assert sum(answer.written for answer in answers) == 1
        assert len({answer.seqs[0] for answer in answers}) == 1
        assert await heard(scene.chat) == ["hello"]

    @sentence()
    async def test_of_many_appends_on_one_last_seq_one_wins(self, scene: Scene) -> None:
        """`expected_last` is compared in the same step (B33)."""
        last = (await scene.chat.append(said("a"))).seqs[-1]
        answers = await together(8, lambda n: attempted(scene.another().append(said(str(n)), expected_last=last)))
        assert answers.count(ConflictError) == 7
        assert len(await scene.chat.messages()) == 2

    @sentence()
    async def test_a_clear_among_appends_takes_whole_turns(self, scene: Scene) -> None:
        """Every append takes effect wholly before a clear or wholly after it (B36)."""

        async def work(number: int) -> int:
            return await scene.another().clear() if number % 6 == 5 else await _turns(scene.chat, number)

        cleared = sum(await together(18, work))
        texts = await heard(scene.chat)
        assert torn(texts) == []
        assert cleared + len(texts) == 15 * 3 * len(TURN)

    @sentence()
    async def test_sessions_do_not_disturb_each_other(self, scene: Scene) -> None:
        """Writers of other sessions change nothing here."""
        chats = [scene.session() for _ in range(WRITERS)]
        await together(WRITERS, lambda number: _turns(chats[number], number))
        for number, chat in enumerate(chats):
            assert await heard(chat) == [f"{number}-{turn} {part}" for turn in range(3) for part in TURN]

    @sentence(Catalog)
    async def test_counters_are_right_after_a_crowd(self, scene: Scene) -> None:
        """`info` counts what is there, whoever wrote it."""
        await together(WRITERS, lambda number: scene.another().append(turn(str(number))))
        info = await info_of(scene.chat)
        stored = await scene.backend.read(scene.chat.key)
        assert (info.count, info.bytes) == (len(stored), sum(len(record.payload) for record in stored))
        assert (info.first_seq, info.last_seq) == (stored[0].seq, stored[-1].seq)


async def _turns(chat: SessionHistory, writer: int) -> int:
    for number in range(3):
        await chat.append(turn(f"{writer}-{number}"))
    return 0


async def _watch(chat: SessionHistory, stop: asyncio.Event) -> list[list[str]]:
    seen: list[list[str]] = []
    while not stop.is_set():
        seen.append(await heard(chat))
        await asyncio.sleep(0)
    return seen
