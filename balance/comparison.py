"""Front door: several solvers on one problem, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never

from balance.answer import answer
from balance.limits import Run, StopReason
from balance.problems.model.errors import BalanceError, MissingDependencyError, SolverError
from balance.problems.model.problem import Problem
from balance.question import Devices, Question, names_of, pose, refuse_unknown
from balance.registry import get_solver, ladder
from balance.result import Result
from balance.wording import show_seconds, show_share, show_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Comparison(Sequence[Result]):
    """The answers of several solvers to one problem, best first; a sequence of `Result`.

    Parameters
    ----------
    problem
        What was asked.
    results
        One answer for each solver that gave one: smallest objective first, then the quickest.
    failures
        Why a solver gave none, by its name.
    """

    problem: Problem
    results: tuple[Result, ...]
    failures: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        best = f", best {self.results[0]!r}" if self.results else ""
        return f"<Comparison: {len(self.results)} answers{best}>"

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, i: Any) -> Any:
        return self.results[i]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "solver": result.provenance.get("options", {}).get("solver", result.solver),
                "status": str(result.status),
                "stop_reason": str(result.stop_reason),
                "objective": result.objective,
                "bound": result.bound,
                "gap": result.gap,
                "seconds": result.seconds,
            }
            for result in self.results
        ]

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per answer as a pandas frame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingDependencyError("frames need pandas: pip install 'dnn-balance[bench]'") from error
        return pandas.DataFrame(self._rows())

    def summary(self) -> str:
        """Return a table for people, and why some solvers gave no answer."""
        shown = {"objective": show_seconds, "bound": show_seconds, "gap": show_share, "seconds": show_seconds}
        heads = ("solver", "status", "objective", "bound", "gap", "seconds")
        rows = [[shown.get(key, str)(row[key]) for key in heads] for row in self._rows()]
        lines = show_table(heads, rows, right=heads[2:])
        lines.extend(f"{name}: {why}" for name, why in self.failures.items())
        return "\n".join(lines)


def compare(
    what: Question,
    /,
    devices: Devices | None = None,
    *,
    solvers: Sequence[str] | None = None,
    time_limit: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
    **unknown: Never,
) -> Comparison:
    """Run several solvers on the same problem and put their answers side by side.

    Parameters
    ----------
    what, devices
        As in `solve`; for other options of the question, hand over a `Problem` (`balance.front.state_problem` makes
        one).
    solvers
        Names; default: every solver that can answer this problem.
    time_limit, gap, seed, threads
        As in `solve`, for each solver.
    **unknown
        Nothing: a name that is not listed here raises.

    Raises
    ------
    BalanceError
        As `solve`. A solver that fails does not stop the others: see `Comparison.failures`.

    Examples
    --------
    >>> from balance import CostGraph, compare
    >>> graph = CostGraph.chain([3.0, 1.0, 2.0])
    >>> [result.objective for result in compare(graph, 2, solvers=["bisection", "threshold"])]
    [3.0, 3.0]
    """
    refuse_unknown(unknown, ("devices", "solvers", "time_limit", "gap", "seed", "threads"), "compare")
    problem, notes = pose(what, devices, objective=None, bandwidth=None, latency=None, parameters={})
    Run(time_limit, gap, seed, threads)  # a wrong limit is a mistake, not the failure of every solver
    failures: dict[str, str] = {}
    if solvers is None:
        able, refused = ladder(problem)
        names = [solver.name for solver in able]
        failures.update(refused)
    else:
        names = names_of(solvers, "solvers")
        for name in names:
            get_solver(problem, name)  # a misspelt name is a mistake, not a failure
    results = []
    for name in names:
        try:
            result = answer(problem, Run(time_limit, gap, seed, threads), name, None, notes)
        except (SolverError, MissingDependencyError) as error:
            failures[name] = str(error)
            continue
        except BalanceError as error:
            if solvers is not None and len(names) == 1:
                raise
            failures[name] = str(error)
            continue
        results.append(result)
        if result.stop_reason is StopReason.interrupted:
            break
    results.sort(key=lambda result: (math.inf if result.objective is None else result.objective, result.seconds))
    return Comparison(problem, tuple(results), failures)
