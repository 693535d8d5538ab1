"""Bench specs: the chain problem with communication at the boundaries."""

from __future__ import annotations

import numpy as np

from balance import Result, solve
from balance.bench.oracles import TOLERANCE, FloatArray, fewest_devices, order_reaches_end, plan_bottleneck
from balance.bench.spec import Spec, Target
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph

_LINK = Link(latency=2e-5, bandwidth=1e9)


def _numbers(operators: int) -> tuple[FloatArray, FloatArray]:
    """Seconds of the operators (n,) and bytes of the boundaries (n - 1,)."""
    rng = np.random.default_rng(1)
    return rng.exponential(1e-3, operators), rng.uniform(1e4, 2e6, operators - 1)


def _tables(operators: int) -> tuple[FloatArray, FloatArray]:
    seconds, sizes = _numbers(operators)
    boundary = np.zeros(operators + 1)
    boundary[1:-1] = _LINK.latency + sizes / _LINK.bandwidth
    return np.concatenate(([0.0], np.cumsum(seconds))), boundary


def _equal(operators: int, devices: int) -> ChainProblem:
    seconds, sizes = _numbers(operators)
    cluster = Cluster([Device()] * devices, link=_LINK)
    return ChainProblem(graph=CostGraph.chain(seconds, bytes=sizes), cluster=cluster)


def _different(operators: int, devices: int) -> ChainProblem:
    seconds, sizes = _numbers(operators)
    speeds = np.random.default_rng(2).uniform(0.5, 2.0, devices)
    cluster = Cluster([Device(speed=float(speed)) for speed in speeds], link=_LINK)
    return ChainProblem(graph=CostGraph.chain(seconds, bytes=sizes), cluster=cluster)


def _check(problem: ChainProblem, result: Result) -> None:
    speed = problem.cluster.speed
    prefix, boundary = _tables(problem.graph.n_operators)
    assert str(result.status) == "optimal", result.status
    assert result.objective is not None
    plan = plan_bottleneck(prefix, boundary, speed, result.solution)
    assert abs(plan - result.objective) <= TOLERANCE * plan, (plan, result.objective)
    limit = result.objective * (1 - TOLERANCE)
    if bool((speed == 1.0).all()):
        assert fewest_devices(prefix, boundary, limit) > len(speed), "a better division exists"
    else:
        assert not order_reaches_end(prefix, boundary, speed, limit), "a better division exists"


SPECS = (
    Spec(
        name="chain/threshold",
        measures="2,000 operators with communication over 64 equal devices, solver `threshold`",
        full={"operators": 2_000, "devices": 64},
        smoke={"operators": 100, "devices": 6},
        prepare=_equal,
        run=lambda problem: solve(problem, solver="threshold"),
        check=_check,
        target=Target(0.5),
        repeats=5,
    ),
    Spec(
        name="chain/intervals",
        measures="2,000 operators with communication over 64 different devices in a given order, solver `intervals`",
        full={"operators": 2_000, "devices": 64},
        smoke={"operators": 100, "devices": 6},
        prepare=_different,
        run=lambda problem: solve(problem, solver="intervals"),
        check=_check,
        target=Target(0.5),
        repeats=5,
    ),
)
