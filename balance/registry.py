"""Front door: which problems, solvers and lower bounds there are, found by their file names.

``problems/cut.py`` holds ``CutProblem``; every module of ``balance/cut/`` whose name has no leading underscore and is
not ``bounds`` may hold one solver of the module's name; ``balance/cut/bounds.py`` registers lower bounds with `bound`.
Other distributions add classes through the entry-point groups ``balance.problems`` and ``balance.solvers``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from balance.problems.model.errors import (
    BalanceError,
    MissingDependencyError,
    OptionError,
    ProblemError,
    SolverNotFoundError,
)
from balance.problems.model.fields import nearest
from balance.problems.model.problem import Problem
from balance.solver import Bound, Outcome, Solver, bound

__all__ = [
    "Bound", "Outcome", "Solver", "bound", "get_solver", "ladder", "list_bounds", "list_problems", "list_solvers",
    "problem_type",
]  # fmt: skip

# Abstract classes cannot be passed as `type[Solver]` to a function that is typed for concrete ones.
_SOLVER: Any = Solver

# -- discovery -------------------------------------------------------------------------------------------------------


@cache
def _problem_types() -> dict[str, type[Problem]]:
    import balance.problems as room

    found: dict[str, type[Problem]] = {}
    for entry in pkgutil.iter_modules(room.__path__):
        if entry.ispkg or entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{room.__name__}.{entry.name}")
        for kind in _classes(module, Problem):
            expected = "".join(word.capitalize() for word in entry.name.split("_")) + "Problem"
            if kind.name != entry.name or kind.__name__ != expected:
                raise BalanceError(
                    f"{module.__name__} holds {kind.__name__} with name {kind.name!r}; a problem is named like its "
                    f"module: expected {expected} with name {entry.name!r}"
                )
            found[kind.name] = kind
    for point in _points("balance.problems"):
        kind = _loaded(point, Problem)
        if kind.name in found:
            raise BalanceError(f"entry point {point.value!r}: there is already a problem {kind.name!r}")
        found[kind.name] = kind
    return dict(sorted(found.items()))


@cache
def _solvers(problem: str) -> dict[str, Solver]:
    kind = problem_type(problem)
    found: dict[str, Solver] = {}
    for name in _wing_modules(kind):
        if name.startswith("_") or name == "bounds":
            continue
        module = importlib.import_module(f"balance.{kind.name}.{name}")
        for solver_type in _classes(module, _SOLVER):
            _check(solver_type, module.__name__)
            if solver_type.name != name or solver_type.problem is not kind:
                raise BalanceError(
                    f"{module.__name__} holds {solver_type.__name__} with name {solver_type.name!r} for problem "
                    f"{solver_type.problem.name!r}; a solver's name is its module's ({name!r}) and its problem is its "
                    f"folder's ({kind.name!r})"
                )
            found[name] = solver_type()
    for point in _points("balance.solvers"):
        solver_type = _loaded(point, _SOLVER)
        _check(solver_type, point.value)
        if solver_type.problem is not kind:
            continue
        if solver_type.name in found:
            raise BalanceError(f"entry point {point.value!r}: {kind.name!r} already has a solver {solver_type.name!r}")
        found[solver_type.name] = solver_type()
    return dict(sorted(found.items()))


@cache
def _bounds(problem: str) -> tuple[Bound, ...]:
    kind = problem_type(problem)
    if "bounds" not in _wing_modules(kind):
        return ()
    module = importlib.import_module(f"balance.{kind.name}.bounds")
    marked = [getattr(thing, "__balance_bound__", None) for thing in vars(module).values()]
    return tuple(mark for mark in marked if isinstance(mark, Bound) and mark.problem is kind)


def _wing_modules(kind: type[Problem]) -> list[str]:
    """Return the modules of a problem's wing, in order; none if it has no wing of ours."""
    wing = f"balance.{kind.name}"
    if importlib.util.find_spec(wing) is None:
        return []
    package = importlib.import_module(wing)
    return sorted(entry.name for entry in pkgutil.iter_modules(package.__path__))


Base = TypeVar("Base")


def _classes(module: Any, base: type[Base]) -> list[type[Base]]:
    """Return the concrete subclasses of `base` that a module defines itself, in the order of their text."""
    return [
        thing
        for thing in vars(module).values()
        if inspect.isclass(thing)
        and issubclass(thing, base)
        and thing.__module__ == module.__name__
        and not thing.__name__.startswith("_")
        and not inspect.isabstract(thing)
    ]


