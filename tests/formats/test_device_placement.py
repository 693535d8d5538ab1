"""The device-placement workloads: published files, a hand-written one, splits, and everything that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance.problems.formats import read, write
from balance.problems.formats.device_placement import read_split
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan, Replica, Stage
from balance.problems.model.tensors import Tensor

# file, nodes, edges, accelerators, CPUs, milliseconds on accelerators, factor of CPUs
PUBLISHED = [
    ("throughput/layer/bert24_inference", 32, 55, 6, 1, 92.406, 10),
    ("throughput/layer/bert24_training", 64, 110, 6, 1, 217.813, 10),
    ("throughput/layer/gnmt_inference", 96, 122, 6, 1, 182.563, 10),
    ("throughput/layer/inceptionv3_inference", 326, 363, 6, 1, 310.969, 10),
    ("throughput/layer/resnet50_inference", 177, 193, 6, 1, 201.45, 10),
    ("throughput/operator/bert_l-3_inference", 235, 250, 3, 1, 49.3526, 23),
    ("throughput/operator/bert_l-3_training", 600, 817, 3, 1, 122.987, 23),
    ("throughput/operator/bert_l-6_training", 1071, 1462, 3, 1, 192.917, 23),
    ("throughput/operator/resnet50_training", 1243, 1806, 6, 1, 684.891, 23),
    ("latency/layer/bert24_inference", 32, 55, 5, 8, 92.406, 10),
    ("latency/layer/resnet50_inference", 177, 193, 14, 8, 201.45, 10),
    ("latency/operator/bert_l-3_inference", 235, 250, 4, 8, 49.3526, 23),
    ("latency/operator/bert_l-6_inference", 418, 448, 6, 8, 77.4615, 23),
]


@pytest.mark.parametrize(("file", "nodes", "edges", "accelerators", "cpus", "ms", "factor"), PUBLISHED)
def test_published_files(
    workloads: Path, file: str, nodes: int, edges: int, accelerators: int, cpus: int, ms: float, factor: int
) -> None:
    """Every published workload reads with the counts and time sums of the literature."""
    instance = read(workloads / "device-placement" / f"{file}.json")
    graph, cluster = instance.graph, instance.cluster
    assert instance.preset == "device-placement-2020"
    assert (graph.n_operators, graph.tensors.n_pins) == (nodes, edges)
    assert cluster is not None
    assert [d.kind for d in cluster.devices] == ["accelerator"] * accelerators + ["cpu"] * cpus
    assert np.isinf(cluster.memory_bytes[accelerators:]).all()
    assert np.isfinite(cluster.memory_bytes[:accelerators]).all()
    seconds = graph.forward[:, 0].sum(axis=1)
    assert seconds[0] == pytest.approx(ms / 1000, rel=1e-5)
    assert seconds[1] == pytest.approx(factor * ms / 1000, rel=1e-5)
    assert graph.style == ("operators" if "training" in file else "inference")
    assert len(np.unique(graph.tensors.producer)) == len(graph.tensors)
    assert not np.isnan(graph.tensors.seconds).any()
    cheap = any("1000 times too cheap" in note for note in instance.notes)
    assert cheap == ("throughput/layer" in file)


def test_published_transfer_sums(workloads: Path) -> None:
    """In operator graphs transfers dominate (557 ms against 49 ms); in layer graphs they are practically nil."""
    heavy = read(workloads / "device-placement/throughput/operator/bert_l-3_inference.json").graph
    light = read(workloads / "device-placement/throughput/layer/bert24_inference.json").graph
    assert heavy.tensors.seconds.sum() == pytest.approx(0.557, abs=0.001)
    assert light.tensors.seconds.sum() < 0.0002


@pytest.mark.parametrize("file", [row[0] for row in PUBLISHED])
def test_published_files_round_trip(workloads: Path, tmp_path: Path, file: str) -> None:
    """Writing gives back the same nodes, edges and limits, to the last digit that matters."""
    path = workloads / "device-placement" / f"{file}.json"
    instance = read(path)
    write(instance, tmp_path / path.name, "device-placement")
    back = read(tmp_path / path.name)
    assert back.graph == instance.graph
    assert back.cluster == instance.cluster
    assert back.graph.source == instance.graph.source
    old, new = json.loads(path.read_text()), json.loads((tmp_path / path.name).read_text())
    for row in old["nodes"]:
        row["supportedOnFpga"], row["isBackwardNode"] = bool(row["supportedOnFpga"]), bool(row["isBackwardNode"])
    for data in (old, new):
        data["edges"].sort(key=lambda edge: (edge["sourceId"], edge["destId"]))
    for a, b in zip([*old["nodes"], *old["edges"]], [*new["nodes"], *new["edges"]], strict=True):
        assert a.keys() == b.keys()
        for field in a:
            close = isinstance(a[field], float)
            assert b[field] == (pytest.approx(a[field], rel=1e-12, abs=1e-6) if close else a[field])
    assert {k: v for k, v in old.items() if k not in ("nodes", "edges")} == {
        k: v for k, v in new.items() if k not in ("nodes", "edges")
    }


@pytest.mark.parametrize(("file", "load"), [("bert24_inference", 20.084), ("bert24_training", 49.4049)])
def test_published_loads_of_the_expert_split(workloads: Path, tmp_path: Path, file: str, load: float) -> None:
    """The experts' split of BERT-24 (layers in six runs, gradients by colour class) has the published max-load."""
    instance = read(workloads / "device-placement" / "throughput" / "layer" / f"{file}.json")
    borders = [1, 9, 13, 17, 21, 25, 33]
    groups = [{"nodes": list(range(a, b))} for a, b in pairwise(borders)]
    (tmp_path / "expert.json").write_text(json.dumps({"fpgas": groups, "cpus": []}))
    answer = read_split(tmp_path / "expert.json", instance)
    write(instance, tmp_path / "split.json", "device-placement", solution=answer)
    written = json.loads((tmp_path / "split.json").read_text())
    assert written["maxLoad"] == pytest.approx(load, rel=1e-5)
    assert max(part["load"] for part in written["fpgas"]) == written["maxLoad"]
    assert read_split(tmp_path / "split.json", instance) == answer


