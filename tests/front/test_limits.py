"""Tests of what a solver is given: clock, stop reasons, reports, threads, seed."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import limits
from balance.limits import Progress, Run, StopReason, relative_gap
from balance.problems.model.errors import OptionError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock by a number that the test sets."""
    now = [100.0]
    monkeypatch.setattr(limits.time, "perf_counter", lambda: now[0])
    return now


def test_without_a_limit_nothing_stops() -> None:
    """No limit means infinity, not some default."""
    run = Run()
    assert run.remaining() == math.inf
    assert not run.should_stop()
    assert run.stop_reason is None


def test_time_limit_counts_from_the_start(clock: list[float]) -> None:
    """The clock starts with the run; once the time is over it stays over, and nothing is left of it."""
    run = Run(time_limit=2.0)
    clock[0] = 101.5
    assert run.remaining() == pytest.approx(0.5)
    assert not run.should_stop()
    clock[0] = 102.5
    assert run.should_stop()
    assert run.stop_reason is StopReason.time_limit
    assert run.remaining() == 0.0


def test_the_first_reason_stays() -> None:
    """What comes after the first reason to stop does not replace it."""
    run = Run(time_limit=0.0)
    assert run.should_stop()
    run.interrupt()
    assert run.stop_reason is StopReason.time_limit


def test_incumbent_and_bound_only_improve() -> None:
    """Worse reports are dropped, and the trace holds improvements only."""
    run = Run()
    run.report(objective=5.0, solution="a")
    run.report(objective=7.0, solution="worse")
    run.report(bound=1.0, bound_name="average")
    run.report(bound=0.5, bound_name="worse")
    run.report(objective=4.0, bound=2.0, solution="b", bound_name="probe")
    assert run.best == ("b", 4.0)
    assert (run.bound, run.bound_name) == (2.0, "probe")
    assert [row[1:] for row in run.trace] == [(5.0, -math.inf), (5.0, 1.0), (4.0, 2.0)]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10))))
def test_the_trace_is_monotone(rows: list[tuple[float, float]]) -> None:
    """Whatever is reported, times and bounds never fall and objectives never rise."""
    run = Run()
    for objective, bound in rows:
        run.report(objective=objective, bound=bound, solution=object())
    seconds, objectives, bounds = np.array(run.trace, dtype=float).reshape(-1, 3).T
    assert bool((np.diff(seconds) >= 0).all())
    assert bool((np.diff(objectives) <= 0).all())
    assert bool((np.diff(bounds) >= 0).all())


def test_an_objective_alone_is_no_incumbent() -> None:
    """A number without a solution is shown but cannot be returned."""
    run = Run()
    run.report(objective=3.0)
    assert run.best is None
    assert run.objective == 3.0


def test_nan_is_no_improvement() -> None:
    """A solver that reports nan changes nothing."""
    run = Run()
    run.report(objective=math.nan, bound=math.nan, solution="x")
    assert run.best is None
    assert run.trace == ()


def test_requested_gap_stops() -> None:
    """The gap counts as the contract defines it; without a requested gap only equality stops."""
    run = Run(gap=0.25)
    run.report(objective=4.0, bound=2.9, solution="x")
    assert not run.should_stop()
    run.report(bound=3.0)
    assert run.stop_reason is StopReason.gap
    exact = Run()
    exact.report(objective=4.0, bound=3.999, solution="x")
    assert not exact.should_stop()
    exact.report(bound=4.0)
    assert exact.stop_reason is StopReason.finished


def test_progress_is_told_and_may_stop() -> None:
    """The callback sees every improvement, unknown values as None, and a true return value interrupts."""
    seen: list[Progress] = []

    def listen(progress: Progress) -> bool:
        seen.append(progress)
        return progress.objective == 4.0

    run = Run(on_progress=listen)
    run.solver = "probe"
    run.report(bound=1.0)
    run.report(bound=0.5)
    assert not run.should_stop()
    run.report(objective=4.0, solution="x")
    assert run.stop_reason is StopReason.interrupted
    assert [(p.objective, p.bound, p.gap, p.solver) for p in seen] == [
        (None, 1.0, None, "probe"),
        (4.0, 1.0, 0.75, "probe"),
    ]


def test_an_error_in_the_callback_is_kept_and_stops() -> None:
    """Native code may stand in between, so the error waits for the front door."""
    run = Run(on_progress=lambda progress: 1 / 0)
    run.report(bound=1.0)
    assert isinstance(run.failure, ZeroDivisionError)
    assert run.should_stop()


def test_nothing_is_taken_after_the_end() -> None:
    """A solver that was left behind cannot change an answer that was handed out."""
    run = Run()
    run.report(objective=4.0, solution="x")
    run.close()
    run.report(objective=1.0, bound=1.0, solution="late")
    assert run.best == ("x", 4.0)
    assert run.bound == -math.inf


def test_interrupt_from_another_thread() -> None:
    """Interrupting needs no lock of the search."""
    run = Run()
    thread = threading.Thread(target=run.interrupt)
    thread.start()
    thread.join()
    assert run.stop_reason is StopReason.interrupted


def test_random_numbers_follow_the_seed() -> None:
    """Same seed, same numbers; each call starts anew."""
    assert Run(seed=3).rng().random() == Run(seed=3).rng().random()
    assert Run(seed=3).rng().random() != Run(seed=4).rng().random()


def test_threads_default_to_all_cores() -> None:
    """None asks for what this process may use."""
    assert Run().threads == limits.available_cores() >= 1
    assert Run(threads=1).threads == 1


@pytest.mark.parametrize(
    "options",
    [
        {"time_limit": -1.0},
        {"time_limit": math.nan},
        {"time_limit": "3"},
        {"gap": -0.1},
        {"gap": True},
        {"seed": -1},
        {"seed": 1.5},
        {"threads": 0},
        {"node_limit": 0},
        {"on_progress": 3},
    ],
)
def test_bad_options_are_named(options: dict[str, object]) -> None:
    """A value out of range is an option error that names the option."""
    with pytest.raises(OptionError, match=next(iter(options))):
        Run(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (4.0, 3.0, 0.25),
        (0.0, 0.0, 0.0),
        (None, 3.0, math.inf),
        (4.0, None, math.inf),
        (4.0, -math.inf, math.inf),
        (0.0, -1.0, math.inf),
        (4.0, 4.0, 0.0),
    ],
)
def test_gap(objective: float | None, bound: float | None, gap: float) -> None:
    """(objective - bound) / objective, 0 when both are 0, infinite when unknown."""
    assert relative_gap(objective, bound) == gap


def test_rounding_is_no_negative_gap() -> None:
    """A bound that is above the incumbent by rounding is shown as a gap of 0."""
    seen: list[Progress] = []
    run = Run(on_progress=seen.append)
    run.report(objective=1.0, bound=1.0 + 1e-15, solution="a plan")
    assert [progress.gap for progress in seen] == [0.0]
