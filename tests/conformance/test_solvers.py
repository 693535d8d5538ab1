"""The one suite that every registered (problem, solver) pair passes."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import time
from functools import cache

import pytest

from balance import Result, Run, Status, StopReason, check, list_problems, list_solvers, lower_bounds, solve
from balance.registry import Solver, get_solver
from balance.search import GRACE
from tests.conformance.case import Case
from tests.conformance.factories import FACTORIES

PAIRS = [(solver.problem.name, solver.name) for solver in list_solvers() if solver.available]
SLACK = 5.0  # seconds that a busy machine may add

pairs = pytest.mark.parametrize(("problem", "name"), PAIRS, ids=[f"{problem}-{name}" for problem, name in PAIRS])


@cache
def feasible(problem: str) -> tuple[Case, ...]:
    """Return the solvable instances of a problem."""
    return tuple(FACTORIES[problem].feasible())


def accepted(solver: Solver, cases: tuple[Case, ...] | list[Case]) -> list[Case]:
    """Return the instances that a solver takes."""
    return [case for case in cases if solver.accepts(case.problem) is None]


def cases_of(problem: str, name: str) -> list[Case]:
    """Return the solvable instances that a solver takes, the hard one last."""
    solver = get_solver(problem, name)
    return accepted(solver, [*feasible(problem), FACTORIES[problem].hard()])


def answer(solution: object) -> str:
    """Return a solution as text that can be compared."""
    return json.dumps(solution.to_json())  # type: ignore[attr-defined]


def honest(result: Result) -> None:
    """Check what every result must hold, beyond what its constructor enforces."""
    assert check(result).valid, check(result).faults
    assert result.seconds >= 0
    json.dumps(result.to_json(), allow_nan=False)
    if result.solution is None:
        return
    assert result.objective is not None
    evaluation = result.problem.evaluate(result.solution)
    assert evaluation.violations == ()
    assert evaluation.objective == result.objective
    assert result.bound <= result.objective


def test_every_problem_has_a_factory() -> None:
    """A new problem brings its instances: ``tests/<problem>/cases.py`` with a `Factory` named FACTORY."""
    assert set(FACTORIES) == {kind.name for kind in list_problems()}


def test_every_solver_is_here() -> None:
    """The tests run in an environment where every solver is installed: nothing is left out silently."""
    assert [solver.name for solver in list_solvers() if not solver.available] == []


@pytest.mark.parametrize("problem", sorted(FACTORIES))
def test_the_factories_mean_what_they_say(problem: str) -> None:
    """Solvable instances come with a solution, names are unique, and infeasible ones have none."""
    factory = FACTORIES[problem]
    cases = [*factory.feasible(), *factory.infeasible(), factory.hard()]
    assert len({case.name for case in cases}) == len(cases)
    for case in factory.feasible():
        assert case.problem.evaluate(case.solution).violations == ()
    assert len(factory.infeasible()) >= 1


@pairs
def test_it_has_instances(problem: str, name: str) -> None:
    """A solver that accepts no instance would pass everything below."""
    solver = get_solver(problem, name)
    assert accepted(solver, feasible(problem))
    if solver.exact:
        assert accepted(solver, FACTORIES[problem].infeasible())


@pairs
def test_it_answers(problem: str, name: str) -> None:
    """The solution breaks no rule, the status is honest, and what is exact proves its answer with gap 0."""
    solver = get_solver(problem, name)
    for case in accepted(solver, feasible(problem)):
        result = solve(case.problem, solver=name, threads=1)
        honest(result)
        assert result.solution is not None, case.name
        assert result.solver == name
        if solver.exact:
            assert (result.status, result.stop_reason) == (Status.optimal, StopReason.finished), case.name
            assert result.gap <= 1e-6
        if solver.proves_bound:
            assert result.bound > -math.inf, case.name


@pytest.mark.parametrize("problem", sorted(FACTORIES))
def test_exact_solvers_agree(problem: str) -> None:
    """One optimum for each instance, no heuristic below it and no bound above it."""
    for case in feasible(problem):
        able = list_solvers(case.problem)
        results = {solver.name: solve(case.problem, solver=solver.name, threads=1) for solver in able}
        optima = [results[solver.name].objective for solver in able if solver.exact]
        best = min(value for value in optima if value is not None)
        for solver in able:
            objective = results[solver.name].objective
            assert objective is not None
            assert objective >= best * (1 - 1e-9)
            if solver.exact:
                assert objective == pytest.approx(best, rel=1e-6), (case.name, solver.name)
        for bound, value in lower_bounds(case.problem).items():
            assert value <= best * (1 + 1e-9), (case.name, bound)


@pairs
def test_it_tells_infeasible(problem: str, name: str) -> None:
    """Exact solvers prove it and give reasons with the names and numbers that the instance is about."""
    solver = get_solver(problem, name)
    for case in accepted(solver, FACTORIES[problem].infeasible()):
        result = solve(case.problem, solver=name, threads=1)
        honest(result)
        assert result.solution is None, case.name
        if not solver.exact:
            assert result.status in (Status.infeasible, Status.unknown)
            continue
        assert (result.status, result.bound) == (Status.infeasible, math.inf), case.name
        text = " ".join(reason.message for reason in result.reasons)
        for word in case.says:
            assert word in text, (case.name, word, text)
        assert any(
            reason.operator is not None or reason.device is not None or reason.needed is not None
            for reason in result.reasons
        )


@pairs
def test_it_follows_the_seed(problem: str, name: str) -> None:
    """Same seed, one thread, no time limit: the same solution."""
    for case in cases_of(problem, name):
        first, second = (solve(case.problem, solver=name, seed=7, threads=1) for _ in range(2))
        assert answer(first.solution) == answer(second.solution), case.name
        assert (first.objective, first.bound) == (second.objective, second.bound)


_SOLUTIONS = """
import json
from balance import solve
from tests.conformance.factories import FACTORIES
from tests.conformance.test_solvers import PAIRS, accepted, answer, feasible
from balance.registry import get_solver
for problem, name in PAIRS:
    for case in accepted(get_solver(problem, name), feasible(problem)):
        result = solve(case.problem, solver=name, seed=1, threads=1)
        print(problem, name, case.name, result.objective, answer(result.solution))