def test_the_small_file(small: Path) -> None:
    """Units, unsupported nodes, negative colour classes, ids with gaps and uneven edges read as stated."""
    instance = read(small / "small_device_placement.json")
    graph = instance.graph
    assert graph.kinds == ("accelerator", "cpu")
    assert graph.forward[0, 0].tolist() == [0.001, 0.002, 0.004, np.inf]
    assert graph.forward[1, 0].tolist() == [0.01, 0.02, 0.04, 0.02]
    assert graph.colocation.tolist() == [0, 1, 1, 0]
    assert graph.is_backward.tolist() == [False, False, True, True]
    assert graph.static_bytes[0].tolist() == [100, 200, 0, 0]
    assert graph.tensors[0] == Tensor(0, (1, 3), 8.0, 0.0, 0.0005, 0.0)
    assert graph.source["ids"] == [3, 5, 9, 11]
    assert instance.parameters == {"free_kinds": ("cpu",), "send": "once", "routing": "direct", "overlap": "sum"}
    assert instance.notes == ("1 nodes have out-edges of different sizes; the tensor has the largest one",)


def test_the_small_file_round_trips(small: Path, tmp_path: Path) -> None:
    """Extra fields of the file, of nodes and of edges, and edge sizes come back."""
    instance = read(small / "small_device_placement.json")
    write(instance, tmp_path / "out.json", "device-placement")
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["comment"] == "four operators"
    assert data["nodes"][0]["layerId"] == 1
    assert "layerId" not in data["nodes"][1]
    assert [node["colorClass"] for node in data["nodes"]] == [-7, 4, 4, -7]
    assert [edge["size"] for edge in data["edges"]] == [8.0, 6.0, 4.0, 8.0]
    assert data["edges"][2]["label"] == "loss"
    assert data["nodes"][3] == {
        "name": "first_grad",
        "id": 11,
        "supportedOnFpga": False,
        "cpuLatency": 20.0,
        "fpgaLatency": 0.0,
        "isBackwardNode": True,
        "colorClass": -7,
        "size": 0.0,
    }
    assert read(tmp_path / "out.json").graph == instance.graph


