"""Any id becomes a legal blob name on Azure, and no two sessions ever meet."""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest
from azblob_scene import blobs, new_container, opened, run
from azure.storage.blob import ContainerClient

from agentstore.testing.scenes import heard, said

IDS = [
    "user-42",
    "User-42",
    "USER-42",
    "a/b",
    "a",
    "b",
    "a/",
    "/a",
    "a//b",
    "..",
    ".",
    "../a",
    "a/../b",
    "./a",
    "a/./b",
    "a.",
    "a..",
    "a ",
    " a",
    "a\\b",
    "a\0b",
    "\0",
    "%2F",
    "a%2Fb",
    "a%b",
    "a_b",
    "a-b",
    "a?b",
    "a#b",
    "a&b=c",
    "a:b",
    "ä",
    "a\u0308",
    "ß",
    "ss",
    "名前",
    "\U0001f600",
    "NUL",
    "nul.txt",
    "com\u00b9",
    "head",
    "layout",
    "v1",
    "head.ids",
    "\n",
    "\x7f",
    "\u200b",
    "\uffff",
    "x" * 255,
    "x" * 256,
    "x" * 1_024,
    "x" * 1_023 + "y",
    "X" * 1_024,
    "é" * 512,
    "/" * 1_024,
]


@pytest.fixture(scope="module")
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


@pytest.mark.parametrize("place", ["session", "namespace", "source"])
def test_no_two_ids_meet(container: ContainerClient, place: str) -> None:
    """As session, namespace and source: each reads what it wrote, is listed, and goes alone (B89, B90)."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            chats = []
            for given in IDS:
                names = {"session": f"of {place}", "namespace": f"by {place}", "source": "history", place: given}
                chats.append(store.session(names["session"], namespace=names["namespace"], source_id=names["source"]))
                await chats[-1].append(said(given.replace("\0", "NUL"), str(len(chats))))
            for number, chat in enumerate(chats, 1):
                assert (await heard(chat))[1:] == [str(number)]
            namespaces = {chat.key.namespace for chat in chats}
            listed = [info.key for name in namespaces for info in (await store.sessions(namespace=name)).items]
            for name in namespaces:
                cursor = (await store.sessions(namespace=name)).cursor
                if cursor:
                    page = await store.sessions(namespace=name, cursor=cursor, limit=1_000)
                    listed += [info.key for info in page.items]
            assert set(listed) == {chat.key for chat in chats}
            for chat in chats[::2]:
                await chat.delete()
            for number, chat in enumerate(chats, 1):
                assert await heard(chat, limit=1) == ([] if number % 2 else [str(number)])

    run(main())


def test_every_name_is_legal_and_safe_where_case_is_folded(container: ContainerClient) -> None:
    """1,024 characters at most, of letters that no service, shell or file system takes for anything else."""

    async def main() -> None:
        async with opened(container.container_name, prefix="team/x") as store:
            for namespace, session in zip(IDS, reversed(IDS), strict=True):
                await store.session(session, namespace=namespace).append(said("a"))

    run(main())
    names = blobs(container)
    assert len(names) > len(IDS)
    for name in names:
        assert re.fullmatch(r"[a-z0-9._/-]+", name), name
        assert len(name) <= 1_024
        assert len(name.split("/")) <= 254
        assert not any(part in ("", ".", "..") or part.endswith(".") for part in name.split("/"))
    assert len({name.lower() for name in names}) == len(names)


def test_a_name_can_be_read_where_the_id_can(container: ContainerClient) -> None:
    """A person who looks into the container finds the session by its id."""

    async def main() -> None:
        async with opened(container.container_name) as store:
            await store.session("support-ticket-4711", namespace="acme").append(said("a"))

    run(main())
    assert any("acme" in name and "support-ticket-4711" in name for name in blobs(container))
