"""What the tests of the exact solvers of `cut` share: proving one value, and comparing with another program."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume

from balance import solve
from balance.cut.ideals import Ideals


def agree(solver, problem, best, **limits):
    """Check that a solver proves the value `best`, infinite if there is no solution."""
    result = solve(problem, solver=solver, **{"threads": 1, **limits})
    if math.isinf(best):
        assert result.status == "infeasible"
        assert result.reasons
        return
    assert result.status == "optimal", (result.status, result.objective, result.bound, best)
    assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-9)


def agree_with_ideals(solver, problem):
    """Check a solver against the program over ideals, on graphs too large for enumeration."""
    assume(Ideals().accepts(problem) is None)
    other = solve(problem, solver="ideals", threads=1)
    agree(solver, problem, math.inf if other.objective is None else other.objective)
