"""The instances of every problem, found by the problem's name: those of `cut` are ``tests/cut/cases.py``."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from balance import list_problems
from tests.conformance.case import Factory


def _factories() -> dict[str, Factory]:
    found = {}
    for kind in list_problems():
        if find_spec(f"tests.{kind.name}") and find_spec(f"tests.{kind.name}.cases"):
            found[kind.name] = importlib.import_module(f"tests.{kind.name}.cases").FACTORY
    return found


FACTORIES = _factories()
