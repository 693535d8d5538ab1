"""Instances of problem chain for the conformance tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from tests.conformance.case import Case, Factory

LINK = Link(latency=1e-5, bandwidth=1e10)


def _layers(n: int, seed: int, **tables: Any) -> CostGraph:
    rng = np.random.default_rng(seed)
    forward = rng.uniform(1e-3, 4e-3, n)
    return CostGraph.chain(forward, backward=2 * forward, names=[f"layer{i}" for i in range(n)], **tables)


def _feasible() -> list[Case]:
    silent = CostGraph.chain(np.random.default_rng(1).uniform(1.0, 5.0, 10))
    sending = _layers(9, 2, bytes=2e7)
    heavy = _layers(8, 3, bytes=1e7, parameter_bytes=1e8, activation_bytes=2e7)
    mixed = Cluster([Device(speed=1.0), Device(speed=2.0), Device(speed=1.0)], link=LINK)
    return [
        Case("silent", ChainProblem(graph=silent, cluster=Cluster.uniform(3)), Plan.chain([0, 1, 2, 10])),
        Case("sending", ChainProblem(graph=sending, cluster=Cluster([Device()] * 3, link=LINK)), Plan.chain([0, 8, 9])),
        Case(
            "memory",
            ChainProblem(graph=heavy, cluster=Cluster([Device(memory_bytes=6e8)] * 3, link=LINK)),
            Plan.chain([0, 2, 5, 8]),
        ),
        Case("ordered", ChainProblem(graph=sending, cluster=mixed), Plan.chain([0, 1, 2, 9])),
        Case("free", ChainProblem(graph=sending, cluster=mixed, device_order="free"), Plan.chain([0, 8, 9], [2, 0])),
        Case(
            "flush",
            ChainProblem(graph=sending, cluster=mixed, device_order="free", objective="fw-bw-bottleneck"),
            Plan.chain([0, 8, 9]),
        ),
    ]


def _infeasible() -> list[Case]:
    names = [f"layer{i}" for i in range(4)]
    large = CostGraph.chain([1.0, 1.0, 1.0, 1.0], parameter_bytes=[1e8, 9e9, 1e8, 1e8], names=names)
    many = CostGraph.chain([1.0, 1.0, 1.0, 1.0], parameter_bytes=6e8, names=names)
    small = Cluster([Device(memory_bytes=1e9, name="left"), Device(memory_bytes=1e9, name="right")], link=LINK)
    kinds = CostGraph.chain({"gpu": [1.0, 1.0], "cpu": [1.0, np.inf]}, names=["matmul", "attention"])
    return [
        Case("operator", ChainProblem(graph=large, cluster=small), says=("'layer1'", "'left'", "9e+09", "1e+09")),
        Case("total", ChainProblem(graph=many, cluster=small), says=("2.4e+09", "2e+09")),
        Case(
            "kind",
            ChainProblem(graph=kinds, cluster=Cluster.uniform(2, kind="cpu")),
            says=("'attention'", "cpu", "gpu"),
        ),
    ]


def _hard() -> Case:
    graph = _layers(14, 5, bytes=2e7, parameter_bytes=1e8, activation_bytes=2e7)
    speeds = np.random.default_rng(6).uniform(0.5, 2.0, 5)
    cluster = Cluster([Device(speed=float(s), memory_bytes=2e9) for s in speeds], link=LINK)
    return Case("hard", ChainProblem(graph=graph, cluster=cluster, device_order="free", recompute="choose"))


FACTORY = Factory(_feasible, _infeasible, _hard)
