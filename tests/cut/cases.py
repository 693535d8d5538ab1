"""Instances of problem cut for the conformance tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import layered_dag
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import Tensor
from tests.conformance.case import Case, Factory

LINK = Link(latency=1e-5, bandwidth=1e10)


def _branches(seed: int, **tables: Any) -> CostGraph:
    """Return three branches of three operators between a stem and a head."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 4), (0, 7), *((a, a + 1) for a in (1, 2, 4, 5, 7, 8)), (3, 10), (6, 10), (9, 10)]
    readers: dict[int, list[int]] = {}
    for a, b in pairs:
        readers.setdefault(a, []).append(b)
    tensors = [Tensor(a, tuple(b), bytes=float(rng.uniform(1e6, 2e7))) for a, b in readers.items()]
    names = [f"layer{i}" for i in range(11)]
    return CostGraph(forward=rng.uniform(1e-3, 4e-3, 11), tensors=tensors, names=names, **tables)


def _feasible() -> list[Case]:
    three = Cluster([Device()] * 3, link=LINK)
    whole = Assignment([0] * 11)
    graph = _branches(1)
    training = _branches(2, backward=np.random.default_rng(3).uniform(2e-3, 8e-3, 11), parameter_bytes=1e8)
    kinds = CostGraph(
        forward={"gpu": [1.0, 2.0, 2.0, 1.0], "cpu": [9.0, 6.0, 8.0, 2.0]},
        tensors=[Tensor(0, (1, 2), seconds=0.5), Tensor(1, (3,), seconds=0.5), Tensor(2, (3,), seconds=0.5)],
    )
    mixed = Cluster([Device("gpu"), Device("gpu"), Device("cpu")])
    small = Cluster([Device(memory_bytes=6e8)] * 3, link=LINK)
    return [
        Case("branches", CutProblem(graph=graph, cluster=three), Plan.chain([0, 1, 11])),
        Case("convex", CutProblem(graph=graph, cluster=three, contiguity="convex"), whole),
        Case("free", CutProblem(graph=graph, cluster=three, contiguity="none"), whole),
        Case("memory", CutProblem(graph=training, cluster=small), Plan.chain([0, 4, 8, 11])),
        Case(
            "flush",
            CutProblem(graph=training, cluster=three, objective="fw-bw-bottleneck", overlap="max"),
            Plan.chain([0, 4, 8, 11]),
        ),
        Case("kinds", CutProblem(graph=kinds, cluster=mixed, free_kinds=("cpu",)), Plan.chain([0, 2, 4], [0, 1])),
    ]


def _infeasible() -> list[Case]:
    small = Cluster([Device(memory_bytes=1e9, name="left"), Device(memory_bytes=1e9, name="right")], link=LINK)
    large = _branches(4, parameter_bytes=np.where(np.arange(11) == 5, 9e9, 1e6))
    many = _branches(4, parameter_bytes=6e8)
    together = _branches(4, parameter_bytes=3e8, colocation=[None, "x", "x", "x", "x", *[None] * 6])
    kinds = CostGraph(forward={"gpu": [1.0, 1.0], "cpu": [1.0, np.inf]}, names=["matmul", "attention"])
    return [
        Case("operator", CutProblem(graph=large, cluster=small), says=("'layer5'", "'left'", "9e+09", "1e+09")),
        Case("total", CutProblem(graph=many, cluster=small), says=("6.6e+09", "2e+09")),
        Case("class", CutProblem(graph=together, cluster=small), says=("'layer1'", "3 that must stay", "1.2e+09")),
        Case("kind", CutProblem(graph=kinds, cluster=Cluster.uniform(2, kind="cpu")), says=("'attention'", "gpu")),
    ]


def _hard() -> Case:
    # Every exact solver ends on it, the slowest after a second or two.
    graph = layered_dag(operators=24, layers=4, fan_in=3, seed=7)
    return Case("hard", CutProblem(graph=graph, cluster=Cluster.uniform(3, bandwidth=1e10)))


FACTORY = Factory(_feasible, _infeasible, _hard)
