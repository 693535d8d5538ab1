"""What a problem gives to the conformance tests: instances that every one of its solvers is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from balance.problems.model.problem import Problem


@dataclass(frozen=True)
class Case:
    """One instance.

    Parameters
    ----------
    name
        Label of the test.
    problem
        The instance.
    solution
        Some solution of it, not the best; None for an infeasible instance.
    says
        For an infeasible instance: what its reasons must name, such as the operator and the device.
    """

    name: str
    problem: Problem
    solution: Any = None
    says: tuple[str, ...] = ()


@dataclass(frozen=True)
class Factory:
    """The instances of one problem.

    Parameters
    ----------
    feasible
        Makes small instances with a solution; together every solver must accept at least one.
    infeasible
        Makes small instances without one; operators and devices have names.
    hard
        Makes an instance that takes a search a while, for limits and interruption; the solver decides if it accepts it.
    """

    feasible: Callable[[], list[Case]]
    infeasible: Callable[[], list[Case]]
    hard: Callable[[], Case]
