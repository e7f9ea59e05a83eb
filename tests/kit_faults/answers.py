"""Faults that the sentences about lost answers catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentstore import (
    SessionKey,
    UnavailableError,
)
from agentstore.backend import (
    Append,
    Log,
    Refused,
    Written,
)
from agentstore.testing.faults import METHODS, wrapped
from kit_faults.stage import (
    Model,
    change,
    fault,
    in_memory,
    store_with,
)


def retrying(name: str, *, times: int = 1, surely: bool = False) -> Callable[[Log], Any]:
    """The method, called again where it is unavailable."""

    def make(backend: Log) -> Any:
        async def method(*args: Any, **options: Any) -> Any:
            try:
                return await getattr(backend, name)(*args, **options)
            except UnavailableError as error:
                if surely and error.maybe_done:
                    raise
            again = retrying(name, times=times - 1, surely=surely)(backend) if times > 1 else getattr(backend, name)
            return await again(*args, **options)

        return method

    return make


@fault(
    "a_lost_answer_leaves_one_copy",
    "a_retry_gets_the_first_answer_though_others_appended",
    "a_retry_does_not_bring_back_what_was_removed_since",
    "a_retry_does_not_bring_back_what_was_popped_since",
    "the_answer_to_a_batch_that_was_partly_there_is_kept",
    also=("a_session_remembers_its_last_tokens",),
)
class TokensAreForgotten(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        return await super().append(key, change(append, retry=False))


@fault(
    "an_append_that_never_arrived_is_made_by_the_retry",
    also=(
        "a_lost_answer_leaves_one_copy",
        "a_retry_does_not_bring_back_what_was_popped_since",
        "a_retry_does_not_bring_back_what_was_removed_since",
        "a_retry_does_not_save_the_snapshot_again",
        "a_retry_gets_the_first_answer_though_others_appended",
        "a_second_lost_answer_is_the_callers",
    ),
)
class LostAnswersAreNotRetried(store_with()):  # type: ignore[misc]
    def __init__(self, backend: Log, **options: Any) -> None:
        async def append(*args: Any) -> Any:
            try:
                return await backend.append(*args)
            except UnavailableError as error:
                raise UnavailableError("lost", maybe_done=False) from error

        super().__init__(wrapped(backend, append=append), **options)


@fault(
    "a_second_lost_answer_is_the_callers",
    also=(
        "a_lost_answer_leaves_one_copy",
        "a_retry_does_not_bring_back_what_was_popped_since",
        "a_retry_does_not_bring_back_what_was_removed_since",
        "a_retry_gets_the_first_answer_though_others_appended",
        "the_id_is_given_before_the_write",
        "what_surely_did_not_happen_is_not_retried",
    ),
)
class AppendsAreRetriedForEver(store_with(append=retrying("append", times=5))):  # type: ignore[misc]
    pass


@fault("what_surely_did_not_happen_is_not_retried", also=("the_id_is_given_before_the_write",))
class AllFailuresAreRetried(store_with(append=retrying("append", surely=True))):  # type: ignore[misc]
    pass


@fault("a_session_remembers_its_last_tokens")
class FewTokensAreRemembered(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        answer = await super().append(key, append)
        if session := in_memory(self, key):
            for token in list(session.answers)[:-8]:
                del session.answers[token]
        return answer


@fault("a_retry_with_an_unknown_token_is_an_append")
class UnknownTokensAreRefused(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        session = in_memory(self, key)
        if append.retry and session and append.token not in session.answers:
            return Written([1] * len(append.records), 0, 0)
        return await super().append(key, append)


class KeepsTokens(Model):
    """Tokens are remembered beside the sessions."""

    def place(self, key: SessionKey, token: bytes) -> Any:
        return key, token

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.answers: dict[Any, Written] = {}

    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        place = self.place(key, append.token)
        if append.retry and place in self.answers:
            return self.answers[place]
        answer = await super().append(key, append)
        if isinstance(answer, Written):
            self.answers[place] = answer
        return answer


@fault(
    "a_token_belongs_to_one_session",
    also=(
        "a_deleted_session_forgets_its_tokens",
        "an_expired_session_forgets_its_tokens",
    ),
)
class TokensAreTheStores(KeepsTokens):
    def place(self, key: SessionKey, token: bytes) -> Any:
        return token


@fault("a_deleted_session_forgets_its_tokens", "an_expired_session_forgets_its_tokens")
class TokensOutliveTheSession(KeepsTokens):
    pass


@fault("a_retry_does_not_save_the_snapshot_again")
class ARetrySavesTheSnapshotAgain(Model):
    async def append(self, key: SessionKey, append: Append) -> Written | Refused:
        if append.retry and append.snapshot and (session := in_memory(self, key)) and append.token in session.answers:
            await self.save_snapshot(key, append.snapshot)
        return await super().append(key, append)


NOT_RETRIED = tuple(
    name for name in METHODS if name not in ("append", "readiness", "setup", "ping", "aclose", "read", "purge")
)


@fault(
    "a_lost_answer_to_a_truncation_is_the_callers",
    "lost_answers_to_rewriting_are_the_callers",
    "lost_answers_to_the_catalog_are_the_callers",
    "a_lost_answer_to_a_snapshot_is_the_callers",
)
class EveryWriteIsRetried(store_with(**{name: retrying(name) for name in NOT_RETRIED})):  # type: ignore[misc]
    pass
