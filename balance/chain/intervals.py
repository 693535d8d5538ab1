"""Chain wing: the interval program for devices in a given order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from balance.chain.reasons import reasons
from balance.chain.tables import ChainTables, Ways
from balance.chain.threshold import shared_refusals
from balance.limits import Run, StopReason
from balance.pareto import sweep
from balance.problems.chain import ChainProblem
from balance.problems.model.plan import Plan
from balance.registry import Outcome, Solver

CELLS = 200_000_000
CALLS = 200_000


class Intervals(Solver):
    """Exact for devices in a given order: the best suffix for every device and item, from the last device to the first.

    ``V[d][i] = min(V[d + 1][i], min_j max(cost_d(i, j), V[d + 1][j]))``: device d stays idle, or takes items i to
    j - 1. Where memory depends on the number of stages after, that number is part of the state; where links differ, so
    is the link to the device before. The inner loop ends as soon as the compute of a stage alone exceeds the best value
    known, which leaves far fewer than the p N^2 / 2 steps of the full table.
    """

    name = "intervals"
    problem = ChainProblem
    exact = True
    proves_bound = True
    needs = ("numba",)

    def accepts(self, problem: ChainProblem) -> str | None:
        """Refuse free orders of different devices and tables that would not fit."""
        tables = ChainTables(problem)
        uneven = problem.cluster.links not in ("uniform", "none")
        if problem.device_order == "free" and (tables.n_classes > 1 or uneven):
            return "the order of different devices is free"
        refusal = shared_refusals(problem, tables)
        if refusal:
            return refusal
        states, calls = _size(tables)
        if states * (tables.n + 1) > CELLS:
            return f"its table would have {states * (tables.n + 1):.3g} entries, more than {CELLS:.3g}"
        if calls > CALLS:
            return f"uneven links and idle devices would take {calls} layers, more than {CALLS}; use idle=False"
        return None

    def rank(self, problem: ChainProblem) -> int:
        """Come after the methods for equal devices."""
        return 2

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Return the optimum; when stopped before the end, only what was known before."""
        tables = ChainTables(problem)
        program = _Program(tables, run)
        if problem.objective == "bottleneck":
            found = program.search(0, np.inf, np.inf)
            result = None if found is None else (found[0], found[0], found[1])
        else:
            result = sweep(program.search, run)
        return conclude(problem, run, result, self.name, {"layers": program.layers})


def conclude(
    problem: ChainProblem, run: Run, result: tuple[float, float, Plan] | None, name: str, stats: dict[str, Any]
) -> Outcome:
    """Turn (objective, bound, plan) or None into an outcome, honest about being stopped."""
    stopped = run.should_stop()
    reason = (run.stop_reason or StopReason.time_limit) if stopped else StopReason.finished
    if result is not None:
        proved = result[1] >= result[0] * (1 - 1e-12)
        return Outcome(
            solution=result[2],
            bound=result[1],
            bound_name=name,
            stop_reason=StopReason.finished if proved else reason,
            stats=stats,
        )
    if stopped:
        return Outcome(stop_reason=reason, stats=stats)
    return Outcome(proved_infeasible=True, infeasible=reasons(problem), stats=stats)


@dataclass(eq=False)
class _State:
    """The best suffixes that start on or after a device, for one state of the program."""

    value: Any
    choice: Any
    flag: Any
    source: Any  # index of the state that follows the stage


def _size(tables: ChainTables) -> tuple[int, int]:
    """Return the number of states and of layer computations."""
    problem, p = tables.problem, tables.problem.cluster.n_devices
    if not problem.idle:
        return p, p
    depth = min(p, tables.n) if tables.flight_matters else 1
    if problem.cluster.links in ("uniform", "none"):
        return p * depth, p * depth
    kinds = _link_count(tables)
    return p * kinds * depth, p * p * kinds * depth // 2


def _link_count(tables: ChainTables) -> int:
    cluster = tables.problem.cluster
    return 2 if cluster.links == "hierarchical" else cluster.n_devices


class _StoppedError(Exception):
    """The run said stop in the middle of a layer; what is tabulated proves nothing."""


