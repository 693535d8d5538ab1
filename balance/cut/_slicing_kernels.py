"""Cut wing: the compiled loops of slicing an order of blocks. Imported only when a solver runs, since it loads Numba.

Every function is plain Python over arrays; its twin without compilation is its ``py_func``. Orders run from the last
stage to the first, so that the number of stages after a stage is the number of those already chosen.
"""

# N, H and Q are the sizes that the documentation uses.
# ruff: noqa: N806

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from balance.cut.layers import BIG

TOTAL, FORWARD_FIRST, BACKWARD_FIRST = 0, 1, 2


class Blocks(NamedTuple):
    """What decides the load of a stage, by block; N blocks, H nets, Q types."""

    work: Any  # (Q, 2, N) int64
    barred: Any  # (Q, N) bool
    reference: Any  # (N,) int64
    held: Any  # (N,) bytes whatever is in flight
    kept: Any  # (N,) bytes per micro-batch in flight
    workspace: Any  # (N,) bytes
    nets_at: Any  # (N + 1,) nets of block v: nets[nets_at[v] : nets_at[v + 1]]
    nets: Any
    size: Any  # (H,) blocks of each net
    producer: Any  # (H,)
    weight: Any  # (2, H) int64
    capacity: Any  # (Q,) bytes that must hold a stage
    available: Any  # (Q,) bytes above which `overflow` counts
    pays: Any  # (Q,) bool
    flight: Any  # (stages,) micro-batches in flight with so many stages after
    overflow: Any  # scaled seconds per byte, 0 without
    limited: Any  # bool: memory matters
    adjacent: Any  # bool
    overlap: Any  # bool: communication runs beside compute


@njit(cache=True, nogil=True)
def crossing_weights(blocks: Any, order: Any) -> Any:
    """Return the weight of the nets that are open after each prefix of an order, per phase, shape (2, N + 1)."""
    n = len(order)
    inside = np.zeros(len(blocks.size), dtype=np.int64)
    crossing = np.zeros((2, n + 1), dtype=np.int64)
    for j in range(n):
        v = order[j]
        crossing[:, j + 1] = crossing[:, j]
        for at in range(blocks.nets_at[v], blocks.nets_at[v + 1]):
            h = blocks.nets[at]
            inside[h] += 1
            if inside[h] == 1:
                crossing[:, j + 1] += blocks.weight[:, h]
            if inside[h] == blocks.size[h]:
                crossing[:, j + 1] -= blocks.weight[:, h]
    return crossing


