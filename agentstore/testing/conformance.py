"""`BackendConformance`: every sentence of the contract."""

from __future__ import annotations

import pytest

from agentstore.testing.agreement import AgreementSentences
from agentstore.testing.answers import AnswerSentences
from agentstore.testing.cancellation import CancellationSentences
from agentstore.testing.catalog import DeleteSentences, InfoSentences, ListingSentences, MetadataSentences
from agentstore.testing.concurrency import ConcurrencySentences
from agentstore.testing.cost import CostSentences
from agentstore.testing.expiry import ExpirySentences
from agentstore.testing.faults import ABILITIES
from agentstore.testing.identity import IdentitySentences
from agentstore.testing.keys import KeySentences
from agentstore.testing.lifecycle import LifecycleSentences, SizeSentences
from agentstore.testing.log import LogSentences
from agentstore.testing.processes import ProcessSentences
from agentstore.testing.rewriting import ForkSentences, PopSentences, ReplaceSentences, UpdateSentences
from agentstore.testing.scenes import played
from agentstore.testing.snapshots import SnapshotSentences
from agentstore.testing.stored import CorruptionSentences, StoredFormSentences
from agentstore.testing.values import ValueSentences


class BackendConformance(
    LogSentences,
    IdentitySentences,
    AnswerSentences,
    KeySentences,
    ValueSentences,
    StoredFormSentences,
    CorruptionSentences,
    PopSentences,
    ReplaceSentences,
    UpdateSentences,
    ForkSentences,
    SnapshotSentences,
    InfoSentences,
    MetadataSentences,
    DeleteSentences,
    ListingSentences,
    ExpirySentences,
    ConcurrencySentences,
    CancellationSentences,
    LifecycleSentences,
    SizeSentences,
    ProcessSentences,
    CostSentences,
    AgreementSentences,
):
    """Subclass it, write `open_backend`, and pytest runs every sentence against the backend.

    The other hooks are optional (see `agentstore.testing.scenes.Stage`): what they would show is skipped by name. A
    backend that must be excused from a sentence overrides that test, with the reason in sight.
    """

    def test_abilities_are_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Abilities that the backend lacks are skipped by name and printed."""
        with played(self, set_up=False) as scene:
            name = type(scene.backend).__name__
            lacking = [ability.__name__ for ability in ABILITIES if not scene.has(ability)]
        if lacking:
            with capsys.disabled():
                print(f"\n{name} lacks the abilities {', '.join(lacking)}: their sentences are skipped")
