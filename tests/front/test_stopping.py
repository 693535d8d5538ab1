"""Tests of time limits, Ctrl-C and progress."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from balance import Progress, Run, Status, StopReason, search, solve
from balance.problems.chain import ChainProblem
from balance.registry import Outcome
from tests.front.fakes import BEST, OTHER, Fake, waits

Install = Callable[..., None]


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


def test_ctrl_c_returns_the_best_so_far(problem: ChainProblem, install: Install) -> None:
    """The first Ctrl-C ends the search with what it has, and the handler from before is back afterwards."""
    install(Fake(waits))
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

    install(Fake(waits))
    result = solve(problem, on_progress=listen)
    assert (result.stop_reason, result.objective) == (StopReason.interrupted, 6.0)
    assert seen[0].solver == "fake"


def test_an_error_of_the_callback_is_raised(problem: ChainProblem, install: Install) -> None:
    """The caller's own error comes out as it is."""
    install(Fake(waits))
    with pytest.raises(ZeroDivisionError):
        solve(problem, on_progress=lambda progress: 1 / 0)
