"""Tests of the front door: what is asked, who answers, and that nobody is believed."""

from __future__ import annotations

import inspect
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance import (
    Cluster,
    CostGraph,
    Device,
    Instance,
    Link,
    Plan,
    Progress,
    Run,
    Status,
    StopReason,
    Violation,
    check,
    compare,
    list_problems,
    lower_bounds,
    search,
    solve,
    state_problem,
)
from balance.problems.chain import ChainProblem
from balance.problems.model.errors import (
    BalanceError,
    FormatError,
    LinearisationError,
    OptionError,
    ProblemError,
    SolverError,
    SolverNotFoundError,
)
from balance.problems.model.tensors import Tensor
from balance.question import OBJECTIVES
from balance.registry import Bound, Outcome, Solver

Install = Callable[..., None]
BEST, OTHER = Plan.chain([0, 2, 4]), Plan.chain([0, 3, 4])  # 4 and 6 seconds


class Fake(Solver):
    """A solver that does what a test wants."""

    name = "fake"
    problem = ChainProblem
    exact = False
    proves_bound = False

    def __init__(
        self, act: Callable[[ChainProblem, Run], Any], *, name: str = "fake", exact: bool = False, rank: int = 50
    ) -> None:
        self.act, self.order = act, rank
        self.name, self.exact = name, exact  # type: ignore[misc]

    def rank(self, problem: ChainProblem) -> int:
        """Return the place that the test gave."""
        return self.order

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Do it."""
        done: Outcome = self.act(problem, run)
        return done


# -- what is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [solve, state_problem, compare, lower_bounds])
def test_unknown_options_name_the_nearest(ask: Callable[..., Any], problem: ChainProblem) -> None:
    """A misspelt option is never swallowed."""
    with pytest.raises(OptionError, match=r"devces.*devices"):
        ask(problem.graph, devces=3)


def test_unknown_limit_names_time_limit(problem: ChainProblem) -> None:
    """The example of the documentation."""
    with pytest.raises(OptionError, match=r"'time_limt' \(did you mean 'time_limit'\?\)"):
        solve(problem.graph, 4, time_limt=3)  # type: ignore[arg-type]


def test_every_parameter_of_the_problems_is_an_option() -> None:
    """A problem of the objective table that gains a parameter must gain an option."""
    answered = {name for names in OBJECTIVES.values() for name in names}
    for function in (solve, state_problem):
        options = set(inspect.signature(function).parameters)
        for kind in list_problems():
            if kind.name in answered:
                assert set(kind.parameters()) <= options


def test_a_number_of_devices() -> None:
    """A number means devices of the graph's only kind, memory unlimited."""
    stated = state_problem(CostGraph.chain({"gpu": [1.0, 2.0]}), 3)
    assert stated.cluster.n_devices == 3
    assert stated.cluster.device(0) == Device("gpu", math.inf, host=0)
    assert state_problem(CostGraph.chain([1.0, 2.0]), np.int64(3)).cluster.n_devices == 3  # type: ignore[arg-type]


def test_a_number_of_devices_of_several_kinds_is_not_clear() -> None:
    """Two kinds: the error names them and says what to give."""
    graph = CostGraph.chain({"gpu": [1.0, 2.0], "cpu": [3.0, 4.0]})
    with pytest.raises(OptionError, match=r"several kinds \(gpu, cpu\)"):
        solve(graph, 4)
    assert solve(graph, [Device("gpu"), Device("cpu")]).objective == 3.0


def test_bytes_without_a_link_are_never_free() -> None:
    """Tensors with bytes need a link speed; the error says how to give one."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9)
    with pytest.raises(ProblemError, match=r"bandwidth=.*latency="):
        solve(graph, 2)
    with pytest.raises(ProblemError, match="bandwidth="):
        solve(graph, [Device()] * 2)
    with pytest.raises(OptionError, match="bandwidth"):
        solve(graph, 2, latency=1e-6)
    assert solve(graph, 2, bandwidth=1e9).objective == pytest.approx(4.0)
    assert solve(graph, 2, bandwidth=1e9, latency=0.5).objective == pytest.approx(4.5)
    assert solve(graph, 1).objective == 6.0  # one device: nothing is sent


def test_given_seconds_and_zero_bytes_need_no_link() -> None:
    """Formats that carry times are solved as they are."""
    assert solve(CostGraph.chain([1.0, 2.0, 3.0]), 2).objective == 3.0
    assert solve(CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9, seconds=1.0), 2).objective == pytest.approx(4.0)


def test_links_of_the_instance_are_taken() -> None:
    """devices=4 of an instance with uniform links means four devices with those links."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9)
    instance = Instance(graph, Cluster([Device()] * 2, link=Link(0.5, 1e9)))
    assert state_problem(instance, 3).cluster.link(0, 1) == Link(0.5, 1e9)
    assert state_problem(instance, [Device(memory_bytes=9.0)] * 3).cluster.link(0, 1) == Link(0.5, 1e9)
    assert state_problem(instance).cluster.n_devices == 2
    uneven = Instance(graph, Cluster.hierarchical(1, 2, intra=Link(0.0, 1e9), inter=Link(0.5, 1e8)))
    with pytest.raises(ProblemError, match="bandwidth="):
        solve(uneven, 3)


