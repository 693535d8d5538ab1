"""Cost graphs from and to networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from balance.problems.model.errors import GraphError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import Tensor


@pytest.mark.parametrize("example", ["layers", "operators"])
def test_the_worked_examples_round_trip(example: str, request: pytest.FixtureRequest) -> None:
    """Operators, nets with several readers, colocation and flags come back (tensors get the names of their nets)."""
    graph: CostGraph = request.getfixturevalue(example)
    again = CostGraph.from_networkx(graph.to_networkx())
    assert again == graph.replace(tensors=[*_named(graph)])
    assert again.name == graph.name


def _named(graph: CostGraph) -> list[Tensor]:
    return [
        Tensor(t.producer, t.consumers, t.bytes, t.gradient_bytes, name=f"t{i}") for i, t in enumerate(graph.tensors)
    ]


def test_kinds_that_cannot_host_stay_away() -> None:
    """A missing kind of a vertex is an infinite time, and an operator that nothing hosts stays so."""
    graph = CostGraph(forward={"a": [1.0, np.inf], "b": [np.inf, np.inf]}, names=["x", "y"])
    again = CostGraph.from_networkx(graph.to_networkx())
    assert again.kinds == ("a", "b")
    assert again.forward.tolist() == graph.forward.tolist()


def test_edges_without_a_tensor_are_nets_of_their_own() -> None:
    """Only a shared label makes two edges one net."""
    graph = nx.DiGraph()
    graph.add_node("a", forward=1.0)
    graph.add_node("b", forward={"gpu": 2.0}, backward={"gpu": 1.0})
    graph.add_node(3, forward=3.0, parameter_bytes=5.0)
    graph.add_edge("a", "b", bytes=4.0)
    graph.add_edge("a", 3, bytes=4.0)
    own = CostGraph.from_networkx(graph)
    assert own.names == ("a", "b", "3")
    assert own.n_tensors == 2
    nx.set_edge_attributes(graph, "shared", "tensor")
    shared = CostGraph.from_networkx(graph)
    assert shared.n_tensors == 1
    assert shared.tensors[0].consumers == (1, 2)


def test_tensors_of_one_name_stay_apart() -> None:
    """Two tensors of one producer that share a name, or use a name we would give, do not become one net."""
    graph = CostGraph(
        forward=[1.0] * 4, tensors=[Tensor(0, (1,), name="x"), Tensor(0, (2,), name="x"), Tensor(0, (3,), name="t3")]
    )
    assert CostGraph.from_networkx(graph.to_networkx()).n_tensors == 3


def digraph(vertex: dict[str, Any] | None = None, edge: dict[str, Any] | None = None) -> Any:
    """Return a graph of two vertices with an edge."""
    graph = nx.DiGraph()
    graph.add_node("a", forward=1.0)
    graph.add_node("b", **({"forward": 1.0} if vertex is None else vertex))
    graph.add_edge("a", "b", **(edge or {}))
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.Graph([(0, 1)]), "expected a networkx.DiGraph"),
        (nx.MultiDiGraph([(0, 1)]), "expected a networkx.DiGraph"),
        (digraph({}), "vertex 'b' has no attribute 'forward'"),
        (digraph({"forward": None}), "vertex 'b' has no attribute 'forward'"),
        (digraph({"forward": float("nan")}), "has forward = nan"),
        (digraph({"forward": "x"}), "which is not a number"),
        (digraph({"forward": 1.0, "backwards": 1.0}), "unknown attribute 'backwards' .did you mean 'backward'"),
        (digraph(edge={"weight": 1.0}), "edge 'a' -> 'b' has the unknown attribute 'weight'"),
        (digraph(edge={"bytes": -1.0}), "has bytes = -1"),
        (nx.DiGraph([(0, 1), (1, 0)]), "forward"),
    ],
)
def test_bad_graphs_are_refused(graph: Any, message: str) -> None:
    """Wrong types of graphs and attributes are refused by name."""
    with pytest.raises(GraphError, match=message):
        CostGraph.from_networkx(graph)


def test_cycles_and_disagreeing_nets_are_refused() -> None:
    """A cycle, doubled names after conversion to text, and edges of one net that disagree."""
    graph = digraph(edge={"tensor": "t", "bytes": 1.0})
    graph.add_node("c", forward=1.0)
    graph.add_edge("a", "c", tensor="t", bytes=2.0)
    with pytest.raises(GraphError, match="edges of tensor 't' out of 'a' disagree"):
        CostGraph.from_networkx(graph)
    graph = digraph()
    graph.add_edge("b", "a")
    with pytest.raises(GraphError, match="cycle"):
        CostGraph.from_networkx(graph)
    graph = nx.DiGraph()
    graph.add_nodes_from([1, "1"], forward=1.0)
    with pytest.raises(GraphError, match="both named '1'"):
        CostGraph.from_networkx(graph)


def test_what_networkx_cannot_hold_is_refused() -> None:
    """Several configurations, and two tensors between the same operators."""
    with pytest.raises(GraphError, match="one configuration"):
        CostGraph.chain([1.0], configurations=[Configuration(), Configuration(2)]).to_networkx()
    with pytest.raises(GraphError, match="two tensors join '#0' and '#1'"):
        CostGraph(forward=[1.0, 1.0], tensors=[Tensor(0, (1,)), Tensor(0, (1,))]).to_networkx()
