"""Format room: the JSON workloads of Piper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from balance.problems.formats._quantities import LARGEST_CLUSTER, exact_third
from balance.problems.formats._rows import dumped, edge_rows, node_rows, other_fields
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import FormatError
from balance.problems.model.fields import Fields, number
from balance.problems.model.files import parse_json
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.graph_json import LARGEST_TABLE
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import Tensors

NAME = "piper"
SUFFIXES = (".json",)
DESCRIPTION = """\
The JSON workloads of *Piper: Multidimensional Planner for DNN Parallelization* (NeurIPS 2021). A node
becomes an operator; its TMPCs (ways to run it, per tensor-parallel degree) become columns of the cost
tables that all operators share: `Configuration(tensor_parallel=degree, recompute=...)`, with
recomputation where the TMPC's `id` contains `recomp`; a way that a node lacks has infinite time.
`timePerSample` is forward and backward together: a third of it is stored in `forward` and the rest in
`backward` (an assumption; the sum is exact). It is taken as seconds, the unit that goes with `bandwidth`
in bytes per second; the published `resnet.json` and `gnmt.json` hold milliseconds, which the notes point
out. `memoryUsageA` (per micro-batch in flight) becomes `activation_bytes`, `memoryUsageB` `static_bytes`
(it contains the weights and their state, so `parameter_bytes` stays 0) and `parameterSize` `sync_bytes`.
Piper counts communication per edge: each edge is a tensor of its own with `communicationCost` bytes
forward and as many back. `syncTimeFw` and `syncTimeBw` (extra bytes per edge in tensor-parallel stages),
ids, names and other fields are kept in the graph's `source`. The cluster has `maxDevices` devices of
`maxMemoryPerDevice` bytes and `bandwidth`; `mbsInBatch` (`maxBatchSize` in Piper's documentation) becomes
the parameter `microbatches` of the preset `piper-2021`. Nothing is lost on reading but the layout of the
file. A graph from elsewhere is written with one edge per reader of a tensor, and with the sum of its
forward and backward times."""

PRESET = "piper-2021"
PARAMETERS = {"overlap": "sum", "routing": "direct", "send": "each"}

_MARKER = re.compile(r'"(?:TMPCs|mbsInBatch|maxMemoryPerDevice|communicationCost)"\s*:')
_TOP = ("maxDevices", "maxMemoryPerDevice", "bandwidth", "mbsInBatch", "maxBatchSize", "nodes", "edges")
_NODE = ("id", "name", "TMPCs")
_EDGE = ("sourceId", "destId", "communicationCost")
_COSTS = ("timePerSample", "parameterSize", "memoryUsageA", "memoryUsageB")
_SYNC = ("syncTimeFw", "syncTimeBw")
_WAY = ("id", *_COSTS, *_SYNC)
_SLOW = 10.0  # seconds per sample for the whole network; only milliseconds taken for seconds are as many


def sniff(text: str, path: str) -> bool:
    """Return whether the text has the field names of these files."""
    return _MARKER.search(text) is not None


# -- reading ---------------------------------------------------------------------------------------


def read_text(text: str, path: str) -> Instance:
    """Build an instance from a workload.

    Raises
    ------
    FormatError
        If a field is missing or malformed, an id is doubled or dangles, or a node has two ways to run with
        the same degree that both recompute or both do not.
    """
    top = Fields(parse_json(text, path))
    cluster, microbatches, source = _header(top)
    rows, ids, index = node_rows(top)
    ways = [_ways(row) for row in rows]
    configurations = sorted({way for own in ways for way in own})
    n, c = len(rows), len(configurations)
    if not configurations:
        rows[0].fail("TMPCs", "no node has any way to run")
    if n * c > LARGEST_TABLE:
        top.fail("nodes", f"{n} nodes with {c} ways to run are more than {LARGEST_TABLE} table entries")
    column = {way: k for k, way in enumerate(configurations)}
    tables = {key: np.full((c, n), np.inf if key == "timePerSample" else 0.0) for key in _COSTS}
    for i, own in enumerate(ways):
        for way, cells in own.items():
            for key in _COSTS:
                tables[key][column[way], i] = cells.number(key)
    total = tables["timePerSample"]
    hosted = np.isfinite(total)
    third, rest = total.copy(), total.copy()
    third[hosted] = [exact_third(seconds) for seconds in total[hosted].tolist()]
    rest[hosted] -= third[hosted]
    names = [row.text("name", None) for row in rows]
    unique = all(names) and len(set(names)) == len(names)
    tensors, edge_fields = _tensors(top, index)
    source |= {
        "ids": ids,
        "names": None if unique else names,
        "ways": [[_kept(way, cells) for way, cells in own.items()] for own in ways],
        "node_fields": [other_fields(row, _NODE) for row in rows],
        "edge_fields": edge_fields,
    }
    graph = CostGraph(
        forward=third[None],
        backward=rest[None],
        sync_bytes=tables["parameterSize"],
        activation_bytes=tables["memoryUsageA"],
        static_bytes=tables["memoryUsageB"],
        configurations=[Configuration(degree, recompute) for degree, recompute in configurations],
        names=names if unique else [f"node{node}" for node in ids],
        tensors=tensors,
        name=Path(path).stem,
        source=source,
    )
    notes = ["forward and backward are one third and two thirds of the published sum of both"]
    seconds = float(total.min(axis=0).sum())
    if _SLOW < seconds < np.inf:
        notes.append(
            f"a sample takes {seconds:.4g} s at best: the file probably holds milliseconds (as the published "
            f"resnet.json and gnmt.json do), and communication is then 1000 times too cheap"
        )
    return Instance(graph, cluster, PRESET, PARAMETERS | {"microbatches": microbatches}, notes=tuple(notes))


def _header(top: Fields) -> tuple[Cluster, int, dict[str, Any]]:
    devices = top.integer("maxDevices", least=1)
    if devices > LARGEST_CLUSTER:
        top.fail("maxDevices", f"is more than {LARGEST_CLUSTER}")
    memory, bandwidth = top.number("maxMemoryPerDevice"), top.number("bandwidth")
    if bandwidth == 0:
        top.fail("bandwidth", "must be positive")
    given = [key for key in ("mbsInBatch", "maxBatchSize") if top.has(key)]
    if not given:
        top.fail("mbsInBatch", "is missing (maxBatchSize is taken as well)")
    counts = [top.integer(key, least=1) for key in given]
    if counts[0] != counts[-1]:
        top.fail("maxBatchSize", f"is {counts[-1]}, but mbsInBatch is {counts[0]}; they mean the same")
    source = {
        "format": NAME,
        "batch_field": given[0],
        "fields": other_fields(top, _TOP),
    }
    return Cluster.uniform(devices, memory_bytes=memory, bandwidth=bandwidth), counts[0], source


def _ways(row: Fields) -> dict[tuple[int, bool], Fields]:
    degrees = row.inner("TMPCs")
    ways: dict[tuple[int, bool], Fields] = {}
    for key in degrees.data:
        if re.fullmatch(r"[1-9][0-9]{0,8}", key) is None:
            degrees.fail(key, "is not a tensor-parallel degree")
        for j, data in enumerate(degrees.items(key)):
            cells = Fields(data, f"{degrees.path(key)}[{j}]")
            way = (int(key), "recomp" in cells.text("id").lower())
            if way in ways:
                cells.fail("id", f"a second way with degree {key} {'with' if way[1] else 'without'} recomputation")
            for name in _SYNC:
                edges = cells.take(name, {})
                if not isinstance(edges, dict):
                    cells.fail(name, "expected an object of bytes by node id")
                for end, value in edges.items():
                    number(value, f"{cells.path(name)}.{end}")
            ways[way] = cells
    return ways


def _kept(way: tuple[int, bool], cells: Fields) -> dict[str, Any]:
    """Return what the cost tables have no place for."""
    named = {key: cells.data[key] for key in ("id", *_SYNC) if cells.has(key)}
    return {"degree": way[0], "recompute": way[1], **named, "fields": other_fields(cells, _WAY)}


def _tensors(top: Fields, index: dict[int, int]) -> tuple[Tensors, list[dict[str, Any]]]:
    rows = edge_rows(top, index)
    sizes = [row.number("communicationCost") for row, _, _ in rows]
    extra = [other_fields(row, _EDGE) for row, _, _ in rows]
    ends = np.array([(u, v) for _, u, v in rows], dtype=np.int64).reshape(-1, 2)
    return Tensors.pairs(ends[:, 0], ends[:, 1], sizes, gradient_bytes=sizes), extra


# -- writing ---------------------------------------------------------------------------------------


def write_text(instance: Instance, solution: Plan | Assignment | None = None) -> str:
    """Return the workload.

    Raises
    ------
    FormatError
        If a solution is given, the cluster or the number of micro-batches is missing, or the graph or the
        cluster holds something that the format cannot say.
    """
    if solution is not None:
        raise FormatError("Piper has no file form of a solution: use Plan.save")
    graph, cluster = instance.graph, instance.cluster
    microbatches = instance.parameters.get("microbatches")
    if cluster is None or isinstance(microbatches, bool) or not isinstance(microbatches, int) or microbatches < 1:
        raise FormatError(
            "this format names its devices and micro-batches: give a cluster and parameters['microbatches'], an "
            "integer of at least 1"
        )
    bandwidth = _check(graph, cluster)
    source = graph.source if graph.source.get("format") == NAME else {}
    ids = source.get("ids", ())
    if len(ids) != graph.n_operators:
        source, ids = {}, list(range(graph.n_operators))
    data: dict[str, Any] = {
        "maxDevices": cluster.n_devices,
        "maxMemoryPerDevice": float(cluster.memory_bytes[0]),
        "bandwidth": bandwidth,
        source.get("batch_field", "mbsInBatch"): microbatches,
        **source.get("fields", {}),
        "nodes": _nodes(graph, source, ids),
        "edges": _edges(graph, source, ids),
    }
    return dumped(data, indent=1)


def _check(graph: CostGraph, cluster: Cluster) -> float:
    """Refuse what the format has no place for; return the bandwidth."""
    tensors, link = graph.tensors, cluster.inter
    bandwidth = 0.0 if link is None else link.bandwidth
    latency = 0.0 if link is None else link.latency
    for broken, message in (
        (
            len(cluster.kinds) > 1 or not cluster.is_homogeneous or cluster.links != "uniform",
            "equal devices and links",
        ),
        (latency > 0 or not 0 < bandwidth < np.inf, "a finite bandwidth and no latency"),
        (
            not np.isfinite(cluster.memory_bytes[0]) or cluster.speed[0] != 1,
            "a finite memory size and no speed factor",
        ),
        (len(graph.kinds) > 1, "one device kind"),
        (graph.style == "operators", "times of layers, not backward operators"),
        (
            (graph.colocation >= 0).any() or (graph.pinned >= 0).any(),
            "neither colocation nor pinned operators",
        ),
        (
            graph.workspace_bytes.any() or graph.parameter_bytes.any(),
            "static, activation and synchronisation bytes only",
        ),
        (
            any(c.microbatch_size is not None for c in graph.configurations),
            "no micro-batch sizes of configurations",
        ),
        (not (np.isnan(tensors.seconds) & np.isnan(tensors.gradient_seconds)).all(), "sizes of tensors, not times"),
        (not np.array_equal(tensors.gradient_bytes, tensors.bytes), "gradients as large as their tensors"),
        (graph.style == "inference" and graph.forward.any(), "times of forward and backward passes together"),
    ):
        if broken:
            raise FormatError(f"this does not fit: the format has {message}")
    return bandwidth


def _nodes(graph: CostGraph, source: dict[str, Any], ids: list[int]) -> list[dict[str, Any]]:
    n = graph.n_operators
    names = source.get("names") or graph.names or [None] * n
    extra = source.get("node_fields") or [{}] * n
    kept = source.get("ways") or [[]] * n
    total = graph.forward[0] + graph.backward[0]
    rows = []
    for i in range(n):
        known = {(way["degree"], way["recompute"]): way for way in kept[i]}
        plans: dict[str, list[dict[str, Any]]] = {}
        for c, configuration in enumerate(graph.configurations):
            if np.isinf(total[c, i]):
                continue
            degree, recompute = configuration.tensor_parallel, configuration.recompute
            way = known.get((degree, recompute), {})
            cell: dict[str, Any] = {
                "id": way.get("id", "activation recomp" if recompute else "vanilla"),
                "timePerSample": float(total[c, i]),
                "parameterSize": float(graph.sync_bytes[c, i]),
                "memoryUsageA": float(graph.activation_bytes[c, i]),
                "memoryUsageB": float(graph.static_bytes[c, i]),
                **{key: way.get(key, {}) for key in _SYNC},
                **way.get("fields", {}),
            }
            plans.setdefault(str(degree), []).append(cell)
        named = {} if names[i] is None else {"name": names[i]}
        rows.append({"id": ids[i], **named, **extra[i], "TMPCs": plans})
    return rows


def _edges(graph: CostGraph, source: dict[str, Any], ids: list[int]) -> list[dict[str, Any]]:
    tensors = graph.tensors
    extra = source.get("edge_fields", ())
    if len(extra) != tensors.n_pins:
        extra = [{}] * tensors.n_pins
    sizes = tensors.bytes[tensors.edge_tensor].tolist()
    pairs = zip(tensors.edge_producer.tolist(), tensors.consumers.tolist(), strict=True)
    return [
        {"sourceId": ids[u], "destId": ids[v], "communicationCost": sizes[pin], **extra[pin]}
        for pin, (u, v) in enumerate(pairs)
    ]
