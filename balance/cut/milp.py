"""Cut wing: two MILPs in PuLP, the prefix formulation for pipelines and the published assignment formulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.cut.presolve import presolve
from balance.cut.reasons import obvious, reasons
from balance.cut.tables import CutTables
from balance.engines.outcome import EngineStatus
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.problems.model.plan import Assignment, Plan
from balance.registry import Outcome, Solver

if TYPE_CHECKING:
    import pulp

PINS = 250_000
"""Rows that link nets to devices; a larger model is not built."""


class Milp(Solver):
    """Exact: blocks to stages by prefixes, or blocks to devices, solved by HiGHS.

    `formulate_prefix` states pipelines, `formulate_assignment` the other contiguities; any PuLP back end can be handed
    the same models, and `balance.engines.highs.write_mps` writes them. Its first bound is no more than the fair share
    of the work, so it proves optima of small graphs only.
    """

    name = "milp"
    problem = CutProblem
    exact = True
    proves_bound = True
    needs = ("pulp", "highspy")

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse models that are too large to be built."""
        tables = CutTables.of(problem)
        places = tables.most_stages if problem.contiguity == "acyclic" else problem.cluster.n_devices
        rows = (len(tables.nets.pins) + tables.n) * places * tables.n_types
        return f"its model would have about {rows} rows, more than {PINS}" if rows > PINS else None

    def rank(self, problem: CutProblem) -> int:
        """Come last."""
        return 80

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the optimum of the model, or what is known of it when time is over."""
        from balance.engines.highs import solve_model

        tables = CutTables.of(problem)
        impossible = obvious(tables)
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        reduction = presolve(tables, run)
        tables = reduction.tables
        formulate = formulate_prefix if problem.contiguity == "acyclic" else formulate_assignment
        model = formulate(problem, tables)
        start = None if run.best is None else values_of(tables, run.best[0])

        def decode(values: Mapping[str, float]) -> tuple[Any, float]:
            solution = solution_of(tables, values)
            evaluation = problem.evaluate(solution)
            return (solution, evaluation.objective) if evaluation.feasible else (None, math.inf)

        answer = solve_model(model, run, start=start, decode=decode)
        stats = {**answer.stats, **reduction.stats}
        if answer.status is EngineStatus.infeasible:
            return Outcome(proved_infeasible=True, infeasible=reasons(tables), stats=stats)
        solution = None if answer.values is None else solution_of(tables, answer.values)
        if solution is not None and not problem.evaluate(solution).feasible:
            solution = None  # inside the tolerance of the rows, outside that of the problem
        return Outcome(solution, bound=answer.bound, bound_name="milp", stop_reason=answer.stop_reason, stats=stats)


def solution_of(tables: CutTables, values: Mapping[str, float]) -> Plan | Assignment:
    """Return the solution behind the values of a model's variables by name.

    Parameters
    ----------
    tables
        What the model was made of.
    values
        Values of the variables; what is missing counts as 0.
    """
    best, stage, kind = np.full(tables.n, -1.0), np.zeros(tables.n, dtype=np.int64), np.zeros(tables.n, dtype=np.int64)
    for name, (v, s, q) in _placings(tables):
        if values.get(name, 0.0) > best[v]:
            best[v], stage[v], kind[v] = values.get(name, 0.0), s, q
    if tables.problem.contiguity != "acyclic":
        return tables.assignment(stage)
    used: list[int] = sorted(set(stage.tolist()), reverse=True)
    return tables.plan([np.flatnonzero(stage == s) for s in used], [int(kind[np.argmax(stage == s)]) for s in used])


def values_of(tables: CutTables, solution: Plan | Assignment) -> dict[str, float]:
    """Return the values that the variables which place blocks have at a solution."""
    part, devices = tables.blocks_of(solution)
    ordered = tables.problem.contiguity == "acyclic"
    place = len(devices) - 1 - part if ordered else devices[part]
    kind = tables.types[devices][part]
    return {name: float(s == place[v] and q == kind[v]) for name, (v, s, q) in _placings(tables)}


def _placings(tables: CutTables) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield (variable name, (block, stage or device, type)) of every variable that places a block."""
    ordered = tables.problem.contiguity == "acyclic"
    for v in range(tables.n):
        for s in range(tables.most_stages if ordered else tables.problem.cluster.n_devices):
            for q in range(tables.n_types) if ordered else (int(tables.types[s]),):
                if not tables.barred[q, v]:
                    yield f"z_{v}_{s}_{q}" if ordered else f"x_{v}_{s}", (v, s, q)


