"""Format room: the JSON workloads of the 2020 device-placement paper, and its splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from balance.problems.formats._quantities import LARGEST_CLUSTER, milliseconds
from balance.problems.formats._rows import dumped, edge_rows, node_rows, other_fields, plan_stages
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import FormatError
from balance.problems.model.fields import Fields, integer, plain
from balance.problems.model.files import parse_json, read_json
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import FloatArray, Tensors

NAME = "device-placement"
SUFFIXES = (".json",)
DESCRIPTION = """\
The JSON workloads published with *Efficient Algorithms for Device Placement of DNN Graph Operators*
(NeurIPS 2020), for throughput and for latency. A node becomes an operator, `fpgaLatency` and `cpuLatency`
its time on the device kinds `accelerator` and `cpu`, `size` its `static_bytes`, `colorClass` its
colocation, `isBackwardNode` its `is_backward`; `supportedOnFpga` false means an infinite time on
accelerators. The transfer `cost` belongs to the producer, so all out-edges of a node are one tensor with
given `seconds`; out-edges that disagree by more than 1e-6 are an error. The `size` of an edge becomes the
tensor's bytes (the largest one where the out-edges of a node differ). All times are taken as
milliseconds, as published. The cluster has `maxFPGAs` accelerators with `maxSizePerFPGA` bytes and
`maxCPUs` CPUs without a memory limit; the preset `device-placement-2020` lets CPUs communicate for free,
the sender pay once, values travel directly, and communication add to compute. In the published layer
graphs for throughput the costs are 1000 times too small for the sizes if 2 GiB/s was meant; the reader
keeps them and says so in the notes. Ids, extra fields of nodes, edges and the file are kept for writing.
Lost on reading: the accelerator time of a node that accelerators do not support, parallel edges, the
order of edges, fields that are null, and the difference between `true` and `1`. With a solution, the
split is written in the output form of the published programs: `fpgas` and `cpus`, each a list of
`{"load": ms, "nodes": [ids]}` in the cluster's order, and `maxLoad` in milliseconds."""

PRESET = "device-placement-2020"
PARAMETERS = {"free_kinds": ("cpu",), "send": "once", "routing": "direct", "overlap": "sum"}
KINDS = ("accelerator", "cpu")

_MARKER = re.compile(r'"(?:maxFPGAs|maxSizePerFPGA|supportedOnFpga|fpgaLatency|fpgas)"\s*:')
_NODE = ("id", "name", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "colorClass", "size")
_EDGE = ("sourceId", "destId", "cost", "size")
_TOP = ("maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges")
_CHEAP = 1e12  # bytes per second; no link between host and accelerator is as fast


def sniff(text: str, path: str) -> bool:
    """Return whether the text has the field names of these files."""
    return _MARKER.search(text) is not None


# -- reading ---------------------------------------------------------------------------------------


def read_text(text: str, path: str) -> Instance:
    """Build an instance from a workload.

    Raises
    ------
    FormatError
        If a field is missing or malformed, an id is doubled or dangles, or the out-edges of a node disagree
        in cost.
    """
    top = Fields(parse_json(text, path))
    if top.has("fpgas") and not top.has("nodes"):
        top.fail("fpgas", "this is a split (a program's answer), not a workload: read it with read_split")
    cluster = _cluster(top)
    rows, ids, index = node_rows(top)
    on_cpu = np.array([row.number("cpuLatency") for row in rows]) / 1000.0
    on_accelerator = np.array([row.number("fpgaLatency") for row in rows]) / 1000.0
    on_accelerator[[not row.flag("supportedOnFpga") for row in rows]] = np.inf
    colors = [row.integer("colorClass", None, least=None) for row in rows]
    names = [row.text("name", None) for row in rows]
    unique = all(names) and len(set(names)) == len(names)
    tensors, edge_source, notes = _tensors(top, index)
    source: dict[str, Any] = {"format": NAME, "ids": ids, **edge_source}
    if not unique and any(name is not None for name in names):
        source["names"] = names
    source["color_classes"] = list(dict.fromkeys(color for color in colors if color is not None))
    source["node_fields"] = _extra(rows, _NODE)
    source["fields"] = other_fields(top, _TOP)
    graph = CostGraph(
        forward={"accelerator": on_accelerator, "cpu": on_cpu},
        static_bytes=[row.number("size", 0.0) for row in rows],
        names=names if unique else [f"node{node}" for node in ids],
        # As text: the model reads a negative number as "no label", here it is a class like any other.
        colocation=[None if color is None else str(color) for color in colors],
        is_backward=[row.flag("isBackwardNode", False) for row in rows],
        tensors=tensors,
        name=Path(path).stem,
        source={key: value for key, value in source.items() if value},
    )
    return Instance(graph, cluster, PRESET, PARAMETERS, notes=tuple(notes))


