"""Cut wing: convex relaxations in cvxpy, for research on small graphs; an interior-point solver's word is not taken.

A conic program ``min c'x`` with ``A x + s = b``, s in a cone K, is bounded by any y in the dual cone: ``c'x = r'x - b'y
+ y's >= r'x - b'y`` with ``r = c + A'y``. Here every variable but the bottleneck lies between 0 and 1 in the solutions
of interest, so that ``r'x`` is at least the sum of the negative parts of r. The solver's y is moved into the dual cone
first; what is left is the rounding of one matrix product. So the bound holds whenever the solver is stopped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.cut._block_models import View
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.model.tensors import FloatArray, IntArray

if TYPE_CHECKING:
    import cvxpy

LARGEST = 150
"""Blocks; beyond, matrices of all pairs take too long."""

SAFETY = 1e-9
"""Units taken off for the rounding of sums; all numbers of a model are about 1."""


def partition(tables: CutTables, run: Run, *, semidefinite: bool) -> float:
    """Return the bound of `balance.cut.bounds.partition_sdp` or `partition_lp`, in seconds."""
    import cvxpy as cp

    view, n, k = View.least(tables), tables.n, tables.most_stages
    weight, pairs, home = _pairs(view)
    together = cp.Variable((n, n), symmetric=True)
    load, cut = cp.Variable(), cp.Variable(max(len(weight), 1))
    rows = [
        together[np.arange(n), np.arange(n)] == 1,
        together >= 0,
        together @ view.work <= load,
        cut >= 0,
        k * load >= view.work.sum() + 2 * (_paid(weight) @ cut),
    ]
    if len(pairs):
        rows.append(cut[home] >= 1 - together[pairs[:, 0], pairs[:, 1]])
    if semidefinite:
        rows.append(together - np.ones((n, n)) / k >> 0)
    else:
        ends = np.unique(np.sort(pairs, axis=1), axis=0)
        for u, v in ends.tolist():
            rows.append(together[u, v] + together[v] - together[u] <= 1)
            rows.append(together[u, v] + together[u] - together[v] <= 1)
    return _certified(cp.Problem(cp.Minimize(load), rows), run, load) * view.unit


def block(tables: CutTables, run: Run, *, semidefinite: bool) -> float:
    """Return the bound of `balance.cut.bounds.block_sdp` or `block_lp`, in seconds."""
    import cvxpy as cp

    view, n = View.least(tables), tables.n
    weight, pairs, home = _pairs(view)
    products, cut = cp.Variable((n + 1, n + 1), symmetric=True), cp.Variable(max(len(weight), 1))
    inside, both = products[0, 1:], products[1:, 1:]  # of the vector (1, x) with itself
    share = float(view.work.sum()) / tables.most_stages
    rows = [
        products[0, 0] == 1,
        both[np.arange(n), np.arange(n)] == inside,
        both >= 0,
        cut >= 0,
        both @ view.work >= share * inside,
        (view.work @ inside) - both @ view.work >= share * (1 - inside),
    ]
    if len(pairs):
        first, second = pairs[:, 0], pairs[:, 1]
        rows.append(cut[home] >= inside[first] + inside[second] - 2 * both[first, second])
    if semidefinite:
        rows.append(products >> 0)
    else:
        for v in range(n):
            rows += [both[v] <= inside[v], both[v] >= inside + inside[v] - 1]
    return _certified(cp.Problem(cp.Minimize(view.work @ inside + _paid(weight) @ cut), rows), run, None) * view.unit


def _pairs(view: View) -> tuple[FloatArray, IntArray, IntArray]:
    """Return weights of nets that are paid, their pairs of producer and reader, and the net of each pair."""
    nets = view.tables.nets
    used = np.flatnonzero(view.weight > 0) if view.tables.problem.overlap == "sum" else np.zeros(0, dtype=np.int64)
    pairs, home = [], []
    for place, h in enumerate(used.tolist()):
        own = int(nets.producer[h])
        readers = [v for v in nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist() if v != own]
        pairs += [(own, v) for v in readers]
        home += [place] * len(readers)
    return view.weight[used], np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(home, dtype=np.int64)


def _paid(weight: FloatArray) -> FloatArray:
    """Return weights, at least one: cvxpy has no variables of size 0."""
    return weight if len(weight) else np.zeros(1)


def _certified(program: cvxpy.Problem, run: Run, load: cvxpy.Variable | None) -> float:
    """Return a lower bound from the dual point at which the solver stops.

    Parameters
    ----------
    program
        Minimisation whose variables lie in [0, 1].
    run
        Limits.
    load
        The objective's variable if it has no upper limit.
    """
    import cvxpy as cp

    data, chain, _ = program.get_problem_data(cp.CLARABEL)
    options: dict[str, Any] = {"max_threads": run.threads}
    if math.isfinite(run.remaining()):
        options["time_limit"] = max(run.remaining(), 1e-3)
    raw = chain.solve_via_data(program, data, solver_opts=options)
    dims = data[cp.settings.DIMS]
    y = _into_dual_cone(np.array(raw.z, dtype=np.float64), dims)
    if not np.isfinite(y).all():
        return -math.inf
    residual = data[cp.settings.C] + data[cp.settings.A].T @ y
    value = -float(data[cp.settings.B] @ y)
    factor = 1.0
    if load is not None:
        at = data[cp.settings.PARAM_PROB].var_id_to_col[load.id]
        factor, residual[at] = 1.0 - min(float(residual[at]), 0.0), 0.0
    return (value + float(np.minimum(residual, 0.0).sum())) / factor - SAFETY


def _into_dual_cone(y: FloatArray, dims: Any) -> FloatArray:
    """Return the nearest point of the dual cone: rows without sign, then positive ones, then triangles of matrices.

    A symmetric matrix of order m is the upper triangle by columns, what is off the diagonal times the root of two.
    """
    at = dims.zero
    y[at : at + dims.nonneg] = np.maximum(y[at : at + dims.nonneg], 0.0)
    at += dims.nonneg
    for order in dims.psd:
        stop = at + order * (order + 1) // 2
        columns, rows = np.tril_indices(order)
        matrix = np.zeros((order, order))
        matrix[rows, columns] = y[at:stop] * np.where(rows == columns, 1.0, math.sqrt(0.5))
        matrix = matrix + np.triu(matrix, 1).T
        values, vectors = np.linalg.eigh(matrix)
        matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T
        y[at:stop] = matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
        at = stop
    return y