class _Program:
    """The layers of the program for one choice of objective and limits."""

    def __init__(self, tables: ChainTables, run: Run) -> None:
        from balance.chain import _kernels

        self.kernels: Any = _kernels
        self.tables = tables
        self.run = run
        self.layers = 0
        self._sides: dict[tuple[int, Ways | None, Ways | None], Any] = {}

    def search(self, mode: int, most_f: float, most_b: float) -> tuple[float, Plan] | None:
        """Return the least largest load (total, forward or backward by `mode`) and its plan within the limits.

        None if there is none, or if the run stopped it.
        """
        problem = self.tables.problem
        try:
            if not problem.idle:
                return self._all_used(mode, most_f, most_b)
            if problem.cluster.links in ("uniform", "none"):
                return self._idle_allowed(mode, most_f, most_b)
            return self._uneven_links(mode, most_f, most_b)
        except _StoppedError:
            return None

    def _empty(self, like: _State | None = None) -> _State:
        n = self.tables.n
        if like is not None:
            return _State(like.value.copy(), np.full(n, -1), np.zeros(n, dtype=np.bool_), np.full(n, -1))
        value = np.full(n + 1, np.inf)
        return _State(value, np.full(n, -1), np.zeros(n, dtype=np.bool_), np.full(n, -1))

    def _extend(
        self, device: int, after: Any, into: _State, mark: int, y: int, mode: int, limits: tuple[float, float],
        left: Ways | None = None, right: Ways | None = None,
    ) -> None:  # fmt: skip
        """Let `device` take the next stage, in front of the suffixes valued `after`."""
        key = (int(self.tables.device_class[device]), left, right)
        if key not in self._sides:
            self._sides[key] = self.tables.sides(device, left, right)
        sides = self._sides[key]
        self.layers += 1
        item = self.tables.n - 1
        while item >= 0:
            if self.run.should_stop():
                raise _StoppedError
            item, _ = self.kernels.extend(
                self.tables.costs, key[0], sides[0], sides[1], y,
                float(self.tables.problem.cluster.memory_bytes[device]), after,
                into.value, into.choice, into.flag, into.source, mark, mode, limits[0], limits[1],
                item, self.kernels.STEPS,
            )  # fmt: skip

    def _all_used(self, mode: int, most_f: float, most_b: float) -> tuple[float, Plan] | None:
        """Every device holds a stage, so the device decides the number of stages after it."""
        problem = self.tables.problem
        cluster, p = problem.cluster, problem.cluster.n_devices
        uneven = cluster.links not in ("uniform", "none")
        ahead = self._empty()
        ahead.value[-1] = 0.0
        states: list[_State] = []
        for d in range(p - 1, -1, -1):
            state = self._empty()
            left = cluster.both_ways(d - 1, d) if uneven and d > 0 else None
            right = cluster.both_ways(d, d + 1) if uneven and d + 1 < p else None
            self._extend(d, ahead.value, state, 0, problem.flight(p - 1 - d), mode, (most_f, most_b), left, right)
            states.append(state)
            ahead = state
        if not np.isfinite(ahead.value[0]):
            return None
        cuts, flags = [0], []
        for state in reversed(states):
            flags.append(bool(state.flag[cuts[-1]]))
            cuts.append(int(state.choice[cuts[-1]]))
        return float(ahead.value[0]), self.tables.plan(cuts, list(range(p)), flags)

    def _idle_allowed(self, mode: int, most_f: float, most_b: float) -> tuple[float, Plan] | None:
        """Any device may stay idle; links are equal. State: device, and stages so far where memory asks for it."""
        problem, n = self.tables.problem, self.tables.n
        p = problem.cluster.n_devices
        depth = min(p, n) if self.tables.flight_matters else 1
        end = self._empty()
        end.value[-1] = 0.0
        nothing = self._empty()
        # after[u]: best suffixes with u + 1 stages (with any number where depth is 1).
        after = [nothing] * depth
        layers: list[list[_State]] = []
        for d in range(p - 1, -1, -1):
            layer = []
            for u in range(min(depth, p - d)):
                state = self._empty(after[u])
                if depth == 1:
                    # The empty suffix is one of the suffixes to go in front of.
                    values = after[0].value.copy()
                    values[-1] = 0.0
                else:
                    values = end.value if u == 0 else after[u - 1].value
                self._extend(d, values, state, 0, problem.flight(u), mode, (most_f, most_b))
                layer.append(state)
            layers.append(layer)
            after = layer + after[len(layer) :]
        best = min(range(depth), key=lambda u: (after[u].value[0], u))
        if not np.isfinite(after[best].value[0]):
            return None
        value, cuts, devices, flags = float(after[best].value[0]), [0], [], []
        u = best
        for d, layer in enumerate(reversed(layers)):
            if cuts[-1] == n:
                break
            if u >= len(layer):
                continue
            j = int(layer[u].choice[cuts[-1]])
            if j < 0:
                continue
            devices.append(d)
            flags.append(bool(layer[u].flag[cuts[-1]]))
            cuts.append(j)
            u = max(u - 1, 0)
        return value, self.tables.plan(cuts, devices, flags)

    def _uneven_links(self, mode: int, most_f: float, most_b: float) -> tuple[float, Plan] | None:
        """Any device may stay idle and links differ: the state names the device and the links to the one before."""
        problem, n = self.tables.problem, self.tables.n
        cluster, p = problem.cluster, problem.cluster.n_devices
        depth = min(p, n) if self.tables.flight_matters else 1
        end = self._empty()
        end.value[-1] = 0.0
        states: dict[tuple[int, int, Ways | None], _State] = {}
        for d in range(p - 1, -1, -1):
            incoming: list[Ways | None] = list(dict.fromkeys(cluster.both_ways(e, d) for e in range(d)))
            for u in range(min(depth, p - d)):
                y = problem.flight(u)
                for left in [*incoming, None]:
                    state = self._empty()
                    if u == 0 or depth == 1:
                        self._extend(d, end.value, state, p, y, mode, (most_f, most_b), left)
                    for f in range(d + 1, p):
                        ways = cluster.both_ways(d, f)
                        follower = states.get((f, u if depth == 1 else u - 1, ways))
                        if follower is not None:
                            self._extend(d, follower.value, state, f, y, mode, (most_f, most_b), left, ways)
                    states[d, u, left] = state
        starts = [(state.value[0], key) for key, state in states.items() if key[2] is None]
        value, (d, u, left) = min(starts, key=lambda pair: (pair[0], pair[1][0], pair[1][1]))
        if not np.isfinite(value):
            return None
        cuts, devices, flags = [0], [], []
        while cuts[-1] < n:
            state = states[d, u, left]
            i = cuts[-1]
            devices.append(d)
            flags.append(bool(state.flag[i]))
            cuts.append(int(state.choice[i]))
            follower_device = int(state.source[i])
            if follower_device < p:
                left = cluster.both_ways(d, follower_device)
                d, u = follower_device, (u if depth == 1 else u - 1)
        return float(value), self.tables.plan(cuts, devices, flags)
