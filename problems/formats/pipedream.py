"""Format room: PipeDream's profiles, ``graph.txt``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from balance.problems.formats._quantities import decimal, milliseconds
from balance.problems.formats._rows import plan_stages
from balance.problems.instance import Instance
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import Tensors

NAME = "pipedream"
SUFFIXES = (".txt",)
DESCRIPTION = """\
The text profiles of PipeDream (SOSP 2019). A line `node4 -- Conv2d(3, 64) -- forward_compute_time=1.5,
backward_compute_time=3.0, activation_size=1024.0, parameter_size=512.0` (optionally followed by ` --
stage_id=0`) is an operator, an indented line `node4 -- node5` an edge. The graph is a layer graph: times
are milliseconds and become `forward` and `backward` seconds; `parameter_size` becomes `parameter_bytes`
and `sync_bytes`; `activation_size`, or the sum of a list `[a; b]`, becomes `activation_bytes` and the
bytes of the one tensor that all readers of the node share (the gradient has the same size). Descriptions
may hold commas and ` -- `; they, the parts of activation lists and the stage ids are kept in the graph's
`source`. The file has no devices; the preset `pipedream-2019` takes the largest of compute and transfers
(`overlap="max"`). Lost: the order and doubling of edges and trailing zeros of numbers. With a plan, the
stage of each operator is written as `stage_id`, which is what PipeDream's optimizer writes. PipeDream's
optimizer sets the times of its `Input` nodes to zero; the reader keeps them and says so in the notes."""

PRESET = "pipedream-2019"
PARAMETERS = {"overlap": "max", "routing": "adjacent", "send": "each"}

_MARKER = re.compile(r"^[^\s{\[]\S* -- .*forward_compute_time=", re.MULTILINE)
_NAME = re.compile(r"[^\s{\[]\S*")
_COSTS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


def sniff(text: str, path: str) -> bool:
    """Return whether the text has a line of these profiles."""
    return _MARKER.search(text) is not None


@dataclass(frozen=True)
class _Node:
    name: str
    description: str
    forward: float
    backward: float
    activations: list[float]
    total: float
    is_list: bool
    parameters: float
    stage: int | None


# -- reading ---------------------------------------------------------------------------------------


def read_text(text: str, path: str) -> Instance:
    """Build an instance from a profile.

    Raises
    ------
    FormatError
        With the line, if it is malformed, a node is doubled or an edge dangles.
    """
    nodes: list[_Node] = []
    index: dict[str, int] = {}
    edges: list[tuple[int, str, str]] = []
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        if row[0] in " \t":
            ends = row.strip().split(" -- ")
            if len(ends) != 2:
                raise FormatError("expected an edge 'node1 -- node2'", line=line)
            edges.append((line, ends[0].strip(), ends[1].strip()))
            continue
        node = _node(row, line)
        if node.name in index:
            raise FormatError(f"node {node.name!r} is there twice", line=line)
        index[node.name] = len(nodes)
        nodes.append(node)
    if not nodes:
        raise FormatError("holds no nodes")
    tensors, doubled = _tensors(nodes, index, edges)
    source: dict[str, Any] = {"format": NAME, "descriptions": [node.description for node in nodes]}
    if any(node.is_list for node in nodes):
        source["activation_parts"] = [node.activations if node.is_list else None for node in nodes]
    staged = [node.stage for node in nodes if node.stage is not None]
    notes = []
    if staged:
        source["stage_id"] = [node.stage for node in nodes]
        notes.append(f"the file carries a split into {len(set(staged))} stages; it is kept in source['stage_id']")
    if doubled:
        notes.append(f"{doubled} doubled edges were read as one each")
    read = {index[v] for _, _, v in edges}
    loading = [n for i, n in enumerate(nodes) if i not in read and n.description.startswith("Input") and n.forward > 0]
    if loading:
        seconds = sum(node.forward + node.backward for node in loading) / 1000.0
        notes.append(
            f"loading inputs ({', '.join(node.name for node in loading[:5])}) takes {seconds:.6g} s, which "
            f"PipeDream's optimizer leaves out: set these times to 0 to compare with it"
        )
    parameters = [node.parameters for node in nodes]
    graph = CostGraph(
        forward=np.array([node.forward for node in nodes]) / 1000.0,
        backward=np.array([node.backward for node in nodes]) / 1000.0,
        parameter_bytes=parameters,
        sync_bytes=parameters,
        activation_bytes=[node.total for node in nodes],
        names=[node.name for node in nodes],
        tensors=tensors,
        name=Path(path).stem,
        source=source,
    )
    return Instance(graph, None, PRESET, PARAMETERS, notes=tuple(notes))


def _node(row: str, line: int) -> _Node:
    name, separator, rest = row.partition(" -- ")
    # The costs come last, so a description may hold the separator.
    description, marker, costs = (" " + rest).rpartition(f" -- {_COSTS[0]}=")
    if not separator or not marker:
        raise FormatError(f"expected 'node -- description -- {_COSTS[0]}=..., ...'", line=line)
    if _NAME.fullmatch(name) is None:
        raise FormatError(f"expected a node name without spaces, got {name[:40]!r}", line=line)
    cells = f"{_COSTS[0]}={costs}".replace(" -- stage_id=", ", stage_id=").split(", ")
    keys = [cell.partition("=")[0].strip() for cell in cells]
    if keys[:4] != list(_COSTS) or keys[4:] not in ([], ["stage_id"]):
        raise FormatError(f"expected {', '.join(_COSTS)} and perhaps stage_id, got {', '.join(keys)[:200]}", line=line)
    values = [cell.partition("=")[2].strip() for cell in cells]
    is_list = values[2].startswith("[") and values[2].endswith("]")
    sizes = values[2][1:-1].split(";") if is_list else [values[2]]
    activations = [decimal(size, line=line, field=_COSTS[2]) for size in sizes if size.strip() or not is_list]
    total = sum(activations)
    if not math.isfinite(total):
        raise FormatError("the parts add up to more than a number can hold", line=line, field=_COSTS[2])
    return _Node(
        name,
        description[1:],
        decimal(values[0], line=line, field=_COSTS[0]),
        decimal(values[1], line=line, field=_COSTS[1]),
        activations,
        total,
        is_list,
        decimal(values[3], line=line, field=_COSTS[3]),
        _stage(values[4], line) if len(values) > 4 else None,
    )


def _stage(word: str, line: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise FormatError(f"expected a stage number, got {word[:40]!r}", line=line, field="stage_id")
    return int(word)


def _tensors(nodes: list[_Node], index: dict[str, int], edges: list[tuple[int, str, str]]) -> tuple[Tensors, int]:
    """Return one net per producer and the number of doubled edges."""
    nets: dict[int, dict[int, None]] = {}
    doubled = 0
    for line, u, v in edges:
        for end in (u, v):
            if end not in index:
                raise FormatError(f"the edge names node {end!r}, which does not exist", line=line)
        if u == v:
            raise FormatError(f"the edge joins node {u!r} to itself", line=line)
        readers = nets.setdefault(index[u], {})
        doubled += index[v] in readers
        readers[index[v]] = None
    tensors = Tensors(
        list(nets),
        np.cumsum([0, *map(len, nets.values())]),
        [v for readers in nets.values() for v in readers],
        np.array([nodes[u].total for u in nets]),
    )
    return tensors, doubled


# -- writing ---------------------------------------------------------------------------------------


def write_text(instance: Instance, solution: Plan | Assignment | None = None) -> str:
    """Return the profile; with a plan, every operator carries its stage.

    Raises
    ------
    FormatError
        If the graph holds something that a profile cannot say, or the solution is not a plan of all
        operators.
    """
    graph = instance.graph
    _check(graph)
    n = graph.n_operators
    source = graph.source if graph.source.get("format") == NAME else {}
    names, descriptions = _labels(graph, source)
    parts = _kept(source, "activation_parts", n)
    stages: list[int | None] = _kept(source, "stage_id", n)
    if solution is not None:
        stages = list(_stages(graph, solution))
    times = [[milliseconds(t) for t in table[0, 0].tolist()] for table in (graph.forward, graph.backward)]
    lines = []
    for i in range(n):
        size = float(graph.activation_bytes[0, i])
        listed = parts[i] is not None and sum(parts[i]) == size
        shown = "[" + "; ".join(f"{part!r}" for part in parts[i]) + "]" if listed else f"{size!r}"
        stage = "" if stages[i] is None else f" -- stage_id={stages[i]}"
        lines.append(
            f"{names[i]} -- {descriptions[i]} -- forward_compute_time={times[0][i]!r}, "
            f"backward_compute_time={times[1][i]!r}, activation_size={shown}, "
            f"parameter_size={float(graph.parameter_bytes[0, i])!r}{stage}"
        )
    tensors = graph.tensors
    for u, v in zip(tensors.edge_producer.tolist(), tensors.consumers.tolist(), strict=True):
        lines.append(f"\t{names[u]} -- {names[v]}")
    return "\n".join(lines) + "\n"


def _kept(source: dict[str, Any], key: str, n: int) -> list[Any]:
    cells = source.get(key)
    return list(cells) if isinstance(cells, list) and len(cells) == n else [None] * n


def _labels(graph: CostGraph, source: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return node names and descriptions; names that do not fit in the format become descriptions."""
    n = graph.n_operators
    given = list(graph.names) if graph.names is not None else [f"operator {i}" for i in range(n)]
    plain = all(_NAME.fullmatch(name) for name in given)
    names = given if plain else [f"node{i + 1}" for i in range(n)]
    kept = _kept(source, "descriptions", n)
    descriptions = [label if text is None else text for text, label in zip(kept, given, strict=True)]
    for i, text in enumerate(descriptions):
        if any(sign in text for sign in ("\n", "\r", f" -- {_COSTS[0]}=")) or not (names[i] + text).isprintable():
            raise FormatError(f"operator {graph.label(i)} has a description that does not fit in one line: {text!r}")
    return names, descriptions