def test_an_instance_brings_its_parameters() -> None:
    """The file's parameters hold unless told otherwise; those of other problems are named in a note."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], backward=[1.0, 1.0, 1.0])
    parameters = {"objective": "fw-bw-bottleneck", "microbatches": 7, "contiguity": "ideal"}
    instance = Instance(graph, Cluster.uniform(2), preset="published", parameters=parameters, notes=("odd units",))
    result = solve(instance)
    assert isinstance(result.problem, ChainProblem)
    assert (result.problem.objective, result.problem.microbatches) == ("fw-bw-bottleneck", 7)
    notes = " ".join(result.provenance["notes"])
    assert "odd units" in notes
    assert "'published'" in notes
    assert "'contiguity'" in notes
    told = state_problem(instance, objective="bottleneck", microbatches=3)
    assert isinstance(told, ChainProblem)
    assert (told.objective, told.microbatches) == ("bottleneck", 3)


def test_a_path_is_read(tmp_path: Path) -> None:
    """A file of any format is asked like an instance; a missing one is a format error."""
    CostGraph.chain([1.0, 2.0, 3.0]).save(tmp_path / "graph.json")
    assert solve(tmp_path / "graph.json", 2).objective == 3.0
    assert solve(str(tmp_path / "graph.json"), 2).objective == 3.0
    with pytest.raises(FormatError, match=r"missing\.json"):
        solve(tmp_path / "missing.json", 2)


def test_a_problem_says_everything_itself(problem: ChainProblem) -> None:
    """Options of the question beside a problem are refused, not ignored."""
    assert solve(problem).objective == 4.0
    for option in ({"devices": 3}, {"microbatches": 2}, {"bandwidth": 1.0}, {"objective": "bottleneck"}):
        with pytest.raises(OptionError, match=next(iter(option))):
            solve(problem, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["step-time", "cost", "latency"])
def test_objectives_to_come_are_refused_honestly(objective: str) -> None:
    """An objective whose problem is not there yet says which objectives are answered."""
    if any(kind.name in OBJECTIVES[objective] for kind in list_problems()):
        pytest.skip(f"{objective} is answered")
    with pytest.raises(ProblemError, match=r"it answers bottleneck, fw-bw-bottleneck"):
        solve(CostGraph.chain([1.0, 2.0]), 2, objective=objective)


def test_misspelt_objective() -> None:
    """The nearest objective is named."""
    with pytest.raises(OptionError, match="did you mean 'bottleneck'"):
        solve(CostGraph.chain([1.0]), 2, objective="botleneck")


def test_what_is_no_chain_is_said() -> None:
    """A graph that no problem of the objective can take tells why."""
    if any(kind.name == "cut" for kind in list_problems()):
        pytest.skip("problem cut takes every graph")
    fork = CostGraph(forward=[1.0] * 4, tensors=[Tensor(0, (1, 2)), Tensor(1, (3,)), Tensor(2, (3,))])
    with pytest.raises(LinearisationError):
        solve(fork, 2)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3,), {}),
        ((CostGraph.chain([1.0]),), {}),
        ((CostGraph.chain([1.0]), 0), {}),
        ((CostGraph.chain([1.0]), True), {}),
        ((CostGraph.chain([1.0]), 1.5), {}),
        ((CostGraph.chain([1.0]), "four"), {}),
        ((CostGraph.chain([1.0]), [1, 2]), {}),
        ((CostGraph.chain([1.0]), []), {}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": -1.0}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": "fast"}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": 1.0, "latency": -1.0}),
        ((CostGraph.chain([1.0]), 2), {"time_limit": "soon"}),
        ((CostGraph.chain([1.0]), 2), {"microbatches": 0}),
        ((CostGraph.chain([1.0]), 2), {"microbatches": "many"}),
        ((CostGraph.chain([1.0]), 2), {"in_flight": 3}),
        ((CostGraph.chain([1.0]), 2), {"schedule": "1fb1"}),
        ((CostGraph.chain([1.0]), 2), {"solver": "nobody"}),
        ((CostGraph.chain([1.0]), 2), {"solver": None}),
        ((CostGraph.chain([1.0]), 2), {"incumbent": "a plan"}),
    ],
)
def test_wrong_input_is_explained(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Every mistake is an error of our own with a sentence, never a traceback from inside."""
    with pytest.raises(BalanceError) as caught:
        solve(*arguments, **options)
    assert len(str(caught.value)) > 15


