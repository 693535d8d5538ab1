"""Solvers that misbehave, and a way to put them into the registry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from balance import registry
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import CostGraph
from balance.registry import Bound, Solver

Install = Callable[..., None]


@pytest.fixture
def problem() -> ChainProblem:
    """Four operators on two equal devices; the best bottleneck is 4, an even split has 4 too, the worst 8."""
    return ChainProblem(graph=CostGraph.chain([3.0, 1.0, 2.0, 2.0]), cluster=Cluster.uniform(2))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let the chain problem have exactly these solvers, and these bounds."""

    def put(*solvers: Solver, bounds: tuple[Bound, ...] = ()) -> None:
        monkeypatch.setattr(registry, "_solvers", lambda name: {solver.name: solver for solver in solvers})
        monkeypatch.setattr(registry, "_bounds", lambda name: bounds)

    return put
