"""Made `sqlite-v1.db`, a file of schema version 1, once and for all. Run it only to see how; never replace the file."""

from __future__ import annotations

import asyncio
import sys

from agentstore import Content, Message, open_store


async def main(path: str) -> None:
    async with open_store(f"sqlite:///{path}", namespace="acme") as store:
        chat = store.session("user-42")
        await chat.append([Message("user", ["hi"], message_id="m1")], snapshot={"step": 1})
        await chat.append([Message("assistant", [Content("data", data=b"\x00")], message_id="m2")])
        await chat.annotate({"title": "kept"})
        await store.session("other", source_id="audit").append([Message("user", ["audited"], message_id="m1")])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