@njit(cache=True, nogil=True)
def slice_order(
    blocks: Any, order: Any, allowed: Any, layers: Any, reach: Any, limit: Any, most_stages: Any, aim: Any,
    most_f: Any, most_b: Any, values: Any, before: Any, kind: Any,
) -> Any:  # fmt: skip
    """Fill the best bottleneck of every state and prefix of an order; return the state at its end, -1 if there is none.

    Parameters
    ----------
    order
        Blocks from the last stage to the first, shape (N,).
    allowed
        (N + 1,) bool: whether stages may begin and end after so many blocks.
    reach
        (Q,) work in units of the reference type that one device of a type can take within the limit.
    limit
        Largest bottleneck of interest.
    aim, most_f, most_b
        What is minimised, and limits on the forward and backward loads.
    values, before, kind
        Filled: bottleneck, start of the last stage and its type, by state and prefix as in ``layers.offset``.
    """
    N, H, Q = len(order), len(blocks.size), len(blocks.pays)
    states = len(layers.counts)
    values[:] = BIG
    if layers.low[0] > 0:
        return -1
    values[0] = 0
    inside = np.zeros(H, dtype=np.int64)
    home = np.zeros(H, dtype=np.bool_)
    stamp = np.full(H, -1, dtype=np.int64)
    work = np.zeros((Q, 2), dtype=np.int64)
    able = np.zeros(Q, dtype=np.bool_)
    active = np.zeros(states, dtype=np.int64)
    used = np.zeros(states, dtype=np.int64)
    for s in range(states):
        for q in range(Q):
            used[s] += layers.counts[s, q]
    farthest = 0
    for q in range(Q):
        farthest = max(farthest, reach[q])
    cross = crossing_weights(blocks, order) if blocks.adjacent else np.zeros((2, 1), dtype=np.int64)
    for i in range(N):
        if not allowed[i]:
            continue
        count = 0
        for s in range(states):
            here = layers.low[s] <= i < layers.high[s] and used[s] < most_stages
            if here and values[layers.offset[s] + i - layers.low[s]] <= limit:
                active[count] = s
                count += 1
        if count == 0:
            continue
        work[:] = 0
        able[:] = True
        in_f = in_b = out_f = out_b = 0
        done = 0
        held = kept = scratch = 0.0
        for j in range(i, N):
            v = order[j]
            done += blocks.reference[v]
            if done > farthest:
                break
            alive = False
            for q in range(Q):
                work[q, 0] += blocks.work[q, 0, v]
                work[q, 1] += blocks.work[q, 1, v]
                if blocks.barred[q, v]:
                    able[q] = False
                alive |= able[q]
            if not alive:
                break
            if blocks.limited:
                held += blocks.held[v]
                kept += blocks.kept[v]
                scratch = max(scratch, blocks.workspace[v])
            if not blocks.adjacent:
                for at in range(blocks.nets_at[v], blocks.nets_at[v + 1]):
                    h = blocks.nets[at]
                    if stamp[h] != i:
                        stamp[h] = i
                        inside[h] = 0
                        home[h] = False
                    if inside[h] > 0:
                        if home[h]:
                            out_f -= blocks.weight[0, h]
                            out_b -= blocks.weight[1, h]
                        else:
                            in_f -= blocks.weight[0, h]
                            in_b -= blocks.weight[1, h]
                    inside[h] += 1
                    if blocks.producer[h] == v:
                        home[h] = True
                    if inside[h] < blocks.size[h]:
                        if home[h]:
                            out_f += blocks.weight[0, h]
                            out_b += blocks.weight[1, h]
                        else:
                            in_f += blocks.weight[0, h]
                            in_b += blocks.weight[1, h]
            else:
                in_f, in_b = cross[0, j + 1], cross[1, j + 1]
                out_f, out_b = cross[0, i], cross[1, i]
            if not allowed[j + 1]:
                continue
            for q in range(Q):
                if not able[q]:
                    continue
                if blocks.pays[q]:
                    f, b = in_f + out_f, in_b + out_b
                else:
                    f = b = 0
                if not blocks.overlap:
                    forward, backward = work[q, 0] + f, work[q, 1] + b
                    total = forward + backward
                elif blocks.pays[q]:
                    forward = max(work[q, 0], in_f, out_f)
                    backward = max(work[q, 1], in_b, out_b)
                    total = max(work[q, 0] + work[q, 1], in_f + in_b, out_f + out_b)
                else:
                    forward, backward = work[q, 0], work[q, 1]
                    total = forward + backward
                if aim == TOTAL:
                    load = total
                elif forward > most_f or backward > most_b:
                    continue
                else:
                    load = forward if aim == FORWARD_FIRST else backward
                if load > limit:
                    continue
                for at in range(count):
                    s = active[at]
                    if layers.counts[s, q] >= layers.counts[states - 1, q]:
                        continue
                    more = s + layers.stride[q]
                    if not layers.low[more] <= j + 1 < layers.high[more]:
                        continue
                    paid = load
                    if blocks.limited:
                        need = held + blocks.flight[used[s]] * kept + scratch
                        if need > blocks.capacity[q] * (1.0 + 1e-12):
                            continue
                        if blocks.overflow > 0.0 and need > blocks.available[q]:
                            paid += int(np.rint((need - blocks.available[q]) * blocks.overflow))
                    value = max(paid, values[layers.offset[s] + i - layers.low[s]])
                    place = layers.offset[more] + j + 1 - layers.low[more]
                    if value <= limit and value < values[place]:
                        values[place] = value
                        before[place] = i
                        kind[place] = q
    best = -1
    for s in range(states):
        if layers.low[s] <= N < layers.high[s]:
            value = values[layers.offset[s] + N - layers.low[s]]
            if value <= limit and (best < 0 or value < values[layers.offset[best] + N - layers.low[best]]):
                best = s
    return best


@njit(cache=True, nogil=True)
def keyed_order(n: Any, before_at: Any, before: Any, after_at: Any, after: Any, keys: Any) -> Any:
    """Return the topological order that always takes the free block with the least key."""
    waiting = np.empty(n, dtype=np.int64)
    heap = [(0.0, 0)]
    heap.clear()
    for v in range(n):
        waiting[v] = before_at[v + 1] - before_at[v]
        if waiting[v] == 0:
            heapq.heappush(heap, (keys[v], v))
    order = np.empty(n, dtype=np.int64)
    for place in range(n):
        v = heapq.heappop(heap)[1]
        order[place] = v
        for at in range(after_at[v], after_at[v + 1]):
            u = after[at]
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(heap, (keys[u], u))
    return order


@njit(cache=True, nogil=True)
def depth_first_order(n: Any, before_at: Any, before: Any, after_at: Any, after: Any, keys: Any) -> Any:
    """Return the topological order that goes on from the block taken last; among its successors the least key first."""
    waiting = np.empty(n, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    height = 0
    for v in range(n):
        waiting[v] = before_at[v + 1] - before_at[v]
    for v in range(n - 1, -1, -1):
        if waiting[v] == 0:
            stack[height] = v
            height += 1
    stack[:height] = stack[:height][np.argsort(-keys[stack[:height]])]
    order = np.empty(n, dtype=np.int64)
    for place in range(n):
        height -= 1
        v = stack[height]
        order[place] = v
        bottom = height
        for at in range(after_at[v], after_at[v + 1]):
            u = after[at]
            waiting[u] -= 1
            if waiting[u] == 0:
                stack[height] = u
                height += 1
                at_place = height - 1
                while at_place > bottom and keys[stack[at_place - 1]] < keys[u]:
                    stack[at_place] = stack[at_place - 1]
                    at_place -= 1
                stack[at_place] = u
    return order
