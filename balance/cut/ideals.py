"""Cut wing: the exact dynamic program over ideals, for graphs with few enough of them."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from balance.cut.layers import BIG, build_layers, ceiling, floor, reaches, reference_work, thresholds
from balance.cut.presolve import presolve
from balance.cut.reasons import obvious, reasons
from balance.cut.tables import CutTables
from balance.limits import Run, StopReason
from balance.pareto import sweep
from balance.problems.cut import CutProblem
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.topology import successor_rows
from balance.registry import Outcome, Solver

LARGEST = 4_000_000
"""Ideals; above, looking at them takes longer than other methods."""

MEMORY = 2e9
"""Bytes that the tables of ideals may take at their peak."""

WIDTH = 22
"""Blocks side by side from which there are too many ideals for certain: 2 ** 22 subsets."""

CROWD = 2_000
"""Ideals of a state from which several threads go on from them."""

BUDGET = 20_000_000
"""Pairs of ideals between two looks at the clock."""


class Ideals(Solver):
    """Exact for acyclic cuts of graphs with up to millions of down-sets, by a program over pairs of them.

    Stages are differences of nested ideals (down-sets). The state is an ideal and the number of devices of each type
    used so far, its value the least bottleneck; both are dropped where the rest cannot fit a threshold T any more.
    Ideals are sorted by work, so only a window of them can follow. T grows from a proved lower bound until a plan
    fits, which is then optimal. [The program over ideals: Tarnawski et al. 2020; thresholds, windows
    and counts of types are ours.]
    """

    name = "ideals"
    problem = CutProblem
    exact = True
    proves_bound = True
    needs = ("numba",)

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse other contiguities, senders that pay per reader, and graphs that are certainly too wide."""
        if problem.contiguity != "acyclic":
            return "ideals describe pipelines: it answers contiguity='acyclic' only"
        tables = CutTables.of(problem)
        if problem.routing == "direct" and not tables.order_is_free():
            return "with send='each' what a stage pays depends on the stages after it"
        width = _antichain(tables)
        if width > WIDTH:
            return f"{width} blocks lie side by side, so there are more than {2**WIDTH:,} ideals"
        return None

    def rank(self, problem: CutProblem) -> int:
        """Come after the cheap heuristics, whose plans tighten its threshold."""
        return 60

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the optimum, or say that there are too many ideals."""
        tables = CutTables.of(problem)
        impossible = obvious(tables)
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        reduction = presolve(tables, run)
        tables = reduction.tables
        program = IdealProgram.build(tables, run)
        if program is None:
            reason = run.stop_reason or StopReason.memory_limit
            return Outcome(stop_reason=reason, stats={"ideals": f"> {most_ideals(tables)}", **reduction.stats})
        outcome = program.bottleneck() if problem.objective == "bottleneck" else program.flush()
        return replace(outcome, stats={**outcome.stats, **reduction.stats})

    def reprove(self, problem: CutProblem, bound: float, run: Run) -> bool | None:
        """Look for a plan just below the bound, among all ideals and without an incumbent; there must be none."""
        from balance.cut._ideal_kernels import TOTAL

        if problem.objective != "bottleneck" or self.accepts(problem) is not None:
            return None
        tables = CutTables.of(problem)
        program = IdealProgram.build(tables, run)
        if program is None:
            return None
        below = math.floor(bound * (1 - 1e-9) * tables.scale) - tables.n_terms
        found = program.search(TOTAL, below, BIG, BIG, decide=True)
        return None if run.should_stop() else found is None


@dataclass(eq=False)
class IdealProgram:
    """The arrays of one problem, and the searches over them."""

    tables: CutTables
    run: Run
    ideals: Any
    costs: Any
    ratio: FloatArray
    pairs: int = 0
    passes: int = 0

    # -- building ----------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, tables: CutTables, run: Run) -> IdealProgram | None:
        """Return the program, or None if there are too many ideals, or no time to make them."""
        from balance.cut import _ideal_kernels as kernels

        n = tables.n
        source, target = n - 1 - tables.target, n - 1 - tables.source  # from the last stage to the first
        after_at, after = successor_rows(n, source, target)
        before_at, before = successor_rows(n, target, source)
        most = most_ideals(tables)
        bits, parent, item, count = kernels.enumerate_ideals(n, before_at, before, after_at, after, most)
        if count > most or run.should_stop():
            return None
        split = _is_split(tables)
        reference, ratio = reference_work(tables)
        net_parts = _flipped_nets(tables)
        opened, crossing = kernels.crossings(bits, parent, item, count, *net_parts, split)
        flip = slice(None, None, -1)

        def total(values: Any) -> Any:
            return kernels.accumulate(parent, item, count, np.ascontiguousarray(values[flip]))

        work = [total(row) for per_type in tables.work for row in (per_type if split else [per_type.sum(axis=0)])]
        sums = total(reference)
        size = total(np.ones(n, dtype=np.int64))
        order = np.lexsort((size, sums))
        ideals = kernels.Ideals(
            bits=bits[:count][order],
            open=opened[order],
            reference=sums[order],
            work=np.stack(work)[:, order],
            barred=np.stack([total(row.astype(np.int32)) for row in tables.barred])[:, order],
            held=total(tables.held)[order],
            kept=total(tables.kept)[order],
            crossing=crossing[:, order],
        )
        return cls(tables, run, ideals, _costs(tables, net_parts, split), ratio)

    @property
    def size(self) -> int:
        """Number of ideals."""
        return len(self.ideals.reference)

    # -- searching ---------------------------------------------------------------------------------------------

    def bottleneck(self) -> Outcome:
        """Return the least bottleneck."""
        from balance.cut._ideal_kernels import TOTAL

        tables, run = self.tables, self.run
        known = math.inf if run.best is None else run.best[1]
        # With an incumbent only what is below it (by more than rounding) is looked for.
        top = ceiling(tables) if known == math.inf else math.floor(known * tables.scale) - tables.n_terms - 1
        proved = floor(tables)
        if math.isfinite(run.bound):
            proved = max(proved, math.floor(run.bound * tables.scale * (1 - 1e-15)) - tables.n_terms)
        found: tuple[int, Plan] | None = None
        for limit in thresholds(proved, top):
            found = self.search(TOTAL, limit, BIG, BIG, decide=True)
            if found is not None or run.should_stop():
                break
            proved = limit + 1
            run.report(bound=tables.bound(proved), bound_name="ideals")
        if found is not None and found[0] > proved:  # some plan within the threshold, not yet the best one
            run.report(objective=tables.problem.evaluate(found[1]).objective, solution=found[1])
            better = None if run.should_stop() else self.search(TOTAL, found[0] - 1, BIG, BIG)
            if better is None and run.should_stop():
                return self._outcome(found[1], tables.bound(proved), run.stop_reason or StopReason.time_limit)
            found = better or found
        if found is not None:
            exact = tables.problem.evaluate(found[1]).objective
            return self._outcome(found[1], min(tables.bound(found[0]), exact), StopReason.finished)
        if run.should_stop():
            return self._outcome(None, tables.bound(proved), run.stop_reason or StopReason.time_limit)
        if run.best is None:
            return Outcome(proved_infeasible=True, infeasible=reasons(tables), stats=self._stats())
        # Nothing better than the incumbent: it is optimal.
        return self._outcome(run.best[0], run.best[1], StopReason.finished)

    def flush(self) -> Outcome:
        """Return the least sum of the largest forward and the largest backward load."""
        from balance.cut._ideal_kernels import BACKWARD_FIRST, FORWARD_FIRST

        tables = self.tables

        def search(mode: int, most_forward: float, most_backward: float) -> tuple[int, Plan] | None:
            most_f = BIG if most_forward == np.inf else int(most_forward)
            most_b = BIG if most_backward == np.inf else int(most_backward)
            aim = FORWARD_FIRST if mode == 1 else BACKWARD_FIRST
            for limit in thresholds(self._phase_floor(aim), ceiling(tables)):
                found = self.search(aim, limit, most_f, most_b)
                if found is not None or self.run.should_stop():
                    return found
            return None

        answer = sweep(search, self.run, below=lambda value: value - 1)
        stopped = self.run.stop_reason if self.run.should_stop() else None
        if answer is None and stopped is None:
            return Outcome(proved_infeasible=True, infeasible=reasons(tables), stats=self._stats())
        if answer is None:
            return self._outcome(None, -math.inf, stopped or StopReason.time_limit)
        _, bound, plan = answer
        exact = tables.problem.evaluate(plan).objective
        return self._outcome(plan, min(tables.bound(int(bound)), exact), stopped or StopReason.finished)

    def _phase_floor(self, aim: int) -> int:
        """Return what some device has to do in one phase at least, scaled."""
        tables = self.tables
        row = tables.work[:, aim - 1]
        least = np.where(tables.barred, np.iinfo(np.int64).max, row).min(axis=0)
        if not (least < np.iinfo(np.int64).max).all():
            return 0
        return max(int(least.max()), int(float(least.sum()) / tables.problem.cluster.n_devices * (1 - 1e-12)))

    def search(
        self, aim: int, limit: int, most_f: int, most_b: int, *, decide: bool = False
    ) -> tuple[int, Plan] | None:
        """Return the best value of at most `limit` with its plan, or None; with `decide` any such value."""
        from balance.cut import _ideal_kernels as kernels

        self.passes += 1
        whole = BIG - 1
        if aim == kernels.TOTAL:
            reach = limit
        else:
            other = most_b if aim == kernels.FORWARD_FIRST else most_f
            reach = min(limit + other, whole) if other < BIG else whole
        undirected = self.costs.style != kernels.SPLIT
        layers = build_layers(self.tables, self.ratio, self.ideals.reference, reach, undirected)
        if layers.low[0] > 0:
            return None  # not even all devices together can take the work within this limit
        values = np.full(int(layers.offset[-1]), BIG, dtype=np.int64)
        values[0] = 0
        steps = reaches(self.ratio, reach)
        monotone, most_stages = self._monotone(), self.tables.most_stages
        threads = self.run.threads if decide and monotone else 1

        def advance(state: int, start: int, stop: int) -> int:
            pairs, at = 0, start
            while at < stop and not self.run.should_stop():
                at, more = kernels.advance(
                    self.ideals, self.costs, layers, values, state, at, stop, steps, limit, monotone,
                    decide and monotone, most_stages, aim, most_f, most_b, BUDGET,
                )  # fmt: skip
                pairs += int(more)
            return pairs

        with ThreadPoolExecutor(threads) as pool:
            for state in range(len(layers.counts)):
                low, high = int(layers.low[state]), int(layers.high[state])
                if threads == 1 or high - low < CROWD:
                    self.pairs += advance(state, low, high)
                else:
                    cuts = np.linspace(low, high, 4 * threads + 1).astype(int).tolist()
                    self.pairs += sum(pool.map(advance, itertools.repeat(state), cuts[:-1], cuts[1:]))
                if self.run.should_stop():
                    return None
        last = self.size - 1
        ends = [s for s in range(len(layers.counts)) if layers.low[s] <= last < layers.high[s]]
        best = min(ends, key=lambda s: (int(values[layers.offset[s] + last - layers.low[s]]), s), default=None)
        if best is None or values[layers.offset[best] + last - layers.low[best]] > limit:
            return None
        value = int(values[layers.offset[best] + last - layers.low[best]])
        return value, self._read(layers, values, best, aim, most_f, most_b)

    def _monotone(self) -> bool:
        """Whether fewer stages after never keep more micro-batches in flight."""
        return bool((np.diff(self.costs.flight) >= 0).all())

    def _read(self, layers: Any, values: Any, state: int, aim: int, most_f: int, most_b: int) -> Plan:
        from balance.cut._ideal_kernels import came_from

        n = self.tables.n
        at = self.size - 1
        parts: list[IntArray] = []
        types: list[int] = []
        while at > 0:
            q, state, before = came_from(
                self.ideals, self.costs, layers, values, state, at, aim, most_f, most_b, self._monotone()
            )
            if q >= 0:
                inside = self.ideals.bits[at] & ~self.ideals.bits[before]
                flags = np.unpackbits(inside.astype("<u8").view(np.uint8), bitorder="little")[:n]
                parts.append(n - 1 - np.flatnonzero(flags))
                types.append(int(q))
            assert q > -2  # every value was made by a stage
            at = int(before)
        return self.tables.plan(parts, types)

    def _outcome(self, plan: Plan | None, bound: float, reason: StopReason) -> Outcome:
        return Outcome(solution=plan, bound=bound, bound_name="ideals", stop_reason=reason, stats=self._stats())

    def _stats(self) -> dict[str, int]:
        return {"ideals": self.size, "pairs": self.pairs, "passes": self.passes}


def most_ideals(tables: CutTables) -> int:
    """Return how many ideals are looked at: bitsets of blocks three times (one while they grow), of nets twice."""
    words = 3 * ((tables.n + 63) // 64) + 2 * ((len(tables.nets) + 63) // 64)
    return min(LARGEST, int(MEMORY / (8 * words + 160)))


def _is_split(tables: CutTables) -> bool:
    return tables.problem.overlap == "max" or tables.problem.objective != "bottleneck"


def _flipped_nets(tables: CutTables) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return nets of each block, pins of each net, producers and weights, over reversed blocks."""
    n = tables.n
    nets = replace(tables.nets, pins=n - 1 - tables.nets.pins, producer=n - 1 - tables.nets.producer)
    return *nets.by_block(n), nets.offsets, nets.pins, nets.producer, nets.weight