def edited(small: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Return the small file with an edit."""
    data = json.loads((small / "small_device_placement.json").read_text())
    edit(data)
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("edit", "field", "message"),
    [
        (lambda d: d["nodes"][1].update(id=3), "nodes[1].id", "has already"),
        (lambda d: d["edges"][0].update(destId=4), "edges[0].destId", "does not exist"),
        (lambda d: d["edges"][0].update(destId=3), "edges[0].destId", "itself"),
        (lambda d: d["edges"][1].update(cost=0.6), "edges[1].cost", "node 3 has out-edges of cost 0.5 and 0.6"),
        (lambda d: d["edges"][1].update(cost=-1), "edges[1].cost", "at least 0"),
        (lambda d: d["nodes"][0].update(size="big"), "nodes[0].size", "expected a number"),
        (lambda d: d["nodes"][0].update(supportedOnFpga=2), "nodes[0].supportedOnFpga", "true or false"),
        (lambda d: d["nodes"][0].pop("cpuLatency"), "nodes[0].cpuLatency", "missing"),
        (lambda d: d["nodes"][2].update(name=[]), "nodes[2].name", "expected a string"),
        (lambda d: d.update(nodes=[]), "nodes", "empty"),
        (lambda d: d.update(maxFPGAs=0, maxCPUs=0), "maxFPGAs", "0 devices"),
        (lambda d: d.update(maxFPGAs=10**9), "maxFPGAs", "1000000001 devices"),
        (lambda d: d.update(maxSizePerFPGA=None), "maxSizePerFPGA", "missing"),
        (lambda d: d["edges"].append({"sourceId": 11, "destId": 3, "cost": 1}), None, "cycle: 'first' ->"),
        (lambda d: d["nodes"].append(5), "nodes[4]", "expected an object"),
    ],
)
def test_broken_files_are_refused(
    small: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object], field: str | None, message: str
) -> None:
    """Each defect is named with its field and the numbers that disagree."""
    with pytest.raises(FormatError, match=message) as caught:
        read(edited(small, tmp_path, edit), "device-placement")
    assert caught.value.field == field


def test_names_that_repeat_give_way_to_ids(small: Path, tmp_path: Path) -> None:
    """Doubled or missing names are kept for writing, and operators are named by id."""
    path = edited(small, tmp_path, lambda d: d["nodes"][1].update(name="first"))
    graph = read(path).graph
    assert graph.names == ("node3", "node5", "node9", "node11")
    write(read(path), tmp_path / "out.json", "device-placement")
    assert [n["name"] for n in json.loads((tmp_path / "out.json").read_text())["nodes"][:2]] == ["first", "first"]


def test_parallel_edges_become_one(small: Path, tmp_path: Path) -> None:
    """A doubled edge is one reader, and the notes say so."""
    instance = read(edited(small, tmp_path, lambda d: d["edges"].append(dict(d["edges"][0]))))
    assert instance.graph == read(small / "small_device_placement.json").graph
    assert "1 parallel edges" in instance.notes[0]


def test_an_edge_may_lack_a_size_and_a_node_its_optional_fields(small: Path, tmp_path: Path) -> None:
    """Only what the format calls mandatory is mandatory."""

    def edit(data: dict[str, Any]) -> None:
        for edge in data["edges"]:
            edge.pop("size")
        for node in data["nodes"]:
            node.pop("colorClass")
            node.pop("isBackwardNode")

    graph = read(edited(small, tmp_path, edit)).graph
    assert not graph.tensors.bytes.any()
    assert (graph.colocation == -1).all()
    assert graph.style == "inference"


def split(small: Path, tmp_path: Path, solution: Plan | Assignment) -> Any:
    """Return the split file of a solution of the small workload."""
    write(read(small / "small_device_placement.json"), tmp_path / "split.json", "device-placement", solution=solution)
    return json.loads((tmp_path / "split.json").read_text())


def test_a_split_has_loads_by_hand(small: Path, tmp_path: Path) -> None:
    """Loads of the split {second pair on accelerator0, first pair on the CPU}, computed by hand.

    The accelerator computes 2 + 4 ms and pays 0.5 ms for the value of node 3 coming in and 0.5 ms for that of node 9
    going out; node 5 stays inside. The CPU computes 10 + 20 ms and pays nothing.
    """
    data = split(small, tmp_path, Assignment([2, 0, 0, 2]))
    assert data == {
        "maxLoad": 30.0,
        "fpgas": [{"load": 7.0, "nodes": [5, 9]}, {"load": 0.0, "nodes": []}],
        "cpus": [{"load": 30.0, "nodes": [3, 11]}],
    }


def test_a_value_sent_to_two_devices_is_paid_once_by_the_sender(tmp_path: Path) -> None:
    """One producer, readers on two other accelerators: every one of the three pays the transfer once."""
    graph = CostGraph(
        forward={"accelerator": [1.0, 1.0, 1.0], "cpu": [9.0, 9.0, 9.0]}, tensors=[Tensor(0, (1, 2), seconds=0.25)]
    )
    cluster = Cluster([Device("accelerator", 10.0)] * 3)
    write(Instance(graph, cluster), tmp_path / "s.json", "device-placement", solution=Assignment([0, 1, 2]))
    assert [part["load"] for part in json.loads((tmp_path / "s.json").read_text())["fpgas"]] == [1250.0] * 3


def test_a_plan_is_a_split_too(small: Path, tmp_path: Path) -> None:
    """Stages of one device are merged, and both forms of the same solution give the same file."""
    plan = Plan(
        (
            Stage([0], (Replica((2,)),)),
            Stage([1], (Replica((0,)),)),
            Stage([2], (Replica((0,)),)),
            Stage([3], (Replica((2,)),)),
        )
    )
    assert split(small, tmp_path, plan) == split(small, tmp_path, Assignment([2, 0, 0, 2]))


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        (Assignment([0, 0, 0, 0]), "cannot host"),
        (Assignment([0, 0, 0]), "place all 4 operators"),
        (Assignment([0, 0, 0, 3]), "3 devices"),
        (Plan.chain([0, 2]), "place all 4 operators"),
        (Plan.chain([0, 5]), "does not have"),
        (Plan((Stage([0, 1, 2, 3], (Replica((0,), 0.5), Replica((1,), 0.5))),)), "several devices"),
    ],
)
def test_solutions_that_are_no_split_are_refused(
    small: Path, tmp_path: Path, solution: Plan | Assignment, message: str
) -> None:
    """A split places every operator on one device that can host it."""
    with pytest.raises(FormatError, match=message):
        split(small, tmp_path, solution)


def test_a_split_reads_back(small: Path, tmp_path: Path) -> None:
    """read_split inverts the writing, and a node left out follows its colour class."""
    instance = read(small / "small_device_placement.json")
    answer = Assignment([2, 0, 0, 2])
    data = split(small, tmp_path, answer)
    assert read_split(tmp_path / "split.json", instance) == answer
    data["cpus"][0]["nodes"] = [3]
    data["fpgas"][0]["nodes"] = [5]
    (tmp_path / "split.json").write_text(json.dumps(data))
    assert read_split(tmp_path / "split.json", instance) == answer
    with pytest.raises(FormatError, match="is a split"):
        read(tmp_path / "split.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"fpgas": [{"nodes": [3, 5]}, {"nodes": [5]}]}, "placed twice"),
        ({"fpgas": [{"nodes": [4]}]}, "unknown"),
        ({"fpgas": [{"nodes": [3]}]}, "on no device"),
        ({"fpgas": [{"nodes": []}] * 3}, "has 3 entries"),
        ({"fpgas": [{"nodes": [None]}]}, "expected a number"),
        ([], "expected an object"),
    ],
)
def test_broken_splits_are_refused(small: Path, tmp_path: Path, data: Any, message: str) -> None:
    """A split that does not fit its workload gives a FormatError."""
    path = tmp_path / "split.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=message):
        read_split(path, read(small / "small_device_placement.json"))


TWO = {"accelerator": [1.0, 1.0], "cpu": [2.0, 2.0]}
DEVICES = Cluster([Device("accelerator", 10.0), Device("cpu")])


@pytest.mark.parametrize(
    ("graph", "cluster", "message"),
    [
        (CostGraph(forward=TWO), None, "with a cluster"),
        (CostGraph.chain([1.0, 2.0], seconds=1.0), DEVICES, "device kinds"),
        (CostGraph(forward=TWO, backward=1.0), DEVICES, "backward pass as operators"),
        (CostGraph(forward=TWO, parameter_bytes=1.0), DEVICES, "static_bytes"),
        (CostGraph(forward=TWO, pinned=[0, None]), DEVICES, "pinned"),
        (CostGraph(forward=TWO, tensors=[Tensor(0, (1,), bytes=1.0)]), DEVICES, "needs seconds"),
        (CostGraph(forward=TWO, tensors=[Tensor(0, (1,), seconds=1.0, gradient_seconds=1.0)]), DEVICES, "gradient"),
        (CostGraph(forward=TWO, tensors=[Tensor(0, (1,), seconds=1.0)] * 2), DEVICES, "one tensor per producer"),
        (CostGraph(forward={"accelerator": [1.0], "cpu": [np.inf]}), DEVICES, "run on a CPU"),
        (CostGraph(forward=TWO), Cluster([Device("cpu"), Device("accelerator", 1.0)]), "followed by"),
        (CostGraph(forward=TWO), Cluster([Device("accelerator")]), "finite memory"),
        (CostGraph(forward=TWO), Cluster([Device("cpu", 5.0)]), "memory limit of CPUs"),
        (CostGraph(forward=TWO), Cluster([Device("cpu", speed=2.0)]), "speed"),
    ],
)
def test_what_the_format_cannot_say_is_refused(
    tmp_path: Path, graph: CostGraph, cluster: Cluster | None, message: str
) -> None:
    """Writing never drops a part of the graph in silence."""
    with pytest.raises(FormatError, match=message):
        write(Instance(graph, cluster), tmp_path / "x.json", "device-placement")


def test_a_changed_graph_still_writes(small: Path, tmp_path: Path) -> None:
    """What was kept from the file is used only as far as it fits the graph."""
    instance = read(small / "small_device_placement.json")
    graph = CostGraph(forward=TWO, tensors=[Tensor(0, (1,), 1.0, seconds=1.0)], source=instance.graph.source)
    write(Instance(graph, instance.cluster), tmp_path / "x.json", "device-placement")
    assert read(tmp_path / "x.json").graph.forward.tolist() == graph.forward.tolist()
