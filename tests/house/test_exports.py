"""What is public: sorted, importable, explained, and in the reference."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import balance

ROOT = Path(__file__).resolve().parents[2]

_DIRECTIVE = re.compile(r"^\.\. auto\w+:: (balance\.[\w.]+)", re.MULTILINE)


def documented() -> set[str]:
    """Return every name that a page of the reference documents."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return {name for page in pages for name in _DIRECTIVE.findall(page.read_text(encoding="utf-8"))}


def test_exports_are_sorted_and_unique() -> None:
    """One place, one order."""
    assert list(balance.__all__) == sorted(set(balance.__all__))


@pytest.mark.parametrize("name", balance.__all__)
def test_export_is_explained(name: str) -> None:
    """Every public name can be imported, has a docstring of its own and stands in the reference."""
    thing = getattr(balance, name)
    if not name.startswith("__"):
        text = inspect.getdoc(thing) if inspect.ismodule(thing) or callable(thing) else "a value"
        assert text, f"balance.{name} has no docstring"
        if not inspect.ismodule(thing):
            assert f"balance.{name}" in documented(), f"balance.{name} is missing in docs/reference/"


def test_reference_names_exist() -> None:
    """The reference documents nothing that is gone."""
    gone = []
    for name in sorted(documented()):
        module, _, attribute = name.rpartition(".")
        if not hasattr(importlib.import_module(module), attribute):
            gone.append(name)
    assert gone == []


def test_no_function_of_the_front_door_hides_a_module() -> None:
    """`balance.x` never means a function in one place and a module in another."""
    modules = {entry.name for entry in pkgutil.iter_modules(balance.__path__)}
    hidden = [name for name in balance.__all__ if name in modules and not inspect.ismodule(getattr(balance, name))]
    assert hidden == []


def test_dir_lists_the_exports() -> None:
    """Names imported on first use are found by completion all the same."""
    assert set(balance.__all__) <= set(dir(balance))


def test_package_is_typed() -> None:
    """Type checkers of users read our annotations."""
    assert (Path(balance.__file__).parent / "py.typed").is_file()


def test_version_is_the_same_everywhere() -> None:
    """The package, its metadata, the citation and the change log name one version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert balance.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
