"""Tests of the question: what is asked, of whom, and what is refused."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from balance import (
    Assignment,
    Cluster,
    CostGraph,
    Device,
    Instance,
    Link,
    Plan,
    Problem,
    Result,
    check,
    compare,
    list_problems,
    list_solvers,
    lower_bounds,
    registry,
    solve,
    state_problem,
)
from balance.problems.chain import ChainProblem
from balance.problems.cut import CutProblem
from balance.problems.model.errors import BalanceError, FormatError, OptionError, ProblemError
from balance.problems.model.tensors import Tensor

Install = Callable[..., None]


@pytest.mark.parametrize("ask", [solve, state_problem, compare, lower_bounds])
def test_unknown_options_name_the_nearest(ask: Callable[..., Any], problem: ChainProblem) -> None:
    """A misspelt option is never swallowed."""
    with pytest.raises(OptionError, match=r"devces.*devices"):
        ask(problem.graph, devces=3)


def test_unknown_limit_names_time_limit(problem: ChainProblem) -> None:
    """The example of the documentation."""
    with pytest.raises(OptionError, match=r"'time_limt' \(did you mean 'time_limit'\?\)"):
        solve(problem.graph, 4, time_limt=3)  # type: ignore[arg-type]


def test_every_parameter_of_the_problems_is_an_option() -> None:
    """A problem that answers an objective and gains a parameter must gain an option."""
    for function in (solve, state_problem):
        options = set(inspect.signature(function).parameters)
        for kind in list_problems():
            if kind.objectives:
                assert set(kind.parameters()) <= options


def test_a_number_of_devices() -> None:
    """A number means devices of the graph's only kind, memory unlimited."""
    stated = state_problem(CostGraph.chain({"gpu": [1.0, 2.0]}), 3)
    assert stated.cluster.n_devices == 3
    assert stated.cluster.device(0) == Device("gpu", math.inf, host=0)
    assert state_problem(CostGraph.chain([1.0, 2.0]), np.int64(3)).cluster.n_devices == 3  # type: ignore[arg-type]


def test_a_number_of_devices_of_several_kinds_is_not_clear() -> None:
    """Two kinds: the error names them and says what to give."""
    graph = CostGraph.chain({"gpu": [1.0, 2.0], "cpu": [3.0, 4.0]})
    with pytest.raises(OptionError, match=r"several kinds \(gpu, cpu\)"):
        solve(graph, 4)
    assert solve(graph, [Device("gpu"), Device("cpu")]).objective == 3.0


def test_bytes_without_a_link_are_never_free() -> None:
    """Tensors with bytes need a link speed; the error says how to give one."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9)
    with pytest.raises(ProblemError, match=r"bandwidth=.*latency="):
        solve(graph, 2)
    with pytest.raises(ProblemError, match="bandwidth="):
        solve(graph, [Device()] * 2)
    with pytest.raises(OptionError, match="bandwidth"):
        solve(graph, 2, latency=1e-6)
    assert solve(graph, 2, bandwidth=1e9).objective == pytest.approx(4.0)
    assert solve(graph, 2, bandwidth=1e9, latency=0.5).objective == pytest.approx(4.5)
    assert solve(graph, 1).objective == 6.0  # one device: nothing is sent


def test_given_seconds_and_zero_bytes_need_no_link() -> None:
    """Formats that carry times are solved as they are."""
    assert solve(CostGraph.chain([1.0, 2.0, 3.0]), 2).objective == 3.0
    assert solve(CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9, seconds=1.0), 2).objective == pytest.approx(4.0)


def test_links_of_the_instance_are_taken() -> None:
    """devices=4 of an instance with uniform links means four devices with those links."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], bytes=1e9)
    instance = Instance(graph, Cluster([Device()] * 2, link=Link(0.5, 1e9)))
    assert state_problem(instance, 3).cluster.link(0, 1) == Link(0.5, 1e9)
    assert state_problem(instance, [Device(memory_bytes=9.0)] * 3).cluster.link(0, 1) == Link(0.5, 1e9)
    assert state_problem(instance).cluster.n_devices == 2
    uneven = Instance(graph, Cluster.hierarchical(1, 2, intra=Link(0.0, 1e9), inter=Link(0.5, 1e8)))
    with pytest.raises(ProblemError, match="bandwidth="):
        solve(uneven, 3)


