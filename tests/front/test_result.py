"""Tests of results: the status contract row by row, files, tables, timelines."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance import check, solve
from balance.limits import StopReason
from balance.problems.chain import ChainProblem
from balance.problems.cut import CutProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.errors import FormatError, OptionError, PlanError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan, Replica, Stage
from balance.problems.model.problem import Evaluation, Violation
from balance.result import Result
from balance.status import Status, is_closed

PLAN = Plan.chain([0, 2, 4])
REASON = (Violation("memory", "operator 'a' needs more"),)


def result(problem: ChainProblem, **claims: Any) -> Result:
    """Return a result with these claims."""
    return Result(problem=problem, **claims)


ALLOWED = [
    pytest.param("optimal", "finished", 4.0, 4.0, id="proved"),
    pytest.param("optimal", "finished", 4.0, 4.0 - 3e-6, id="proved within 1e-6 of the objective"),
    pytest.param("optimal", "finished", 5e-10, 0.0, id="proved within 1e-9"),
    pytest.param("optimal", "finished", 0.0, 0.0, id="nothing to do"),
    pytest.param("feasible", "gap", 4.0, 3.9, id="requested gap"),
    pytest.param("feasible", "time_limit", 4.0, 3.0, id="time limit"),
    pytest.param("feasible", "node_limit", 4.0, 3.0, id="node limit"),
    pytest.param("feasible", "iteration_limit", 4.0, -math.inf, id="iteration limit, no bound"),
    pytest.param("feasible", "memory_limit", 4.0, 3.0, id="memory limit"),
    pytest.param("unknown", "time_limit", None, 3.0, id="limit, nothing found, bound still reported"),
    pytest.param("unknown", "memory_limit", None, -math.inf, id="limit, nothing at all"),
    pytest.param("feasible", "finished", 4.0, 3.0, id="heuristic without proof"),
    pytest.param("unknown", "finished", None, 3.0, id="heuristic that found nothing"),
    pytest.param("infeasible", "finished", None, math.inf, id="infeasible"),
    pytest.param("feasible", "interrupted", 4.0, 3.0, id="interrupted"),
    pytest.param("unknown", "interrupted", None, -math.inf, id="interrupted before anything"),
]

FORBIDDEN = [
    pytest.param("optimal", "finished", 4.0, 3.9, "above the bound", id="optimal without proof"),
    pytest.param("optimal", "finished", 4.0, -math.inf, "above the bound", id="optimal without bound"),
    pytest.param("optimal", "time_limit", 4.0, 4.0, "stop reason", id="optimal at a limit"),
    pytest.param("optimal", "finished", None, 4.0, "without a solution", id="optimal without solution"),
    pytest.param("feasible", "finished", 4.0, 4.0, "proves", id="feasible although proved"),
    pytest.param("feasible", "time_limit", 4.0, 4.5, "above the objective", id="bound above a solution"),
    pytest.param("feasible", "gap", 4.0, -math.inf, "without a bound", id="gap without bound"),
    pytest.param("feasible", "finished", math.inf, 3.0, "objective inf", id="infinite objective"),
    pytest.param("feasible", "finished", None, 3.0, "without a solution", id="feasible without solution"),
    pytest.param("unknown", "time_limit", 4.0, 3.0, "with a solution", id="unknown with solution"),
    pytest.param("unknown", "gap", None, 3.0, "gap", id="gap without solution"),
    pytest.param("unknown", "finished", None, math.inf, "infeasible", id="infinite bound called unknown"),
    pytest.param("infeasible", "finished", 4.0, math.inf, "with a solution", id="infeasible with solution"),
    pytest.param("infeasible", "time_limit", None, math.inf, "stopped", id="infeasible at a limit"),
    pytest.param("infeasible", "finished", None, 3.0, "infeasible with the bound", id="infeasible with finite bound"),
    pytest.param("feasible", "finished", 4.0, math.nan, "no number", id="nan bound"),
]


@pytest.mark.parametrize(("status", "reason", "objective", "bound"), ALLOWED)
def test_the_contract_allows(
    problem: ChainProblem, status: str, reason: str, objective: float | None, bound: float
) -> None:
    """Every row of the table is a result."""
    reasons = REASON if status == "infeasible" else ()
    solution = None if objective is None else PLAN
    made = result(
        problem, status=status, stop_reason=reason, solution=solution, objective=objective, bound=bound, reasons=reasons
    )
    assert made.status is Status(status)
    assert made.stop_reason is StopReason(reason)
    assert made.summary()
    json.dumps(made.to_json(), allow_nan=False)


@pytest.mark.parametrize(("status", "reason", "objective", "bound", "says"), FORBIDDEN)
def test_the_contract_forbids(
    problem: ChainProblem, status: str, reason: str, objective: float | None, bound: float, says: str
) -> None:
    """What claims more, or less, than was proved cannot be made."""
    reasons = REASON if status == "infeasible" else ()
    solution = None if objective is None else PLAN
    with pytest.raises(ValueError, match=says):
        result(
            problem,
            status=status,
            stop_reason=reason,
            solution=solution,
            objective=objective,
            bound=bound,
            reasons=reasons,
        )


def test_infeasible_needs_a_reason(problem: ChainProblem) -> None:
    """Infeasible without saying why is refused, and so is a solution without its value."""
    with pytest.raises(ValueError, match="without a reason"):
        result(problem, status="infeasible", stop_reason="finished", bound=math.inf)
    with pytest.raises(ValueError, match="come together"):
        result(problem, status="feasible", stop_reason="finished", solution=PLAN)


def test_what_counts_as_proved() -> None:
    """The tolerance is 1e-9 plus 1e-6 of the objective, no more."""
    assert is_closed(1.0, 1.0 - 1e-6)
    assert not is_closed(1.0, 1.0 - 1.1e-6)
    assert is_closed(0.0, -1e-9)
    assert not is_closed(0.0, -1.1e-9)


@pytest.mark.parametrize(
    ("objective", "bound", "gap"), [(4.0, 3.0, 0.25), (4.0, 4.0, 0.0), (0.0, 0.0, 0.0), (4.0, -math.inf, math.inf)]
)
def test_gap(problem: ChainProblem, objective: float, bound: float, gap: float) -> None:
    """The gap follows from objective and bound."""
    status = "optimal" if gap == 0 else "feasible"
    made = result(problem, status=status, stop_reason="finished", solution=PLAN, objective=objective, bound=bound)
    assert made.gap == gap


@pytest.fixture
def solved() -> Result:
    """Solve a training chain with names, transfers and memory."""
    rng = np.random.default_rng(3)
    graph = CostGraph.chain(
        rng.uniform(1e-3, 2e-3, 6),
        backward=rng.uniform(2e-3, 4e-3, 6),
        bytes=1e6,
        parameter_bytes=1e8,
        names=[f"layer{i}" for i in range(6)],
    )
    cluster = Cluster([Device(memory_bytes=2e9, name=f"gpu{i}") for i in range(2)], link=Link(1e-5, 1e10))
    return solve(graph, cluster, microbatches=4, state_factor=4.0, recompute="always", threads=1)


def test_files_round_trip(solved: Result, tmp_path: Path) -> None:
    """Save, load, save: the same document, the same page, and everything still holds."""
    path = tmp_path / "result.json"
    solved.save(path)
    loaded = Result.load(path, solved.problem.graph)
    assert loaded.to_json() == solved.to_json()
    assert loaded.summary() == solved.summary()
    assert loaded.solution == solved.solution
    assert loaded.problem == solved.problem
    assert check(path, solved.problem.graph).valid


def test_infinite_values_are_null_and_come_back(problem: ChainProblem) -> None:
    """JSON has no infinity: unknown bounds and the bound of an infeasible result survive as null."""
    for status, bound, reasons in (("infeasible", math.inf, REASON), ("unknown", -math.inf, ())):
        made = result(problem, status=status, stop_reason="finished", bound=bound, reasons=reasons)
        data = json.loads(json.dumps(made.to_json(), allow_nan=False))
        assert (data["objective"], data["bound"], data["gap"]) == (None, None, None)
        assert Result.from_json(data, problem.graph).bound == bound


def test_the_promised_fields_are_there(solved: Result) -> None:
    """Field names of the JSON document are part of the interface."""
    fields = {"status", "stop_reason", "objective", "bound", "gap", "solver", "bound_name", "seconds", "solution"}
    data = solved.to_json()
    assert fields | {"problem", "provenance"} <= set(data)
    assert data["provenance"]["graph"] == solved.problem.graph.hash
    assert data["provenance"]["versions"]["dnn-balance"]
    assert data["provenance"]["options"]["threads"] == 1
    assert data["provenance"]["why"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"status": "best"}, "status"),
        ({"status": "infeasible"}, "status"),
        ({"objective": "4"}, "objective"),
        ({"bound": 99.0}, "status"),
        ({"solution": {"schema": "dnn-balance/plan"}}, "solution.version"),
        ({"solution": 3}, "solution"),
        ({"problem": {"name": "chian"}}, "problem.name"),
        ({"problem": 3}, "problem"),
        ({"trace": [[1.0]]}, "trace"),
        ({"reasons": [{"rule": 1, "words": 2}]}, "violation"),
        ({"timings": [1]}, "timings"),
        ({"provenance": 1}, "provenance"),
        ({"extra": 1}, "extra"),
        ({"schema": "dnn-balance/plan"}, "schema"),
    ],
)
def test_broken_files_name_the_field(solved: Result, tmp_path: Path, change: dict[str, Any], where: str) -> None:
    """Whatever is wrong with a file, the error names path and field."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**solved.to_json(), **change}), encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        Result.load(path, solved.problem.graph)
    assert caught.value.path == str(path)
    assert where in str(caught.value)


