"""Cut wing: presolve: blocks that every solution as good as the best one known keeps together become one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balance.cut._node_cut import Network
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import renumber, strong_components

BUDGET = 60_000_000
"""Arcs that one round may look at: about a third of a second."""

ROUNDS = 20

PAIRS = 50_000
"""Pairs of blocks that one round looks at; in larger problems only heavy nets are tried."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller problem, and what made it so.

    Parameters
    ----------
    tables
        Arrays of the smaller problem; its solutions are solutions of the whole one as they are.
    before
        Number of blocks before.
    rounds
        Rounds that joined something.
    """

    tables: CutTables
    before: int
    rounds: int

    @property
    def stats(self) -> dict[str, int]:
        """Figures for researchers."""
        return {"blocks": self.before, "blocks_after_presolve": self.tables.n}


def presolve(tables: CutTables, run: Run) -> Reduction:
    """Join free leaves, and blocks that no solution as good as the incumbent separates.

    Two rules, each exact, repeated until nothing changes:

    - *Free leaves.* A block without work and bytes that every device can host, with one other block m in all of its
      nets and no other neighbour in the order, joins m: that cuts no net more, and removes pins from other places.
      (Not where stages must be convex: there the order is that of paths, and a path through the leaf may come back.)
    - *Heavy neighbours.* If blocks u and v are on different devices, the load of u's device is at least the weight of
      the lightest set that holds u and not v, its work where it is least plus the nets that it cuts: a minimum cut.
      If that is more than the incumbent, every solution that is as good keeps u and v together, and in pipelines
      everything between them. Valid where all devices pay for communication and loads are sums.

    Solutions as good as the incumbent, and the incumbent itself, are solutions of the smaller problem, so its optimum
    is that of the whole one.

    Parameters
    ----------
    tables
        The problem.
    run
        Its `best` solution gives the limit; without one only leaves are joined.
    """
    before, rounds = tables.n, 0
    for _ in range(ROUNDS):
        if run.should_stop() or tables.n < 2:
            break
        label = _leaves(tables)
        if label is None and run.best is not None:
            limit = math.ceil(run.best[1] * tables.scale) + tables.n_terms
            label = _heavy(tables, limit)
        if label is None:
            break
        tables = CutTables(tables.problem, label[tables.block])
        rounds += 1
    return Reduction(tables, before, rounds)


def _leaves(tables: CutTables) -> IntArray | None:
    """Return the new class of each block when free leaves have joined, None if there are none."""
    problem, n = tables.problem, tables.n
    if problem.contiguity == "convex":
        return None  # a path through the leaf may leave its mate's device and come back, whatever its tensors weigh
    free = ~tables.barred.any(axis=0) & ~tables.work.any(axis=(0, 1))
    free &= (tables.held == 0) & (tables.kept == 0) & (tables.workspace == 0)
    if not free.any() or (problem.graph.pinned >= 0).any():
        return None
    nets = tables.nets
    near: dict[int, set[int]] = {v: set() for v in np.flatnonzero(free).tolist()}
    for a, b in zip(tables.source.tolist(), tables.target.tolist(), strict=True):
        for u, v in ((a, b), (b, a)):
            if u in near:
                near[u].add(v)
    common: dict[int, set[int]] = {}
    for h in range(len(nets)):
        pins = nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist()
        for v in pins:
            if v in near:
                others = set(pins) - {v}
                common[v] = common[v] & others if v in common else others
    home = np.arange(n)
    for v, around in near.items():
        mates = common.get(v, around)  # without nets, a neighbour in the order
        if around:
            mates = mates & around if len(around) == 1 else set()
        if mates and home[v] == v:
            mate = min(mates)
            if home[mate] == mate:  # one step at a time: a mate that has joined itself is left for the next round
                home[v] = mate
    return None if bool((home == np.arange(n)).all()) else renumber(home)


def _heavy(tables: CutTables, limit: int) -> IntArray | None:
    """Return the new class of each block when inseparable ones have joined, None if there are none."""
    from balance.cut._max_flow import separable

    problem, nets = tables.problem, tables.nets
    if problem.overlap != "sum" or problem.objective != "bottleneck" or not tables.pays.all() or not len(nets):
        return None
    most = np.iinfo(np.int64).max
    work = np.where(tables.barred, most, tables.work.sum(axis=1)).min(axis=0)
    if (work == most).any():
        return None
    weight = nets.weight.sum(axis=0)
    own = np.repeat(nets.producer, np.diff(nets.offsets))
    reader = nets.pins != own
    first, second, net = own[reader], nets.pins[reader], nets.rows[reader]
    heavy = np.argsort(-weight[net], kind="stable")[: PAIRS // 2]
    first, second = first[heavy], second[heavy]
    network = Network.of(tables.n, nets.offsets, nets.pins)
    caps = network.capacities(work, np.zeros(tables.n, dtype=bool), weight)
    to_sink = np.empty(tables.n, dtype=np.int64)
    sinks = network.net < 0
    to_sink[-1 - network.net[sinks]] = network.place[0, sinks]
    # Light nets are looked at last: they are cut in most solutions.
    apart = separable(
        network.start, network.head, network.twin, caps, to_sink,
        np.concatenate((first, second)), np.concatenate((second, first)), limit, BUDGET,
    )  # fmt: skip
    together = ~(apart[: len(first)] & apart[len(first) :])
    if not together.any():
        return None
    u, v = first[together], second[together]
    return strong_components(tables.n, np.concatenate((u, v)), np.concatenate((v, u)))
