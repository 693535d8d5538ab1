"""The tree of errors: what derives from what, and what survives a process border."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from balance.problems.model import errors
from balance.problems.model.errors import BalanceError, ExecutionError, FormatError, GraphError


def every_error() -> list[type[BalanceError]]:
    """Return all classes of the module."""
    return [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BalanceError)]


@pytest.mark.parametrize("kind", every_error())
def test_errors_keep_message_and_facts_through_pickling(kind: type[BalanceError]) -> None:
    """Text, facts and class survive pickling and copying."""
    error = kind("operator 3 needs more", operator=3, needed=1.5)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert other.facts == {"operator": 3, "needed": 1.5}
        assert other.args == error.args


def test_wrong_values_are_value_errors_too() -> None:
    """Errors about values are ValueErrors, looked-up names LookupErrors, lacking packages ImportErrors."""
    values = {
        "GraphError", "ClusterError", "PlanError", "ScheduleError", "ProblemError", "LinearisationError", "OptionError",
        "FormatError",
    }  # fmt: skip
    assert {kind.__name__ for kind in every_error() if issubclass(kind, ValueError)} == values
    assert issubclass(errors.SolverNotFoundError, LookupError)
    assert issubclass(errors.MissingDependencyError, ImportError)
    assert issubclass(errors.SolverError, RuntimeError)
    assert issubclass(errors.ExecutionError, RuntimeError)


def test_format_errors_say_where() -> None:
    """Path, line and field stand before the reason and as attributes."""
    error = FormatError("is missing", path="a.json", line=3, field="nodes[0].id", found=None)
    assert str(error) == "a.json, line 3, nodes[0].id: is missing"
    assert (error.path, error.line, error.field, error.reason) == ("a.json", 3, "nodes[0].id", "is missing")
    assert str(FormatError("is empty")) == "is empty"
    other = pickle.loads(pickle.dumps(error))
    assert (other.path, other.line, other.field, other.reason) == (error.path, error.line, error.field, error.reason)


def test_execution_errors_say_which_rank() -> None:
    """Rank, stage and action survive a process border."""
    error = pickle.loads(pickle.dumps(ExecutionError("hangs", rank=1, stage=2, action="1F0", seconds=3.0)))
    assert (error.rank, error.stage, error.action, error.facts) == (1, 2, "1F0", {"seconds": 3.0})


def test_the_message_is_the_text() -> None:
    """A caught error prints its sentence and nothing else."""
    with pytest.raises(GraphError, match=r"^bad cost$"):
        raise GraphError("bad cost", field="forward")