def formulate_prefix(problem: CutProblem, tables: CutTables | None = None) -> pulp.LpProblem:
    r"""Return the prefix formulation of a pipeline.

    Stages s = 0, 1, ... are counted from the last one. :math:`z_{vsq}`: block v is in stage s on type q;
    :math:`a_{sq}`: stage s runs on type q; :math:`x_{vs} = \sum_q z_{vsq}`, :math:`y_{vs} = \sum_{r \le s} x_{vr}`.

    .. math::

        \sum_s x_{vs} = 1, \quad z_{vsq} \le a_{sq}, \quad \sum_q a_{sq} \le 1, \quad \sum_s a_{sq} \le n_q, \quad
        y_{vs} \ge y_{us} \; (u, v) \in E

    Used stages have no gap; the equations make :math:`y` a prefix, and with it the quotient acyclic. What a net costs,
    memory and the objective are linear, see `_Builder`. Seconds are not scaled.

    Parameters
    ----------
    problem
        The problem, with ``contiguity="acyclic"``.
    tables
        Arrays of the problem; default: those of the problem as it is.
    """
    tables = CutTables.of(problem) if tables is None else tables
    build = _Builder("cut_prefix", tables, tables.most_stages)
    n, stages, types = tables.n, build.places, range(tables.n_types)
    a = {(s, q): build.binary(f"a_{s}_{q}") for s in range(stages) for q in types}
    x: dict[tuple[int, int], Any] = {}
    for v in range(n):
        for s in range(stages):
            for q in types:
                if not tables.barred[q, v]:
                    build.place[v, s, q] = build.binary(f"z_{v}_{s}_{q}")
                    build.lp += build.place[v, s, q] <= a[s, q]
            x[v, s] = build.total(build.place[v, s, q] for q in types if not tables.barred[q, v])
        build.lp += build.total(x[v, s] for s in range(stages)) == 1
    for q in types:
        build.lp += build.total(a[s, q] for s in range(stages)) <= int(tables.counts[q])
    for s in range(stages):
        used = build.total(a[s, q] for q in types)
        build.lp += used <= 1
        build.lp += build.total(x[v, s] for v in range(n)) >= used
        if s:
            build.lp += used <= build.total(a[s - 1, q] for q in types)
    prefix: dict[tuple[int, int], Any] = {}
    for v in range(n):
        for s in range(stages):
            prefix[v, s] = build.real(f"y_{v}_{s}", 1.0)
            build.lp += prefix[v, s] == (prefix[v, s - 1] if s else 0) + x[v, s]
    for u, v in zip(tables.source.tolist(), tables.target.tolist(), strict=True):
        for s in range(stages - 1):
            build.lp += prefix[v, s] >= prefix[u, s]
    if tables.problem.routing == "adjacent":
        build.adjacent(prefix)
    else:
        build.direct(x)
    build.finish(x, a)
    return build.lp


