"""Front door: what may be said of an answer, the status contract."""

from __future__ import annotations

import math
from enum import StrEnum

from balance.limits import StopReason

ABSOLUTE = 1e-9
RELATIVE = 1e-6


class Status(StrEnum):
    """What is known about an answer."""

    optimal = "optimal"
    """No solution is better: ``objective - bound <= 1e-9 + 1e-6 * objective``."""
    feasible = "feasible"
    """A solution that breaks no rule; `Result.gap` says how far it may be from the best."""
    unknown = "unknown"
    """Nothing was found, and nothing rules out that there is something."""
    infeasible = "infeasible"
    """It was proved that there is no solution; `Result.reasons` says why."""


def is_closed(objective: float, bound: float) -> bool:
    """Return whether a bound proves an objective optimal.

    Examples
    --------
    >>> is_closed(1.0, 1.0 - 1e-7), is_closed(1.0, 0.99)
    (True, False)
    """
    return objective - bound <= ABSOLUTE + RELATIVE * abs(objective)


def contract_fault(
    status: Status, reason: StopReason, *, solved: bool, objective: float | None, bound: float, explained: bool
) -> str | None:
    """Return what a result claims without proof, or None; the rows are those of the table in the documentation.

    Parameters
    ----------
    status, reason
        What is claimed.
    solved
        Whether there is a solution.
    objective
        Its value; None without one.
    bound
        Proved lower bound.
    explained
        Whether there are reasons for infeasibility.
    """
    if math.isnan(bound):
        return "a bound that is no number"
    if solved == (objective is None):
        return "a solution and its objective come together"
    if status in (Status.unknown, Status.infeasible):
        if solved:
            return f"status {status} with a solution"
        if status is Status.unknown:
            if reason is StopReason.gap:
                return "a gap without a solution"
            return "status unknown with an infinite bound: that would be infeasible" if bound == math.inf else None
        if reason is not StopReason.finished:
            return f"infeasible, although the search stopped for {reason}"
        if bound != math.inf:
            return f"infeasible with the bound {bound}; no solution is below infinity"
        return None if explained else "infeasible without a reason"
    if objective is None:
        return f"status {status} without a solution"
    if not math.isfinite(objective):
        return f"status {status} with the objective {objective}"
    if bound > objective:
        return f"the bound {bound:.17g} is above the objective {objective:.17g}"
    closed = is_closed(objective, bound)
    if status is Status.optimal:
        if not closed:
            return f"optimal, although the objective {objective:.12g} is above the bound {bound:.12g}"
        return None if reason is StopReason.finished else f"optimal with stop reason {reason}"
    if closed:
        return f"feasible, although the bound {bound:.12g} proves the objective {objective:.12g} optimal"
    if reason is StopReason.gap and bound == -math.inf:
        return "a gap was reached without a bound"
    return None
