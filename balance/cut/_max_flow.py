"""Cut wing: compiled minimum cuts in 64-bit integers. Imported only when a bound runs, since it loads Numba.

Every function is plain Python over arrays; its twin without compilation is its ``py_func``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

BIG = 1 << 62
"""Capacity that no cut of finite value can hold."""


@njit(cache=True, nogil=True)
def maximum_flow(start: Any, head: Any, twin: Any, room: Any, source: int, sink: int, scratch: Any) -> Any:
    """Push a maximum flow (Dinic: blocking flows along shortest paths) and return its value and the arcs looked at.

    Parameters
    ----------
    start, head
        Arcs of vertex u: ``start[u] : start[u + 1]``, each with the vertex that it leads to.
    twin
        Arc of the opposite direction of each arc.
    room
        Free capacity of each arc; changed to what is left.
    source, sink
        The two ends.
    scratch
        Three rows of one integer per vertex; row 0 ends as 1 + the distance from `source` where there is room
        left, else 0: the source's side of a minimum cut.
    """
    level, cursor, queue = scratch[0], scratch[1], scratch[2]
    path = np.empty(len(level), dtype=np.int64)
    total, looked = 0, 0
    while True:
        level[:] = 0
        level[source] = 1
        queue[0] = source
        front, back = 0, 1
        while front < back and level[sink] == 0:
            u = queue[front]
            front += 1
            cursor[u] = start[u]
            for a in range(start[u], start[u + 1]):
                looked += 1
                v = head[a]
                if room[a] > 0 and level[v] == 0:
                    level[v] = level[u] + 1
                    queue[back] = v
                    back += 1
        if level[sink] == 0:
            return total, looked
        for place in range(front, back):
            cursor[queue[place]] = start[queue[place]]
        depth, u = 0, source
        while True:
            if u == sink:
                least = room[path[0]]
                for place in range(1, depth):
                    least = min(least, room[path[place]])
                total += least
                keep = depth
                for place in range(depth - 1, -1, -1):
                    a = path[place]
                    room[a] -= least
                    room[twin[a]] += least
                    if room[a] == 0:
                        keep = place
                depth = keep
                u = head[twin[path[depth]]]
                continue
            advanced = False
            while cursor[u] < start[u + 1]:
                a = cursor[u]
                looked += 1
                if room[a] > 0 and level[head[a]] == level[u] + 1:
                    path[depth] = a
                    depth += 1
                    u = head[a]
                    advanced = True
                    break
                cursor[u] += 1
            if advanced:
                continue
            if depth == 0:
                break
            depth -= 1
            u = head[twin[path[depth]]]
            cursor[u] += 1


@njit(cache=True, nogil=True)
def scan(
    start: Any, head: Any, twin: Any, caps: Any, work: Any, barred: Any, pays: Any, upper: Any, order: Any, best: int,
    budget: int,
) -> Any:  # fmt: skip
    """Return the largest of all blocks' least cuts if it is above `best`, its block (or -1), and the arcs looked at.

    Parameters
    ----------
    start, head, twin
        The network; vertices 0 to N - 1 are the blocks, the last one is the sink.
    caps
        Capacities per type, shape (Q, arcs).
    work, barred, pays
        Work and whether it is barred per type and block, and whether the type pays for communication.
    upper
        A known upper limit of each block's value; lowered on the way.
    order
        Blocks, by decreasing `upper`.
    best
        Value already known.
    budget
        Arcs after which no further block is looked at.
    """
    n, vertices = work.shape[1], len(start) - 1
    scratch = np.zeros((3, vertices), dtype=np.int64)
    winner, spent = -1, 0
    for place in range(len(order)):
        v = order[place]
        if upper[v] <= best:
            continue
        if spent > budget:
            break
        value = BIG
        for q in range(len(pays)):
            if not barred[q, v] and not pays[q]:
                value = min(value, work[q, v])
        for q in range(len(pays)):
            if barred[q, v] or not pays[q]:
                continue
            if value <= best:
                break
            room = caps[q].copy()
            flow, looked = maximum_flow(start, head, twin, room, v, vertices - 1, scratch)
            spent += looked + len(room) // 8
            value = min(value, flow)
            for u in range(n):  # the set holds u as well: u's value is no larger
                if scratch[0, u] > 0 and flow < upper[u]:
                    upper[u] = flow
        if value > best:
            best, winner = value, v
    return best, winner, spent


@njit(cache=True, nogil=True)
def separable(
    start: Any, head: Any, twin: Any, caps: Any, to_sink: Any, first: Any, second: Any, limit: int, budget: int
) -> Any:
    """Return, per pair of vertices, whether some set holds the first, not the second, and cuts at most `limit`.

    Parameters
    ----------
    start, head, twin, caps
        The network; the last vertex is the sink.
    to_sink
        Arc from each vertex that may be a `second` to the sink.
    first, second
        The pairs, shape (P,).
    limit
        Largest cut of interest.
    budget
        Arcs after which pairs are taken as separable without a look.
    """
    vertices = len(start) - 1
    scratch = np.zeros((3, vertices), dtype=np.int64)
    result = np.ones(len(first), dtype=np.bool_)
    spent = 0
    for pair in range(len(first)):
        if spent > budget:
            break
        room = caps.copy()
        room[to_sink[second[pair]]] = BIG
        flow, looked = maximum_flow(start, head, twin, room, first[pair], vertices - 1, scratch)
        spent += looked + len(caps) // 8
        result[pair] = flow <= limit
    return result


@njit(cache=True, nogil=True)
def all_cuts(start: Any, head: Any, twin: Any, caps: Any, n: int, budget: int) -> Any:
    """Return the least cut around each of the first `n` vertices; 0 for those that the budget does not reach.

    Parameters
    ----------
    start, head, twin, caps
        The network; the last vertex is the sink.
    n
        Number of vertices to cut.
    budget
        Arcs to look at.
    """
    vertices = len(start) - 1
    scratch = np.zeros((3, vertices), dtype=np.int64)
    values = np.zeros(n, dtype=np.int64)
    spent = 0
    for v in range(n):
        if spent > budget:
            break
        values[v], looked = maximum_flow(start, head, twin, caps.copy(), v, vertices - 1, scratch)
        spent += looked + len(caps) // 8
    return values
