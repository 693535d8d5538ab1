"""Tests of the search: who answers, that nobody is believed, and warm starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from balance import CostGraph, Plan, Run, Status, StopReason, Violation, solve
from balance.problems.chain import ChainProblem
from balance.problems.model.errors import ProblemError, SolverError, SolverNotFoundError
from balance.registry import Bound, Outcome
from tests.front.fakes import BEST, OTHER, Fake

Install = Callable[..., None]


# -- who answers ------------------------------------------------------------------------------------------------------


def test_the_first_by_rank_answers(problem: ChainProblem) -> None:
    """The answer says who gave it, why, and why others could not."""
    result = solve(problem)
    assert (result.solver, result.status, result.gap) == ("bisection", Status.optimal, 0.0)
    assert "bisection" in result.provenance["why"]
    sending = CostGraph.chain([1.0, 2.0], bytes=1.0)
    assert "communication" in solve(sending, 2, bandwidth=1.0).provenance["refused"]["bisection"]


def test_a_named_solver_answers_or_says_why_not(problem: ChainProblem) -> None:
    """Any solver by name; one that cannot is a problem error that names those that can."""
    assert solve(problem, solver="milp").solver == "milp"
    sending = CostGraph.chain([1.0, 2.0], bytes=1.0)
    with pytest.raises(ProblemError, match=r"communication.*these can: .*threshold"):
        solve(sending, 2, bandwidth=1.0, solver="bisection")
    with pytest.raises(SolverNotFoundError, match="did you mean 'bisection'"):
        solve(problem, solver="bisecton")


def test_nobody_can(problem: ChainProblem, install: Install) -> None:
    """A problem that every solver refuses says what each of them says."""

    class Refusing(Fake):
        """Refuses."""

        def accepts(self, problem: ChainProblem) -> str | None:
            """Refuse."""
            return "it is Monday"

    install(Refusing(lambda problem, run: Outcome(BEST)))
    with pytest.raises(SolverNotFoundError, match="fake: it is Monday"):
        solve(problem)


def test_heuristics_run_before_searches(problem: ChainProblem, install: Install) -> None:
    """Bounds, then by rank; a proof ends the ladder and later solvers start from what is known."""
    seen: list[str] = []

    def heuristic(problem: ChainProblem, run: Run) -> Outcome:
        seen.append(f"heuristic {run.bound}")
        return Outcome(OTHER)

    def search_(problem: ChainProblem, run: Run) -> Outcome:
        assert run.best is not None
        seen.append(f"search {run.best[1]}")
        return Outcome(BEST, bound=4.0)

    def never(problem: ChainProblem, run: Run) -> Outcome:
        raise AssertionError("the question is answered")

    install(
        Fake(never, name="later", rank=90),
        Fake(search_, name="search", exact=True, rank=60),
        Fake(heuristic, name="heuristic", rank=10),
        bounds=(Bound("three", ChainProblem, lambda problem: 3.0),),
    )
    result = solve(problem)
    assert seen == ["heuristic 3.0", "search 6.0"]
    assert (result.solver, result.status, result.bound_name) == ("search", Status.optimal, "search")
    assert [row[1:] for row in result.trace] == [(math.inf, 3.0), (6.0, 3.0), (4.0, 3.0), (4.0, 4.0)]
    assert set(result.timings) == {"state", "bounds", "heuristic", "search", "evaluate"}


def test_a_bound_may_prove_a_heuristic_optimal(problem: ChainProblem, install: Install) -> None:
    """A heuristic without proof is feasible; with a bound that meets it, optimal."""
    install(Fake(lambda problem, run: Outcome(OTHER)))
    result = solve(problem)
    assert (result.status, result.stop_reason, result.bound) == (Status.feasible, StopReason.finished, -math.inf)
    install(Fake(lambda problem, run: Outcome(BEST)), bounds=(Bound("four", ChainProblem, lambda problem: 4.0),))
    result = solve(problem)
    assert (result.status, result.bound_name) == (Status.optimal, "four")


def test_a_heuristic_that_finds_nothing(problem: ChainProblem, install: Install) -> None:
    """Ending without a solution and without a proof is unknown."""
    install(Fake(lambda problem, run: Outcome()))
    assert solve(problem).status is Status.unknown


@pytest.mark.parametrize("asked", ["auto", "fake"])
def test_who_found_nothing(problem: ChainProblem, install: Install, asked: str) -> None:
    """Without an answer the result names what was asked for, never the bounds that ran ahead."""
    install(Fake(lambda problem, run: Outcome()), bounds=(Bound("three", ChainProblem, lambda problem: 3.0),))
    for limit in (None, 0.0):
        result = solve(problem, solver=asked, time_limit=limit)
        assert (result.status, result.solver) == (Status.unknown, asked)
        assert "no solution was found" in result.summary().splitlines()[0]


def test_an_infinite_bound_is_a_reason(problem: ChainProblem, install: Install) -> None:
    """A bound that rules out every solution makes the problem infeasible where no solver says more."""
    no = Bound("no", ChainProblem, lambda problem: math.inf)
    install(Fake(lambda problem, run: Outcome()), bounds=(no,))
    result = solve(problem)
    assert result.status is Status.infeasible
    assert "'no'" in result.reasons[0].message
    assert (result.bound_name, result.solver) == ("no", "auto")
    install(Fake(lambda problem, run: Outcome(BEST)), bounds=(no,))
    with pytest.raises(SolverError, match="'no'"):
        solve(problem)


def test_requested_gap(problem: ChainProblem, install: Install) -> None:
    """A gap that was reached is its own stop reason."""

    def search_(problem: ChainProblem, run: Run) -> Outcome:
        run.report(objective=4.0, bound=3.5, solution=BEST)
        assert run.should_stop()
        return Outcome(BEST, bound=3.5, stop_reason=run.stop_reason or StopReason.finished)

    install(Fake(search_, exact=True))
    result = solve(problem, gap=0.2)
    assert (result.status, result.stop_reason, result.gap) == (Status.feasible, StopReason.gap, 0.125)


def test_limits_of_the_solver_are_told(problem: ChainProblem, install: Install) -> None:
    """A solver's own limit reaches the result, and running out of memory is one."""
    install(Fake(lambda problem, run: Outcome(OTHER, stop_reason=StopReason.node_limit)))
    assert solve(problem, node_limit=1).stop_reason is StopReason.node_limit

    def hungry(problem: ChainProblem, run: Run) -> Outcome:
        run.report(objective=6.0, solution=OTHER)
        raise MemoryError

    install(Fake(hungry))
    result = solve(problem)
    assert (result.status, result.stop_reason, result.objective) == (Status.feasible, StopReason.memory_limit, 6.0)


