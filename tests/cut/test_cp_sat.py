"""Constraint programs of cut problems: equal to other methods, rounding, warm starts, sizes, public workloads."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given

from balance import Cluster, CostGraph, Device, Tensor, solve
from balance.cut import cp_sat as wing
from balance.cut.cp_sat import CpSat, CutProgram
from balance.cut.tables import CutTables
from balance.engines import cp_sat as engine
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import fork_join
from balance.problems.model.cluster import Link
from tests.cut import agreement as shared
from tests.cut import oracle
from tests.cut.strategies import problems


def agree(problem, best, **limits):
    """Check that the solver of this file proves the value `best`."""
    shared.agree("cp_sat", problem, best, **limits)


@given(problems(most=7, contiguity="acyclic"))
def test_pipelines_equal_the_ideals(problem):
    """Prefix form and program over ideals, on graphs too large for enumeration."""
    shared.agree_with_ideals("cp_sat", problem)


@pytest.mark.parametrize("contiguity", ["convex", "none"])
def test_assignments_equal_enumeration(contiguity):
    """Assignment form and exhaustive enumeration, all parameters at random."""

    @given(problems(most=4, contiguity=contiguity))
    def run(problem):
        agree(problem, oracle.optimum(problem))

    run()


@given(problems(most=4))
def test_coarse_costs_bound_from_below(problem):
    """However coarse the units, the optimum of the model is no more than that of the problem."""
    best = oracle.optimum(problem)
    if math.isinf(best):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wing, "RESOLUTION", 3.0)
        outcome = CpSat().solve(problem, Run(threads=1))
    assert outcome.bound <= best + 1e-9
    assert not outcome.proved_infeasible


def chained(costs, devices=2, **more):
    """Return a problem of a chain with these costs and no communication."""
    tensors = [Tensor(v, (v + 1,)) for v in range(len(costs) - 1)]
    return CutProblem(graph=CostGraph(forward=costs, tensors=tensors, **more), cluster=Cluster.uniform(devices))


def test_rounding_is_as_small_as_promised():
    """Costs that no power of two divides: the model's own bound is within 1e-7 of the optimum, and below."""
    rng = np.random.default_rng(1)
    problem = chained((rng.random(60) / 3).tolist(), 3)
    best = solve(problem, solver="ideals").objective
    outcome = CpSat().solve(problem, Run(threads=1))
    assert best * (1 - 1e-7) <= outcome.bound <= best


def test_dyadic_costs_are_exact():
    """Whole and half seconds are not rounded."""
    outcome = CpSat().solve(chained([1.5, 2.0, 2.5, 1.0, 3.0]), Run(threads=1))
    assert outcome.bound == 6.0


@pytest.mark.parametrize("contiguity", ["acyclic", "none"])
def test_what_rounded_memory_lets_through_is_excluded(contiguity):
    """Bytes beyond 31 bits are rounded; a set of blocks that fits only then is refused, and the optimum is proved."""
    room = 2.0**40
    sizes = [room / 2 + 64, room / 2, room / 4, room / 4]  # the first two exceed the memory by 64 bytes of 2^40
    graph = CostGraph(
        forward=[1.0, 1.0, 4.0, 4.0], static_bytes=sizes, tensors=[Tensor(0, (1,), seconds=9.0), Tensor(1, (2, 3))]
    )
    cluster = Cluster([Device("device", room)] * 2, link=Link(0.0, math.inf))
    problem = CutProblem(graph=graph, cluster=cluster, contiguity=contiguity)
    agree(problem, oracle.optimum(problem))


