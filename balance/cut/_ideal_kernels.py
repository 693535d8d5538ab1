"""Cut wing: the compiled loops over ideals. Imported only when a solver runs, since it loads Numba.

Every function is plain Python over arrays; its twin without compilation is its ``py_func``. Ideals are down-sets of the
reversed block graph, kept as bitsets: position 0 of a pipeline is its last stage, so that the number of stages after a
stage is the number of those already chosen.
"""

# Arrays reach the compiled code in tuples; N, M, H and Q are the sizes that the documentation uses.
# ruff: noqa: N806

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from balance.cut.layers import BIG

TOTAL, FORWARD_FIRST, BACKWARD_FIRST = 0, 1, 2
SUM, ADJACENT, SPLIT = 0, 1, 2


class Ideals(NamedTuple):
    """All ideals, sorted by work and size; M ideals, N blocks, H nets, Q types."""

    bits: Any  # (M, words) uint64: blocks inside
    open: Any  # (M, words of nets) uint64: nets that are partly inside
    reference: Any  # (M,) int64: work in units of the reference type
    work: Any  # (Q, M) int64 total work, or (Q * 2, M) per phase if loads are split
    barred: Any  # (Q, M) int32: blocks inside that the type cannot host
    held: Any  # (M,) bytes whatever is in flight
    kept: Any  # (M,) bytes per micro-batch in flight
    crossing: Any  # (1, M) weight of open nets, or (4, M): F, B with the producer inside, F, B with it outside


class Costs(NamedTuple):
    """What decides the load of a stage."""

    nets: Any  # (H, words) uint64: blocks of each net
    first: Any  # (H,) first word that a net touches
    last: Any  # (H,) word after the last that it touches
    weight: Any  # (2, H) int64
    workspace: Any  # (N,) bytes
    capacity: Any  # (Q,) bytes that must hold a stage
    available: Any  # (Q,) bytes above which `overflow` counts
    pays: Any  # (Q,) bool
    flight: Any  # (stages,) micro-batches in flight with so many stages after
    overflow: Any  # scaled seconds per byte, 0 without
    style: Any  # SUM, ADJACENT or SPLIT
    adjacent: Any  # bool, with SPLIT
    overlap: Any  # bool, with SPLIT


@njit(cache=True, nogil=True)
def enumerate_ideals(n: Any, before_at: Any, before: Any, after_at: Any, after: Any, limit: Any) -> Any:
    """Return (bitsets, parent, added block, count) of every down-set; count is limit + 1 when there are more.

    Each is made once, by adding blocks in growing order: ``before`` lists what must be inside first.
    """
    words = (n + 63) // 64
    size = min(1024, limit + 1)
    bits = np.zeros((size, words), dtype=np.uint64)
    free = np.zeros((size, words), dtype=np.uint64)
    parent = np.full(size, -1, dtype=np.int32)
    item = np.full(size, -1, dtype=np.int32)
    one = np.uint64(1)
    for v in range(n):
        if before_at[v] == before_at[v + 1]:
            free[0, v >> 6] |= one << np.uint64(v & 63)
    count = 1
    i = 0
    while i < count:
        start = item[i] + 1
        for w in range(start >> 6, words):
            left = free[i, w]
            while left:
                low = left & (~left + one)
                left ^= low
                v = (w << 6) + _log2(low)
                if v < start:
                    continue
                if count > limit:
                    return bits, parent, item, count
                if count == size:
                    size = min(2 * size, limit + 1)
                    bits, free = _grown(bits, size), _grown(free, size)
                    parent, item = _longer(parent, size), _longer(item, size)
                for x in range(words):
                    bits[count, x] = bits[i, x]
                    free[count, x] = free[i, x]
                bits[count, w] |= low
                free[count, w] ^= low
                for at in range(after_at[v], after_at[v + 1]):
                    u = after[at]
                    ready = True
                    for back in range(before_at[u], before_at[u + 1]):
                        b = before[back]
                        if not (bits[count, b >> 6] >> np.uint64(b & 63)) & one:
                            ready = False
                            break
                    if ready:
                        free[count, u >> 6] |= one << np.uint64(u & 63)
                parent[count] = i
                item[count] = v
                count += 1
        i += 1
    return bits, parent, item, count


@njit(cache=True, nogil=True)
def _log2(power: Any) -> Any:
    result = 0
    for step in (32, 16, 8, 4, 2, 1):
        if power >> np.uint64(step):
            power >>= np.uint64(step)
            result += step
    return result


