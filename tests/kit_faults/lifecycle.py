"""Faults that the sentences about set-up, closing, loops, abilities and sizes catch."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

from agentstore import (
    Appended,
    ClosedError,
    ConfigurationError,
    HistoryStore,
    SessionHistory,
    SessionKey,
    StorageError,
    StoredMessage,
    UnavailableError,
)
from agentstore.backend import (
    Append,
    Limits,
    Log,
    Refused,
    Rewriting,
    StoredRecord,
    Written,
)
from agentstore.testing.faults import METHODS, limited, wrapped
from kit_faults.stage import (
    FAULTS,
    SET_UP,
    Fault,
    Model,
    fault,
    history_of,
    in_memory,
)


@fault("before_set_up_reads_find_nothing_and_create_nothing")
class OpeningSetsUp(HistoryStore):
    async def open(self) -> None:
        await super().open()
        await self.setup()


@fault("before_set_up_every_look_up_creates_nothing")
class PurgingSetsUp(HistoryStore):
    async def purge_expired(self) -> int:
        await self.setup()
        return await super().purge_expired()


@fault("the_first_write_sets_up", "the_first_write_may_be_raced", also=("successive_event_loops_work",))
class NothingSetsUp(HistoryStore):
    def __init__(self, backend: Log, *, auto_setup: bool = True, **options: Any) -> None:
        super().__init__(backend, auto_setup=False, **options)


@fault("without_auto_setup_a_write_is_refused")
class EverythingSetsUp(HistoryStore):
    def __init__(self, backend: Log, *, auto_setup: bool = True, **options: Any) -> None:
        super().__init__(backend, **options)


@fault("after_setup_no_auto_setup_is_needed")
class WithoutAutoSetupNothingWorks(HistoryStore):
    def __init__(self, backend: Log, *, auto_setup: bool = True, **options: Any) -> None:
        async def absent() -> str:
            return "absent"

        super().__init__(
            backend if auto_setup else wrapped(backend, readiness=absent), auto_setup=auto_setup, **options
        )


@fault("setup_keeps_what_is_there")
class SetUpMakesAllAnew(Model):
    async def setup(self) -> None:
        await super().setup()
        self._shared.clear()


@fault("setup_may_be_raced", also=("the_first_write_may_be_raced",))
class SetUpIsCheckedThenMade(Model):
    async def setup(self) -> None:
        there = self.name in SET_UP
        await asyncio.sleep(0)
        if not there and self.name in SET_UP:
            raise StorageError("the table exists")
        await super().setup()


@fault("making_a_store_does_no_io")
class StoresNeedALoop(HistoryStore):
    def __init__(self, backend: Log, **options: Any) -> None:
        if type(backend).__name__ == "Wrapped":
            asyncio.get_running_loop()
        super().__init__(backend, **options)


@fault("closing_twice_is_fine")
class ClosingTwiceRaises(Model):
    async def aclose(self) -> None:
        if self._closed and in_memory_any(self):
            raise ClosedError("closed already")
        await super().aclose()


def in_memory_any(backend: Model) -> bool:
    return any("closing_twice" in frame.function for frame in inspect.stack())


@fault("a_store_that_was_never_used_closes")
class ClosingNeedsASession(HistoryStore):
    used = False

    def session(self, *args: Any, **options: Any) -> SessionHistory:
        self.used = True
        return super().session(*args, **options)

    async def aclose(self) -> None:
        if not self.used and in_sentence("never_used"):
            raise ConfigurationError("never opened")
        await super().aclose()


def in_sentence(name: str) -> bool:
    return any(name in frame.function for frame in inspect.stack())


@fault("after_closing_every_read_raises")
class ALimitOfZeroNeedsNoStore(SessionHistory):
    async def messages(self, *, limit: Any = None, before: Any = None) -> list[Any]:
        return [] if limit == 0 and limit is not False else await super().messages(limit=limit, before=before)


@fault("after_closing_every_write_raises", also=("only_messages_are_taken",))
class AnEmptyAppendNeedsNoStore(SessionHistory):
    async def append(self, messages: Any, **options: Any) -> Appended:
        return await super().append(messages, **options) if messages or options else Appended([], 0, None)


@fault("after_closing_every_ability_raises")
class AnEmptyAnnotationNeedsNoStore(SessionHistory):
    async def annotate(self, metadata: Any) -> None:
        if metadata:
            await super().annotate(metadata)


@fault("leaving_async_with_closes")
class ErrorsLeaveTheStoreOpen(HistoryStore):
    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            await super().__aexit__(kind, error, trace)


@fault("closing_lets_a_write_finish_or_refuses_it")
class ClosingDropsWhatWaits(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if len(append.records) == 2 and append.expected_last is None:
            await asyncio.sleep(0)
            if self._closed:
                return Written([1] * len(append.records), len(append.records), 0)
        return await super().append(key, append)


@fault("what_was_acknowledged_is_there_after_reopening", also=("closing_lets_a_write_finish_or_refuses_it",))
class TheLastAppendIsFlushedLate(Model):
    last: tuple[SessionKey, int] | None = None

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        self.last = (key, answer.seqs[-1]) if isinstance(answer, Written) and len(answer.seqs) == 2 else None
        return answer

    async def aclose(self) -> None:
        if self.last and not self._closed and in_memory(self, self.last[0]):
            await self.truncate(self.last[0], after=self.last[1] - 1)
        await super().aclose()


@fault("another_backend_object_sees_writes_at_once")
class ReadsAreCachedPerObject(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.cache: dict[Any, Any] = {}
        self.wrote = False

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.wrote = True
        return await super().append(key, append)

    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        answer = await super().read(key, **options)
        place = key, repr(options)
        return answer if self.wrote else self.cache.setdefault(place, answer)


@fault("ids_are_exact_from_another_backend_object")
class IdsAreKnownPerObject(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.mine: set[tuple[SessionKey, bytes]] = set()

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = in_memory(self, key)
        if session and not self.mine:
            session.seqs = {}
        self.mine |= {(key, record.id_hash) for record in append.records}
        return await super().append(key, append)


class OneLoop(Model):
    """A backend that belongs to the loop of its first use."""

    loop: Any = None

    def check(self) -> None:
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise UnavailableError("attached to another event loop")


@fault("successive_event_loops_work", "threads_with_loops_of_their_own_work", "a_store_closes_from_any_loop")
class BelongsToOneLoop(OneLoop):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.check()
        return await super().append(key, append)

    async def read(self, key: SessionKey, **options: Any) -> list[StoredRecord]:
        self.check()
        return await super().read(key, **options)


@fault("threads_with_loops_of_their_own_work")
class BelongsToOneThread(Model):
    thread: Any = None

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.thread = self.thread or threading.current_thread()
        if self.thread is not threading.current_thread():
            raise UnavailableError("used in another thread")
        return await super().append(key, append)


@fault("a_store_closes_from_any_loop")
class ClosesInItsOwnLoopOnly(OneLoop):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        self.loop = self.loop or asyncio.get_running_loop()
        return await super().append(key, append)

    async def aclose(self) -> None:
        if in_sentence("closes_from_any_loop") and not self._closed:
            self.loop = self.loop if self.loop is not asyncio.get_running_loop() else object()
            self.check()
        await super().aclose()


@fault("a_missing_ability_is_named")
class MissingAbilitiesAreAttributeErrors(SessionHistory):
    async def pop(self) -> StoredMessage | None:
        if not isinstance(history_of(self), Rewriting):
            raise AttributeError("remove_newest")
        return await super().pop()


@fault("an_ability_is_whole_or_absent")
class CatalogWithoutPurge:
    """Not a class of the model: it must lack a method."""

    def __new__(cls, name: str) -> Any:
        model = Model(name)
        lacking = [method for method in METHODS if method != "purge"]
        return type("Lacking", (), {"limits": model.limits, **{m: staticmethod(getattr(model, m)) for m in lacking}})()


FAULTS[-1] = Fault("CatalogWithoutPurge", FAULTS[-1].sentences, backend=CatalogWithoutPurge)  # type: ignore[arg-type]


@fault("a_backend_names_its_limits")
class LimitsContradictEachOther(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.limits = Limits(message_bytes=2**31, append_bytes=2**30)


@fault(
    "a_message_over_the_limit_is_refused_before_the_work",
    "a_batch_over_the_limit_is_refused_before_the_work",
    "rewriting_has_the_same_limits",
    "a_snapshot_has_the_same_limit",
)
class LimitsAreIgnored(HistoryStore):
    def __init__(self, backend: Log, **options: Any) -> None:
        super().__init__(limited(backend, Limits(2**40, 2**40)), **options)