def test_an_instance_brings_its_parameters() -> None:
    """The file's parameters hold unless told otherwise; those of other problems are named in a note."""
    graph = CostGraph.chain([1.0, 2.0, 3.0], backward=[1.0, 1.0, 1.0])
    parameters = {"objective": "fw-bw-bottleneck", "microbatches": 7, "contiguity": "ideal"}
    instance = Instance(graph, Cluster.uniform(2), preset="published", parameters=parameters, notes=("odd units",))
    result = solve(instance)
    assert isinstance(result.problem, ChainProblem)
    assert (result.problem.objective, result.problem.microbatches) == ("fw-bw-bottleneck", 7)
    notes = " ".join(result.provenance["notes"])
    assert "odd units" in notes
    assert "'published'" in notes
    assert "'contiguity'" in notes
    told = state_problem(instance, objective="bottleneck", microbatches=3)
    assert isinstance(told, ChainProblem)
    assert (told.objective, told.microbatches) == ("bottleneck", 3)


def test_a_path_is_read(tmp_path: Path) -> None:
    """A file of any format is asked like an instance; a missing one is a format error."""
    CostGraph.chain([1.0, 2.0, 3.0]).save(tmp_path / "graph.json")
    assert solve(tmp_path / "graph.json", 2).objective == 3.0
    assert solve(str(tmp_path / "graph.json"), 2).objective == 3.0
    with pytest.raises(FormatError, match=r"missing\.json"):
        solve(tmp_path / "missing.json", 2)


def test_a_problem_says_everything_itself(problem: ChainProblem) -> None:
    """Options of the question beside a problem are refused, not ignored."""
    assert solve(problem).objective == 4.0
    for option in ({"devices": 3}, {"microbatches": 2}, {"bandwidth": 1.0}, {"objective": "bottleneck"}):
        with pytest.raises(OptionError, match=next(iter(option))):
            solve(problem, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["step-time", "cost", "latency"])
def test_objectives_to_come_are_refused_honestly(objective: str) -> None:
    """An objective whose problem is not there yet says which objectives are answered."""
    if any(objective in kind.objectives for kind in list_problems()):
        pytest.skip(f"{objective} is answered")
    with pytest.raises(ProblemError, match=r"it answers bottleneck, fw-bw-bottleneck"):
        solve(CostGraph.chain([1.0, 2.0]), 2, objective=objective)


def test_misspelt_objective() -> None:
    """The nearest objective is named."""
    with pytest.raises(OptionError, match="did you mean 'bottleneck'"):
        solve(CostGraph.chain([1.0]), 2, objective="botleneck")


