"""Chain wing: thresholds on the bottleneck, for equal devices with boundary communication and memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.chain.reasons import reasons
from balance.chain.tables import DIRECT_LIMIT, ChainTables
from balance.limits import Run, StopReason
from balance.problems.chain import ChainProblem
from balance.problems.model.tensors import FloatArray
from balance.registry import Outcome, Solver


class Threshold(Solver):
    """Exact for equal devices: the fewest devices for a threshold, and a bisection over values that stages have.

    For a threshold T, ``count[i] = 1 + min {count[j] : cost(i, j) <= T}`` from the last item to the first gives the
    fewest devices; with memory that grows with the number of stages after a stage, fewer stages after are never worse,
    so the same program stays exact. After a success T drops to the bottleneck found; after a failure it rises to the
    least rejected cost. O(N x window) a probe, O(N^2 log N) in all at worst; one table of counts serves every number
    of devices (see `bottleneck_curve`).
    """

    name = "threshold"
    problem = ChainProblem
    exact = True
    proves_bound = True
    needs = ("numba",)

    def accepts(self, problem: ChainProblem) -> str | None:
        """Refuse different devices, uneven links and devices that must all be used."""
        tables = ChainTables(problem)
        if problem.objective != "bottleneck":
            return "it answers the bottleneck objective only"
        if tables.n_classes > 1:
            return "devices differ"
        if problem.cluster.links not in ("uniform", "none"):
            return "links differ"
        if not problem.idle:
            return "it uses as few devices as it can, and all must be used"
        if problem.in_flight is not None and list(problem.in_flight) != sorted(problem.in_flight):
            return "in-flight counts that fall with the number of stages after are not handled"
        return shared_refusals(problem, tables)

    def rank(self, problem: ChainProblem) -> int:
        """Come after `bisection`."""
        return 1

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Return the optimum, or the best threshold reached when stopped."""
        tables = ChainTables(problem)
        probe = _Probe(tables, run)
        devices = problem.cluster.n_devices
        low, high = probe.bracket(devices, run)
        if high == np.inf:
            if run.should_stop():
                return Outcome(bound=low, bound_name="threshold", stop_reason=run.stop_reason or StopReason.time_limit)
            return Outcome(proved_infeasible=True, infeasible=reasons(problem))
        plan = probe.plan()
        run.report(objective=high, bound=low, solution=plan, bound_name="threshold")
        while low < high and not run.should_stop():
            middle = 0.5 * (low + high)
            if not low < middle < high:
                middle = low
            worst, floor = probe(middle, devices)
            if worst < np.inf:
                high, plan = worst, probe.plan()
                run.report(objective=high, solution=plan)
            else:
                low = max(low, floor)
                run.report(bound=min(low, high), bound_name="threshold")
        bound = min(low, high)
        stopped = low < high
        return Outcome(
            solution=plan,
            bound=bound,
            bound_name="threshold",
            stop_reason=(run.stop_reason or StopReason.time_limit) if stopped else StopReason.finished,
            stats={"probes": probe.probes},
        )


class _Probe:
    """Least numbers of devices for thresholds, with the division of the last success."""

    def __init__(self, tables: ChainTables, run: Run) -> None:
        from balance.chain import _kernels

        self.kernels: Any = _kernels
        self.tables, self.run = tables, run
        self.left, self.right = tables.sides(0)
        self.capacity = float(tables.problem.cluster.memory_bytes[0])
        self.flights = tables.flights
        n = tables.n
        self.count = np.zeros(n + 1, dtype=np.int64)
        self.choice = np.zeros(n, dtype=np.int64)
        self.flag = np.zeros(n, dtype=np.bool_)
        self.probes = 0
        self._best: tuple[Any, Any] | None = None

    def __call__(self, limit: float, devices: int) -> tuple[float, float]:
        """Return (bottleneck found or inf, least threshold worth trying next); (inf, -inf) if the run stopped it."""
        self.probes += 1
        args = (self.tables.costs, self.left, self.right, self.flights, self.capacity)
        item, floor = self.tables.n - 1, np.inf
        while item >= 0:
            if self.run.should_stop():
                return np.inf, -np.inf
            item, floor = self.kernels.fewest_stages(
                *args, limit, self.count, self.choice, self.flag, item, floor, self.kernels.STEPS
            )
        if self.count[0] > min(devices, self.tables.n):  # the kernel says n + 2 where there is no division
            return np.inf, float(floor)
        self._best = (self.choice.copy(), self.flag.copy())
        return float(self.kernels.realised(*args, self.count, self.choice)), float(floor)

    def bracket(self, devices: int, run: Run) -> tuple[float, float]:
        """Return a proved lower end and a bottleneck that some division has (inf if there is none)."""
        forward, backward = self.tables.seconds
        total = float(forward[0, -1] + backward[0, -1])
        items = np.diff(forward[0]) + np.diff(backward[0])
        low = max(total / devices, float(items.max(initial=0.0))) * (1 - 1e-12)
        limit = max(low, 1e-300) * 1.25
        while not run.should_stop():
            worst, floor = self(limit, devices)
            if worst < np.inf:
                return low, worst
            if floor == np.inf:
                return low, np.inf
            low = max(low, floor)
            limit = max(2.0 * limit, low)
        return low, np.inf

    def plan(self) -> Any:
        """Return the plan of the last success."""
        assert self._best is not None  # only called after a success
        choice, flag = self._best
        cuts, recompute = [0], []
        while cuts[-1] < self.tables.n:
            recompute.append(bool(flag[cuts[-1]]))
            cuts.append(int(choice[cuts[-1]]))
        return self.tables.plan(cuts, list(range(len(recompute))), recompute)


def bottleneck_curve(problem: ChainProblem, most: int) -> FloatArray:
    """Return the least bottleneck for every number of equal devices 1..most, shape (most,).

    Parameters
    ----------
    problem
        A problem that `Threshold` accepts; its own number of devices is not looked at.
    most
        Largest number of devices.

    Returns
    -------
    numpy.ndarray
        Seconds; infinity where memory leaves no division. Each value is exact: thresholds that one number of devices
        proves too small are not tried again for smaller numbers.
    """
    tables = ChainTables(problem)
    probe = _Probe(tables, run := Run())
    flights = np.array([problem.flight(u) for u in range(most)], dtype=np.int64)
    probe.flights = flights
    curve = np.full(most, np.inf)
    low = 0.0
    for devices in range(most, 0, -1):  # fewer devices are never faster, so the lower end only rises
        start, high = probe.bracket(devices, run)
        low = max(low, start)
        while low < high < np.inf:
            middle = 0.5 * (low + high)
            if not low < middle < high:
                middle = low
            worst, floor = probe(middle, devices)
            if worst < np.inf:
                high = worst
            else:
                low = max(low, floor)
        curve[devices - 1] = high
        if high == np.inf:
            break
    return curve


def shared_refusals(problem: ChainProblem, tables: ChainTables) -> str | None:
    """Return why a program over stage costs cannot answer, whatever its order of devices."""
    if problem.chunks > 1:
        return "several chunks share a device, so stage costs do not decide its load"
    if problem.routing == "direct" and tables.spans:
        if problem.send == "each" and tables.forks:
            return (
                "with send='each' and direct routing a sender's cost depends on later cuts; use send='once' or adjacent"
            )
        if tables.n > DIRECT_LIMIT:
            return (
                f"direct routing is tabulated for at most {DIRECT_LIMIT} items, got {tables.n}; use routing='adjacent'"
            )
    return None
