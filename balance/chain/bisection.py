"""Chain wing: probe and exact bisection, for chains without communication and memory limits."""

from __future__ import annotations

import numpy as np

from balance.chain.reasons import reasons
from balance.chain.tables import ChainTables
from balance.limits import Run
from balance.problems.chain import ChainProblem
from balance.registry import Outcome, Solver


class Bisection(Solver):
    """Exact: greedy probes inside a bisection that only visits bottlenecks that some division has.

    A probe gives each device in turn the longest run of items within a limit; it succeeds iff some division does.
    After a success the upper end drops to the bottleneck found, after a failure the lower end rises to the least load
    that one more item would have made, so the search ends at the optimum itself. O(p log N) a probe. [Pinar and
    Aykanat 2004; for different devices in a given order, Pinar, Tabak and Aykanat 2008.]
    """

    name = "bisection"
    problem = ChainProblem
    exact = True
    proves_bound = True
    needs = ("numba",)

    def accepts(self, problem: ChainProblem) -> str | None:
        """Refuse communication, memory limits and free orders of different devices."""
        tables = ChainTables(problem)
        if problem.objective != "bottleneck":
            return "it answers the bottleneck objective only"
        if problem.communicates and problem.cluster.n_devices > 1:
            return "communication makes greedy probes wrong"
        if problem.chunks > 1:
            return "it gives each device one stage"
        if tables.limited:
            return "memory limits are not handled"
        if tables.n_classes > 1 and problem.device_order == "free":
            return "different devices in free order are not handled"
        if tables.n_classes > 1 and not problem.idle:
            return "different devices that must all be used are not handled"
        return None

    def rank(self, problem: ChainProblem) -> int:
        """Come first: nothing is faster."""
        return 0

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Return the optimum; a time limit is not looked at, since a run of a million items takes milliseconds."""
        from balance.chain._kernels import longest_prefixes

        tables = ChainTables(problem)
        n, p = tables.n, problem.cluster.n_devices
        if not problem.idle and n < p:
            return Outcome(proved_infeasible=True, infeasible=reasons(problem))
        forward, backward = tables.seconds
        scale = 2.0 if problem.recompute == "always" else 1.0
        prefix = scale * forward + backward if backward.any() or scale != 1.0 else forward
        stop = _next_barred(tables)
        classes = tables.device_class
        cuts = np.zeros(p + 1, dtype=np.int64)
        reach, high, _ = longest_prefixes(prefix, stop, classes, np.inf, cuts)
        if reach < n:
            return Outcome(proved_infeasible=True, infeasible=reasons(problem))
        best = cuts.copy()
        low = _floor(prefix, tables.barred, classes)
        probes = 1
        while low < high:
            middle = 0.5 * (low + high)
            if not low < middle < high:
                middle = low
            reach, worst, floor = longest_prefixes(prefix, stop, classes, middle, cuts)
            probes += 1
            if reach == n:
                high, best = worst, cuts.copy()
            else:
                low = floor
        if not problem.idle:
            # Equal devices: taking items from the last stages for the unused devices raises no load.
            best = np.minimum(best, n - p + np.arange(p + 1))
            best[0] = 0
        used = np.flatnonzero(np.diff(best) > 0)
        bounds = np.concatenate((best[used], [n]))
        plan = tables.plan(bounds, used.tolist(), [problem.recompute == "always"] * len(used))
        return Outcome(solution=plan, bound=high, bound_name="bisection", stats={"probes": probes})


def _next_barred(tables: ChainTables) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return, per class and item, the next item at or after it that the class cannot host (N if none)."""
    n = tables.n
    stop = np.full((tables.n_classes, n + 1), n, dtype=np.int64)
    for q in range(tables.n_classes):
        bad = np.flatnonzero(np.diff(tables.barred[q]) > 0)
        if len(bad):
            padded = np.append(bad, n)
            stop[q] = padded[np.searchsorted(bad, np.arange(n + 1))]
    return stop


def _floor(
    prefix: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    barred: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    classes: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> float:
    """Return a bottleneck that nothing beats: the largest item where it is fastest, or the fair share of devices."""
    items = np.where(np.diff(barred) > 0, np.inf, np.diff(prefix)).min(axis=0)
    counts = np.bincount(classes, minlength=len(prefix))
    largest = float(items.max(initial=0.0))
    if len(prefix) == 1:
        # Rounding of the quotient must not lift the floor above the optimum.
        return max(largest * (1 - 1e-12), float(prefix[0, -1]) / int(counts[0]) * (1 - 1e-12))
    return largest * (1 - 1e-12)
