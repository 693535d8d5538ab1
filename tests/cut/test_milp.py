"""The two MILPs of cut problems: equal to other methods, citable as PuLP models, written as files, warm starts."""

from __future__ import annotations

import math

import numpy as np
import pulp
import pytest
from hypothesis import given

from balance import Cluster, CostGraph, Tensor, solve
from balance.cut import milp as wing
from balance.cut.milp import Milp, formulate_assignment, formulate_prefix, solution_of, values_of
from balance.cut.tables import CutTables
from balance.engines.highs import solve_model, write_lp, write_mps
from balance.engines.outcome import EngineStatus
from balance.limits import Run
from balance.problems.cut import CutProblem
from tests.cut import agreement as shared
from tests.cut import oracle
from tests.cut.strategies import problems


def agree(problem, best, **limits):
    """Check that the solver of this file proves the value `best`."""
    shared.agree("milp", problem, best, **limits)


@given(problems(most=6, contiguity="acyclic"))
def test_pipelines_equal_the_ideals(problem):
    """Prefix formulation and program over ideals, on graphs too large for enumeration."""
    shared.agree_with_ideals("milp", problem)


@pytest.mark.parametrize("contiguity", ["convex", "none"])
def test_assignments_equal_enumeration(contiguity):
    """Assignment formulation and exhaustive enumeration, all parameters at random."""

    @given(problems(most=3, contiguity=contiguity))
    def run(problem):
        agree(problem, oracle.optimum(problem))

    run()


@given(problems(most=6))
def test_equal_to_the_constraint_program(problem):
    """Two formulations by two engines have one optimum."""
    other = solve(problem, solver="cp_sat", threads=1)
    agree(problem, math.inf if other.objective is None else other.objective)


def diamond(contiguity="acyclic", **more):
    """Return two operators side by side between two others, on two devices."""
    graph = CostGraph(
        forward=[1.0, 2.0, 2.0, 1.0],
        tensors=[Tensor(0, (1, 2), seconds=0.5), Tensor(1, (3,), seconds=0.5), Tensor(2, (3,), seconds=0.5)],
    )
    return CutProblem(graph=graph, cluster=Cluster.uniform(2), contiguity=contiguity, **more)


FORMS = [("acyclic", formulate_prefix), ("convex", formulate_assignment), ("none", formulate_assignment)]


@pytest.mark.parametrize(("contiguity", "formulate"), FORMS)
def test_formulations_are_pulp_models_of_the_problem(contiguity, formulate):
    """What a reader gets is a PuLP model in seconds, whose optimum is that of the problem."""
    problem = diamond(contiguity)
    model = formulate(problem)
    assert isinstance(model, pulp.LpProblem)
    assert model.sense == pulp.LpMinimize
    outcome = solve_model(model, Run(threads=1))
    assert outcome.objective == pytest.approx(oracle.optimum(problem))
    solution = solution_of(CutTables(problem), outcome.values)
    assert problem.evaluate(solution).objective == pytest.approx(outcome.objective)


@pytest.mark.parametrize(("contiguity", "formulate"), FORMS)
def test_formulations_are_written_as_files(contiguity, formulate, tmp_path):
    """The MPS file read back has the same optimum; the LP file names the variables of the documentation."""
    problem = diamond(contiguity)
    write_mps(formulate(problem), tmp_path / "cut.mps")
    write_lp(formulate(problem), tmp_path / "cut.lp")
    _, again = pulp.LpProblem.fromMPS(str(tmp_path / "cut.mps"))
    assert solve_model(again, Run(threads=1)).objective == pytest.approx(oracle.optimum(problem))
    text = (tmp_path / "cut.lp").read_text()
    assert ("z_0_0_0" if contiguity == "acyclic" else "x_0_0") in text


@given(problems(most=5))
def test_a_solution_and_its_values_are_one(problem):
    """Values of an optimal solution, read back, are that solution; the model takes them for feasible."""
    best = solve(problem, solver="cp_sat", threads=1)
    if best.solution is None:
        return
    tables = CutTables(problem)
    values = values_of(tables, best.solution)
    again = problem.evaluate(solution_of(tables, values))
    assert again.violations == ()
    assert again.objective == pytest.approx(best.objective)
    model = formulate_prefix(problem) if problem.contiguity == "acyclic" else formulate_assignment(problem)
    assert set(values) <= set(model.variablesDict())
    if problem.contiguity == "acyclic":  # equal devices may be permuted in an assignment: symmetry is broken there
        for name, value in values.items():
            variable = model.variablesDict()[name]
            variable.lowBound = variable.upBound = value
        assert solve_model(model, Run(threads=1)).objective == pytest.approx(best.objective, abs=1e-9)


@given(problems(most=4))
def test_a_warm_start_loses_nothing(problem):
    """From an optimum of another method the same value is proved."""
    first = solve(problem, solver="cp_sat", threads=1)
    if first.solution is not None:
        agree(problem, first.objective, incumbent=first.solution)


def test_equal_devices_are_told_apart_around_pins():
    """Symmetry breaking does not move an operator off the device that it is pinned to."""
    graph = CostGraph(forward=[3.0, 1.0, 1.0, 2.0], pinned=[-1, 2, -1, -1])
    for contiguity in ("acyclic", "convex", "none"):
        problem = CutProblem(graph=graph, cluster=Cluster.uniform(3), contiguity=contiguity)
        agree(problem, 3.0)


def test_symmetry_breaking_leaves_one_of_equal_assignments():
    """The first operator can only be on the first of equal devices."""
    model = formulate_assignment(diamond("none"))
    model += model.variablesDict()["x_0_1"] >= 1
    assert solve_model(model, Run(threads=1)).status is EngineStatus.infeasible


def test_convexity_is_asked_of_paths():
    """In a chain, the two ends may share a device without the middle only where contiguity is not asked."""
    graph = CostGraph(forward=[1.0, 2.0, 1.0], tensors=[Tensor(0, (1,)), Tensor(1, (2,))])
    for contiguity, optimum in (("none", 2.0), ("convex", 3.0), ("acyclic", 3.0)):
        agree(CutProblem(graph=graph, cluster=Cluster.uniform(2), contiguity=contiguity), optimum)


def test_limits_are_honest():
    """A limit on a hard problem leaves the reason, and a bound below whatever was found."""
    rng = np.random.default_rng(3)
    problem = CutProblem(
        graph=CostGraph(forward=rng.random(50).tolist()), cluster=Cluster.uniform(7), contiguity="none"
    )
    result = solve(problem, solver="milp", threads=1, time_limit=1)
    assert result.status in ("feasible", "unknown")
    assert result.stop_reason == "time_limit"
    assert result.objective is None or result.bound < result.objective


def test_huge_models_are_refused():
    """The refusal has numbers."""
    problem = CutProblem(graph=CostGraph(forward=np.ones(20_000)), cluster=Cluster.uniform(32), contiguity="none")
    assert f"rows, more than {wing.PINS}" in Milp().accepts(problem)
