"""Tests of profile and run: a tiny model in two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from balance.bench.campaign import same_code
from balance.problems.model.plan import Plan

Command = Any  # the fixture of conftest.py

_MODULE = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return {"model": model, "inputs": torch.randn(4, 8), "targets": torch.randn(4, 4), "loss_fn": nn.MSELoss()}

def flat():
    return {"model": nn.Sequential(nn.Linear(1, 1)), "inputs": 5}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, its profile in two processes, and a plan of two stages."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("running")
    (path / "tiny.py").write_text(_MODULE, encoding="utf-8")
    Plan.chain([0, 1, 3], microbatches=2).save(path / "plan.json")
    words = ("profile", "tiny:small", "-o", "profile.json", "-d", "2", "--microbatch-size", "2", "--repeats", "2")
    (path / "profile.out").write_text(_process(*words, "--json", cwd=path), encoding="utf-8")
    return path


def _process(*words: str, cwd: Path) -> str:
    """Run a command in a process of its own and return its standard output, which the ranks share."""
    done = subprocess.run(
        [sys.executable, "-m", "balance", *words], capture_output=True, text=True, cwd=cwd, env=same_code(), timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_profile_writes_graph_and_devices(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is one JSON document; the file holds what it says, and can be solved as it is."""
    told = json.loads((folder / "profile.out").read_text(encoding="utf-8"))
    assert (told["file"], told["operators"], told["cluster"]["count"]) == ("profile.json", 3, 2)
    monkeypatch.chdir(folder)
    solved = json.loads(command("solve", "profile.json", "--json", "-q", "--microbatches", 2).stdout)
    assert solved["problem"]["graph"] == told["hash"]


def test_profile_for_people(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --json each module is a row; one process is enough for that."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [*sys.path])
    done = command("profile", "tiny:small", "-o", "alone.json", "--repeats", 1, "--inference")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    assert "alone.json" in done.stderr


def test_run_for_programs(folder: Path) -> None:
    """Two ranks and their libraries leave standard output to one JSON document; the files are the same."""
    told = json.loads(
        _process(
            "run", "profile.json", "plan.json", "--model", "tiny:small", "--steps", "3", "--json", "-o", "report.json",
            cwd=folder,
        )
    )  # fmt: skip
    assert told == json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_run_for_people(folder: Path) -> None:
    """Without --json people read predicted and achieved."""
    page = _process("run", "plan.json", "profile.json", "--model", "tiny:small", "--steps", "3", cwd=folder)
    assert "achieved" in page
    assert "samples per second" in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "plan.json", "--model", "tiny"], "module:function"),
        (["run", "plan.json", "--model", "tinny:small"], "no module 'tinny'"),
        (["run", "plan.json", "--model", "tiny:smal"], "did you mean 'small'"),
        (["run", "none.json", "--model", "tiny:small"], "none.json"),
        (["run", "plan.json", "profile.json", "--graph", "profile.json", "--model", "tiny:small"], "once"),
        (["run", "plan.json", "--model", "tiny:small", "--page", "tiny.py"], "no folder"),
        (["profile", "tiny:flat", "-o", "x.json"], "tensor"),
        (["profile", "tiny:small", "-o", "x.json", "--microbatch-size", "5"], "4 inputs"),
        (["profile", "tiny:small", "-o", "nowhere/x.json"], "does not exist"),
    ],
)
def test_mistakes_are_explained(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    """A wrong model, plan or file is a sentence before any process is started."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "tiny", raising=False)
    done = command(*words)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert says in " ".join(done.stderr.split())
    assert "internal error" not in done.stderr