def _cluster(top: Fields) -> Cluster:
    memory = top.number("maxSizePerFPGA")
    accelerators, cpus = top.integer("maxFPGAs"), top.integer("maxCPUs")
    if not 1 <= accelerators + cpus <= LARGEST_CLUSTER:
        top.fail("maxFPGAs", f"with maxCPUs makes {accelerators + cpus} devices; expected 1 to {LARGEST_CLUSTER}")
    return Cluster(
        [
            *(Device("accelerator", memory_bytes=memory, name=f"accelerator{i}") for i in range(accelerators)),
            *(Device("cpu", name=f"cpu{i}") for i in range(cpus)),
        ]
    )


def _tensors(top: Fields, index: dict[int, int]) -> tuple[Tensors, dict[str, Any], list[str]]:
    """Return one net per producer, what else the edges say, and notes."""
    nets: dict[int, dict[int, Fields]] = {}
    cost: dict[int, float] = {}
    parallel = 0
    for row, u, v in edge_rows(top, index):
        value = row.number("cost")
        first = cost.setdefault(u, value)
        if abs(first - value) > 1e-6:
            row.fail(
                "cost",
                f"node {row.data['sourceId']} has out-edges of cost {first:.12g} and {value:.12g}; "
                f"the cost belongs to the producing node, so all its out-edges must agree to 1e-6",
            )
        readers = nets.setdefault(u, {})
        parallel += v in readers
        readers.setdefault(v, row)
    pins = [row for readers in nets.values() for row in readers.values()]
    sizes = [[row.number("size", 0.0) for row in readers.values()] for readers in nets.values()]
    seconds = np.array([cost[u] for u in nets]) / 1000.0
    largest = np.array([max(cells) for cells in sizes])
    tensors = Tensors(
        list(nets),
        np.cumsum([0, *map(len, nets.values())]),
        [v for readers in nets.values() for v in readers],
        largest,
        seconds=seconds,
    )
    uneven = sum(min(cells) != max(cells) for cells in sizes)
    source = {
        "edge_sizes": [size for cells in sizes for size in cells] if uneven else None,
        "edge_fields": _extra(pins, _EDGE),
    }
    return tensors, source, _notes(parallel, uneven, largest, seconds)


def _notes(parallel: int, uneven: int, sizes: FloatArray, seconds: FloatArray) -> list[str]:
    notes = []
    if parallel:
        notes.append(f"{parallel} parallel edges were read as one each")
    if uneven:
        notes.append(f"{uneven} nodes have out-edges of different sizes; the tensor has the largest one")
    paid = (sizes > 0) & (seconds > 0)
    speed = float(np.median(sizes[paid] / seconds[paid])) if paid.any() else 0.0
    if speed > _CHEAP:
        notes.append(
            f"the transfer costs, taken as milliseconds as published, mean {speed:.3g} B/s for the sizes "
            f"given: communication is about 1000 times too cheap if a link of 2 GiB/s was meant"
        )
    return notes


