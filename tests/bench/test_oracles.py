"""Tests of the checks behind the chain figures: against every division of tiny chains."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.bench import oracles
from balance.problems.model.plan import Plan

TIMES = st.lists(st.integers(1, 9), min_size=1, max_size=6)
HOPS = st.lists(st.integers(0, 5), min_size=7, max_size=7)
SPEEDS = st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=3)


def _tables(times: list[int], hops: list[int]) -> tuple[oracles.FloatArray, oracles.FloatArray]:
    boundary = np.array(hops[: len(times) + 1], dtype=float)
    boundary[[0, -1]] = 0.0
    return np.concatenate(([0.0], np.cumsum(times))), boundary


def _best(
    prefix: oracles.FloatArray, boundary: oracles.FloatArray, orders: list[tuple[float, ...]]
) -> tuple[float, dict[int, float]]:
    """Return the least bottleneck over all divisions and orders, and by number of devices."""
    n = len(prefix) - 1
    by_count: dict[int, float] = {}
    for speeds in orders:
        for count in range(1, min(len(speeds), n) + 1):
            for inner in itertools.combinations(range(1, n), count - 1):
                cuts = (0, *inner, n)
                for chosen in itertools.combinations(range(len(speeds)), count):
                    worst = max(
                        boundary[a] + (prefix[b] - prefix[a]) / speeds[d] + boundary[b]
                        for a, b, d in zip(cuts, cuts[1:], chosen, strict=False)
                    )
                    by_count[count] = min(by_count.get(count, math.inf), worst)
    return min(by_count.values()), by_count


@given(TIMES, HOPS, SPEEDS)
def test_given_order(times: list[int], hops: list[int], speeds: list[float]) -> None:
    """The limit that can be reached in the given order is the best of all divisions."""
    prefix, boundary = _tables(times, hops)
    best, _ = _best(prefix, boundary, [tuple(speeds)])
    assert oracles.order_reaches_end(prefix, boundary, np.array(speeds), best)
    assert not oracles.order_reaches_end(prefix, boundary, np.array(speeds), best - 0.01)


@given(TIMES, HOPS, st.integers(1, 3))
def test_equal_devices(times: list[int], hops: list[int], devices: int) -> None:
    """The fewest devices within a limit agree with all divisions, and so does the greedy probe without transfers."""
    prefix, boundary = _tables(times, hops)
    best, by_count = _best(prefix, boundary, [(1.0,) * devices])
    assert oracles.fewest_devices(prefix, boundary, best) == min(c for c, value in by_count.items() if value == best)
    assert oracles.fewest_devices(prefix, boundary, best - 0.01) > devices
    free, _ = _best(prefix, np.zeros_like(boundary), [(1.0,) * devices])
    assert oracles.greedy_reaches_end(prefix, devices, free)
    assert not oracles.greedy_reaches_end(prefix, devices, free - 0.01)


@given(TIMES, st.integers(0, 3), SPEEDS)
def test_free_order(times: list[int], hop: int, speeds: list[float]) -> None:
    """The limit that can be reached in any order is the best of all divisions and orders."""
    prefix, boundary = _tables(times, [hop] * 7)
    best, _ = _best(prefix, boundary, list(itertools.permutations(speeds)))
    kinds = sorted(set(speeds))
    counts = tuple(speeds.count(kind) for kind in kinds)
    assert oracles.counts_reach_end(prefix, hop, np.array(kinds), counts, best)
    assert not oracles.counts_reach_end(prefix, hop, np.array(kinds), counts, best - 0.01)


def test_loads_of_a_plan() -> None:
    """Compute and both boundaries count; holes, gaps and shared devices are found."""
    prefix, boundary = _tables([1, 2, 3, 4], [0, 1, 1, 1, 0, 0, 0])
    speed = np.array([1.0, 2.0])
    assert oracles.plan_bottleneck(prefix, boundary, speed, Plan.chain([0, 2, 4])) == pytest.approx(4.5)
    with pytest.raises(AssertionError, match="ends at item 3"):
        oracles.plan_bottleneck(prefix, boundary, speed, Plan.chain([0, 2, 3]))
    with pytest.raises(AssertionError, match="share a device"):
        oracles.plan_bottleneck(prefix, boundary, speed, Plan.chain([0, 2, 4], [0, 0]))
    with pytest.raises(AssertionError, match="expected 0"):
        oracles.plan_bottleneck(prefix, boundary, speed, Plan.chain([0, 2, 4], order=np.array([2, 3, 0, 1])))
