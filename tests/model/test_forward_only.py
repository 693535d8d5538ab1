"""One rule for schedules without a backward pass: problem, simulator, memory formula and solvers agree on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import solve
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.simulate import simulate
from balance.problems.model.timeline import Timeline
from tests.chain.strategies import graphs, operator_graphs

LAYERS = CostGraph.chain(
    [1.0, 1.0, 4.0],
    backward=[9.0, 1.0, 1.0],
    bytes=2.0,
    gradient_bytes=64.0,
    activation_bytes=8.0,
    parameter_bytes=16.0,
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ChainProblem, Plan]:
    """Draw a chain, mostly one for training, planned without a backward pass, and any division of it."""
    graph = draw(graphs(most=6, kinds=("a",)) | operator_graphs(most=4))
    speeds = draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=1, max_size=4))
    link = Link(draw(st.sampled_from([0.0, 0.25])), draw(st.sampled_from([1.0, 2.0])))
    problem = ChainProblem(
        graph=graph,
        cluster=Cluster([Device("a", speed=speed) for speed in speeds], link=link),
        schedule="forward-only",
        microbatches=draw(st.integers(1, 5)),
        overlap=draw(st.sampled_from(["sum", "max"])),
        recompute=draw(st.sampled_from(["never", "always", "choose"])),
        state_factor=draw(st.sampled_from([1.0, 4.0])),
        backend=draw(st.sampled_from(["none", "torch"])),
    )
    position, items = problem.linearisation.position, problem.linearisation.n_items
    stages = draw(st.integers(1, min(items, len(speeds))))
    inner = draw(st.permutations(range(1, items)))[: stages - 1]
    ends = [0, *(int((position < cut).sum()) for cut in sorted(inner)), graph.n_operators]
    plan = Plan.chain(
        ends,
        order=problem.linearisation.order,
        recompute=draw(st.lists(st.booleans(), min_size=stages, max_size=stages)),
        microbatches=problem.microbatches,
        schedule="forward-only",
    )
    return problem, plan


def run(problem: ChainProblem, plan: Plan, **changes: Any) -> Timeline:
    """Simulate a plan of a problem with the problem's own memory options."""
    return simulate(
        plan.replace(**changes),
        problem.graph,
        problem.cluster,
        state_factor=problem.state_factor,
        backend=problem.backend,
    )


@given(cases())
def test_bottleneck_is_the_steady_state_of_the_simulator(case: tuple[ChainProblem, Plan]) -> None:
    """Overlapping, it is what one more micro-batch adds to the step; added up, the busiest device's share of one."""
    problem, plan = case
    found = problem.evaluate(plan)
    assert found.feasible
    timeline = run(problem, plan)
    assert not timeline.schedule.training
    count = plan.microbatches
    if problem.overlap == "max":
        longer = run(problem, plan, microbatches=count + 1)
        assert longer.step_time - timeline.step_time == pytest.approx(found.objective, abs=1e-9)
    else:
        seconds = timeline.busy.copy()
        moved = timeline.transfers
        for ends in (moved.source, moved.target):
            np.add.at(seconds, ends, moved.end - moved.start)
        assert seconds.max() / count == pytest.approx(found.objective, abs=1e-9)
    needed = found.breakdown["memory"]
    np.testing.assert_allclose(timeline.peak_memory[: len(needed)], needed, rtol=1e-12)


def test_by_hand() -> None:
    """Backward seconds, gradients, their buffers and recomputation are not there; the state factor is."""
    problem = ChainProblem(
        graph=LAYERS,
        cluster=Cluster.uniform(2, bandwidth=2.0),
        schedule="forward-only",
        microbatches=3,
        backend="torch",
        state_factor=4.0,
        recompute="always",
    )
    assert problem.recompute == "never"
    found = problem.evaluate(Plan.chain([0, 2, 3], recompute=[True, False]))
    assert found.feasible
    assert found.objective == 1 + 4
    assert found.breakdown["backward"].tolist() == [0, 0]
    assert found.breakdown["sent"].tolist() == [1, 0]
    assert found.breakdown["in_flight"].tolist() == [1, 1]
    assert found.breakdown["memory"].tolist() == [4 * 32 + 16, 4 * 16 + 8 + 3 * 2]


@pytest.mark.parametrize("solver", ["threshold", "intervals", "milp"])
def test_solvers_leave_the_backward_pass_out(solver: str) -> None:
    """The backward seconds would ask for another cut."""
    forward = ChainProblem(graph=LAYERS, cluster=Cluster.uniform(2, bandwidth=2.0), schedule="forward-only")
    result = solve(forward, solver=solver)
    assert (result.objective, [len(stage.operators) for stage in result.solution.stages]) == (5.0, [2, 1])
    assert result.solution.schedule == "forward-only"


def test_gradients_alone_need_no_link() -> None:
    """Without a backward pass they are not sent, so no speed has to be known."""
    graph = CostGraph.chain([1.0, 1.0], backward=[1.0, 1.0], gradient_bytes=[8.0])
    problem = ChainProblem(graph=graph, cluster=Cluster.uniform(2), schedule="forward-only")
    assert not problem.communicates
    assert solve(problem, solver="bisection").objective == 1.0
