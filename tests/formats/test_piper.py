"""Piper's workloads: the published file, a hand-written one, and everything that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance.problems.formats import read, write
from balance.problems.formats._quantities import exact_third, milliseconds
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan


def test_the_published_file(workloads: Path) -> None:
    """bert32a100: 37 nodes, 67 edges, four degrees with and without recomputation, 0.973 s per sample."""
    instance = read(workloads / "piper" / "bert32a100.json")
    graph, cluster = instance.graph, instance.cluster
    assert (graph.n_operators, graph.n_tensors, graph.style) == (37, 67, "layers")
    assert graph.configurations == tuple(Configuration(t, r) for t in (1, 2, 4, 8) for r in (False, True))
    assert float((graph.forward[0, 0] + graph.backward[0, 0]).sum()) == pytest.approx(0.972864, abs=1e-9)
    assert cluster == Cluster.uniform(10, memory_bytes=8e10, bandwidth=2.5e10)
    assert instance.preset == "piper-2021"
    assert instance.parameters["microbatches"] == 1920
    assert len(instance.notes) == 1


def test_the_published_file_round_trips_exactly(workloads: Path, tmp_path: Path) -> None:
    """The JSON that is written is the JSON that was read, bit for bit of every number."""
    path = workloads / "piper" / "bert32a100.json"
    instance = read(path)
    write(instance, tmp_path / "out.json", "piper")
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())
    assert read(tmp_path / "out.json").graph == instance.graph


def test_the_small_file(small: Path) -> None:
    """Columns are shared, a missing way is infinite, edges are tensors of their own."""
    instance = read(small / "small_piper.json")
    graph = instance.graph
    assert graph.configurations == (Configuration(1, False), Configuration(1, True), Configuration(2, False))
    total = graph.forward[0] + graph.backward[0]
    assert total.tolist() == [[0.3, 0.7], [np.inf, 0.9], [np.inf, 0.4]]
    assert graph.forward[0, 0] == pytest.approx([0.1, 0.7 / 3], rel=1e-7)
    assert graph.activation_bytes.tolist() == [[8.0, 16.0], [0.0, 4.0], [0.0, 8.0]]
    assert graph.static_bytes.tolist() == [[80.0, 100.0], [0.0, 112.0], [0.0, 50.0]]
    assert graph.sync_bytes.tolist() == [[40.0, 50.0], [0.0, 50.0], [0.0, 25.0]]
    assert not graph.parameter_bytes.any()
    assert graph.tensors.bytes.tolist() == graph.tensors.gradient_bytes.tolist() == [24.0]
    assert graph.source["ways"][1][2]["syncTimeBw"] == {"2": 12.0}
    assert instance.parameters["microbatches"] == 16


def test_the_small_file_round_trips_exactly(small: Path, tmp_path: Path) -> None:
    """Ids, extra fields, synchronisation bytes and the name of the batch field come back."""
    write(read(small / "small_piper.json"), tmp_path / "out.json", "piper")
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads((small / "small_piper.json").read_text())


def edited(small: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Return the small file with an edit."""
    data = json.loads((small / "small_piper.json").read_text())
    edit(data)
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data))
    return path


def test_both_batch_fields(small: Path, tmp_path: Path) -> None:
    """The fields mbsInBatch and maxBatchSize mean the same; they may stand side by side if they agree."""
    path = edited(small, tmp_path, lambda d: d.update(mbsInBatch=16))
    assert read(path).parameters["microbatches"] == 16
    with pytest.raises(FormatError, match="they mean the same"):
        read(edited(small, tmp_path, lambda d: d.update(mbsInBatch=8)))


def test_milliseconds_are_noticed(small: Path, tmp_path: Path) -> None:
    """A network that takes many seconds per sample is probably given in milliseconds."""
    path = edited(small, tmp_path, lambda d: d["nodes"][0]["TMPCs"]["1"][0].update(timePerSample=300.0))
    assert any("milliseconds" in note for note in read(path).notes)


@pytest.mark.parametrize(
    ("edit", "field", "message"),
    [
        (lambda d: d.pop("maxBatchSize"), "mbsInBatch", "missing"),
        (lambda d: d.update(maxBatchSize=0), "maxBatchSize", "at least 1"),
        (lambda d: d.update(bandwidth=0), "bandwidth", "positive"),
        (lambda d: d.update(maxDevices=10**9), "maxDevices", "more than"),
        (lambda d: d.update(nodes=[]), "nodes", "empty"),
        (lambda d: d["nodes"][1].update(id=2), "nodes[1].id", "has already"),
        (lambda d: d["nodes"][1].update(TMPCs=[]), "nodes[1].TMPCs", "expected an object"),
        (lambda d: d["nodes"][1]["TMPCs"].update({"0": []}), "nodes[1].TMPCs.0", "degree"),
        (lambda d: d["nodes"][1]["TMPCs"].update({"2": {}}), "nodes[1].TMPCs.2", "expected a list"),
        (
            lambda d: d["nodes"][1]["TMPCs"]["1"][1].update(id="plain"),
            "nodes[1].TMPCs.1[1].id",
            "second way with degree 1 without",
        ),
        (
            lambda d: d["nodes"][1]["TMPCs"]["2"][0].update(timePerSample="fast"),
            "nodes[1].TMPCs.2[0].timePerSample",
            "expected a number",
        ),
        (
            lambda d: d["nodes"][1]["TMPCs"]["2"][0].update(syncTimeBw={"2": -1}),
            "nodes[1].TMPCs.2[0].syncTimeBw.2",
            "at least 0",
        ),
        (lambda d: d["nodes"][1]["TMPCs"]["2"][0].update(syncTimeFw=[]), "nodes[1].TMPCs.2[0].syncTimeFw", "object"),
        (lambda d: [node.update(TMPCs={}) for node in d["nodes"]], "nodes[0].TMPCs", "no node has any way"),
        (lambda d: d["edges"][0].update(destId=3), "edges[0].destId", "does not exist"),
        (lambda d: d["edges"][0].update(destId=2), "edges[0].destId", "itself"),
        (lambda d: d["edges"][0].pop("communicationCost"), "edges[0].communicationCost", "missing"),
        (lambda d: d["edges"].append({"sourceId": 7, "destId": 2, "communicationCost": 1}), None, "cycle"),
    ],
)
def test_broken_files_are_refused(
    small: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object], field: str | None, message: str
) -> None:
    """Each defect is named with its field."""
    with pytest.raises(FormatError, match=message) as caught:
        read(edited(small, tmp_path, edit), "piper")
    assert caught.value.field == field


