"""Cut wing: simulated annealing on the places of blocks, with incremental loads."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.cut.reasons import obvious
from balance.cut.slicing import Slicing, answered
from balance.cut.tables import CutTables
from balance.limits import Run, StopReason
from balance.problems.cut import CutProblem
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import successor_rows
from balance.registry import Outcome, Solver

CHAINS = 8
"""Runs from the best solution, where other methods are still to come."""

MOVES = 10_000
"""Moves per block and run, at most `MOST` in all."""

MOST = 3_000_000

SLICE = 200_000
"""Moves between two looks at the clock."""

SHARE = 0.25
"""Part of the remaining time, where other methods are still to come."""

POWER = 12.0
"""Exponent of loads in the energy: large enough that the bottleneck decides, small enough that others count."""


class Annealing(Solver):
    """Heuristic: simulated annealing that moves one block at a time, from the best solution known.

    A move touches two places (and the sender's), so it costs as much as the block has tensors. Pipelines keep their
    order: a block moves between the last place of those before it and the first place of those after it. The energy is
    the sum of the loads to the power of twelve. Runs are repeated from the best solution until the limit; where other
    methods are still to come, for a quarter of the time.
    """

    name = "annealing"
    problem = CutProblem
    exact = False
    proves_bound = False
    needs = ("numba",)

    def accepts(self, problem: CutProblem) -> str | None:
        """Refuse what loads of single places cannot express."""
        if problem.routing == "adjacent":
            return "with routing='adjacent' a move changes every stage that it passes"
        if problem.overflow_bandwidth is not None:
            return "streaming of what does not fit is not in its loads"
        if problem.cluster.n_devices < 2:
            return "one device leaves nothing to move"
        return Slicing().accepts(problem) if problem.contiguity != "convex" else "it does not keep stages convex"

    def rank(self, problem: CutProblem) -> int:
        """Come after slicing, and after the ideals where these are few."""
        return 65 if problem.contiguity == "acyclic" else 35

    def solve(self, problem: CutProblem, run: Run) -> Outcome:
        """Return the best solution over all runs."""
        tables = CutTables.of(problem)
        impossible = obvious(tables)
        if impossible:
            return Outcome(proved_infeasible=True, infeasible=impossible)
        if run.best is None:
            first = Slicing().solve(problem, run)
            if first.solution is None:
                return first
        best = run.best
        assert best is not None
        search = _Annealer(tables, best[0])
        rng = run.rng()
        patience = run.elapsed() + SHARE * run.remaining() if not run.alone else np.inf
        chains = 0
        while not run.should_stop() and run.elapsed() < patience:
            if chains >= CHAINS and (not run.alone or run.time_limit is None):
                break
            solution = search.chain(rng, run, patience)
            chains += 1
            if solution is not None:
                evaluation = problem.evaluate(solution)
                if evaluation.feasible and evaluation.objective < best[1]:
                    best = (solution, evaluation.objective)
                    run.report(objective=best[1], solution=solution)
        reason = run.stop_reason if run.should_stop() and run.stop_reason else StopReason.finished
        return Outcome(best[0], stop_reason=reason, stats={"chains": chains, "moves": search.moves_made})


class _Annealer:
    """The arrays of one problem, and the best division."""

    def __init__(self, tables: CutTables, start: Plan | Assignment) -> None:
        from balance.cut import _annealing_kernels as kernels

        problem, nets, n = tables.problem, tables.nets, tables.n
        self.tables = tables
        self.ordered = problem.contiguity == "acyclic"
        part, devices = tables.blocks_of(start)
        unused = [d for d in range(problem.cluster.n_devices) if d not in set(devices.tolist())]
        spare = unused[: tables.most_stages - len(devices)] if self.ordered else unused
        # Devices that a pipeline does not use yet come last; an order of their own may be better, slicing finds it.
        self.devices = np.concatenate((devices, np.array(spare, dtype=np.int64))).astype(np.int64)
        types = tables.types[self.devices]
        places = len(types)
        after = [places - 1 - s if self.ordered else 0 for s in range(places)]
        flight = np.array([problem.flight(a) for a in after])
        scratch = float(tables.workspace.max())  # a place may hold the block with the largest workspace
        at, nets_of_blocks = nets.by_block(n)
        after_at, behind = successor_rows(n, tables.source, tables.target)
        before_at, before = successor_rows(n, tables.target, tables.source)
        self.moves = kernels.Moves(
            work=tables.work[types],
            barred=tables.barred[types],
            held=tables.held + flight[:, None] * tables.kept,
            room=tables.capacity[types] - scratch,
            pays=tables.pays[types],
            nets_at=at,
            nets=nets_of_blocks,
            pins_at=nets.offsets,
            pins=nets.pins,
            producer=nets.producer,
            weight=nets.weight,
            before_at=before_at,
            before=before,
            after_at=after_at,
            after=behind,
            ordered=self.ordered,
            each=problem.send == "each" and problem.charge == "tensor",
            overlap=problem.overlap == "max",
            flush=problem.objective != "bottleneck",
        )
        self.label: IntArray = part.astype(np.int64)
        self.most = problem.max_stages if not self.ordered else None
        self.moves_made = 0

    def chain(self, rng: np.random.Generator, run: Run, until: float) -> Plan | Assignment | None:
        """Return what one run from the best division finds, None if that is nothing better."""
        from balance.cut import _annealing_kernels as kernels

        state = kernels.build(self.moves, self.label)
        start = best = int(kernels.objective(self.moves, state))
        found = self.label.copy()
        total = min(MOVES * self.tables.n, MOST)
        rounds = max(total // SLICE, 1)
        hot, cold = 0.3, 1e-4
        step = (cold / hot) ** (1.0 / rounds)
        temperature = hot
        for _ in range(rounds):
            best = int(
                kernels.anneal(
                    self.moves, state, rng, total // rounds, temperature, temperature * step, float(start), POWER,
                    best, found,
                )
            )  # fmt: skip
            self.moves_made += total // rounds
            temperature *= step
            if run.should_stop() or run.elapsed() >= until:
                break
        if best >= start or (self.most is not None and len(np.unique(found)) > self.most):
            return None
        self.label = found
        return self._solution(found)

    def _solution(self, label: IntArray) -> Plan | Assignment:
        if not self.ordered:
            return self.tables.assignment(self.devices[label])
        parts: list[Any] = [np.flatnonzero(label == s) for s in range(len(self.devices))]
        return answered(self.tables.problem, self.tables.plan(parts, self.tables.types[self.devices].tolist()))
