"""The chain problem as it is stated: what its schedule can run, and figures that fit the plans it is answered with."""

from __future__ import annotations

import dataclasses

import pytest

from balance import simulate, solve
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan

GRAPH = CostGraph.chain([1.0] * 8, backward=[2.0] * 8, activation_bytes=5.0)


@pytest.mark.parametrize(
    "change", [{"in_flight": (2, 1)}, {"graph": CostGraph.chain([1.0] * 8)}], ids=["given", "none"]
)
def test_rounds_are_checked_whatever_is_in_flight(change: dict[str, object]) -> None:
    """Nine micro-batches do not go round over two devices, with counts given or nothing kept in flight at all."""
    stated = ChainProblem(
        graph=GRAPH, cluster=Cluster.uniform(2), schedule="interleaved-1f1b", chunks=2, microbatches=9, idle=False
    )
    problem = dataclasses.replace(stated, **change)  # type: ignore[arg-type]
    plan = Plan.chain([0, 2, 4, 6, 8], [0, 1, 0, 1], microbatches=9, schedule="interleaved-1f1b")
    assert [v.rule for v in problem.evaluate(plan).violations] == ["schedule"]
    assert solve(problem).status == "infeasible"
    with pytest.raises(ScheduleError, match="rounds"):
        simulate(plan, problem.graph, problem.cluster)
    fitting = dataclasses.replace(problem, microbatches=8)
    assert fitting.evaluate(plan.replace(microbatches=8)).feasible


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "forward-only"])
@pytest.mark.parametrize("microbatches", [None, 3])
def test_reported_memory_is_that_of_the_returned_plan(schedule: str, microbatches: int | None) -> None:
    """Left open, there are twice as many micro-batches as stages, in the plan and in the figures about it."""
    problem = ChainProblem(graph=GRAPH, cluster=Cluster.uniform(4), schedule=schedule, microbatches=microbatches)
    plan = solve(problem).solution
    assert plan.microbatches == problem.step_microbatches(plan.n_stages) == (microbatches or 8)
    timeline = simulate(plan, problem.graph, problem.cluster)
    found = problem.evaluate(plan).breakdown
    assert found["in_flight"].tolist() == timeline.schedule.peak_in_flight().tolist()
    assert found["memory"].tolist() == timeline.peak_memory.tolist()


def test_gpipe_asks_for_micro_batches_only_where_they_count() -> None:
    """Under a memory limit, an inference graph keeps one micro-batch whatever their number."""
    small = Cluster.uniform(2, memory_bytes=20.0)
    problem = ChainProblem(graph=CostGraph.chain([1.0] * 4, activation_bytes=5.0), cluster=small, schedule="gpipe")
    assert solve(problem).objective == 2.0
