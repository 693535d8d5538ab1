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

RESOLUTION = 2.0**26
"""Units of the least conceivable bottleneck. Each term of a load is rounded down by less than one of them: with fifty
terms the bound is below the optimum by less than 1e-6 of it."""

COEFFICIENT = 2.0**31
"""Largest coefficient. CP-SAT promises more, but with coefficients beyond 32 bits its presolve (OR-Tools 9.15) calls
feasible models infeasible."""

LITERALS = 400_000
"""Literals of the largest model that is built."""


class CpSat(Solver):
    """Exact: clauses over "block v is in stage s", by CP-SAT; the first choice where ideals are too many.

    Pipelines are stated by prefixes (block v is in stage s or after it), other contiguities by devices, with the
    convexity rows of Tarnawski et al. 2020. Loads are integers, rounded down, so that the bound is valid; plans are
    evaluated again in floating point.
    """

    name = "cp_sat"
    problem = CutProblem
    exact = True
    proves_bound = True
    needs = ("ortools",)

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse models that are too large."""
        tables = CutTables(problem)
        places = tables.most_stages if problem.contiguity == "acyclic" else problem.cluster.n_devices
        size = (2 * tables.n + 2 * len(tables.nets)) * places
        return f"its model would have about {size} literals, more than {LITERALS}" if size > LITERALS else None

    def rank(self, problem: CutProblem) -> int:
        """Come after everything that is faster where it applies."""
        return 70

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the optimum, or the best solution and bound when time is over."""
        from balance.engines.cp_sat import solve_cp

        tables = CutTables(problem)
        impossible = obvious(tables)
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        reduction = presolve(tables, run)
        tables = reduction.tables
        program = CutProgram(tables)
        if run.best is not None:
            program.hint(run.best[0])
        answer = solve_cp(program.model, run, read=program.read, scale=program.scale)
        stats = {**answer.stats, **reduction.stats}
        if answer.status is EngineStatus.infeasible:
            return Outcome(proved_infeasible=True, infeasible=reasons(tables), stats=stats)
        return Outcome(
            None if answer.values is None else answer.values["solution"],
            bound=answer.bound,
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
    """

    def __init__(self, tables: CutTables) -> None:
        from ortools.sat.python import cp_model

        self.tables, self.problem = tables, tables.problem
        self.model = cp_model.CpModel()
        self.ordered = tables.problem.contiguity == "acyclic"
        self.places = tables.most_stages if self.ordered else tables.problem.cluster.n_devices
        least = max(floor(tables), int(tables.work.sum() / max(self.places, 1) / tables.n_types / 4), 1)
        self.scale = RESOLUTION / (least / tables.scale)
        total = float(tables.seconds.sum()) + 2 * self.places * float(tables.nets.weight.sum()) / tables.scale + 1e-30
        speed = self.problem.overflow_bandwidth
        if speed is not None:
            most = max(self.problem.flight(after) for after in range(self.places))
            total += float((tables.held + most * tables.kept + tables.workspace).sum()) / speed
        largest = max(
            float(tables.seconds.sum(axis=1).max()), float(tables.nets.weight.max(initial=0)) / tables.scale, 1e-30
        )
        self.scale = min(self.scale, COEFFICIENT / largest, 2.0**52 / total)
        self.largest = int(total * self.scale) + 1
        self.stage: dict[tuple[int, int], Any] = {}
        self.kind: dict[tuple[int, int], Any] = {}
        if self.ordered:
            self._prefixes()
        else:
            self._devices()
        self._objective()

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
        return math.floor(seconds * self.scale * (1 - 1e-13))

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
        if both:
            model.add(tops[0] >= self._units(floor(tables) / tables.scale * (1 - 1e-9)))
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
        # Rounded down: a plan that exceeds the memory by less than 2^-31 of it may come through, and is then refused by
        # the evaluator; none is cut off.
        grain = self.scale / speed if speed is not None else min(1.0, COEFFICIENT / max(float(need.max()), room, 1.0))
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
        excess = model.add(streamed >= here - math.ceil(room * grain))
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
        if self.ordered:
            used = sorted(set(stage.tolist()), reverse=True)
            types = [next(q for q in range(tables.n_types) if value(self.kind[s, q])) for s in used]
            solution: Plan | Assignment = tables.plan([np.flatnonzero(stage == s) for s in used], types)
        else:
            solution = tables.assignment(stage)
        evaluation = self.problem.evaluate(solution)
        return solution, evaluation.objective if evaluation.feasible else math.inf

    def hint(self, solution: Plan | Assignment) -> None:
        """Start from a solution."""
        part, devices = self.tables.blocks_of(solution)
        last = len(devices) - 1
        for (v, s), here in self.stage.items():
            place = last - part[v] if self.ordered else devices[part[v]]
            self.model.add_hint(here, int(s == place))
