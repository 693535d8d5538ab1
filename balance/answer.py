"""Front door: from a problem and its limits to a `Result`: search, and put together what holds."""

from __future__ import annotations

import copy
import math
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from balance.limits import Run, StopReason, relative_gap
from balance.problems.model.errors import BalanceError, ProblemError
from balance.problems.model.problem import Problem
from balance.registry import get_solver
from balance.result import Result
from balance.search import GRACE, Search, supervise
from balance.status import Status, is_closed


def answer(problem: Problem, run: Run, solver: str, incumbent: Any, notes: Sequence[str]) -> Result:
    """Return the answer to a problem.

    Parameters
    ----------
    problem
        What is asked.
    run
        The limits.
    solver
        A name, or ``"auto"``.
    incumbent
        A solution or result to start from, or None.
    notes
        What the reader of the result should know.

    Raises
    ------
    BalanceError
        As `balance.solve`.
    """
    search = Search(problem, run)
    search.notes.extend(notes)
    search.timings["state"] = run.elapsed()
    solvers = search.choose(solver)
    if isinstance(incumbent, Result):
        if incumbent.solution is None:
            raise ProblemError(f"the result given as incumbent has no solution to start from: it is {incumbent.status}")
        incumbent = incumbent.solution
    if incumbent is not None:
        search.warm_start(incumbent)
    running = solvers[0].name
    ended = supervise(run, lambda: search.execute(solvers))
    run.close()
    if not ended:
        # The thread that was left behind may still write to its own search; ours is a copy of what was known.
        running = run.solver
        search = copy.copy(search)
        search.notes = [
            *search.notes,
            f"solver {running!r} had not stopped {GRACE:g} s after it was told to, and was left behind",
        ]
    if run.failure is not None:
        raise run.failure
    if not search.infeasible:
        search.rescue(running)
    search.settle()
    return _result(search, solvers[0].name, solver)


def _result(search: Search, first: str, asked: str) -> Result:
    run, objective = search.run, search.objective
    found = search.solution is not None
    reason = run.stop_reason or search.last
    if search.infeasible:
        status, reason, bound = Status.infeasible, StopReason.finished, math.inf
    elif not found:
        status, bound = Status.unknown, search.bound
        reason = StopReason.finished if reason is StopReason.gap else reason
    elif is_closed(objective, search.bound):
        status, reason, bound = Status.optimal, StopReason.finished, search.bound
    else:
        status, bound = Status.feasible, search.bound
        reached = run.gap > 0 and relative_gap(objective, bound) <= run.gap
        if reason in (StopReason.finished, StopReason.gap):
            reason = StopReason.gap if reached else StopReason.finished
    return Result(
        problem=search.problem,
        status=status,
        stop_reason=reason,
        solution=search.solution,
        objective=objective if found else None,
        bound=bound,
        bound_name=search.bound_name,
        solver=search.solver or asked,
        seed=run.seed,
        seconds=run.elapsed(),
        timings=dict(search.timings),
        trace=run.trace,
        evaluation=search.evaluation,
        reasons=search.reasons,
        provenance={
            "versions": _versions(search.solver or first, search.problem),
            "options": {
                "solver": asked,
                "time_limit": run.time_limit,
                "gap": run.gap,
                "seed": run.seed,
                "threads": run.threads,
                "node_limit": run.node_limit,
                "incumbent": run.incumbent is not None,
            },
            "why": search.why,
            "refused": dict(search.refused),
            "notes": tuple(search.notes),
            "stats": dict(search.stats),
        },
    )


def _versions(solver: str, problem: Problem) -> dict[str, str]:
    """Return the versions of what the answer depends on."""
    from balance import __version__

    found = {"dnn-balance": __version__, "python": platform.python_version()}
    try:
        needs = get_solver(problem, solver).needs
    except BalanceError:  # the answer is the incumbent's
        needs = ()
    for module in ("numpy", *needs):
        try:
            found[module] = metadata.version(module)
        except metadata.PackageNotFoundError:  # a module that is not named like its distribution
            continue
    return found
