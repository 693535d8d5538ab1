"""Front door: what a method for a problem is: a solver and what it returns, and a named lower bound."""

from __future__ import annotations

import importlib.util
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from balance.limits import Run, StopReason
from balance.problems.model.problem import Problem, Violation

DIRECT = 5
"""Solvers of a lower rank answer in polynomial time: nothing needs to run ahead of them."""


@dataclass(frozen=True)
class Outcome:
    """What a solver returns.

    Parameters
    ----------
    solution
        The best solution found, or None.
    bound
        A proved lower bound on the objective of every solution; minus infinity: none.
    bound_name
        What proved it; default: the solver's name.
    stop_reason
        Why the solver ended.
    infeasible
        Why there is no solution, with names and numbers.
    proved_infeasible
        Whether it was proved that there is no solution.
    stats
        Figures for researchers: nodes, probes, layers.
    """

    solution: Any = None
    bound: float = -math.inf
    bound_name: str = ""
    stop_reason: StopReason = StopReason.finished
    infeasible: tuple[Violation, ...] = ()
    proved_infeasible: bool = False
    stats: Mapping[str, Any] = field(default_factory=dict)


class Solver(ABC):
    """One method for one problem; stateless, cheap to make.

    A subclass sets the class attributes, says in the first line of its docstring how it works, and imports what it
    needs inside `solve`.
    """

    name: ClassVar[str]
    """Name of the method, that of its module."""
    problem: ClassVar[type[Problem]]
    """The problem that it answers."""
    exact: ClassVar[bool]
    """Whether it proves its answer when it is given the time."""
    proves_bound: ClassVar[bool]
    """Whether it reports a lower bound even when it is stopped."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that must be installed."""

    @property
    def summary(self) -> str:
        """First line of the class's docstring."""
        return (inspect.getdoc(type(self)) or "").split("\n", 1)[0]

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that it needs and that are not installed; nothing is imported to find out."""
        return tuple(name for name in self.needs if not _installed(name))

    @property
    def available(self) -> bool:
        """Whether everything that it needs is installed."""
        return not self.missing

    def accepts(self, problem: Any) -> str | None:
        """Return None if it can answer this problem, else why it cannot."""
        return None

    def rank(self, problem: Any) -> int:
        """Return its place in the order of ``solver="auto"`` for this problem: lower comes first.

        Below `DIRECT`: exact in polynomial time, nothing needs to run before it. From there on: cheap heuristics, then
        searches. The default suits a heuristic of seconds.
        """
        return 50

    @abstractmethod
    def solve(self, problem: Any, run: Run) -> Outcome:
        """Answer the problem within the limits of `run`."""

    def reprove(self, problem: Any, bound: float, run: Run) -> bool | None:
        """Prove again that no solution lies below a bound of its own; None if it has no cheap way.

        Solvers that answer in polynomial time solve again; others say how they do it.
        """
        if not self.exact or self.rank(problem) >= DIRECT or self.accepts(problem) is not None:
            return None
        return self.solve(problem, run).bound >= bound * (1 - 1e-9)

    def __repr__(self) -> str:
        return f"<solver {self.name!r} of problem {self.problem.name!r}>"


@dataclass(frozen=True)
class Bound:
    """A named lower bound.

    Parameters
    ----------
    name
        What results call it.
    problem
        The problem that it bounds.
    function
        Problem to value; minus infinity where it does not apply, infinity where it proves that there is no solution.
        An expensive bound also takes a `Run`, whose limits it keeps.
    seconds
        Seconds that it is given unless told otherwise; None: it is cheap, and runs ahead of every solver.
    in_ladder
        Of an expensive one: whether ``solver="auto"`` computes it before it searches.
    prove
        (problem, value) to whether a proof independent of `function` reaches the value; None: there is none.
    """

    name: str
    problem: type[Problem]
    function: Callable[..., float] = field(repr=False)
    seconds: float | None = None
    in_ladder: bool = False
    prove: Callable[[Any, float], bool] | None = field(default=None, repr=False)

    def __call__(self, problem: Problem, run: Run | None = None) -> float:
        """Return its value for a problem; an expensive one stops at the limits of `run` and returns what it has."""
        if self.is_cheap:
            return float(self.function(problem))
        return float(self.function(problem, Run(self.seconds) if run is None else run))

    @property
    def is_cheap(self) -> bool:
        """Whether it costs so little that it runs ahead of every solver."""
        return self.seconds is None

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]


Bounding = TypeVar("Bounding", bound=Callable[..., float])


def bound(
    *,
    problem: type[Problem],
    name: str,
    seconds: float | None = None,
    in_ladder: bool = False,
    prove: Callable[[Any, float], bool] | None = None,
) -> Callable[[Bounding], Bounding]:
    """Mark a function of a wing's ``bounds.py`` as a named lower bound; the function itself is returned unchanged.

    Parameters
    ----------
    problem
        The problem that it bounds.
    name
        What results call it.
    seconds
        Given for an expensive bound, whose function takes a `Run` as well: how long it may take unless told otherwise.
        Such a bound is computed when it is asked for by name.
    in_ladder
        Whether ``solver="auto"`` computes an expensive bound before it searches.
    prove
        (problem, value) to whether a stricter proof reaches the value.
    """

    def mark(function: Bounding) -> Bounding:
        # The mark stays on the function, so that importing a module changes nothing outside it.
        function.__balance_bound__ = Bound(name, problem, function, seconds, in_ladder, prove)  # type: ignore[attr-defined]
        return function

    return mark


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package of a dotted name is missing
        return False