# -- nobody is believed -----------------------------------------------------------------------------------------------


def test_a_broken_rule_is_found_out(problem: ChainProblem, install: Install) -> None:
    """A solution that breaks a rule is an error that names solver and rule."""
    install(Fake(lambda problem, run: Outcome(Plan.chain([0, 2, 3]))))
    with pytest.raises(SolverError, match=r"'fake'.*operator #3 is in no stage") as caught:
        solve(problem)
    assert caught.value.facts["violations"]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda p, run: run.report(objective=1.0, solution=BEST) or Outcome(BEST), "reported the objective 1; it is 4"),
        (
            lambda p, run: run.report(objective=1.0, solution=OTHER) or Outcome(BEST),
            "reported the objective 1; it is 6",
        ),
        (lambda p, run: Outcome(BEST, bound=4.5, bound_name="magic"), "'magic' claims 4.5"),
        (lambda p, run: run.report(bound=5.0, bound_name="hope") or Outcome(BEST), "'hope' claims 5"),
        (lambda p, run: Outcome(BEST, bound=math.nan), "no number"),
        (lambda p, run: 1 / 0, "'fake' failed: ZeroDivisionError"),
        (lambda p, run: None, "NoneType, not an Outcome"),
        (lambda p, run: Outcome("a plan"), "expected a Plan"),
        (lambda p, run: Outcome(BEST, proved_infeasible=True), "there is one"),
        (
            lambda p, run: run.report(objective=4.0, solution=BEST) or Outcome(proved_infeasible=True),
            "there is one",
        ),
    ],
)
def test_false_claims_are_errors(problem: ChainProblem, install: Install, act: Any, says: str) -> None:
    """Objectives, bounds, infeasibility: whatever a solver gets wrong is an error that names it."""
    install(Fake(act, exact=True))
    with pytest.raises(SolverError, match=says):
        solve(problem)


def test_rounding_is_no_false_claim(problem: ChainProblem, install: Install) -> None:
    """A bound a rounding above the objective is that objective, and an exact solver's gap is exactly 0."""
    for bound in (4.0 * (1 + 1e-12), 4.0 * (1 - 1e-12)):
        install(Fake(lambda problem, run, bound=bound: Outcome(BEST, bound=bound), exact=True))
        assert (solve(problem).bound, solve(problem).gap) == (4.0, 0.0)


def test_a_small_gap_is_kept_as_it_is(problem: ChainProblem, install: Install) -> None:
    """What is optimal within the tolerance keeps its own bound."""
    install(Fake(lambda problem, run: Outcome(BEST, bound=4.0 - 3e-6), exact=True))
    result = solve(problem)
    assert (result.status, result.bound) == (Status.optimal, 4.0 - 3e-6)


def test_the_better_of_returned_and_reported(problem: ChainProblem, install: Install) -> None:
    """A solver that returns less than it reported loses nothing."""

    def forgetful(problem: ChainProblem, run: Run) -> Outcome:
        run.report(objective=4.0, solution=BEST)
        return Outcome(OTHER)

    install(Fake(forgetful))
    assert solve(problem).objective == 4.0


def test_infeasible_without_words(problem: ChainProblem, install: Install) -> None:
    """A solver that gives no reason is quoted; one that does is passed on."""
    install(Fake(lambda problem, run: Outcome(proved_infeasible=True)))
    assert "'fake'" in solve(problem).reasons[0].message
    reason = Violation("memory", "operator 'a' is too large")
    install(Fake(lambda problem, run: Outcome(proved_infeasible=True, infeasible=(reason,))))
    result = solve(problem)
    assert (result.status, result.reasons, result.bound) == (Status.infeasible, (reason,), math.inf)


# -- warm starts ------------------------------------------------------------------------------------------------------


def test_never_worse_than_the_incumbent(problem: ChainProblem, install: Install) -> None:
    """A warm start is handed to the solver, and returned if nothing better comes."""

    def checks(problem: ChainProblem, run: Run) -> Outcome:
        assert run.incumbent is BEST
        assert run.best == (BEST, 4.0)
        return Outcome(OTHER)

    install(Fake(checks))
    result = solve(problem, incumbent=BEST)
    assert (result.objective, result.solver, result.solution) == (4.0, "incumbent", BEST)
    assert solve(problem, incumbent=result).objective == 4.0


def test_an_incumbent_is_validated(problem: ChainProblem) -> None:
    """A plan that is none of this problem is refused with the rule that it breaks."""
    with pytest.raises(ProblemError, match="operator #3 is in no stage"):
        solve(problem, incumbent=Plan.chain([0, 2, 3]))