def test_what_is_no_chain_is_said() -> None:
    """A graph that is no chain, asked with what only chains have, tells why neither problem applies."""
    fork = CostGraph(forward=[1.0] * 4, tensors=[Tensor(0, (1, 2)), Tensor(1, (3,)), Tensor(2, (3,))])
    assert solve(fork, 2).problem.name == "cut"
    with pytest.raises(
        OptionError, match=r"'cut' has no parameter 'recompute'.*'chain' does not apply: the graph is not"
    ):
        solve(fork, 2, recompute="always")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3,), {}),
        ((CostGraph.chain([1.0]),), {}),
        ((CostGraph.chain([1.0]), 0), {}),
        ((CostGraph.chain([1.0]), True), {}),
        ((CostGraph.chain([1.0]), 1.5), {}),
        ((CostGraph.chain([1.0]), "four"), {}),
        ((CostGraph.chain([1.0]), [1, 2]), {}),
        ((CostGraph.chain([1.0]), []), {}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": -1.0}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": "fast"}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": 1.0, "latency": -1.0}),
        ((CostGraph.chain([1.0]), 2), {"time_limit": "soon"}),
        ((CostGraph.chain([1.0]), 2), {"microbatches": 0}),
        ((CostGraph.chain([1.0]), 2), {"microbatches": "many"}),
        ((CostGraph.chain([1.0]), 2), {"in_flight": 3}),
        ((CostGraph.chain([1.0]), 2), {"schedule": "1fb1"}),
        ((CostGraph.chain([1.0]), 2), {"solver": "nobody"}),
        ((CostGraph.chain([1.0]), 2), {"solver": None}),
        ((CostGraph.chain([1.0]), 2), {"incumbent": "a plan"}),
        ((CostGraph.chain([1.0]), 2), {"incumbent": Assignment([0])}),
        ((CostGraph.chain([1.0]), 10**30), {}),
        ((CostGraph.chain([1.0]), [Device(name="x")] * 2), {}),
        ((CostGraph.chain([1.0]), {"gpu": 2}), {}),
        ((CostGraph.chain([1.0]), np.array([Device()])), {}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": True}),
        ((CostGraph.chain([1.0]), 2), {"bandwidth": np.complex128(1)}),
        ((CostGraph.chain([1.0]), 2), {"time_limit": math.nan}),
        ((CostGraph.chain([1.0]), 2), {"gap": math.nan}),
        ((CostGraph.chain([1.0]), 2), {"seed": -1}),
        ((CostGraph.chain([1.0]), 2), {"seed": 1.0}),
        ((CostGraph.chain([1.0]), 2), {"threads": 0}),
        ((CostGraph.chain([1.0]), 2), {"threads": 10**6}),
        ((CostGraph.chain([1.0]), 2), {"objective": []}),
        ((CostGraph.chain([1.0]), 2), {"preset": []}),
        ((CostGraph.chain([1.0]), 2), {"configuration": True}),
    ],
)
def test_wrong_input_is_explained(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Every mistake is an error of our own with a sentence, never a traceback from inside."""
    with pytest.raises(BalanceError) as caught:
        solve(*arguments, **options)
    assert len(str(caught.value)) > 15


def test_a_pickle_holds_the_question_only() -> None:
    """What a problem has derived from its graph stays behind, and is derived again."""
    for kind in list_problems():
        problem = kind(graph=CostGraph.chain([1.0] * 500), cluster=Cluster.uniform(2))
        before = len(pickle.dumps(problem))
        solve(problem)
        assert len(pickle.dumps(problem)) == before
        again = pickle.loads(pickle.dumps(problem))
        assert set(vars(again)) == {"graph", "cluster", *kind.parameters()}
        assert solve(again).objective == solve(problem).objective


@pytest.mark.parametrize(
    "ask",
    [
        lambda graph: compare(graph, 2, solvers=3),
        lambda graph: compare(graph, 2, solvers=[[]]),
        lambda graph: compare(graph, 2, time_limit=-1),
        lambda graph: compare(graph, 2, gap="1 %"),
        lambda graph: lower_bounds(graph, 2, names=3),
        lambda graph: lower_bounds(graph, 2, names=[3]),
        lambda graph: lower_bounds(graph, 2, time_limit="soon"),
        lambda graph: list_solvers(3),
        lambda graph: list_solvers(Problem),
        lambda graph: list_solvers(graph),
        lambda graph: check(3, graph),
        lambda graph: check(solve(graph, 2), "graph.json"),
        lambda graph: Result.from_json(solve(graph, 2).to_json(), None),
        lambda graph: solve(graph, 2, incumbent=solve(graph, 2, time_limit=0)),
    ],
)
def test_wrong_input_of_other_doors_is_explained(ask: Callable[[CostGraph], object]) -> None:
    """The same of `compare`, `lower_bounds`, `list_solvers`, `check` and results."""
    with pytest.raises((OptionError, ProblemError)) as caught:
        ask(CostGraph.chain([3.0, 1.0, 2.0]))
    assert len(str(caught.value)) > 15


def test_limits_of_any_size_reach_the_engine() -> None:
    """Numbers that an engine's own types do not hold are cut to what they do."""
    graph = CostGraph.chain([3.0, 1.0, 2.0])
    assert solve(graph, 2, solver="milp", node_limit=10**12, seed=2**70).objective == 3.0


@dataclass(frozen=True, kw_only=True)
class _Other(Problem):
    """A problem of another distribution, with a parameter of its own, for graphs without tensors that send."""

    name = "other"
    solution_type = Plan
    objectives: ClassVar[Mapping[str, int]] = {"bottleneck": 5, "peak": 1}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mtpp": {"schedule": "gpipe"}}

    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        if len(self.graph.tensors) > 2:
            raise OptionError("more than two tensors are for others")


def test_a_problem_announces_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objectives and presets are those of the classes; preference decides, and who does not apply passes it on."""
    monkeypatch.setattr(registry, "_problem_types", lambda: {"chain": ChainProblem, "cut": CutProblem, "other": _Other})
    small, large = CostGraph.chain([1.0] * 3), CostGraph.chain([1.0] * 4)
    assert [state_problem(graph, 2).name for graph in (small, large)] == ["other", "chain"]
    assert state_problem(small, 2, objective="peak").name == "other"
    assert state_problem(small, 2, objective="fw-bw-bottleneck").name == "chain"
    assert state_problem(small, 2, recompute="always").name == "chain"
    assert state_problem(small, 2, contiguity="convex").name == "cut"
    preset = state_problem(small, 2, preset="mtpp")
    assert isinstance(preset, _Other)
    assert preset.schedule == "gpipe"
    assert state_problem(large, 2, preset="mtpp").name == "cut"
    with pytest.raises(OptionError, match="did you mean 'peak'"):
        solve(small, 2, objective="peek")
    with pytest.raises(OptionError, match="preset 'per-edge' is one of problem 'cut'"):
        solve(small, 2, objective="peak", preset="per-edge")
