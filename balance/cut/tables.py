"""Cut wing: a cut problem as integer arrays over blocks of operators, and solutions back as plans.

Blocks are the operators that stages hold whole. Seconds are scaled to 64-bit integers by a power of two, so that sums
do not depend on their order and ties are ties; the error is at most half a unit per term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balance.problems.cut import CutProblem
from balance.problems.model.contraction import contract
from balance.problems.model.flight import step_microbatches
from balance.problems.model.plan import Assignment, Plan, Replica, Stage
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.topology import renumber
from balance.problems.model.traffic import BACKWARD, FORWARD, charges

BoolArray = NDArray[np.bool_]

_KEPT = "_cut_tables"

BITS = 61
"""Bits of the largest sum."""


@dataclass(frozen=True, eq=False)
class Nets:
    """What is paid by devices that hold some blocks of a set, but not all.

    Parameters
    ----------
    offsets, pins
        Blocks of net h: ``pins[offsets[h] : offsets[h + 1]]``, sorted, at least two.
    producer
        Block that sends, shape (H,).
    weight
        Scaled seconds per phase, shape (2, H).
    """

    offsets: IntArray
    pins: IntArray
    producer: IntArray
    weight: IntArray

    def __len__(self) -> int:
        return len(self.producer)

    @cached_property
    def rows(self) -> IntArray:
        """Net of each pin, shape (pins,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def by_block(self, n: int) -> tuple[IntArray, IntArray]:
        """Return the nets of each of `n` blocks: those of block v are ``nets[at[v] : at[v + 1]]`` of (at, nets)."""
        at = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.pins, minlength=n), out=at[1:])
        return at, self.rows[np.argsort(self.pins, kind="stable")]


