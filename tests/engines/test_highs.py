"""Tests of the adapter from PuLP to HiGHS."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pulp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.engines.highs import solve_model, write_lp, write_mps
from balance.engines.outcome import EngineStatus
from balance.limits import Progress, Run, StopReason
from balance.problems.model.errors import MissingDependencyError, OptionError, ProblemError


def knapsack(weights: list[float], limit: float, unit: float = 1.0) -> pulp.LpProblem:
    """Return: leave out as little weight as possible of what fits."""
    model = pulp.LpProblem("knapsack", pulp.LpMinimize)
    take = [model.add_variable(f"take_{i}", 0, 1, pulp.LpBinary) for i in range(len(weights))]
    left = model.add_variable("left", 0)
    total = pulp.lpSum(weight * unit * x for weight, x in zip(weights, take, strict=True))
    model += left
    model += total <= limit * unit
    model += left >= sum(weights) * unit - total
    return model


def balancing(seconds: list[float], devices: int) -> pulp.LpProblem:
    """Return: the least largest load of unordered devices, hard for branch and bound."""
    model = pulp.LpProblem("balancing", pulp.LpMinimize)
    top = model.add_variable("top", 0)
    model += top
    cells = [
        [model.add_variable(f"x_{i}_{d}", 0, 1, pulp.LpBinary) for d in range(devices)] for i in range(len(seconds))
    ]
    for row in cells:
        model += pulp.lpSum(row) == 1
    for d in range(devices):
        model += pulp.lpSum(time_ * row[d] for time_, row in zip(seconds, cells, strict=True)) <= top
    return model


def hard() -> pulp.LpProblem:
    """Return a model that takes minutes."""
    return balancing(np.random.default_rng(0).uniform(1.0, 9.0, 60).tolist(), 9)


def test_an_optimum_is_proved() -> None:
    """Objective, bound and values agree; binaries are whole numbers."""
    answer = solve_model(knapsack([3.0, 4.0, 6.0], 10.0), Run(threads=1))
    assert (answer.status, answer.stop_reason) == (EngineStatus.optimal, StopReason.finished)
    assert answer.objective == pytest.approx(3.0)
    assert answer.bound == pytest.approx(3.0)
    assert answer.values == {"left": pytest.approx(3.0), "take_0": 0.0, "take_1": 1.0, "take_2": 1.0}
    assert answer.stats["columns"] == 4


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=7),
    st.integers(0, 60),
    st.sampled_from([1e-12, 1e-6, 1.0, 1e6, 1e12]),
)
def test_units_do_not_matter(weights: list[int], limit: int, unit: float) -> None:
    """The optimum is exact in picoseconds and in terabytes, though the engine's tolerances are absolute."""
    best = min(
        sum(w for i, w in enumerate(weights) if not chosen >> i & 1)
        for chosen in range(2 ** len(weights))
        if sum(w for i, w in enumerate(weights) if chosen >> i & 1) <= limit
    )
    answer = solve_model(knapsack([float(w) for w in weights], float(limit), unit), Run(threads=1))
    assert answer.status is EngineStatus.optimal
    assert answer.objective == pytest.approx(best * unit, rel=1e-7, abs=1e-9 * unit)
    assert answer.bound <= answer.objective * (1 + 1e-7) + 1e-9 * unit


def test_seconds_and_bytes_in_one_model() -> None:
    """Columns of very different size, tied by a large constant, do not make a feasible model infeasible."""
    model = pulp.LpProblem("mixed", pulp.LpMinimize)
    flag = model.add_variable("flag", 0, 1, pulp.LpBinary)
    seconds, held = model.add_variable("seconds", 0), model.add_variable("held", 0)
    model += seconds
    model += seconds >= 2e-4 + 1e-4 * flag
    model += held >= 3e9 - 1e10 * flag
    model += held >= 1e9
    model += held * 1e-10 <= 0.2
    answer = solve_model(model, Run(threads=1))
    assert answer.status is EngineStatus.optimal
    assert answer.objective == pytest.approx(3e-4, rel=1e-9)
    assert answer.values is not None
    assert answer.values["flag"] == 1.0


def test_infeasible_and_unbounded() -> None:
    """Both are told apart, and the bound of what has no solution is infinite."""
    model = pulp.LpProblem("no", pulp.LpMinimize)
    x = model.add_variable("x", 0, 5, pulp.LpInteger)
    model += x
    model += x >= 2.2
    model += x <= 2.8
    answer = solve_model(model, Run())
    assert (answer.status, answer.bound, answer.values) == (EngineStatus.infeasible, math.inf, None)
    free = pulp.LpProblem("down", pulp.LpMinimize)
    free += free.add_variable("y")
    assert solve_model(free, Run()).status is EngineStatus.unbounded


