"""What README.md shows is what its code prints and draws."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import balance

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    """Return the fenced block of a language that holds a text."""
    found = [body for kind, body in re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL) if kind == language]
    return next(body for body in found if holding in body)


def untimed(text: str) -> str:
    """Leave out how long the search took."""
    return re.sub(r" in [0-9.]+ m?s:", " in T:", text).strip()


def test_example_prints_what_is_shown(tmp_path: Path) -> None:
    """The Python example, run in an empty folder, gives the output below it and its picture."""
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-c", block("python", "solve(")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert untimed(done.stdout) == untimed(block("", "optimal"))
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_pictures_and_links_are_there() -> None:
    """Every file that the README points to exists."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT)
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_table_names_every_problem_and_solver() -> None:
    """The table of problems and solvers keeps up with the registry."""
    for name in [problem.name for problem in balance.list_problems()]:
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{name}` |"))
        assert [solver.name for solver in balance.list_solvers(name) if f"`{solver.name}`" not in row] == []
