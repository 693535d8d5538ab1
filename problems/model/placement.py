"""Model room: which part of a solution every operator is in, and the rules of structure that a placement must keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from balance.problems.model.cluster import Cluster
from balance.problems.model.contraction import order_edges
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.problem import Violation
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import successor_rows


class Rules(Protocol):
    """What a problem asks of the structure of a placement."""

    @property
    def graph(self) -> CostGraph:
        """The graph that is placed."""

    @property
    def cluster(self) -> Cluster:
        """The devices."""

    @property
    def contiguity(self) -> str:
        """``"acyclic"``, ``"convex"`` or ``"none"``."""

    @property
    def configuration(self) -> int:
        """Column of the cost tables."""

    @property
    def max_stages(self) -> int | None:
        """Most devices that may be used."""

    @property
    def classes(self) -> IntArray:
        """Class of each operator; a class stays together."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A partition of the operators over devices.

    Parameters
    ----------
    part
        Part of each operator, shape (n,): its stage, or without an order of stages its rank among the used devices.
    devices
        Device of each part, shape (S,), all different.
    """

    part: IntArray
    devices: IntArray

    @property
    def parts(self) -> int:
        """Number of parts S."""
        return len(self.devices)


def read_placement(problem: Rules, solution: Any) -> tuple[Placement | None, list[Violation]]:
    """Return the placement behind a solution, None if nothing can be computed of it, and every broken rule.

    Parameters
    ----------
    problem
        The problem; with ``contiguity="acyclic"`` it takes a `Plan`, else an `Assignment` or a `Plan`.
    solution
        What a solver says.
    """
    ordered = problem.contiguity == "acyclic"
    if isinstance(solution, Plan):
        placement, faults = _from_plan(problem, solution)
    elif isinstance(solution, Assignment) and not ordered:
        placement, faults = _from_assignment(problem, solution)
    else:
        expected = "a Plan" if ordered else "an Assignment or a Plan"
        return None, [Violation("type", f"expected {expected}, got {type(solution).__name__}")]
    if placement is None:
        return None, faults
    limit = problem.max_stages
    if limit is not None and placement.parts > limit:
        faults.append(
            Violation("stages", f"{placement.parts} devices are used, at most {limit} may be", available=float(limit))
        )
    faults += _together(problem, placement)
    faults += _pinned(problem, placement)
    if ordered:
        faults += _reversed(problem, placement)
    elif problem.contiguity == "convex":
        faults += _split_paths(problem.graph, placement, problem.cluster.label)
    return placement, faults


def _from_plan(problem: Rules, plan: Plan) -> tuple[Placement | None, list[Violation]]:
    n, p = problem.graph.n_operators, problem.cluster.n_devices
    for s, stage in enumerate(plan.stages):
        if not len(stage.operators):
            return None, [Violation("empty", f"stage {s} has no operator", stage=s)]
        if int(stage.operators[-1]) >= n:
            v = int(stage.operators[-1])
            return None, [Violation("unknown", f"stage {s} has operator {v}, but the graph has {n}", v, s)]
        if len(stage.devices) != 1:
            return None, [Violation("replicas", f"stage {s} has several devices; a stage of a cut has one", stage=s)]
        if stage.device >= p:
            return None, [Violation("unknown", f"stage {s} is on device {stage.device}, but the cluster has {p}")]
        if bool((stage.columns != problem.configuration).any()):
            return None, [Violation("configuration", f"stage {s} uses another configuration", stage=s)]
        if stage.recompute:
            return None, [Violation("recompute", f"stage {s} recomputes, which this problem does not know", stage=s)]
    part = plan.stage_of(n)
    if bool((part < 0).any()):
        v = int(np.argmax(part < 0))
        return None, [Violation("missing", f"operator {problem.graph.label(v)} is in no stage", v)]
    devices = np.array(plan.devices, dtype=np.int64)
    if len(np.unique(devices)) < len(devices):
        d = int(np.argmax(np.bincount(devices) > 1))
        return None, [Violation("devices", f"{problem.cluster.label(d)} holds several stages", device=d)]
    return Placement(part, devices), []


def _from_assignment(problem: Rules, solution: Assignment) -> tuple[Placement | None, list[Violation]]:
    n, p = problem.graph.n_operators, problem.cluster.n_devices
    if len(solution.device) != n:
        return None, [Violation("missing", f"the assignment has {len(solution.device)} operators, the graph has {n}")]
    if int(solution.device.max()) >= p:
        v = int(np.argmax(solution.device))
        return None, [
            Violation(
                "unknown",
                f"operator {problem.graph.label(v)} is on device {int(solution.device[v])}, but the cluster has {p}",
                v,
            )
        ]
    devices, part = np.unique(solution.device, return_inverse=True)
    return Placement(part, devices), []


def _together(problem: Rules, placement: Placement) -> list[Violation]:
    label = problem.classes
    first = np.full(int(label.max()) + 1, -1, dtype=np.int64)
    n = len(label)
    first[label[::-1]] = np.arange(n - 1, -1, -1)
    faults = []
    for v in np.flatnonzero(placement.part != placement.part[first[label]]).tolist():
        u = int(first[label[v]])
        faults.append(
            Violation(
                "colocation",
                f"operators {problem.graph.label(u)} and {problem.graph.label(v)} stay together but are on "
                f"{_where(problem, placement, u)} and {_where(problem, placement, v)}",
                operator=v,
            )
        )
    return faults


def _pinned(problem: Rules, placement: Placement) -> list[Violation]:
    pinned, home = problem.graph.pinned, placement.devices[placement.part]
    return [
        Violation(
            "pinned",
            f"operator {problem.graph.label(v)} is pinned to {problem.cluster.label(int(pinned[v]))} but is on "
            f"{problem.cluster.label(int(home[v]))}",
            operator=v,
            device=int(home[v]),
        )
        for v in np.flatnonzero((pinned >= 0) & (home != pinned)).tolist()
    ]


def _reversed(problem: Rules, placement: Placement) -> list[Violation]:
    """Return edges of the order that point backwards, those of whole classes included."""
    label = problem.classes
    stage = np.full(int(label.max()) + 1, -1, dtype=np.int64)
    stage[label] = placement.part
    source, target = order_edges(problem.graph, label)
    member = np.zeros(len(stage), dtype=np.int64)
    member[label[::-1]] = np.arange(len(label) - 1, -1, -1)
    wrong = np.unique(source[stage[source] > stage[target]] * len(stage) + target[stage[source] > stage[target]])
    faults = []
    for pair in wrong.tolist():
        a, b = divmod(pair, len(stage))
        u, v = int(member[a]), int(member[b])
        faults.append(
            Violation(
                "order",
                f"operator {problem.graph.label(v)} comes after {problem.graph.label(u)} (or their classes do), but "
                f"they are in stages {int(stage[b])} and {int(stage[a])}",
                operator=v,
                stage=int(stage[b]),
            )
        )
    return faults


def _split_paths(graph: CostGraph, placement: Placement, name: Callable[[int], str]) -> list[Violation]:
    """Return, per part, a path of forward operators that leaves it and comes back."""
    source, target = graph.tensors.edge_producer, graph.tensors.consumers
    ahead = ~graph.is_backward
    keep = ahead[source] & ahead[target]
    offsets, heads = successor_rows(graph.n_operators, source[keep], target[keep])
    faults = []
    for s in range(placement.parts):
        outside = placement.part != s
        reached = np.zeros(graph.n_operators, dtype=bool)  # outside, behind an operator of the part
        for u in graph.order.tolist():
            if outside[u] and not reached[u]:
                continue
            for v in heads[offsets[u] : offsets[u + 1]].tolist():
                if outside[v]:
                    reached[v] = True
                elif reached[u]:
                    faults.append(
                        Violation(
                            "convex",
                            f"a path leaves {name(int(placement.devices[s]))} and comes back from operator "
                            f"{graph.label(u)} to {graph.label(v)}",
                            operator=v,
                            device=int(placement.devices[s]),
                        )
                    )
                    break
            else:
                continue
            break
    return faults


def _where(problem: Rules, placement: Placement, v: int) -> str:
    return problem.cluster.label(int(placement.devices[placement.part[v]]))