@njit(cache=True, nogil=True)
def _grown(table: Any, size: Any) -> Any:
    more = np.zeros((size, table.shape[1]), dtype=table.dtype)
    more[: len(table)] = table
    return more


@njit(cache=True, nogil=True)
def _longer(row: Any, size: Any) -> Any:
    more = np.full(size, -1, dtype=row.dtype)
    more[: len(row)] = row
    return more


@njit(cache=True, nogil=True)
def accumulate(parent: Any, item: Any, count: Any, values: Any) -> Any:
    """Return the sum of a column over the blocks of each ideal, shape (count,)."""
    total = np.zeros(count, dtype=values.dtype)
    for i in range(1, count):
        total[i] = total[parent[i]] + values[item[i]]
    return total


@njit(cache=True, nogil=True)
def crossings(
    bits: Any, parent: Any, item: Any, count: Any, nets_at: Any, nets: Any, pins_at: Any, pins: Any, producer: Any,
    weight: Any, split: Any,
) -> Any:  # fmt: skip
    """Return (open nets as bitsets, weight of open nets) of every ideal.

    ``nets`` lists the nets of each block. With `split` the weights are (forward, backward) with the producer inside,
    then (forward, backward) with it outside; else one row of sums.
    """
    H = len(producer)
    words = max((H + 63) // 64, 1)
    opened = np.zeros((count, words), dtype=np.uint64)
    crossing = np.zeros((4 if split else 1, count), dtype=np.int64)
    one = np.uint64(1)
    for i in range(1, count):
        p, v = parent[i], item[i]
        for w in range(words):
            opened[i, w] = opened[p, w]
        for row in range(len(crossing)):
            crossing[row, i] = crossing[row, p]
        for at in range(nets_at[v], nets_at[v + 1]):
            h = nets[at]
            inside = 0
            for pin in range(pins_at[h], pins_at[h + 1]):
                b = pins[pin]
                if (bits[i, b >> 6] >> np.uint64(b & 63)) & one:
                    inside += 1
            size = pins_at[h + 1] - pins_at[h]
            mark = one << np.uint64(h & 63)
            was, now = inside > 1, inside < size
            if now:
                opened[i, h >> 6] |= mark
            else:
                opened[i, h >> 6] &= ~mark
            if not split:
                crossing[0, i] += (weight[0, h] + weight[1, h]) * ((1 if now else 0) - (1 if was else 0))
                continue
            b = producer[h]
            home = (bits[i, b >> 6] >> np.uint64(b & 63)) & one
            old = 0 if home and b != v else 2
            new = 0 if home else 2
            for phase in range(2):
                if was:
                    crossing[old + phase, i] -= weight[phase, h]
                if now:
                    crossing[new + phase, i] += weight[phase, h]
    return opened, crossing


@njit(cache=True, nogil=True)
def stage_load(ideals: Any, costs: Any, q: Any, inner: Any, outer: Any, after: Any) -> Any:
    """Return (total, forward, backward) load of the stage outer minus inner on type q, BIG where it does not fit.

    inner must be inside outer. With the styles SUM and ADJACENT only the total is computed.
    """
    if ideals.barred[q, outer] != ideals.barred[q, inner]:
        return BIG, BIG, BIG
    extra = 0
    if costs.capacity[q] < np.inf or costs.overflow > 0.0:
        need = ideals.held[outer] - ideals.held[inner] + costs.flight[after] * (ideals.kept[outer] - ideals.kept[inner])
        slack = costs.capacity[q] * (1.0 + 1e-12)
        if need > slack * (1.0 + 1e-12):
            return BIG, BIG, BIG
        need += _largest_workspace(ideals.bits, costs.workspace, inner, outer)
        if need > slack:
            return BIG, BIG, BIG
        if costs.overflow > 0.0 and need > costs.available[q]:
            extra = int(np.rint((need - costs.available[q]) * costs.overflow))
    if costs.style == SPLIT:
        return _split_load(ideals, costs, q, inner, outer, extra)
    total = ideals.work[q, outer] - ideals.work[q, inner] + extra
    if costs.pays[q]:
        total += ideals.crossing[0, outer] + ideals.crossing[0, inner]
        if costs.style == SUM:
            total -= _shared(ideals, costs, inner, outer)
    return total, total, 0


@njit(cache=True, nogil=True)
def _largest_workspace(bits: Any, workspace: Any, inner: Any, outer: Any) -> Any:
    largest = 0.0
    if len(workspace) == 0:
        return largest
    one = np.uint64(1)
    for w in range(bits.shape[1]):
        left = bits[outer, w] & ~bits[inner, w]
        while left:
            low = left & (~left + one)
            left ^= low
            value = workspace[(w << 6) + _log2(low)]
            if value > largest:
                largest = value
    return largest


@njit(cache=True, nogil=True)
def _touched(ideals: Any, costs: Any, h: Any, inner: Any, outer: Any) -> Any:
    """Return whether the stage outer minus inner holds a block of net h."""
    for w in range(costs.first[h], costs.last[h]):
        if ideals.bits[outer, w] & ~ideals.bits[inner, w] & costs.nets[h, w]:
            return True
    return False


@njit(cache=True, nogil=True)
def _shared(ideals: Any, costs: Any, inner: Any, outer: Any) -> Any:
    """Return what the open nets of outer and inner count too often in the load of the stage between them.

    A net open at both is cut by the stage once if the stage touches it, else not at all.
    """
    total = 0
    one = np.uint64(1)
    for x in range(ideals.open.shape[1]):
        left = ideals.open[outer, x] & ideals.open[inner, x]
        while left:
            low = left & (~left + one)
            left ^= low
            h = (x << 6) + _log2(low)
            both = costs.weight[0, h] + costs.weight[1, h]
            total += both if _touched(ideals, costs, h, inner, outer) else 2 * both
    return total


@njit(cache=True, nogil=True)
def _split_load(ideals: Any, costs: Any, q: Any, inner: Any, outer: Any, extra: Any) -> Any:
    """Return the loads from what is received and sent per phase."""
    forward = ideals.work[2 * q, outer] - ideals.work[2 * q, inner]
    backward = ideals.work[2 * q + 1, outer] - ideals.work[2 * q + 1, inner]
    in_f = in_b = out_f = out_b = 0
    if costs.pays[q]:
        c = ideals.crossing
        if costs.adjacent:
            in_f, in_b = c[0, outer] + c[2, outer], c[1, outer] + c[3, outer]
            out_f, out_b = c[0, inner] + c[2, inner], c[1, inner] + c[3, inner]
        else:
            in_f, in_b = c[0, inner] + c[2, outer], c[1, inner] + c[3, outer]
            out_f, out_b = c[0, outer] + c[2, inner], c[1, outer] + c[3, inner]
            one = np.uint64(1)
            for x in range(ideals.open.shape[1]):
                left = ideals.open[outer, x] & ideals.open[inner, x]
                while left:
                    low = left & (~left + one)
                    left ^= low
                    h = (x << 6) + _log2(low)
                    out_f -= costs.weight[0, h]
                    out_b -= costs.weight[1, h]
                    if not _touched(ideals, costs, h, inner, outer):
                        in_f -= costs.weight[0, h]
                        in_b -= costs.weight[1, h]
    if costs.overlap:
        total = max(forward + backward, in_f + in_b, out_f + out_b)
        return total + extra, max(forward, in_f, out_f), max(backward, in_b, out_b)
    forward, backward = forward + in_f + out_f, backward + in_b + out_b
    return forward + backward + extra, forward, backward


@njit(cache=True, nogil=True)
def _contains(bits: Any, outer: Any, inner: Any) -> Any:
    """Return whether ideal `inner` is a part of ideal `outer`."""
    outside = False
    for w in range(bits.shape[1]):
        if bits[inner, w] & ~bits[outer, w]:
            outside = True
            break
    return not outside


@njit(cache=True, nogil=True)
def _value(aim: Any, total: Any, forward: Any, backward: Any, most_f: Any, most_b: Any) -> Any:
    """Return what is minimised, BIG where a limit on a phase is broken."""
    if aim == TOTAL:
        return total
    if forward > most_f or backward > most_b:
        return BIG
    return forward if aim == FORWARD_FIRST else backward


@njit(cache=True, nogil=True)
def advance(
    ideals: Any, costs: Any, layers: Any, values: Any, state: Any, start: Any, stop: Any, reach: Any, limit: Any,
    monotone: Any, decide: Any, most_stages: Any, aim: Any, most_f: Any, most_b: Any, budget: Any,
) -> Any:  # fmt: skip
    """Go on from the ideals ``start .. stop - 1`` of a state; return the next ideal to look at and the pairs looked at.

    Parameters
    ----------
    values
        Best bottleneck by state and ideal; only those of at most `limit` are kept.
    reach
        (Q,) work in units of the reference type that one more device of a type can take.
    limit
        Largest bottleneck of interest.
    monotone
        Whether using fewer devices is never worse, so that states dominated by one with fewer can be dropped.
    decide
        Whether it is only asked if the end can be reached within the limit: then any value within it is as good as the
        least, and several threads may go on from different ideals of a state at the same time.
    budget
        Pairs after which to come back.
    """
    Q = layers.counts.shape[1]
    M = len(ideals.reference)
    pairs = 0
    used = 0
    for q in range(Q):
        used += layers.counts[state, q]
    everything, memory = ideals.reference[M - 1], ideals.held[M - 1]
    for inner in range(start, stop):
        if pairs > budget:
            return inner, pairs
        value = values[layers.offset[state] + inner - layers.low[state]]
        if value > limit:
            continue
        if monotone:
            dropped = False
            for q in range(Q):
                if layers.counts[state, q]:
                    fewer = state - layers.stride[q]
                    if layers.low[fewer] <= inner < layers.high[fewer]:
                        other = values[layers.offset[fewer] + inner - layers.low[fewer]]
                        if other <= (limit if decide else value):
                            values[layers.offset[state] + inner - layers.low[state]] = other
                            dropped = True
            if dropped:
                continue
        if used >= most_stages:
            continue
        for q in range(Q):
            more = state + layers.stride[q]
            if layers.counts[state, q] >= layers.counts[len(layers.counts) - 1, q]:
                continue
            first = max(inner + 1, layers.low[more])
            place = layers.offset[more] - layers.low[more]
            farthest = ideals.reference[inner] + reach[q]
            simple = costs.style == SUM and costs.pays[q]
            at_j = ideals.crossing[0, inner]
            work_j = ideals.work[q, inner] if costs.style != SPLIT else 0
            for outer in range(first, layers.high[more]):
                if ideals.reference[outer] > farthest:
                    break
                pairs += 1
                known = values[place + outer]
                if value >= known or (decide and known <= limit):
                    continue
                if simple:
                    at_i = ideals.crossing[0, outer]
                    least = ideals.work[q, outer] - work_j + abs(at_i - at_j)
                    if least > limit or least >= known:
                        continue
                if not _contains(ideals.bits, outer, inner):
                    continue
                left = everything - ideals.reference[outer]
                if layers.charged[more]:
                    left += ideals.crossing[0, outer]
                if left > layers.room[more] or memory - ideals.held[outer] > layers.memory[more]:
                    continue
                total, forward, backward = stage_load(ideals, costs, q, inner, outer, used)
                load = max(value, _value(aim, total, forward, backward, most_f, most_b))
                if load <= limit and load < known:
                    values[place + outer] = load
    return stop, pairs


@njit(cache=True, nogil=True)
def came_from(
    ideals: Any, costs: Any, layers: Any, values: Any, state: Any, outer: Any, aim: Any, most_f: Any, most_b: Any,
    monotone: Any,
) -> Any:  # fmt: skip
    """Return (type, state, ideal) before the last stage of the best way to `outer`; type -1: with one device less."""
    value = values[layers.offset[state] + outer - layers.low[state]]
    Q = layers.counts.shape[1]
    used = 0
    for q in range(Q):
        used += layers.counts[state, q]
    for q in range(Q):
        if layers.counts[state, q] and monotone:
            fewer = state - layers.stride[q]
            here = layers.low[fewer] <= outer < layers.high[fewer]
            if here and values[layers.offset[fewer] + outer - layers.low[fewer]] <= value:
                return -1, fewer, outer
    for q in range(Q):
        if not layers.counts[state, q]:
            continue
        fewer = state - layers.stride[q]
        for inner in range(layers.low[fewer], min(outer, layers.high[fewer])):
            if values[layers.offset[fewer] + inner - layers.low[fewer]] > value:
                continue
            if not _contains(ideals.bits, outer, inner):
                continue
            total, forward, backward = stage_load(ideals, costs, q, inner, outer, used - 1)
            if _value(aim, total, forward, backward, most_f, most_b) <= value:
                return q, fewer, inner
    return -2, -1, -1