def test_another_graph_is_refused(solved: Result, tmp_path: Path) -> None:
    """A result belongs to the graph that was solved."""
    solved.save(tmp_path / "result.json")
    with pytest.raises(FormatError, match="hash"):
        Result.load(tmp_path / "result.json", CostGraph.chain([1.0, 2.0]))


def test_check_finds_a_forged_objective(solved: Result) -> None:
    """The numbers of a result are compared with the evaluator's."""
    assert solved.objective is not None
    forged = dataclasses.replace(solved, objective=solved.objective * 0.9, bound=solved.bound * 0.9)
    assert not check(forged).valid
    assert "evaluator" in check(forged).faults[0]
    assert "hash" in check(solved, CostGraph.chain([1.0])).faults[0]
    with pytest.raises(OptionError, match="graph"):
        check("result.json")


def test_pickle(solved: Result) -> None:
    """A result travels between processes."""
    assert pickle.loads(pickle.dumps(solved)).to_json() == solved.to_json()


def test_summary_tells_what_matters(solved: Result) -> None:
    """One page: status, objective and rate, bound and gap, solver, and a row per stage with memory."""
    text = solved.summary()
    for word in ("optimal", "micro-batches/s", "bound", "gap 0 %", solved.solver, "layer0 ..", "gpu1", "GB"):
        assert word in text
    assert len(text.splitlines()) <= 10