def _check(solver: type[Solver], where: str) -> None:
    for key in ("name", "problem", "exact", "proves_bound"):
        if not hasattr(solver, key):
            raise BalanceError(f"{where}: solver {solver.__name__} has no attribute {key!r}")


def _points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group in a fixed order; tests put their own here."""
    return sorted(entry_points(group=group), key=lambda point: (point.name, point.value))


def _loaded(point: EntryPoint, base: type[Base]) -> type[Base]:
    try:
        thing = point.load()
    except ImportError as error:
        raise MissingDependencyError(f"entry point {point.value!r} of group {point.group!r}: {error}") from error
    if not (inspect.isclass(thing) and issubclass(thing, base)):
        raise BalanceError(f"entry point {point.value!r} of group {point.group!r} is not a {base.__name__}")
    return thing


# -- questions -------------------------------------------------------------------------------------------------------


def list_problems() -> tuple[type[Problem], ...]:
    """Return the class of every problem, in order of name.

    Examples
    --------
    >>> "chain" in [problem.name for problem in list_problems()]
    True
    """
    return tuple(_problem_types().values())


def problem_type(name: str) -> type[Problem]:
    """Return the class of a problem.

    Raises
    ------
    ProblemError
        If there is none of this name.
    """
    known = _problem_types()
    if name not in known:
        raise ProblemError(f"there is no problem {name!r}{nearest(name, known)}", name=name)
    return known[name]


def list_solvers(problem: Problem | type[Problem] | str | None = None) -> tuple[Solver, ...]:
    """Return solvers, in order of problem and name; no back end is imported.

    Parameters
    ----------
    problem
        A problem: the solvers that can answer this very one. A problem's class or name: all solvers of that problem.
        None: all solvers.

    Returns
    -------
    tuple of Solver
        Each has ``name``, ``problem`` (a class), ``exact``, ``proves_bound``, ``needs``, ``summary``, ``missing``
        (needed modules that are not installed) and ``available``.

    Raises
    ------
    OptionError
        If it is no problem at all.
    ProblemError
        If there is no problem of this name.

    Examples
    --------
    >>> [solver.name for solver in list_solvers("chain") if not solver.exact]
    []
    """
    if isinstance(problem, Problem):
        found = _solvers(problem.name).values()
        return tuple(solver for solver in found if solver.available and solver.accepts(problem) is None)
    if problem is None:
        return tuple(solver for kind in list_problems() for solver in _solvers(kind.name).values())
    return tuple(_solvers(_name(problem)).values())


def get_solver(problem: Problem | type[Problem] | str, name: str) -> Solver:
    """Return the solver of a name.

    Raises
    ------
    SolverNotFoundError
        If the problem has none of this name; the message names the nearest.
    MissingDependencyError
        If something that it needs is not installed.
    """
    known = _solvers(_name(problem))
    if name not in known:
        hint = nearest(name, known) or " (it has no solver at all)"
        raise SolverNotFoundError(f"problem {_name(problem)!r} has no solver {name!r}{hint}", solver=name)
    solver = known[name]
    if solver.missing:
        modules = " and ".join(solver.missing)
        raise MissingDependencyError(
            f"solver {name!r} needs {modules}, which is not installed: pip install {' '.join(solver.missing)}",
            solver=name,
        )
    return solver


def ladder(problem: Problem) -> tuple[tuple[Solver, ...], dict[str, str]]:
    """Return the solvers that can answer a problem, in the order to try them, and why the others cannot.

    Parameters
    ----------
    problem
        The problem.

    Returns
    -------
    tuple
        Solvers by rank and name; refusals by solver name.
    """
    able: list[Solver] = []
    refusals: dict[str, str] = {}
    for solver in _solvers(problem.name).values():
        why = f"{' and '.join(solver.missing)} not installed" if solver.missing else solver.accepts(problem)
        if why is None:
            able.append(solver)
        else:
            refusals[solver.name] = why
    return tuple(sorted(able, key=lambda solver: (solver.rank(problem), solver.name))), refusals


def list_bounds(problem: Problem | type[Problem] | str) -> tuple[Bound, ...]:
    """Return the named lower bounds of a problem, in the order of their text."""
    return _bounds(_name(problem))


def _name(problem: Problem | type[Problem] | str) -> str:
    if isinstance(problem, str):
        return problem
    kind = problem if inspect.isclass(problem) else type(problem)
    if issubclass(kind, Problem) and hasattr(kind, "name"):
        return kind.name
    raise OptionError(f"expected a problem, its class or its name, got {problem!r}; list_problems() shows them")
