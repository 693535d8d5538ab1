"""Cut wing: what devices have to do on average, from totals only; milliseconds for a hundred thousand operators."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balance.problems.cut import CutProblem
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import charges


@dataclass(frozen=True, eq=False)
class Work:
    """Seconds of blocks on devices that differ in kind or speed.

    Parameters
    ----------
    seconds
        Per type, phase and block, shape (Q, 2, N); infinite where barred.
    counts
        Devices of each type, shape (Q,).
    pays
        Whether each type pays for communication, shape (Q,).
    block
        Block of each operator, shape (n,).
    """

    seconds: FloatArray
    counts: IntArray
    pays: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    block: IntArray

    @classmethod
    def of(cls, problem: CutProblem) -> Work:
        """Return a problem's work."""
        block = problem.contraction.block if problem.contiguity == "acyclic" else problem.classes
        n = int(block.max()) + 1
        key = np.stack((problem.device_kind.astype(np.float64), problem.cluster.speed))
        _, first, label = np.unique(key, axis=1, return_index=True, return_inverse=True)
        label = label.reshape(-1)
        pinned = problem.graph.pinned
        held = np.flatnonzero(pinned >= 0)
        rows = []
        for q, device in enumerate(first.tolist()):
            table = problem.seconds(device)
            table[:, held[label[pinned[held]] != q]] = np.inf
            rows.append([np.bincount(block, row, n) for row in table])
        seconds = np.array(rows, dtype=np.float64)
        seconds += np.where(np.isinf(seconds.sum(axis=1)), np.inf, 0.0)[:, None]
        return cls(seconds, np.bincount(label), problem.device_pays[first], block)

    @property
    def total(self) -> FloatArray:
        """Seconds of both phases, shape (Q, N)."""
        return np.asarray(self.seconds.sum(axis=1))

    @property
    def slack(self) -> float:
        """What a sum of so many rounded numbers must be multiplied by to stay below the true one."""
        return 1.0 - 1e-12 - 4e-16 * len(self.block)


def most_devices(problem: CutProblem, blocks: int) -> int:
    """Return the largest number of devices that a solution can use."""
    limit = problem.cluster.n_devices if problem.max_stages is None else problem.max_stages
    return min(limit, problem.cluster.n_devices, blocks)


def average_load(problem: CutProblem, work: Work) -> float:
    """Return the bound of `balance.cut.bounds.average`."""
    total = work.total
    if np.isinf(total).all(axis=0).any():
        return math.inf
    hosted = np.where(np.isinf(total), 0.0, total).sum(axis=1)
    weights = np.where(hosted > 0, hosted.max() / np.where(hosted > 0, hosted, 1.0), 1.0)
    least = float((total * weights[:, None]).min(axis=0).sum())
    least += float(weights.min()) * _streamed(problem, total.shape[1])
    most = most_devices(problem, total.shape[1])
    heaviest = float(np.sort(np.repeat(weights, work.counts))[::-1][:most].sum())
    shared = least / heaviest
    toll = _toll(problem, work)
    if toll > 0:
        alone = float(total.sum(axis=1).min())
        paying = float((weights * work.counts)[work.pays].sum())
        free = float((weights * work.counts)[~work.pays].sum())
        if free == 0:
            shared += toll
        elif problem.max_stages is None:
            shared = max(shared, min(least / free, (least + toll * paying) / (paying + free)))
        shared = min(shared, alone)
    return shared * work.slack


def _streamed(problem: CutProblem, blocks: int) -> float:
    """Return the seconds that all devices together stream at least, because not all bytes fit all memories."""
    if problem.overflow_bandwidth is None:
        return 0.0
    graph, c, most = problem.graph, problem.configuration, most_devices(problem, blocks)
    flight = min(problem.flight(after) for after in range(most))
    need = problem.state_factor * graph.parameter_bytes[c] + graph.static_bytes[c] + flight * graph.activation_bytes[c]
    room = float(np.sort(problem.cluster.memory_bytes)[::-1][:most].sum())
    return max(float(need.sum()) - room, 0.0) / problem.overflow_bandwidth


def _toll(problem: CutProblem, work: Work) -> float:
    """Return what a device that pays has to communicate at least if it does not hold everything.

    Every set of blocks that is neither empty nor everything cuts a tensor of the heaviest spanning tree; the lightest
    edge of that tree is therefore paid.
    """
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import minimum_spanning_tree  # type: ignore[import-untyped]

    tensors, n = problem.graph.tensors, work.seconds.shape[2]
    if problem.overlap == "max" or n < 2 or not len(tensors):
        return 0.0
    seconds = charges(problem.graph, work.block).time(problem.link)
    weight = seconds.sum(axis=0) if problem.has_backward else seconds[0]
    tails = work.block[tensors.edge_producer]
    heads = work.block[tensors.consumers]
    cost = weight[tensors.edge_tensor]
    apart = (tails != heads) & (cost > 0)
    low, high, cost = np.minimum(tails, heads)[apart], np.maximum(tails, heads)[apart], cost[apart]
    if len(cost) < n - 1:
        return 0.0
    order = np.lexsort((-cost, high, low))  # of parallel edges the heaviest comes first
    low, high, cost = low[order], high[order], cost[order]
    keep = np.concatenate(([True], (low[1:] != low[:-1]) | (high[1:] != high[:-1])))
    tree = minimum_spanning_tree(coo_array((-cost[keep], (low[keep], high[keep])), shape=(n, n)).tocsr())
    return float(-tree.data.max()) if tree.nnz == n - 1 else 0.0


def crowded(work: Work, most: int) -> float:
    """Return the bound of `balance.cut.bounds.pigeonhole` for so many devices."""
    least = np.sort(work.total.min(axis=0))[::-1]
    if not np.isfinite(least[:1]).all():
        return math.inf
    sums = np.concatenate(([0.0], np.cumsum(least)))
    rounds = np.arange((len(least) - 1) // most + 1)
    last = rounds * most + 1
    return float((sums[last] - sums[last - rounds - 1]).max()) * work.slack - float(sums[-1]) * (1.0 - work.slack)
