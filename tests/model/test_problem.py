"""What every formal problem shares: parameters, JSON, evaluations and violations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import FormatError, ProblemError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Evaluation, Problem, Violation


@dataclass(frozen=True, kw_only=True)
class Toy(Problem):
    """A problem with one parameter of each type."""

    name: ClassVar[str] = "toy"
    solution_type: ClassVar[type] = Plan

    limit: float = 2.0
    kinds: tuple[str, ...] = ()
    count: int | None = None

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ProblemError(f"limit must not be negative, got {self.limit}")


@pytest.fixture
def toy(layers: CostGraph) -> Toy:
    """Return a stated problem."""
    return Toy(graph=layers, cluster=Cluster.uniform(2, bandwidth=1.0), limit=3.0, kinds=("a", "b"))


def test_problems_round_trip(toy: Toy, layers: CostGraph) -> None:
    """Name, cluster and parameters come back; the graph is known by its hash."""
    data = json.loads(json.dumps(toy.to_json(), allow_nan=False))
    assert data["graph"] == layers.hash
    assert Toy.from_json(data, layers) == toy
    assert list(Toy.parameters()) == ["limit", "kinds", "count"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "other", "expected 'toy'"),
        ("graph", "0" * 64, "was stated on a graph with hash 000000000000"),
        ("graph", 5, "expected a string"),
        ("cluster", {}, "missing"),
        ("parameters", [], "expected an object"),
        ("parameters", {"limits": 1}, "did you mean 'limit'"),
        ("parameters", {"limit": -1}, "must not be negative"),
        ("parameters", {"limit": "x"}, "not supported"),
        ("extra", 1, "not a known field"),
    ],
)
def test_bad_problems_are_refused(toy: Toy, layers: CostGraph, field: str, value: Any, message: str) -> None:
    """A file that is not this problem on this graph gives a FormatError."""
    with pytest.raises(FormatError, match=message):
        Toy.from_json({**toy.to_json(), field: value}, layers)


def test_a_problem_without_evaluator_says_so(toy: Toy) -> None:
    """The base class evaluates nothing."""
    with pytest.raises(ProblemError, match="'toy' has no evaluator"):
        toy.evaluate(None)


def test_evaluations_are_feasible_without_violations() -> None:
    """One broken rule is enough to be infeasible."""
    violation = Violation("memory", "device 0 needs more", device=0, needed=2.0, available=1.0)
    assert Evaluation(1.0, {"load": np.ones(2)}).feasible
    assert not Evaluation(1.0, {}, (violation,)).feasible


def test_violations_round_trip() -> None:
    """Absent fields are left out, and an infinite number is no number in JSON."""
    violation = Violation("memory", "too much", operator=3, needed=2.0, available=float("inf"))
    data = json.loads(json.dumps(violation.to_json(), allow_nan=False))
    assert data == {"rule": "memory", "message": "too much", "operator": 3, "needed": 2.0}
    assert Violation.from_json(data) == Violation("memory", "too much", operator=3, needed=2.0)
    with pytest.raises(FormatError, match="not a known field"):
        Violation.from_json({**data, "where": 1})


@pytest.mark.parametrize("change", [{"rule": None}, {"message": 3}, {"operator": 1.5}, {"needed": "much"}])
def test_malformed_violations_are_refused(change: dict[str, Any]) -> None:
    """Fields are checked as everywhere else."""
    written = Violation("memory", "too much", operator=1, needed=2.0).to_json()
    with pytest.raises(FormatError, match=f"violation.{next(iter(change))}"):
        Violation.from_json({**written, **change})
