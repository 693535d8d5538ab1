"""Cut wing: the states of programs from the last stage to the first: how many devices of each type are used so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balance.cut.tables import CutTables
from balance.problems.model.tensors import FloatArray, IntArray

BIG = 1 << 62
"""Larger than every scaled load."""

STATES = 40_000_000
"""Places for values, 8 bytes each."""

STEP = 0.01
"""First relative step of the threshold above the proved lower bound; each next one is twice as large."""


class Layers(NamedTuple):
    """Counts of used devices by type in mixed radix, and the places of a sorted list that each state can hold."""

    counts: Any  # (S, Q) devices used
    stride: Any  # (Q,) step of the state when one more device of a type is used
    low: Any  # (S,) first place that the state can hold
    high: Any  # (S,) place after the last
    offset: Any  # (S + 1,) where the state's values start
    room: Any  # (S,) work that the devices left can still take
    charged: Any  # (S,) bool: whatever is left also pays for every net that is open
    memory: Any  # (S,) bytes that the devices left have


def n_states(tables: CutTables) -> int:
    """Return the number of states S."""
    return int(np.prod(np.minimum(tables.counts, tables.most_stages) + 1))


def build_layers(tables: CutTables, ratio: FloatArray, reference: IntArray, reach: int, undirected: bool) -> Layers:
    """Return the states for one threshold.

    Parameters
    ----------
    tables
        The problem.
    ratio
        From `reference_work`.
    reference
        Work chosen so far at each place, ascending; the last one is all work.
    reach
        Threshold: what a device can take, in seconds of its own (scaled).
    undirected
        Whether the load of a stage is its work plus the nets that it cuts, so that a net that is open is paid again.

    Raises
    ------
    MemoryError
        If the values would not fit.
    """
    counts = np.minimum(tables.counts, tables.most_stages)
    stride = np.concatenate(([1], np.cumprod(counts[:-1] + 1))).astype(np.int64)
    states = int(np.prod(counts + 1))
    rows = np.stack([(np.arange(states) // stride[q]) % (counts[q] + 1) for q in range(len(counts))], axis=1)
    capacity = _per_device(ratio, reach)
    left = counts - rows
    room = _whole(np.where(left > 0, np.maximum(left, 1) * capacity, 0.0).sum(axis=1))
    used = _whole(np.where(rows > 0, np.maximum(rows, 1) * capacity, 0.0).sum(axis=1))
    low = np.searchsorted(reference, reference[-1] - room, side="left")
    high = np.maximum(np.searchsorted(reference, used, side="right"), low)
    offset = np.concatenate(([0], np.cumsum(high - low)))
    if offset[-1] > STATES:
        raise MemoryError
    charging = tables.pays & (ratio == 1.0)
    caps = np.where(left > 0, np.maximum(left, 1) * tables.capacity, 0.0).sum(axis=1)
    return Layers(
        counts=rows.astype(np.int64),
        stride=stride,
        low=low.astype(np.int64),
        high=high.astype(np.int64),
        offset=offset.astype(np.int64),
        room=room,
        charged=((left == 0) | charging).all(axis=1) & undirected,
        memory=caps * (1 + 1e-9),
    )


def _whole(values: FloatArray) -> IntArray:
    return np.array([int(min(value, float(BIG))) for value in values], dtype=np.int64)


def reaches(ratio: FloatArray, reach: int) -> IntArray:
    """Return the reference work that one device of each type can take within a threshold, shape (Q,)."""
    return _whole(_per_device(ratio, reach))


def _per_device(ratio: FloatArray, reach: int) -> FloatArray:
    """Return the reference work that fits one device of each type; a type that does some for nothing takes any."""
    unlimited = np.isinf(ratio)
    return np.where(unlimited, float(BIG), np.minimum(np.where(unlimited, 0.0, ratio) * reach, float(BIG)))


def reference_work(tables: CutTables) -> tuple[IntArray, FloatArray]:
    """Return work per block of one type, and how much of it each type does in a second of its own.

    The type with the most devices that pay is the reference; work that it cannot do counts as on the fastest type that
    can. What type q can hold within T seconds is at most ``ratio[q] * T`` of reference work.

    Returns
    -------
    reference, ratio : numpy.ndarray
        Shapes (N,) and (Q,).
    """
    total = tables.work.sum(axis=1)
    base = int(np.argmax(tables.counts * tables.pays + tables.counts * 1e-3))
    most = np.iinfo(np.int64).max
    least = np.where(tables.barred, most, total).min(axis=0)
    reference = np.where(tables.barred[base], np.where(least == most, 0, least), total[base])
    ratio = np.ones(tables.n_types)
    for q in range(tables.n_types):
        can = ~tables.barred[q] & (reference > 0)
        if q == base or not can.any():
            continue
        with np.errstate(divide="ignore"):
            ratio[q] = float((reference[can] / total[q, can]).max()) * (1 + 1e-12)
    return reference, ratio


def floor(tables: CutTables) -> int:
    """Return a proved lower bound on the bottleneck, scaled: the fair share of the work, and the largest block."""
    reference, ratio = reference_work(tables)
    most = np.iinfo(np.int64).max
    least = np.where(tables.barred, most, tables.work.sum(axis=1)).min(axis=0)
    if (least == most).any():
        return 0
    room = float((np.minimum(tables.counts, tables.most_stages) * ratio).sum())
    share = int(reference.sum()) / room * (1 - 1e-12) if room < np.inf else 0.0
    return max(int(least.max(initial=0)), int(share))


def ceiling(tables: CutTables) -> int:
    """Return a scaled load that no stage exceeds."""
    if tables.problem.overflow_bandwidth is not None:
        return BIG - 1
    return int(tables.work.sum(axis=(1, 2)).max()) + 2 * int(tables.nets.weight.sum()) + 1


def thresholds(proved: int, top: int) -> Iterator[int]:
    """Yield thresholds from a lower bound to a ceiling, in steps that double."""
    base = max(proved, 1)
    step = max(int(base * STEP), 1)
    limit = base
    while limit < top:
        yield limit
        limit, step = limit + step, 2 * step
    yield top