@pytest.mark.parametrize("contiguity", ["acyclic", "none"])
def test_refused_sets_are_excluded_one_by_one(monkeypatch, contiguity):
    """With memory counted in two units, more than one model is solved; the last one's optimum is the problem's."""
    monkeypatch.setattr(wing, "BYTES", 2.0)
    solved = []
    whole = engine.solve_cp
    monkeypatch.setattr(engine, "solve_cp", lambda *a, **k: solved.append(a) or whole(*a, **k))
    tensors = [Tensor(v, (v + 1,), seconds=5.0) for v in range(3)]
    graph = CostGraph(forward=[1.0] * 4, static_bytes=[10.0, 30.0, 30.0, 10.0], tensors=tensors)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(3, memory_bytes=50.0), contiguity=contiguity)
    agree(problem, oracle.optimum(problem))
    assert len(solved) > 1


@given(problems(most=4))
def test_a_warm_start_loses_nothing(problem):
    """From its own optimum, with worse solutions cut off, the program proves the same value."""
    first = solve(problem, solver="cp_sat", threads=1)
    if first.solution is None:
        return
    agree(problem, first.objective, incumbent=first.solution)


def test_equal_devices_are_told_apart_around_pins():
    """Symmetry breaking does not move an operator off the device that it is pinned to."""
    graph = CostGraph(forward=[3.0, 1.0, 1.0, 2.0], pinned=[-1, 2, -1, -1])
    for contiguity in ("acyclic", "convex", "none"):
        problem = CutProblem(graph=graph, cluster=Cluster.uniform(3), contiguity=contiguity)
        result = solve(problem, solver="cp_sat", threads=1)
        assert (result.status, result.objective) == ("optimal", 3.0)
        assert result.problem.evaluate(result.solution).violations == ()


def test_one_thread_is_deterministic():
    """The same seed gives the same plan."""
    problem = CutProblem(graph=fork_join(branches=3, length=4, seed=2), cluster=Cluster.uniform(3, bandwidth=1e9))
    first, again = (solve(problem, solver="cp_sat", threads=1, seed=4) for _ in range(2))
    assert first.solution.to_json() == again.solution.to_json()


def test_huge_models_are_refused():
    """The refusal has numbers."""
    problem = CutProblem(graph=CostGraph(forward=np.ones(20_000)), cluster=Cluster.uniform(32), contiguity="none")
    assert "literals, more than" in CpSat().accepts(problem)


def test_extreme_costs_stay_within_the_sums():
    """Costs over twenty orders of magnitude, or none at all, are no overflow and no division by zero."""
    agree(chained([1e-12, 1e8, 1e-12, 1e8]), 1e8)
    agree(chained([0.0, 0.0, 0.0]), 0.0)
    agree(chained([1e-200, 1e-200]), 1e-200)
    program = CutProgram(CutTables(chained([1e-9, 1e9])))
    assert program.largest <= wing.SUM * 2


def test_limits_are_honest():
    """A limit on a hard problem leaves a solution, a bound below it and the reason."""
    rng = np.random.default_rng(3)
    graph = CostGraph(forward=rng.random(60).tolist())
    result = solve(
        CutProblem(graph=graph, cluster=Cluster.uniform(7), contiguity="none"), solver="cp_sat", threads=1, time_limit=1
    )
    assert (result.status, result.stop_reason) == ("feasible", "time_limit")
    assert result.bound < result.objective


@pytest.mark.parametrize(
    ("name", "contiguity", "optimum"),
    [
        ("layer/bert24_training", "acyclic", 41.7458125),
        ("operator/bert_l-3_inference", "acyclic", 27.9185677),
        ("operator/bert_l-3_inference", "none", 21.9083761),
    ],
)
def test_published_workloads(workloads, name, contiguity, optimum):
    """Optima of the published cost model, in milliseconds; the last one was proved by HiGHS and CP-SAT."""
    from balance.problems.formats import read

    instance = read(workloads / "device-placement" / "throughput" / f"{name}.json")
    preset = CutProblem.presets["device-placement-2020"]
    problem = CutProblem(graph=instance.graph, cluster=instance.cluster, **preset)
    problem = dataclasses.replace(problem, contiguity=contiguity)
    result = solve(problem, solver="cp_sat", time_limit=120)
    assert result.status == "optimal"
    assert result.objective * 1e3 == pytest.approx(optimum, rel=1e-7)