def test_summary_counts_samples() -> None:
    """Where the size of a micro-batch is known, throughput is in samples."""
    from balance.problems.model.graph import Configuration

    graph = CostGraph.chain([1.0, 1.0], configurations=[Configuration(microbatch_size=8)])
    assert "8 samples/s" in solve(graph, 2).summary()


def test_summary_of_many_stages_is_short() -> None:
    """A thousand stages do not fill the screen."""
    text = solve(CostGraph.chain(np.ones(500)), 500).summary()
    assert len(text.splitlines()) < 60
    assert "..." in text


def test_summary_of_infeasible_lists_reasons() -> None:
    """Reasons are shown with names and numbers."""
    graph = CostGraph.chain([1.0, 1.0], parameter_bytes=[1e8, 9e9], names=["small", "large"])
    text = solve(graph, Cluster.uniform(2, memory_bytes=1e9)).summary()
    assert "infeasible" in text
    assert "'large'" in text
    assert "9e+09" in text


def test_frame(solved: Result) -> None:
    """A pandas frame has a row per stage with the evaluator's figures."""
    pandas = pytest.importorskip("pandas")
    frame = solved.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == solved.solution.n_stages
    assert frame["load"].max() == solved.objective
    assert {"stage", "operators", "count", "device", "memory"} <= set(frame.columns)


