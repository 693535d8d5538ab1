"""Model room: which graphs are chains, and the order they force on their operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balance.problems.model.contraction import contract
from balance.problems.model.errors import LinearisationError
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import IntArray

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
    blocks = contract(graph)
    rank, count, a, b = blocks.block, blocks.n_blocks, blocks.source, blocks.target
    joined = np.zeros(max(count, 1), dtype=bool)
    joined[a[b == a + 1]] = True
    open_steps = np.flatnonzero(~joined[: max(count - 1, 0)])
    if not len(open_steps):
        return Linearisation(rank, count, True, 0)
    if regions == "refuse":
        first = int(open_steps[0])
        u, v = (graph.label(int(np.argmax(rank == place))) for place in (first, first + 1))
        raise LinearisationError(
            f"the graph is not a chain: neither of the operators {u} and {v} comes before the other "
            f"({len(open_steps)} such neighbours). Keep its parallel regions whole (regions='whole') or ask for "
            f"another problem",
            operators=(u, v),
        )
    block = _whole_regions(count, a, b)
    items = int(block.max()) + 1
    return Linearisation(block[rank], items, False, int((np.bincount(block) > 1).sum()))


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
