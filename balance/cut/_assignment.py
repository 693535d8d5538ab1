"""Cut wing: blocks shared out in fractions over devices that differ, and the bound that the prices of it prove."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balance.cut._node_cut import cut_seconds
from balance.cut.tables import BoolArray, CutTables
from balance.limits import Run
from balance.problems.model.tensors import FloatArray

ROUNDS = 20
"""Steps of the bisection for two types, whose prices need no LP."""

LP_ROUNDS = 6
"""Steps of the bisection otherwise."""

CUT_BUDGET = 20_000_000
"""Arcs to look at for the cuts of each type: about a tenth of a second."""

LP_CELLS = 1_000
"""Blocks times types up to which prices come from an LP, which costs tens of milliseconds."""


@dataclass(frozen=True, eq=False)
class Market:
    """What blocks take of each type of device, in units in which the largest numbers are 1.

    Parameters
    ----------
    tables
        The problem's arrays.
    work
        Seconds per type and block, shape (Q, N).
    size
        Bytes of each block with the fewest micro-batches in flight, shape (N,).
    room
        Bytes of all devices of a type, shape (Q,); infinite where memory does not decide.
    unit
        Seconds that count as 1.
    """

    tables: CutTables
    work: FloatArray
    size: FloatArray
    room: FloatArray
    unit: float

    @classmethod
    def of(cls, tables: CutTables) -> Market:
        """Return the market of a problem."""
        work = tables.seconds.sum(axis=1)
        flight = min(tables.problem.flight(after) for after in range(tables.most_stages))
        size = tables.held + flight * tables.kept
        unit, scale = float(work.max()) or 1.0, float(size.max()) or 1.0
        return cls(tables, work / unit, size / scale, tables.capacity * tables.counts / scale, unit)

    def value(self, barred: BoolArray, prices: FloatArray) -> float:
        """Return what any prices prove, shape (2, Q): of a second and of a byte; negative ones count as 0."""
        time = np.maximum(prices[0], 0.0)
        space = np.where(np.isfinite(self.room), np.maximum(prices[1], 0.0), 0.0)
        whole = float(time @ self.tables.counts)
        if whole <= 0:
            return -math.inf
        cells = np.where(barred, math.inf, time[:, None] * self.work + space[:, None] * self.size)
        rent = float((space * np.where(np.isfinite(self.room), self.room, 0.0)).sum())
        slack = 1e-12 + 4e-16 * self.tables.n
        return (float(cells.min(axis=0).sum()) * (1.0 - slack) - rent * (1.0 + slack)) / whole

    @property
    def is_tight(self) -> bool:
        """Whether memory may decide: all blocks together take a good part of it."""
        room = np.where(np.isfinite(self.room), self.room, math.inf)
        return bool(self.size.sum() > 0.5 * room.min()) and bool(np.isfinite(self.room).any())

    def fair_prices(self) -> FloatArray:
        """Return prices of time at which all blocks together cost the same everywhere."""
        totals = np.where(self.tables.barred, 0.0, self.work).sum(axis=1)
        return np.stack((1.0 / np.where(totals > 0, totals, 1.0), np.zeros(len(totals))))

    def two_prices(self, barred: BoolArray) -> FloatArray:
        """Return the best prices of time for two types.

        The block whose ratio of times is r changes sides where the prices have the ratio 1 / r. The value is concave in
        between, so one of these ratios, or one type alone, is best; it is where the cheaper side fills its devices.
        """
        first, second = np.where(barred, math.inf, self.work)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.isinf(second), 0.0, np.where(np.isinf(first), math.inf, first / second))
        ratio[(self.work == 0).all(axis=0)] = 1.0
        order = np.argsort(ratio, kind="stable")
        done = np.concatenate(([0.0], np.cumsum(np.where(np.isinf(first), 0.0, first)[order])))
        left = np.concatenate((np.cumsum(np.where(np.isinf(second), 0.0, second)[order][::-1])[::-1], [0.0]))
        counts = self.tables.counts
        full = int(np.argmax(done * int(counts[1]) >= left * int(counts[0])))
        edge = float(ratio[order[max(full - 1, 0)]])
        if edge == 0.0:
            return np.array([[1.0, 0.0], [0.0, 0.0]])
        if math.isinf(edge):
            return np.array([[0.0, 1.0], [0.0, 0.0]])
        return np.array([[1.0, edge], [0.0, 0.0]])

    def lp_prices(self, barred: BoolArray, run: Run) -> FloatArray | None:
        """Return the best prices: the dual LP ``max sum_v m_v - sum_q room_q s_q`` where time prices add up to 1."""
        import pulp

        from balance.engines.highs import solve_model

        tables, types = self.tables, range(self.tables.n_types)
        model = pulp.LpProblem("prices", pulp.LpMinimize)
        time = [model.add_variable(f"time_{q}", 0.0) for q in types]
        space = [model.add_variable(f"space_{q}", 0.0) if np.isfinite(self.room[q]) else None for q in types]
        least = [model.add_variable(f"least_{v}") for v in range(tables.n)]
        model += pulp.lpSum(float(self.room[q]) * s for q, s in enumerate(space) if s is not None) - pulp.lpSum(least)
        model += pulp.lpSum(int(tables.counts[q]) * time[q] for q in types) == 1
        for q in types:
            price = space[q]
            for v in np.flatnonzero(~barred[q]).tolist():
                cell = float(self.work[q, v]) * time[q]
                model += least[v] <= (cell if price is None else cell + float(self.size[v]) * price)
        answer = solve_model(model, run)
        if answer.values is None:
            return None
        values = answer.values
        return np.array(
            [
                [values.get(t.name, 0.0) for t in time],
                [0.0 if s is None else values.get(s.name, 0.0) for s in space],
            ]
        )


def assignment_bound(tables: CutTables, run: Run) -> float:
    """Return the bound of `balance.cut.bounds.assignment_lp`."""
    market = Market.of(tables)
    least = cut_seconds(tables, CUT_BUDGET) / market.unit
    by_lp = (tables.n_types > 2 or market.is_tight) and tables.n * tables.n_types <= LP_CELLS

    def value(barred: BoolArray) -> float:
        if barred.all(axis=0).any():
            return math.inf
        if by_lp:
            prices = market.lp_prices(barred, run)
        else:
            prices = market.two_prices(barred) if tables.n_types == 2 else market.fair_prices()
        return -math.inf if prices is None else market.value(barred, prices)

    best = value(tables.barred)
    low, high = max(best, 0.0), float(np.where(tables.barred, 0.0, least).max())
    for _ in range(LP_ROUNDS if by_lp else ROUNDS):
        if not low < high or run.should_stop():
            break
        limit = (low + high) / 2
        found = value(tables.barred | (least > limit))
        best = max(best, min(limit, found))
        if found >= limit:
            low = limit
        else:
            high = limit
    if math.isfinite(high) and high > low:  # the threshold need not be in the middle: the next cut above is as good
        above = least[~tables.barred & (least > low)]
        limit = float(above.min()) if above.size else high
        best = max(best, min(limit, value(tables.barred | (least >= limit))))
    return best * market.unit * (1.0 - 1e-12)
