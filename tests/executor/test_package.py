"""The package itself: cheap to import, clear without torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

import balance.executor
from balance.problems.model.errors import MissingDependencyError


def test_import_costs_no_torch():
    """Importing the package, or reading a report's class, does not import torch."""
    code = "import sys, balance.executor; balance.executor.RunReport; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0


def test_missing_torch_names_the_extra(monkeypatch):
    """Without torch the names that need it say which extra brings it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    with pytest.raises(MissingDependencyError, match=r"dnn-balance\[executor\]"):
        balance.executor.profile  # noqa: B018
    assert balance.executor.RunReport.__name__ == "RunReport"


def test_public_names_resolve():
    """Every exported name exists, and nothing else answers."""
    for name in balance.executor.__all__:
        assert callable(getattr(balance.executor, name))
        assert name in dir(balance.executor)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        balance.executor.nothing  # noqa: B018