# -- who answers -------------------------------------------------------------------------------------------------------


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


def test_an_infinite_bound_is_a_reason(problem: ChainProblem, install: Install) -> None:
    """A bound that rules out every solution makes the problem infeasible where no solver says more."""
    no = Bound("no", ChainProblem, lambda problem: math.inf)
    install(Fake(lambda problem, run: Outcome()), bounds=(no,))
    result = solve(problem)
    assert result.status is Status.infeasible
    assert "'no'" in result.reasons[0].message
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


# -- nobody is believed ------------------------------------------------------------------------------------------------


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


# -- warm starts -------------------------------------------------------------------------------------------------------


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


# -- time and interruption ---------------------------------------------------------------------------------------------


def test_no_time_at_all(problem: ChainProblem) -> None:
    """A limit of nothing finds nothing and says so; with an incumbent that is the answer."""
    result = solve(problem, time_limit=0)
    assert (result.status, result.stop_reason) == (Status.unknown, StopReason.time_limit)
    assert solve(problem, time_limit=0, incumbent=OTHER).objective == 6.0


def test_a_stubborn_solver_is_left_behind(
    problem: ChainProblem, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native code that never looks at the clock does not hold up the answer; what it reported counts."""
    monkeypatch.setattr(search, "GRACE", 0.1)
    release = threading.Event()

    def stubborn(problem: ChainProblem, run: Run) -> Outcome:
        run.report(objective=6.0, bound=2.0, solution=OTHER)
        release.wait(60)
        run.report(objective=4.0, solution=BEST)
        return Outcome(BEST)

    install(Fake(stubborn))
    began = time.perf_counter()
    result = solve(problem, time_limit=0.1)
    assert time.perf_counter() - began < 10
    release.set()
    assert (result.status, result.stop_reason) == (Status.feasible, StopReason.time_limit)
    assert (result.objective, result.bound) == (6.0, 2.0)
    assert "left behind" in result.provenance["notes"][-1]


def test_time_includes_stating_the_problem(problem: ChainProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock starts with the call."""
    linearisation = ChainProblem.linearisation.func

    def slow(self: ChainProblem) -> Any:
        time.sleep(0.2)
        return linearisation(self)

    monkeypatch.setattr(ChainProblem.linearisation, "func", slow)
    result = solve(problem.graph, 2, time_limit=0.1)
    assert result.stop_reason is StopReason.time_limit
    assert result.seconds >= result.timings["state"] >= 0.2


def _waits(problem: ChainProblem, run: Run) -> Outcome:
    run.report(objective=6.0, bound=2.0, solution=OTHER)
    deadline = time.perf_counter() + 60
    while not run.should_stop() and time.perf_counter() < deadline:
        time.sleep(0.005)
    return Outcome(stop_reason=run.stop_reason or StopReason.finished)


def test_ctrl_c_returns_the_best_so_far(problem: ChainProblem, install: Install) -> None:
    """The first Ctrl-C ends the search with what it has, and the handler from before is back afterwards."""
    install(Fake(_waits))
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = solve(problem)
    timer.join()
    assert (result.status, result.stop_reason) == (Status.feasible, StopReason.interrupted)
    assert (result.objective, result.bound) == (6.0, 2.0)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_raises(problem: ChainProblem, install: Install) -> None:
    """Who insists gets out at once."""
    release = threading.Event()
    install(Fake(lambda problem, run: release.wait(60) and Outcome(BEST)))

    def insist() -> None:
        for _ in range(2):
            time.sleep(0.15)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=insist)
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        solve(problem)
    thread.join()
    release.set()
    assert signal.getsignal(signal.SIGINT) is before


def test_solving_in_another_thread(problem: ChainProblem) -> None:
    """Signals belong to the main thread; elsewhere solving works without them."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(solve(problem)))
    thread.start()
    thread.join()
    assert results[0].objective == 4.0


def test_progress_stops_the_search(problem: ChainProblem, install: Install) -> None:
    """A true return value of the callback interrupts; the callback sees who searches."""
    seen: list[Progress] = []

    def listen(progress: Progress) -> bool:
        seen.append(progress)
        return progress.objective is not None

    install(Fake(_waits))
    result = solve(problem, on_progress=listen)
    assert (result.stop_reason, result.objective) == (StopReason.interrupted, 6.0)
    assert seen[0].solver == "fake"


def test_an_error_of_the_callback_is_raised(problem: ChainProblem, install: Install) -> None:
    """The caller's own error comes out as it is."""
    install(Fake(_waits))
    with pytest.raises(ZeroDivisionError):
        solve(problem, on_progress=lambda progress: 1 / 0)


# -- several solvers, bounds, checks -----------------------------------------------------------------------------------


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


# -- the library as a guest --------------------------------------------------------------------------------------------


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
