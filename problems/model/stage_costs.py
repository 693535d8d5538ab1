"""Model room: seconds of the stages of a plan on their devices, and of the messages between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.actions import LETTERS, Kind
from balance.problems.model.cluster import Cluster, Link
from balance.problems.model.errors import PlanError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, Traffic


def lanes(plan: Plan, cluster: Cluster) -> tuple[IntArray, IntArray]:
    """Return the device that stands for each stage, shape (S,), and for each device, shape (n_devices,).

    The devices of a stage act as one, and its first device stands for them.

    Raises
    ------
    PlanError
        If a device is not in the cluster, or two stages share only some of their devices.
    """
    leader = np.arange(cluster.n_devices)
    group: dict[int, tuple[int, int]] = {}  # device -> (device that stands for it, first stage that has it)
    home = np.zeros(plan.n_stages, dtype=np.int64)
    members: dict[int, tuple[int, ...]] = {}
    for s, stage in enumerate(plan.stages):
        devices = tuple(sorted(stage.devices))
        if devices[-1] >= cluster.n_devices:
            raise PlanError(
                f"stage {s} is on device {devices[-1]}, but the cluster has {cluster.n_devices}",
                stage=s,
                device=devices[-1],
            )
        first = group.setdefault(devices[0], (stage.devices[0], s))
        for d in devices:
            if group.setdefault(d, first) != first or members.setdefault(first[1], devices) != devices:
                raise PlanError(
                    f"stages {group[d][1]} and {s} share device {d} but not all of their devices; a schedule needs "
                    f"groups of devices that are equal or have none in common",
                    stage=s,
                    device=d,
                )
            leader[d] = first[0]
        home[s] = first[0]
    return home, leader


def stage_seconds(plan: Plan, graph: CostGraph, cluster: Cluster, *, split: bool = False) -> FloatArray:
    """Return the seconds of every stage by kind of action, per micro-batch.

    A replica does its share of the micro-batch in that share of the time. A stage is as slow as its slowest device; the
    backward pass of one that recomputes contains its forward pass again.

    Parameters
    ----------
    plan, graph, cluster
        What runs where.
    split
        Whether the schedule splits the backward pass into input and weight gradient.

    Returns
    -------
    numpy.ndarray
        Shape (S, kinds), columns by `balance.problems.model.actions.Kind`; those of eviction are 0.

    Raises
    ------
    PlanError
        If an operator cannot run on the kind of device that it is on, or the graph does not say how its backward pass
        splits.
    GraphError
        If the graph has no costs for a kind of device.
    """
    if split and (graph.backward_input is None or graph.backward_weight is None or graph.style == "operators"):
        raise PlanError(
            "the schedule splits the backward pass but the graph does not say how long its parts take: give "
            "backward_input= and backward_weight= to the graph, or durations= to the simulator"
        )
    result = np.zeros((plan.n_stages, len(LETTERS)))
    rows = np.array([graph.kind_index(kind) for kind in cluster.kinds])[cluster.kind]
    for s, stage in enumerate(plan.stages):
        late = graph.is_backward[stage.operators]
        known: dict[int, FloatArray] = {}
        for replica in stage.replicas:
            for d in replica.devices:
                k = int(rows[d])
                if k not in known:
                    known[k] = _sums(graph, k, stage.columns, stage.operators, late, split)
                    _refuse_unhosted(graph, k, s, d, stage.columns, stage.operators, known[k])
                np.maximum(result[s], known[k] * (replica.share / float(cluster.speed[d])), out=result[s])
        if stage.recompute:
            result[s, Kind.BACKWARD] += result[s, Kind.FORWARD]
            result[s, Kind.INPUT] += result[s, Kind.FORWARD]
    return result


def _sums(
    graph: CostGraph, k: int, columns: IntArray, operators: IntArray, late: NDArray[np.bool_], split: bool
) -> FloatArray:
    total = np.zeros(len(LETTERS))
    forward = graph.forward[k, columns, operators]
    total[Kind.FORWARD] = forward[~late].sum()
    total[Kind.BACKWARD] = forward[late].sum() + graph.backward[k, columns, operators].sum()
    if split:
        assert graph.backward_input is not None and graph.backward_weight is not None  # the caller has checked
        total[Kind.INPUT] = graph.backward_input[k, columns, operators].sum()
        total[Kind.WEIGHT] = graph.backward_weight[k, columns, operators].sum()
    return total


def _refuse_unhosted(
    graph: CostGraph, k: int, s: int, d: int, columns: IntArray, operators: IntArray, total: FloatArray
) -> None:
    if np.isfinite(total).all():
        return
    tables = [t for t in (graph.forward, graph.backward, graph.backward_input, graph.backward_weight) if t is not None]
    unhosted = np.any([np.isinf(table[k, columns, operators]) for table in tables], axis=0)
    v = int(operators[int(np.argmax(unhosted))])
    raise PlanError(
        f"operator {graph.label(v)} of stage {s} cannot run on device {d}, which is of kind {graph.kinds[k]!r}",
        operator=v,
        stage=s,
        device=d,
    )


@dataclass(frozen=True, eq=False)
class Hops:
    """Messages between consecutive stages by phase (0 forward, 1 backward) and boundary, shape (2, S + 1).

    Parameters
    ----------
    seconds
        Time of one transfer.
    bytes
        Its size.
    slot
        Number of the flow, -1 where nothing is sent: neighbours on the same device, or no tensor crosses.
    link
        Number of the directed link between devices, -1 where nothing is sent.
    """

    seconds: FloatArray
    bytes: FloatArray
    slot: IntArray
    link: IntArray


def hops(plan: Plan, cluster: Cluster, traffic: Traffic, home: IntArray, *, training: bool) -> Hops:
    """Return the messages of one micro-batch; between replicated stages the slowest pair of devices counts.

    Raises
    ------
    ClusterError
        If bytes have to cross and no link speed is known.
    """
    shape = (2, plan.n_stages + 1)
    seconds, size = np.zeros(shape), np.zeros(shape)
    slot, link = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    links: dict[tuple[int, int], int] = {}
    flows = 0
    for phase in (FORWARD, BACKWARD) if training else (FORWARD,):
        for b in range(1, plan.n_stages):
            ends = (b - 1, b) if phase == FORWARD else (b, b - 1)
            way = (int(home[ends[0]]), int(home[ends[1]]))
            given = traffic.seconds[phase, b]
            if way[0] == way[1] or not (traffic.messages[phase, b] or traffic.bytes[phase, b] or given):
                continue
            devices = (plan.stages[ends[0]].devices, plan.stages[ends[1]].devices)
            ways = [(a, c) for a in devices[0] for c in devices[1] if a != c]
            # Timed by given seconds alone, no link has to be known.
            used = {cluster.link(a, c) for a, c in ways} if traffic.messages[phase, b] else {Link()}
            seconds[phase, b] = max(float(traffic.time_at(b, (one, one))[phase]) for one in used)
            size[phase, b] = traffic.bytes[phase, b]
            slot[phase, b], flows = flows, flows + 1
            link[phase, b] = links.setdefault(way, len(links))
    return Hops(seconds, size, slot, link)