def _costs(tables: CutTables, net_parts: tuple[IntArray, ...], split: bool) -> Any:
    from balance.cut import _ideal_kernels as kernels

    problem, n = tables.problem, tables.n
    pins, weight = net_parts[3], net_parts[5]
    words = (n + 63) // 64
    masks = np.zeros((len(tables.nets), words), dtype=np.uint64)
    rows = tables.nets.rows
    np.bitwise_or.at(masks, (rows, pins // 64), np.uint64(1) << (pins % 64).astype(np.uint64))
    first = np.full(len(tables.nets), words, dtype=np.int64)
    last = np.zeros(len(tables.nets), dtype=np.int64)
    np.minimum.at(first, rows, pins // 64)
    np.maximum.at(last, rows, pins // 64 + 1)
    adjacent = problem.routing == "adjacent"
    return kernels.Costs(
        nets=masks,
        first=first,
        last=last,
        weight=weight,
        workspace=tables.workspace[::-1].copy() if tables.workspace.any() else np.zeros(0),
        capacity=tables.capacity,
        available=tables.memory_available,
        pays=tables.pays,
        flight=tables.flight,
        overflow=tables.overflow,
        style=kernels.SPLIT if split else kernels.ADJACENT if adjacent else kernels.SUM,
        adjacent=adjacent,
        overlap=problem.overlap == "max",
    )


def _antichain(tables: CutTables) -> int:
    """Return the size of a set of blocks of which none comes before another: the largest level of the order."""
    level = np.zeros(tables.n, dtype=np.int64)
    order = np.argsort(tables.source, kind="stable")
    for a, b in zip(tables.source[order].tolist(), tables.target[order].tolist(), strict=True):
        level[b] = max(level[b], level[a] + 1)
    return int(np.bincount(level).max())
