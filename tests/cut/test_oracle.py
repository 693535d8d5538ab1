"""The evaluator, every solver and every bound of the cut wing against the exhaustive oracle."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance import (
    Assignment,
    Cluster,
    CostGraph,
    Device,
    Plan,
    Replica,
    Stage,
    Tensor,
    list_solvers,
    lower_bounds,
    solve,
)
from balance.problems.cut import CutProblem
from tests.cut import oracle
from tests.cut.strategies import problems

CLOSE = 1e-9
ENGINES = ("cp_sat", "milp")
SHARE = max(10, settings().max_examples // 8)  # examples for engines


def agrees(found: float, best: float) -> bool:
    """Whether two values are the same, both infinite included."""
    return found == best or abs(found - best) <= CLOSE * max(1.0, abs(best))


def check(problem: CutProblem, *, engines: bool) -> None:
    """Exact solvers find the optimum and prove it, others a solution that is no better; bounds stay below.

    `engines` chooses the solvers that hand a model to an engine, which takes longer, or all others.
    """
    best = oracle.optimum(problem)
    for solver in list_solvers(problem):
        if (solver.name in ENGINES) != engines:
            continue
        result = solve(problem, solver=solver.name, seed=0, threads=1)
        if math.isinf(best):
            assert result.solution is None, (solver.name, result.objective)
            assert not solver.exact or result.status == "infeasible", (solver.name, result.status)
            assert result.reasons or not solver.exact, solver.name
            continue
        assert result.status != "infeasible", (solver.name, result.reasons, best)
        if solver.exact:
            assert result.status == "optimal", (solver.name, result.status, result.objective, result.bound, best)
            assert abs(result.objective - best) <= 1e-6 * best + 1e-9, (solver.name, result.objective, best)
        elif result.objective is not None:
            assert result.objective >= best * (1 - CLOSE) - CLOSE, (solver.name, result.objective, best)
    if math.isfinite(best):
        for name, bound in lower_bounds(problem).items():
            assert bound <= best * (1 + CLOSE) + 1e-12, (name, bound, best)


@pytest.mark.parametrize("contiguity", ["acyclic", "convex", "none"])
def test_solvers_equal_the_oracle(contiguity):
    """All parameters at random, for each contiguity."""

    @given(problems(contiguity=contiguity))
    def run(problem):
        check(problem, engines=False)

    run()


@pytest.mark.parametrize("contiguity", ["acyclic", "convex", "none"])
def test_engines_equal_the_oracle(contiguity):
    """The same for the models that engines solve."""

    @settings(max_examples=SHARE)
    @given(problems(most=4, contiguity=contiguity))
    def run(problem):
        check(problem, engines=True)

    run()


@pytest.mark.parametrize("style", ["inference", "layers", "operators"])
def test_pipelines_of_each_style_equal_the_oracle(style):
    """Acyclic cuts of each style of graph with the defaults of the published models."""

    @given(problems(contiguity="acyclic", style=style, send="once", charge="tensor", routing="direct", overlap="sum"))
    def run(problem):
        check(problem, engines=False)

    run()


@given(problems(), st.data())
def test_evaluator_equals_the_oracle(problem, data):
    """The objective of a random solution, and whether it is one, are what the statement says."""
    n, p = problem.graph.n_operators, problem.cluster.n_devices
    device = tuple(data.draw(st.lists(st.integers(0, p - 1), min_size=n, max_size=n)))
    sequence = tuple(data.draw(st.permutations(sorted(set(device)))))
    expected = oracle.value(problem, device, sequence)
    if problem.contiguity == "acyclic":
        column = problem.configuration
        stages = tuple(Stage(np.flatnonzero(np.array(device) == d), (Replica((d,)),), column) for d in sequence)
        evaluation = problem.evaluate(Plan(stages))
    else:
        evaluation = problem.evaluate(Assignment(np.array(device)))
    assert evaluation.feasible == math.isfinite(expected), (evaluation.violations, expected)
    if evaluation.feasible:
        assert agrees(evaluation.objective, expected), (evaluation.objective, expected)


@given(problems(contiguity="acyclic", overflow_bandwidth=None, routing="direct", in_flight=(1,)))
def test_contiguities_are_relaxations_of_each_other(problem):
    """The optimum never rises from acyclic over convex to none."""
    values = [
        oracle.optimum(dataclasses.replace(problem, contiguity=c, leaves="keep")) for c in ("acyclic", "convex", "none")
    ]
    for tighter, looser in itertools.pairwise(values):
        assert looser <= tighter * (1 + CLOSE) or math.isinf(tighter)


@given(problems(contiguity="acyclic", charge="tensor", routing="direct", overlap="sum"))
def test_joining_leaves_only_restricts(problem):
    """The optimum with joined leaves is never below the one without."""
    kept, merged = (oracle.optimum(dataclasses.replace(problem, leaves=leaves)) for leaves in ("keep", "merge"))
    assert kept <= merged * (1 + CLOSE) or math.isinf(merged)


@pytest.mark.parametrize(("room", "best"), [(4.0, math.inf), (5.0, 6.0), (6.0, 3.0)])
@pytest.mark.parametrize("leaves", ["keep", "merge"])
def test_an_orphan_keeps_its_place_when_a_leaf_joins_it(leaves, room, best):
    """Backward ab -> o -> bb: b is never behind o, also when the free a has joined o and lends it a forward operator.

    b keeps 3 bytes per flight, o 2, both work 3 seconds. As two stages b has two flights, 6 bytes; one stage has
    5 bytes and 6 seconds. With b behind o, 4 bytes would do for 3 seconds.
    """
    graph = CostGraph(
        forward=[3.0, 0.0, 3.0, 0.0, 0.0],
        is_backward=[False, False, True, True, True],
        colocation=["b", "a", None, "a", "b"],
        activation_bytes=[3.0, 0.0, 2.0, 0.0, 0.0],
        tensors=[Tensor(3, (2,)), Tensor(2, (4,))],
    )
    problem = CutProblem(graph=graph, cluster=Cluster([Device(memory_bytes=room)] * 2), leaves=leaves)
    assert oracle.optimum(problem) == best
    for engines in (False, True):
        check(problem, engines=engines)
