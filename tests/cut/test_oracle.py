"""The evaluator, every solver and every bound of the cut wing against the exhaustive oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import Assignment, Plan, Replica, Stage, list_solvers, lower_bounds, solve
from balance.problems.cut import CutProblem
from tests.cut import oracle
from tests.cut.strategies import problems

CLOSE = 1e-9


def agrees(found: float, best: float) -> bool:
    """Whether two values are the same, both infinite included."""
    return found == best or abs(found - best) <= CLOSE * max(1.0, abs(best))


def check(problem: CutProblem) -> None:
    """Exact solvers find the optimum and prove it, others a solution that is no better; bounds stay below."""
    best = oracle.optimum(problem)
    for solver in list_solvers(problem):
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
        check(problem)

    run()


@pytest.mark.parametrize("style", ["inference", "layers", "operators"])
def test_pipelines_of_each_style_equal_the_oracle(style):
    """Acyclic cuts of each style of graph with the defaults of the published models."""

    @given(problems(contiguity="acyclic", style=style, send="once", charge="tensor", routing="direct", overlap="sum"))
    def run(problem):
        check(problem)

    run()


@given(problems(), st.data())
def test_evaluator_equals_the_oracle(problem, data):
    """The objective of a random solution, and whether it is one, are what the statement says."""
    n, p = problem.graph.n_operators, problem.cluster.n_devices
    device = tuple(data.draw(st.lists(st.integers(0, p - 1), min_size=n, max_size=n)))
    sequence = tuple(data.draw(st.permutations(sorted(set(device)))))
    expected = oracle.value(problem, device, sequence)
    if problem.contiguity == "acyclic":
        stages = tuple(Stage(np.flatnonzero(np.array(device) == d), (Replica((d,)),)) for d in sequence)
        evaluation = problem.evaluate(Plan(stages))
    else:
        evaluation = problem.evaluate(Assignment(np.array(device)))
    assert evaluation.feasible == math.isfinite(expected), (evaluation.violations, expected)
    if evaluation.feasible:
        assert agrees(evaluation.objective, expected), (evaluation.objective, expected)


@given(problems(contiguity="acyclic", overflow_bandwidth=None, routing="direct", in_flight=(1,)))
def test_contiguities_are_relaxations_of_each_other(problem):
    """The optimum never rises from acyclic over convex to none."""
    import dataclasses

    values = [
        oracle.optimum(dataclasses.replace(problem, contiguity=c, leaves="keep")) for c in ("acyclic", "convex", "none")
    ]
    for tighter, looser in itertools.pairwise(values):
        assert looser <= tighter * (1 + CLOSE) or math.isinf(tighter)
