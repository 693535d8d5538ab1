"""Tests of the options of a problem's parameters and of --set."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.main import get_command

from balance import Configuration, Tensor, list_problems, solve
from balance.cli.app import app
from balance.cli.parameters import known_parameters, parse_settings
from balance.cli.question import OWN_PARAMETERS
from balance.comparison import compare
from balance.front import lower_bounds
from balance.problems.chain import ChainProblem
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph

Command = Any  # the fixture of conftest.py
LINK = ("--bandwidth", "10GB/s", "--latency", "10us")
# A value of each parameter that is not its default, as a user writes it, and the problem that it is tried on.
VALUES: dict[str, tuple[tuple[str, ...], Any]] = {
    "backend": (("torch", "--microbatches", "4"), "torch"),
    "charge": (("edge",), "edge"),
    "chunks": (("2", "--schedule", "interleaved-1f1b"), 2),
    "configuration": (("1",), 1),
    "contiguity": (("convex",), "convex"),
    "device_order": (("free",), "free"),
    "free_kinds": (("device",), ["device"]),
    "in_flight": (("3,2,1",), [3, 2, 1]),
    "leaves": (("merge",), "merge"),
    "max_stages": (("1",), 1),
    "microbatches": (("7",), 7),
    "overflow_bandwidth": (("2GB/s",), 2e9),
    "overlap": (("max",), "max"),
    "recompute": (("choose",), "choose"),
    "regions": (("whole",), "whole"),
    "routing": (("direct",), "direct"),
    "schedule": (("forward-only",), "forward-only"),
    "send": (("once",), "once"),
    "state_factor": (("4",), 4.0),
}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Write a training chain with two columns of costs."""
    path = tmp_path / "two.json"
    CostGraph(
        forward={"device": [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]},
        backward={"device": [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]},
        configurations=[Configuration(), Configuration(tensor_parallel=2)],
        tensors=[Tensor(0, (1,), 1e6), Tensor(1, (2,), 1e6)],
    ).save(path)
    return path


def _stated(command: Command, monkeypatch: pytest.MonkeyPatch, *words: object) -> dict[str, Any]:
    """Return the parameters of the problem that `bound` was asked about."""
    asked: list[Any] = []
    monkeypatch.setattr("balance.lower_bounds", lambda problem, **options: asked.append(problem) or {})
    done = command("bound", *words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = asked[0].to_json()["parameters"]
    return found


def test_every_parameter_of_every_problem_has_an_option() -> None:
    """No parameter of a registered problem is out of reach; what has no option of its own is named here."""
    by_set_only: set[str] = set()
    for kind in list_problems():
        missing = set(kind.parameters()) - set(OWN_PARAMETERS) - {"objective"}
        assert missing <= by_set_only, f"{kind.name}: no option for {missing}"
    assert set(OWN_PARAMETERS) | {"objective"} == set(known_parameters())
    assert set(VALUES) | {"idle"} == set(OWN_PARAMETERS)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_an_option_reaches_the_problem(command: Command, two: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each option of its own sets the parameter of its name, and --set does the same."""
    words, value = VALUES[name]
    option = f"--{name.replace('_', '-')}"
    found = _stated(command, monkeypatch, two, "-d", 2, *LINK, option, *words)
    assert found[name] == value
    again = _stated(command, monkeypatch, two, "-d", 2, *LINK, "--set", f"{name}={json.dumps(value)}", *words[1:])
    assert again == found


def test_idle_is_a_pair_of_options(command: Command, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--no-idle and --set idle=false say the same."""
    assert _stated(command, monkeypatch, two, "-d", 2, *LINK)["idle"] is True
    assert _stated(command, monkeypatch, two, "-d", 2, *LINK, "--no-idle")["idle"] is False
    assert _stated(command, monkeypatch, two, "-d", 2, *LINK, "--set", "idle=false")["idle"] is False


def test_set_takes_the_objective(command: Command, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The objective is a parameter like any other."""
    found = _stated(command, monkeypatch, two, "-d", 2, *LINK, "--set", "objective=fw-bw-bottleneck")
    assert found["objective"] == "fw-bw-bottleneck"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Wide(ChainProblem):
    """A problem of the future with a parameter that no option knows."""

    name: ClassVar[str] = "chain"
    width: int = 1


def test_set_reaches_what_has_no_option(command: Command, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new problem's parameter needs no new option."""
    monkeypatch.setattr("balance.registry.list_problems", lambda: (_Wide,))
    assert _stated(command, monkeypatch, two, "-d", 2, *LINK, "--set", "width=5")["width"] == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "overlp=max"], ["'overlap'", "state_factor", "max_stages"]),
        (["--set", "zzzzzz=1"], ["known:", "overlap", "state_factor"]),
        (["--set", "free-kinds=[]"], ["'free_kinds'"]),
        (["--set", "overlap"], ["NAME=VALUE"]),
        (["--set", "=1"], ["NAME=VALUE"]),
        (["--set", "overlap=max", "--set", "overlap=sum"], ["given twice"]),
        (["--set", "overlap=max", "--overlap", "sum"], ["not both"]),
        (["--set", "objective=cost", "--objective", "cost"], ["not both"]),
        (["--set", "overlap=null"], ["leave it out"]),
        (["--set", "in_flight=" + 9000 * "["], ["in_flight"]),
        (["--set", "state_factor=NaN"], ["state_factor", "nan"]),
        (["--state-factor", "nan"], ["--state-factor"]),
        (["--in-flight", "3,x"], ["4,3,2"]),
        (["--in-flight", ""], ["--in-flight"]),
        (["--in-flight", "9" * 5000], ["--in-flight"]),
        (["--overlap", "both"], ["overlap", "sum", "max"]),
        (["--preset", "mtp"], ["'mtpp'"]),
        (["--contiguity", "none", "--recompute", "choose"], ["recompute"]),
    ],
)
def test_mistakes_are_explained(command: Command, graph: Path, words: list[str], says: list[str]) -> None:
    """A wrong name lists the nearest and the known ones; every mistake is one sentence."""
    done = command("bound", graph, "-d", 2, *LINK, *words)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    text = " ".join(done.stderr.split())
    assert all(part in text for part in says), text
    assert "internal error" not in text


