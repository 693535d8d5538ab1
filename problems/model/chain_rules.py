"""Model room: the rules that a plan of a chain problem must keep, memory aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from balance.problems.model.plan import Plan
from balance.problems.model.problem import Violation
from balance.problems.model.tensors import IntArray

if TYPE_CHECKING:
    from balance.problems.chain import ChainProblem


def broken_structure(problem: ChainProblem, plan: Plan) -> list[Violation]:
    """Return broken rules that leave nothing to compute."""
    n, p = problem.graph.n_operators, problem.cluster.n_devices
    broken: list[Violation] = []
    for s, stage in enumerate(plan.stages):
        if not len(stage.operators):
            return [Violation("empty", f"stage {s} has no operator", stage=s)]
        if int(stage.operators[-1]) >= n:
            v = int(stage.operators[-1])
            return [Violation("unknown", f"stage {s} has operator {v}, but the graph has {n}", stage=s, operator=v)]
        if len(stage.devices) != 1:
            return [Violation("replicas", f"stage {s} has several devices; a chain stage has one", stage=s)]
        if stage.device >= p:
            return [Violation("unknown", f"stage {s} is on device {stage.device}, but the cluster has {p}", stage=s)]
        if bool((stage.columns != problem.configuration).any()):
            return [Violation("configuration", f"stage {s} uses another configuration", stage=s)]
        asked = {"never": False, "always": True, "choose": stage.recompute}[problem.recompute]
        if problem.has_backward and stage.recompute != asked:
            broken.append(Violation("recompute", f"stage {s} does not recompute as the problem asks", stage=s))
    stage_of = plan.stage_of(n)
    if bool((stage_of < 0).any()):
        v = int(np.argmax(stage_of < 0))
        return [Violation("missing", f"operator {problem.graph.label(v)} is in no stage", operator=v)]
    broken.extend(_broken_order(problem, plan, stage_of))
    pinned = problem.graph.pinned
    if problem.n_operators_pinned:
        home = np.array(plan.devices)[stage_of]
        for v in np.flatnonzero((pinned >= 0) & (home != pinned)).tolist():
            broken.append(
                Violation(
                    "pinned",
                    f"operator {problem.graph.label(v)} is pinned to {problem.cluster.label(int(pinned[v]))} but is on "
                    f"{problem.cluster.label(int(home[v]))}",
                    operator=v,
                    device=int(home[v]),
                )
            )
    return broken


def _broken_order(problem: ChainProblem, plan: Plan, stage_of: IntArray) -> list[Violation]:
    """Return broken rules of order: items whole, stages consecutive, devices as asked."""
    position = problem.linearisation.position
    broken: list[Violation] = []
    by_item = np.argsort(position, kind="stable")
    steps = np.diff(stage_of[by_item])
    same_item = np.diff(position[by_item]) == 0
    apart = np.flatnonzero(same_item & (steps != 0))
    if len(apart):
        u, v = int(by_item[apart[0]]), int(by_item[apart[0] + 1])
        broken.append(
            Violation(
                "colocation",
                f"operators {problem.graph.label(u)} and {problem.graph.label(v)} stay together but are in stages "
                f"{stage_of[u]} and {stage_of[v]}",
                operator=u,
            )
        )
    back = np.flatnonzero(~same_item & ((steps < 0) | (steps > 1)))
    if len(back) and not broken:
        u, v = int(by_item[back[0]]), int(by_item[back[0] + 1])
        broken.append(
            Violation(
                "order",
                f"stages are not consecutive: operator {problem.graph.label(u)} is in stage {stage_of[u]}, its "
                f"successor {problem.graph.label(v)} in stage {stage_of[v]}",
                operator=v,
            )
        )
    devices = plan.devices
    stages, used = len(devices), len(set(devices))
    first = devices[: stages // problem.chunks]
    if devices != first * problem.chunks:
        broken.append(
            Violation("devices", f"{stages} stages do not form {problem.chunks} rounds over the same devices")
        )
    elif used != len(first):
        twice = next(d for d in first if first.count(d) > 1)
        broken.append(
            Violation("devices", f"{problem.cluster.label(twice)} holds more stages than it may", device=twice)
        )
    elif problem.device_order == "given" and first != sorted(first):
        broken.append(Violation("devices", f"stages use the devices in the order {first}, not in the given one"))
    if not problem.idle and used != problem.cluster.n_devices:
        unused = next(d for d in range(problem.cluster.n_devices) if d not in set(devices))
        broken.append(Violation("idle", f"{problem.cluster.label(unused)} is not used", device=unused))
    refusal = None if broken else problem.schedule_refusal(stages)
    if refusal is not None:
        broken.append(Violation("schedule", refusal))
    return broken


def unhostable(problem: ChainProblem, plan: Plan, devices: IntArray) -> tuple[list[int], list[int]]:
    """Return stages and operators where the stage's device cannot host the operator."""
    stages: list[int] = []
    operators: list[int] = []
    for s, stage in enumerate(plan.stages):
        kind = problem.device_kind[devices[s]]
        unhosted = ~problem.graph.hosts[kind, problem.configuration, stage.operators]
        for v in stage.operators[unhosted].tolist():
            stages.append(s)
            operators.append(v)
    return stages, operators
