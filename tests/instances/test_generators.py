"""The list of generators: complete, by name, and strict about arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from balance.problems import instances
from balance.problems.instances import Generator, generate, list_generators
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph

NEEDED: dict[str, Any] = {
    "operators": 12, "layers": 2, "hidden": 8, "heads": 2, "vocabulary": 10, "sequence": 4, "model": "gpt2-small",
}  # fmt: skip


@pytest.mark.parametrize("generator", list_generators(), ids=lambda g: g.name)
def test_every_generator_runs_on_what_it_needs(generator: Generator) -> None:
    """With its required arguments alone each generator gives a graph, the same one every time."""
    given = {key: NEEDED[key] for key, value in generator.parameters.items() if value is inspect.Parameter.empty}
    graph = generate(generator.name, given)
    assert isinstance(graph, CostGraph)
    assert graph.hash == generator.make(**given).hash
    assert graph.source["generator"]
    assert generator.about.endswith(".")


def test_every_public_function_that_makes_a_graph_is_listed() -> None:
    """Nobody forgets to list a generator; `generate` itself and the one that takes a shape object are none."""
    makers = {
        name
        for name in instances.__all__
        if inspect.isfunction(getattr(instances, name))
        and inspect.signature(getattr(instances, name)).return_annotation == "CostGraph"
    }
    names = [generator.name for generator in list_generators()]
    assert makers - {"generate", "shape_graph"} == set(names)
    assert names == sorted(names)


def test_exports_exist() -> None:
    """Every public name is there, once."""
    assert len(set(instances.__all__)) == len(instances.__all__)
    assert all(hasattr(instances, name) for name in instances.__all__)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("transfomer", {}, "did you mean 'transformer'"),
        (None, {}, "no generator None"),
        ("random_chain", {"operator": 3}, "has no parameter 'operator' .did you mean 'operators'"),
        ("random_chain", {"operators": 3, 7: 1}, "has no parameter 7"),
        ("random_chain", None, "random_chain needs a value for operators"),
        ("transformer", {"layers": 3}, "needs a value for hidden, heads, vocabulary, sequence"),
    ],
)
def test_wrong_names_give_the_nearest(name: Any, parameters: Any, message: str) -> None:
    """Unknown generators and arguments and missing arguments are errors that help."""
    with pytest.raises(OptionError, match=message):
        generate(name, parameters)
