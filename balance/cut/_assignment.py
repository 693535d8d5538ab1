"""Cut wing: the assignment LP for devices that differ, and the bound that its prices prove."""

from __future__ import annotations

import math

import numpy as np

from balance.cut.tables import BoolArray, CutTables
from balance.limits import Run
from balance.problems.model.tensors import FloatArray

CELLS = 4_000
"""Blocks times types; above, the LP would not be cheap."""

ROUNDS = 8
"""LPs of the bisection."""


def priced(
    tables: CutTables, work: FloatArray, size: FloatArray, room: FloatArray, barred: BoolArray, prices: FloatArray
) -> float:
    """Return the bound of prices on time and memory, whatever the prices are.

    Parameters
    ----------
    tables
        The problem's arrays.
    work
        Seconds per type and block, shape (Q, N).
    size
        Bytes of each block, shape (N,).
    room
        Bytes of all devices of a type, shape (Q,); infinite where memory does not decide.
    barred
        Pairs that no solution of interest has, shape (Q, N).
    prices
        Of a second and of a byte per type, shape (2, Q); negative ones count as 0.
    """
    time = np.maximum(prices[0], 0.0)
    space = np.where(np.isfinite(room), np.maximum(prices[1], 0.0), 0.0)
    whole = float(time @ tables.counts)
    if whole <= 0:
        return -math.inf
    cells = np.where(barred, math.inf, time[:, None] * work + space[:, None] * size)
    rent = float((space * np.where(np.isfinite(room), room, 0.0)).sum())
    slack = 1e-12 + 4e-16 * tables.n
    paid = float(cells.min(axis=0).sum()) * (1.0 - slack)
    return (paid - rent * (1.0 + slack)) / whole


def assignment_bound(tables: CutTables, run: Run) -> float:
    """Return the bound of `balance.cut.bounds.assignment_lp`."""
    if tables.barred.all(axis=0).any():
        return math.inf
    work = tables.seconds.sum(axis=1)
    flight = min(tables.problem.flight(after) for after in range(tables.most_stages))
    size = tables.held + flight * tables.kept
    room = tables.capacity * tables.counts
    work = work / (unit := float(work.max()) or 1.0)
    scale = float(size.max()) or 1.0
    size, room = size / scale, room / scale

    def value(barred: BoolArray) -> float:
        prices = _prices(tables, work, size, room, barred, run)
        return -math.inf if prices is None else priced(tables, work, size, room, barred, prices)

    best = value(tables.barred)
    low, high = best, float(np.where(tables.barred, 0.0, work).max())
    for _ in range(ROUNDS):
        if not low < high or run.should_stop():
            break
        limit = (low + high) / 2
        barred = tables.barred | (work > limit)
        found = math.inf if barred.all(axis=0).any() else value(barred)
        best = max(best, min(limit, found))
        if found >= limit:
            low = limit
        else:
            high = limit
    return best * unit * (1.0 - 1e-12)


def _prices(
    tables: CutTables, work: FloatArray, size: FloatArray, room: FloatArray, barred: BoolArray, run: Run
) -> FloatArray | None:
    """Return the best prices: the dual LP ``max sum_v m_v - sum_q room_q s_q`` with one unit of time prices in all."""
    import pulp

    from balance.engines.highs import solve_model

    model = pulp.LpProblem("prices", pulp.LpMinimize)
    types = range(tables.n_types)
    time = [pulp.LpVariable(f"time_{q}", 0.0) for q in types]
    space = [pulp.LpVariable(f"space_{q}", 0.0) if np.isfinite(room[q]) else None for q in types]
    least = [pulp.LpVariable(f"least_{v}") for v in range(tables.n)]
    rent = pulp.lpSum(float(room[q]) * s for q, s in enumerate(space) if s is not None)
    model += rent - pulp.lpSum(least)
    model += pulp.lpSum(int(tables.counts[q]) * time[q] for q in types) == 1
    for q, v in zip(*np.nonzero(~barred), strict=True):
        cell = float(work[q, v]) * time[q]
        price = space[q]
        model += least[v] <= (cell if price is None else cell + float(size[v]) * price)
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
