"""Cut wing: least cuts around single blocks: the scan behind the bound ``node-cut``, and its proof in rationals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from balance.cut.tables import BoolArray, CutTables
from balance.problems.cut import CutProblem
from balance.problems.model.errors import ProblemError, SolverError
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, charges

BUDGET = 60_000_000
"""Arcs that a scan may look at: about a third of a second."""

BOTH = (FORWARD, BACKWARD)


@dataclass(frozen=True, eq=False)
class Network:
    """Blocks, nets and a sink, so that a cut that holds block v and the blocks S weighs ``w(S) + c(nets cut by S)``.

    A net of two blocks is an arc each way. A larger one is a pair of vertices, an arc between them that weighs the net,
    and arcs of no limit from its blocks to the first and from the second back to them (Lawler 1973): it is cut if and
    only if some blocks of it are in S, and some are not. The arc of a block to the sink weighs its work.

    Parameters
    ----------
    n
        Number of blocks N; they are the first vertices, the sink is the last.
    start, head, twin
        Arcs by vertex, as in `maximum_flow`.
    place
        Place of the arcs of ``pairs`` in that order, shape (2, pairs): row 0 as given, row 1 their twins.
    net
        Net that each pair weighs, -1 - v for the sink arc of block v, and N' (the number of nets) for no limit.
    """

    n: int
    start: IntArray
    head: IntArray
    twin: IntArray
    place: IntArray
    net: IntArray

    @classmethod
    def of(cls, n: int, offsets: IntArray, pins: IntArray) -> Network:
        """Return the network of N blocks and H nets in offset form."""
        sizes = np.diff(offsets)
        count = len(sizes)
        two, more = np.flatnonzero(sizes == 2), np.flatnonzero(sizes > 2)
        rank = np.zeros(count, dtype=np.int64)
        rank[more] = n + 2 * np.arange(len(more))
        sink = n + 2 * len(more)
        rows = np.repeat(np.arange(count), sizes)
        large = sizes[rows] > 2
        tails = [np.arange(n), pins[offsets[two]], rank[more], pins[large], rank[rows[large]] + 1]
        heads = [np.full(n, sink), pins[offsets[two] + 1], rank[more] + 1, rank[rows[large]], pins[large]]
        endless = np.full(int(large.sum()), count)
        net = np.concatenate((-1 - np.arange(n), two, more, endless, endless))
        tail, head = np.concatenate(tails), np.concatenate(heads)
        ends, leads = np.concatenate((tail, head)), np.concatenate((head, tail))
        order = np.argsort(ends, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        start = np.zeros(sink + 2, dtype=np.int64)
        np.cumsum(np.bincount(ends, minlength=sink + 1), out=start[1:])
        pairs = len(tail)
        twin = place[(order + pairs) % (2 * pairs)]
        return cls(n, start, leads[order], twin, place.reshape(2, pairs), net)

    def capacities(self, work: IntArray, barred: BoolArray, weight: IntArray) -> IntArray:
        """Return the capacity of each arc for work per block, shape (N,), and weight per net, shape (H,)."""
        from balance.cut._max_flow import BIG

        value = np.concatenate((weight, [BIG], np.where(barred, BIG, work)[::-1]))[self.net]
        room = np.zeros(len(self.head), dtype=np.int64)
        room[self.place[0]] = value
        two_way = (self.net >= 0) & (self.net < len(weight)) & (self.head[self.place[0]] < self.n)
        room[self.place[1]] = np.where(two_way, value, 0)
        return room


@dataclass(frozen=True)
class Peak:
    """The largest least cut: its scaled value, and the block that it surrounds."""

    value: int
    block: int


def highest(tables: CutTables, phases: tuple[int, ...] = BOTH, budget: int = BUDGET) -> Peak | None:
    """Return the largest least cut over all blocks, or over those that the budget allows.

    Parameters
    ----------
    tables
        The problem's arrays.
    phases
        Phases whose seconds count.
    budget
        Arcs to look at.

    Returns
    -------
    Peak or None
        None if some block is barred from every type.
    """
    from balance.cut import _max_flow as kernels

    if tables.barred.all(axis=0).any():
        return None
    rows = list(phases)
    work = np.ascontiguousarray(tables.work[:, rows].sum(axis=1))
    weight = tables.nets.weight[rows].sum(axis=0)
    least = np.where(tables.barred, kernels.BIG, work).min(axis=0)
    first = int(least.argmax())
    if not tables.pays.any() or not weight.any():
        return Peak(int(least[first]), first)
    around = np.zeros(tables.n, dtype=np.int64)
    np.add.at(around, tables.nets.pins, weight[tables.nets.rows])
    alone = np.where(tables.barred, kernels.BIG, work + np.where(tables.pays[:, None], around, 0)).min(axis=0)
    network = Network.of(tables.n, tables.nets.offsets, tables.nets.pins)
    caps = np.stack([network.capacities(work[q], tables.barred[q], weight) for q in range(tables.n_types)])
    order = np.argsort(-alone, kind="stable")
    value, block, _ = kernels.scan(
        network.start, network.head, network.twin, caps, work, tables.barred, tables.pays, alone, order,
        int(least[first]), budget,
    )  # fmt: skip
    return Peak(int(value), int(block) if block >= 0 else first)


def cut_seconds(tables: CutTables, budget: int) -> FloatArray:
    """Return lower bounds on the load of a device of each type that holds each block, shape (Q, N), in seconds.

    Parameters
    ----------
    tables
        The problem's arrays.
    budget
        Arcs to look at for each type; what is not reached is bounded by the block's own work.
    """
    from balance.cut import _max_flow as kernels

    found: FloatArray = tables.seconds.sum(axis=1)
    weight = tables.nets.weight.sum(axis=0)
    if not weight.any():
        return found
    share = 3.0 if tables.problem.overlap == "max" else 1.0
    network = Network.of(tables.n, tables.nets.offsets, tables.nets.pins)
    for q in np.flatnonzero(tables.pays).tolist():
        caps = network.capacities(tables.work[q].sum(axis=0), tables.barred[q], weight)
        values = kernels.all_cuts(network.start, network.head, network.twin, caps, tables.n, budget)
        values = np.where(tables.barred[q], 0, values).tolist()
        found[q] = np.maximum(found[q], [tables.bound(value) / share for value in values])
    return found


# -- the proof -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeCut:
    """A proved lower bound on the load of whatever device holds a block.

    Parameters
    ----------
    block
        The block, as numbered in the contraction of the problem.
    operators
        Its operators.
    seconds
        The bound, an exact rational number.
    least
        Operators of a set of this load on the device type where it is least; the load of this set on it is larger than
        `seconds` by rounding down only.
    device
        A device of that type.
    """

    block: int
    operators: tuple[int, ...]
    seconds: Fraction
    least: tuple[int, ...]
    device: int


def prove_node_cut(problem: CutProblem, block: int, phases: tuple[int, ...] = BOTH) -> NodeCut:
    """Prove again, in rationals, what the device that holds one block has to do at least.

    Every floating-point time is taken as the rational number that it is and rounded down to a common integer unit. The
    flow that the compiled code finds is not believed: that it keeps every capacity and loses nothing on the way is
    checked arc by arc in Python's integers. A flow is below every cut, so its value is below the load of every set of
    operators that holds the block.

    Parameters
    ----------
    problem
        The problem.
    block
        The block.
    phases
        Phases whose seconds count: ``(0, 1)``, ``(0,)`` or ``(1,)``.

    Raises
    ------
    ProblemError
        If there is no such block, or no device can host it.
    SolverError
        If the flow is none, which would be a mistake of this package.

    Examples
    --------
    >>> from balance import Cluster, CostGraph
    >>> graph = CostGraph.chain([1.0, 4.0, 1.0], seconds=[2.0, 0.5])
    >>> cut = prove_node_cut(CutProblem(graph=graph, cluster=Cluster.uniform(2)), block=1)
    >>> cut.seconds, cut.least
    (Fraction(11, 2), (0, 1))
    """
    tables = CutTables.of(problem)
    if block not in range(tables.n):
        raise ProblemError(f"there is no block {block!r}; the problem has {tables.n}")
    offsets, pins, weights = _rational_nets(problem, tables, phases)
    network = Network.of(tables.n, offsets, pins)
    best: tuple[Fraction, tuple[int, ...], int] | None = None
    for q, devices in enumerate(tables.type_devices):
        if tables.barred[q, block]:
            continue
        works = _rational_work(problem, tables, q, phases)
        if tables.pays[q]:
            found = _least_cut(network, works, tables.barred[q], weights, block)
        else:
            found = works[block], [block]
        if best is None or found[0] < best[0]:
            inside = np.isin(tables.block, found[1])
            best = found[0], tuple(np.flatnonzero(inside).tolist()), devices[0]
    if best is None:
        raise ProblemError(f"no device can host block {block}, so nothing bounds it")
    seconds = best[0] / 3 if problem.overlap == "max" else best[0]
    own = tuple(np.flatnonzero(tables.block == block).tolist())
    return NodeCut(block, own, seconds, best[1], best[2])


def _rational_work(problem: CutProblem, tables: CutTables, q: int, phases: tuple[int, ...]) -> list[Fraction]:
    table = problem.seconds(tables.type_devices[q][0])[list(phases)]
    works = [Fraction(0)] * tables.n
    for v, b in enumerate(tables.block.tolist()):
        if not tables.barred[q, b]:
            works[b] += sum((Fraction(x) for x in table[:, v].tolist()), Fraction(0))
    return works


def _rational_nets(
    problem: CutProblem, tables: CutTables, phases: tuple[int, ...]
) -> tuple[IntArray, IntArray, list[Fraction]]:
    """Return one net per tensor, or per producer and reader, straight from the graph."""
    tensors = problem.graph.tensors
    cost = charges(problem.graph, tables.block).time(problem.link) if len(tensors) else np.zeros((2, 0))
    paid = [phase for phase in phases if phase == FORWARD or problem.has_backward]
    offsets, pins, weights = [0], list[int](), list[Fraction]()
    for t in range(len(tensors)):
        own = int(tables.block[tensors.producer[t]])
        readers = tables.block[tensors.consumers[tensors.offsets[t] : tensors.offsets[t + 1]]].tolist()
        groups = [(own, b) for b in readers] if problem.charge == "edge" else [(own, *readers)]
        weight = sum((Fraction(float(cost[phase, t])) for phase in paid), Fraction(0))
        for group in groups:
            members = sorted(set(group))
            if len(members) > 1 and weight > 0:
                pins += members
                offsets.append(len(pins))
                weights.append(weight)
    return np.array(offsets, dtype=np.int64), np.array(pins, dtype=np.int64), weights


def _least_cut(
    network: Network, works: list[Fraction], barred: BoolArray, weights: list[Fraction], block: int
) -> tuple[Fraction, list[int]]:
    """Return a proved lower bound on the least cut around a block, and the blocks of the cut that was found."""
    from balance.cut._max_flow import maximum_flow

    total = sum(works, Fraction(0)) + sum(weights, Fraction(0))
    scale = Fraction(2) ** (60 - math.frexp(float(total))[1])
    caps = network.capacities(_floor(works, scale), barred, _floor(weights, scale))
    room, scratch = caps.copy(), np.zeros((3, len(network.start) - 1), dtype=np.int64)
    sink = len(network.start) - 2
    maximum_flow(network.start, network.head, network.twin, room, block, sink, scratch)
    value = _checked_flow(network, caps.tolist(), room.tolist(), block, sink)
    return value / scale, np.flatnonzero(scratch[0, : network.n]).tolist()


def _floor(values: list[Fraction], scale: Fraction) -> IntArray:
    return np.array([(x * scale).__floor__() for x in values], dtype=np.int64)


def _checked_flow(network: Network, caps: list[Any], room: list[Any], source: int, sink: int) -> int:
    """Return the value of a flow after a look at every arc and vertex."""
    surplus = [0] * (sink + 1)
    head = network.head.tolist()
    first, second = network.place.tolist()
    for a, b in zip(first, second, strict=True):
        moved = caps[a] - room[a]
        if room[a] < 0 or room[b] < 0 or moved != room[b] - caps[b]:
            raise SolverError("the flow of a node-cut breaks a capacity")
        surplus[head[b]] -= moved
        surplus[head[a]] += moved
    if any(surplus[u] for u in range(sink) if u != source) or surplus[sink] != -surplus[source]:
        raise SolverError("the flow of a node-cut loses something on the way")
    return surplus[sink]
