"""One factory for each problem: instances that the conformance tests ask every solver of the problem.

A new problem adds its factory here; `test_every_problem_has_a_factory` demands it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from balance.problems.chain import ChainProblem
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import layered_dag
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.problem import Problem
from balance.problems.model.tensors import Tensor


@dataclass(frozen=True)
class Case:
    """One instance.

    Parameters
    ----------
    name
        Label of the test.
    problem
        The instance.
    solution
        Some solution of it, not the best; None for an infeasible instance.
    says
        For an infeasible instance: what its reasons must name, such as the operator and the device.
    """

    name: str
    problem: Problem
    solution: Any = None
    says: tuple[str, ...] = ()


@dataclass(frozen=True)
class Factory:
    """The instances of one problem.

    Parameters
    ----------
    feasible
        Makes small instances with a solution; together every solver must accept at least one.
    infeasible
        Makes small instances without one; operators and devices have names.
    hard
        Makes an instance that takes a search a while, for limits and interruption; the solver decides if it accepts it.
    """

    feasible: Callable[[], list[Case]]
    infeasible: Callable[[], list[Case]]
    hard: Callable[[], Case]


LINK = Link(latency=1e-5, bandwidth=1e10)


def _layers(n: int, seed: int, **tables: Any) -> CostGraph:
    rng = np.random.default_rng(seed)
    forward = rng.uniform(1e-3, 4e-3, n)
    return CostGraph.chain(forward, backward=2 * forward, names=[f"layer{i}" for i in range(n)], **tables)


def _chain_feasible() -> list[Case]:
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


def _chain_infeasible() -> list[Case]:
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


def _chain_hard() -> Case:
    graph = _layers(14, 5, bytes=2e7, parameter_bytes=1e8, activation_bytes=2e7)
    speeds = np.random.default_rng(6).uniform(0.5, 2.0, 5)
    cluster = Cluster([Device(speed=float(s), memory_bytes=2e9) for s in speeds], link=LINK)
    return Case("hard", ChainProblem(graph=graph, cluster=cluster, device_order="free", recompute="choose"))


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


def _cut_feasible() -> list[Case]:
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


def _cut_infeasible() -> list[Case]:
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


def _cut_hard() -> Case:
    graph = layered_dag(operators=60, layers=6, fan_in=3, seed=7)
    return Case("hard", CutProblem(graph=graph, cluster=Cluster.uniform(5, bandwidth=1e10)))


FACTORIES: dict[str, Factory] = {
    "chain": Factory(_chain_feasible, _chain_infeasible, _chain_hard),
    "cut": Factory(_cut_feasible, _cut_infeasible, _cut_hard),
}