class CutTables:
    """Arrays of a problem; Q types of equal devices, N blocks, H nets.

    Parameters
    ----------
    problem
        The problem.
    label
        Class of each operator, shape (n,): those of a class are taken as one; default: the classes of the problem.
    """

    def __init__(self, problem: CutProblem, label: IntArray | None = None) -> None:
        self.problem = problem
        if problem.contiguity == "acyclic":
            blocks = problem.contraction if label is None else contract(problem.graph, label)
            self.block, self.n = blocks.block, blocks.n_blocks
            self.source, self.target = blocks.source, blocks.target
        else:
            self.block = problem.classes if label is None else renumber(label)
            self.n = int(self.block.max()) + 1
            self.source = self.target = np.zeros(0, dtype=np.int64)
        self.types, self.type_devices = self._types()
        seconds = [problem.seconds(devices[0]) for devices in self.type_devices]
        barred = np.stack([self._per_block(np.isinf(table).sum(axis=0)) > 0 for table in seconds])
        self.barred: BoolArray = barred | self._pinned_elsewhere()
        work = np.stack([[self._per_block(np.where(np.isinf(row), 0.0, row)) for row in table] for table in seconds])
        work = np.where(self.barred[:, None, :], 0.0, work)
        self.seconds: FloatArray = work
        heads, pins, producers, weight = self._net_seconds()
        # A stage pays a net as its reader and another as its sender, never more than all nets together.
        total = float(work.sum(axis=(1, 2)).max()) + float(weight.sum()) * 2
        self.scale = 2.0 ** (BITS - 1 - math.frexp(total)[1]) if total > 0 else 1.0
        self.work: IntArray = np.rint(work * self.scale).astype(np.int64)
        self.nets = Nets(heads, pins, producers, np.rint(weight * self.scale).astype(np.int64))

    @classmethod
    def of(cls, problem: CutProblem) -> CutTables:
        """Return the arrays of a problem, made once for each problem object: bounds and solvers share them."""
        known = vars(problem).get(_KEPT)
        if known is None:
            known = vars(problem)[_KEPT] = cls(problem)  # as a cached property keeps its value; not pickled
        assert isinstance(known, cls)
        return known

    # -- building ----------------------------------------------------------------------------------------------

    def _types(self) -> tuple[IntArray, list[list[int]]]:
        """Return the type of each device, shape (p,), and the devices of each type; a pinned device is one alone."""
        problem = self.problem
        p = problem.cluster.n_devices
        alone = np.full(p, -1, dtype=np.int64)
        held = np.unique(problem.graph.pinned[problem.graph.pinned >= 0])
        alone[held] = held
        key = np.stack(
            (
                problem.device_kind.astype(np.float64),
                problem.cluster.speed,
                problem.cluster.memory_bytes,
                problem.device_pays.astype(np.float64),
                alone.astype(np.float64),
            )
        )
        _, first, label = np.unique(key, axis=1, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        types = rank[label.reshape(-1)]
        return types, [np.flatnonzero(types == q).tolist() for q in range(len(first))]

    def _per_block(self, values: NDArray[Any]) -> FloatArray:
        return np.asarray(np.bincount(self.block, values, self.n), dtype=np.float64)

    def _pinned_elsewhere(self) -> BoolArray:
        pinned = self.problem.graph.pinned
        away = np.zeros((len(self.type_devices), self.n), dtype=bool)
        for v in np.flatnonzero(pinned >= 0).tolist():
            for q in range(len(self.type_devices)):
                away[q, self.block[v]] |= bool(self.types[pinned[v]] != q)
        return away

    def _net_seconds(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return nets over blocks (offsets, pins, producer, seconds per phase); equal ones are merged."""
        problem, tensors = self.problem, self.problem.graph.tensors
        if not len(tensors):
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, np.int64), np.zeros((2, 0))
        cost = charges(problem.graph, self.block).time(problem.link)
        if not problem.has_backward:
            cost[BACKWARD] = 0.0
        home = self.block[tensors.producer]
        gathered: dict[tuple[int, ...], FloatArray] = {}
        single = problem.charge == "edge"
        paid = cost.sum(axis=0) > 0
        readers, offsets = self.block[tensors.consumers].tolist(), tensors.offsets.tolist()
        for t in np.flatnonzero(paid).tolist():
            own = int(home[t])
            blocks = readers[offsets[t] : offsets[t + 1]]
            groups = [(own, b) for b in blocks if b != own] if single else [(own, *sorted(set(blocks) - {own}))]
            for members in groups:
                if len(members) > 1:
                    if members in gathered:
                        gathered[members] += cost[:, t]
                    else:
                        gathered[members] = cost[:, t].copy()
        keys = list(gathered)
        heads = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum([len(key) for key in keys], out=heads[1:])
        pins = np.array([b for key in keys for b in sorted(key)], dtype=np.int64)
        producers = np.array([key[0] for key in keys], dtype=np.int64)
        weight = np.array([gathered[key] for key in keys]).reshape(len(keys), 2).T
        return heads, pins, producers, weight

    # -- derived -----------------------------------------------------------------------------------------------

    @property
    def n_types(self) -> int:
        """Number of device types Q."""
        return len(self.type_devices)

    @property
    def counts(self) -> IntArray:
        """Devices of each type, shape (Q,)."""
        return np.array([len(devices) for devices in self.type_devices], dtype=np.int64)

    @cached_property
    def pays(self) -> BoolArray:
        """Whether each type pays for communication, shape (Q,)."""
        return np.array([self.problem.device_pays[devices[0]] for devices in self.type_devices])

    @cached_property
    def capacity(self) -> FloatArray:
        """Memory that decides feasibility per type, shape (Q,); infinite where overflow is streamed."""
        if self.problem.overflow_bandwidth is not None:
            return np.full(self.n_types, math.inf)
        return self.memory_available

    @cached_property
    def memory_available(self) -> FloatArray:
        """Memory per type, shape (Q,)."""
        memory = self.problem.cluster.memory_bytes
        return np.array([memory[devices[0]] for devices in self.type_devices])

    @cached_property
    def held(self) -> FloatArray:
        """Bytes of each block whatever is in flight: states and static bytes, shape (N,)."""
        graph, c = self.problem.graph, self.problem.configuration
        return self._per_block(self.problem.state_factor * graph.parameter_bytes[c] + graph.static_bytes[c])

    @cached_property
    def kept(self) -> FloatArray:
        """Activation bytes of each block per micro-batch in flight, shape (N,)."""
        return self._per_block(self.problem.graph.activation_bytes[self.problem.configuration])

    @cached_property
    def workspace(self) -> FloatArray:
        """Largest workspace of each block's operators, shape (N,)."""
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.block, self.problem.graph.workspace_bytes[self.problem.configuration])
        return largest

    @cached_property
    def flight(self) -> FloatArray:
        """Micro-batches in flight in a stage by the number of stages after it, shape (p,)."""
        return np.array([self.problem.flight(s) for s in range(self.problem.cluster.n_devices)], dtype=np.float64)

    @property
    def overflow(self) -> float:
        """Scaled seconds per byte that is streamed; 0 where everything must fit."""
        speed = self.problem.overflow_bandwidth
        return 0.0 if speed is None else self.scale / speed

    @property
    def most_stages(self) -> int:
        """Most devices that can be of use."""
        limit = self.problem.max_stages
        devices = min(self.problem.cluster.n_devices, self.n)
        return devices if limit is None else min(devices, limit)

    @cached_property
    def n_terms(self) -> int:
        """Number of scaled terms that one load can add up."""
        return 2 * (self.n + len(self.nets)) + 2

    def unscaled(self, value: int) -> float:
        """Return scaled seconds as seconds."""
        return value / self.scale

    def bound(self, value: int) -> float:
        """Return a valid lower bound in seconds behind a scaled one, rounding allowed for."""
        exact = value / self.scale
        return max(exact - self.n_terms / self.scale - 4e-16 * self.n_terms * exact, 0.0)

    def order_is_free(self) -> bool:
        """Whether what a stage sends does not depend on where it is read."""
        sizes = np.diff(self.nets.offsets)
        return self.problem.send == "once" or self.problem.charge == "edge" or bool((sizes <= 2).all())

    # -- solutions ---------------------------------------------------------------------------------------------

    def devices_of(self, types: Sequence[int]) -> list[int]:
        """Return a device for each part from its type, in the order of the cluster."""
        taken = [0] * self.n_types
        devices = []
        for q in types:
            devices.append(self.type_devices[q][taken[q]])
            taken[q] += 1
        return devices

    def plan(self, parts: Sequence[IntArray], types: Sequence[int]) -> Plan:
        """Return the plan of parts of blocks in pipeline order on devices of the given types; empty parts are left out.

        Parameters
        ----------
        parts
            Blocks of each part.
        types
            Device type of each part.
        """
        kept = [(part, q) for part, q in zip(parts, types, strict=True) if len(part)]
        devices = self.devices_of([q for _, q in kept])
        stage_of_block = np.empty(self.n, dtype=np.int64)
        for s, (part, _) in enumerate(kept):
            stage_of_block[part] = s
        stage = stage_of_block[self.block]
        by_stage = np.argsort(stage, kind="stable")
        cuts = np.searchsorted(stage[by_stage], np.arange(1, len(kept)))
        problem = self.problem
        stages = tuple(
            Stage(own, (Replica((d,)),), problem.configuration)
            for own, d in zip(np.split(by_stage, cuts), devices, strict=True)
        )
        return Plan(
            stages,
            microbatches=step_microbatches(problem.microbatches, len(stages)),
            microbatch_size=problem.graph.configurations[problem.configuration].microbatch_size,
            schedule=problem.schedule if problem.has_backward else "forward-only",
        )

    def assignment(self, device_of_block: IntArray) -> Assignment:
        """Return the assignment of blocks to devices."""
        return Assignment(device_of_block[self.block])

    def blocks_of(self, solution: Plan | Assignment) -> tuple[IntArray, IntArray]:
        """Return the part of each block, shape (N,), and the device of each part, of a solution that keeps blocks."""
        n = self.problem.graph.n_operators
        if isinstance(solution, Plan):
            part, devices = solution.stage_of(n), np.array(solution.devices, dtype=np.int64)
        else:
            devices, part = np.unique(solution.device, return_inverse=True)
        of_block = np.empty(self.n, dtype=np.int64)
        of_block[self.block] = part
        return of_block, devices


__all__ = ["BACKWARD", "FORWARD", "BoolArray", "CutTables", "Nets"]
