"""Model room: order, cycles and reach of directed graphs given as edge arrays."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from balance.problems.model.errors import GraphError
from balance.problems.model.tensors import IntArray


def successor_rows(n: int, source: IntArray, target: IntArray) -> tuple[IntArray, IntArray]:
    """Return compressed successor rows (offsets (n + 1,), targets (edges,)) of the given edges, sorted by target."""
    order = np.lexsort((target, source))
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=offsets[1:])
    return offsets, target[order]


def topological_order(n: int, source: IntArray, target: IntArray) -> IntArray | None:
    """Return the topological order that always takes the smallest free index, or None if there is a cycle.

    Parameters
    ----------
    n
        Number of vertices.
    source, target
        Edges, shape (edges,); parallel edges are allowed.

    Returns
    -------
    numpy.ndarray or None
        Shape (n,). O((n + edges) log n); a graph whose edges all point upwards costs O(n + edges).
    """
    if not len(source) or bool((source < target).all()):
        return np.arange(n, dtype=np.int64)
    offsets, targets = successor_rows(n, source, target)
    waiting = np.bincount(target, minlength=n).tolist()
    rows, heads = offsets.tolist(), targets.tolist()
    free = [v for v in range(n) if waiting[v] == 0]
    order: list[int] = []
    while free:
        v = heapq.heappop(free)
        order.append(v)
        for w in heads[rows[v] : rows[v + 1]]:
            waiting[w] -= 1
            if waiting[w] == 0:
                heapq.heappush(free, w)
    return np.array(order, dtype=np.int64) if len(order) == n else None


def ordered(n: int, source: IntArray, target: IntArray, label: Callable[[int], str]) -> IntArray:
    """Return `topological_order`, shape (n,); `label` names a vertex in messages.

    Raises
    ------
    GraphError
        If there is a cycle; it shows one.
    """
    order = topological_order(n, source, target)
    if order is None:
        cycle = find_cycle(n, source, target)
        shown = [label(v) for v in [*cycle[:8], *([cycle[0]] if len(cycle) <= 8 else [])]]
        raise GraphError(
            f"the graph has a cycle: {' -> '.join(shown)}{' -> ...' if len(cycle) > 8 else ''}", cycle=cycle
        )
    return order


def find_cycle(n: int, source: IntArray, target: IntArray) -> list[int]:
    """Return the vertices of one cycle in order, or an empty list if there is none."""
    offsets, targets = successor_rows(n, source, target)
    rows, heads = offsets.tolist(), targets.tolist()
    state = [0] * n  # 0 unseen, 1 on the current path, 2 done
    for root in range(n):
        if state[root]:
            continue
        path = [root]
        cursor = [rows[root]]
        state[root] = 1
        while path:
            v = path[-1]
            if cursor[-1] == rows[v + 1]:
                state[v] = 2
                path.pop()
                cursor.pop()
                continue
            w = heads[cursor[-1]]
            cursor[-1] += 1
            if state[w] == 1:
                return path[path.index(w) :]
            if state[w] == 0:
                state[w] = 1
                path.append(w)
                cursor.append(rows[w])
    return []


def strong_components(n: int, source: IntArray, target: IntArray) -> IntArray:
    """Return the strongly connected component of each vertex, shape (n,), numbered by smallest member."""
    offsets, targets = successor_rows(n, source, target)
    rows, heads = offsets.tolist(), targets.tolist()
    number = [-1] * n
    low = [0] * n
    component = [-1] * n
    stack: list[int] = []
    counter = 0
    for root in range(n):
        if number[root] >= 0:
            continue
        path, cursor = [root], [rows[root]]
        number[root] = low[root] = counter
        counter += 1
        stack.append(root)
        while path:
            v = path[-1]
            if cursor[-1] < rows[v + 1]:
                w = heads[cursor[-1]]
                cursor[-1] += 1
                if number[w] < 0:
                    number[w] = low[w] = counter
                    counter += 1
                    stack.append(w)
                    path.append(w)
                    cursor.append(rows[w])
                elif component[w] < 0:
                    low[v] = min(low[v], number[w])
                continue
            path.pop()
            cursor.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[v])
            if low[v] == number[v]:
                members = []
                while True:
                    w = stack.pop()
                    members.append(w)
                    if w == v:
                        break
                smallest = min(members)
                for w in members:
                    component[w] = smallest
    return renumber(component)


def renumber(labels: Sequence[int] | IntArray) -> IntArray:
    """Return labels 0, 1, ... in order of first appearance, shape (n,)."""
    array = np.asarray(labels, dtype=np.int64)
    _, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]
