"""Tests of the bench command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Command = Any  # the fixture of conftest.py


def test_list_shows_suites_figures_and_instances(command: Command) -> None:
    """Everything that can be run is listed, with targets."""
    found = json.loads(command("bench", "list", "--json").stdout)
    assert {"smoke", "speed", "chain", "paper", "full"} <= {suite["name"] for suite in found["suites"]}
    limits = {figure["name"]: figure["limit"] for figure in found["figures"]}
    assert limits["package/import"] == 0.6
    assert limits["chain/bisection"] == limits["chain/threshold"] == limits["chain/intervals"] == 0.5
    assert limits["chain/counts"] == 10.0
    assert any(instance["name"].startswith("public/") for instance in found["instances"])


def test_a_suite_is_run_and_resumed(command: Command) -> None:
    """A second run of the same folder runs nothing again and reports the same rows."""
    words = ("bench", "--suite", "smoke", "--only", "model/cluster", "--out", "out", "--json")
    first, second = (json.loads(command(*words).stdout) for _ in range(2))
    assert (first["run"], first["failed"], second["run"]) == (2, 0, 0)
    assert second["rows"] == first["rows"]
    assert "model/cluster" in Path("out", "report.md").read_text(encoding="utf-8")
    assert "model/cluster" in command("bench", "report", "out").stdout


def test_a_missed_target_is_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """--check-targets turns a miss into exit code 1; without it the run is a success."""
    from balance.bench import campaign

    def miss(cell: Any) -> dict[str, Any]:
        figure = {"value": 9.0, "unit": "s", "limit": 1.0, "met": False, "samples": [9.0], "parameters": {}}
        return {"kind": "measure", "name": cell.name, "status": "measured", "figure": figure}

    monkeypatch.setattr(campaign, "run_cell", miss)
    words = ("bench", "--suite", "speed", "--only", "package/import")
    assert command(*words).exit_code == 0
    done = command(*words, "--check-targets")
    assert done.exit_code == 1
    assert "MISSED" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench"], "--suite smoke"),
        (["bench", "--suite", "smok"], "'smoke'"),
        (["bench", "--suite", "smoke", "--only", "nothing-like-this"], "nothing to run"),
        (["bench", "report", "none"], "does not exist"),
    ],
)
def test_mistakes_are_explained(command: Command, words: list[str], says: str) -> None:
    """Each mistake is a sentence and exit code 2."""
    done = command(*words)
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())
