"""Chain wing: the count-vector program for devices in free order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from balance.chain.intervals import conclude
from balance.chain.tables import ChainTables
from balance.chain.threshold import shared_refusals
from balance.limits import Run
from balance.pareto import sweep
from balance.problems.chain import ChainProblem
from balance.problems.model.plan import Plan
from balance.registry import Outcome, Solver

CELLS = 120_000_000


class Counts(Solver):
    """Exact for devices in free order when few classes of equal devices exist.

    Equal devices can be exchanged, so it is enough to know how many of each class hold the items from i on:
    ``V[c + e_q][i] = min over q and j of max(cost_q(i, j), V[c][j])``. The number of stages after a stage is the sum
    of c, so memory by schedule costs no further state. ``prod(m_q + 1)`` states for multiplicities m_q.
    """

    name = "counts"
    problem = ChainProblem
    exact = True
    proves_bound = True
    needs = ("numba",)

    def accepts(self, problem: ChainProblem) -> str | None:
        """Refuse given orders of different devices, uneven links and too many states."""
        tables = ChainTables(problem)
        if problem.device_order == "given" and tables.n_classes > 1:
            return "the order of the devices is given"
        if problem.cluster.links not in ("uniform", "none"):
            return "free device order needs the same link between all devices"
        refusal = shared_refusals(problem, tables)
        if refusal:
            return refusal
        states = _states(tables)
        if states * (tables.n + 1) > CELLS:
            return f"its table would have {states * (tables.n + 1):.3g} entries, more than {CELLS:.3g}"
        return None

    def rank(self, problem: ChainProblem) -> int:
        """Come after the methods for equal devices."""
        return 3

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Return the optimum; when stopped before the end, only what was known before."""
        tables = ChainTables(problem)
        program = _Program(tables, run)
        if problem.objective == "bottleneck":
            found = program.search(0, np.inf, np.inf)
            result = None if found is None else (found[0], found[0], found[1])
        else:
            result = sweep(program.search, run)
        return conclude(problem, run, result, self.name, {"states": program.states})


def _multiplicity(tables: ChainTables) -> list[int]:
    """Return how many devices of each class a plan can use, at most one per item."""
    return [min(len(devices), tables.n) for devices in tables.members]


def _states(tables: ChainTables) -> int:
    return math.prod(m + 1 for m in _multiplicity(tables))


class _Program:
    """The table over count vectors."""

    def __init__(self, tables: ChainTables, run: Run) -> None:
        from balance.chain import _kernels

        self.kernels: Any = _kernels
        self.tables, self.run = tables, run
        self.states = _states(tables)
        self.multiplicity = np.array(_multiplicity(tables), dtype=np.int64)
        sides = [tables.sides(int(devices[0])) for devices in tables.members]
        self.lefts = np.stack([left for left, _ in sides])
        self.rights = np.stack([right for _, right in sides])
        memory = tables.problem.cluster.memory_bytes
        self.capacities = np.array([memory[int(devices[0])] for devices in tables.members], dtype=np.float64)

    def search(self, mode: int, most_f: float, most_b: float) -> tuple[float, Plan] | None:
        """Return the least largest load (total, forward or backward by `mode`) and its plan within the limits.

        None if there is none, or if the run stopped it.
        """
        tables, n = self.tables, self.tables.n
        # The kernel sets a row when it comes to it: a large table takes memory and time only as far as it is filled.
        values = np.empty((self.states, n + 1))
        values[0] = np.inf
        values[0, n] = 0.0
        choices = np.empty((self.states, n), dtype=np.int32)
        flags = np.zeros((self.states, n), dtype=np.bool_)
        sources = np.zeros((self.states, n), dtype=np.int8 if len(self.multiplicity) < 128 else np.int32)
        cursor = np.array([1, 0, n - 1], dtype=np.int64)
        while not self.kernels.count_vectors(
            tables.costs, self.lefts, self.rights, self.capacities, self.multiplicity, tables.flights,
            values, choices, flags, sources, mode, most_f, most_b, cursor, self.kernels.STEPS,
        ):  # fmt: skip
            if self.run.should_stop():
                return None
        ends = values[:, 0]
        if tables.problem.idle:
            state = int(np.argmin(ends))
        else:
            full = all(m == len(d) for m, d in zip(self.multiplicity, tables.members, strict=True))
            state = self.states - 1
            if not full:
                return None
        if not np.isfinite(ends[state]):
            return None
        value = float(ends[state])
        strides = np.concatenate(([1], np.cumprod(self.multiplicity[:-1] + 1)))
        waiting = [list(devices) for devices in tables.members]
        cuts, devices, recompute = [0], [], []
        while cuts[-1] < n:
            i = cuts[-1]
            q = int(sources[state, i])
            devices.append(int(waiting[q].pop(0)))
            recompute.append(bool(flags[state, i]))
            cuts.append(int(choices[state, i]))
            state -= int(strides[q])
        return value, tables.plan(cuts, devices, recompute)
