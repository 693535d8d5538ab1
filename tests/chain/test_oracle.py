"""The evaluator, every solver and every bound of the chain wing against the exhaustive oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balance
from balance import ChainProblem, lower_bounds, solve
from tests.chain import oracle
from tests.chain.strategies import problems

CLOSE = 1e-9
PROGRAMS = ("bisection", "threshold", "intervals", "counts")


def agrees(found: float, best: float) -> bool:
    """Whether two optima are the same, both infinite included."""
    return found == best or abs(found - best) <= CLOSE * max(1.0, abs(best))


def check(problem: ChainProblem, names: tuple[str, ...]) -> None:
    """Every solver in `names` that accepts the problem returns the oracle's optimum, every bound is below it."""
    best = oracle.optimum(problem)
    for solver in balance.list_solvers(problem):
        if solver.name not in names:
            continue
        result = solve(problem, solver=solver.name, seed=0)
        if math.isinf(best):
            assert result.status == "infeasible", (solver.name, result)
            assert result.bound == math.inf
            assert result.reasons, solver.name
        else:
            assert result.status == "optimal", (solver.name, result.status, best)
            assert agrees(result.objective, best), (solver.name, result.objective, best)
    if math.isfinite(best):
        for name, bound in lower_bounds(problem).items():
            assert bound <= best * (1 + 1e-9) + 1e-12, (name, bound, best)


@given(problems())
def test_programs_equal_the_oracle(problem):
    """All parameters at random."""
    check(problem, PROGRAMS)


@given(problems(uneven=True, device_order="given"))
def test_programs_equal_the_oracle_on_uneven_links(problem):
    """Links that differ from pair to pair."""
    check(problem, PROGRAMS)


@given(problems(kinds=("a",), objective="bottleneck", idle=True))
def test_programs_equal_the_oracle_on_equal_kinds(problem):
    """One kind: the fastest programs apply."""
    check(problem, PROGRAMS)


@given(problems(kinds=("a",), devices=9, most=4, device_order="given"))
def test_more_devices_than_operators(problem):
    """Devices beyond the number of operators are of no use and do no harm."""
    check(problem, PROGRAMS)


@settings(max_examples=max(10, settings().max_examples // 5))
@given(problems(most=4, devices=3))
def test_milp_equals_the_oracle(problem):
    """The independent second method."""
    check(problem, ("milp",))


@settings(max_examples=max(10, settings().max_examples // 8))
@given(problems(most=5, devices=2, chunks=2, schedule="interleaved-1f1b"))
def test_milp_equals_the_oracle_when_stages_share_devices(problem):
    """Interleaved stages: two chunks on every device."""
    check(problem, ("milp",))


@given(problems(style="operators"))
def test_programs_equal_the_oracle_on_operator_graphs(problem):
    """Backward operators as nodes of their own, tied to their mates."""
    check(problem, PROGRAMS)


@given(st.sampled_from(["layers", "operators"]).flatmap(lambda style: problems(style=style, schedule="forward-only")))
def test_programs_equal_the_oracle_without_a_backward_pass(problem):
    """Training graphs under a forward-only schedule, with every other parameter at random."""
    check(problem, PROGRAMS)


@settings(max_examples=max(10, settings().max_examples // 8))
@given(problems(most=4, devices=3, schedule="forward-only"))
def test_milp_equals_the_oracle_without_a_backward_pass(problem):
    """The second method leaves gradients out as well."""
    check(problem, ("milp",))


@given(st.sampled_from(["layers", "operators"]).flatmap(lambda style: problems(style=style)), st.integers(0, 2**32 - 1))
def test_evaluator_equals_the_oracle(problem, seed):
    """The value of a random solution, and whether it is feasible, by two independent sums."""
    solutions = list(itertools.islice(oracle.solutions(problem), 400))
    if not solutions:
        return
    stages, devices, flags = solutions[int(np.random.default_rng(seed).integers(len(solutions)))]
    plan = balance.Plan(
        [
            balance.Stage(operators=ops, replicas=(balance.Replica((device,)),), recompute=flag)
            for ops, device, flag in zip(stages, devices, flags, strict=True)
        ],
        microbatches=problem.microbatches,
        schedule=problem.schedule,
    )
    expected, feasible = oracle.value(problem, stages, devices, flags)
    found = problem.evaluate(plan)
    assert found.feasible == feasible, (found.violations, expected)
    if feasible:
        assert found.objective == pytest.approx(expected, rel=1e-12, abs=1e-12)
