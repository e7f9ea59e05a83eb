"""The conformance kit catches what it says it catches: every sentence fails for at least one planted fault.

A fault is a deliberately broken backend (a subclass of the in-memory one), store, session or codec. Its decorator names
the sentences that must fail; all others must pass. A sentence that no fault names fails the last test of this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from unittest.mock import patch

import pytest
from kit_faults import (
    agreement,
    answers,
    cancellation,
    catalog,
    concurrency,
    cost,
    expiry,
    identity,
    keys,
    lifecycle,
    log,
    rewriting,
    snapshots,
    stored,
    values,
)
from kit_faults.stage import BEYOND, FAULTS, SENTENCES, WIDE, Fault, Stage, failing

from agentstore.backend import Log
from agentstore.testing import BackendConformance
from agentstore.testing.faults import bare

PLANTED = (
    log,
    identity,
    answers,
    keys,
    values,
    stored,
    rewriting,
    snapshots,
    catalog,
    expiry,
    concurrency,
    cancellation,
    lifecycle,
    cost,
    agreement,
)
"""Importing a module of faults plants them."""

ALL_PAIRS = "AGENTSTORE_KIT_ALL_PAIRS"
"""Set, this variable plays every sentence on every fault; else a third of the others, another one for each fault."""


def others(place: int) -> list[str]:
    """The sentences that are played on the fault at that place, besides those that must fail."""
    return SENTENCES if os.environ.get(ALL_PAIRS) else SENTENCES[place % 3 :: 3]


@pytest.mark.parametrize("place", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
@pytest.mark.filterwarnings("ignore")
def test_a_fault_is_caught_by_its_sentences(place: int) -> None:
    """A planted fault is caught by the sentences that are about it, and by no other."""
    fault = FAULTS[place]
    played = fault.sentences.union(others(place))
    failed = failing(fault, sorted(played))
    assert fault.sentences - set(failed) == set(), "not caught by its own sentence"
    assert {name: why for name, why in failed.items() if name not in fault.sentences} == {}


def test_the_model_breaks_no_sentence() -> None:
    """What the faults are planted in is sound."""
    assert failing(Fault("none", frozenset(WIDE)), SENTENCES) == {}


def test_every_sentence_catches_a_fault() -> None:
    """A sentence that nothing can break proves nothing: each is named by at least one fault."""
    named = frozenset[str]().union(*[fault.sentences for fault in FAULTS])
    assert sorted(set(SENTENCES) - named) == []
    assert sorted(named - set(SENTENCES)) == []


def test_every_exception_is_a_sentence() -> None:
    """The list of sentences beyond planted faults holds no name that is gone."""
    assert [name for name in BEYOND if not hasattr(BackendConformance, name)] == []


def test_lacking_abilities_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Abilities that a backend lacks are skipped by name and printed."""

    class OnlyALog(Stage):
        async def open_backend(self) -> Log:
            return bare(await super().open_backend())

    stage = OnlyALog(Fault("none", frozenset()))
    with patch.object(capsys, "disabled", nullcontext):
        stage.test_abilities_are_printed(capsys)
    assert "Bare lacks the abilities Rewriting, Catalog, Snapshots" in capsys.readouterr().out
    with pytest.raises(pytest.skip.Exception, match="Bare lacks the ability Rewriting"):
        stage.test_replace_swaps_all()
    stage.test_one_batch_comes_back_in_its_order()


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_the_kit_names_its_extra(missing: str) -> None:
    """Without pytest or hypothesis, importing the kit raises an error that names the extra."""
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from agentstore import MissingDependencyError\n"
        "try:\n    import agentstore.testing\n"
        "except MissingDependencyError as error:\n    print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "agentstore-history[testing]" in answer.stdout
