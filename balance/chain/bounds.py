"""Chain wing: named lower bounds, each with its proof."""

from __future__ import annotations

import dataclasses

import numpy as np

from balance.chain.tables import ChainTables
from balance.limits import Run
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Link
from balance.registry import bound

_ROUND = 1 - 1e-12  # sums are rounded; a bound must stay below what the evaluator adds up


def _least_seconds(tables: ChainTables) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return seconds per class and item, infinite where barred, shape (Q, N)."""
    forward, backward = tables.seconds
    scale = 2.0 if tables.problem.recompute == "always" else 1.0
    seconds = scale * np.diff(forward, axis=1) + np.diff(backward, axis=1)
    return np.where(np.diff(tables.barred, axis=1) > 0, np.inf, seconds)


@bound(problem=ChainProblem, name="largest-item")
def largest_item(problem: ChainProblem) -> float:
    """Return the largest item on the device where it is fastest.

    Proof: some stage holds the item, and its load (the sum of forward and backward loads, for either objective) is at
    least the item's own time there.
    """
    seconds = _least_seconds(ChainTables(problem))
    return float(seconds.min(axis=0).max(initial=0.0)) * _ROUND


@bound(problem=ChainProblem, name="average")
def average(problem: ChainProblem) -> float:
    """Return the work that each device would have if it could be shared out freely.

    Proof: weigh device d by a positive number a_d. The largest load is at least the weighted mean of the loads, and
    every item adds at least min_d a_d w_d to the sum. With a_d = (largest total time of all items on one class) / (that
    on d's class) this is the speed-weighted average; with equal devices it is W / p. Holds for any positive weights, so
    rounding and the choice of weights cannot break it.
    """
    tables = ChainTables(problem)
    seconds = _least_seconds(tables)
    hosted = np.where(np.isinf(seconds), 0.0, seconds).sum(axis=1)
    weights = np.where(hosted > 0, hosted.max(initial=0.0) / np.where(hosted > 0, hosted, 1.0), 1.0)
    counts = np.array([len(devices) for devices in tables.members])
    with np.errstate(invalid="ignore"):
        least = np.where(np.isinf(seconds), np.inf, seconds * weights[:, None]).min(axis=0).sum()
    return float(least / (weights * counts).sum()) * _ROUND


@bound(problem=ChainProblem, name="no-communication")
def no_communication(problem: ChainProblem) -> float:
    """Return the optimum without communication and memory limits, for devices in a given order or all equal.

    Proof: dropping communication lowers every load, dropping memory limits and pins adds plans; `Bisection` answers the
    rest exactly. Other device orders: infinity below (no bound). For ``fw-bw-bottleneck`` the sum of largest loads is
    at least the largest sum.
    """
    from balance.chain.bisection import Bisection

    graph = problem.graph
    silent = dataclasses.replace(
        problem,
        graph=graph.replace(tensors=_silent(problem), pinned=None),
        cluster=Cluster(
            [dataclasses.replace(device, memory_bytes=np.inf) for device in problem.cluster.devices], link=Link()
        ),
        objective="bottleneck",
        recompute="always" if problem.recompute == "always" else "never",
        idle=True,
        backend="none",
        routing="adjacent",
    )
    solver = Bisection()
    if solver.accepts(silent) is not None:
        return -np.inf
    outcome = solver.solve(silent, Run())
    return np.inf if outcome.proved_infeasible else float(outcome.bound) * _ROUND


def _silent(problem: ChainProblem) -> object:
    from balance.problems.model.tensors import Tensors

    tensors = problem.graph.tensors
    return Tensors(tensors.producer, tensors.offsets, tensors.consumers, 0.0, gradient_bytes=0.0)
