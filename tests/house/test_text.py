"""What the files say: no machine of ours, no unfinished work, one vocabulary of files."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("balance", "tests", "docs", ".ci")
FILES = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "README.md", "constraints.txt", "pyproject.toml",
)  # fmt: skip
SUFFIXES = (".py", ".md", ".toml", ".txt", ".cff", ".rst", ".css", ".json", "")

# Written in pieces, so that this file passes its own test.
BANNED = {
    "unfinished work": r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b",
    "text to be replaced": r"(?i)\b(lorem ip" r"sum|place" r"holder|tb" r"d)\b",
    "a path of one machine": r"(?<![\w.])/(ro" r"ot|wo" r"rk|ho" r"me|Us" r"ers|op" r"t|t" r"mp)/",
    "a host of a package registry": r"(?i)python" r"hosted|pypi\." r"org/simple|download\.py" r"torch",
    "a conflict of versions": r"(?m)^(<{7}|={7}|>{7})( |$)",
}

# The extras that `make test` installs.
INSTALLED = ("executor", "plot", "bench", "test", "docs")

# Rooms named for nothing; a module is named for its subject.
NAMELESS = {"util", "utils", "common", "helper", "helpers", "misc", "stuff"}


def texts() -> Iterator[Path]:
    """Yield every text file that is part of the project, links followed, what is generated left out."""
    generated = {"__pycache__", "_build"}
    for top in FOLDERS:
        for folder, folders, files in os.walk(ROOT / top, followlinks=True):
            folders[:] = sorted(name for name in folders if name not in generated)
            yield from (Path(folder, name) for name in sorted(files) if Path(name).suffix in SUFFIXES)
    yield from (ROOT / name for name in FILES if (ROOT / name).exists())


@pytest.mark.parametrize("what", BANNED)
def test_text_is_free_of(what: str) -> None:
    """No file of the project holds it."""
    pattern = re.compile(BANNED[what])
    found = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert found == []


def test_texts_are_found() -> None:
    """The search above looks at real files."""
    names = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {"balance/__init__.py", "balance/problems/__init__.py", "tests/conftest.py", ".ci/run", "Makefile"} <= names


def test_modules_are_named_for_a_subject() -> None:
    """A module or folder has a name that says what belongs into it."""
    assert [str(path.relative_to(ROOT)) for path in texts() if NAMELESS & {path.stem, path.parent.name}] == []


def test_modules_say_what_room_they_are() -> None:
    """Every module begins with a docstring."""
    mute = []
    for path in texts():
        if path.suffix == ".py" and path.read_text(encoding="utf-8").strip():
            first = path.read_text(encoding="utf-8").lstrip().splitlines()[0]
            if not first.startswith(('"""', 'r"""', "#!")):
                mute.append(str(path.relative_to(ROOT)))
    assert mute == []


def test_pins_cover_the_dependencies() -> None:
    """Every dependency that the tests install has one exact, allowed version, without a build label or a place."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    assert "torch==2.13.0" in lines
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert len(pins) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(row for extra in INSTALLED for row in extras[extra])]
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not pinned"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} forbids the pin {version}"


def test_all_extras_are_in_all() -> None:
    """The extra ``all`` brings every other extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (everything,) = map(Requirement, extras["all"])
    assert sorted(everything.extras) == sorted(set(extras) - {"all"})


def test_no_extra_that_pins_a_solver() -> None:
    """The extras of PuLP and cvxpy that bring solvers pin versions against each other and are never asked for."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").lower()
    assert re.findall(r"(pulp|cvxpy)\s*\[", text) == []
