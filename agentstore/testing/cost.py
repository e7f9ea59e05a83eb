"""Sentences about cost: it does not grow with the history. Counted outside our own code, by `count_cost()`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from agentstore import Message, SessionHistory
from agentstore.backend import Append, Catalog, Record, Rewriting, Snapshots
from agentstore.testing.faults import records_of
from agentstore.testing.scenes import Scene, Stage, named, said, sentence

SHORT, LONG = 10, 10_000
"""Messages in the two histories that are compared."""
BATCH = 1000
FACTOR, SLACK = 1.25, 8
"""What counts as no growth: an index that is a level deeper, a page more."""

Operation = Callable[[SessionHistory], Awaitable[Any]]


class CostSentences(Stage):
    long_history = LONG

    @sentence(counted=True)
    async def test_an_append_costs_the_same(self, scene: Scene) -> None:
        """The cost of append does not grow with the history (B74)."""
        await self._same(scene, lambda chat: chat.append(said("a", "b", "c", "d")))

    @sentence(counted=True)
    async def test_an_append_with_ids_costs_the_same(self, scene: Scene) -> None:
        """... with ids that must be looked up, and a condition (B74)."""
        await self._same(scene, lambda chat: chat.append([named("m1"), named("m2")], idempotency_key="k"))

    @sentence(counted=True)
    async def test_a_replay_costs_the_same(self, scene: Scene) -> None:
        """... of a turn that is already there."""
        await self._same(scene, lambda chat: chat.append([named("history-3", "3")]))

    @sentence(counted=True)
    async def test_an_append_with_a_condition_costs_the_same(self, scene: Scene) -> None:
        """... with `expected_last`."""
        lasts: dict[str, int] = {}

        async def prepare(chat: SessionHistory) -> None:
            lasts[chat.key.session_id] = (await chat.records(limit=1))[0].seq

        await self._same(
            scene, lambda chat: chat.append(said("a"), expected_last=lasts[chat.key.session_id]), prepare=prepare
        )

    @sentence(counted=True)
    async def test_the_newest_cost_the_same(self, scene: Scene) -> None:
        """The cost of newest-n does not grow with the history."""
        await self._same(scene, lambda chat: chat.messages(limit=5))

    @sentence(counted=True)
    async def test_an_older_window_costs_the_same(self, scene: Scene) -> None:
        """... of those before a seq."""
        await self._same(scene, lambda chat: chat.records(limit=3, before=8))

    @sentence(counted=True)
    async def test_the_first_page_costs_the_same(self, scene: Scene) -> None:
        """... and of a page from the start."""

        async def first(chat: SessionHistory) -> None:
            pages = chat.iterate(page_size=5)
            for _ in range(5):
                await anext(pages)

        await self._same(scene, first)

    @sentence(Rewriting, counted=True)
    async def test_a_pop_costs_the_same(self, scene: Scene) -> None:
        """The cost of pop does not grow with the history."""
        await self._same(scene, lambda chat: chat.pop())

    @sentence(Rewriting, counted=True)
    async def test_an_update_costs_the_same(self, scene: Scene) -> None:
        """... nor that of an update."""
        await self._same(scene, lambda chat: chat.update(named("history-5", "new")))

    @sentence(Catalog, counted=True)
    async def test_info_costs_the_same(self, scene: Scene) -> None:
        """The cost of info does not grow with the history."""
        await self._same(scene, lambda chat: chat.info())

    @sentence(Catalog, counted=True)
    async def test_an_annotation_costs_the_same(self, scene: Scene) -> None:
        """... nor that of an annotation."""
        await self._same(scene, lambda chat: chat.annotate({"title": "T"}))

    @sentence(Snapshots, counted=True)
    async def test_a_snapshot_costs_the_same(self, scene: Scene) -> None:
        """... nor that of a snapshot, saved and loaded."""

        async def save_and_load(chat: SessionHistory) -> None:
            await chat.save_snapshot({"step": 1})
            await chat.load_snapshot()

        await self._same(scene, save_and_load)

    @sentence(Catalog, counted=True)
    async def test_a_page_of_the_listing_costs_the_same(self, scene: Scene) -> None:
        """... nor that of a listing with the session in it."""
        counts: list[Mapping[str, int]] = []
        for length, namespace in ((SHORT, "short"), (self.long_history, "long")):
            chat = scene.session(namespace=f"{scene.namespace}-{namespace}")
            await _fill(scene, chat, length)
            counts.append(await _cost(scene, scene.store.sessions(namespace=chat.key.namespace)))
        _no_growth(*counts)

    async def _same(self, scene: Scene, operation: Operation, prepare: Operation | None = None) -> None:
        counts: list[Mapping[str, int]] = []
        for length in (SHORT, self.long_history):
            chat = scene.session()
            await _fill(scene, chat, length)
            await scene.session().append(said("warm"))
            if prepare:
                await prepare(chat)
            counts.append(await _cost(scene, operation(chat)))
        _no_growth(*counts)


async def _cost(scene: Scene, operation: Awaitable[Any]) -> Mapping[str, int]:
    before = scene.cost()
    await operation
    after = scene.cost()
    assert any(after[kind] > before.get(kind, 0) for kind in after), "count_cost() counted nothing"
    return {kind: count - before.get(kind, 0) for kind, count in after.items()}


def _no_growth(short: Mapping[str, int], long: Mapping[str, int]) -> None:
    grown = {kind: (short[kind], long[kind]) for kind in long if long[kind] > short[kind] * FACTOR + SLACK}
    assert grown == {}, "the cost grows with the history: {kind: (short, long)}"


async def _fill(scene: Scene, chat: SessionHistory, length: int) -> None:
    records = _history(length)
    for start in range(0, length, BATCH):
        batch = records[start : start + BATCH]
        await scene.backend.append(chat.key, Append(batch, start.to_bytes(16, "big")))


@cache
def _history(length: int) -> tuple[Record, ...]:
    return records_of(Message("user", [str(n)], message_id=f"history-{n}") for n in range(length))
