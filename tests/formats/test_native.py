"""Our own JSON: graphs and instances, and the two worked examples as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance.problems.formats import read, write
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Link
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan


@pytest.fixture
def instance() -> Instance:
    """Return an instance that uses every field."""
    return Instance(
        CostGraph.chain([1.0, 2.0], bytes=[3.0], backward=[2.0, 4.0], name="pair", source={"by": "hand"}),
        Cluster.hierarchical(2, 2, intra=Link(0.0, 4.0), inter=Link(0.5, 1.0), memory_bytes=100.0),
        "a-preset",
        {"microbatches": 8, "free_kinds": ("cpu",), "overlap": "max", "limits": {"a": 1.5}, "idle": True},
        name="example",
        notes=("one note",),
    )


def test_an_instance_round_trips(instance: Instance, tmp_path: Path) -> None:
    """Every field comes back, tuples as tuples."""
    write(instance, tmp_path / "i.json")
    back = read(tmp_path / "i.json")
    for field in ("graph", "cluster", "preset", "parameters", "name", "notes"):
        assert getattr(back, field) == getattr(instance, field)
    assert back.graph.source == {"by": "hand"}
    assert back.format == "native"


def test_a_bare_graph_reads_as_an_instance(tmp_path: Path) -> None:
    """What CostGraph.save wrote is an instance without devices; a graph alone is written as such."""
    graph = CostGraph.chain([1.0, 2.0], name="pair")
    graph.save(tmp_path / "saved.json")
    assert read(tmp_path / "saved.json").graph == graph
    assert read(tmp_path / "saved.json").cluster is None
    assert read(tmp_path / "saved.json").name == "pair"
    write(graph, tmp_path / "written.json")
    assert CostGraph.load(tmp_path / "written.json") == graph


def test_the_layer_example(small: Path) -> None:
    """The four-layer example reads with its hand-computed numbers."""
    graph = read(small / "layer_graph.json").graph
    assert graph.style == "layers"
    assert graph.names == ("embedding", "attention", "mlp", "head")
    assert float(graph.forward.sum()) == 8.0
    assert float(graph.backward.sum()) == 16.0
    assert graph.tensors.gradient_bytes.tolist() == [6.0, 4.0, 1.0]
    assert float(graph.parameter_bytes.sum()) == 100.0


def test_the_operator_example(small: Path) -> None:
    """The four-operator example keeps its backward operators, colocation and one-way transfers."""
    graph = read(small / "operator_graph.json").graph
    assert graph.style == "operators"
    assert graph.is_backward.tolist() == [False, False, True, True]
    assert graph.colocation.tolist() == [0, 1, 1, 0]
    assert graph.tensors.gradient_bytes.tolist() == [0.0, 0.0, 0.0]
    assert graph.tensors[0].consumers == (1, 3)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["schema"], "dnn-balance/plan", "schema"),
        (["version"], 2, "version"),
        (["surprise"], 1, "surprise"),
        (["parameters"], [], "parameters"),
        (["notes"], [1], "notes[0]"),
        (["preset"], 5, "preset"),
        (["cluster", "count"], 0, "cluster.count"),
        (["cluster", "memory_bytes"], -1, "cluster.memory_bytes"),
        (["cluster", "count"], 10**15, "cluster.count"),
        (["graph", "operators", "count"], 10**15, "graph.operators.count"),
        (["graph", "operators", "forward"], None, "graph.operators.forward"),
        (["graph", "operators", "forward"], [[["a", 1.0]]], "graph.operators.forward[0][0][0]"),
        (["graph", "tensors", "consumers"], [[7]], "graph"),
        (["graph", "tensors", "producer"], [1e300], "graph.tensors.producer[0]"),
        (["graph", "tensors", "producer"], [0.5], "graph.tensors.producer[0]"),
        (["graph", "name"], "other", None),
        (["graph", "hash"], "0" * 64, "graph.hash"),
    ],
)
def test_broken_fields_are_named(
    instance: Instance, tmp_path: Path, path: list[str], value: Any, field: str | None
) -> None:
    """A malformed field gives a FormatError that points at it (renaming a graph breaks nothing)."""
    file = tmp_path / "i.json"
    write(instance, file)
    data = json.loads(file.read_text())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(data))
    if field is None:
        assert read(file).graph.name == "other"
        return
    with pytest.raises(FormatError) as caught:
        read(file)
    assert caught.value.field == field
    assert caught.value.path == str(file)


def test_json_that_is_no_json_names_its_line(tmp_path: Path) -> None:
    """A syntax error names the line; NaN and Infinity are refused."""
    file = tmp_path / "broken.json"
    file.write_text('{"schema": "dnn-balance/graph",\n "version": }')
    with pytest.raises(FormatError, match="is not JSON") as caught:
        read(file)
    assert caught.value.line == 2
    for constant in ("NaN", "-Infinity"):
        file.write_text('{"schema": "dnn-balance/graph", "version": 1, "x": ' + constant + "}")
        with pytest.raises(FormatError, match="not a JSON number"):
            read(file)


def test_what_json_cannot_hold_is_refused(instance: Instance, tmp_path: Path) -> None:
    """Solutions, objects and infinite numbers do not go into our JSON."""
    with pytest.raises(FormatError, match=r"Plan\.save"):
        write(instance, tmp_path / "x.json", solution=Plan.chain([0, 1, 2]))
    with pytest.raises(FormatError, match=r"parameters\.a"):
        write(Instance(instance.graph, parameters={"a": object()}), tmp_path / "x.json")
    with pytest.raises(FormatError, match="finite"):
        write(Instance(instance.graph, parameters={"a": float("inf")}), tmp_path / "x.json")
    with pytest.raises(FormatError, match="source"):
        write(instance.graph.replace(source={"a": np.float64("nan")}), tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_summary_tells_devices_preset_and_notes(instance: Instance) -> None:
    """The summary for people has what the graph's summary lacks."""
    text = instance.summary()
    for part in ("4 x device", "a-preset", "microbatches=8", "note: one note"):
        assert part in text
    assert hash(instance) == hash(instance)


def test_keys_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    """JSON would turn the key 1 into "1"; the file is not written."""
    with pytest.raises(FormatError, match="the key 1; JSON has only texts") as caught:
        write(Instance(CostGraph.chain([1.0]), parameters={"shares": {1: 0.5}}), tmp_path / "x.json")
    assert caught.value.field == "parameters.shares"