def test_values_are_json_or_text() -> None:
    """What is no JSON is text, so that words need no quotes."""
    assert parse_settings(["a=1.5", "b=[1,2]", 'c="x"', "d=x=y", "e=", "f=true"]) == {
        "a": 1.5, "b": [1, 2], "c": "x", "d": "x=y", "e": "", "f": True,
    }  # fmt: skip
    with pytest.raises(OptionError, match="NAME=VALUE"):
        parse_settings(["a"])


@pytest.mark.parametrize(
    ("verb", "function", "elsewhere"),
    [
        ("solve", solve, {"on_progress"}),
        ("compare", compare, {"solvers"}),
        ("bound", lower_bounds, {"names"}),
    ],
)
def test_options_of_the_front_door_are_options_of_the_command(verb: str, function: Any, elsewhere: set[str]) -> None:
    """Every keyword of the library's function is an option of the command of its name."""
    options = {
        option
        for parameter in get_command(app).commands[verb].params
        for option in parameter.opts  # type: ignore[attr-defined]
    }
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or name in elsewhere:
            continue
        assert f"--{name.replace('_', '-')}" in options, name


def test_a_search_starts_from_a_file(command: Command, graph: Path) -> None:
    """--incumbent takes a plan or a result, and refuses one of another graph."""
    assert command("solve", graph, "-d", 2, *LINK, "--save", "r.json", "--plan", "p.json").exit_code == 0
    for name in ("r.json", "p.json"):
        assert command("solve", graph, "-d", 2, *LINK, "--incumbent", name, "-q").exit_code == 0
    CostGraph.chain([1.0, 2.0]).save("other.json")
    done = command("solve", "other.json", "-d", 2, "--incumbent", "p.json")
    assert (done.exit_code, "incumbent" in done.stderr) == (2, True)
    done = command("solve", graph, "-d", 2, *LINK, "--incumbent", graph)
    assert (done.exit_code, "graph.json" in done.stderr) == (2, True)


def test_an_assignment_is_written_and_checked(command: Command, tmp_path: Path) -> None:
    """An answer without an order of stages can be saved, checked and started from, and has no timeline."""
    path = tmp_path / "diamond.json"
    ends = [(0, (1, 2)), (1, (3,)), (2, (3,))]
    CostGraph(forward=[1.0, 2.0, 3.0, 4.0], tensors=[Tensor(source, to, 1e6) for source, to in ends]).save(path)
    words = ("solve", path, "-d", 2, *LINK, "--contiguity", "none", "-q")
    assert command(*words, "--save", "r.json", "--plan", "a.json").exit_code == 0
    assert command("check", "r.json", path).exit_code == 0
    assert command(*words, "--incumbent", "a.json").exit_code == 0
    for name in ("a.json", "r.json"):
        done = command("simulate", name, path)
        assert (done.exit_code, "no timeline" in " ".join(done.stderr.split())) == (2, True), done.stderr
