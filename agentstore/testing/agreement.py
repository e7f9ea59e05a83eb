"""The sentence that all others serve: every backend does what the in-memory model does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agentstore import Appended, ConflictError, HistoryStore, Message, SessionHistory, StoredMessage
from agentstore.backend import Catalog, Rewriting, Snapshots
from agentstore.testing.scenes import FAR_AHEAD, LONG_AGO, Scene, Stage, sentence
from agentstore_memory import MemoryBackend

NAMES = ("a", "b")
sessions = st.sampled_from(NAMES)
drafts = st.lists(st.tuples(st.sampled_from([None, None, "m1", "m2", "m3"]), st.sampled_from("xy")), max_size=3)
places = st.integers(0, 5)
steps = st.none() | st.integers(0, 9)
limits = st.none() | st.integers(0, 4)
values = st.sampled_from([None, 1, "text", {"deep": [b"x"]}])

Draft = list[tuple[str | None, str]]
Call = Callable[["Side", SessionHistory], Awaitable[Any]]


class Side:
    """One of the two stores. Seqs are compared by the place of their records: gaps are fine."""

    def __init__(self, store: HistoryStore, ttl_store: HistoryStore) -> None:
        self.store, self.ttl_store = store, ttl_store
        self.ids = {name: f"{name} {uuid4().hex}" for name in NAMES}

    def chat(self, name: str) -> SessionHistory:
        return self.store.session(self.ids[name])

    async def seq(self, chat: SessionHistory, place: int) -> int:
        """The seq of the record at that place, counted from 1; 0 before the first."""
        seqs = [0, *[record.seq for record in await chat.records()]]
        return seqs[min(place, len(seqs) - 1)]

    async def outcome(self, name: str, call: Call) -> Any:
        """What the call answers, in terms that both sides share."""
        chat = self.chat(name)
        try:
            answer = await call(self, chat)
        except ConflictError as error:
            return "conflict", error.ids
        if isinstance(answer, Appended):
            seqs = [record.seq for record in await chat.records()]
            return [seqs.index(seq) for seq in answer.seqs], answer.written, answer.snapshot_version
        return shown(answer)

    async def seen(self, name: str, abilities: tuple[bool, bool]) -> Any:
        """All that can be seen of a session."""
        catalog, snapshots = abilities
        chat = self.chat(name)
        records = await chat.records()
        seen: list[Any] = [shown(record) for record in records]
        if catalog and (info := await chat.info()):
            ends = (records[0].seq, records[-1].seq) if records else (0, 0)
            seen += [info.count, (info.first_seq, info.last_seq) == ends, info.metadata, info.expires_at is None]
        if snapshots:
            seen.append(await chat.load_snapshot())
        return seen


def shown(answer: Any) -> Any:
    """A message as role, text and chosen id; anything else as it is."""
    if isinstance(answer, StoredMessage):
        answer = answer.message
    if isinstance(answer, Message):
        return answer.role, answer.text, answer.message_id if str(answer.message_id).startswith("m") else None
    return [shown(item) for item in answer] if isinstance(answer, list) else answer


def written(draft: Draft) -> list[Message]:
    return [Message("user", [text], message_id=id and f"m-{id}") for id, text in draft]


class Agreement(RuleBasedStateMachine):
    """Applies the same steps to the backend and to the model."""

    scene: Scene

    def __init__(self) -> None:
        super().__init__()
        scene = self.scene
        model = MemoryBackend()
        self.catalog = isinstance(scene.backend, Catalog)
        self.snapshots = isinstance(scene.backend, Snapshots)
        self.rewriting = isinstance(scene.backend, Rewriting)
        ttl: dict[str, Any] = {"ttl": 3600} if self.catalog else {}
        mine = f"{scene.namespace} {uuid4().hex}"
        self.sides = (
            Side(scene.another_store(namespace=mine), scene.another_store(namespace=mine, **ttl)),
            Side(HistoryStore(model, namespace="model"), HistoryStore(model, namespace="model", **ttl)),
        )

    def agree(self, name: str, call: Call) -> None:
        ours, models = [self.scene.run(side.outcome(name, call)) for side in self.sides]
        assert ours == models

    @invariant()
    def all_that_is_seen_is_equal(self) -> None:
        for name in NAMES:
            abilities = self.catalog, self.snapshots
            ours, models = [self.scene.run(side.seen(name, abilities)) for side in self.sides]
            assert ours == models

    @rule(name=sessions, draft=drafts, step=steps)
    def append(self, name: str, draft: Draft, step: int | None) -> None:
        snapshot = None if step is None or not self.snapshots else {"step": step}
        self.agree(name, lambda side, chat: chat.append(written(draft), snapshot=snapshot))

    @rule(name=sessions, draft=drafts, place=places)
    def append_with_condition(self, name: str, draft: Draft, place: int) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            return await chat.append(written(draft), expected_last=await side.seq(chat, place))

        self.agree(name, call)

    @rule(name=sessions, draft=drafts)
    def append_with_ttl(self, name: str, draft: Draft) -> None:
        self.agree(name, lambda side, chat: side.ttl_store.session(chat.key.session_id).append(written(draft)))

    @rule(name=sessions, limit=limits, place=st.none() | places)
    def read(self, name: str, limit: int | None, place: int | None) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            before = None if place is None else await side.seq(chat, place)
            return await chat.messages(limit=limit, before=before)

        self.agree(name, call)

    @rule(name=sessions, place=places, size=st.integers(1, 3))
    def iterate(self, name: str, place: int, size: int) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            return [record async for record in chat.iterate(after=await side.seq(chat, place), page_size=size)]

        self.agree(name, call)

    @rule(name=sessions, place=places, newer=st.booleans())
    def truncate(self, name: str, place: int, newer: bool) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            seq = await side.seq(chat, place)
            return await (chat.truncate(after=seq) if newer else chat.truncate(before=seq))

        self.agree(name, call)

    @precondition(lambda self: self.rewriting)
    @rule(name=sessions)
    def pop(self, name: str) -> None:
        self.agree(name, lambda side, chat: chat.pop())

    @precondition(lambda self: self.rewriting)
    @rule(name=sessions, draft=drafts, after=places, expected=st.none() | places)
    def replace(self, name: str, draft: Draft, after: int, expected: int | None) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            last = None if expected is None else await side.seq(chat, expected)
            return await chat.replace(written(draft), after=await side.seq(chat, after), expected_last=last)

        self.agree(name, call)

    @precondition(lambda self: self.rewriting)
    @rule(name=sessions, id=st.sampled_from(["m1", "m2"]), text=st.sampled_from("xyz"))
    def update(self, name: str, id: str, text: str) -> None:
        self.agree(name, lambda side, chat: chat.update(written([(id, text)])[0]))

    @precondition(lambda self: self.rewriting)
    @rule(name=sessions, other=sessions, place=st.none() | places)
    def fork(self, name: str, other: str, place: int | None) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            at = None if place is None else await side.seq(chat, place)
            return await (await chat.fork(side.ids[other], at=at)).messages()

        self.agree(name, call)

    @precondition(lambda self: self.catalog)
    @rule(name=sessions, key=st.sampled_from("pq"), value=values)
    def annotate(self, name: str, key: str, value: Any) -> None:
        self.agree(name, lambda side, chat: chat.annotate({key: value}))

    @precondition(lambda self: self.catalog)
    @rule(name=sessions, at=st.sampled_from([None, FAR_AHEAD, FAR_AHEAD, LONG_AGO]))
    def expire(self, name: str, at: Any) -> None:
        self.agree(name, lambda side, chat: chat.expire(at))

    @precondition(lambda self: self.catalog)
    @rule(name=sessions)
    def delete(self, name: str) -> None:
        self.agree(name, lambda side, chat: chat.delete())

    @precondition(lambda self: self.catalog)
    @rule(name=sessions)
    def purge(self, name: str) -> None:
        async def call(side: Side, chat: SessionHistory) -> None:
            await side.store.purge_expired()

        self.agree(name, call)

    @precondition(lambda self: self.catalog)
    @rule(name=sessions)
    def listing(self, name: str) -> None:
        async def call(side: Side, chat: SessionHistory) -> Any:
            page = await side.store.sessions()
            return [own for own, id in side.ids.items() if id in [info.key.session_id for info in page.items]]

        self.agree(name, call)

    @precondition(lambda self: self.snapshots)
    @rule(name=sessions, step=st.integers(0, 9), expected=st.none() | st.integers(0, 3))
    def save_snapshot(self, name: str, step: int, expected: int | None) -> None:
        self.agree(name, lambda side, chat: chat.save_snapshot({"step": step}, expected_version=expected))


class AgreementSentences(Stage):
    agreement_steps = 30

    @sentence()
    def test_it_agrees_with_the_model(self, scene: Scene) -> None:
        """The same steps give the same answers on every backend."""
        machine = type("AgreementWith", (Agreement,), {"scene": scene})
        run_state_machine_as_test(machine, settings=settings(self.tries(), stateful_step_count=self.agreement_steps))
