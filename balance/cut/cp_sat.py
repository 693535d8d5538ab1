"""Cut wing: constraint programs for CP-SAT: prefixes for pipelines, assignments without an order of stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balance.cut.layers import floor
from balance.cut.presolve import presolve
from balance.cut.reasons import obvious, reasons
from balance.cut.tables import CutTables
from balance.engines.outcome import EngineStatus
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.problems.model.plan import Assignment, Plan
from balance.registry import Outcome, Solver
from balance.status import is_closed

RESOLUTION = 2.0**31
"""Least number of units of a proved lower bound on the objective, where `SUM` allows it. Each term of a load is rounded
down by less than one unit: a load of 200 terms by less than 1e-7 of it. Costs that are multiples of a power of two, as
whole numbers of seconds are, are not rounded at all."""

SUM = 2.0**50
"""Largest sum of units that a model may hold."""

BYTES = 2.0**31
"""Largest number of units of memory that a block may need. Smaller memories are counted in bytes."""

LITERALS = 400_000
"""Literals of the largest model that is built."""


class CpSat(Solver):
    """Exact: clauses over "block v is in stage s", by CP-SAT; the first choice where ideals are too many.

    Pipelines are stated by prefixes (block v is in stage s or after it), other contiguities by devices, with the
    convexity rows of Tarnawski et al. 2020. Loads are integers, rounded down, so that the bound is valid: at an optimum
    it is below by less than (terms of a load) / `RESOLUTION`, about 1e-7 of it. Memory is rounded so that no solution
    is cut off; what does not fit is found by the evaluator, excluded by a clause, and the model is solved again.
    """

    name = "cp_sat"
    problem = CutProblem
    exact = True
    proves_bound = True
    needs = ("ortools",)

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse models that are too large."""
        tables = CutTables.of(problem)
        places = tables.most_stages if problem.contiguity == "acyclic" else problem.cluster.n_devices
        size = (2 * tables.n + 2 * len(tables.nets)) * places
        return f"its model would have about {size} literals, more than {LITERALS}" if size > LITERALS else None

    def rank(self, problem: CutProblem) -> int:
        """Come after everything that is faster where it applies."""
        return 70

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the optimum, or the best solution and bound when time is over."""
        from balance.engines.cp_sat import solve_cp

        tables = CutTables.of(problem)
        impossible = obvious(tables)
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        reduction = presolve(tables, run)
        tables = reduction.tables
        program = CutProgram(tables, run.best, run.bound)
        proved = -math.inf
        while True:
            answer = solve_cp(program.model, run, read=program.read, scale=program.scale)
            proved = max(proved, answer.bound)
            known = min(answer.objective, run.objective)
            closed = known < math.inf and is_closed(known, proved)
            if answer.status is not EngineStatus.optimal or closed or not program.exclude_refused():
                break
        stats = {**answer.stats, **reduction.stats}
        if answer.status is EngineStatus.infeasible:
            return Outcome(proved_infeasible=True, infeasible=reasons(tables), stats=stats)
        return Outcome(
            None if answer.values is None else answer.values["solution"],
            bound=proved,
            bound_name="cp_sat",
            stop_reason=answer.stop_reason,
            stats=stats,
        )


class CutProgram:
    """The constraint program of a cut problem.

    Parameters
    ----------
    tables
        The problem. Stages of pipelines are counted from the last one; without an order, places are devices.
    best
        A solution with its objective: worse ones are cut off, and the search starts from it.
    bound
        A lower bound on the objective that is known already.

    Attributes
    ----------
    model
        The model; its objective is in units.
    scale
        Units in a second, a power of two.
    """

    def __init__(
        self, tables: CutTables, best: tuple[Plan | Assignment, float] | None = None, bound: float = -math.inf
    ) -> None:
        from ortools.sat.python import cp_model

        self.tables, self.problem = tables, tables.problem
        self.model = cp_model.CpModel()
        self.ordered = tables.problem.contiguity == "acyclic"
        self.places = tables.most_stages if self.ordered else tables.problem.cluster.n_devices
        self.refused: list[tuple[int, int, list[int]]] = []
        least = max(bound, tables.unscaled(floor(tables)) * (1 - 1e-9), 0.0)
        most = self._most()
        finest = SUM / most if most > 0 else 1.0
        self.scale = _power_of_two(min(RESOLUTION / least, finest) if least > 0 else finest)
        self.largest = math.floor((most if best is None else min(most, best[1])) * self.scale) + 1
        self.least = math.floor(least * (1 - 1e-9) * self.scale)
        self.stage: dict[tuple[int, int], Any] = {}
        self.kind: dict[tuple[int, int], Any] = {}
        if self.ordered:
            self._prefixes()
        else:
            self._devices()
        self._objective()
        if best is not None:
            self._hint(best[0])

    def _most(self) -> float:
        """Return seconds that no objective exceeds."""
        tables, speed = self.tables, self.problem.overflow_bandwidth
        most = float(tables.seconds.sum(axis=2).max(axis=0).sum())
        most += 2 * self.places * float(tables.nets.weight.sum()) / tables.scale
        if speed is not None:
            flight = max(self.problem.flight(after) for after in range(self.places))
            most += float((tables.held + flight * tables.kept + tables.workspace).sum()) / speed
        return most

    # -- who is where ------------------------------------------------------------------------------------------

    def _place(self, v: int) -> None:
        for s in range(self.places):
            self.stage[v, s] = self.model.new_bool_var(f"x_{v}_{s}")
        self.model.add_exactly_one(self.stage[v, s] for s in range(self.places))

    def _prefixes(self) -> None:
        """Blocks to stages, in order; stages to types."""
        tables, model, last = self.tables, self.model, self.places - 1
        prefix: dict[tuple[int, int], Any] = {}
        for v in range(tables.n):
            self._place(v)
            for s in range(last):
                prefix[v, s] = self.stage[v, 0] if s == 0 else model.new_bool_var(f"y_{v}_{s}")
                if s:
                    model.add_bool_or(prefix[v, s - 1], self.stage[v, s], ~prefix[v, s])
                    model.add_implication(prefix[v, s - 1], prefix[v, s])
                    model.add_implication(self.stage[v, s], prefix[v, s])
                    model.add_bool_or(~prefix[v, s - 1], ~self.stage[v, s])
            if last > 0:
                model.add_exactly_one(prefix[v, last - 1], self.stage[v, last])
        for u, v in zip(tables.source.tolist(), tables.target.tolist(), strict=True):
            for s in range(last):
                model.add_implication(prefix[u, s], prefix[v, s])
        self.prefix = prefix
        used = [model.new_bool_var(f"used_{s}") for s in range(self.places)]
        for s in range(self.places):
            for v in range(tables.n):
                model.add_implication(self.stage[v, s], used[s])
            model.add_bool_or([*(self.stage[v, s] for v in range(tables.n)), ~used[s]])
            if s:
                model.add_implication(used[s], used[s - 1])  # no gap: stages are counted from the last one
        types = range(tables.n_types)
        for s in range(self.places):
            for q in types:
                self.kind[s, q] = used[s] if tables.n_types == 1 else model.new_bool_var(f"a_{s}_{q}")
            if tables.n_types > 1:
                model.add_exactly_one([*(self.kind[s, q] for q in types), ~used[s]])
        for q in types:
            model.add(sum(self.kind[s, q] for s in range(self.places)) <= int(tables.counts[q]))
            for v in np.flatnonzero(tables.barred[q]).tolist():
                for s in range(self.places):
                    model.add_bool_or(~self.stage[v, s], ~self.kind[s, q])

    def _devices(self) -> None:
        """Blocks to devices; equal devices are told apart by the first block that they hold."""
        tables, model, problem = self.tables, self.model, self.problem
        always = model.new_constant(1)
        for v in range(tables.n):
            self._place(v)
            for d in range(self.places):
                if tables.barred[tables.types[d], v]:
                    model.add(self.stage[v, d] == 0)
        for d in range(self.places):
            self.kind[d, int(tables.types[d])] = always
        for equal in tables.type_devices:
            for before, after in itertools.pairwise(equal):
                for v in range(tables.n):
                    model.add_bool_or([~self.stage[v, after], *(self.stage[u, before] for u in range(v))])
        if problem.max_stages is not None:
            used = [model.new_bool_var(f"used_{d}") for d in range(self.places)]
            model.add(sum(used) <= problem.max_stages)
            for (_, d), here in self.stage.items():
                model.add_implication(here, used[d])
        if problem.contiguity == "convex":
            self._convex()

    def _convex(self) -> None:
        """Keep forward operators convex: once a path has left a device, no operator behind is on it."""
        graph, block = self.problem.graph, self.tables.block
        late = graph.is_backward
        source, target = graph.tensors.edge_producer, graph.tensors.consumers
        ahead = np.flatnonzero(~late).tolist()
        for d in range(self.places):
            open_ = {v: self.model.new_bool_var(f"z_{v}_{d}") for v in ahead}
            for v in ahead:
                self.model.add_implication(self.stage[int(block[v]), d], open_[v])
            for u, v in zip(source.tolist(), target.tolist(), strict=True):
                if not (late[u] or late[v]):
                    self.model.add_implication(open_[v], open_[u])
                    # z_v <= x_v - x_u + 1
                    self.model.add_bool_or(~self.stage[int(block[u]), d], self.stage[int(block[v]), d], ~open_[v])

    # -- what it costs -----------------------------------------------------------------------------------------

    def _units(self, seconds: float) -> int:
        """Return seconds as units, rounded down; what is more than any solution as good as the best counts as that."""
        return min(math.floor(seconds * self.scale), self.largest + 1)

    def _communication(self) -> tuple[dict[tuple[int, int], list[Any]], dict[tuple[int, int], list[Any]]]:
        """Return the terms received and sent by (phase, place)."""
        tables, model, nets = self.tables, self.model, self.tables.nets
        received: dict[tuple[int, int], list[Any]] = {(f, s): [] for f in (0, 1) for s in range(self.places)}
        sent: dict[tuple[int, int], list[Any]] = {(f, s): [] for f in (0, 1) for s in range(self.places)}
        each = self.problem.send == "each" and self.problem.charge == "tensor"
        for h in range(len(nets)):
            own = int(nets.producer[h])
            pins = nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist()
            readers = [v for v in pins if v != own]
            cost = [self._units(float(nets.weight[f, h]) / tables.scale) for f in (0, 1)]
            if self.problem.routing == "adjacent":
                for s in range(self.places - 1):
                    crosses = model.new_bool_var(f"c_{h}_{s}")
                    # A net crosses unless its blocks are all on one side: u and v in a cycle over the pins suffice.
                    for u, v in itertools.pairwise([*pins, pins[0]]):
                        model.add_bool_or(~self.prefix[u, s], self.prefix[v, s], crosses)
                    for f in (0, 1):
                        received[f, s].append(cost[f] * crosses)
                        sent[f, s + 1].append(cost[f] * crosses)
                continue
            reads = []
            for s in range(self.places):
                i, o = model.new_bool_var(f"i_{h}_{s}"), model.new_bool_var(f"o_{h}_{s}")
                for v in readers:
                    model.add_bool_or(~self.stage[v, s], self.stage[own, s], i)
                    model.add_bool_or(~self.stage[own, s], self.stage[v, s], o)
                reads.append(i)
                for f in (0, 1):
                    received[f, s].append(cost[f] * i)
                    if not (each and len(readers) > 1):
                        sent[f, s].append(cost[f] * o)
            if each and len(readers) > 1:
                for s in range(self.places):
                    ways = model.new_int_var(0, len(readers), f"ways_{h}_{s}")
                    model.add(ways >= sum(reads)).only_enforce_if(self.stage[own, s])
                    for f in (0, 1):
                        sent[f, s].append(cost[f] * ways)
        return received, sent

    def _objective(self) -> None:
        tables, problem, model = self.tables, self.problem, self.model
        received, sent = self._communication()
        both = problem.objective == "bottleneck"
        tops = [model.new_int_var(0, self.largest, name) for name in (("T",) if both else ("T_f", "T_b"))]
        model.add(sum(tops) >= min(self.least, self.largest))
        if not both:
            model.add(sum(tops) <= self.largest)
        for s, q in self.kind:
            streamed = self._memory(s, q)
            for top, phases in zip(tops, [(0, 1)] if both else [(0,), (1,)], strict=True):
                cost = [self._units(float(tables.seconds[q, list(phases), v].sum())) for v in range(tables.n)]
                work = sum(c * self.stage[v, s] for v, c in enumerate(cost) if c)
                taken = sum(term for f in phases for term in received[f, s])
                given = sum(term for f in phases for term in sent[f, s])
                if not tables.pays[q]:
                    rows = [work]
                elif problem.overlap == "sum":
                    rows = [work + taken + given]
                else:
                    rows = [work, taken, given]
                for row in rows:
                    constraint = model.add(top >= row + streamed)
                    if tables.n_types > 1 and self.ordered:
                        constraint.only_enforce_if(self.kind[s, q])
        model.minimize(sum(tops))

    def _memory(self, s: int, q: int) -> Any:
        """Limit the bytes of place s on type q, or return the units of streaming what does not fit."""
        tables, problem, model = self.tables, self.problem, self.model
        room = float(tables.memory_available[q])
        if math.isinf(room):
            return 0
        need = tables.held + problem.flight(s if self.ordered else 0) * tables.kept
        speed = problem.overflow_bandwidth
        # Needs are rounded down: no solution is cut off, and the evaluator refuses what comes through and does not fit.
        grain = self.scale / speed if speed is not None else min(1.0, BYTES / max(float(need.max()), room, 1.0))
        scratch: Any = 0
        if tables.workspace.any():
            scratch = model.new_int_var(0, math.ceil(float(tables.workspace.max()) * grain), f"scratch_{s}_{q}")
            for v in np.flatnonzero(tables.workspace).tolist():
                model.add(scratch >= math.floor(tables.workspace[v] * grain)).only_enforce_if(self.stage[v, s])
        here = sum(math.floor(x * grain) * self.stage[v, s] for v, x in enumerate(need.tolist()) if x) + scratch
        if speed is None:
            limit = model.add(here <= math.floor(room * grain * (1 + 1e-12)))
            if self.ordered:
                limit.only_enforce_if(self.kind[s, q])
            return 0
        streamed = model.new_int_var(0, self.largest, f"streamed_{s}_{q}")
        excess = model.add(streamed >= here - math.ceil(min(room * grain, 2 * SUM)))
        if self.ordered:
            excess.only_enforce_if(self.kind[s, q])
        return streamed

    # -- solutions ---------------------------------------------------------------------------------------------

    def read(self, value: Callable[[Any], bool]) -> tuple[Plan | Assignment, float]:
        """Return the solution that literals describe, with its objective by the evaluator."""
        tables = self.tables
        stage = np.zeros(tables.n, dtype=np.int64)
        for (v, s), here in self.stage.items():
            if value(here):
                stage[v] = s
        places: list[int] = sorted(set(stage.tolist()), reverse=self.ordered)
        if self.ordered:
            used = places
            types = [next(q for q in range(tables.n_types) if value(self.kind[s, q])) for s in used]
            solution: Plan | Assignment = tables.plan([np.flatnonzero(stage == s) for s in used], types)
        else:
            solution = tables.assignment(stage)
        evaluation = self.problem.evaluate(solution)
        if evaluation.feasible:
            return solution, evaluation.objective
        # Figures are listed by stage, or by used device in the order of devices: as `places` are.
        excess = evaluation.breakdown["memory"] - evaluation.breakdown["memory_available"]
        for s, over in zip(places, excess.tolist(), strict=True):
            if over > 0:
                kind = next(q for q in range(tables.n_types) if (s, q) in self.kind and value(self.kind[s, q]))
                self.refused.append((s, kind, np.flatnonzero(stage == s).tolist()))
        return solution, math.inf

    def exclude_refused(self) -> bool:
        """Exclude sets of blocks that did not fit although their rounded bytes did; return whether there were any."""
        refused, self.refused = self.refused, []
        for s, q, blocks in refused:
            same = [s] if self.ordered else self.tables.type_devices[q]
            for place in same:
                self.model.add_bool_or([*(~self.stage[v, place] for v in blocks), ~self.kind[place, q]])
        return bool(refused)

    def _hint(self, solution: Plan | Assignment) -> None:
        """Start from a solution."""
        part, devices = self.tables.blocks_of(solution)
        last = len(devices) - 1
        place = last - part if self.ordered else devices[part]
        for (v, s), here in self.stage.items():
            self.model.add_hint(here, int(s == place[v]))
        if not self.ordered:
            return
        for (v, s), upto in self.prefix.items():
            if s:  # the first is the literal of stage 0
                self.model.add_hint(upto, int(place[v] <= s))
        for (s, q), on in self.kind.items():
            self.model.add_hint(on, int(s <= last and self.tables.types[devices[last - s]] == q))


def _power_of_two(value: float) -> float:
    """Return the largest power of two that is not above a positive number."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1)
