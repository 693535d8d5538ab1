"""Files that the commands are tried on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from balance.cli.app import app
from balance.problems.model.graph import CostGraph

Command = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in an empty folder, with standard output and standard error apart."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def run(*words: object) -> Result:
        return runner.invoke(app, [str(word) for word in words])

    return run


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Write a training chain of eight layers with transfers and memory."""
    rng = np.random.default_rng(5)
    path = tmp_path / "graph.json"
    CostGraph.chain(
        rng.uniform(1e-3, 3e-3, 8),
        backward=rng.uniform(2e-3, 6e-3, 8),
        bytes=1e7,
        parameter_bytes=1e8,
        activation_bytes=1e7,
        name="eight",
    ).save(path)
    return path


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Write a list of devices of two kinds of memory, with links."""
    path = tmp_path / "devices.json"
    path.write_text(
        json.dumps(
            {
                "devices": [{"count": 2, "memory_bytes": 4e9}, {"count": 1, "memory_bytes": 8e9, "speed": 2.0}],
                "links": {"latency": 1e-5, "bandwidth": 1e10},
            }
        ),
        encoding="utf-8",
    )
    return path