def _stages(graph: CostGraph, solution: Plan | Assignment) -> list[int]:
    if not isinstance(solution, Plan):
        raise FormatError("stage ids come from a plan; an assignment has no order of stages")
    stage_of = plan_stages(graph, solution)
    if (stage_of < 0).any():
        raise FormatError(f"operator {graph.label(int(np.argmin(stage_of)))} is in no stage of the plan")
    return [int(s) for s in stage_of]


def _check(graph: CostGraph) -> None:
    """Refuse what the format has no place for."""
    tensors, size = graph.tensors, graph.activation_bytes[0]
    back = tensors.bytes if graph.style == "layers" else np.zeros(len(tensors))
    for broken, message in (
        (len(graph.kinds) > 1 or len(graph.configurations) > 1, "one device kind and one configuration"),
        (graph.style == "operators", "backward times of layers, not backward operators"),
        (not np.isfinite(graph.forward + graph.backward).all(), "finite times"),
        (
            (graph.colocation >= 0).any() or (graph.pinned >= 0).any(),
            "neither colocation nor pinned operators",
        ),
        (graph.workspace_bytes.any() or graph.static_bytes.any(), "neither workspace nor static bytes"),
        (
            graph.sync_bytes.any() and not np.array_equal(graph.sync_bytes, graph.parameter_bytes),
            "sync_bytes equal to parameter_bytes",
        ),
        (not np.isnan(tensors.seconds).all(), "sizes of tensors, not times"),
        (len(np.unique(tensors.producer)) < len(tensors), "one tensor per producer"),
        (
            not np.array_equal(tensors.bytes, size[tensors.producer]),
            "tensors as large as their producer's activations",
        ),
        (not np.array_equal(tensors.gradient_bytes, back), "gradients as large as their tensors"),
    ):
        if broken:
            raise FormatError(f"the graph does not fit: this format has {message}")
