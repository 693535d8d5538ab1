"""The CP-SAT adapter: limits, interruption, reports, silence, determinism, and proofs where the library has erred."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest
from ortools.sat.python import cp_model

from balance.engines import cp_sat as engine
from balance.engines.cp_sat import solve_cp
from balance.engines.outcome import EngineStatus
from balance.limits import Run
from balance.problems.model.errors import SolverError

POINTS = 60
SCALE = 1000.0


def packing(n=POINTS, bins=6, seed=0):
    """Return a hard packing model (least largest bin), and the function that reads it."""
    rng = np.random.default_rng(seed)
    size = rng.integers(10_000, 99_999, n).tolist()
    model = cp_model.CpModel()
    here = {(v, b): model.new_bool_var(f"x_{v}_{b}") for v in range(n) for b in range(bins)}
    top = model.new_int_var(0, sum(size), "top")
    for v in range(n):
        model.add_exactly_one(here[v, b] for b in range(bins))
    for b in range(bins):
        model.add(top >= sum(size[v] * here[v, b] for v in range(n)))
    model.minimize(top)

    def read(value):
        home = [next(b for b in range(bins) if value(here[v, b])) for v in range(n)]
        return home, max(sum(size[v] for v in range(n) if home[v] == b) for b in range(bins)) / SCALE

    return model, read


def solve(model, read, **limits):
    """Solve with one thread and return the outcome and its run."""
    run = Run(**{"threads": 1, **limits})
    return solve_cp(model, run, read=read, scale=SCALE), run


def test_an_optimum_is_reported_with_its_bound():
    """Status, objective, bound and solution agree, in the problem's unit, and the run has heard them."""
    outcome, run = solve(*packing(7, 3))
    assert outcome.status is EngineStatus.optimal
    assert outcome.stop_reason == "finished"
    assert outcome.bound == pytest.approx(outcome.objective, abs=1e-9)
    assert run.best == (outcome.values["solution"], outcome.objective)
    assert run.bound == pytest.approx(outcome.bound)
    assert outcome.stats["engine"] == "CP-SAT"


def test_infeasible_models_are_told_so():
    """A contradiction ends with status infeasible and an infinite bound."""
    model = cp_model.CpModel()
    x = model.new_bool_var("x")
    model.add(x == 1)
    model.add(x == 0)
    outcome, _ = solve(model, lambda value: (None, 0.0))
    assert (outcome.status, outcome.bound, outcome.values) == (EngineStatus.infeasible, math.inf, None)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_time_limit_is_kept(threads):
    """A hard model ends in time, with what was found and a bound below it, and says why."""
    began = time.perf_counter()
    outcome, _ = solve(*packing(), time_limit=1.0, threads=threads)
    assert time.perf_counter() - began < 4.0
    assert (outcome.status, outcome.stop_reason) == (EngineStatus.feasible, "time_limit")
    assert 0 < outcome.bound < outcome.objective < math.inf


def test_a_run_that_is_over_solves_nothing():
    """No time left: nothing is claimed."""
    outcome, _ = solve(*packing(), time_limit=0.0)
    assert (outcome.status, outcome.stop_reason, outcome.values) == (EngineStatus.unknown, "time_limit", None)
    assert outcome.bound == -math.inf


def test_interruption_is_heard_within_a_second():
    """An interrupt from another thread ends the search soon, keeps the best, and leaves no thread behind."""
    before = threading.active_count()
    run = Run(threads=1)
    model, read = packing()
    at = []

    def interrupt():
        at.append(time.perf_counter())
        run.interrupt()

    timer = threading.Timer(0.7, interrupt)
    timer.start()
    outcome = solve_cp(model, run, read=read, scale=SCALE)
    late = time.perf_counter() - at[0]
    timer.join()
    assert late < 2.0
    assert (outcome.status, outcome.stop_reason) == (EngineStatus.feasible, "interrupted")
    assert outcome.values is not None
    assert threading.active_count() == before


def test_a_listener_can_stop_the_search():
    """A progress callback that returns true interrupts."""
    outcome, _ = solve(*packing(), on_progress=lambda progress: progress.objective is not None)
    assert outcome.stop_reason == "interrupted"
    assert outcome.values is not None


def test_a_gap_is_enough():
    """The requested gap ends the search, and is not sold as a proof."""
    outcome, _ = solve(*packing(), gap=0.2)
    assert (outcome.status, outcome.stop_reason) == (EngineStatus.feasible, "gap")
    assert (outcome.objective - outcome.bound) / outcome.objective <= 0.2


def test_reports_improve():
    """Objectives fall, bounds rise, and never cross."""
    _, run = solve(*packing(), time_limit=1.0)
    objectives = [objective for _, objective, _ in run.trace]
    bounds = [bound for _, _, bound in run.trace]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= objectives[-1]


