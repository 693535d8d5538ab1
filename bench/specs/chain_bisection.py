"""Bench spec: the chain problem without communication, a million operators."""

from __future__ import annotations

import numpy as np

from balance import Result, solve
from balance.bench.oracles import TOLERANCE, greedy_reaches_end, plan_bottleneck
from balance.bench.spec import Spec, Target
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import CostGraph


def _prepare(operators: int, devices: int) -> ChainProblem:
    seconds = np.random.default_rng(0).exponential(1e-3, operators)
    return ChainProblem(graph=CostGraph.chain(seconds), cluster=Cluster.uniform(devices))


def _check(problem: ChainProblem, result: Result) -> None:
    seconds = problem.graph.forward[0, 0]
    prefix = np.concatenate(([0.0], np.cumsum(seconds)))
    devices = problem.cluster.n_devices
    assert str(result.status) == "optimal", result.status
    assert result.objective is not None
    plan = plan_bottleneck(prefix, np.zeros(len(prefix)), np.ones(devices), result.solution)
    assert abs(plan - result.objective) <= TOLERANCE * plan, (plan, result.objective)
    assert not greedy_reaches_end(prefix, devices, result.objective * (1 - TOLERANCE)), "a better division exists"


SPECS = (
    Spec(
        name="chain/bisection",
        measures="`solve(problem)` on a built chain of 10^6 unnamed operators over 1,000 equal devices",
        full={"operators": 1_000_000, "devices": 1_000},
        smoke={"operators": 2_000, "devices": 16},
        prepare=_prepare,
        run=solve,
        check=_check,
        target=Target(0.5),
        repeats=5,
    ),
)
