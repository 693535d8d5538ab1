"""Front door: proving the bound of a result again, with nothing but its problem."""

from __future__ import annotations

import math
from dataclasses import dataclass

from balance.limits import Run
from balance.problems.model.errors import BalanceError
from balance.registry import get_solver, list_bounds
from balance.result import Result
from balance.status import Status

SECONDS = 60.0
"""Time that a proof may take."""

ROUNDING = 1e-9
"""Relative difference between two computations of one bound."""


@dataclass(frozen=True)
class Proof:
    """What came of proving a bound again.

    Parameters
    ----------
    proved
        True: proved again. False: it does not hold, or not as far as claimed. None: there is no cheap way to tell.
    text
        Sentence for people.
    """

    proved: bool | None
    text: str


def prove(result: Result, seconds: float = SECONDS) -> Proof:
    """Prove the bound of a result again.

    A bound that one of the problem's named bounds proved is computed again (where the bound has a stricter proof of its
    own, such as exact rationals for ``node-cut``, by that). A bound of a solver is proved as the solver knows: the
    program over ideals, for example, shows that nothing lies below it.

    Parameters
    ----------
    result
        The result; its problem is all that is used of it besides the claim.
    seconds
        Time that it may take.

    Examples
    --------
    >>> from balance import CostGraph, solve
    >>> prove(solve(CostGraph.chain([3.0, 1.0, 2.0]), 2)).proved
    True
    """
    problem, name, claimed = result.problem, result.bound_name, result.bound
    if claimed == -math.inf or not name:
        return Proof(None, "the result claims no bound")
    for bound in list_bounds(problem):
        if bound.name == name:
            if bound.prove is not None and math.isfinite(claimed):
                return _said(bound.prove(problem, claimed), f"bound {name!r}", claimed)
            value = bound(problem, None if bound.is_cheap else Run(seconds))
            return _said(value >= claimed * (1 - ROUNDING), f"bound {name!r}, computed again,", claimed)
    try:
        solver = get_solver(problem, name)
    except BalanceError as error:
        return Proof(None, f"the bound is by {name!r}, which cannot be asked here: {error}")
    if result.status is Status.infeasible:
        outcome = solver.solve(problem, Run(seconds))
        if outcome.proved_infeasible:
            return Proof(True, f"solver {name!r} proved again that there is no solution")
        return Proof(False, f"solver {name!r} did not prove again that there is no solution")
    return _said(solver.reprove(problem, claimed, Run(seconds)), f"solver {name!r}", claimed)


def _said(proved: bool | None, who: str, claimed: float) -> Proof:
    if proved is None:
        return Proof(None, f"{who} has no cheap way to prove {claimed:.12g} again")
    says = "proves again that" if proved else "does not prove again that"
    return Proof(proved, f"{who} {says} no solution lies below {claimed:.12g}")
