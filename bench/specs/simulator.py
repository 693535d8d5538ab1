"""Bench specs: the simulator on large pipelines."""

from __future__ import annotations

import numpy as np

from balance.bench.spec import Spec, Target
from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.simulate import simulate
from balance.problems.model.timeline import Timeline

Input = tuple[Plan, CostGraph, Cluster]


def _prepare(stages: int, microbatches: int) -> Input:
    graph = CostGraph.chain(np.full(stages, 1.0), backward=np.full(stages, 2.0))
    plan = Plan.chain(list(range(stages + 1)), microbatches=microbatches, microbatch_size=1.0, schedule="1f1b")
    return plan, graph, Cluster.uniform(stages)


def _check(state: Input, timeline: Timeline) -> None:
    plan = state[0]
    # Equal stages and free communication: one sweep down and up, and the remaining micro-batches one after another.
    expected = 3.0 * (plan.microbatches + plan.n_stages - 1)
    assert abs(timeline.step_time - expected) <= 1e-9 * expected, (timeline.step_time, expected)


SPECS = (
    Spec(
        name="model/simulate",
        measures="simulating 1F1B with 64 stages and 1,024 micro-batches (131,072 actions)",
        full={"stages": 64, "microbatches": 1_024},
        smoke={"stages": 4, "microbatches": 16},
        prepare=_prepare,
        run=lambda state: simulate(*state),
        check=_check,
    ),
    Spec(
        name="model/simulate-memory",
        measures="peak memory while 1F1B with 64 stages and 200,000 micro-batches (25.6 million actions) is simulated",
        full={"stages": 64, "microbatches": 200_000},
        smoke={"stages": 4, "microbatches": 16},
        prepare=_prepare,
        run=lambda state: simulate(*state),
        check=_check,
        unit="bytes",
        target=Target(2e9, "bytes"),
    ),
)
