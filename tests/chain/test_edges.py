"""Cases that random small chains hardly ever reach, each with its answer worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from balance import ProblemError, simulate, solve
from balance.chain.reasons import reasons
from balance.limits import Run
from balance.pareto import sweep
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import Tensor

INTERLEAVED = {"chunks": 2, "schedule": "interleaved-1f1b"}


def test_a_search_that_is_cut_short_proves_nothing():
    """The forward search returns None when the run stops inside it; the better division it missed keeps its bound."""
    run = Run()
    calls = []

    def search(mode, most_forward, most_backward):
        calls.append(mode)
        if len(calls) == 4:
            run.interrupt()
            return None
        return {1: 1.0, 2: 2.0 if len(calls) == 1 else 9.0}[mode], "division"

    assert sweep(search, run) == (10.0, 3.0, "division")


def test_a_backward_search_that_is_cut_short_is_no_error():
    """The same one search earlier: there is no division yet."""
    run = Run()

    def search(mode, most_forward, most_backward):
        if most_forward < math.inf:
            run.interrupt()
            return None
        return 1.0, "division"

    assert sweep(search, run) is None


@pytest.mark.parametrize("stages", [1, 3])
def test_stages_that_do_not_go_round_break_a_rule(stages):
    """Fewer stages than chunks, or a number that chunks do not divide."""
    problem = ChainProblem(graph=CostGraph.chain([1.0] * 4), cluster=Cluster.uniform(4), **INTERLEAVED)
    found = problem.evaluate(Plan.chain([*range(stages), 4]))
    assert [v.rule for v in found.violations] == ["devices"]


def test_round_sizes_that_the_schedule_refuses():
    """Nine micro-batches go round over one or three devices, not over two or four."""
    graph = CostGraph.chain([1.0] * 8, backward=[2.0] * 8)
    problem = ChainProblem(graph=graph, cluster=Cluster.uniform(4), microbatches=9, **INTERLEAVED)
    found = problem.evaluate(Plan.chain(range(9), [0, 1, 2, 3] * 2))
    assert [v.rule for v in found.violations] == ["schedule"]
    result = solve(problem)
    assert (result.status, result.objective, len(set(result.solution.devices))) == ("optimal", 9.0, 3)
    result = solve(ChainProblem(graph=graph, cluster=Cluster.uniform(4), microbatches=9, idle=False, **INTERLEAVED))
    assert result.status == "infeasible"
    assert "9 micro-batches" in str(result.reasons[0])


def test_direct_transfers_between_stages_of_one_device_are_free():
    """Stages 0 and 2 share device 0, so the eight bytes between them go over no link."""
    tensors = [Tensor(v, (v + 1,)) for v in range(3)] + [Tensor(0, (2,), bytes=8.0)]
    graph = CostGraph(forward=[1.0] * 4, tensors=tensors)
    cluster = Cluster.uniform(2, bandwidth=1.0)
    problem = ChainProblem(graph=graph, cluster=cluster, routing="direct", send="once", idle=False, **INTERLEAVED)
    assert problem.evaluate(Plan.chain(range(5), [0, 1, 0, 1])).objective == 2.0
    assert solve(problem, solver="milp").objective == 2.0


def test_the_chosen_configuration_is_in_the_plan():
    """Every program writes the problem's column of the cost tables into its stages."""
    graph = CostGraph.chain([[[1.0, 2.0], [3.0, 5.0]]], configurations=[Configuration(), Configuration(2)])
    problem = ChainProblem(graph=graph, cluster=Cluster.uniform(2), configuration=1)
    for solver in ("bisection", "threshold", "intervals", "counts", "milp"):
        result = solve(problem, solver=solver)
        assert (result.status, result.objective) == ("optimal", 5.0)
        assert [stage.configuration for stage in result.solution.stages] == [1, 1]


def test_a_kind_without_a_backward_time_hosts_nothing():
    """The evaluator says so too, not only the programs."""
    graph = CostGraph.chain({"a": [1.0, 1.0], "b": [1.0, 1.0]}, backward={"a": [1.0, 1.0]})
    found = ChainProblem(graph=graph, cluster=Cluster([Device("a"), Device("b")])).evaluate(Plan.chain([0, 1, 2]))
    assert [(v.rule, v.operator) for v in found.violations] == [("kind", 1)]
    result = solve(ChainProblem(graph=graph, cluster=Cluster([Device("b")])))
    assert "runs on a" in str(result.reasons[0])
    assert "a, b" not in str(result.reasons[0])


@pytest.mark.parametrize(
    ("problem", "rule", "words"),
    [
        (
            ChainProblem(
                graph=CostGraph.chain({"a": [np.inf, 1.0], "b": [1.0, np.inf]}),
                cluster=Cluster([Device("a"), Device("b")]),
            ),
            "devices",
            "in given order",
        ),
        (
            ChainProblem(graph=CostGraph.chain([1.0] * 3), cluster=Cluster.uniform(2), idle=False, **INTERLEAVED),
            "idle",
            "2 stages each",
        ),
        (
            ChainProblem(graph=CostGraph.chain([1.0]), cluster=Cluster.uniform(2), **INTERLEAVED),
            "devices",
            "fewer chunks",
        ),
    ],
)
def test_reasons_do_not_blame_memory_that_is_there(problem, rule, words):
    """No limit on memory, so no reason speaks of zero bytes."""
    result = solve(problem)
    assert result.status == "infeasible"
    assert [reason.rule for reason in reasons(problem)] == [rule]
    assert words in str(result.reasons[0])


@pytest.mark.parametrize(
    "bad", [{"microbatches": 1.5}, {"microbatches": 0}, {"in_flight": ("a",)}, {"in_flight": (1.7,)}, {"in_flight": ()}]
)
def test_counts_are_whole_numbers(bad):
    """Fractions are refused, not cut off."""
    with pytest.raises(ProblemError, match=next(iter(bad))):
        ChainProblem(graph=CostGraph.chain([1.0]), cluster=Cluster.uniform(1), **bad)


def test_a_graph_without_operators_is_no_problem():
    """There is no stage that could be made of nothing."""
    with pytest.raises(ProblemError, match="no operators"):
        ChainProblem(graph=CostGraph(forward=[]), cluster=Cluster.uniform(1))


def test_gradients_take_the_way_back():
    """Links that differ by direction: 1 s forth, 8 s back; evaluator, solvers and simulator agree."""
    graph = CostGraph.chain([1.0, 1.0], backward=[1.0, 1.0], bytes=[8.0])
    cluster = Cluster(
        [Device("device"), Device("device")],
        latency=np.zeros((2, 2)),
        bandwidth=np.array([[np.inf, 8.0], [1.0, np.inf]]),
    )
    problem = ChainProblem(graph=graph, cluster=cluster, idle=False)
    plan = Plan.chain([0, 1, 2], microbatches=1)
    assert problem.evaluate(plan).objective == 1 + 1 + 1 + 8
    for solver in ("intervals", "milp"):
        assert solve(problem, solver=solver).objective == pytest.approx(11.0)
    # One micro-batch: forward, 1 s over, forward, backward, 8 s back, backward.
    assert simulate(plan, graph, cluster).step_time == 4 + 1 + 8
