"""Model room: cost graphs from and to networkx.

Attributes read from vertices: the fields of `Operator` (all optional but ``forward``), named by the vertex.
Attributes read from edges: ``bytes``, ``gradient_bytes``, ``seconds``, ``gradient_seconds`` and ``tensor``; edges out
of one vertex that share a ``tensor`` label are one net and must agree on the other attributes, edges without it are
nets of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from balance.problems.model.errors import GraphError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import BYTES, TIMES, CostGraph, Operator
from balance.problems.model.tensors import Tensor

if TYPE_CHECKING:
    import networkx

_VERTEX = (*TIMES, *BYTES, "colocation", "pinned", "is_backward")
_EDGE = ("bytes", "gradient_bytes", "seconds", "gradient_seconds", "tensor")


def to_networkx(graph: CostGraph) -> networkx.DiGraph[Any]:
    """Return a ``networkx.DiGraph`` with one vertex per operator, named as the operator is.

    Two tensors between the same pair of operators cannot both be edges of a DiGraph, so they are refused, as are
    several configurations.

    Raises
    ------
    GraphError
        If two tensors join the same operators, or the graph has more than one configuration.
    """
    import networkx

    if len(graph.configurations) > 1:
        raise GraphError("networkx graphs hold one configuration; choose one before converting")
    result: networkx.DiGraph[Any] = networkx.DiGraph(name=graph.name, kinds=graph.kinds)
    labels = [graph.operator(i).name for i in range(graph.n_operators)]
    for i in range(graph.n_operators):
        operator = graph.operator(i)
        result.add_node(labels[i], **{key: getattr(operator, key) for key in _VERTEX})
    used: set[tuple[int | str, str]] = set()
    for t, tensor in enumerate(graph.tensors):
        net = tensor.name or f"t{t}"
        if (tensor.producer, net) in used:  # names of tensors need not be unique, but here they tell nets apart
            net = f"{net}#{t}"
        used.add((tensor.producer, net))
        for consumer in tensor.consumers:
            edge = (labels[int(tensor.producer)], labels[int(consumer)])
            if result.has_edge(*edge):
                raise GraphError(f"two tensors join {edge[0]!r} and {edge[1]!r}; a DiGraph holds one edge per pair")
            result.add_edge(
                *edge,
                tensor=net,
                bytes=tensor.bytes,
                gradient_bytes=tensor.gradient_bytes,
                seconds=tensor.seconds,
                gradient_seconds=tensor.gradient_seconds,
            )
    return result


def from_networkx(graph: networkx.DiGraph[Any]) -> CostGraph:
    """Build a cost graph; see the module's first lines for the attributes.

    Raises
    ------
    GraphError
        If the graph is undirected or a multigraph, an attribute is unknown, or edges of one tensor disagree.
    """
    if not graph.is_directed() or graph.is_multigraph():
        raise GraphError("expected a networkx.DiGraph (directed, at most one edge between two vertices)")
    names = [str(vertex) for vertex in graph.nodes]
    index = {vertex: i for i, vertex in enumerate(graph.nodes)}
    for name, (_, data) in zip(names, graph.nodes(data=True), strict=True):
        if data.get("forward") is None:
            raise GraphError(f"vertex {name!r} has no attribute 'forward' (seconds)")
    operators = [
        Operator(name=name, **_known(data, _VERTEX, f"vertex {name!r}"))
        for name, (_, data) in zip(names, graph.nodes(data=True), strict=True)
    ]
    nets: dict[tuple[int, Any], list[int]] = {}
    details: dict[tuple[int, Any], dict[str, Any]] = {}
    for count, (u, v, data) in enumerate(graph.edges(data=True)):
        cells = _known(data, _EDGE, f"edge {u!r} -> {v!r}")
        label = cells.pop("tensor", None)
        key = (index[u], ("", count) if label is None else label)
        if key in details and details[key] != cells:
            raise GraphError(f"edges of tensor {label!r} out of {u!r} disagree: {details[key]} and {cells}")
        details[key] = cells
        nets.setdefault(key, []).append(index[v])
    tensors = [
        Tensor(key[0], tuple(readers), name=key[1] if isinstance(key[1], str) else None, **details[key])
        for key, readers in nets.items()
    ]
    kinds = graph.graph.get("kinds")
    return CostGraph.from_operators(operators, tensors, kinds=kinds, name=str(graph.graph.get("name", "")))


def _known(data: dict[str, Any], known: tuple[str, ...], where: str) -> dict[str, Any]:
    unknown = [key for key in data if key not in known]
    if unknown:
        raise GraphError(f"{where} has the unknown attribute {unknown[0]!r}{nearest(str(unknown[0]), known)}")
    return {key: value for key, value in data.items() if value is not None}
