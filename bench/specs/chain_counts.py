"""Bench spec: the chain problem with devices of few kinds in free order."""

from __future__ import annotations

import numpy as np

from balance import Result, solve
from balance.bench.oracles import TOLERANCE, counts_reach_end, plan_bottleneck
from balance.bench.spec import Spec, Target
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph

_SPEEDS = (1.0, 1.7, 3.1)
_HOP = 2e-4  # seconds to cross any boundary


def _prepare(operators: int, devices: int) -> ChainProblem:
    seconds = np.random.default_rng(3).exponential(1e-3, operators)
    cluster = Cluster(
        [Device(speed=speed) for speed in _SPEEDS for _ in range(devices // len(_SPEEDS))],
        link=Link(latency=0.0, bandwidth=1e9),
    )
    return ChainProblem(graph=CostGraph.chain(seconds, bytes=_HOP * 1e9), cluster=cluster, device_order="free")


def _check(problem: ChainProblem, result: Result) -> None:
    seconds, speed = problem.graph.forward[0, 0], problem.cluster.speed
    prefix = np.concatenate(([0.0], np.cumsum(seconds)))
    boundary = np.full(len(prefix), _HOP)
    boundary[[0, -1]] = 0.0
    assert str(result.status) == "optimal", result.status
    assert result.objective is not None
    plan = plan_bottleneck(prefix, boundary, speed, result.solution)
    assert abs(plan - result.objective) <= TOLERANCE * plan, (plan, result.objective)
    counts = tuple(int((speed == rate).sum()) for rate in _SPEEDS)
    limit = result.objective * (1 - TOLERANCE)
    assert not counts_reach_end(prefix, _HOP, np.array(_SPEEDS), counts, limit), "a better division exists"


SPECS = (
    Spec(
        name="chain/counts",
        measures="500 operators with communication over 60 devices of 3 kinds in free order, solver `counts`",
        full={"operators": 500, "devices": 60},
        smoke={"operators": 40, "devices": 6},
        prepare=_prepare,
        run=lambda problem: solve(problem, solver="counts"),
        check=_check,
        target=Target(10.0),
    ),
)