def test_linear_models() -> None:
    """Without integer variables the bound is the optimum, and constants in the objective count."""
    model = pulp.LpProblem("line", pulp.LpMinimize)
    x = model.add_variable("x", 1.5)
    model += 2 * x + 10
    model += x <= 9
    answer = solve_model(model, Run())
    assert (answer.objective, answer.bound) == (pytest.approx(13.0), pytest.approx(13.0))
    empty = pulp.LpProblem("empty", pulp.LpMinimize)
    empty += pulp.LpAffineExpression(constant=4.0)
    assert solve_model(empty, Run()).objective == pytest.approx(4.0)


def test_a_time_limit_is_no_optimum() -> None:
    """Out of time is feasible with the bound that was proved, and it is kept within a second."""
    began = time.perf_counter()
    answer = solve_model(hard(), Run(time_limit=0.5))
    assert time.perf_counter() - began < 5
    assert (answer.status, answer.stop_reason) == (EngineStatus.feasible, StopReason.time_limit)
    assert 0 < answer.bound < answer.objective
    assert answer.values is not None


def test_no_time_is_nothing() -> None:
    """Out of time before the first solution gives none, not the zeros that some engines hand out."""
    answer = solve_model(hard(), Run(time_limit=0.0))
    assert (answer.status, answer.values, answer.objective) == (EngineStatus.unknown, None, math.inf)
    assert answer.stop_reason is StopReason.time_limit


def test_a_requested_gap_is_no_optimum() -> None:
    """Stopping at a gap is told as such."""
    answer = solve_model(hard(), Run(gap=0.2, time_limit=60))
    assert (answer.status, answer.stop_reason) == (EngineStatus.feasible, StopReason.gap)
    assert (answer.objective - answer.bound) / answer.objective <= 0.2


def test_a_node_limit_is_told() -> None:
    """A limit on nodes is its own reason to stop."""
    answer = solve_model(hard(), Run(node_limit=1, threads=1, time_limit=60))
    assert answer.stop_reason is StopReason.node_limit
    assert answer.status in (EngineStatus.feasible, EngineStatus.unknown)


def test_interruption_keeps_the_incumbent() -> None:
    """Told to stop from another thread, it stops soon with what it has."""
    run = Run(time_limit=60)
    threading.Timer(0.7, run.interrupt).start()
    began = time.perf_counter()
    answer = solve_model(hard(), run)
    assert time.perf_counter() - began < 10
    assert answer.stop_reason is StopReason.interrupted
    assert answer.values is not None


def test_incumbents_are_reported_as_solutions() -> None:
    """With a decoder the run gets every incumbent and bound while the search goes on, in the model's own unit."""
    seen: list[Progress] = []
    run = Run(time_limit=30, on_progress=seen.append)
    scale = 1e-6
    model = balancing([3e-6, 3e-6, 2e-6, 2e-6, 2e-6, 7e-6, 5e-6, 5e-6, 4e-6], 3)
    answer = solve_model(model, run, decode=lambda values: (dict(values), values["top"]))
    assert answer.status is EngineStatus.optimal
    assert run.best is not None
    assert run.best[1] == pytest.approx(answer.objective) == pytest.approx(11 * scale)
    assert run.bound <= answer.objective * (1 + 1e-9)
    assert seen


def test_an_error_of_the_decoder_comes_out() -> None:
    """Native code stands in between, the error is not lost."""

    def broken(values: Any) -> Any:
        raise KeyError("x_0")

    with pytest.raises(KeyError, match="x_0"):
        solve_model(knapsack([3.0, 4.0, 6.0], 10.0), Run(), decode=broken)


def test_a_start_is_used() -> None:
    """With no time to search, the given point is what is returned; a wrong name is an error."""
    model = hard()
    start = {v.name: 0.0 for v in model.variables() if v.name != "top"}
    for i in range(60):
        start[f"x_{i}_{i % 9}"] = 1.0
    seen: list[float] = []
    run = Run(time_limit=20, threads=1)

    def decode(values: Any) -> tuple[Any, float]:
        seen.append(values["top"])
        run.interrupt()
        return dict(values), values["top"]

    solve_model(model, run, start=start, decode=decode)
    loads = np.zeros(9)
    for i, seconds in enumerate(np.random.default_rng(0).uniform(1.0, 9.0, 60)):
        loads[i % 9] += seconds
    assert seen[0] == pytest.approx(loads.max())
    with pytest.raises(OptionError, match="'y'"):
        solve_model(knapsack([1.0], 1.0), Run(), start={"y": 1.0})


def test_same_seed_same_answer() -> None:
    """One thread and one seed repeat exactly."""
    model = balancing(np.random.default_rng(1).uniform(1.0, 9.0, 11).tolist(), 3)
    first, second = (solve_model(model, Run(seed=5, threads=1)) for _ in range(2))
    assert first == second


def test_options_are_checked() -> None:
    """HiGHS ignores what it does not know; we do not."""
    model = knapsack([1.0], 1.0)
    with pytest.raises(OptionError, match=r"mip_rel_gap"):
        solve_model(model, Run(), options={"mip_rel_gp": 0.1})
    with pytest.raises(OptionError, match="does not take the value"):
        solve_model(model, Run(), options={"presolve": "perhaps"})
    assert solve_model(model, Run(), options={"presolve": "off"}).status is EngineStatus.optimal


