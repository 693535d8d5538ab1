"""Chain wing: the compiled inner loops. Imported only when a solver runs, since it loads Numba.

Every function is plain Python over arrays; its twin without compilation is its ``py_func``.
All programs run from the last item to the first: ``value[i]`` is the best for items i..N-1, ``choice[i]`` the end of
the first of their stages, ``flag[i]`` whether that stage recomputes.
A program works for a number of steps and then says where it stopped, so that its caller can look at the time in between
and call it again from there.
"""

# The arrays reach the compiled code one by one; a struct of them would cost more to unbox than the loops themselves.
# ruff: noqa: N806

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

STEPS = 10_000_000
"""Steps of one call, each the pricing of one stage: well under half a second."""

TOTAL, FORWARD_ONLY, BACKWARD_ONLY = 0, 1, 2
NEVER, ALWAYS, CHOOSE = 0, 1, 2


class Costs(NamedTuple):
    """What the kernels read of a chain problem; see `balance.chain.tables`."""

    forward: Any  # (Q, N + 1) prefix sums of seconds
    backward: Any  # (Q, N + 1)
    barred: Any  # (Q, N + 1) prefix counts of items that the class cannot host
    held: Any  # (N + 1,) prefix sums of state_factor * parameters + static
    kept: Any  # (N + 1,) prefix sums of activations
    scratch: Any  # (N,) workspace of each item
    inputs: Any  # (N + 1,) bytes that cross each boundary forward
    buffers: Any  # (2, N + 1) receive buffer bytes at the left (row 0) and right (row 1) boundary
    direct: Any  # (4, N + 1, N + 1) seconds received F, B and sent F, B by [i, j), or size 0 with adjacent routing
    overlap: Any  # bool: communication runs beside compute
    recompute: Any  # NEVER, ALWAYS or CHOOSE


@njit(cache=True, nogil=True)
def stage_price(
    costs: Any, q: Any, i: Any, j: Any, left: Any, right: Any, y: Any, capacity: Any, peak: Any, objective: Any
) -> Any:
    """Return (value, forward, backward, recomputes) of the stage [i, j), infinite if it does not fit."""
    forward = costs.forward[q, j] - costs.forward[q, i]
    backward = costs.backward[q, j] - costs.backward[q, i]
    recomputes = costs.recompute == ALWAYS
    if capacity < np.inf:
        kept = costs.kept[j] - costs.kept[i]
        fixed = costs.held[j] - costs.held[i] + peak + costs.buffers[0, i] + costs.buffers[1, j]
        slack = capacity * (1.0 + 1e-12)
        lean = fixed + y * costs.inputs[i] + kept
        if not recomputes and fixed + y * kept > slack:
            if costs.recompute == NEVER:
                return np.inf, np.inf, np.inf, False
            recomputes = True
        if recomputes and lean > slack:
            return np.inf, np.inf, np.inf, False
    if recomputes:
        backward += forward
    if costs.direct.size:
        in_f, in_b = costs.direct[0, i, j], costs.direct[1, i, j]
        out_f, out_b = costs.direct[2, i, j], costs.direct[3, i, j]
        if left[0, 0] < 0.0:  # a kind that pays for no communication
            in_f = in_b = out_f = out_b = 0.0
    else:
        in_f, in_b, out_f, out_b = left[0, i], left[1, i], right[0, j], right[1, j]
    if costs.overlap:
        total = max(in_f + in_b, forward + backward, out_f + out_b)
        forward = max(in_f, forward, out_f)
        backward = max(in_b, backward, out_b)
    else:
        forward += in_f + out_f
        backward += in_b + out_b
        total = forward + backward
    if objective == FORWARD_ONLY:
        return forward, forward, backward, recomputes
    if objective == BACKWARD_ONLY:
        return backward, forward, backward, recomputes
    return total, forward, backward, recomputes


