"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import balance

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# Found at collection: a new module is covered without an edit. A package that cannot be imported must not vanish.
MODULES = [
    "balance",
    *(
        entry.name
        for entry in pkgutil.walk_packages(balance.__path__, "balance.", onerror=importlib.import_module)
        if not entry.name.endswith("__main__")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example of one module gives what it shows; files that it writes land in an empty folder."""
    monkeypatch.chdir(str(tmp_path))
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert failed == 0, f"{failed} examples of {name} are wrong; the report above shows them"


def test_modules_of_every_room_are_found() -> None:
    """The search follows the links into every room."""
    rooms = {name.split(".")[1] for name in MODULES if "." in name}
    assert {"problems", "executor", "bench", "cli", "chain"} <= rooms