"""


def test_no_set_order_decides() -> None:
    """The solutions are the same whatever Python's hash seed is."""
    texts = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _SOLUTIONS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) >= len(PAIRS)


@pairs
@pytest.mark.parametrize("limit", [0.0, 0.05])
def test_it_respects_a_time_limit(problem: str, name: str, limit: float) -> None:
    """It is back soon after the limit, with an honest status and what was found."""
    for case in cases_of(problem, name):
        began = time.perf_counter()
        result = solve(case.problem, solver=name, time_limit=limit)
        assert time.perf_counter() - began < limit + GRACE + SLACK, case.name
        honest(result)
        if result.status is not Status.optimal:  # a heuristic may be at its end before
            assert result.stop_reason is StopReason.time_limit or not get_solver(problem, name).exact, case.name
        assert not any("left behind" in note for note in result.provenance["notes"]), case.name


@pairs
def test_it_can_be_interrupted(problem: str, name: str) -> None:
    """Told to stop at the first progress, it stops; what it knows by then is kept."""
    for case in cases_of(problem, name):
        calls = []

        def stop(progress: object, calls: list[object] = calls) -> bool:
            calls.append(progress)
            return True

        began = time.perf_counter()
        result = solve(case.problem, solver=name, on_progress=stop)
        assert time.perf_counter() - began < GRACE + SLACK, case.name
        honest(result)
        assert calls
        if result.status is not Status.optimal:
            assert result.stop_reason is StopReason.interrupted, case.name
        assert not any("left behind" in note for note in result.provenance["notes"]), case.name


@pairs
def test_it_stops_when_it_is_told_before_it_starts(problem: str, name: str) -> None:
    """A run that is over when the solver gets it gives an outcome all the same, and no false proof."""
    solver = get_solver(problem, name)
    for case in accepted(solver, feasible(problem)):
        run = Run(threads=1)
        run.interrupt()
        outcome = solver.solve(case.problem, run)
        assert not outcome.proved_infeasible, case.name
        if outcome.solution is not None:
            value = case.problem.evaluate(outcome.solution)
            assert value.violations == ()
            assert outcome.bound <= value.objective * (1 + 1e-6) + 1e-9
        else:
            assert outcome.bound < math.inf
            assert outcome.stop_reason is StopReason.interrupted, case.name


@pairs
def test_a_warm_start_never_worsens(problem: str, name: str) -> None:
    """With a solution to start from the answer is at least as good, also when there is no time."""
    for case in accepted(get_solver(problem, name), feasible(problem)):
        start = case.problem.evaluate(case.solution).objective
        for limit in (None, 0.0):
            result = solve(case.problem, solver=name, incumbent=case.solution, time_limit=limit, threads=1)
            honest(result)
            assert result.objective is not None
            assert result.objective <= start, case.name
        best = solve(case.problem, solver=name, threads=1)
        again = solve(case.problem, solver=name, incumbent=best, threads=1)
        assert again.objective is not None
        assert best.objective is not None
        assert again.objective <= best.objective


@pairs
def test_a_requested_gap_is_met(problem: str, name: str) -> None:
    """An exact solver that may stop at half the way is within it."""
    solver = get_solver(problem, name)
    for case in accepted(solver, feasible(problem)):
        result = solve(case.problem, solver=name, gap=0.5, threads=1)
        honest(result)
        if solver.exact:
            assert result.gap <= 0.5, case.name


@pairs
def test_it_says_nothing(problem: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard output and standard error stay empty, for native code as well."""
    for case in cases_of(problem, name):
        solve(case.problem, solver=name, threads=2)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pairs
def test_its_result_travels(problem: str, name: str) -> None:
    """A result is plain data: it can be pickled, written and read."""
    case = accepted(get_solver(problem, name), feasible(problem))[0]
    result = solve(case.problem, solver=name)
    assert pickle.loads(pickle.dumps(result)).to_json() == result.to_json()
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert Result.from_json(data, case.problem.graph).to_json() == result.to_json()
