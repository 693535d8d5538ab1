"""Bench room: what the right value of a chain instance is, in plain NumPy that shares no code with the solvers.

All loads are ``h[i] + (prefix[j] - prefix[i]) / speed + h[j]`` for a stage with the items i..j - 1, where ``h`` is the
time to move what crosses a boundary and is zero at both ends of the chain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.plan import Plan

FloatArray = NDArray[np.float64]

# Values are compared at this relative distance: sums taken in another order differ in the last digits.
TOLERANCE = 1e-9


def plan_bottleneck(prefix: FloatArray, boundary: FloatArray, speed: FloatArray, plan: Plan) -> float:
    """Return the largest load of a plan of consecutive stages that covers the chain.

    Parameters
    ----------
    prefix
        Seconds of the first i items, shape (N + 1,).
    boundary
        Seconds to move what crosses each boundary, shape (N + 1,); zero at both ends.
    speed
        Per device, shape (p,).
    plan
        The plan.

    Raises
    ------
    AssertionError
        If the stages do not cover the chain in order, or two share a device.
    """
    at = 0
    worst = 0.0
    used = []
    for stage in plan.stages:
        count = len(stage.operators)
        if count == 0:
            continue
        begin, end = int(stage.operators[0]), int(stage.operators[-1]) + 1
        assert begin == at, f"a stage begins at item {begin}, expected {at}"
        assert end - begin == count, f"the stage with items {begin}..{end - 1} has holes"
        work = (prefix[end] - prefix[begin]) / speed[stage.device]
        worst = max(worst, float(boundary[begin] + work + boundary[end]))
        used.append(stage.device)
        at = end
    assert at == len(prefix) - 1, f"the plan ends at item {at} of {len(prefix) - 1}"
    assert len(set(used)) == len(used), "two stages share a device"
    return worst


def greedy_reaches_end(prefix: FloatArray, devices: int, limit: float) -> bool:
    """Whether equal devices without communication can divide the chain within `limit`, by taking as much as fits."""
    at = 0
    for _ in range(devices):
        at = int(np.searchsorted(prefix, prefix[at] + limit, side="right")) - 1
        if at >= len(prefix) - 1:
            return True
    return False


def fewest_devices(prefix: FloatArray, boundary: FloatArray, limit: float) -> float:
    """Return the fewest equal devices that divide the chain within `limit` (infinity: none can)."""
    n = len(prefix) - 1
    count = np.full(n + 1, np.inf)
    count[n] = 0.0
    for i in range(n - 1, -1, -1):
        load = boundary[i] + prefix[i + 1 :] - prefix[i] + boundary[i + 1 :]
        count[i] = 1.0 + np.min(count[i + 1 :], initial=np.inf, where=load <= limit)
    return float(count[0])


def order_reaches_end(prefix: FloatArray, boundary: FloatArray, speed: FloatArray, limit: float) -> bool:
    """Whether devices in the given order, of which any may stay idle, can divide the chain within `limit`."""
    n = len(prefix) - 1
    # Left side of a stage plus its work up to i, seen from its right side: load = right[j] - left[i] at speed 1.
    reached = np.zeros(n + 1, dtype=bool)
    reached[0] = True
    for rate in speed:
        begins = np.flatnonzero(reached)
        left = prefix[begins] / rate - boundary[begins]
        right = prefix / rate + boundary
        after = np.maximum.accumulate(left)  # a begin with a larger `left` is better for every end behind it
        last = np.searchsorted(begins, np.arange(n + 1), side="left") - 1
        ends = last >= 0
        reached[ends] |= right[ends] - after[last[ends]] <= limit
        if reached[n]:
            return True
    return False


def counts_reach_end(prefix: FloatArray, hop: float, speed: FloatArray, counts: tuple[int, ...], limit: float) -> bool:
    """Whether devices of few classes in any order can divide the chain within `limit`.

    Every inner boundary costs the same `hop`, so that from further along no stage reaches less far, and the furthest
    item per vector of used devices decides.

    Parameters
    ----------
    prefix
        Shape (N + 1,).
    hop
        Seconds to cross a boundary.
    speed
        Per class, shape (Q,).
    counts
        Devices of each class.
    limit
        Largest load allowed.
    """
    n = len(prefix) - 1
    furthest = np.zeros(tuple(c + 1 for c in counts), dtype=np.int64)
    for index in np.ndindex(*furthest.shape):
        best = 0
        for q, rate in enumerate(speed):
            if index[q] == 0:
                continue
            at = int(furthest[(*index[:q], index[q] - 1, *index[q + 1 :])])
            room = limit - (hop if at else 0.0)
            if room >= (prefix[n] - prefix[at]) / rate:
                return True
            end = int(np.searchsorted(prefix, prefix[at] + (room - hop) * rate, side="right")) - 1
            best = max(best, at, min(end, n))
        furthest[index] = best
    return False