def test_models_are_minimised() -> None:
    """A model that maximises, or asks for nothing, is refused."""
    with pytest.raises(ProblemError, match="minimised"):
        solve_model(pulp.LpProblem("up", pulp.LpMaximize), Run())
    with pytest.raises(ProblemError, match="objective"):
        solve_model(pulp.LpProblem("none", pulp.LpMinimize), Run())


def test_thread_counts_may_change_and_overlap() -> None:
    """HiGHS has one pool of threads for a process: other counts, also at the same time, are no error."""
    answers: list[Any] = []

    def work(threads: int) -> None:
        for _ in range(3):
            answers.append(solve_model(knapsack([3.0, 4.0, 6.0, 7.0], 11.0), Run(threads=threads)).status)

    workers = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert answers == [EngineStatus.optimal] * 9


def test_infeasible_is_believed_without_presolve_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where presolve calls a mixed-integer model infeasible, HiGHS is asked again without it, and that counts."""
    import highspy

    true_status, asked = highspy.Highs.getModelStatus, []

    def status(self: Any) -> Any:
        presolve = self.getOptionValue("presolve")[1]
        asked.append(presolve)
        return true_status(self) if presolve == "off" else highspy.HighsModelStatus.kInfeasible

    monkeypatch.setattr(highspy.Highs, "getModelStatus", status)
    answer = solve_model(knapsack([3.0, 4.0, 6.0], 10.0), Run(threads=1))
    assert asked[0] == "choose"
    assert answer.status is EngineStatus.optimal
    assert answer.objective == pytest.approx(3.0)


def test_every_thread_has_its_own_pool() -> None:
    """A thread that solved with one worker may ask for two after another thread has, and the other way round."""
    found: list[EngineStatus] = []

    def solve(threads: int) -> None:
        found.append(solve_model(knapsack([3.0, 4.0, 6.0], 10.0), Run(threads=threads)).status)

    solve(1)
    for threads in (2, 1):
        other = threading.Thread(target=solve, args=[threads])
        other.start()
        other.join()
        solve(threads)
    assert found == [EngineStatus.optimal] * 5


def test_the_banner_is_kept_off_standard_output() -> None:
    """HiGHS greets from its constructor, past Python and before any option: a fresh process shows it swallowed."""
    code = (
        "import pulp\n"
        "from balance.engines.highs import solve_model\n"
        "from balance.limits import Run\n"
        "print('before', flush=False)\n"
        "model = pulp.LpProblem('m', pulp.LpMinimize)\n"
        "model += model.add_variable('x', 2, 5, pulp.LpInteger)\n"
        "print(solve_model(model, Run()).objective)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.stdout, done.stderr) == ("before\n2.0\n", "")


def _cbc() -> str | None:
    return next((name for name in ("PULP_CBC_CMD", "COIN_CMD") if name in pulp.listSolvers(onlyAvailable=True)), None)


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD:DeprecationWarning")
def test_another_back_end(capfd: pytest.CaptureFixture[str]) -> None:
    """A model goes to any PuLP back end by name; an optimum counts, a timeout does not."""
    name = _cbc()
    if name is None:
        pytest.skip("PuLP brings no other solver here")
    answer = solve_model(knapsack([3.0, 4.0, 6.0], 10.0), Run(threads=1), backend=name)
    assert (answer.status, answer.objective) == (EngineStatus.optimal, pytest.approx(3.0))
    late = solve_model(hard(), Run(time_limit=1.0), backend=name)
    assert late.status is not EngineStatus.optimal
    assert late.stop_reason is StopReason.time_limit
    assert late.bound == -math.inf
    impossible = knapsack([3.0], 1.0)
    impossible += impossible.variables()[1] >= 1
    assert solve_model(impossible, Run(), backend=name).status is EngineStatus.infeasible
    assert capfd.readouterr() == ("", "")


def test_unknown_back_ends() -> None:
    """A misspelt name is an option error, a solver that is not installed a missing dependency."""
    model = knapsack([1.0], 1.0)
    with pytest.raises(OptionError, match="GUROBI"):
        solve_model(model, Run(), backend="GUROBY")
    absent = [name for name in ("GUROBI", "CPLEX_PY", "XPRESS") if name not in pulp.listSolvers(onlyAvailable=True)]
    if absent:
        with pytest.raises(MissingDependencyError, match=absent[0]):
            solve_model(model, Run(), backend=absent[0])
    with pytest.raises(OptionError, match="HiGHS options"):
        solve_model(model, Run(), backend=_cbc() or "COIN_CMD", options={"presolve": "off"})


def test_models_are_written(tmp_path: Path) -> None:
    """MPS and LP files, whole or not at all."""
    model = knapsack([3.0, 4.0], 5.0)
    write_mps(model, tmp_path / "model.mps")
    write_lp(model, tmp_path / "model.lp")
    assert "ENDATA" in (tmp_path / "model.mps").read_text(encoding="utf-8")
    assert "Minimize" in (tmp_path / "model.lp").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.lp", "model.mps"]
