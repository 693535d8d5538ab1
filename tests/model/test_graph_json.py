"""Cost graphs as JSON: columns and rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.errors import FormatError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.graph_json import LARGEST_TABLE
from balance.problems.model.tensors import Tensor


@given(data=st.data())
def test_columns_round_trip(graphs: st.SearchStrategy[CostGraph], data: st.DataObject) -> None:
    """Any graph survives JSON text bit for bit: the stored hash is checked on the way in."""
    graph = data.draw(graphs)
    text = json.dumps(graph.to_json(), allow_nan=False)
    again = CostGraph.from_json(json.loads(text))
    assert again == graph
    assert (again.name, again.source) == (graph.name, graph.source)


def test_saving_and_loading(layers: CostGraph, tmp_path: Path) -> None:
    """A saved graph loads equal, with its source."""
    layers.replace(source={"from": "hand"}).save(tmp_path / "g.json")
    again = CostGraph.load(tmp_path / "g.json")
    assert again == layers
    assert again.source == {"from": "hand"}


def test_whole_numbers_of_configurations_keep_the_hash() -> None:
    """A micro-batch size given as an integer is a float in the file and the same graph."""
    graph = CostGraph.chain([1.0], configurations=[Configuration(microbatch_size=4)])
    assert CostGraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


def test_constant_columns_are_one_number() -> None:
    """A large regular graph makes a small file."""
    data = CostGraph.chain([1.0] * 10_000, backward=2.0, bytes=3.0).to_json()
    assert data["operators"]["forward"] == [[1.0]]
    assert data["tensors"]["bytes"] == 3.0
    assert "parameter_bytes" not in data["operators"]
    assert data["schema"] == "dnn-balance/graph"
    assert data["version"] == 1


def test_rows_say_the_same_as_columns(layers: CostGraph) -> None:
    """The form that people write gives the same graph, with names, mappings and single readers."""
    rows = {
        "schema": "dnn-balance/graph",
        "version": 1,
        "operators": [
            {
                "name": "embedding",
                "forward": {"device": 1},
                "backward": 2,
                "parameter_bytes": 10,
                "activation_bytes": 4,
            },
            {
                "name": "attention",
                "forward": 2,
                "backward": {"device": 4},
                "parameter_bytes": 20,
                "activation_bytes": 8,
            },
            {"name": "mlp", "forward": 3, "backward": 6, "parameter_bytes": 30, "activation_bytes": 8},
            {"name": "head", "forward": 2, "backward": 4, "parameter_bytes": 40, "activation_bytes": 2},
        ],
        "tensors": [
            {"producer": "embedding", "consumers": ["attention", 3], "bytes": 6},
            {"producer": 1, "consumers": "mlp", "bytes": 4},
            {"producer": "mlp", "consumers": 3, "bytes": 2, "gradient_bytes": 1, "name": None},
        ],
    }
    assert CostGraph.from_json(rows) == layers


def row(**fields: Any) -> dict[str, Any]:
    """Return a row-form graph with one operator, changed."""
    return {"schema": "dnn-balance/graph", "version": 1, "operators": [{"forward": 1.0, **fields}]}


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ([], None, "expected an object"),
        ({}, "schema", "missing"),
        ({**row(), "schema": "dnn-balance/plan"}, "schema", "expected 'dnn-balance/graph'"),
        ({**row(), "version": 2}, "version", "this release reads version 1"),
        ({**row(), "extra": 1}, "extra", "not a known field"),
        ({**row(), "source": []}, "source", "expected an object"),
        ({**row(), "source": {"a": float("inf")}}, "source.a", "finite"),
        ({**row(), "kinds": [1]}, "kinds[0]", "expected a string"),
        ({**row(), "configurations": [{}, {"recompute": True}]}, "configurations", "one plain configuration"),
        ({**row(), "configurations": [{"tensor_parallel": 0}]}, "configurations[0].tensor_parallel", "at least 1"),
        (row(forward=None), "operators[0].forward", "is missing"),
        (row(forward={"device": "x"}), "operators[0].forward.device", "expected a number"),
        (row(backward=-1), "operators[0].backward", "at least 0"),
        (row(static_bytes=float("nan")), "operators[0].static_bytes", "finite"),
        (row(colocation=[]), "operators[0].colocation", "expected a string or an integer"),
        (row(pinned=0.5), "operators[0].pinned", "whole number"),
        (row(is_backward="no"), "operators[0].is_backward", "true or false"),
        (row(foreward=1), "operators[0].foreward", "did you mean 'forward'"),
        ({**row(), "tensors": [{"producer": 0, "consumers": []}]}, None, "no consumer"),
        ({**row(), "tensors": [{"producer": 0, "consumers": [0]}]}, None, "own producer"),
        ({**row(), "tensors": [{"producer": "x", "consumers": [0]}]}, None, "there is no operator 'x'"),
        ({**row(), "tensors": [{"producer": 0, "consumers": [None]}]}, "tensors[0].consumers[0]", "expected a number"),
        ({**row(), "tensors": [{"consumers": [0]}]}, "tensors[0].producer", "missing"),
    ],
)
def test_bad_rows_are_refused(data: Any, field: str | None, message: str) -> None:
    """Each defect is named with its field."""
    with pytest.raises(FormatError, match=message) as caught:
        CostGraph.from_json(data)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("operators", "count", -1, "at least 0"),
        ("operators", "count", 5, "has 4 entries, expected 5"),
        ("operators", "names", ["a"], "has 1 entries, expected 4"),
        ("operators", "names", ["a", "b", "c", 4], "expected a string"),
        ("operators", "forward", [], "one list per kind"),
        ("operators", "forward", [[]], "one column per configuration"),
        ("operators", "forward", [[[1, 2, 3]]], "has 3 entries, expected 4"),
        ("operators", "backward", [[[1, 2, 3, -4]]], "at least 0"),
        ("operators", "parameter_bytes", [[1, None, 3, 4]], "expected a number"),
        ("operators", "is_backward", [0, 0, 0, "false"], "expected true or false"),
        ("operators", "is_backward", [True], "must have shape"),
        ("operators", "colocation", [0], "colocation labels"),
        ("operators", "pinned", "x", "expected a list"),
        ("operators", "color", 1, "not a known field"),
        ("tensors", "producer", [0, 1, 1e300], "whole number"),
        ("tensors", "consumers", [[1], [2]], "has 2 entries, expected 3"),
        ("tensors", "consumers", [[1], 2, [3]], "list of operators"),
        ("tensors", "bytes", [1.0], "has 1 entries"),
        ("tensors", "names", [1, 2, 3], "expected a string"),
        ("tensors", "names", ["a"], "tensor names"),
        ("tensors", "seconds", [1, 1, -1], "at least 0"),
    ],
)
def test_bad_columns_are_refused(layers: CostGraph, part: str, field: str, value: Any, message: str) -> None:
    """Each defect of a column is refused before anything is built from it."""
    data = layers.to_json()
    data[part][field] = value
    with pytest.raises(FormatError, match=message):
        CostGraph.from_json(data)


def test_counts_that_would_fill_the_memory_are_refused() -> None:
    """A few bytes of text cannot ask for tables of gigabytes."""
    data = CostGraph.chain([1.0, 1.0]).to_json()
    for count in (LARGEST_TABLE + 1, 10**15):
        data["operators"]["count"] = count
        with pytest.raises(FormatError, match=r"operators\.count: asks for tables of more than"):
            CostGraph.from_json(data)


def test_a_changed_file_is_noticed(layers: CostGraph) -> None:
    """The stored hash guards the content; without it the change is accepted."""
    data = layers.to_json()
    data["operators"]["forward"] = [[5.0]]
    with pytest.raises(FormatError, match="does not match the content"):
        CostGraph.from_json(data)
    del data["hash"]
    assert CostGraph.from_json(data).forward.sum() == 20.0


def test_several_tables_survive(tmp_path: Path) -> None:
    """Kinds, configurations, infinities and given seconds all come back."""
    graph = CostGraph(
        forward={"a": [[1.0, 2.0], [3.0, float("inf")]], "b": [[float("inf"), 1.0]] * 2},
        backward_input={"a": 1.0, "b": 2.0},
        configurations=[Configuration(), Configuration(2, True, 8)],
        tensors=[Tensor(0, (1,), 1.0, None, 2.0, name="t")],
    )
    graph.save(tmp_path / "g.json")
    assert CostGraph.load(tmp_path / "g.json") == graph
