"""Where the simulator takes its seconds from: kinds, configurations, replicas, measurements."""

from __future__ import annotations

import numpy as np
import pytest

from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import OptionError, PlanError, ScheduleError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import build_schedule


def test_worked_layer_graph(layers: CostGraph) -> None:
    """What skips stages goes through the stages between: boundary 1 carries 6 + 4 bytes, boundary 2 carries 6 + 2."""
    plan = Plan.chain([0, 2, 3, 4], microbatches=1, schedule="gpipe")
    timeline = simulate(plan, layers, Cluster.uniform(3, latency=1.0, bandwidth=2.0))
    # Two tensors cross each boundary, and each pays the latency.
    assert timeline.transfers.bytes.tolist() == [10, 8, 10, 7]
    assert (timeline.transfers.end - timeline.transfers.start).tolist() == [2 + 5, 2 + 4, 2 + 5, 2 + 3.5]
    assert timeline.step_time == (3 + 3 + 2) + 13 + (4 + 6 + 6) + 12.5


def test_worked_operator_graph(operators: CostGraph) -> None:
    """Operators of the backward pass make the backward time of their stage."""
    plan = Plan.chain([0, 2, 4], order=np.array([0, 3, 1, 2]), microbatches=1)
    timeline = simulate(plan, operators, Cluster.uniform(2, bandwidth=4.0))
    assert timeline.step_time == 1 + 2 + 2 + 4 + 2 + 2
    assert timeline.peak_memory.tolist() == [100, 200]


def test_kinds_speeds_configurations_and_recomputation() -> None:
    """Each stage takes the row of its device's kind and the columns of its configurations."""
    graph = CostGraph(
        forward={"slow": [[4.0, 8.0, 8.0], [2.0, 4.0, 4.0]], "fast": [[1.0, 2.0, 3.0], [3.0, 5.0, 5.0]]},
        backward={"slow": [[8.0, 8.0, 8.0], [4.0, 4.0, 4.0]], "fast": [[2.0, 3.0, 2.0], [6.0, 6.0, 6.0]]},
        configurations=[Configuration(), Configuration(2)],
    )
    cluster = Cluster([Device("fast", speed=2.0), Device("slow")])
    stages = (
        Stage([0], (Replica((1,)),), configuration=1),
        Stage([1, 2], (Replica((0,)),), configuration=np.array([0, 1]), recompute=True),
    )
    timeline = simulate(Plan(stages, microbatches=1), graph, cluster)
    seconds = {str(a): end - start for d in range(2) for a, start, end in timeline.actions(d)}
    assert seconds == {"0F0": 2.0, "0B0": 4.0, "1F0": (2 + 5) / 2, "1B0": (3 + 6 + 2 + 5) / 2}


def test_replicas_share_the_work() -> None:
    """A stage is as slow as its slowest replica, and its messages as slow as its slowest pair of devices."""
    graph = CostGraph.chain([8.0, 8.0], backward=[8.0, 8.0], bytes=10.0)
    stages = (Stage([0], (Replica((0,), 0.25), Replica((1,), 0.75))), Stage([1], (Replica((2, 3)),)))
    devices = [Device(speed=1.0), Device(speed=2.0), Device(), Device(speed=0.5)]
    bandwidth = np.full((4, 4), 10.0)
    bandwidth[1, 3] = 5.0
    cluster = Cluster.from_matrix(devices, latency=np.zeros((4, 4)), bandwidth=bandwidth)
    timeline = simulate(Plan(stages, microbatches=1), graph, cluster)
    assert timeline.step_time == 3 + 2 + 16 + 16 + 1 + 3
    assert timeline.leader.tolist() == [0, 0, 2, 2]
    assert timeline.busy.tolist() == [6, 6, 32, 32]
    assert timeline.bubble_fraction == pytest.approx(1 - 76 / 4 / 41)


def test_durations_by_stage_or_by_action() -> None:
    """Measured seconds take the place of the graph's."""
    graph = CostGraph.chain([9.0, 9.0], backward=[9.0, 9.0])
    plan = Plan.chain([0, 1, 2], microbatches=2)
    cluster = Cluster.uniform(2)
    assert simulate(plan, graph, cluster, durations=[[1, 2], [1, 2]]).step_time == 9.0
    each = [1, 1, 2, 2, 1, 2, 1, 2]
    assert simulate(plan, graph, cluster, durations=each).step_time == 9.0
    assert simulate(plan, graph, cluster, durations=[1, 1, 2, 2, 1, 2, 1, 4]).step_time == 11.0
    assert simulate(plan, graph, cluster, durations=[[1], [1]], training=False).step_time == 3.0
    for wrong, says in (([[1], [1]], "shape"), ([1, 2], "shape"), ([[1, -1], [1, 1]], "negative"), ("x", "numbers")):
        with pytest.raises(OptionError, match=says):
            simulate(plan, graph, cluster, durations=wrong)


def test_split_backward() -> None:
    """Input and weight gradients take the times that the graph gives for them; without them it is an error."""
    schedule = Schedule.from_rows(
        [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"]]
    )
    plan = Plan.chain([0, 1, 2], microbatches=2, schedule=schedule)
    graph = CostGraph.chain(np.ones(2), backward=np.full(2, 2.0), backward_input=np.ones(2), backward_weight=np.ones(2))
    assert simulate(plan, graph, Cluster.uniform(2)).step_time == 7.0
    with pytest.raises(PlanError, match="give backward_input="):
        simulate(plan, graph.replace(backward_input=None), Cluster.uniform(2))


def test_style_decides_whether_there_is_a_backward_pass() -> None:
    """Inference graphs run forward only, and `training` overrides it."""
    graph = CostGraph.chain([1.0, 1.0], bytes=4.0, backward=0.0)
    plan = Plan.chain([0, 1, 2], microbatches=3)
    cluster = Cluster.uniform(2, bandwidth=4.0)
    assert simulate(plan, graph, cluster).step_time == 5.0
    layers = graph.replace(backward=[1.0, 1.0])
    assert simulate(plan, layers, cluster, training=False).step_time == 5.0
    assert not simulate(plan.replace(schedule="forward-only"), layers, cluster).schedule.training
    with pytest.raises(ScheduleError, match="training=False, but the schedule has backward"):
        simulate(plan.replace(schedule=build_schedule("1f1b", 2, 3)), layers, cluster, training=False)
