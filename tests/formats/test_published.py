"""Every published workload against an independent reading of its raw file that shares no code with the readers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balance.problems.formats import read, write

FILES = (
    *(f"device-placement/{kind}.json" for kind in (
        "throughput/layer/bert24_inference", "throughput/layer/bert24_training", "throughput/layer/gnmt_inference",
        "throughput/layer/inceptionv3_inference", "throughput/layer/resnet50_inference",
        "throughput/operator/bert_l-3_inference", "throughput/operator/bert_l-3_training",
        "throughput/operator/bert_l-6_training", "throughput/operator/resnet50_training",
        "latency/layer/bert24_inference", "latency/layer/resnet50_inference",
        "latency/operator/bert_l-3_inference", "latency/operator/bert_l-6_inference",
    )),
    *(f"pipedream/{name}.txt" for name in ("alexnet", "gnmt_large", "inception_v3", "resnet50", "vgg16")),
    "piper/bert32a100.json",
)  # fmt: skip


def _placement(text: str) -> dict[str, float]:
    data = json.loads(text)
    nodes, edges = data["nodes"], data["edges"]
    leaving: dict[int, list[dict[str, Any]]] = {}
    for edge in edges:
        leaving.setdefault(edge["sourceId"], []).append(edge)
    colors = [node.get("colorClass") for node in nodes]
    return {
        "operators": len(nodes),
        "tensors": len(leaving),
        "readers": len({(edge["sourceId"], edge["destId"]) for edge in edges}),
        "seconds": sum(node["fpgaLatency"] + node["cpuLatency"] for node in nodes) / 1000,
        "bytes": sum(node["size"] for node in nodes),
        "tensor bytes": sum(max(edge.get("size", 0) for edge in out) for out in leaving.values()),
        "tensor seconds": sum(out[0]["cost"] for out in leaving.values()) / 1000,
        "classes": len({color for color in colors if color is not None}) + colors.count(None),
        "backward": sum(bool(node.get("isBackwardNode")) for node in nodes),
        "devices": data["maxFPGAs"] + data["maxCPUs"],
        "memory": data["maxFPGAs"] * data["maxSizePerFPGA"],
    }


def _profile(text: str) -> dict[str, float]:
    nodes, readers, sizes = 0, set(), {}
    seconds = parameters = 0.0
    for line in text.splitlines():
        if line.startswith("\t"):
            readers.add(line.strip())
            continue
        nodes += 1
        found = [float(x) for x in re.findall(r"(?:forward_compute_time|backward_compute_time)=([^,]*)", line)]
        seconds += sum(found) / 1000
        size = re.search(r"activation_size=(\[[^]]*]|[^,]*)", line)
        weight = re.search(r"parameter_size=([0-9.e+-]*)", line)
        assert size is not None
        assert weight is not None
        sizes[line.split(" -- ")[0]] = sum(float(x) for x in size[1].strip("[]").split(";"))
        parameters += float(weight[1])
    producers = {row.split(" -- ")[0] for row in readers}
    return {
        "operators": nodes,
        "tensors": len(producers),
        "readers": len(readers),
        "seconds": seconds,
        "bytes": 2 * parameters + sum(sizes.values()),  # a parameter is stored and synchronised
        "tensor bytes": sum(sizes[name] for name in producers),
        "tensor seconds": 0.0,
        "classes": nodes,
        "backward": 0,
        "devices": 0,
        "memory": 0.0,
    }


def _piper(text: str) -> dict[str, float]:
    data = json.loads(text)
    ways = [way for node in data["nodes"] for group in node["TMPCs"].values() for way in group]
    return {
        "operators": len(data["nodes"]),
        "tensors": len(data["edges"]),
        "readers": len(data["edges"]),
        "seconds": sum(way["timePerSample"] for way in ways),
        "bytes": sum(way[key] for way in ways for key in ("parameterSize", "memoryUsageA", "memoryUsageB")),
        "tensor bytes": sum(edge["communicationCost"] for edge in data["edges"]),
        "tensor seconds": 0.0,
        "classes": len(data["nodes"]),
        "backward": 0,
        "devices": data["maxDevices"],
        "memory": data["maxDevices"] * data["maxMemoryPerDevice"],
    }


@pytest.mark.parametrize("file", FILES)
def test_the_sums_of_an_independent_reading(workloads: Path, file: str) -> None:
    """Operators, nets, readers, work, bytes, colours and devices are those of the raw file."""
    path = workloads / file
    read_raw = {"device-placement": _placement, "pipedream": _profile, "piper": _piper}[file.split("/")[0]]
    instance = read(path)
    graph, tensors, cluster = instance.graph, instance.graph.tensors, instance.cluster
    times = graph.forward + graph.backward
    tables = ("parameter_bytes", "activation_bytes", "static_bytes", "sync_bytes", "workspace_bytes")
    memory = np.zeros(0) if cluster is None else cluster.memory_bytes
    got = {
        "operators": graph.n_operators,
        "tensors": len(tensors),
        "readers": tensors.n_pins,
        "seconds": float(times[np.isfinite(times)].sum()),
        "bytes": float(sum(getattr(graph, key).sum() for key in tables)),
        "tensor bytes": float(tensors.bytes.sum()),
        "tensor seconds": float(np.nansum(tensors.seconds)),
        "classes": len(np.unique(graph.colocation[graph.colocation >= 0])) + int((graph.colocation < 0).sum()),
        "backward": int(graph.is_backward.sum()),
        "devices": 0 if cluster is None else cluster.n_devices,
        "memory": float(memory[np.isfinite(memory)].sum()),
    }
    assert got == pytest.approx(read_raw(path.read_text()), rel=1e-12)


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_lost_by_writing_a_published_file_again(workloads: Path, tmp_path: Path, file: str) -> None:
    """The writer of its own format has nothing to report, and what comes back is equal."""
    instance = read(workloads / file)
    assert write(instance, tmp_path / "again", instance.format) == ()
    again = read(tmp_path / "again", instance.format)
    assert again.graph == instance.graph
    assert again.graph.source == instance.graph.source
    assert again.cluster == instance.cluster
    assert again.notes == instance.notes
    assert (again.preset, again.parameters) == (instance.preset, instance.parameters)
