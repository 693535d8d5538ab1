"""Tests of the front door: several solvers, bounds, checks, and the manners of a library."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from balance import Plan, check, compare, lower_bounds, solve
from balance.problems.chain import ChainProblem
from balance.problems.model.errors import OptionError, SolverNotFoundError
from balance.registry import Outcome
from tests.front.fakes import BEST, Fake

Install = Callable[..., None]


# -- several solvers, bounds, checks ----------------------------------------------------------------------------------


def test_compare(problem: ChainProblem) -> None:
    """Every solver that can answers; the best stands first, and refusals are told."""
    found = compare(problem, threads=1)
    assert {result.solver for result in found} >= {"bisection", "threshold", "milp"}
    assert {result.objective for result in found} == {4.0}
    assert found[0].seconds == min(result.seconds for result in found)
    assert "bisection" in found.summary()
    assert list(found.to_frame()["status"].unique()) == ["optimal"]
    assert len(compare(problem.graph, 2, solvers=["bisection", "bisection"])) == 1


def test_compare_survives_a_failing_solver(problem: ChainProblem, install: Install) -> None:
    """One solver's failure is a row of words, not the end."""
    install(
        Fake(lambda problem, run: Outcome(BEST), name="good"),
        Fake(lambda problem, run: Outcome(Plan.chain([0, 1])), name="bad"),
    )
    found = compare(problem)
    assert [result.solver for result in found] == ["good"]
    assert "breaks a rule" in found.failures["bad"]
    assert "bad: " in found.summary()
    with pytest.raises(SolverNotFoundError):
        compare(problem, solvers=["good", "nobody"])
    with pytest.raises(OptionError, match="list of names"):
        compare(problem, solvers="good")


def test_lower_bounds(problem: ChainProblem) -> None:
    """Named, sorted, below the optimum; a graph is asked like a problem."""
    bounds = lower_bounds(problem)
    assert list(bounds.values()) == sorted(bounds.values(), reverse=True)
    assert 0 < max(bounds.values()) <= 4.0
    assert lower_bounds(problem.graph, 2) == bounds


def test_check_needs_only_the_graph(problem: ChainProblem, tmp_path: Path) -> None:
    """A saved result is checked against the graph alone."""
    result = solve(problem)
    result.save(tmp_path / "result.json")
    assert check(tmp_path / "result.json", problem.graph).valid
    assert check(result).evaluation is not None
    nothing = solve(problem, time_limit=0)
    assert check(nothing) == check(nothing, problem.graph)


# -- the library as a guest -------------------------------------------------------------------------------------------


def test_logging_is_left_alone() -> None:
    """One null handler, nothing else."""
    assert [type(handler) for handler in logging.getLogger("balance").handlers] == [logging.NullHandler]
    code = "import logging, balance; print(logging.getLogger().handlers, logging.getLogger('balance').level)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.strip() == "[] 0"


def test_types_of_the_front_door_are_checked() -> None:
    """A type checker sees an unknown option where it is written."""
    annotation = inspect.signature(solve).parameters["unknown"].annotation
    assert annotation == "Never"
