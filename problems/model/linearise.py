"""Model room: which graphs are chains, and the order they force on their operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balance.problems.model.errors import LinearisationError
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import renumber, strong_components, topological_order

REGIONS = ("refuse", "whole")


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A graph read as a chain of items; an item is one or more operators that stay together.

    Parameters
    ----------
    position
        Item of each operator, shape (n,).
    n_items
        Number of items.
    exact
        Whether every partition into down-sets is a partition into intervals of this chain. False when parallel
        regions were kept whole: then the chain's optimum is the best among plans that do not cut those regions.
    regions
        Number of parallel regions kept whole.
    """

    position: IntArray
    n_items: int
    exact: bool
    regions: int

    @property
    def order(self) -> IntArray:
        """Operators by item, ties by index, shape (n,)."""
        return np.argsort(self.position, kind="stable")

    def members(self, item: int) -> IntArray:
        """Return the operators of one item."""
        return np.flatnonzero(self.position == item)


def linearise(graph: CostGraph, regions: str = "refuse") -> Linearisation:
    """Read a graph as a chain.

    Colocated operators are contracted, then cycles that this makes. In operator graphs the order is asked of the
    forward operators and backward operators follow their mates; a backward operator without a mate takes the place
    that its reversed edges allow. If consecutive classes of the (then only) topological order are joined by edges, the
    down-sets are exactly the prefixes, and intervals lose nothing: the reading is exact, however many tensors skip
    ahead.

    Parameters
    ----------
    graph
        Any cost graph.
    regions
        What to do with a graph that has parallel branches: ``"refuse"`` it, or keep each region between two operators
        that are comparable to all others ``"whole"``.

    Returns
    -------
    Linearisation
        O(n + pins) for graphs whose tensors all point upwards.

    Raises
    ------
    LinearisationError
        If the graph has parallel branches and `regions` is ``"refuse"``; it names two operators without an order.
    """
    n = graph.n_operators
    label = _classes(graph)
    count = int(label.max()) + 1 if n else 0
    source, target = _order_edges(graph, label)
    order = topological_order(count, source, target)
    if order is None:
        component = strong_components(count, source, target)
        label, count = renumber(component[label]), int(component.max()) + 1
        source, target = _order_edges(graph, label)
        order = topological_order(count, source, target)
        assert order is not None  # the quotient by strong components is acyclic
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    a, b = rank[source], rank[target]
    joined = np.zeros(max(count, 1), dtype=bool)
    joined[a[b == a + 1]] = True
    open_steps = np.flatnonzero(~joined[: max(count - 1, 0)])
    if not len(open_steps):
        return Linearisation(rank[label], count, True, 0)
    if regions == "refuse":
        first = int(open_steps[0])
        u, v = (graph.label(int(np.argmax(rank[label] == place))) for place in (first, first + 1))
        raise LinearisationError(
            f"the graph is not a chain: neither of the operators {u} and {v} comes before the other "
            f"({len(open_steps)} such neighbours). Keep its parallel regions whole (regions='whole') or ask for "
            f"another problem",
            operators=(u, v),
        )
    block = _whole_regions(count, a, b)
    items = int(block.max()) + 1
    return Linearisation(block[rank[label]], items, False, int((np.bincount(block) > 1).sum()))


def _classes(graph: CostGraph) -> IntArray:
    """Return the colocation class of each operator, numbered by first member."""
    n = graph.n_operators
    if not bool((graph.colocation >= 0).any()):
        return np.arange(n, dtype=np.int64)
    alone = graph.colocation < 0
    offset = int(graph.colocation.max()) + 1
    return renumber(np.where(alone, offset + np.arange(n), graph.colocation))


def _order_edges(graph: CostGraph, label: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges between classes that a plan must not reverse."""
    source, target = graph.tensors.edge_producer, graph.tensors.consumers
    if graph.style == "operators":
        late = graph.is_backward
        mated = np.zeros(int(label.max()) + 1, dtype=bool)
        mated[label[~late]] = True
        forward = ~late[source] & ~late[target]
        # Backward edges run against the pipeline; with an orphan at one end they are all that places it.
        orphan = late[source] & late[target] & ~(mated[label[source]] & mated[label[target]])
        ends = label[np.concatenate((source[forward], target[orphan]))]
        heads = label[np.concatenate((target[forward], source[orphan]))]
    else:
        ends, heads = label[source], label[target]
    proper = ends != heads
    return ends[proper], heads[proper]


def _whole_regions(count: int, source: IntArray, target: IntArray) -> IntArray:
    """Return the item of each position of a topological order, with every parallel region as one item.

    A position is comparable to all others iff every earlier one has a successor no later than it (so by induction a
    path to it), and every later one a predecessor no earlier than it.
    """
    nearest_successor = np.full(count, count, dtype=np.int64)
    nearest_predecessor = np.full(count, -1, dtype=np.int64)
    np.minimum.at(nearest_successor, source, target)
    np.maximum.at(nearest_predecessor, target, source)
    places = np.arange(count)
    before = np.concatenate(([-1], np.maximum.accumulate(nearest_successor)[:-1]))
    after = np.concatenate((np.minimum.accumulate(nearest_predecessor[::-1])[::-1][1:], [count]))
    pinch = (before <= places) & (after >= places)
    # A new item starts at each pinch and right after it.
    starts = pinch | np.concatenate(([True], pinch[:-1]))
    return np.asarray(np.cumsum(starts) - 1, dtype=np.int64)
