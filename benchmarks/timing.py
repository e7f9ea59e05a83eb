"""Timing by turns: each round runs every contender once, so that a noisy moment of the machine hits all of them."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterable
from statistics import median
from time import perf_counter

Contender = Callable[[int], Awaitable[object]]
"""Does its work once; called with the number of the round."""

Rounds = list[tuple[float, ...]]
"""For each round the seconds of each contender."""

WARM_UP = 3


async def by_turns(rounds: Iterable[int], *contenders: Contender) -> Rounds:
    """Run the rounds; the first few warm up and do not count."""
    gc.collect()
    gc.freeze()  # what was prepared for the contenders is not their garbage to search
    times = [tuple([await _seconds(contender, number) for contender in contenders]) for number in rounds]
    gc.unfreeze()
    return times[WARM_UP:]


def several(contender: Contender, times: int) -> Contender:
    """The contender, that many times a round: the first after another contender finds cold caches."""

    async def work(number: int) -> None:
        for one in range(number * times, (number + 1) * times):
            await contender(one)

    return work


def medians(rounds: Rounds) -> list[float]:
    """The median seconds of each contender."""
    return [median(times) for times in zip(*rounds, strict=True)]


def ratio(rounds: Rounds, contender: int, to: int) -> float:
    """How many times as long one contender took as another, by place: the median over the rounds."""
    return median([times[contender] / times[to] for times in rounds])


async def _seconds(contender: Contender, number: int) -> float:
    start = perf_counter()
    await contender(number)
    return perf_counter() - start
