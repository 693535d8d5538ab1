"""Bounds of results are proved again, and claims that do not hold are found out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from balance import ChainProblem, Cluster, CostGraph, Result, check, solve
from balance.limits import StopReason
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import fork_join
from balance.proof import prove
from balance.status import Status

BRANCHES = CutProblem(
    graph=fork_join(branches=3, length=4, repeats=2, seed=3), cluster=Cluster.uniform(3, bandwidth=1e10)
)
HEAVY = dataclasses.replace(BRANCHES, cluster=Cluster.uniform(3, bandwidth=1e8))
CHAIN = ChainProblem(graph=CostGraph.chain([3.0, 1.0, 2.0, 2.0]), cluster=Cluster.uniform(2))


def claiming(result: Result, bound: float) -> Result:
    """Return a result without a solution that claims a bound; the status contract has nothing against it."""
    return dataclasses.replace(
        result,
        status=Status.unknown,
        stop_reason=StopReason.time_limit,
        solution=None,
        objective=None,
        evaluation=None,
        bound=bound,
    )


@pytest.mark.parametrize(
    ("problem", "solver", "name"),
    [(CHAIN, "bisection", "bisection"), (BRANCHES, "ideals", "ideals"), (HEAVY, "auto", "node-cut")],
)
def test_true_bounds_are_proved_and_false_ones_are_not(problem, solver, name):
    """Each proof reaches the claimed bound, and nothing above the optimum."""
    result = solve(problem, solver=solver)
    result = dataclasses.replace(result, bound_name=name)
    assert prove(result).proved is True
    higher = claiming(result, result.bound * 1.01)
    found = prove(higher)
    assert found.proved is False
    assert name in found.text


def test_infeasibility_is_proved_again():
    """A result without a solution is proved by the solver that said so."""
    cluster = Cluster.uniform(3, bandwidth=1e10, memory_bytes=2e9)
    small = CutProblem(graph=BRANCHES.graph.replace(parameter_bytes=1e9), cluster=cluster)
    result = solve(small, solver="ideals")
    assert result.status == "infeasible"
    assert check(result, prove=True).valid


def test_searches_have_no_cheap_proof():
    """A bound of CP-SAT is a claim of CP-SAT: the check says that it was not proved again, which is no fault."""
    result = solve(BRANCHES, solver="cp_sat", threads=1)
    found = check(result, prove=True)
    assert found.valid
    assert found.proof is not None
    assert found.proof.proved is None
    assert "no cheap way" in found.proof.text


def test_a_saved_certificate_is_enough(tmp_path: Path):
    """A file and its graph are all that a proof needs; one that claims more than the optimum is refused."""
    result = solve(BRANCHES, solver="ideals")
    result.save(tmp_path / "result.json")
    assert check(tmp_path / "result.json", BRANCHES.graph, prove=True).valid
    claiming(result, result.objective * 1.0001).save(tmp_path / "false.json")
    found = check(tmp_path / "false.json", BRANCHES.graph, prove=True)
    assert not found.valid
    assert any("does not prove again" in fault for fault in found.faults)


def test_a_bandwidth_that_changes_nothing_is_said():
    """Given seconds win over a link: who gives a bandwidth as well is told."""
    timed = CostGraph.chain([1.0, 2.0], seconds=0.5)
    notes = solve(timed, 2, bandwidth=1e9).provenance["notes"]
    assert any("change nothing" in note for note in notes)
    assert not any("change nothing" in note for note in solve(timed, 2).provenance["notes"])
