"""Model room: operators that must share a stage, and the order between such blocks that every pipeline must keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import IntArray
from balance.problems.model.topology import renumber, strong_components, topological_order

_FREE = 1e-9
"""Seconds; what takes less counts as taking no time."""


@dataclass(frozen=True, eq=False)
class Contraction:
    """Blocks of operators that stay together, in a topological order.

    Parameters
    ----------
    block
        Block of each operator, shape (n,); blocks are numbered along a topological order of `source` and `target`.
    n_blocks
        Number of blocks N.
    source, target
        Distinct edges between blocks, shape (edges,): no stage of `target` comes before the stage of `source`.
    """

    block: IntArray
    n_blocks: int
    source: IntArray
    target: IntArray


def colocation_classes(graph: CostGraph) -> IntArray:
    """Return the colocation class of each operator, shape (n,), numbered by first member."""
    n = graph.n_operators
    if not bool((graph.colocation >= 0).any()):
        return np.arange(n, dtype=np.int64)
    alone = graph.colocation < 0
    offset = int(graph.colocation.max()) + 1
    return renumber(np.where(alone, offset + np.arange(n), graph.colocation))


def order_edges(graph: CostGraph, label: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges between classes that a pipeline must not reverse.

    In operator graphs the order is asked of the forward operators. A colocation class without a forward operator (an
    *orphan*) takes the place that its backward edges allow, reversed: the backward pass runs against the pipeline. It
    stays one when coarser classes join it to forward operators, so joining never frees anything of its order.

    Parameters
    ----------
    graph
        The cost graph.
    label
        Class of each operator, shape (n,).
    """
    source, target = graph.tensors.edge_producer, graph.tensors.consumers
    if graph.style == "operators":
        late, home = graph.is_backward, colocation_classes(graph)
        mated = np.zeros(int(home.max()) + 1, dtype=bool)
        mated[home[~late]] = True
        forward = ~late[source] & ~late[target]
        orphan = late[source] & late[target] & ~(mated[home[source]] & mated[home[target]])
        ends = label[np.concatenate((source[forward], target[orphan]))]
        heads = label[np.concatenate((target[forward], source[orphan]))]
    else:
        ends, heads = label[source], label[target]
    proper = ends != heads
    return ends[proper], heads[proper]


def contract(graph: CostGraph, label: IntArray | None = None) -> Contraction:
    """Contract classes of operators, and the cycles that this makes.

    Parameters
    ----------
    graph
        The cost graph.
    label
        Class of each operator, shape (n,); default: `colocation_classes`.

    Returns
    -------
    Contraction
        Every partition of the graph into stages in pipeline order that keeps classes whole is one of the blocks.
    """
    label = colocation_classes(graph) if label is None else renumber(label)
    count = int(label.max()) + 1 if len(label) else 0
    source, target = order_edges(graph, label)
    order = topological_order(count, source, target)
    if order is None:
        component = strong_components(count, source, target)
        label, count = component[label], int(component.max()) + 1
        source, target = order_edges(graph, label)
        order = topological_order(count, source, target)
        assert order is not None  # the quotient by strong components is acyclic
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    ends, heads = rank[source], rank[target]
    pairs = ends * count + heads
    if len(pairs) and not bool((pairs[1:] > pairs[:-1]).all()):  # long chains come sorted: a million edges stay cheap
        pairs = np.unique(pairs)
        ends, heads = pairs // count, pairs % count
    return Contraction(rank[label], count, ends, heads)


def merge_free_leaves(graph: CostGraph, label: IntArray, configuration: int = 0) -> IntArray:
    """Return classes in which classes without any time have joined their only neighbour, again and again.

    A rule of the published program of device placement (Tarnawski et al. 2020). A class joins if it takes less than a
    nanosecond on every kind, forward and backward, no forward operator of it feeds a backward one, and exactly one
    other class is next to it in the order. Without memory limits this costs nothing: the class's tensors only stop
    being cut. With limits it is a restriction.

    Parameters
    ----------
    graph
        The cost graph.
    label
        Class of each operator, shape (n,).
    configuration
        Column of the cost tables.
    """
    blocks = contract(graph, label)
    block = blocks.block
    time = np.zeros(blocks.n_blocks)
    for table in (graph.forward, graph.backward):
        for kind in range(len(graph.kinds)):
            time = np.maximum(time, np.bincount(block, table[kind, configuration], blocks.n_blocks))
    free = time < _FREE
    late = graph.is_backward
    source, target = graph.tensors.edge_producer, graph.tensors.consumers
    free[block[source[~late[source] & late[target]]]] = False
    around: list[set[int]] = [set() for _ in range(blocks.n_blocks)]
    for a, b in zip(blocks.source.tolist(), blocks.target.tolist(), strict=True):
        around[a].add(b)
        around[b].add(a)
    home = np.arange(blocks.n_blocks)
    waiting = [b for b in range(blocks.n_blocks) if free[b] and len(around[b]) == 1]
    while waiting:
        leaf = waiting.pop()
        if len(around[leaf]) != 1:
            continue  # its only neighbour has joined it meanwhile
        (mate,) = around[leaf]
        around[leaf].clear()
        around[mate].discard(leaf)
        home[leaf] = mate
        if free[mate] and len(around[mate]) == 1:
            waiting.append(mate)
    for _ in range(blocks.n_blocks):  # follow joins of joins
        further = home[home]
        if np.array_equal(further, home):
            break
        home = further
    return renumber(home[block])
