"""Reports against other stores whose fault no sentence of the kit names by itself."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from adapter_stores import STORES

from agentstore import ConflictError, HistoryStore, Message, open_store


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


@asynccontextmanager
async def opened(url: str, namespace: str) -> AsyncIterator[HistoryStore]:
    async with open_store(url, namespace=namespace) as store:
        await store.delete_namespace(namespace)
        yield store


def test_a_handle_goes_on_after_another_one_cleared(url: str) -> None:
    """A handle holds no position: what another one cleared, it neither reads nor writes behind (B37)."""

    async def scene() -> None:
        async with opened(url, "b37") as store:
            first, second = store.session("s"), store.session("s")
            await first.append([Message("user", ["old"])])
            assert len(await second.messages()) == 1
            await first.clear()
            await second.append([Message("user", ["new"])])
            assert [message.text for message in await first.messages()] == ["new"]
            assert [message.text for message in await second.messages()] == ["new"]

    asyncio.run(scene())


def test_one_owner_never_meets_what_another_one_owns(url: str) -> None:
    """The same session id under two owners is two sessions: for load, save, list, delete and expiry (B93)."""

    async def scene() -> None:
        async with opened(url, "b93-a") as alice, opened(url, "b93-b") as bob:
            await alice.session("s").append([Message("user", ["private"])])
            assert await bob.session("s").messages() == []
            assert (await bob.sessions()).items == []
            await bob.session("s").append([Message("user", ["mine"])])
            await bob.session("s").delete()
            assert [message.text for message in await alice.session("s").messages()] == ["private"]

    asyncio.run(scene())


ODD_KEYS = ["a'b", 'a"b', "a)b", "$.a", "a.b", "a[0]", "a\x00b", "a;--", "%", "_", "k" * 1024, "\ud800", ""]


def test_a_metadata_key_is_data_whatever_it_looks_like(url: str) -> None:
    """Keys that look like a query, a path or an end of text are kept, changed and removed as any other (B95)."""

    async def scene() -> None:
        async with opened(url, "b95") as store:
            chat = store.session("s")
            await chat.annotate(dict.fromkeys(ODD_KEYS, 1))
            await chat.annotate({ODD_KEYS[0]: 2, ODD_KEYS[-1]: None})
            info = await chat.info()
            assert info is not None
            assert info.metadata == {**dict.fromkeys(ODD_KEYS[:-1], 1), ODD_KEYS[0]: 2}

    asyncio.run(scene())


def test_a_torn_file_shows_whole_turns_and_takes_the_next(tmp_path: Path) -> None:
    """Wherever a crash cuts SQLite's log: whole turns from the first on are there, and the next goes behind (B56)."""
    written = tmp_path / "written"
    written.mkdir()

    async def write() -> None:
        store = open_store(f"sqlite:///{written}/chat.db")
        for turn in range(6):
            await store.session("s").append([Message("user", [f"{turn}a"]), Message("assistant", [f"{turn}b"])])
        # Before the last connection closes, and moves the log into the file.
        shutil.copytree(written, tmp_path / "crashed")
        await store.aclose()

    async def look(folder: Path) -> list[str]:
        async with open_store(f"sqlite:///{folder}/chat.db") as store:
            await store.session("s").append([Message("user", ["next"])])
            return [message.text for message in await store.session("s").messages()]

    asyncio.run(write())
    whole = [f"{turn}{part}" for turn in range(6) for part in "ab"]
    size = (tmp_path / "crashed" / "chat.db-wal").stat().st_size
    found: set[int] = set()
    for cut in range(0, size + 1, 3001):
        folder = tmp_path / f"cut-{cut}"
        shutil.copytree(tmp_path / "crashed", folder)
        (folder / "chat.db-shm").unlink(missing_ok=True)
        with (folder / "chat.db-wal").open("r+b") as log:
            log.truncate(cut)
        *texts, newest = asyncio.run(look(folder))
        assert (texts, newest, len(texts) % 2) == (whole[: len(texts)], "next", 0)
        found.add(len(texts))
    assert found >= {0, 2, 10}


def test_a_second_run_on_one_session_is_told(url: str) -> None:
    """Of two runs that began from the same history, the second to save conflicts, whole, if it asks (B33, B39)."""

    async def scene() -> None:
        async with opened(url, "b39") as store:
            first, second = store.session("s"), store.session("s")
            seen = (await first.append([Message("user", ["begin"])])).seqs[-1]
            await first.append([Message("user", ["1a"]), Message("assistant", ["1b"])], expected_last=seen)
            with pytest.raises(ConflictError):
                await second.append([Message("user", ["2a"]), Message("assistant", ["2b"])], expected_last=seen)
            assert [message.text for message in await first.messages()] == ["begin", "1a", "1b"]

    asyncio.run(scene())


def test_a_store_may_be_closed_while_its_loop_ends(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """In a generator that nobody finished: loop and store close the clients, at once, and both in peace (B117)."""

    async def pages() -> AsyncIterator[str]:
        async with open_store(url, namespace="b117") as store:  # `opened` is a generator itself
            await store.session("s").append([Message("user", ["hi"])])
            yield "a page"

    async def main(pages: AsyncIterator[str]) -> None:
        assert await anext(pages) == "a page"

    for _ in range(8):  # which of the two comes first is left to chance
        unfinished = pages()
        asyncio.run(main(unfinished))
    assert caplog.text == ""
