"""Tests of solve, bound, compare and check."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance import Comparison, Tensor, state_problem
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan

Command = Any  # the fixture of conftest.py
LINK = ("--bandwidth", "10GB/s", "--latency", "10us")


def test_json_is_alone_on_standard_output(command: Command, graph: Path) -> None:
    """Under --json standard output is one document with the promised fields; progress is on standard error."""
    done = command("solve", graph, "-d", 3, *LINK, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    fields = {"status", "stop_reason", "objective", "bound", "gap", "solver", "bound_name", "seconds", "solution"}
    assert fields | {"problem", "provenance"} <= set(found)
    assert (found["status"], found["gap"]) == ("optimal", 0.0)


def test_text_names_the_answer(command: Command, graph: Path) -> None:
    """Without --json people read a summary."""
    done = command("solve", graph, "-d", 2, *LINK)
    assert done.exit_code == 0
    assert "optimal" in done.stdout


def test_quiet_says_nothing_on_standard_error(command: Command, graph: Path) -> None:
    """--quiet leaves standard error empty."""
    assert command("solve", graph, "-d", 2, *LINK, "--quiet").stderr == ""


def test_a_saved_result_is_checked(command: Command, graph: Path) -> None:
    """Solve --save, then check: the numbers hold."""
    assert command("solve", graph, "-d", 3, *LINK, "--save", "result.json", "--plan", "plan.json").exit_code == 0
    assert Plan.load("plan.json").n_stages <= 3
    done = command("check", "result.json", graph, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["valid"] is True


@pytest.mark.parametrize("change", ["objective", "bound", "plan"])
def test_a_forged_result_is_found_out(command: Command, graph: Path, change: str) -> None:
    """Check does not believe a file: a better objective, a wrong bound or another plan is a fault and exit code 1."""
    command("solve", graph, "-d", 3, *LINK, "--save", "result.json")
    data = json.loads(Path("result.json").read_text(encoding="utf-8"))
    if change == "objective":
        data["objective"] *= 0.9
        data["bound"] *= 0.9
    elif change == "bound":
        data["bound"] *= 1.5
    else:
        stages = data["solution"]["stages"]
        stages[0]["replicas"], stages[1]["replicas"] = stages[1]["replicas"], stages[0]["replicas"]
    Path("result.json").write_text(json.dumps(data), encoding="utf-8")
    done = command("check", "result.json", graph)
    assert done.exit_code in (1, 2), done.stdout
    assert done.stderr.strip()
    assert "Traceback" not in done.output


def test_check_proves_the_bound_again(command: Command, graph: Path, tmp_path: Path) -> None:
    """--prove says what came of it, in words and in JSON."""
    saved = tmp_path / "result.json"
    assert command("solve", graph, "-d", 2, "--bandwidth", "10GB/s", "--save", saved).exit_code == 0
    done = command("check", saved, graph, "--prove")
    assert done.exit_code == 0, done.stderr
    assert "proves again that no solution lies below" in done.stdout
    found = json.loads(command("check", saved, graph, "--prove", "--json").stdout)
    assert found["proof"]["proved"] is True
    assert "proof" not in json.loads(command("check", saved, graph, "--json").stdout)


def test_check_wants_the_graph_that_was_solved(command: Command, graph: Path, tmp_path: Path) -> None:
    """Another graph is refused with both hashes."""
    command("solve", graph, "-d", 3, *LINK, "--save", "result.json")
    other = tmp_path / "other.json"
    CostGraph.chain([1.0, 2.0]).save(other)
    done = command("check", "result.json", other)
    assert done.exit_code == 2
    assert "hash" in done.stderr


def test_devices_from_a_file(command: Command, graph: Path, devices: Path) -> None:
    """A hand-written list of devices is understood."""
    done = command("solve", graph, "--devices-file", devices, "--json", "--microbatches", 4)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["problem"]["cluster"]["count"] == 3


def test_infeasible_is_three(command: Command, graph: Path, tmp_path: Path) -> None:
    """Memory that cannot hold an operator gives exit code 3 and names the numbers."""
    small = tmp_path / "small.json"
    links = {"latency": 0.0, "bandwidth": 1e9}
    small.write_text(json.dumps({"devices": [{"count": 2, "memory_bytes": 1e6}], "links": links}), encoding="utf-8")
    done = command("solve", graph, "--devices-file", small, "--json")
    assert done.exit_code == 3, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["solution"]) == ("infeasible", None)
    assert "bytes" in command("solve", graph, "--devices-file", small).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["solve", "missing.json"], "missing.json"),
        (["solve", "GRAPH"], "devices"),
        (["solve", "GRAPH", "-d", "2"], "bandwidth"),
        (["solve", "GRAPH", "-d", "2", "--bandwidth", "10"], "no unit"),
        (["solve", "GRAPH", "-d", "0"], "--devices"),
        (["solve", "GRAPH", "-d", "2", "--devices-file", "devices.json"], "not both"),
        (["solve", "GRAPH", "-d", "2", *LINK, "--solver", "bisecton"], "bisection"),
        (["solve", "GRAPH", "-d", "2", *LINK, "--objective", "botleneck"], "bottleneck"),
        (["solve", "GRAPH", "-d", "2", *LINK, "--format", "pipdream"], "pipedream"),
        (["solve", "GRAPH", "-d", "2", *LINK, "--no-such-option"], "no-such-option"),
        (["slove", "GRAPH"], "solve"),
        (["check", "GRAPH", "GRAPH"], "graph.json"),
    ],
)
def test_wrong_use_is_two_and_explained(command: Command, graph: Path, words: list[str], says: str) -> None:
    """Every mistake is a sentence on standard error, nothing on standard output and exit code 2."""
    Path("devices.json").write_text("[]", encoding="utf-8")
    done = command(*[graph if word == "GRAPH" else word for word in words])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_bounds_are_below_the_optimum(command: Command, graph: Path) -> None:
    """Bound gives named values, none above what solve finds."""
    found = json.loads(command("bound", graph, "-d", 3, *LINK, "--json").stdout)
    best = json.loads(command("solve", graph, "-d", 3, *LINK, "--json").stdout)["objective"]
    assert found["bounds"]
    assert found["best"] == max(found["bounds"].values()) <= best * (1 + 1e-9)


def test_solvers_agree(command: Command, graph: Path) -> None:
    """Compare lists every solver, and the exact ones give one value."""
    done = command("compare", graph, "-d", 2, *LINK, "--json", "--time-limit", "20s")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    optima = [result["objective"] for result in found if result["status"] == "optimal"]
    assert len(optima) >= 2
    assert max(optima) == pytest.approx(min(optima))
    table = command("compare", graph, "-d", 2, *LINK, "--solver", "threshold").stdout
    assert "threshold" in table
    assert "milp" not in table


def test_compare_says_who_gave_no_answer(command: Command, tmp_path: Path) -> None:
    """A solver that refuses is named on standard error with its reason; the others answer."""
    large = tmp_path / "large.json"
    CostGraph.chain([1.0 + i % 7 for i in range(400)]).save(large)
    done = command("compare", large, "-d", 20, "--solver", "milp", "--solver", "threshold", "--json", "-q")
    assert done.exit_code == 0, done.stderr
    assert [result["solver"] for result in json.loads(done.stdout)] == ["threshold"]
    assert done.stderr.startswith("milp: ")


def test_compare_without_an_answer_failed(command: Command, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no solver gave an answer, that is no success."""
    empty = Comparison(state_problem(CostGraph.load(graph), 2, bandwidth=1e9), (), {"milp": "failed"})
    monkeypatch.setattr("balance.compare", lambda *given, **options: empty)
    done = command("compare", graph, "-d", 2, *LINK, "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, [])
    assert "milp: failed" in done.stderr


@pytest.mark.parametrize("option", ["--save", "--plan"])
@pytest.mark.parametrize(("target", "says"), [("nowhere/x.json", "does not exist"), (".", "is a folder")])
def test_files_are_refused_before_the_search(
    command: Command, graph: Path, monkeypatch: pytest.MonkeyPatch, option: str, target: str, says: str
) -> None:
    """A file that cannot be written is no reason to lose an answer: it is refused before the search."""
    monkeypatch.setattr("balance.solve", lambda *given, **options: pytest.fail("searched"))
    done = command("solve", graph, "-d", 2, *LINK, option, target)
    assert (done.exit_code, done.stdout) == (2, "")
    assert option in done.stderr
    assert says in " ".join(done.stderr.split())


def test_control_c_gives_what_is_known(tmp_path: Path) -> None:
    """SIGINT in the middle of a solve: a whole JSON document with the bound, and the code that says so."""
    path = tmp_path / "hard.json"
    rng = np.random.default_rng(0)
    CostGraph.chain(rng.uniform(1, 2, 90), bytes=rng.uniform(1, 2, 89)).save(path)
    words = ["solve", path, "-d", 8, "--bandwidth", "1B/s", "--solver", "milp", "--threads", 1, "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "balance", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()  # the search is on its way
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    found = json.loads(out)
    assert "bound" in first
    assert "Traceback" not in rest
    assert found["stop_reason"] == "interrupted"
    assert found["bound"] > 0
    assert process.returncode == (130 if found["solution"] is None else 0)


def test_parallel_regions_stay_whole_on_request(command: Command, tmp_path: Path) -> None:
    """--regions makes a chain of a graph that is none; without it the problem is another one."""
    path = tmp_path / "diamond.json"
    ends = [(0, (1, 2)), (1, (3,)), (2, (3,))]
    CostGraph(forward=[1.0, 2.0, 3.0, 4.0], tensors=[Tensor(source, targets, 0.0) for source, targets in ends]).save(
        path
    )
    assert json.loads(command("solve", path, "-d", 2, "--json").stdout)["problem"]["name"] == "cut"
    done = command("solve", path, "-d", 2, "--regions", "whole", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["problem"]["name"], found["objective"]) == ("chain", 6.0)