def test_one_thread_is_deterministic():
    """The same seed gives the same solution and the same work."""
    first, _ = solve(*packing(9, 3), seed=7)
    again, _ = solve(*packing(9, 3), seed=7)
    assert first.values == again.values
    assert first.stats == again.stats


def test_nothing_is_printed(capfd):
    """File descriptors 1 and 2 stay empty."""
    solve(*packing(8, 3))
    assert capfd.readouterr() == ("", "")


def test_errors_of_the_reader_come_out():
    """What is raised while a solution is read ends the search and reaches the caller."""

    def read(value):
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        solve(packing(8, 3)[0], read)


def test_solutions_that_are_none_are_not_kept():
    """A reader that refuses everything leaves no values, and nothing is reported as incumbent."""
    model, read = packing(6, 2)
    outcome, run = solve(model, lambda value: (read(value)[0], math.inf))
    assert (outcome.status, outcome.values, outcome.objective) == (EngineStatus.optimal, None, math.inf)
    assert run.best is None


def test_invalid_models_are_refused():
    """What CP-SAT calls invalid is an error of ours that repeats its reason."""
    model = cp_model.CpModel()
    x = model.new_int_var(0, 2**62, "x")
    model.add(3 * x <= 5)
    model.minimize(x)
    with pytest.raises(SolverError, match="invalid"):
        solve(model, lambda value: (None, 0.0))


# -- proofs where OR-Tools 9.15 errs by default ------------------------------------------------------------------

BIG = 1 << 40


def sums_beyond_31_bits():
    """Return a model of at-most-one constraints and linear ones with large coefficients; its optimum is BIG - 1."""
    model = cp_model.CpModel()
    x = [[model.new_bool_var(f"x_{v}_{d}") for d in range(3)] for v in range(2)]
    top = model.new_int_var(0, 4947802324993, "T")
    for row in x:
        model.add_exactly_one(row)
    model.add_bool_or([~x[0][2]])
    model.add_bool_or([~x[1][2], x[0][0]])
    model.add(top >= BIG - 1100)
    model.add(top >= (2 * BIG - 1) * x[0][0] + (BIG - 1) * x[1][0])
    model.add(top >= (BIG - 1) * x[0][1] + (BIG // 2 - 1) * x[1][1])
    model.add(top >= (2 * BIG - 1) * x[0][2] + (BIG - 1) * x[1][2])
    model.minimize(top)
    return model


def enforced_rows_beyond_31_bits():
    """Return a model of two stages, each of one of three types that decide which linear rows count; optimum 0."""
    model = cp_model.CpModel()
    names = [*(f"x_{v}_{s}" for v in range(4) for s in range(2)), "used_0", "used_1"]
    x = {name: model.new_bool_var(name) for name in names}
    kind = [[model.new_bool_var(f"a_{s}_{q}") for q in range(3)] for s in range(2)]
    top = [model.new_int_var(0, 16904991277057, f"T_{f}") for f in range(2)]
    scratch = model.new_int_var(0, 2, "scratch")
    model.add_exactly_one(x["x_1_0"], x["x_1_1"])
    for s in range(2):
        model.add_implication(x[f"x_1_{s}"], x[f"used_{s}"])
        model.add_exactly_one([*kind[s], ~x[f"used_{s}"]])
    model.add_bool_or([*(x[f"x_{v}_1"] for v in range(4)), ~x["used_1"]])
    unit = BIG // 8
    ahead, behind = (5, 10, 16), ((6, 2, 8), (12, 4, 16), (24, 12, 8))
    for q in range(3):
        late = sum((c * unit - 1) * x[f"x_{v}_0"] for v, c in zip((1, 2, 3), behind[q], strict=True))
        model.add(top[1] >= late).only_enforce_if(kind[0][q])
        model.add(top[0] >= (ahead[q] * unit - 1) * x["x_0_1"]).only_enforce_if(kind[1][q])
    fits = sum(size * x[f"x_{v}_1"] for v, size in enumerate((6, 16, 14, 7)))
    model.add(fits + scratch <= 14).only_enforce_if(kind[1][2])
    late = sum((c * unit - 1) * x[f"x_{v}_1"] for v, c in zip((1, 2, 3), behind[2], strict=True))
    model.add(top[1] >= late).only_enforce_if(kind[1][2])
    model.minimize(sum(top))
    return model


@pytest.mark.parametrize(
    ("make", "optimum"), [(sums_beyond_31_bits, BIG - 1), (enforced_rows_beyond_31_bits, 0)], ids=["sums", "enforced"]
)
def test_large_coefficients_are_read_rightly(make, optimum):
    """Both steps that err on more than 31 bits are off: the optimum is the true one."""
    outcome, run = solve(make(), lambda value: ("a solution", 1.0))
    assert outcome.status is EngineStatus.optimal
    assert outcome.bound * SCALE == pytest.approx(optimum, abs=0.5)
    assert run.threads == 1
    assert engine.POLL <= 0.5  # an interrupt must be heard within a second
