"""The clients of the Azure Blob backend end with the event loops that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest
from azblob_scene import backend, new_container

from agentstore import ClosedError, HistoryStore
from agentstore.testing.scenes import said


@pytest.fixture
def container() -> Generator[str]:
    with new_container() as made:
        yield made.container_name


def left_unfinished(pages: AsyncGenerator[str], caplog: pytest.LogCaptureFixture) -> str:
    """What is logged where a loop ends while that generator stands still."""

    async def main() -> None:
        assert await anext(pages) == "a page"

    asyncio.run(main())
    return caplog.text


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")  # Python's own, for any work that late
def test_a_call_after_the_end_of_the_loop_began_is_refused(container: str, caplog: pytest.LogCaptureFixture) -> None:
    """With an error of ours: the client is closed by then."""

    async def pages() -> AsyncGenerator[str]:
        async with HistoryStore(backend(container)) as store:
            await store.session("s").append(said("a"))
            try:
                yield "a page"
            finally:
                await asyncio.sleep(0.1)
                with pytest.raises(ClosedError):
                    await store.session("s").append(said("b"))

    assert left_unfinished(pages(), caplog) == ""
