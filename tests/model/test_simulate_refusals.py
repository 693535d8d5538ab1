"""What the simulator refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import ClusterError, GraphError, OptionError, PlanError, ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import build_schedule

CHAIN = CostGraph.chain([1.0, 1.0, 1.0], backward=[1.0, 1.0, 1.0], bytes=1.0)
PLAN = Plan.chain([0, 1, 3], microbatches=2)
FAST = Cluster.uniform(2, bandwidth=1.0)


@pytest.mark.parametrize(
    ("plan", "cluster", "options", "error", "says"),
    [
        (PLAN, FAST, {"sends": "bufferd"}, OptionError, "did you mean 'buffered'"),
        (PLAN, FAST, {"backend": "torhc"}, OptionError, "did you mean 'torch'"),
        (PLAN, FAST, {"overhead": -1.0}, OptionError, "overhead"),
        (PLAN, FAST, {"state_factor": float("nan")}, OptionError, "state_factor"),
        (PLAN, Cluster.uniform(2), {}, ClusterError, "give bandwidth="),
        (PLAN, Cluster.uniform(1), {}, PlanError, "stage 1 is on device 1, but the cluster has 1"),
        (PLAN, Cluster.uniform(2, kind="gpu"), {}, GraphError, "gpu"),
        (PLAN.replace(schedule="1f1"), FAST, {}, OptionError, "did you mean '1f1b'"),
        (PLAN.replace(schedule=build_schedule("1f1b", 2, 3)), FAST, {}, ScheduleError, "2 stages and 3 micro-batches"),
        (PLAN.replace(schedule=build_schedule("gpipe", 2, 2, [1, 0])), FAST, {}, ScheduleError, "stage 0 on device 1"),
        (
            PLAN.replace(schedule=Schedule.from_rows([["0F0", "0F1", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])),
            FAST, {}, ScheduleError, "0B0 is missing",
        ),
        (
            PLAN.replace(schedule=Schedule.from_rows([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])),
            FAST, {}, ScheduleError, "deadlock: 0B0 waits for 1B0, which comes after 1F1",
        ),
        (Plan.chain([0, 1, 2]), FAST, {}, PlanError, "operator #2 is in no stage"),
        (Plan.chain([0, 1, 4]), FAST, {}, PlanError, "operator 3, but the graph has 3"),
        (Plan.chain([0, 1, 3], order=np.array([2, 0, 1])), FAST, {}, PlanError, "against the order of the stages"),
        (Plan((Stage([0, 1, 2], (Replica((0,)),), configuration=1),)), FAST, {}, PlanError, "configuration 1"),
        (
            Plan((Stage([0, 1], (Replica((0,)),), evict_to=1), Stage([2], (Replica((1,)),)))),
            FAST, {}, PlanError, "evict",
        ),
        (
            Plan((Stage([0, 1], (Replica((0, 1)),)), Stage([2], (Replica((1,)),)))),
            FAST, {}, PlanError, "share device 1 but not all",
        ),
    ],
)  # fmt: skip
def test_refusals(plan: Plan, cluster: Cluster, options: dict[str, Any], error: type[Exception], says: str) -> None:
    """Each mistake is explained."""
    with pytest.raises(error, match=says):
        simulate(plan, CHAIN, cluster, **options)


def test_evictions_are_refused() -> None:
    """A schedule may hold evictions; the simulator says that it does not play them."""
    schedule = Schedule.from_rows([["0F0", "0E0", "0L0", "0B0"]])
    graph = CostGraph.chain([1.0], backward=[1.0])
    with pytest.raises(ScheduleError, match="does not play evictions"):
        simulate(Plan.chain([0, 1], schedule=schedule), graph, Cluster.uniform(1))


def test_unhosted_operator_is_named() -> None:
    """The message has operator, stage, device and kind."""
    graph = CostGraph(forward={"a": [1.0, 1.0], "b": [1.0, np.inf]}, backward={"a": [1.0, 1.0], "b": [1.0, np.inf]})
    cluster = Cluster([Device("a"), Device("b")])
    with pytest.raises(PlanError, match="operator #1 of stage 1 cannot run on device 1, which is of kind 'b'"):
        simulate(Plan.chain([0, 1, 2]), graph, cluster)


def test_rendezvous_deadlock_says_what_to_do() -> None:
    """Interleaved devices can send to each other at once: buffered sends run, rendezvous hangs."""
    graph = CostGraph.chain(np.ones(4), backward=np.ones(4), seconds=1.0)
    plan = Plan.chain(range(5), [0, 1, 0, 1], microbatches=4, schedule="interleaved-1f1b")
    assert simulate(plan, graph, Cluster.uniform(2)).step_time > 16
    with pytest.raises(ScheduleError, match="sends='buffered' may run it") as caught:
        simulate(plan, graph, Cluster.uniform(2), sends="rendezvous")
    assert caught.value.facts["cycle"] == ("0F3", "1F2")
