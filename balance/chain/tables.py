"""Chain wing: a chain problem as arrays over items, and solutions back as plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Link
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, Traffic, boundary_traffic, charges

Ways = tuple[Link, Link]
"""The link from one device to the next, and the one back."""

DIRECT_LIMIT = 4_000  # items; the table of direct communication holds 4 N^2 numbers


@dataclass(frozen=True, eq=False)
class ChainTables:
    """Prefix sums and boundaries of a chain problem; N items, Q classes of equal devices.

    Two devices are in one class when they have the same kind, speed and memory and no operator is pinned to either.
    """

    problem: ChainProblem

    @cached_property
    def n(self) -> int:
        """Number of items."""
        return self.problem.linearisation.n_items

    @cached_property
    def order(self) -> IntArray:
        """Operators by item, shape (n,)."""
        position = self.problem.linearisation.position
        if self.n == len(position) and bool((position[1:] > position[:-1]).all()):
            return np.arange(len(position))
        return self.problem.linearisation.order

    @cached_property
    def starts(self) -> IntArray:
        """Where each item starts in `order`, shape (N + 1,)."""
        counts = np.bincount(self.problem.linearisation.position, minlength=self.n)
        return np.concatenate(([0], np.cumsum(counts)))

    @cached_property
    def device_class(self) -> IntArray:
        """Class of each device, shape (p,), numbered by first member."""
        problem, cluster = self.problem, self.problem.cluster
        pinned = np.zeros(cluster.n_devices)
        if problem.n_operators_pinned:
            homes = np.unique(problem.graph.pinned[problem.graph.pinned >= 0])
            pinned[homes] = homes + 1
        columns = (problem.device_kind, cluster.speed, cluster.memory_bytes, pinned)
        if all(bool((column == column[0]).all()) for column in columns):
            return np.zeros(cluster.n_devices, dtype=np.int64)
        rows = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        return np.asarray(rank[inverse.reshape(-1)], dtype=np.int64)

    @cached_property
    def members(self) -> list[IntArray]:
        """Devices of each class, in index order."""
        return [np.flatnonzero(self.device_class == q) for q in range(int(self.device_class.max()) + 1)]

    @property
    def n_classes(self) -> int:
        """Number of device classes."""
        return len(self.members)

    def _by_item(self, values: FloatArray) -> FloatArray:
        """Sum a column over the operators of each item, shape (N,)."""
        ordered = values[self.order]
        return ordered if self.n == len(ordered) else np.add.reduceat(ordered, self.starts[:-1])

    @staticmethod
    def _prefix(values: FloatArray) -> FloatArray:
        sums = np.zeros(len(values) + 1)
        np.cumsum(values, out=sums[1:])
        return sums

    @cached_property
    def seconds(self) -> tuple[FloatArray, FloatArray]:
        """Prefix sums of forward and backward seconds per class, shapes (Q, N + 1); zero where not hosted."""
        graph, c = self.problem.graph, self.problem.configuration
        tables = np.zeros((2, self.n_classes, self.n + 1))
        for q, devices in enumerate(self.members):
            device = int(devices[0])
            kind, speed = self.problem.device_kind[device], self.problem.cluster.speed[device]
            forward, backward = graph.forward[kind, c], graph.backward[kind, c]
            hosted = graph.hosts[kind, c]
            if not hosted.all():
                forward, backward = np.where(hosted, forward, 0.0), np.where(hosted, backward, 0.0)
            if graph.style == "operators":
                late = graph.is_backward
                forward, backward = np.where(late, 0.0, forward), np.where(late, forward, 0.0) + backward
            tables[FORWARD, q] = self._prefix(self._by_item(forward)) / speed
            if self.problem.has_backward and backward.any():
                tables[BACKWARD, q] = self._prefix(self._by_item(backward)) / speed
        return tables[FORWARD], tables[BACKWARD]

    @cached_property
    def barred(self) -> FloatArray:
        """Prefix counts of items that a class cannot host (kind or pin), shape (Q, N + 1)."""
        graph, c = self.problem.graph, self.problem.configuration
        table = np.zeros((self.n_classes, self.n + 1))
        for q, devices in enumerate(self.members):
            device = int(devices[0])
            kind = self.problem.device_kind[device]
            bad = ~graph.hosts[kind, c]
            if self.problem.n_operators_pinned:
                bad = bad | ((graph.pinned >= 0) & (graph.pinned != device))
            if bad.any():
                table[q] = self._prefix((self._by_item(bad.astype(np.float64)) > 0).astype(np.float64))
        return table

    @cached_property
    def traffic(self) -> Traffic:
        """What crosses each boundary of the chain."""
        position, training = self.problem.linearisation.position, self.problem.has_backward
        return boundary_traffic(self.problem.graph, position, self.n, training=training)

    @cached_property
    def spans(self) -> bool:
        """Whether boundaries do not say what direct routing charges.

        A tensor that crosses more than one boundary is charged at its ends only. In operator graphs a tensor of the
        backward pass is sent by the later stage, which counts where sides are compared instead of added.
        """
        problem = self.problem
        if not problem.communicates:
            return False
        if problem.graph.style == "operators" and problem.overlap == "max":
            return True
        cost = charges(problem.graph, problem.linearisation.position, training=problem.has_backward)
        used = (cost.bytes + cost.seconds).any(axis=0)
        return bool((cost.high - cost.low > 1)[used].any())

    @cached_property
    def forks(self) -> bool:
        """Whether some tensor is read in more than one item besides its producer's."""
        position = self.problem.linearisation.position
        tensors = self.problem.graph.tensors
        rows, at = tensors.edge_tensor, position[tensors.consumers]
        away = at != position[tensors.producer][rows]
        pairs = np.unique(rows[away] * max(self.n, 1) + at[away]) // max(self.n, 1)
        return bool((np.bincount(pairs, minlength=1) > 1).any())

    @property
    def limited(self) -> bool:
        """Whether any device's memory is finite."""
        return bool(np.isfinite(self.problem.cluster.memory_bytes).any())

    def boundary_seconds(self, ways: Ways) -> FloatArray:
        """Return seconds per phase and boundary over the links forth and back, shape (2, N + 1)."""
        return self.traffic.time(ways) if self.problem.communicates else np.zeros((2, self.n + 1))

    @property
    def uniform_ways(self) -> Ways:
        """The uniform link, forth and back."""
        return self.uniform_link, self.uniform_link

    @property
    def uniform_link(self) -> Link:
        """The link between any two devices of a cluster with uniform links (or with none, when none is needed)."""
        return self.problem.cluster.inter or Link()

    def pays(self, device: int) -> bool:
        """Whether a device pays for communication."""
        return self.problem.cluster.device(device).kind not in self.problem.free_kinds

    def sides(self, device: int, left: Ways | None = None, right: Ways | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the boundary seconds that `device` pays at its left and right side, shapes (2, N + 1)."""
        if not self.pays(device):
            free = np.zeros((2, self.n + 1))
            if self.problem.routing == "direct" and self.spans:
                free[0, 0] = -1.0  # the kernels do not read boundaries then, only this mark that transfers are free
            return free, np.zeros((2, self.n + 1))
        first = self.boundary_seconds(left or self.uniform_ways)
        return first, first if right is left else self.boundary_seconds(right or self.uniform_ways)

    @cached_property
    def flights(self) -> IntArray:
        """Micro-batches in flight by number of stages after, shape (p,)."""
        count = min(self.problem.cluster.n_devices, max(self.n, 1))
        return np.array([self.problem.flight(u) for u in range(count)], dtype=np.int64)

    @cached_property
    def flight_matters(self) -> bool:
        """Whether memory depends on how many stages follow."""
        if not self.limited or bool((self.flights == self.flights[0]).all()):
            return False
        graph, c = self.problem.graph, self.problem.configuration
        return bool(graph.activation_bytes[c].any()) or bool(self.traffic.bytes.any())

    @cached_property
    def costs(self) -> Any:
        """The arrays in the form that `balance.chain._kernels` takes."""
        from balance.chain import _kernels

        problem, graph, c = self.problem, self.problem.graph, self.problem.configuration
        zero = np.zeros(self.n + 1)
        inputs, buffers = zero, np.zeros((2, self.n + 1))
        held, kept, scratch = zero, zero, np.zeros(self.n)
        if self.limited:
            static = problem.state_factor * graph.parameter_bytes[c] + graph.static_bytes[c]
            held = self._prefix(self._by_item(static))
            kept = self._prefix(self._by_item(graph.activation_bytes[c]))
            ordered = graph.workspace_bytes[c][self.order]
            scratch = ordered if self.n == len(ordered) else np.maximum.reduceat(ordered, self.starts[:-1])
            inputs = self.traffic.bytes[FORWARD]
            if problem.backend == "torch":
                buffers = (problem.microbatches or 1) * self.traffic.bytes
        forward, backward = self.seconds
        direct = np.zeros((0, 0, 0))
        if problem.routing == "direct" and self.spans:
            direct = direct_table(problem, self.uniform_link)
        mode = {"never": _kernels.NEVER, "always": _kernels.ALWAYS, "choose": _kernels.CHOOSE}[problem.recompute]
        return _kernels.Costs(
            forward,
            backward,
            self.barred,
            held,
            kept,
            np.ascontiguousarray(scratch),
            np.ascontiguousarray(inputs),
            buffers,
            direct,
            problem.overlap == "max",
            mode,
        )

    def plan(self, cuts: Sequence[int] | IntArray, devices: Sequence[int], recompute: Sequence[bool]) -> Plan:
        """Return the plan with stages between item boundaries `cuts` on `devices`."""
        problem = self.problem
        return Plan.chain(
            self.starts[np.asarray(cuts, dtype=np.int64)],
            devices,
            order=self.order,
            recompute=recompute,
            configuration=problem.configuration,
            microbatches=problem.microbatches or 2 * len(devices),
            microbatch_size=problem.graph.configurations[problem.configuration].microbatch_size,
            schedule=problem.schedule if problem.has_backward else "forward-only",
        )


def direct_table(problem: ChainProblem, link: Link) -> FloatArray:
    """Return seconds received F, B and sent F, B by every run of items [i, j), shape (4, N + 1, N + 1).

    Each (tensor, reader) pair adds its seconds to rectangles of the (i, j) plane; two running sums then give all values
    in O(N^2 + pins).
    """
    position, tensors, n = problem.linearisation.position, problem.graph.tensors, problem.linearisation.n_items
    cost = charges(problem.graph, position, training=problem.has_backward)
    seconds = cost.time(link)
    corners = np.zeros((4, n + 3, n + 3))

    def add(row: int, i0: IntArray, i1: IntArray, j0: IntArray, j1: IntArray, value: FloatArray) -> None:
        """Add to i0 <= i <= i1, j0 <= j <= j1; empty ranges add nothing."""
        real = (i1 >= i0) & (j1 >= j0)
        a, b, c, d = (x[real] for x in (i0, i1 + 1, j0, j1 + 1))
        for at_i, at_j, sign in ((a, c, 1.0), (b, c, -1.0), (a, d, -1.0), (b, d, 1.0)):
            np.add.at(corners[row], (at_i, at_j), sign * value[real])

    end = np.full(len(tensors), n)
    zero = np.zeros(len(tensors), dtype=np.int64)
    rows, at = tensors.edge_tensor, position[tensors.consumers]
    pairs = np.unique(rows * (n + 1) + at)
    rows, at = pairs // (n + 1), pairs % (n + 1)
    home = cost.producer[rows]
    first_of_tensor = np.concatenate(([True], rows[1:] != rows[:-1])) if len(rows) else np.zeros(0, dtype=bool)
    before = np.where(first_of_tensor, -1, np.concatenate(([-1], at[:-1])) if len(rows) else at)
    for phase in (FORWARD, BACKWARD):
        value = seconds[phase]
        # Sent: the producer is inside and not every reader is.
        add(2 + phase, zero, cost.producer, cost.producer + 1, end, value)
        add(2 + phase, zero, np.minimum(cost.low, cost.producer), np.maximum(cost.high, cost.producer) + 1, end, -value)
        # Received: a reader c is the first one at or after i, and the producer is outside: either before i ...
        later = at > home
        add(
            phase,
            np.maximum(before, home)[later] + 1,
            at[later],
            at[later] + 1,
            np.full(int(later.sum()), n),
            value[rows[later]],
        )
        # ... or at or after j.
        earlier = at < home
        add(phase, before[earlier] + 1, at[earlier], at[earlier] + 1, home[earlier], value[rows[earlier]])
    table = corners.cumsum(axis=1).cumsum(axis=2)[:, : n + 1, : n + 1]
    return np.ascontiguousarray(np.maximum(table, 0.0))
