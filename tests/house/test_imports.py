"""Imports go one way, and importing the package costs little."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
from importlinter import cli

ROOT = Path(__file__).resolve().parents[2]

# Lowest first; a module may import from its own room and from lower ones. Every other module of the package belongs to
# the room of answers (front door, wings, engines, plots, exports), so a new wing needs no line here.
RANKS = {"balance.problems": 0, "balance.executor": 2, "balance.bench": 3, "balance.cli": 4, "balance.__main__": 5}
ANSWERS = 1

SOLVERS = ("cvxpy", "highspy", "ortools", "pulp")
HEAVY = (
    *SOLVERS, "matplotlib", "networkx", "numba", "pandas", "rich", "scipy.optimize", "torch", "typer",
)  # fmt: skip


@cache
def imports() -> grimp.ImportGraph:
    """Return who imports whom, imports inside functions included, those for type checkers only left out."""
    return grimp.build_graph(
        "balance", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def rank(module: str) -> int:
    """Return the height of a module's room."""
    return next((height for room, height in RANKS.items() if f"{module}.".startswith(f"{room}.")), ANSWERS)


def edges() -> list[tuple[str, str]]:
    """Return every pair (importer, imported) in order."""
    graph = imports()
    return [
        (importer, imported)
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
    ]


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_"))},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_every_room_is_seen() -> None:
    """The graph follows the links: without this, the tests below would hold of nothing."""
    rooms = {rank(module) for module in imports().modules if module.startswith("balance.")}
    assert rooms == {0, 1, 2, 3, 4, 5}


def test_rooms_import_downwards_only() -> None:
    """No lower room imports a higher one, not even inside a function."""
    upward = [
        f"{importer} imports {imported}"
        for importer, imported in edges()
        if imported.startswith("balance.") and rank(imported) > rank(importer)
    ]
    assert upward == []


def test_problems_import_no_package_of_answers() -> None:
    """The room of questions does not import the package's front door either."""
    assert [a for a, b in edges() if b == "balance" and rank(a) == 0 and a != "balance"] == []


def test_only_executor_imports_torch() -> None:
    """Everything works without torch but running; the doctor may ask for its version."""
    found = [a for a, b in edges() if b.split(".")[0] == "torch"]
    assert [a for a in found if rank(a) != RANKS["balance.executor"] and a != "balance.cli.doctor"] == []


def test_problems_import_no_solver() -> None:
    """What is asked does not depend on how it is answered."""
    assert [(a, b) for a, b in edges() if rank(a) == 0 and b.split(".")[0] in (*SOLVERS, "torch")] == []


def test_rooms_are_imported_under_one_name() -> None:
    """Nothing imports ``problems``, ``executor`` or ``bench`` from the top of the checkout."""
    tops = ("problems", "executor", "bench", "tests")
    assert [(a, b) for a, b in edges() if b.split(".")[0] in tops] == []


def test_import_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contracts of pyproject.toml hold; the command `lint-imports` reads the same."""
    monkeypatch.chdir(ROOT)
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_every_folder_of_code_is_a_package() -> None:
    """A folder without ``__init__.py`` would be missed by every tool that walks the packages."""
    bare = set()
    for folder, folders, files in os.walk(ROOT / "balance", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        if any(name.endswith(".py") for name in files) and "__init__.py" not in files:
            bare.add(Path(folder).relative_to(ROOT).as_posix())
    assert sorted(bare) == []


def test_import_balance_is_light() -> None:
    """``import balance`` loads NumPy and nothing heavy; each of these costs more than the package itself."""
    loaded = loaded_by("import balance")
    assert {"balance", "numpy"} <= loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_every_public_name_is_light_to_look_up() -> None:
    """Looking at every name that `balance` exports loads no solver and no torch."""
    loaded = loaded_by("import balance\nfor name in balance.__all__: getattr(balance, name)")
    assert [name for name in (*SOLVERS, "torch", "matplotlib", "pandas") if name in loaded] == []


def test_every_problem_module_is_light() -> None:
    """All of ``balance.problems`` can be imported without a solver, torch or a compiler."""
    code = (
        "import importlib, pkgutil, balance.problems as room\n"
        "for entry in pkgutil.walk_packages(room.__path__, room.__name__ + '.'): importlib.import_module(entry.name)"
    )
    loaded = loaded_by(code)
    assert "balance.problems.model.graph" in loaded
    assert [name for name in HEAVY if name in loaded] == []
