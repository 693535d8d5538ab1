"""Cut wing: mixed-integer models of one stage, or of three, whose dual bounds hold whenever they are stopped.

A stage of a pipeline, and a convex set of operators, is a difference of two down-sets: what lies before it, and what
lies before its end. Seconds are measured in a unit of the problem's own, so that the engine's tolerances are small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from balance.cut.tables import CutTables
from balance.limits import Part, Run
from balance.problems.model.tensors import FloatArray, IntArray

SAFETY = 1.0 - 1e-7
"""Factor on dual bounds: HiGHS keeps rows to 1e-9 of a scaled model."""

LOOSE = 1.0 - 1e-6
"""Factor on thresholds inside models: well beyond the tolerances, at which HiGHS's presolve has called feasible models
infeasible."""


@dataclass(frozen=True, eq=False)
class View:
    """One kind of device: work per block, and weight per net, in `unit` seconds.

    Parameters
    ----------
    tables
        The problem's arrays.
    work
        Shape (N,).
    weight
        Shape (H,), zero where the device does not pay.
    barred
        Blocks that it cannot host, shape (N,).
    capacity
        Bytes.
    unit
        Seconds that count as 1.
    """

    tables: CutTables
    work: FloatArray
    weight: FloatArray
    barred: np.ndarray[Any, np.dtype[np.bool_]]
    capacity: float
    unit: float

    @classmethod
    def of_type(cls, tables: CutTables, q: int) -> View:
        """Return the view of one device type."""
        work, weight = _seconds(tables)
        unit = _unit(work)
        factor = 1.0 if tables.pays[q] else 0.0
        return cls(tables, work[q] / unit, weight * factor / unit, tables.barred[q], float(tables.capacity[q]), unit)

    @classmethod
    def least(cls, tables: CutTables) -> View:
        """Return a device that is in everything as good as the best of the types; it pays if all types do."""
        return cls._best(tables, np.ones(tables.n_types, dtype=bool), bool(tables.pays.all()))

    @classmethod
    def least_paying(cls, tables: CutTables) -> View:
        """Return a device that is in everything as good as the best of the types that pay, and pays."""
        return cls._best(tables, tables.pays, True)

    @classmethod
    def _best(cls, tables: CutTables, chosen: np.ndarray[Any, np.dtype[np.bool_]], pays: bool) -> View:
        work, weight = _seconds(tables)
        unit = _unit(work)
        row = np.where(tables.barred, np.inf, work)[chosen].min(axis=0)
        barred = np.isinf(row)
        factor = 1.0 if pays else 0.0
        row = np.where(barred, 0.0, row)
        return cls(tables, row / unit, weight * factor / unit, barred, float(tables.capacity[chosen].max()), unit)


def _seconds(tables: CutTables) -> tuple[FloatArray, FloatArray]:
    return tables.seconds.sum(axis=1), tables.nets.weight.sum(axis=0) / tables.scale


def _unit(work: FloatArray) -> float:
    return float(work.max()) or 1.0


@dataclass(frozen=True, eq=False)
class Members:
    """Variables of a model: what lies in the stage, and with an order of blocks what lies before it."""

    inside: Sequence[Any]
    before: Sequence[Any]
    upto: Sequence[Any]


class Stage:
    """A PuLP model that minimises the load of one stage on a device.

    Parameters
    ----------
    view
        The device.
    floor
        A lower bound on the load that is known already, in units of the view.
    """

    def __init__(self, view: View, floor: float = 0.0) -> None:
        import pulp

        self.view = view
        self.model = pulp.LpProblem("stage", pulp.LpMinimize)
        self.load = self.model.add_variable("load", floor * LOOSE)
        self.model += self.load
        self.members = self._members()
        self.cut: Any = 0.0
        for v in np.flatnonzero(view.barred).tolist():
            self.model += self.members.inside[v] <= 0
        self.limit("stage", self.members.inside, 1)

    def limit(self, name: str, chosen: Sequence[Any], devices: int) -> None:
        """Let a set of blocks load and fit so many devices, each with at most `load`."""
        self._fit(chosen, devices)
        work, cut = self.work_of(chosen), self._cut(name, chosen)
        self.cut = cut if name == "stage" else self.cut
        if self.view.tables.problem.overlap == "sum":
            self.model += work + cut <= devices * self.load
        else:  # the largest of received, work and sent is at least half of what is received and sent
            self.model += work <= devices * self.load
            self.model += cut <= 2 * devices * self.load

    def work_of(self, chosen: Sequence[Any]) -> Any:
        """Return the work of a set of blocks."""
        return self.weigh(self.view.work, chosen)

    def weigh(self, weights: FloatArray, chosen: Sequence[Any]) -> Any:
        """Return the sum of weights over a set of blocks."""
        import pulp

        return pulp.lpSum(float(w) * x for w, x in zip(weights, chosen, strict=True) if w)

    def count(self, chosen: Sequence[Any]) -> Any:
        """Return the number of blocks in a set."""
        import pulp

        return pulp.lpSum(chosen)

    def solve(self, run: Run) -> tuple[float, IntArray | None]:
        """Return a proved lower bound in units of the view, and the blocks of the best stage that was found."""
        from balance.engines.highs import solve_model

        answer = solve_model(self.model, run)
        chosen = None
        if answer.values is not None:
            values = answer.values
            chosen = np.flatnonzero([_value(x, values) > 0.5 for x in self.members.inside])
        return answer.bound * SAFETY if answer.bound > 0 else 0.0, chosen

    def _binary(self, name: str) -> Any:
        import pulp

        return self.model.add_variable(name, 0, 1, pulp.LpBinary)

    def _members(self) -> Members:
        tables = self.view.tables
        contiguity = tables.problem.contiguity
        if contiguity == "none":
            return Members([self._binary(f"in_{v}") for v in range(tables.n)], [], [])
        graph = tables.problem.graph
        if contiguity == "acyclic":
            items, home = tables.n, np.arange(tables.n)
            source, target = tables.source, tables.target
        else:  # convexity is asked of the forward operators
            items, home = graph.n_operators, tables.block
            source, target = graph.tensors.edge_producer, graph.tensors.consumers
            ahead = ~graph.is_backward[source] & ~graph.is_backward[target]
            source, target = source[ahead], target[ahead]
        before = [self._binary(f"before_{i}") for i in range(items)]
        upto = [self._binary(f"upto_{i}") for i in range(items)]
        for i in range(items):
            self.model += before[i] <= upto[i]
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            self.model += before[a] >= before[b]
            self.model += upto[a] >= upto[b]
        if contiguity == "acyclic":
            return Members([q - p for p, q in zip(before, upto, strict=True)], before, upto)
        inside = [self._binary(f"in_{v}") for v in range(tables.n)]
        for i in np.flatnonzero(~graph.is_backward).tolist():
            self.model += upto[i] - before[i] == inside[home[i]]
        return Members(inside, before, upto)

    def _cut(self, name: str, chosen: Sequence[Any]) -> Any:
        """Return the weight of the nets that a set of blocks cuts."""
        import pulp

        nets = self.view.tables.nets
        terms = []
        for h in np.flatnonzero(self.view.weight).tolist():
            cut = self.model.add_variable(f"{name}_cut_{h}", 0.0, 1.0)
            own = int(nets.producer[h])
            for v in nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist():
                if v != own:
                    self.model += cut >= chosen[own] - chosen[v]
                    self.model += cut >= chosen[v] - chosen[own]
            terms.append(float(self.view.weight[h]) * cut)
        return pulp.lpSum(terms)

    def _fit(self, chosen: Sequence[Any], devices: int) -> None:
        """Ask the memory of so many devices to hold a set of blocks, with the fewest micro-batches in flight."""
        import pulp

        if not math.isfinite(self.view.capacity):
            return
        tables = self.view.tables
        flight = min(tables.problem.flight(after) for after in range(tables.most_stages))
        size = tables.held + flight * tables.kept
        scale = float(size.max())
        if scale > 0:
            room = devices * self.view.capacity / scale
            self.model += pulp.lpSum(float(b / scale) * x for b, x in zip(size, chosen, strict=True)) <= room * (
                2.0 - LOOSE
            )


def _value(expression: Any, values: Any) -> float:
    """Return the value of a variable, or of a difference of two."""
    import pulp

    if isinstance(expression, pulp.LpVariable):
        return float(values.get(expression.name, 0.0))
    return float(sum(factor * values.get(variable.name, 0.0) for variable, factor in expression.items()))


def bottleneck_block(tables: CutTables, run: Run) -> float:
    """Return the bound of `balance.cut.bounds.bottleneck_block`, in seconds."""
    work = tables.seconds.sum(axis=1)
    hosted = np.where(tables.barred, np.inf, work)
    totals = np.where(tables.barred, 0.0, work).sum(axis=1)
    weights = np.where(totals > 0, totals.max() / np.where(totals > 0, totals, 1.0), 1.0)
    share = float((hosted * weights[:, None]).min(axis=0).sum())
    heaviest = np.sort(np.repeat(weights, tables.counts))[::-1][: tables.most_stages].sum()
    need = share / float(heaviest)
    best = math.inf
    for q in range(tables.n_types):
        view = View.of_type(tables, q)
        stage = Stage(view, need / view.unit)
        stage.model += stage.work_of(stage.members.inside) >= need / view.unit * LOOSE
        bound, _ = stage.solve(Part(run, tables.n_types - q))
        best = min(best, bound * view.unit)
    return best


def balanced_cut(tables: CutTables, run: Run, floor: float) -> float:
    """Return the bound of `balance.cut.bounds.balanced_cut`, in seconds; `floor` is one that is known."""
    view = View.least_paying(tables)
    work = tables.seconds.sum(axis=1) / view.unit
    paying = np.where(view.barred, np.inf, view.work)
    total, free_total = float(view.work.sum()), np.where(tables.barred, 0.0, work).sum(axis=1)
    price = np.where(free_total > 0, max(total, 1e-300) / np.where(free_total > 0, free_total, 1.0), 1.0)
    cells = np.where(tables.barred, np.inf, work * price[:, None])
    free = ~tables.pays
    least = np.minimum(paying, cells[free].min(axis=0)) if free.any() else paying
    share, rest = float(least.sum()) * LOOSE, float((price * tables.counts)[free].sum())
    most = min(int(tables.counts[tables.pays].sum()), tables.most_stages)
    fewer = share / (most - 1 + rest) if most - 1 + rest > 0 else math.inf
    stage = Stage(view, floor / view.unit)
    inside, load, cut = stage.members.inside, stage.load, stage.cut
    stage.model += most * cut + share <= (most + rest) * load
    stage.model += stage.weigh(least, inside) >= share - (most - 1 + rest) * load + (most - 1) * cut
    bound, _ = stage.solve(Part(run))
    return max(floor, min(fewer, bound) * view.unit)


def super_blocks(tables: CutTables, run: Run, floor: float) -> float:
    """Return the bound of `balance.cut.bounds.three_super_blocks`, in seconds; `floor` is one that is known."""
    view, k = View.least(tables), tables.most_stages
    total = float(view.work.sum())
    best = math.inf
    for b in range(1, k + 1):
        stage = Stage(view, floor / view.unit)
        inside, before, upto = stage.members.inside, stage.members.before, stage.members.upto
        after = [1 - q for q in upto]
        stage.model += stage.work_of(inside) >= total / k * LOOSE
        for name, chosen, devices in (("first", before, b - 1), ("last", after, k - b)):
            if devices:
                stage.model += stage.work_of(chosen) <= devices * stage.work_of(inside) + total * (1.0 - LOOSE)
                stage.limit(name, chosen, devices)
            else:
                stage.model += stage.count(chosen) <= 0
        bound, _ = stage.solve(Part(run, k - b + 1))
        best = min(best, bound * view.unit)
        if best <= floor or run.should_stop():
            break
    return max(best, floor) if b == k else floor


def node_guess(tables: CutTables, run: Run, floor: float) -> float:
    """Return the bound of `balance.cut.bounds.node_guess`, in seconds; `floor` is one that is known."""
    views = [View.of_type(tables, q) for q in range(tables.n_types)]
    alone = np.full((tables.n_types, tables.n), np.inf)
    for q, view in enumerate(views):
        paid = np.zeros(tables.n)
        np.add.at(paid, tables.nets.pins, view.weight[tables.nets.rows])
        load = view.work + paid if tables.problem.overlap == "sum" else np.maximum(view.work, paid / 2)
        alone[q] = np.where(view.barred, np.inf, load * view.unit)
    upper = alone.min(axis=0)
    best = floor
    for v in np.argsort(-upper, kind="stable").tolist():
        if run.should_stop():
            break
        if upper[v] <= best * (1.0 + 1e-6):
            continue
        value = math.inf
        for q, view in enumerate(views):
            if tables.barred[q, v]:
                continue
            if not view.weight.any():
                value = min(value, float(view.work[v]) * view.unit)
                continue
            stage = Stage(view)
            stage.model += stage.members.inside[v] >= 1
            bound, chosen = stage.solve(Part(run))
            value = min(value, bound * view.unit)
            if chosen is not None:
                upper[chosen] = np.minimum(upper[chosen], _load(view, chosen) * view.unit)
            if value <= best:
                break
        best = max(best, value)
    return best


def _load(view: View, chosen: IntArray) -> float:
    """Return the load of a stage; at least what its model minimises."""
    nets, inside = view.tables.nets, np.zeros(view.tables.n, dtype=bool)
    inside[chosen] = True
    count = np.bincount(nets.rows, inside[nets.pins], len(nets))
    cut = (count > 0) & (count < np.diff(nets.offsets))
    work, paid = float(view.work[chosen].sum()), float(view.weight[cut].sum())
    return work + paid if view.tables.problem.overlap == "sum" else max(work, paid / 2)
