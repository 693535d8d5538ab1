"""The recipes of CONTRIBUTING.md are followed to the letter, in a copy of the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

# A file of a recipe: its path in backticks, a colon at the end of the paragraph, then its content.
_FILE = re.compile(r"`([\w/]+\.py)`[^`\n]*(?:\n[^`\n]+)*:\n\n```python\n(.*?)```", re.DOTALL)
_EXAMPLE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
_FOLLOWED = """
import balance, doctest, sys
assert balance.__file__.startswith(sys.argv[2]), balance.__file__
failed, tried = doctest.testfile(sys.argv[1], module_relative=False)
sys.exit(failed or not tried)
"""


@dataclass(frozen=True)
class Recipe:
    """One section: the files to write and the session that must follow."""

    title: str
    files: dict[str, str]
    session: str


def recipes() -> list[Recipe]:
    """Return the recipes in order."""
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    return [
        Recipe(section.split("\n", 1)[0], dict(_FILE.findall(section)), "\n".join(_EXAMPLE.findall(section)))
        for section in sections
        if section.startswith("How to add")
    ]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_recipe_works(recipe: Recipe, tmp_path: Path) -> None:
    """Writing exactly the files of the recipe makes the new thing appear, and nothing else is edited."""
    shutil.copytree(ROOT / "balance", tmp_path / "balance", ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in recipe.files.items():
        inside = name if name.startswith("balance/") else f"balance/{name}"
        target = tmp_path / inside
        assert not target.exists(), f"{name} exists already: the recipe must write a new file"
        target.parent.mkdir(exist_ok=True)
        target.write_text(content, encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    session = elsewhere / "session.txt"
    session.write_text(recipe.session, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{_FOLLOWED}", session, tmp_path],
        cwd=elsewhere,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_recipes_are_found() -> None:
    """Each kind of thing has its recipe, with all of its files."""
    assert {recipe.title: list(recipe.files) for recipe in recipes()} == {
        "How to add a solver": ["balance/chain/even.py"],
        "How to add a file format": ["problems/formats/seconds.py"],
        "How to add a problem": [
            "problems/spread.py",
            "balance/spread/__init__.py",
            "balance/spread/longest_first.py",
            "balance/spread/bounds.py",
        ],
    }


def test_recipes_meet_the_house_style(tmp_path: Path) -> None:
    """What the recipes show passes the linter."""
    for recipe in recipes():
        for name, content in recipe.files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content, encoding="utf-8")
    for words in (["check", "--quiet"], ["format", "--check", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--no-cache", "--config", ROOT / "pyproject.toml", tmp_path],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_named_files_exist() -> None:
    """Folders and files that the text names beside the recipes' own are there."""
    written = {name for recipe in recipes() for name in recipe.files}
    own = {"tests/spread/", "balance/spread/", "tests/chain/test_even.py"}
    named = set(re.findall(r"`((?:problems|balance|executor|bench|tests|docs|\.ci)/[\w./-]*)`", TEXT))
    assert sorted(name for name in named - written - own if not (ROOT / name).exists()) == []