def formulate_assignment(problem: CutProblem, tables: CutTables | None = None) -> pulp.LpProblem:
    r"""Return the assignment formulation of Tarnawski et al. 2020, with or without its convexity rows.

    :math:`x_{vd}`: block v is on device d. Convexity of every device's forward operators, with one
    :math:`z_{vd} \in [0, 1]` per operator: :math:`z_{vd} \ge x_{vd}`, and for every tensor edge (u, v)
    :math:`z_{vd} \le z_{ud}`, :math:`z_{vd} \le x_{vd} - x_{ud} + 1`. Equal devices are told apart by the first block
    that they hold: a block may be on the j-th of them only if an earlier block is on the one before. That row is not
    part of the published formulation, and cuts off nothing but permutations; a device to which something is pinned is
    equal to no other.

    Parameters
    ----------
    problem
        The problem, with ``contiguity="convex"`` or ``"none"``.
    tables
        Arrays of the problem; default: those of the problem as it is.

    References
    ----------
    Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.
    """
    tables = CutTables.of(problem) if tables is None else tables
    build = _Builder("cut_assignment", tables, problem.cluster.n_devices)
    n, devices = tables.n, build.places
    types = tables.types.tolist()
    x: dict[tuple[int, int], Any] = {}
    for v in range(n):
        for d in range(devices):
            x[v, d] = 0.0
            if not tables.barred[types[d], v]:
                x[v, d] = build.place[v, d, types[d]] = build.binary(f"x_{v}_{d}")
        build.lp += build.total(x[v, d] for d in range(devices)) == 1
    for equal in tables.type_devices:
        for before, after in itertools.pairwise(equal):
            for v in range(n):
                build.lp += x[v, after] <= build.total(x[u, before] for u in range(v))
    if problem.max_stages is not None:
        used = [build.binary(f"used_{d}") for d in range(devices)]
        build.lp += build.total(used) <= problem.max_stages
        for v in range(n):
            for d in range(devices):
                build.lp += x[v, d] <= used[d]
    if problem.contiguity == "convex":
        build.convex(x)
    build.direct(x)
    build.finish(x, {(d, types[d]): 1 for d in range(devices)})
    return build.lp