@njit(cache=True, nogil=True)
def stage_floor(costs: Any, q: Any, i: Any, j: Any, peak: Any, y: Any, capacity: Any, objective: Any) -> Any:
    """Return a value that no stage [i, j'), j' >= j, falls below; infinite once memory is exceeded for good."""
    if costs.barred[q, j] > costs.barred[q, i]:
        return np.inf
    if capacity < np.inf:
        kept = costs.kept[j] - costs.kept[i]
        least = y * kept if costs.recompute == NEVER else kept  # y >= 1, and recomputing keeps the work at hand
        if costs.held[j] - costs.held[i] + peak + least > capacity * (1.0 + 1e-12):
            return np.inf
    forward = costs.forward[q, j] - costs.forward[q, i]
    backward = costs.backward[q, j] - costs.backward[q, i]
    if costs.recompute == ALWAYS:
        backward += forward
    if objective == FORWARD_ONLY:
        return forward
    if objective == BACKWARD_ONLY:
        return backward
    return forward + backward


@njit(cache=True, nogil=True)
def extend(
    costs: Any,
    q: Any,
    left: Any,
    right: Any,
    y: Any,
    capacity: Any,
    after: Any,
    value: Any,
    choice: Any,
    flag: Any,
    source: Any,
    mark: Any,
    objective: Any,
    most_f: Any,
    most_b: Any,
    first: Any,
    steps: Any,
) -> Any:
    """Improve `value` by giving the next device (class q) a stage in front of the suffixes valued `after`.

    O(N x window): the stage [i, j) grows until its compute alone is no better than what is known for i.

    Returns
    -------
    left, steps
        The item to go on from (-1: all from `first` down are done), and the steps that are left.
    """
    N = len(costs.held) - 1
    for i in range(first, -1, -1):
        if steps <= 0:
            return i, steps
        steps -= 1
        best = value[i]
        peak = 0.0
        for j in range(i + 1, N + 1):
            if costs.scratch[j - 1] > peak:
                peak = costs.scratch[j - 1]
            steps -= 1
            if stage_floor(costs, q, i, j, peak, y, capacity, objective) >= best:
                break
            if after[j] >= best:
                continue
            price, forward, backward, recomputes = stage_price(
                costs, q, i, j, left, right, y, capacity, peak, objective
            )
            if forward > most_f or backward > most_b:
                continue
            if after[j] > price:
                price = after[j]
            if price < best:
                best = price
                choice[i] = j
                flag[i] = recomputes
                source[i] = mark
        value[i] = best
    return -1, steps


@njit(cache=True, nogil=True)
def fewest_stages(
    costs: Any,
    left: Any,
    right: Any,
    flights: Any,
    capacity: Any,
    limit: Any,
    count: Any,
    choice: Any,
    flag: Any,
    first: Any,
    floor: Any,
    steps: Any,
) -> Any:
    """Fill `count[i]` with the least number of equal devices that hold items i.. within the limits (class 0).

    Fewer stages after a stage never ask more memory of it, so the least count is the best for every earlier stage.

    Returns
    -------
    left, floor
        The item to go on from (-1: all from `first` down are done). No division within fewer than the found number of
        stages has a bottleneck below the floor, if `limit` is too small; the next call takes it on.
    """
    N = len(costs.held) - 1
    none = N + 2
    count[N] = 0
    last = len(flights) - 1
    for i in range(first, -1, -1):
        if steps <= 0:
            return i, floor
        steps -= 1
        best = none
        peak = 0.0
        for j in range(i + 1, N + 1):
            if costs.scratch[j - 1] > peak:
                peak = costs.scratch[j - 1]
            steps -= 1
            # With the fewest stages after it (none) a stage needs the least memory: a floor for every j' >= j.
            least = stage_floor(costs, 0, i, j, peak, flights[0], capacity, TOTAL)
            if least > limit:
                if least < floor:
                    floor = least
                break
            if count[j] >= none:
                continue
            y = flights[min(count[j], last)]
            price, _, _, recomputes = stage_price(costs, 0, i, j, left, right, y, capacity, peak, TOTAL)
            if price > limit:
                if price < floor:
                    floor = price
                continue
            if count[j] + 1 < best:
                best = count[j] + 1
                choice[i] = j
                flag[i] = recomputes
        count[i] = best
    return -1, floor


