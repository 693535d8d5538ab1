"""Presolve keeps every solution as good as the incumbent, and joins what it says it joins."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from balance import Assignment, Cluster, CostGraph, Tensor, solve
from balance.cut.presolve import presolve
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.cut import CutProblem
from tests.cut import oracle
from tests.cut.strategies import problems


def blocks_after(problem, incumbent=None):
    """Return the number of blocks that presolve leaves."""
    run = Run()
    if incumbent is not None:
        run.report(objective=problem.evaluate(incumbent).objective, solution=incumbent)
    return presolve(CutTables(problem), run).tables.n


@pytest.mark.parametrize("contiguity", ["acyclic", "convex", "none"])
def test_the_optimum_is_kept(contiguity):
    """With a heuristic's solution as incumbent an exact solver still finds the oracle's optimum."""

    @given(problems(most=4, contiguity=contiguity, charge="tensor", overlap="sum"))
    def run(problem):
        best = oracle.optimum(problem)
        if math.isinf(best):
            return
        first = solve(problem, solver="slicing").solution
        solver = "ideals" if contiguity == "acyclic" and problem.send == "once" else "cp_sat"
        result = solve(problem, solver=solver, incumbent=first, threads=1)
        assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-9)

    run()


def test_heavy_neighbours_join():
    """Cutting the tensor of 9 s costs more than the incumbent of 8 s: its ends stay together, the others do not."""
    graph = CostGraph(forward=[4.0, 4.0, 4.0], tensors=[Tensor(0, (1,), seconds=9.0), Tensor(1, (2,), seconds=0.0)])
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2), contiguity="none")
    assert blocks_after(problem) == 3
    assert blocks_after(problem, Assignment([0, 0, 1])) == 2


def test_free_leaves_join():
    """A source without time or bytes joins its only reader; one that holds bytes does not."""
    tensors = [Tensor(0, (1,), seconds=1.0), Tensor(1, (2,), seconds=1.0)]
    for held, blocks in ((0.0, 2), (5.0, 3)):
        graph = CostGraph(forward=[0.0, 2.0, 2.0], static_bytes=[held, 0.0, 0.0], tensors=tensors)
        assert blocks_after(CutProblem(graph=graph, cluster=Cluster.uniform(2))) == blocks


def test_leaves_stay_apart_where_paths_must_not_come_back():
    """Leaf v reads m at a price, and x for nothing, which reads m for nothing.

    On A: m. On B: x and v, for 3 + 1 s each. With v at m's side the path m, x, v would leave A and come back: then all
    three share a device, for 6 s.
    """
    graph = CostGraph(
        forward=[3.0, 3.0, 0.0],
        tensors=[Tensor(0, (1,), seconds=0.0), Tensor(1, (2,), seconds=0.0), Tensor(0, (2,), seconds=1.0)],
        names=["m", "x", "v"],
    )
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2), contiguity="convex")
    assert oracle.optimum(problem) == 4.0
    assert blocks_after(problem) == 3
    for solver in ("cp_sat", "milp"):
        result = solve(problem, solver=solver, threads=1)
        assert (str(result.status), result.objective) == ("optimal", 4.0)