class _Builder:
    """Adds the rows that both formulations share: what nets cost, memory, loads and the objective."""

    def __init__(self, name: str, tables: CutTables, places: int) -> None:
        import pulp

        self.lp = pulp.LpProblem(name, pulp.LpMinimize)
        self.tables, self.problem, self.places = tables, tables.problem, places
        self.place: dict[tuple[int, int, int], Any] = {}  # block, stage or device, type
        weight = tables.nets.weight / tables.scale
        self.weight = weight
        self.phases = (0, 1)
        self.received: dict[tuple[int, int], list[Any]] = {(f, s): [] for f in self.phases for s in range(places)}
        self.sent: dict[tuple[int, int], list[Any]] = {(f, s): [] for f in self.phases for s in range(places)}

    def binary(self, name: str) -> Any:
        """Add a binary variable."""
        import pulp

        return self.lp.add_variable(name, 0, 1, pulp.LpBinary)

    def real(self, name: str, most: float | None = None) -> Any:
        """Add a continuous variable that is not negative."""
        return self.lp.add_variable(name, 0, most)

    def total(self, terms: Iterable[Any]) -> Any:
        """Return a linear expression."""
        import pulp

        return pulp.lpSum(terms)

    def nets(self) -> Iterable[tuple[int, int, list[int]]]:
        """Yield (net, producer, other blocks)."""
        nets = self.tables.nets
        for h in range(len(nets)):
            own = int(nets.producer[h])
            pins = nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist()
            yield h, own, [v for v in pins if v != own]

    def direct(self, x: Mapping[tuple[int, int], Any]) -> None:
        """Charge nets from producer to reader: ``i >= x_reader - x_producer``, ``o >= x_producer - x_reader``."""
        each = self.problem.send == "each" and self.problem.charge == "tensor"
        for h, own, readers in self.nets():
            reads = [self.real(f"i_{h}_{s}") for s in range(self.places)]
            for s, i in enumerate(reads):
                o = self.real(f"o_{h}_{s}")
                for v in readers:
                    self.lp += i >= x[v, s] - x[own, s]
                    self.lp += o >= x[own, s] - x[v, s]
                if each and len(readers) > 1:  # the producer's place pays for every place that reads
                    self.lp += o >= self.total(reads) - len(readers) * (1 - x[own, s])
                for f in self.phases:
                    self.received[f, s].append(float(self.weight[f, h]) * i)
                    self.sent[f, s].append(float(self.weight[f, h]) * o)

    def adjacent(self, prefix: Mapping[tuple[int, int], Any]) -> None:
        """Charge nets at every boundary between their first and their last stage."""
        for h, own, readers in self.nets():
            for s in range(self.places - 1):  # the boundary between stage s and stage s + 1, which is before it
                any_after, all_after = self.real(f"any_{h}_{s}", 1.0), self.real(f"all_{h}_{s}", 1.0)
                crosses = self.real(f"c_{h}_{s}", 1.0)
                for v in (own, *readers):
                    self.lp += any_after >= prefix[v, s]
                    self.lp += all_after <= prefix[v, s]
                self.lp += crosses >= any_after - all_after
                for f in self.phases:
                    self.received[f, s].append(float(self.weight[f, h]) * crosses)
                    self.sent[f, s + 1].append(float(self.weight[f, h]) * crosses)

    def convex(self, x: Mapping[tuple[int, int], Any]) -> None:
        """Keep the forward operators of every device convex."""
        graph, block = self.problem.graph, self.tables.block
        ahead = np.flatnonzero(~graph.is_backward).tolist()
        late = graph.is_backward
        source, target = graph.tensors.edge_producer, graph.tensors.consumers
        edges = [(int(u), int(v)) for u, v in zip(source, target, strict=True) if not (late[u] or late[v])]
        for d in range(self.places):
            z = {v: self.real(f"z_{v}_{d}", 1.0) for v in ahead}
            for v in ahead:
                self.lp += z[v] >= x[int(block[v]), d]
            for u, v in edges:
                self.lp += z[v] <= z[u]
                self.lp += z[v] <= x[int(block[v]), d] - x[int(block[u]), d] + 1

    def finish(self, x: Mapping[tuple[int, int], Any], on: Mapping[tuple[int, int], Any]) -> None:
        """Add memory, loads and the objective; ``on[s, q]`` says whether place s is on type q."""
        tables, problem, n = self.tables, self.problem, self.tables.n
        both = problem.objective == "bottleneck"
        tops = [self.real("T")] if both else [self.real("T_forward"), self.real("T_backward")]
        groups = [self.phases] if both else [(0,), (1,)]
        largest = float(tables.nets.weight.sum()) / tables.scale * self.places  # more than any place pays
        for (s, q), chosen in on.items():
            mine = {v: self.place[v, s, q] for v in range(n) if (v, s, q) in self.place}
            streamed = self._memory(s, q, chosen, mine, x)
            for top, phases in zip(tops, groups, strict=True):
                work = self.total(
                    float(tables.seconds[q, list(phases), v].sum()) * variable for v, variable in mine.items()
                )
                sides = []
                for table in (self.received, self.sent):
                    paid = self.total(term for f in phases for term in table[f, s])
                    sides.append(paid - largest * (1 - chosen) if tables.pays[q] else 0.0)
                if problem.overlap == "max":
                    rows = [work, *sides]
                elif tables.pays[q]:
                    rows = [work + self.total(term for f in phases for t in (self.received, self.sent)
                            for term in t[f, s]) - 2 * largest * (1 - chosen)]  # fmt: skip
                    rows.append(work)
                else:
                    rows = [work]
                for row in rows:
                    self.lp += top >= row + streamed
        self.lp += self.total(tops)

    def _memory(self, s: int, q: int, chosen: Any, mine: Mapping[int, Any], x: Mapping[tuple[int, int], Any]) -> Any:
        """Limit the bytes of place s on type q, or return the seconds of streaming what does not fit."""
        tables, problem = self.tables, self.problem
        room = float(tables.memory_available[q])
        if math.isinf(room):
            return 0.0
        flight = problem.flight(s if problem.contiguity == "acyclic" else 0)
        need = tables.held + flight * tables.kept
        scratch = self.real(f"scratch_{s}_{q}")
        for v, variable in mine.items():
            if tables.workspace[v]:
                self.lp += scratch >= float(tables.workspace[v]) * variable
        bytes_here = self.total(float(need[v]) * variable for v, variable in mine.items()) + scratch
        if problem.overflow_bandwidth is None:
            self.lp += bytes_here <= room * (1 + 1e-12)
            return 0.0
        streamed = self.real(f"streamed_{s}_{q}")
        self.lp += streamed >= bytes_here / problem.overflow_bandwidth - room / problem.overflow_bandwidth * chosen
        return streamed