def test_timeline_takes_the_problem_s_memory(solved: Result) -> None:
    """The timeline counts optimizer state as the problem does, unless told otherwise."""
    full, weights = solved.timeline(), solved.timeline(state_factor=1.0)
    assert full.step_time == weights.step_time > 0
    assert full.peak_memory.max() > weights.peak_memory.max()


def test_timeline_needs_a_plan(problem: ChainProblem) -> None:
    """Nothing found and assignments have no timeline, and the error says why."""
    empty = result(problem, status="unknown", stop_reason="time_limit")
    with pytest.raises(PlanError, match="unknown"):
        empty.timeline()
    spread = result(
        problem,
        status="feasible",
        stop_reason="finished",
        solution=Assignment([0, 1, 0, 1]),
        objective=5.0,
        evaluation=Evaluation(5.0, {"load": np.array([5.0, 3.0])}),
    )
    with pytest.raises(PlanError, match="Assignment has no timeline"):
        spread.timeline()
    assert "5 s" in spread.summary()
    assert len(spread.to_frame()) == 2


def test_an_assignment_is_a_table_of_used_devices() -> None:
    """Each used device has a row with its operators; columns of all devices are reduced to the used ones."""
    fork = CostGraph(forward=[1.0, 2.0, 2.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0], names=[*"abcdefghi"])
    problem = CutProblem(graph=fork, cluster=Cluster([Device(name=n) for n in "xyz"]), contiguity="none")
    solution = Assignment([0, 2, 0, 2, 0, 2, 0, 2, 2])
    evaluation = problem.evaluate(solution)
    wide = {**evaluation.breakdown, "price": np.array([5.0, 6.0, 7.0])}
    found = result(
        problem,
        status="feasible",
        stop_reason="finished",
        solution=solution,
        objective=evaluation.objective,
        evaluation=Evaluation(evaluation.objective, wide),
    )
    frame = found.to_frame()
    assert frame["device"].tolist() == ["x", "z"]
    assert frame["count"].tolist() == [4, 5]
    assert frame["operators"].tolist() == ["a, c, e and 1 more", "b, d, f and 2 more"]
    assert frame["load"].tolist() == [7.0, 6.0]
    assert frame["price"].tolist() == [5.0, 7.0]
    assert "c, e and 1 more" in found.summary()
    with pytest.raises(PlanError, match="Assignment has no timeline"):
        found.timeline()
    assert Result.from_json(found.to_json(), fork).to_json() == found.to_json()


def test_operators_of_a_stage_are_shown_as_runs() -> None:
    """A stage of a DAG need not hold neighbours: what lies between is not shown as its own."""
    graph = CostGraph(forward=[1.0] * 6)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2))
    plan = Plan([Stage([0, 1, 4], [Replica((0,))]), Stage([2, 3, 5], [Replica((1,))])])
    evaluation = problem.evaluate(plan)
    found = result(
        problem,
        status="feasible",
        stop_reason="finished",
        solution=plan,
        objective=evaluation.objective,
        evaluation=evaluation,
    )
    assert found.to_frame()["operators"].tolist() == ["0..1, 4", "2..3, 5"]


def test_a_file_that_cannot_be_written_is_named(problem: ChainProblem, tmp_path: Path) -> None:
    """The error tells the file that was meant, not the temporary one beside it."""
    with pytest.raises(FileNotFoundError, match=r"nowhere/result\.json'$"):
        solve(problem).save(tmp_path / "nowhere" / "result.json")
