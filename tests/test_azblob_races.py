"""Many writers on one session of Azure Blob, and logs that roll over or are rewritten under them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any
from uuid import uuid4

import pytest
from azblob_scene import account, blobs, new_container, opened, run, several, turn
from azure.storage.blob import ContainerClient
from azurite_server import connection_string

from agentstore import ConflictError, SessionHistory, UnavailableError
from agentstore.testing.scenes import LONG_AGO, attempted, heard, named, said, seqs, together
from agentstore_azblob_ids import LAG

WRITERS = 8  # per process
TURNS = 5
FEW_BLOCKS = 6  # a log this short rolls over in nearly every test


@pytest.fixture(scope="module")
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


OTHER_PROCESS = """
import asyncio, sys
from agentstore import HistoryStore, Message
from agentstore_azblob import AzureBlobBackend

url, session, first, writers, turns, blocks = sys.argv[1:]

async def main():
    async with HistoryStore(AzureBlobBackend(url, max_blocks=int(blocks))) as store:
        chat = store.session(session)
        async def write(writer):
            for number in range(int(turns)):
                await chat.append([Message("user", [f"{writer}.{number}.{part}"]) for part in range(3)])
        await asyncio.gather(*map(write, range(int(first), int(first) + int(writers))))

asyncio.run(main())
"""


@pytest.mark.parametrize("blocks", [50_000, FEW_BLOCKS], ids=["one log", "rolling over"])
def test_sixteen_writers_of_two_processes_lose_and_double_nothing(container: ContainerClient, blocks: int) -> None:
    """Nothing is lost, doubled or interleaved, also while the log rolls over again and again (B30)."""
    session = uuid4().hex
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, f"azblob://{account()}/{container.container_name}", session]
            + [str(value) for value in (WRITERS * number, WRITERS, TURNS, blocks)],
            env={**os.environ, "AZURE_STORAGE_CONNECTION_STRING": connection_string()},
        )
        for number in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]

    async def main() -> None:
        async with opened(container.container_name, max_blocks=blocks) as store:
            found = await heard(store.session(session))
            turns = [text.rpartition(".")[0] for text in found[::3]]
            assert found == [f"{turn}.{part}" for turn in turns for part in range(3)]
            assert sorted(turns) == sorted(f"{w}.{t}" for w in range(2 * WRITERS) for t in range(TURNS))
            assert await seqs(store.session(session)) == sorted(set(await seqs(store.session(session))))

    run(main())


def test_reads_cross_the_roll_over_unseen(container: ContainerClient) -> None:
    """Newest-n, pages, bounds and seqs are the same whether the log rolled over ten times or never."""

    async def main() -> None:
        async with (
            opened(container.container_name, max_blocks=FEW_BLOCKS) as rolling,
            opened(container.container_name) as whole,
        ):
            short, long = rolling.session(uuid4().hex), whole.session(uuid4().hex)
            for number in range(60):
                for chat in (short, long):
                    await chat.append(turn(number, 2))
            async with opened(container.container_name) as cold:
                for seen in (short, cold.session(short.key.session_id)):
                    await _same(seen, long)
        parts = [name for name in blobs(container) if not name.endswith(".ids")]
        assert len(parts) >= 10

    run(main())


async def _same(one: SessionHistory, other: SessionHistory) -> None:
    for limit in (1, 3, 20, 119, None):
        for before in (None, 50, 2):
            options = {"limit": limit, "before": before}
            assert await heard(one, **options) == await heard(other, **options), options
    for page_size in (7, 500):
        assert await _walked(one, page_size) == await _walked(other, page_size)
    assert await _counted(one) == await _counted(other)


async def _walked(chat: SessionHistory, page_size: int) -> list[int]:
    return [stored.seq async for stored in chat.iterate(after=5, page_size=page_size)]


async def _counted(chat: SessionHistory) -> tuple[int, int, int]:
    info = await chat.info()
    assert info
    return info.count, info.first_seq, info.last_seq


Work = Callable[[SessionHistory], Awaitable[Any]]


@pytest.mark.parametrize(
    "work",
    [
        lambda chat: chat.pop(),
        lambda chat: chat.truncate(after=11),
        lambda chat: chat.truncate(before=30),
        lambda chat: chat.replace(said("x", "y"), after=9),
        lambda chat: chat.replace(said("x", "y")),
        lambda chat: chat.update(named("mine", "changed")),
        lambda chat: chat.append([named("mine")]),
        lambda chat: chat.clear(),
        lambda chat: chat.append(said("x"), snapshot={"a": 1}),
        lambda chat: chat.annotate({"a": 1}),
        lambda chat: chat.expire(None),
    ],
    ids=["pop", "after", "before", "tail", "all", "update", "append", "clear", "snapshot", "annotate", "expire"],
)
def test_writes_cross_the_roll_over_unseen(container: ContainerClient, work: Work) -> None:
    """Pops, cuts, swaps, old ids, forks: done at every distance from the boundary, they do what they do elsewhere."""

    async def main() -> None:
        async with (
            opened(container.container_name, max_blocks=FEW_BLOCKS) as rolling,
            opened(container.container_name) as whole,
        ):
            for distance in range(3):
                chats = rolling.session(uuid4().hex), whole.session(uuid4().hex)
                for chat in chats:
                    await chat.append([named("mine")])
                    for number in range(FEW_BLOCKS * 2 + distance):
                        await chat.append(turn(number, 2))
                    await work(chat)
                    for number in range(distance):
                        await work(chat)
                        await chat.append(turn(100 + number, 2))
                    await (await chat.fork(f"{chat.key.session_id} fork")).append(said("forked"))
                for end in ("", " fork"):
                    left, right = [
                        store.session(f"{chat.key.session_id}{end}")
                        for store, chat in zip((rolling, whole), chats, strict=True)
                    ]
                    assert await heard(left) == await heard(right)
                    assert await seqs(left) == await seqs(right)

    run(main())


def test_a_whole_history_can_be_popped_back_over_the_boundaries(container: ContainerClient) -> None:
    """Each message once, newest first, through every part (B31)."""

    async def main() -> None:
        async with opened(container.container_name, max_blocks=FEW_BLOCKS) as store:
            chat = store.session(uuid4().hex)
            for number in range(20):
                await chat.append(turn(number, 2))
            popped = [stored.message.text for _ in range(40) if (stored := await chat.pop())]
            assert popped == [f"{number}.{part}" for number in reversed(range(20)) for part in (1, 0)]
            assert await chat.pop() is None
            assert (await chat.append(said("a"))).seqs == [41]

    run(main())


def test_a_roll_over_is_raced_for_without_loss(container: ContainerClient) -> None:
    """Sixteen writers, each with its own cache, meet at the boundary: one wins, the others follow (B30)."""

    async def main() -> None:
        async with several(16, container.container_name, max_blocks=FEW_BLOCKS) as chats:
            await together(16, lambda n: chats[n].messages(limit=1))
            for start in (0, 100, 200):
                await together(16, lambda n, start=start: chats[n].append(turn(start + n, 2)))  # type: ignore[misc]
            found = await heard(chats[0])
            assert len(found) == 16 * 3 * 2
            assert [text.replace(".0", ".1") for text in found[::2]] == found[1::2]
            assert len(set(found)) == len(found)

    run(main())


@pytest.mark.parametrize("rewrite", ["replace", "truncate", "clear", "update", "delete", "roll over"])
def test_who_knows_the_old_generation_never_adds_to_it_unseen(container: ContainerClient, rewrite: str) -> None:
    """A writer that still holds the old log goes to the new one, with what it has to add (B36)."""

    async def main() -> None:
        async with (
            opened(container.container_name, max_blocks=FEW_BLOCKS) as store,
            opened(container.container_name, max_blocks=FEW_BLOCKS) as behind,
        ):
            session = uuid4().hex
            chat, late = store.session(session), behind.session(session)
            await chat.append([named("mine", "old")])
            await late.append(said("theirs"))
            for _ in range(FEW_BLOCKS + 2):
                await _rewrite(chat, rewrite)
            before = await heard(chat)
            await late.append(said("late"))
            assert await heard(chat) == [*before, "late"]
            assert await heard(late) == [*before, "late"]

    run(main())


async def _rewrite(chat: SessionHistory, how: str) -> None:
    if how == "replace":
        await chat.replace(said("new"), after=0)
    elif how == "truncate":
        await chat.truncate(after=1)
    elif how == "clear":
        await chat.clear()
    elif how == "update":
        await chat.update(named("mine", uuid4().hex))
    elif how == "delete":
        await chat.delete()
    else:
        await chat.append(said("more"))


def test_concurrent_poppers_of_several_processes_each_get_their_own(container: ContainerClient) -> None:
    """Four caches pop at once, over the boundaries: each message is handed out once (B31)."""

    async def main() -> None:
        async with several(4, container.container_name, max_blocks=FEW_BLOCKS) as chats:
            for number in range(8):
                await chats[0].append(turn(number, 2))
            popped = await together(16, lambda n: chats[n % 4].pop())
            texts = [stored.message.text for stored in popped if stored]
            assert sorted(texts) == sorted(f"{number}.{part}" for number in range(8) for part in range(2))
            assert await heard(chats[0]) == []

    run(main())


@pytest.mark.parametrize("how", ["clear", "delete", "expire"])
def test_an_end_amid_appends_is_one_boundary(container: ContainerClient, how: str) -> None:
    """Each turn is wholly before it (gone) or wholly after it (there), also where logs roll over meanwhile (B36)."""

    async def main() -> None:
        async with several(5, container.container_name, max_blocks=FEW_BLOCKS) as chats:

            async def work(number: int) -> None:
                for part in range(6):
                    if number:
                        await chats[number].append(turn(10 * number + part, 2))
                    elif part % 2:
                        await _end(chats[0], how)

            await together(5, work)
            found = await heard(chats[0])
            assert [text.replace(".0", ".1") for text in found[::2]] == found[1::2]
            assert len(set(found)) == len(found)
            for chat in chats:
                assert await heard(chat) == found
            await _end(chats[0], "delete")
            assert [name for name in blobs(container) if chats[0].key.session_id in name] == []

    run(main())


async def _end(chat: SessionHistory, how: str) -> None:
    if how == "expire":
        await chat.expire(LONG_AGO)
    else:
        await (chat.clear() if how == "clear" else chat.delete())


def test_a_message_that_another_process_put_back_is_known(container: ContainerClient) -> None:
    """Written here, popped and appended again there: here it is still the same message, at its new place (B72)."""

    async def main() -> None:
        async with several(2, container.container_name) as (here, there):
            await there.append(said("first"))
            await here.append(said("mine"))
            taken = await there.pop()
            assert taken
            seqs = (await there.append([taken.message])).seqs
            for number in range(LAG + 1):  # so that the list of ids has it
                await there.append(turn(number, 1))
            again = await here.append([taken.message])
            assert (again.written, again.seqs) == (0, seqs)

    run(main())


def test_one_of_many_conditional_writers_wins(container: ContainerClient) -> None:
    """`expected_last`, raced for by four caches: one turn, and conflicts for the rest (B33)."""

    async def main() -> None:
        async with several(4, container.container_name) as chats:
            last = (await chats[0].append(said("first"))).seqs[-1]
            answers = await together(8, lambda n: attempted(chats[n % 4].append(turn(n, 2), expected_last=last)))
            assert answers.count(ConflictError) == 7
            assert len(await heard(chats[0])) == 3

    run(main())


def test_writers_wait_in_line_for_a_bounded_time(container: ContainerClient) -> None:
    """Fifty at once on one session of one store: all get through, in turns (B35)."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            chat = store.session(uuid4().hex)
            try:
                await asyncio.gather(*[chat.append(turn(number, 2)) for number in range(50)])
            except UnavailableError as error:
                pytest.fail(f"gave up in a short line: {error}")
            assert len(await heard(chat)) == 100

    run(main())
