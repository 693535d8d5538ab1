"""Tests of chain solvers that are stopped: what they then claim holds, and they stop soon."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from balance import Status, StopReason, solve
from balance.chain import _kernels
from balance.engines import highs
from balance.engines.outcome import EngineOutcome
from balance.limits import Run
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.registry import get_solver

PROGRAMS = ["counts", "intervals", "threshold"]


class Patience(Run):
    """A run that says stop when it is asked for the n-th time."""

    def __init__(self, asked: int) -> None:
        super().__init__(threads=1)
        self.asked = asked

    def should_stop(self) -> bool:
        """Count, and stop at the end of it."""
        self.asked -= 1
        if self.asked < 0:
            self.interrupt()
        return super().should_stop()


def chain(name: str, n: int, seed: int, objective: str = "bottleneck") -> ChainProblem:
    """Return a chain for a solver: kinds of devices in free order for `counts`, equal devices for the others."""
    rng = np.random.default_rng(seed)
    kinds = ("a", "b") if name == "counts" else ("a",)
    graph = CostGraph.chain(
        {kind: rng.uniform(1.0, 3.0, n) for kind in kinds},
        backward={kind: rng.uniform(1.0, 3.0, n) for kind in kinds},
        bytes=rng.uniform(0.0, 1.0, n - 1),
        activation_bytes=1.0,
    )
    devices = [Device(kind, memory_bytes=4.0 * n) for kind in kinds for _ in range(2)]
    cluster = Cluster(devices, link=Link(0.0, 1.0))
    order = "free" if name == "counts" else "given"
    return ChainProblem(graph=graph, cluster=cluster, device_order=order, objective=objective)


@pytest.mark.parametrize(
    ("name", "objective"),
    [*((name, "bottleneck") for name in PROGRAMS), ("counts", "fw-bw-bottleneck"), ("intervals", "fw-bw-bottleneck")],
)
def test_slices_change_nothing(name: str, objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that goes on where it stopped gives the same plan as in one go, wherever the slices end."""
    for seed in range(4):
        problem = chain(name, 12, seed, objective)
        whole = get_solver(problem, name).solve(problem, Run(threads=1))
        for steps in (1, 5, 23):
            monkeypatch.setattr(_kernels, "STEPS", steps)
            sliced = get_solver(problem, name).solve(problem, Run(threads=1))
            assert (sliced.solution, sliced.bound) == (whole.solution, whole.bound)
        monkeypatch.undo()


@pytest.mark.parametrize("name", [*PROGRAMS, "milp"])
def test_a_program_that_is_stopped_proves_nothing_false(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at any of its looks at the clock, a solver claims no bound above the optimum and no infeasibility."""
    problem = chain(name, 6, 1)
    best = problem.evaluate(solve(problem).solution).objective
    monkeypatch.setattr(_kernels, "STEPS", 5)
    stopped = 0
    for asked in range(24):
        outcome = get_solver(problem, name).solve(problem, Patience(asked))
        assert not outcome.proved_infeasible
        if outcome.solution is None:
            assert outcome.stop_reason is StopReason.interrupted
            assert outcome.bound <= best * (1 + 1e-9)
            stopped += 1
            continue
        objective = problem.evaluate(outcome.solution).objective
        assert outcome.bound <= best * (1 + 1e-9)
        if outcome.stop_reason is StopReason.finished:
            assert objective == pytest.approx(best)
    assert stopped > 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_large_program_looks_at_the_clock(name: str) -> None:
    """Tables that would take minutes end soon after the limit, without being left behind."""
    solve(chain(name, 4, 0), solver=name)  # compiled by now
    problem = chain(name, 60_000, 0)
    began = time.perf_counter()
    result = solve(problem, solver=name, time_limit=0.3)
    assert time.perf_counter() - began < 8
    assert (result.status, result.stop_reason) == (Status.unknown, StopReason.time_limit)
    assert not any("left behind" in note for note in result.provenance["notes"])


def test_milp_stopped_between_models_has_no_bound_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One device is worse than two: the optimum of its model is no bound while the second model is not solved."""
    problem = ChainProblem(
        graph=CostGraph.chain([1.0] * 4, backward=[1.0] * 4),
        cluster=Cluster.uniform(2),
        chunks=2,
        schedule="interleaved-1f1b",
        microbatches=2,
    )
    best = solve(problem, solver="milp").objective
    run, models = Run(threads=1), []
    honest = highs.solve_model

    def once(model: object, run: Run) -> EngineOutcome:
        models.append(model)
        answer = honest(model, run)
        run.interrupt()
        return answer

    monkeypatch.setattr(highs, "solve_model", once)
    outcome = get_solver(problem, "milp").solve(problem, run)
    assert len(models) == 1
    assert problem.evaluate(outcome.solution).objective == 8.0
    assert best == 4.0
    assert outcome.bound <= best
    assert outcome.stop_reason is StopReason.interrupted


@pytest.mark.parametrize("found", [True, False])
def test_milp_stopped_inside_a_model_keeps_what_the_engine_proved(found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of an unfinished model is passed on as it is, with or without a plan, and never as a proof."""
    problem = ChainProblem(graph=CostGraph.chain([3.0, 1.0, 2.0, 2.0]), cluster=Cluster.uniform(2))
    honest = highs.solve_model

    def early(model: object, run: Run) -> EngineOutcome:
        answer = honest(model, Run(threads=1))
        values = answer.values if found else None
        return dataclasses.replace(answer, values=values, bound=3.25, stop_reason=StopReason.node_limit)

    monkeypatch.setattr(highs, "solve_model", early)
    outcome = get_solver(problem, "milp").solve(problem, Run(threads=1))
    assert (outcome.bound, outcome.stop_reason) == (3.25, StopReason.node_limit)
    assert (outcome.solution is not None) == found
    assert not outcome.proved_infeasible
