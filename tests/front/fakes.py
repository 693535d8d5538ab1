"""Solvers that do what a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from balance import Plan, Run, StopReason
from balance.problems.chain import ChainProblem
from balance.registry import Outcome, Solver

BEST, OTHER = Plan.chain([0, 2, 4]), Plan.chain([0, 3, 4])  # 4 and 6 seconds


class Fake(Solver):
    """A solver that does what a test wants."""

    name = "fake"
    problem = ChainProblem
    exact = False
    proves_bound = False

    def __init__(
        self, act: Callable[[ChainProblem, Run], Any], *, name: str = "fake", exact: bool = False, rank: int = 50
    ) -> None:
        self.act, self.order = act, rank
        self.name, self.exact = name, exact  # type: ignore[misc]

    def rank(self, problem: ChainProblem) -> int:
        """Return the place that the test gave."""
        return self.order

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Do it."""
        done: Outcome = self.act(problem, run)
        return done


def waits(problem: ChainProblem, run: Run) -> Outcome:
    """Report a solution, then wait to be stopped."""
    run.report(objective=6.0, bound=2.0, solution=OTHER)
    deadline = time.perf_counter() + 60
    while not run.should_stop() and time.perf_counter() < deadline:
        time.sleep(0.005)
    return Outcome(stop_reason=run.stop_reason or StopReason.finished)