def _extra(rows: Sequence[Fields], known: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the fields that the model has no place for, by name, one entry per row."""
    keys = dict.fromkeys(key for row in rows for key in row.data if key not in known)
    return {key: [plain(row.data.get(key), row.path(key)) for row in rows] for key in keys}


def read_split(path: str | Path, instance: Instance) -> Assignment:
    """Read a split in the output form of the published programs.

    Parameters
    ----------
    path
        A file with ``fpgas`` and ``cpus``, lists of ``{"nodes": [ids]}``; loads are not looked at.
    instance
        The workload that was split; a node that the file leaves out follows its colour class.

    Raises
    ------
    FormatError
        If an id is unknown, doubled or missing, or there are more devices than the workload has.
    """
    graph, cluster = instance.graph, _workload_cluster(instance)
    index = {node: i for i, node in enumerate(_ids(graph))}

    def build(data: Any) -> Assignment:
        top = Fields(data)
        device = np.full(graph.n_operators, -1, dtype=np.int64)
        for key, kind in (("fpgas", "accelerator"), ("cpus", "cpu")):
            places = [d for d in range(cluster.n_devices) if cluster.kinds[int(cluster.kind[d])] == kind]
            groups = [Fields(row, f"{key}[{g}]") for g, row in enumerate(top.items(key, []))]
            if len(groups) > len(places):
                top.fail(key, f"has {len(groups)} entries, but the workload has {len(places)} such devices")
            for group, place in zip(groups, places, strict=False):
                for j, value in enumerate(group.items("nodes")):
                    where = f"{group.path('nodes')}[{j}]"
                    v = index.get(integer(value, where, least=None))
                    if v is None or device[v] >= 0:
                        raise FormatError(f"node {value} is {'unknown' if v is None else 'placed twice'}", field=where)
                    device[v] = place
        for v in np.flatnonzero((device < 0) & (graph.colocation >= 0)).tolist():
            mates = device[(graph.colocation == graph.colocation[v]) & (device >= 0)]
            device[v] = mates[0] if len(mates) else -1
        if (device < 0).any():
            v = int(np.argmin(device))
            raise FormatError(f"operator {graph.label(v)} is placed on no device")
        return Assignment(device)

    return read_json(path, build)


# -- writing ---------------------------------------------------------------------------------------


def write_text(instance: Instance, solution: Plan | Assignment | None = None) -> str:
    """Return the workload, or with a solution the split.

    Raises
    ------
    FormatError
        If the graph has other kinds, several configurations, backward columns, tensors without seconds or
        several tensors of one producer, or the cluster is not accelerators of equal memory followed by CPUs.
    """
    graph, cluster = instance.graph, _workload_cluster(instance)
    _check(graph)
    if solution is not None:
        return dumped(_split(graph, cluster, solution), indent=1)
    source = graph.source if graph.source.get("format") == NAME else {}
    accelerators = [d for d in cluster.devices if d.kind == "accelerator"]
    data: dict[str, Any] = {
        "maxSizePerFPGA": accelerators[0].memory_bytes if accelerators else 0.0,
        "maxFPGAs": len(accelerators),
        "maxCPUs": cluster.n_devices - len(accelerators),
        **source.get("fields", {}),
        "nodes": _nodes(graph, source),
        "edges": _edges(graph, source),
    }
    return dumped(data)


def _workload_cluster(instance: Instance) -> Cluster:
    cluster = instance.cluster
    if cluster is None:
        raise FormatError("this format names its devices: give an Instance with a cluster")
    kinds = [cluster.kinds[k] for k in cluster.kind.tolist()]
    memory = set(cluster.memory_bytes[[kind == "accelerator" for kind in kinds]].tolist())
    if kinds != sorted(kinds) or not set(kinds) <= set(KINDS) or len(memory) > 1 or np.inf in memory:
        raise FormatError(
            "the cluster must be devices of kind 'accelerator' with one finite memory size, followed by "
            "devices of kind 'cpu'"
        )
    if np.isfinite(cluster.memory_bytes[[kind == "cpu" for kind in kinds]]).any() or (cluster.speed != 1).any():
        raise FormatError("this format has no memory limit of CPUs and no speed factors")
    return cluster


def _check(graph: CostGraph) -> None:
    """Refuse what the format has no place for."""
    tensors = graph.tensors
    sizes = ("parameter_bytes", "activation_bytes", "workspace_bytes", "sync_bytes")
    seconds_back = np.nan_to_num(tensors.gradient_seconds)
    for broken, message in (
        (set(graph.kinds) != set(KINDS), f"device kinds {KINDS[0]!r} and {KINDS[1]!r}, not {graph.kinds}"),
        (len(graph.configurations) > 1, "one configuration"),
        (graph.style == "layers", "the backward pass as operators, not as backward columns"),
        ((graph.pinned >= 0).any(), "no pinned operators"),
        (any(getattr(graph, key).any() for key in sizes), "one size per operator, its static_bytes"),
        (np.isnan(tensors.seconds).any(), "transfer times: every tensor needs seconds"),
        (seconds_back.any(), "no gradient times of tensors"),
        (len(np.unique(tensors.producer)) < len(tensors), "one tensor per producer"),
    ):
        if broken:
            raise FormatError(f"the graph does not fit: this format has {message}")
    if not np.isfinite(graph.forward[graph.kind_index("cpu"), 0]).all():
        raise FormatError("the graph does not fit: this format lets every operator run on a CPU")


def _ids(graph: CostGraph) -> list[int]:
    ids = graph.source.get("ids") if graph.source.get("format") == NAME else None
    return list(ids) if ids is not None and len(ids) == graph.n_operators else list(range(graph.n_operators))


def _column(source: dict[str, Any], key: str, n: int) -> dict[str, list[Any]]:
    """Return the kept fields of rows; a graph changed since it was read may have none that fit."""
    return {name: cells for name, cells in source.get(key, {}).items() if len(cells) == n}


def _nodes(graph: CostGraph, source: dict[str, Any]) -> list[dict[str, Any]]:
    n, ids = graph.n_operators, _ids(graph)
    kept = _column(source, "node_fields", n)
    colors = source.get("color_classes", [])
    if len(colors) <= int(graph.colocation.max(initial=-1)):
        colors = list(range(n))
    names = source.get("names") or graph.names or [None] * n
    cpu, accelerator = (graph.forward[graph.kind_index(kind), 0].tolist() for kind in ("cpu", "accelerator"))
    rows = []
    for i in range(n):
        supported = accelerator[i] < np.inf
        row = {
            "name": names[i],
            "id": ids[i],
            "supportedOnFpga": supported,
            "cpuLatency": milliseconds(cpu[i]),
            "fpgaLatency": milliseconds(accelerator[i]) if supported else 0.0,
            "isBackwardNode": bool(graph.is_backward[i]),
            "colorClass": colors[graph.colocation[i]] if graph.colocation[i] >= 0 else None,
            "size": float(graph.static_bytes[0, i]),
            **{key: cells[i] for key, cells in kept.items()},
        }
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows


def _edges(graph: CostGraph, source: dict[str, Any]) -> list[dict[str, Any]]:
    tensors, ids = graph.tensors, _ids(graph)
    kept = _column(source, "edge_fields", tensors.n_pins)
    sizes = source.get("edge_sizes", [])
    if len(sizes) != tensors.n_pins:
        sizes = tensors.bytes[tensors.edge_tensor].tolist()
    costs = [milliseconds(seconds) for seconds in tensors.seconds.tolist()]
    rows = []
    for pin, (u, v, t) in enumerate(
        zip(
            tensors.edge_producer.tolist(),
            tensors.consumers.tolist(),
            tensors.edge_tensor.tolist(),
            strict=True,
        )
    ):
        row = {"sourceId": ids[u], "destId": ids[v], "cost": costs[t], "size": sizes[pin]}
        rows.append(row | {key: cells[pin] for key, cells in kept.items() if cells[pin] is not None})
    return rows


def _split(graph: CostGraph, cluster: Cluster, solution: Plan | Assignment) -> dict[str, Any]:
    device = _devices_of(graph, cluster, solution)
    ids, tensors = _ids(graph), graph.tensors
    answer: dict[str, Any] = {"maxLoad": 0.0, "fpgas": [], "cpus": []}
    for d in range(cluster.n_devices):
        kind = cluster.kinds[int(cluster.kind[d])]
        own = device == d
        load = float(graph.forward[graph.kind_index(kind), 0][own].sum())
        if kind == "accelerator":
            # A value that crosses the device's border is paid once there, by sender and receivers.
            touched = np.bincount(tensors.edge_tensor[own[tensors.consumers]], minlength=len(tensors))
            inside = touched + own[tensors.producer]
            cut = (inside > 0) & (inside < np.diff(tensors.offsets) + 1)
            load += float(tensors.seconds[cut].sum())
        unable = own & np.isinf(graph.forward[graph.kind_index(kind), 0])
        if unable.any():
            v = int(np.argmax(unable))
            raise FormatError(f"operator {graph.label(v)} is on {cluster.label(d)}, whose kind cannot host it")
        part = {"load": milliseconds(load), "nodes": [ids[v] for v in np.flatnonzero(own).tolist()]}
        answer["fpgas" if kind == "accelerator" else "cpus"].append(part)
        answer["maxLoad"] = max(answer["maxLoad"], part["load"])
    return answer


def _devices_of(graph: CostGraph, cluster: Cluster, solution: Plan | Assignment) -> Any:
    n = graph.n_operators
    if isinstance(solution, Assignment):
        device = solution.device
    else:
        replicated = next((s for s, stage in enumerate(solution.stages) if len(stage.devices) > 1), None)
        if replicated is not None:
            raise FormatError(f"stage {replicated} has several devices; a split has one device per operator")
        stage = plan_stages(graph, solution)
        device = np.where(stage >= 0, np.array(solution.devices)[stage], -1)
    if len(device) != n or (n and not (device.min() >= 0 and device.max() < cluster.n_devices)):
        raise FormatError(f"the solution must place all {n} operators on the {cluster.n_devices} devices")
    return device
