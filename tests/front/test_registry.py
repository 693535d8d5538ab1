"""Tests of finding problems, solvers and bounds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import balance
from balance import registry
from balance.limits import Run
from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import BalanceError, MissingDependencyError, ProblemError, SolverNotFoundError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Problem
from balance.registry import Outcome, Solver, bound, get_solver, ladder, list_bounds, list_problems, list_solvers


class Foreign(Solver):
    """A solver of another distribution.

    More text.
    """

    name = "foreign"
    problem = ChainProblem
    exact = False
    proves_bound = False

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Put everything on one device."""
        return Outcome(Plan.chain([0, problem.graph.n_operators]))


class Needy(Foreign):
    """A solver whose back end is not there."""

    name = "needy"
    needs = ("no_such_back_end", "no_such.package")


class ForeignProblem(Problem):
    """A problem of another distribution."""

    name = "foreign"


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what was discovered, before and after."""
    caches = (registry._problem_types, registry._solvers, registry._bounds)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def points(monkeypatch: pytest.MonkeyPatch, **groups: str) -> None:
    """Pretend that another distribution names these objects."""
    found = {
        group.replace("_", "."): [EntryPoint("theirs", value, group.replace("_", "."))]
        for group, value in groups.items()
    }
    monkeypatch.setattr(registry, "_points", lambda group: found.get(group, []))


def test_every_file_of_a_wing_is_found() -> None:
    """Registry against files: each module with a solver is registered under its own name, nothing else is."""
    for kind in list_problems():
        wing = Path(balance.__file__).parent / kind.name
        files = {path.stem for path in wing.glob("[!_]*.py")}
        solvers = {solver.name for solver in list_solvers(kind)}
        assert solvers
        assert solvers <= files
        for solver in list_solvers(kind):
            assert type(solver).__module__ == f"balance.{kind.name}.{solver.name}"
            assert solver.problem is kind
            assert solver.summary
            assert solver.summary == solver.summary.strip()


def test_every_problem_file_is_found() -> None:
    """A module of the room of problems that defines a problem is listed."""
    room = Path(balance.__file__).parent / "problems"
    stated = {path.stem for path in room.glob("[!_]*.py") if "(Problem):" in path.read_text(encoding="utf-8")}
    assert stated == {kind.name for kind in list_problems()}


def test_order_is_fixed() -> None:
    """Listings come in order of name."""
    names = [(solver.problem.name, solver.name) for solver in list_solvers()]
    assert names == sorted(names)


def test_listing_imports_no_back_end() -> None:
    """Asking what there is loads no solver library."""
    code = (
        "import sys, balance\n"
        "for s in balance.list_solvers(): s.available, s.summary\n"
        "print([m for m in ('pulp', 'highspy', 'ortools', 'cvxpy', 'numba', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_solvers_of_one_problem_instance() -> None:
    """For an instance only those are listed that accept it."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], bytes=8.0)
    problem = ChainProblem(graph=graph, cluster=Cluster.uniform(2, bandwidth=1.0))
    listed = {solver.name for solver in list_solvers(problem)}
    able, refused = ladder(problem)
    assert listed == {solver.name for solver in able}
    assert "bisection" in refused
    assert "communication" in refused["bisection"]
    assert [solver.rank(problem) for solver in able] == sorted(solver.rank(problem) for solver in able)


def test_unknown_names_are_explained() -> None:
    """A misspelt solver or problem names the nearest one."""
    with pytest.raises(SolverNotFoundError, match="bisection"):
        get_solver("chain", "bisecton")
    with pytest.raises(ProblemError, match="chain"):
        list_solvers("chian")


def test_entry_points_add_solvers(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """A class that another distribution names under balance.solvers is a solver like any other."""
    points(monkeypatch, balance_solvers=f"{__name__}:Foreign")
    solver = get_solver("chain", "foreign")
    assert solver.summary == "A solver of another distribution."
    assert type(solver).__name__ == "Foreign"
    assert "bisection" in {solver.name for solver in list_solvers("chain")}


def test_entry_points_add_problems(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """A class under balance.problems is listed; without a wing it has no solvers, and says so."""
    points(monkeypatch, balance_problems=f"{__name__}:ForeignProblem")
    assert "foreign" in [kind.name for kind in list_problems()]
    assert list_solvers("foreign") == ()
    assert list_bounds("foreign") == ()
    with pytest.raises(SolverNotFoundError, match="no solver at all"):
        get_solver("foreign", "any")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_module:Thing", "no_such_module"),
        (f"{__name__}:points", "not a Solver"),
        ("balance.chain.bisection:Bisection", "already has a solver 'bisection'"),
    ],
)
def test_broken_entry_points_are_named(monkeypatch: pytest.MonkeyPatch, fresh: None, target: str, says: str) -> None:
    """What another distribution got wrong is said with its entry point."""
    points(monkeypatch, balance_solvers=target)
    with pytest.raises(BalanceError, match=says):
        list_solvers("chain")


def test_a_solver_is_named_like_its_module(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """A file whose solver has another name is an error that tells both."""
    from balance.chain import bisection

    monkeypatch.setattr(bisection.Bisection, "name", "halving")
    with pytest.raises(BalanceError, match=r"halving.*bisection"):
        list_solvers("chain")


def test_missing_attributes_are_named(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """A solver class without `exact` is refused when it is found, not when it runs."""
    from balance.chain import bisection

    monkeypatch.delattr(bisection.Bisection, "exact")
    with pytest.raises(BalanceError, match="no attribute 'exact'"):
        list_solvers("chain")


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Availability is looked up, not tried; asking for such a solver names the module."""
    needy = Needy()
    assert needy.missing == ("no_such_back_end", "no_such.package")
    assert not needy.available
    monkeypatch.setattr(registry, "_solvers", lambda name: {"needy": needy})
    problem = ChainProblem(graph=CostGraph.chain([1.0]), cluster=Cluster.uniform(1))
    with pytest.raises(MissingDependencyError, match="no_such_back_end"):
        get_solver("chain", "needy")
    assert ladder(problem) == ((), {"needy": "no_such_back_end and no_such.package not installed"})
    assert list_solvers(problem) == ()


def test_bounds_are_marked_not_registered() -> None:
    """The decorator leaves the function as it is and writes nothing anywhere else."""

    @bound(problem=ChainProblem, name="trivial")
    def trivial(problem: Any) -> float:
        """Return zero."""
        return 0.0

    assert trivial(None) == 0.0
    assert "trivial" not in [known.name for known in list_bounds("chain")]
    names = [known.name for known in list_bounds("chain")]
    assert len(names) == len(set(names)) >= 2
    assert all(known.summary for known in list_bounds("chain"))