@njit(cache=True, nogil=True)
def realised(costs: Any, left: Any, right: Any, flights: Any, capacity: Any, count: Any, choice: Any) -> Any:
    """Return the bottleneck of the division that `choice` describes (equal devices, class 0)."""
    N = len(costs.held) - 1
    worst = 0.0
    last = len(flights) - 1
    i = 0
    while i < N:
        j = choice[i]
        peak = 0.0
        for k in range(i, j):
            if costs.scratch[k] > peak:
                peak = costs.scratch[k]
        y = flights[min(count[j], last)]
        price, _, _, _ = stage_price(costs, 0, i, j, left, right, y, capacity, peak, TOTAL)
        if price > worst:
            worst = price
        i = j
    return worst


@njit(cache=True, nogil=True)
def count_vectors(
    costs: Any,
    lefts: Any,
    rights: Any,
    capacities: Any,
    multiplicity: Any,
    flights: Any,
    values: Any,
    choices: Any,
    flags: Any,
    sources: Any,
    objective: Any,
    most_f: Any,
    most_b: Any,
    cursor: Any,
    steps: Any,
) -> Any:
    """Fill the program over numbers of used devices per class: state c holds the best suffixes with exactly c.

    States are numbered in mixed radix (first class fastest), so that a state follows all it is built from.
    O(states x classes x N x window).

    Parameters
    ----------
    values, choices, flags, sources
        The table; only row 0 of `values` need be set.
    cursor
        Where to go on, (state, class, item); (1, 0, N - 1) at first.
    steps
        Steps of this call.

    Returns
    -------
    done
        Whether the table is full; otherwise `cursor` says where the next call goes on.
    """
    N = len(costs.held) - 1
    classes = len(multiplicity)
    states = values.shape[0]
    strides = np.ones(classes, dtype=np.int64)
    for q in range(1, classes):
        strides[q] = strides[q - 1] * (multiplicity[q - 1] + 1)
    last = len(flights) - 1
    for state in range(cursor[0], states):
        if cursor[1] == 0 and cursor[2] == N - 1:
            values[state] = np.inf
        used = 0
        for q in range(classes):
            used += (state // strides[q]) % (multiplicity[q] + 1)
        y = flights[min(used - 1, last)]
        for q in range(cursor[1], classes):
            if (state // strides[q]) % (multiplicity[q] + 1) > 0:
                left, steps = extend(
                    costs, q, lefts[q], rights[q], y, capacities[q], values[state - strides[q]],
                    values[state], choices[state], flags[state], sources[state], q, objective, most_f, most_b,
                    cursor[2], steps,
                )  # fmt: skip
                if left >= 0:
                    cursor[0], cursor[1], cursor[2] = state, q, left
                    return False
            cursor[2] = N - 1
        cursor[1] = 0
    return True


@njit(cache=True, nogil=True)
def longest_prefixes(prefix: Any, stop: Any, classes: Any, limit: Any, cuts: Any) -> Any:
    """Give each device in turn the longest run of items within `limit`; fill `cuts` (p + 1,).

    Parameters are prefix sums (Q, N + 1) and, per class, the next item that it cannot host (Q, N + 1).

    Returns
    -------
    reach, worst, floor
        Items placed, the bottleneck, and the least limit at which some device would take one more item.
    """
    at = 0
    worst = 0.0
    floor = np.inf
    cuts[0] = 0
    for b in range(len(classes)):
        q = classes[b]
        base = prefix[q, at]
        low, high = at, stop[q, at]  # items at .. high - 1 can be hosted
        while low < high:
            middle = (low + high + 1) // 2
            if prefix[q, middle] - base <= limit:
                low = middle
            else:
                high = middle - 1
        if low < stop[q, at]:
            more = prefix[q, low + 1] - base
            if more < floor:
                floor = more
        load = prefix[q, low] - base
        if load > worst:
            worst = load
        at = low
        cuts[b + 1] = at
    return at, worst, floor
