"""Tests of models named as module:function."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from balance.cli.workload import load_workload
from balance.problems.model.errors import MissingDependencyError, OptionError

_MODULE = """
import collections
def mapping(): return {"model": "m", "inputs": [1, 2], "loss_fn": len}
def pair(): return ("m", [1])
def extra(): return {"model": 1, "inputs": 2, "los_fn": 3}
def short(): return {"model": 1}
def wrong(): return 5
def needs(argument): return argument
def raises(): return [][0]
def misuses(): return len(3)
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return the name of a module in the current folder."""
    name = f"workload_of_{request.node.name.split('[')[0]}"
    (tmp_path / f"{name}.py").write_text(_MODULE, encoding="utf-8")
    (tmp_path / f"{name}_broken.py").write_text("import no_such_package_anywhere\n", encoding="utf-8")
    (tmp_path / f"{name}_wrong.py").write_text("def f(:\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return name


def test_mapping_and_tuple(module: str) -> None:
    """Both forms of answer are understood."""
    assert load_workload(f"{module}:mapping").loss_fn is len
    assert load_workload(f"{module}:pair").inputs == [1]


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("extra", "did you mean 'loss_fn'"),
        ("short", "returns no 'inputs'"),
        ("wrong", "returned int"),
        ("needs", "without arguments; it needs argument"),
        ("raises", "raised IndexError: list index"),
        ("misuses", "raised TypeError: object of type 'int'"),
        ("number", "not a function"),
        ("maping", "did you mean 'mapping'"),
    ],
)
def test_what_is_wrong_is_said(module: str, attribute: str, words: str) -> None:
    """Each way to get it wrong has its own message."""
    with pytest.raises(OptionError, match=words):
        load_workload(f"{module}:{attribute}")


def test_missing_modules(module: str) -> None:
    """A module that is not there and one that needs something else are different errors."""
    with pytest.raises(OptionError, match="no module 'no_such_module'"):
        load_workload("no_such_module:f")
    with pytest.raises(MissingDependencyError, match="needs 'no_such_package_anywhere'"):
        load_workload(f"{module}_broken:f")
    with pytest.raises(OptionError, match="module:function"):
        load_workload("module.function")


def test_a_module_that_cannot_be_imported(module: str) -> None:
    """A fault in the user's file is told as theirs, not as an internal error."""
    with pytest.raises(OptionError, match="cannot be imported: SyntaxError"):
        load_workload(f"{module}_wrong:f")
