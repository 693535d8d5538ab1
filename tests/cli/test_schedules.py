"""Tests of simulate and plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from balance import Cluster, solve, state_problem
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan

Command = Any  # the fixture of conftest.py


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Write a plan of two equal stages and four micro-batches."""
    path = tmp_path / "plan.json"
    Plan.chain([0, 1, 2], microbatches=4, microbatch_size=2.0).save(path)
    return path


@pytest.fixture
def even(tmp_path: Path) -> Path:
    """Write a chain of two equal operators without transfers."""
    path = tmp_path / "even.json"
    CostGraph.chain([1.0, 1.0], backward=[2.0, 2.0]).save(path)
    return path


def test_simulate_gives_the_step(command: Command, even: Path, plan: Path) -> None:
    """Two equal stages take (M + 1) times forward and backward; two thirds of the figures follow from that."""
    done = command("simulate", plan, even, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["step_time"] == pytest.approx(15.0)
    assert found["samples_per_second"] == pytest.approx(8 / 15)
    assert [device["busy"] for device in found["devices"]] == pytest.approx([12.0, 12.0])
    assert "15 s" in command("simulate", plan, even).stdout


def test_a_result_brings_its_devices(command: Command, graph: Path) -> None:
    """Simulate takes a result file with the links that it was solved for."""
    words = ("-d", 2, "--bandwidth", "1GB/s", "--latency", "1us", "--microbatches", 4, "--save", "result.json")
    assert command("solve", graph, *words).exit_code == 0
    slow = json.loads(command("simulate", "result.json", graph, "--json").stdout)
    fast = json.loads(command("simulate", "result.json", graph, "--json", "--bandwidth", "100GB/s").stdout)
    assert slow["step_time"] > fast["step_time"]


@pytest.mark.parametrize(("name", "begins"), [("x.svg", "<?xml"), ("x.html", "<!DOCTYPE html>"), ("x.json", "")])
def test_plot_by_the_ending(command: Command, even: Path, plan: Path, name: str, begins: str) -> None:
    """Pictures, pages and traces are chosen by the file's ending."""
    pytest.importorskip("matplotlib")
    done = command("plot", plan, even, "-o", name)
    assert done.exit_code == 0, done.stderr
    text = Path(name).read_text(encoding="utf-8")
    assert text.startswith(begins)
    if name == "x.json":
        assert json.loads(text)["traceEvents"]
    elif name == "x.html":
        assert "<svg" in text
        assert "<?xml" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plot", "PLAN", "GRAPH", "-o", "x.bmp"], ".svg"),
        (["simulate", "GRAPH", "GRAPH"], "neither a plan nor a result"),
        (["simulate", "long.json", "GRAPH"], "operator"),
        (["simulate", "PLAN", "PLAN"], "plan.json"),
    ],
)
def test_mistakes_are_explained(command: Command, even: Path, plan: Path, words: list[str], says: str) -> None:
    """A wrong ending, files in the wrong order and a plan of another graph."""
    Plan.chain([0, 3, 9]).save("long.json")
    done = command(*[{"PLAN": plan, "GRAPH": even}.get(word, word) for word in words])
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())


def test_a_latency_alone_is_refused(command: Command, graph: Path) -> None:
    """As in solve: --latency alone must not turn a known bandwidth into an infinite one."""
    command("solve", graph, "-d", 2, "--bandwidth", "1GB/s", "-m", 4, "--save", "result.json")
    done = command("simulate", "result.json", graph, "--latency", "1us")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "bandwidth" in done.stderr


def test_memory_is_that_of_the_problem(command: Command, graph: Path, devices: Path) -> None:
    """Simulate counts state and buffers as the result's own timeline does."""
    cost = CostGraph.load(graph)
    problem = state_problem(
        cost, Cluster.load(devices), microbatches=4, schedule="gpipe", state_factor=2.0, backend="torch"
    )
    result = solve(problem, threads=1)
    result.save("result.json")
    done = command("simulate", "result.json", graph, "--json")
    assert done.exit_code == 0, done.stderr
    peaks = [device["peak_memory"] for device in json.loads(done.stdout)["devices"]]
    assert peaks == result.timeline().peak_memory.tolist()
    assert peaks != result.timeline(backend="none").peak_memory.tolist()


@pytest.mark.parametrize("parameters", [[1, 2], "ab", {"state_factor": "x"}, {"backend": 3}])
def test_broken_parameters_are_a_bad_file(command: Command, graph: Path, parameters: Any) -> None:
    """A result whose parameters are no such thing is a sentence that names the file, not an internal error."""
    command("solve", graph, "-d", 2, "--bandwidth", "1GB/s", "-m", 4, "--save", "result.json")
    data = json.loads(Path("result.json").read_text(encoding="utf-8"))
    data["problem"]["parameters"] = parameters
    Path("result.json").write_text(json.dumps(data), encoding="utf-8")
    done = command("simulate", "result.json", graph)
    assert done.exit_code == 2
    assert "result.json, " in done.stderr
    assert "parameters" in done.stderr


def test_a_plan_on_a_far_device(command: Command, even: Path) -> None:
    """A plan that names device 1,000,000,000 does not make as many devices up."""
    Plan.chain([0, 1, 2], devices=[0, 10**9], microbatches=4).save("far.json")
    done = command("simulate", "far.json", even)
    assert done.exit_code == 2
    assert "--devices-file" in done.stderr


@pytest.mark.parametrize("verb", ["simulate", "plot", "check"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_both_orders_are_understood(command: Command, graph: Path, verb: str, shuffled: bool) -> None:
    """The plan comes first everywhere; the other order does the same, also if the schema is not the first field."""
    words = ("-d", 2, "--bandwidth", "1GB/s", "-m", 4, "--save", "result.json")
    assert command("solve", graph, *words).exit_code == 0
    if shuffled:
        data = json.loads(Path("result.json").read_text(encoding="utf-8"))
        Path("result.json").write_text(json.dumps(dict(reversed(data.items()))), encoding="utf-8")
    more = ("-o", "plan.html") if verb == "plot" else ("--json",)
    answers = []
    for files in (("result.json", graph), (graph, "result.json")):
        done = command(verb, *files, *more)
        assert done.exit_code == 0, done.stderr
        answers.append(Path("plan.html").read_text(encoding="utf-8") if verb == "plot" else done.stdout)
    titles = [answer.split("<svg")[0] for answer in answers]
    assert titles[0] == titles[1]


def test_a_broken_plan_is_named_in_either_order(command: Command, even: Path, plan: Path) -> None:
    """A plan that is cut off is told as such, not as a wrong order of files."""
    plan.write_text(plan.read_text(encoding="utf-8")[:60], encoding="utf-8")
    for files in ((plan, even), (even, plan)):
        done = command("simulate", *files)
        assert done.exit_code == 2
        assert "plan.json" in done.stderr


def test_missing_files_and_folders(command: Command, even: Path, plan: Path) -> None:
    """What is no file is named, whatever its place."""
    for files in (("none.json", even), (plan, "none.json"), (".", even), (plan, "."), (even, "none.json")):
        done = command("simulate", *files)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "internal error" not in done.stderr
