"""The error tree: one root, Python's own classes where they fit, and errors that survive a process boundary."""

from __future__ import annotations

import copy
import pickle

import pytest

import agentstore
from agentstore import errors

TREE: dict[type[Exception], tuple[type[BaseException], ...]] = {
    errors.ConfigurationError: (errors.AgentStoreError,),
    errors.UnknownBackendError: (errors.ConfigurationError,),
    errors.MissingDependencyError: (errors.ConfigurationError, ImportError),
    errors.StorageError: (errors.AgentStoreError,),
    errors.UnavailableError: (errors.StorageError,),
    errors.ConflictError: (errors.StorageError,),
    errors.CorruptRecordError: (errors.StorageError,),
    errors.PayloadTooLargeError: (errors.StorageError,),
    errors.UnsupportedValueError: (errors.AgentStoreError, TypeError),
    errors.SaveError: (errors.AgentStoreError,),
    errors.ChatClientError: (errors.AgentStoreError,),
    errors.ClosedError: (errors.AgentStoreError,),
}


@pytest.mark.parametrize(("error", "parents"), TREE.items(), ids=[error.__name__ for error in TREE])
def test_every_error_has_its_place(error: type[Exception], parents: tuple[type[BaseException], ...]) -> None:
    """As the design draws the tree; each is public under both names."""
    assert error.__bases__ == parents
    assert getattr(agentstore, error.__name__) is error
    assert error.__doc__


def test_nothing_but_the_tree_is_in_the_module() -> None:
    """No error is left out of the table above."""
    found = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert found == {errors.AgentStoreError, *TREE}


MADE = [
    errors.ConfigurationError("text"),
    errors.MissingDependencyError("text"),
    errors.UnavailableError("text"),
    errors.UnavailableError("text", maybe_done=True),
    errors.ConflictError("text", ids=["a", "b"]),
    errors.UnsupportedValueError("text"),
    errors.SaveError("text", response={"answer": 1}),
    errors.ClosedError("text"),
]


@pytest.mark.parametrize("error", MADE, ids=repr)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_a_process_boundary(error: Exception, copied: object) -> None:
    """Text and attributes come back: worker pools send errors by pickle."""
    other = copied(error)  # type: ignore[operator]
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_what_an_error_tells_beside_its_text() -> None:
    """Whether a write may have happened, which ids clash, and the answer that could not be saved."""
    assert not errors.UnavailableError("text").maybe_done
    unsure = errors.UnavailableError("text", maybe_done=True)
    assert unsure.maybe_done
    assert "may have happened" in str(unsure)
    assert errors.ConflictError("text").ids == ()
    assert errors.ConflictError("text", ids=["a"]).ids == ("a",)
    response = object()
    assert errors.SaveError("text", response=response).response is response
