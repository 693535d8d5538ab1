"""Order, cycles and components of directed graphs, against networkx and by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.topology import (
    find_cycle,
    renumber,
    strong_components,
    successor_rows,
    topological_order,
)

EDGES = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]), max_size=20),
    )
)


def arrays(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return edge arrays."""
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(case=EDGES)
def test_order_is_the_smallest_first_one(case: tuple[int, list[tuple[int, int]]]) -> None:
    """The order equals networkx's lexicographic one, and is None exactly for graphs with a cycle."""
    n, edges = case
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(n))
    order = topological_order(n, *arrays(edges))
    if nx.is_directed_acyclic_graph(graph):
        assert order is not None
        assert order.tolist() == list(nx.lexicographical_topological_sort(graph))
        assert find_cycle(n, *arrays(edges)) == []
    else:
        assert order is None


@given(case=EDGES)
def test_a_found_cycle_is_one(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Every step of the cycle, and the one that closes it, is an edge; no vertex repeats."""
    n, edges = case
    cycle = find_cycle(n, *arrays(edges))
    assert len(set(cycle)) == len(cycle)
    for u, v in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        assert (u, v) in edges


@given(case=EDGES)
def test_components_are_those_of_networkx(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Components agree with networkx and are numbered by their smallest member."""
    n, edges = case
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(n))
    component = strong_components(n, *arrays(edges))
    expected = sorted(sorted(c) for c in nx.strongly_connected_components(graph))
    assert [np.flatnonzero(component == c).tolist() for c in range(component.max() + 1)] == expected


def test_long_paths_do_not_recurse() -> None:
    """A path of 200,000 vertices against the numbering, and a cycle through all of them."""
    n = 200_000
    source, target = np.arange(n - 1, 0, -1), np.arange(n - 2, -1, -1)
    order = topological_order(n, source, target)
    assert order is not None
    assert order[:3].tolist() == [n - 1, n - 2, n - 3]
    assert len(find_cycle(n, np.append(source, 0), np.append(target, n - 1))) == n
    assert strong_components(n, np.append(source, 0), np.append(target, n - 1)).max() == 0


def test_rows_are_sorted_and_complete() -> None:
    """Successor rows list the targets of each vertex in order, parallel edges included."""
    offsets, targets = successor_rows(4, np.array([2, 0, 0, 0]), np.array([3, 2, 1, 2]))
    assert offsets.tolist() == [0, 3, 3, 4, 4]
    assert targets.tolist() == [1, 2, 2, 3]


@given(labels=st.lists(st.integers(-5, 5), max_size=20))
def test_renumbering_keeps_the_partition(labels: list[int]) -> None:
    """Labels become 0, 1, ... by first appearance."""
    new = renumber(labels).tolist()
    seen: dict[int, int] = {}
    assert new == [seen.setdefault(label, len(seen)) for label in labels]


def test_empty_graphs() -> None:
    """No vertices, no edges."""
    nothing = np.array([], dtype=np.int64)
    assert topological_order(0, nothing, nothing) is not None
    assert find_cycle(0, nothing, nothing) == []
    assert strong_components(0, nothing, nothing).tolist() == []