def test_many_ways_are_refused_before_the_memory_fills(tmp_path: Path) -> None:
    """Nodes with ever new degrees would make a quadratic table; it is refused by its size."""
    way = {"id": "v", "timePerSample": 1, "parameterSize": 0, "memoryUsageA": 0, "memoryUsageB": 0}
    nodes = [{"id": i, "TMPCs": {str(i + 1): [way]}} for i in range(8000)]
    path = tmp_path / "wide.json"
    path.write_text(
        json.dumps(
            {"maxDevices": 1, "maxMemoryPerDevice": 1, "bandwidth": 1, "mbsInBatch": 1, "nodes": nodes, "edges": []}
        )
    )
    with pytest.raises(FormatError, match="table entries"):
        read(path)


def test_a_graph_from_elsewhere_is_written_with_edges(tmp_path: Path) -> None:
    """A layer graph without Piper's source gets ids, default TMPC names and one edge per reader."""
    graph = CostGraph.chain([1.0, 2.0], backward=[2.0, 4.0], bytes=3.0, activation_bytes=5.0)
    instance = Instance(graph, Cluster.uniform(2, memory_bytes=9.0, bandwidth=1.0), parameters={"microbatches": 4})
    write(instance, tmp_path / "x.json", "piper")
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["nodes"][1]["TMPCs"]["1"][0]["timePerSample"] == 6.0
    assert data["edges"] == [{"sourceId": 0, "destId": 1, "communicationCost": 3.0}]
    assert read(tmp_path / "x.json").parameters["microbatches"] == 4


LINKED = Cluster.uniform(2, memory_bytes=9.0, bandwidth=1.0)


@pytest.mark.parametrize(
    ("graph", "cluster", "message"),
    [
        (CostGraph.chain([1.0]), None, "names its devices"),
        (CostGraph.chain([1.0]), Cluster.uniform(2, memory_bytes=9.0), "equal devices and links"),
        (CostGraph.chain([1.0]), Cluster([Device("a", 1.0), Device("b", 1.0)]), "equal devices"),
        (CostGraph.chain([1.0]), Cluster.uniform(2, bandwidth=1.0), "finite memory"),
        (CostGraph.chain([1.0]), Cluster.uniform(2, memory_bytes=1.0, latency=1.0, bandwidth=1.0), "latency"),
        (CostGraph.chain({"a": [1.0], "b": [1.0]}), LINKED, "one device kind"),
        (CostGraph.chain([1.0, 1.0], is_backward=[False, True]), LINKED, "backward operators"),
        (CostGraph.chain([1.0], pinned=[0]), LINKED, "pinned"),
        (CostGraph.chain([1.0], parameter_bytes=1.0), LINKED, "static, activation"),
        (CostGraph.chain([1.0, 1.0], seconds=1.0), LINKED, "not times"),
        (CostGraph.chain([1.0, 1.0], bytes=1.0), LINKED, "gradients as large"),
        (CostGraph.chain([1.0], configurations=[Configuration(microbatch_size=2)]), LINKED, "micro-batch sizes"),
    ],
)
def test_what_the_format_cannot_say_is_refused(
    tmp_path: Path, graph: CostGraph, cluster: Cluster | None, message: str
) -> None:
    """Writing never drops a part of the graph in silence."""
    with pytest.raises(FormatError, match=message):
        write(Instance(graph, cluster, parameters={"microbatches": 1}), tmp_path / "x.json", "piper")


def test_fields_named_like_our_own_survive(small: Path, tmp_path: Path) -> None:
    """A way's extra fields may be called what the reader calls its own."""
    extra = {"degree": "x", "recompute": [1], "fields": {"a": 1}}
    path = edited(small, tmp_path, lambda d: d["nodes"][1]["TMPCs"]["2"][0].update(extra))
    assert write(read(path), tmp_path / "out.json", "piper") == ()
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())


def test_piper_has_no_solutions(small: Path, tmp_path: Path) -> None:
    """A solution goes into a file of its own."""
    with pytest.raises(FormatError, match=r"Plan\.save"):
        write(read(small / "small_piper.json"), tmp_path / "x.json", "piper", solution=Plan.chain([0, 1, 2]))


def test_thirds_add_up_and_milliseconds_read_back() -> None:
    """The two conversions lose nothing, from the smallest to the largest number."""
    values = [0.0, 5e-324, 1e-310, 0.1, 0.030473999999999994, 1.0, 3.0, 1e22, 1.7e305]
    rng = np.random.default_rng(0)
    for value in [*values, *rng.random(2000), *(10.0 ** rng.uniform(-300, 300, 2000))]:
        third = exact_third(float(value))
        assert third + (float(value) - third) == value
        assert third == pytest.approx(value / 3, rel=1e-6, abs=1e-322)
        if value < 1e305:
            assert milliseconds(float(value) / 1000.0) / 1000.0 == float(value) / 1000.0
