"""Cut wing: topological orders cut into stages optimally, order by order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from balance.cut.layers import BIG, build_layers, ceiling, floor, n_states, reaches, reference_work, thresholds
from balance.cut.reasons import obvious
from balance.cut.tables import BoolArray, CutTables
from balance.limits import Run, StopReason
from balance.pareto import sweep
from balance.problems.cut import CutProblem
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import successor_rows
from balance.registry import Outcome, Solver

ORDERS = 24
"""Random depth-first orders beside the fixed ones, on graphs of up to 2,000 blocks; fewer on larger ones."""

COARSE = 20_000
"""Blocks above which the first plan has its stages begin at few places only."""

STATES = 4_096
"""Counts of used devices that the program distinguishes at most."""


class Slicing(Solver):
    """Heuristic: a few topological orders, each cut into stages optimally; any valid plan of the order is no better.

    The program of a given order is that of a chain: the best bottleneck of every prefix and count of used devices, with
    the cost of every stage updated pin by pin. A threshold on the bottleneck, raised until a plan fits, leaves only
    short windows to look at. [Archer et al. 2024, algorithm 1, for one kind of device.]
    """

    name = "slicing"
    problem = CutProblem
    exact = False
    proves_bound = False
    needs = ("numba",)

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse clusters with too many combinations of different devices."""
        states = n_states(CutTables.of(problem))
        if states > STATES:
            return f"the devices are of so many types that there are {states} combinations of used ones"
        return None

    def rank(self, problem: CutProblem) -> int:
        """Come first: it takes milliseconds, and every search starts from its plans."""
        return 20

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the best plan over the orders."""
        ordered = acyclic(problem)
        tables = CutTables.of(ordered)
        impossible = obvious(CutTables.of(problem))
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        slicer = Slicer(tables, run)
        best: tuple[float, Plan | Assignment] | None = None
        tried = 0
        for order in orders(slicer, run):
            if tables.n > COARSE and best is None:  # a first plan soon
                best = self._take(problem, slicer.best_of(order, step=64), best, run)
                if run.should_stop():
                    break
            best = self._take(problem, slicer.best_of(order, None if best is None else best[0]), best, run)
            tried += 1
            if run.should_stop():
                break
        reason = run.stop_reason if run.should_stop() and run.stop_reason else StopReason.finished
        return Outcome(None if best is None else best[1], stop_reason=reason, stats={"orders": tried})

    @staticmethod
    def _take(
        problem: CutProblem, plan: Plan | None, best: tuple[float, Plan | Assignment] | None, run: Run
    ) -> tuple[float, Plan | Assignment] | None:
        """Return the better of a plan and the best one so far."""
        if plan is None:
            return best
        solution = answered(problem, plan)
        evaluation = problem.evaluate(solution)
        if not evaluation.feasible or (best is not None and evaluation.objective >= best[0]):
            return best
        run.report(objective=evaluation.objective, solution=solution)
        return evaluation.objective, solution


def acyclic(problem: CutProblem) -> CutProblem:
    """Return the problem whose plans are solutions of this one: with an order of stages, and memory as here."""
    if problem.contiguity == "acyclic":
        return problem
    return dataclasses.replace(problem, contiguity="acyclic", in_flight=(problem.flight(0),), leaves="keep")


def answered(problem: CutProblem, plan: Plan) -> Plan | Assignment:
    """Return a plan in the form in which a problem is answered."""
    if problem.contiguity == "acyclic":
        return plan
    n = problem.graph.n_operators
    return Assignment(np.array(plan.devices, dtype=np.int64)[plan.stage_of(n)])


class Slicer:
    """Cuts orders of blocks into stages.

    Parameters
    ----------
    tables
        An acyclic problem.
    run
        Asked whether to stop.
    """

    def __init__(self, tables: CutTables, run: Run) -> None:
        from balance.cut import _slicing_kernels as kernels

        self.tables, self.run = tables, run
        problem, nets = tables.problem, tables.nets
        self.reference, self.ratio = reference_work(tables)
        at, nets_of_blocks = nets.by_block(tables.n)
        self.blocks = kernels.Blocks(
            work=tables.work,
            barred=tables.barred,
            reference=self.reference,
            held=tables.held,
            kept=tables.kept,
            workspace=tables.workspace,
            nets_at=at,
            nets=nets_of_blocks,
            size=np.diff(nets.offsets),
            producer=nets.producer,
            weight=nets.weight,
            capacity=tables.capacity,
            available=tables.memory_available,
            pays=tables.pays,
            flight=tables.flight,
            overflow=tables.overflow,
            limited=bool(np.isfinite(tables.memory_available).any()),
            adjacent=problem.routing == "adjacent",
            overlap=problem.overlap == "max",
        )
        n = tables.n
        after_at, after = successor_rows(n, tables.source, tables.target)
        before_at, before = successor_rows(n, tables.target, tables.source)
        self.forward_rows = (before_at, before, after_at, after)
        self.floor, self.ceiling = floor(tables), ceiling(tables)

    def best_of(self, order: IntArray, below: float | None = None, step: int = 1) -> Plan | None:
        """Return the best plan of an order of blocks, None if none is better than `below`.

        Parameters
        ----------
        order
            Blocks from the first stage to the last, shape (N,).
        below
            Seconds; not looked at with the flush objective.
        step
            Stages begin and end where least is sent among `step` neighbours each; 1: anywhere, which is exact.
        """
        from balance.cut import _slicing_kernels as kernels

        allowed = self._places(order, step)
        if self.tables.problem.objective == "bottleneck":
            top = self.ceiling if below is None else math.ceil(below * self.tables.scale) - 1
            found = self.search(order, allowed, kernels.TOTAL, self.floor, top, BIG, BIG) if top > 0 else None
            return None if found is None else found[1].plan()

        def search(mode: int, most_forward: float, most_backward: float) -> tuple[int, Sliced] | None:
            most_f = BIG if most_forward == math.inf else int(most_forward)
            most_b = BIG if most_backward == math.inf else int(most_backward)
            aim = kernels.FORWARD_FIRST if mode == 1 else kernels.BACKWARD_FIRST
            return self.search(order, allowed, aim, 0, self.ceiling, most_f, most_b)

        answer = sweep(search, self.run, below=lambda value: value - 1)
        return None if answer is None else answer[2].plan()

    def _places(self, order: IntArray, step: int) -> BoolArray:
        from balance.cut._slicing_kernels import crossing_weights

        n = len(order)
        allowed = np.ones(n + 1, dtype=bool)
        if step > 1:
            sent = crossing_weights(self.blocks, np.ascontiguousarray(order[::-1])).sum(axis=0)
            allowed[:] = False
            allowed[[0, n]] = True
            for start in range(1, n, step):
                allowed[start + int(np.argmin(sent[start : min(start + step, n)]))] = True
        return allowed

    def search(
        self, order: IntArray, allowed: BoolArray, aim: int, least: int, most: int, most_f: int, most_b: int
    ) -> tuple[int, Sliced] | None:
        """Return the least value of an order within limits, with its division; None if there is none.

        Parameters
        ----------
        order
            Blocks from the first stage to the last, shape (N,).
        allowed, aim, most_f, most_b
            See `balance.cut._slicing_kernels.slice_order`.
        least, most
            Range of values to look at, scaled.
        """
        start = max(least, most // 1_000, 1) if aim else least
        for limit in thresholds(min(start, most), most):
            found = self.within(order, allowed, aim, limit, most_f, most_b)
            if found is not None or self.run.should_stop():
                return found
        return None

    def within(
        self, order: IntArray, allowed: BoolArray, aim: int, limit: int, most_f: int, most_b: int
    ) -> tuple[int, Sliced] | None:
        """Return the least value of at most `limit` of an order, with its division."""
        from balance.cut import _slicing_kernels as kernels

        reach = limit
        if aim != kernels.TOTAL:
            other = most_b if aim == kernels.FORWARD_FIRST else most_f
            reach = min(limit + other, BIG - 1) if other < BIG else BIG - 1
        backwards = np.ascontiguousarray(order[::-1])
        done = np.concatenate(([0], np.cumsum(self.reference[backwards])))
        undirected = aim == kernels.TOTAL and not self.blocks.overlap
        layers = build_layers(self.tables, self.ratio, done, reach, undirected)
        values = np.empty(int(layers.offset[-1]), dtype=np.int64)
        before = np.empty(len(values), dtype=np.int32)
        kind = np.empty(len(values), dtype=np.int32)
        state = kernels.slice_order(
            self.blocks, backwards, allowed, layers, reaches(self.ratio, reach), limit, self.tables.most_stages,
            aim, most_f, most_b, values, before, kind,
        )  # fmt: skip
        if state < 0:
            return None
        sliced = Sliced(self.tables, backwards, layers, before, kind, int(state))
        return int(values[layers.offset[state] + len(order) - layers.low[state]]), sliced


@dataclass(frozen=True, eq=False)
class Sliced:
    """A division of an order, still in the arrays of the program."""

    tables: CutTables
    order: IntArray
    layers: Any
    before: Any
    kind: Any
    state: int

    def parts(self) -> tuple[list[IntArray], list[int]]:
        """Return the blocks and the device type of each stage, from the first to the last."""
        parts, types = [], []
        at, state = len(self.order), self.state
        while at > 0:
            place = int(self.layers.offset[state] + at - self.layers.low[state])
            start, q = int(self.before[place]), int(self.kind[place])
            parts.append(self.order[start:at])
            types.append(q)
            at, state = start, state - int(self.layers.stride[q])
        return parts, types

    def plan(self) -> Plan:
        """Return the plan."""
        return self.tables.plan(*self.parts())


def orders(slicer: Slicer, run: Run) -> Iterator[IntArray]:
    """Yield topological orders of blocks: by index, depth first from either end, then random depth-first ones."""
    from balance.cut import _slicing_kernels as kernels

    n = slicer.tables.n
    before_at, before, after_at, after = slicer.forward_rows
    forward = (n, before_at, before, after_at, after)
    backward = (n, after_at, after, before_at, before)
    ascending = np.arange(n, dtype=np.float64)
    yield np.arange(n, dtype=np.int64)  # blocks are numbered along a topological order
    yield kernels.depth_first_order(*forward, ascending)
    yield kernels.depth_first_order(*backward, -ascending)[::-1]
    rng = run.rng()
    for index in range(max(2, ORDERS * 2_000 // max(n, 2_000))):
        keys = rng.random(n)
        if index % 2:
            yield kernels.depth_first_order(*backward, keys)[::-1]
        else:
            yield kernels.depth_first_order(*forward, keys)
