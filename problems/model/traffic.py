"""Model room: what crosses the boundaries of consecutive parts (stages, or items of a chain).

A tensor is a net: a part receives it once, however many operators read it there. Moving b bytes over a link takes
``latency + b / bandwidth``; given seconds win over bytes. Traffic has two phases: *forward* (tensors made by forward
operators) and *backward* (gradients, and tensors made by backward operators of operator graphs).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.cluster import Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import FloatArray, IntArray

FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, eq=False)
class Traffic:
    """Messages by boundary and phase; boundary b lies between parts b - 1 and b.

    Parameters
    ----------
    messages
        Number of messages that pay latency, shape (2, parts + 1).
    bytes
        All bytes that cross, whether they are timed by the link or by given seconds, shape (2, parts + 1).
    linked_bytes
        Bytes timed by the link, shape (2, parts + 1).
    seconds
        Given seconds, shape (2, parts + 1).
    """

    messages: FloatArray
    bytes: FloatArray
    linked_bytes: FloatArray
    seconds: FloatArray

    def time(self, ways: tuple[Link, Link]) -> FloatArray:
        """Return seconds per phase and boundary over the links forth and back, shape (2, parts + 1)."""
        latency, bandwidth = _columns(ways)
        return self.messages * latency[:, None] + self.linked_bytes / bandwidth[:, None] + self.seconds

    def time_at(self, boundary: int, ways: tuple[Link, Link]) -> FloatArray:
        """Return seconds per phase at one boundary over the links forth and back, shape (2,)."""
        latency, bandwidth = _columns(ways)
        return np.asarray(
            self.messages[:, boundary] * latency
            + self.linked_bytes[:, boundary] / bandwidth
            + self.seconds[:, boundary]
        )


def _columns(ways: tuple[Link, Link]) -> tuple[FloatArray, FloatArray]:
    """Return latency and bandwidth per phase: gradients take the way back."""
    return np.array([link.latency for link in ways]), np.array([link.bandwidth for link in ways])


@dataclass(frozen=True, eq=False)
class Charges:
    """What each tensor costs per phase, and which parts it touches.

    Parameters
    ----------
    low, high
        First and last part that a tensor touches, shape (T,).
    producer
        Part of its producer, shape (T,).
    messages, bytes, linked_bytes, seconds
        Per phase and tensor, shape (2, T).
    """

    low: IntArray
    high: IntArray
    producer: IntArray
    messages: FloatArray
    bytes: FloatArray
    linked_bytes: FloatArray
    seconds: FloatArray

    def time(self, link: Link) -> FloatArray:
        """Return seconds per phase and tensor over `link`, shape (2, T)."""
        return self.messages * link.latency + self.linked_bytes / link.bandwidth + self.seconds


def charges(graph: CostGraph, part: IntArray, *, training: bool = True) -> Charges:
    """Return the charges of all tensors when operator v lies in part ``part[v]``.

    Parameters
    ----------
    graph
        The cost graph.
    part
        Part of each operator, shape (n,).
    training
        Whether there is a backward pass; without one the backward phase carries nothing.
    """
    tensors = graph.tensors
    home = part[tensors.producer]
    if len(tensors):
        readers = part[tensors.consumers]
        if tensors.n_pins == len(tensors):  # one reader each: the common case of long chains
            low, high = np.minimum(home, readers), np.maximum(home, readers)
        else:
            low = np.minimum(home, np.minimum.reduceat(readers, tensors.offsets[:-1]))
            high = np.maximum(home, np.maximum.reduceat(readers, tensors.offsets[:-1]))
    else:
        low = high = home
    ahead = (tensors.bytes, tensors.seconds)
    back = (tensors.gradient_bytes, tensors.gradient_seconds)
    late = graph.is_backward[tensors.producer] if graph.style == "operators" else None
    size = np.zeros((2, len(tensors)))
    given = np.zeros((2, len(tensors)))
    linked = np.zeros((2, len(tensors)))
    count = np.zeros((2, len(tensors)))
    for (sizes, seconds), gradient in ((ahead, False), (back, True)):
        timed = ~np.isnan(seconds)
        untimed = np.where(timed, 0.0, sizes)
        fixed = np.where(timed, seconds, 0.0)
        phases: list[tuple[int, NDArray[np.bool_] | None]]
        if gradient:
            phases = [(BACKWARD, None)]
        else:
            phases = [(FORWARD, None)] if late is None else [(FORWARD, ~late), (BACKWARD, late)]
        for phase, mask in phases if training else phases[: 0 if gradient else 1]:
            chosen: NDArray[np.float64] | float = 1.0 if mask is None else mask.astype(np.float64)
            size[phase] += sizes * chosen
            linked[phase] += untimed * chosen
            given[phase] += fixed * chosen
            count[phase] += (untimed > 0) * chosen
    return Charges(low, high, home, count, size, linked, given)


def transfers_of(graph: CostGraph, *, training: bool) -> list[tuple[FloatArray, FloatArray]]:
    """Return bytes and given seconds (nan: none) of all tensors that are sent, and when training of all gradients."""
    tensors = graph.tensors
    ahead, back = (tensors.bytes, tensors.seconds), (tensors.gradient_bytes, tensors.gradient_seconds)
    if training:
        return [ahead, back]
    early = ~graph.is_backward[tensors.producer]
    return [(ahead[0][early], ahead[1][early])]


def timed_by_links(graph: CostGraph, *, training: bool) -> bool:
    """Return whether some transfer is timed by a link, since it has bytes and no seconds of its own."""
    sent = transfers_of(graph, training=training)
    return any(bool(((size > 0) & np.isnan(seconds)).any()) for size, seconds in sent)


def boundary_traffic(graph: CostGraph, part: IntArray, parts: int, *, training: bool = True) -> Traffic:
    """Return what crosses each boundary when every tensor passes through all parts between its ends.

    Parameters
    ----------
    graph
        The cost graph.
    part
        Part of each operator, shape (n,).
    parts
        Number of parts.
    training
        Whether there is a backward pass; without one the backward phase carries nothing.

    Returns
    -------
    Traffic
        Boundaries 0 and `parts` are the ends and carry nothing.
    """
    cost = charges(graph, part, training=training)
    crossing = cost.high > cost.low
    enter, leave = cost.low[crossing] + 1, cost.high[crossing] + 1

    def spread(columns: FloatArray) -> FloatArray:
        table = np.zeros((2, parts + 1))
        for phase in (FORWARD, BACKWARD):
            values = columns[phase][crossing]
            if values.any():
                steps = np.bincount(enter, values, parts + 2) - np.bincount(leave, values, parts + 2)
                # Sums of differences leave rounding noise where nothing crosses; count crossings to clear it.
                live = np.cumsum(np.bincount(enter, values > 0, parts + 2) - np.bincount(leave, values > 0, parts + 2))
                table[phase] = np.where(live > 0.5, np.cumsum(steps), 0.0)[: parts + 1]
        return np.maximum(table, 0.0)

    return Traffic(spread(cost.messages), spread(cost.bytes), spread(cost.linked_bytes), spread(cost.seconds))


def direct_traffic(
    graph: CostGraph,
    part: IntArray,
    parts: int,
    link: Link,
    *,
    once: bool,
    device: IntArray | None = None,
    training: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Return what each part receives and sends when tensors go straight from producer to reading parts.

    Parameters
    ----------
    graph, part, parts
        As in `boundary_traffic`.
    link
        The same link between any two parts.
    once
        Whether the producer pays once per tensor (through host memory) or once per receiving part (point to point).
        Gradients take the same ways back and are charged alike.
    device
        Device of each part, shape (parts,); what stays on a device is free. None: all different.
    training
        As in `boundary_traffic`.

    Returns
    -------
    received, sent : numpy.ndarray
        Seconds per phase and part, shape (2, parts). "Received" is charged to reading parts, "sent" to the producer's.
    """
    tensors = graph.tensors
    cost = charges(graph, part, training=training)
    seconds = cost.time(link)
    rows, readers = tensors.edge_tensor, part[tensors.consumers]
    place = np.arange(parts) if device is None else device
    away = place[readers] != place[cost.producer[rows]]
    pairs = np.unique(rows[away] * parts + readers[away])
    receiving, to = pairs // parts, pairs % parts
    ways = np.bincount(receiving, minlength=len(tensors)).astype(np.float64)
    if once:
        ways = np.minimum(ways, 1.0)
    received, sent = np.zeros((2, parts)), np.zeros((2, parts))
    for phase in (FORWARD, BACKWARD):
        received[phase] = np.bincount(to, seconds[phase][receiving], parts)
        sent[phase] = np.bincount(cost.producer, seconds[phase] * ways, parts)
    return received, sent


def edge_traffic(graph: CostGraph, part: IntArray, parts: int, link: Link) -> tuple[FloatArray, FloatArray]:
    """Return what each part receives and sends when every reader of a tensor gets a copy of its own.

    Parameters
    ----------
    graph, part, parts
        As in `boundary_traffic`.
    link
        The same link between any two parts.

    Returns
    -------
    received, sent : numpy.ndarray
        Seconds per phase and part, shape (2, parts). "Received" is charged to reading parts, "sent" to the producer's.
    """
    tensors = graph.tensors
    cost = charges(graph, part)
    seconds = cost.time(link)
    rows, readers = tensors.edge_tensor, part[tensors.consumers]
    away = readers != cost.producer[rows]
    received, sent = np.zeros((2, parts)), np.zeros((2, parts))
    for phase in (FORWARD, BACKWARD):
        received[phase] = np.bincount(readers[away], seconds[phase][rows[away]], parts)
        sent[phase] = np.bincount(cost.producer[rows[away]], seconds[phase][rows[away]], parts)
    return received, sent
