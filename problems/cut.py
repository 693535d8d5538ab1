"""Problem room: cutting a DAG into stages, or placing its operators, so that the busiest device has least to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from balance.problems.model.cluster import Link
from balance.problems.model.contraction import Contraction, colocation_classes, contract, merge_free_leaves
from balance.problems.model.errors import ProblemError
from balance.problems.model.flight import stage_flight, stage_flights
from balance.problems.model.memory import device_bytes, stage_activation_bytes
from balance.problems.model.parameters import amount, check_question, choice, column, count, counts, words
from balance.problems.model.placement import Placement, read_placement
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import (
    BACKWARD,
    FORWARD,
    boundary_traffic,
    direct_traffic,
    edge_traffic,
    timed_by_links,
)

_CHOICES = {
    "objective": ("bottleneck", "fw-bw-bottleneck"),
    "contiguity": ("acyclic", "convex", "none"),
    "overlap": ("sum", "max"),
    "charge": ("tensor", "edge"),
    "send": ("once", "each"),
    "routing": ("direct", "adjacent"),
    "schedule": ("1f1b", "gpipe", "forward-only"),
    "leaves": ("keep", "merge"),
}


@dataclass(frozen=True, kw_only=True)
class CutProblem(Problem):
    r"""Cut a DAG into stages, or place its operators, so that the busiest device has as little to do as possible.

    **Sets.** Operators :math:`V`, tensors :math:`T` (producer :math:`p_t`, readers :math:`C_t`,
    :math:`e_t = \{p_t\} \cup C_t`), devices :math:`D`.

    **Parameters.** :math:`w^F_{vd}, w^B_{vd}`: forward and backward seconds of operator v on device d (the table of the
    device's kind divided by its speed; infinite where it cannot be hosted). :math:`c^F_t, c^B_t`: seconds of tensor t
    over the link, which is the same between any two devices; its gradient counts backward. In operator graphs a
    tensor counts backward if its producer is a backward operator. :math:`M_d`: memory.

    **Variables.** :math:`d(v) \in D` for every operator; :math:`S_d = \{v : d(v) = d\}`.

    **Objective.** ``"bottleneck"``: :math:`\min \max_d f_d(S_d)` with :math:`f_d(S) = w_d(S) + in(S) + out(S)` over
    both phases, :math:`in(S) = \sum \{c_t : p_t \notin S, C_t \cap S \ne \emptyset\}` and
    :math:`out(S) = \sum \{c_t : p_t \in S, C_t \not\subseteq S\}`; devices of `free_kinds` pay neither. With
    ``send="each"`` a tensor counts in *out* once for every other device that reads it. ``overlap="max"`` takes the
    largest of the three terms. ``"fw-bw-bottleneck"``: :math:`\min (\max_d f^F_d + \max_d f^B_d)`. Seconds per
    micro-batch. Since a tensor is paid by S if and only if S cuts :math:`e_t`, *in + out* is the weight of an
    undirected hypergraph cut, whatever the direction of the tensors.

    **Constraints.** Colocated operators share a device; pinned operators are on theirs; at most `max_stages` devices
    are used. ``state_factor * parameters + static + y * activations + largest workspace <= M_d``, or with
    `overflow_bandwidth` what exceeds is added to the load as seconds. Contiguity of the forward operators:
    ``"acyclic"``: devices in an order such that every tensor points forward, answered with a `Plan` (y is the number
    of micro-batches that the schedule keeps in flight at that place); backward operators follow by colocation, and a
    backward operator without a forward mate lies where its backward tensors, reversed, allow. ``"convex"``: no path
    leaves a device's operators and comes back, answered with an `Assignment`. ``"none"``: any assignment.

    An acyclic plan is convex, a convex assignment need not be acyclic: with tensors 1 -> 2 and 3 -> 4, the devices
    {1, 4} and {2, 3} are both convex, and each waits for the other. Only an acyclic answer is a pipeline.

    **Complexity.** Strongly NP-hard, even with equal devices and no tensor at all (three-partition). Polynomial for a
    given order of the operators, and for graphs with few down-sets.

    **Special cases.** P9 (equal devices; MTPP of Archer et al. 2024), P10 (kinds of devices; max-load placement of
    Tarnawski et al. 2020), P11 (memory), P13 (memory by depth), P15 (``contiguity="none"``: min-max hypergraph
    partitioning, Svitkina and Tardos 2004). A graph that is a chain is better asked as `ChainProblem`.

    Parameters
    ----------
    objective
        ``"bottleneck"`` or ``"fw-bw-bottleneck"``.
    contiguity
        ``"acyclic"``, ``"convex"`` or ``"none"``.
    overlap
        Whether communication adds to compute (``"sum"``) or runs beside it (``"max"``).
    charge
        ``"tensor"``: once per device that it touches; ``"edge"``: once per producer and reader on different devices.
    send
        With ``charge="tensor"``, whether the sender pays ``"once"`` or for ``"each"`` receiving device.
    routing
        ``"direct"``, or ``"adjacent"``: what skips a stage passes through it (acyclic only).
    free_kinds
        Device kinds that pay for no communication.
    schedule
        Decides the micro-batches in flight: ``"1f1b"``, ``"gpipe"`` or ``"forward-only"`` (no backward pass at all).
    microbatches
        Micro-batches per step; None: enough to fill the pipeline.
    in_flight
        In-flight counts by number of stages after, instead of the schedule's; the last one repeats. Without an order
        of stages (``"convex"``, ``"none"``) one count for all, by default 1.
    state_factor
        Bytes held per parameter byte (1 in inference, 4 for fp32 Adam).
    overflow_bandwidth
        Bytes per second at which what does not fit the memory is streamed; None: it must fit.
    max_stages
        Most devices that may be used.
    leaves
        ``"merge"``: an operator without any time joins its only neighbour, as in the published program of 2020
        (acyclic only).
    configuration
        Column of the graph's cost tables.

    Raises
    ------
    ProblemError
        If a parameter is out of range, or the graph has transfers and the cluster no link speed.

    Examples
    --------
    >>> from balance.problems.model.cluster import Cluster
    >>> from balance.problems.model.graph import CostGraph
    >>> from balance.problems.model.tensors import Tensor
    >>> diamond = CostGraph(forward=[1.0, 2.0, 2.0, 1.0], tensors=[Tensor(0, (1, 2)), Tensor(1, (3,)), Tensor(2, (3,))])
    >>> problem = CutProblem(graph=diamond, cluster=Cluster.uniform(2))
    >>> problem.evaluate(Plan.chain([0, 2, 4])).objective
    3.0
    """

    name: ClassVar[str] = "cut"
    solution_type: ClassVar[type] = Plan
    objectives: ClassVar[Mapping[str, int]] = {"bottleneck": 20, "fw-bw-bottleneck": 20}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "device-placement-2020": {
            "free_kinds": ("cpu",),
            "send": "once",
            "routing": "direct",
            "overlap": "sum",
            "leaves": "merge",
        },
        "mtpp": {"send": "once", "routing": "direct", "overlap": "sum", "schedule": "forward-only"},
        "per-edge": {"charge": "edge", "routing": "direct", "overlap": "sum"},
    }

    objective: str = "bottleneck"
    contiguity: str = "acyclic"
    overlap: str = "sum"
    charge: str = "tensor"
    send: str = "once"
    routing: str = "direct"
    free_kinds: tuple[str, ...] = ()
    schedule: str = "1f1b"
    microbatches: int | None = None
    in_flight: tuple[int, ...] | None = None
    state_factor: float = 1.0
    overflow_bandwidth: float | None = None
    max_stages: int | None = None
    leaves: str = "keep"
    configuration: int = 0

    def __post_init__(self) -> None:
        check_question(self.graph, self.cluster)
        put = object.__setattr__
        for key, options in _CHOICES.items():
            put(self, key, choice(key, getattr(self, key), options))
        put(self, "free_kinds", words("free_kinds", self.free_kinds))
        for key in ("microbatches", "max_stages"):
            if getattr(self, key) is not None:
                put(self, key, count(key, getattr(self, key)))
        if self.in_flight is not None:
            put(self, "in_flight", counts("in_flight", self.in_flight))
        put(self, "state_factor", amount("state_factor", self.state_factor))
        put(self, "configuration", column(self.configuration, self.graph))
        if self.overflow_bandwidth is not None:
            put(self, "overflow_bandwidth", amount("overflow_bandwidth", self.overflow_bandwidth))
            if not self.overflow_bandwidth:
                raise ProblemError("overflow_bandwidth must be positive, in bytes per second, got 0")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.contiguity != "acyclic" and self.in_flight is not None and len(self.in_flight) > 1:
            raise ProblemError(
                f"contiguity={self.contiguity!r} has no order of stages: in_flight takes one count, got "
                f"{len(self.in_flight)}"
            )
        if self.contiguity != "acyclic" and self.routing == "adjacent":
            raise ProblemError(f"routing='adjacent' needs an order of stages; contiguity={self.contiguity!r} has none")
        if self.charge == "edge" and self.routing == "adjacent":
            raise ProblemError("charge='edge' is defined for routing='direct' only")
        if self.overflow_bandwidth is not None and self.objective != "bottleneck":
            raise ProblemError("overflow_bandwidth is defined for objective='bottleneck' only")
        unknown = self.microbatches is None and self.in_flight is None
        if self.schedule == "gpipe" and unknown and self.has_backward and self.limits_memory:
            raise ProblemError("memory under gpipe depends on microbatches: give microbatches=")
        if self.cluster.links not in ("uniform", "none"):
            raise ProblemError(
                f"problem 'cut' takes one link between any two devices, the cluster has {self.cluster.links} links: "
                f"give bandwidth= and latency= of one"
            )
        if (
            self.cluster.n_devices > 1
            and self.cluster.links == "none"
            and timed_by_links(self.graph, training=self.has_backward)
        ):
            raise ProblemError(
                "tensors have bytes but no link speed is known: give bandwidth= (bytes per second) and latency= "
                "(seconds), or a cluster with links"
            )

    # -- derived facts -----------------------------------------------------------------------------------------

    @property
    def limits_memory(self) -> bool:
        """Whether some device has a memory limit."""
        return bool(np.isfinite(self.cluster.memory_bytes).any())

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward phase: a training graph, and a schedule that runs it."""
        return self.graph.style != "inference" and self.schedule != "forward-only"

    @property
    def link(self) -> Link:
        """The link between any two devices."""
        return self.cluster.inter or Link()

    @cached_property
    def device_pays(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each device pays for communication, shape (p,)."""
        return np.array([kind not in self.free_kinds for kind in self.cluster.kinds])[self.cluster.kind]

    @cached_property
    def classes(self) -> IntArray:
        """Class of each operator, shape (n,): those of a class share a device in every solution."""
        label = colocation_classes(self.graph)
        merged = self.leaves == "merge" and self.contiguity == "acyclic"
        return merge_free_leaves(self.graph, label, self.configuration) if merged else label

    @cached_property
    def contraction(self) -> Contraction:
        """The blocks that stages hold whole, in a topological order, and the order between them."""
        return contract(self.graph, self.classes)

    def flight(self, after: int) -> int:
        """Return the micro-batches in flight in a stage with `after` stages after it."""
        return stage_flight(after, **self._flight_rule)

    @property
    def _flight_rule(self) -> dict[str, Any]:
        # Without an order of stages no schedule keeps anything in flight by its place.
        return {
            "schedule": self.schedule,
            "microbatches": self.microbatches,
            "given": self.in_flight,
            "backward": self.has_backward and self.contiguity == "acyclic",
        }

    def seconds(self, device: int) -> FloatArray:
        """Return the seconds of every operator on a device per phase, shape (2, n); infinite where barred."""
        graph, kind, c = self.graph, self.device_kind[device], self.configuration
        forward, backward = graph.forward[kind, c], graph.backward[kind, c]
        if graph.style == "operators":
            late = graph.is_backward
            table = np.stack((np.where(late, 0.0, forward), np.where(late, forward, 0.0) + backward))
        else:
            table = np.stack((forward, backward))
        if not self.has_backward:
            table[BACKWARD] = np.where(np.isinf(table[BACKWARD]), np.inf, 0.0)
        return np.asarray(table / self.cluster.speed[device])

    # -- evaluation --------------------------------------------------------------------------------------------

    def solution_from_json(self, data: Any) -> Plan | Assignment:
        """Build a solution from its JSON form: a plan, or without an order of stages an assignment."""
        plan = isinstance(data, Mapping) and "stages" in data
        return Plan.from_json(data) if plan else Assignment.from_json(data)

    def evaluate(self, solution: Any) -> Evaluation:
        """Return the objective of a solution, its figures per stage or used device, and every rule that it breaks.

        The breakdown holds, per stage (or used device, in the order of devices): ``device``, ``load``, ``forward``,
        ``backward`` (seconds of compute), ``received``, ``sent`` (seconds of communication), ``in_flight``, ``memory``,
        ``memory_available`` (bytes), and with `overflow_bandwidth` ``overflow`` (seconds of streaming what does not
        fit).
        """
        placement, faults = read_placement(self, solution)
        if placement is None:
            return Evaluation(math.inf, {}, tuple(faults))
        devices = placement.devices
        compute = np.zeros((2, placement.parts))
        for s, d in enumerate(devices.tolist()):
            own = placement.part == s
            cells = self.seconds(d)[:, own]
            compute[:, s] = cells.sum(axis=1)
            for v in np.flatnonzero(own)[np.isinf(cells).any(axis=0)].tolist():
                faults.append(
                    Violation(
                        "kind",
                        f"operator {self.graph.label(v)} cannot run on {self.cluster.label(d)} of kind "
                        f"{self.cluster.device(d).kind!r}",
                        operator=v,
                        device=d,
                    )
                )
        received, sent = self._communication(placement)
        memory, available = self._memory(placement), self.cluster.memory_bytes[devices]
        overflow = np.zeros(placement.parts)
        if self.overflow_bandwidth is not None:
            overflow = np.maximum(memory - available, 0.0) / self.overflow_bandwidth
        else:
            faults.extend(self._memory_faults(devices, memory, available))
        objective, load = self._objective(received, compute, sent, overflow)
        breakdown = {
            "device": devices,
            "load": load,
            "forward": compute[FORWARD],
            "backward": compute[BACKWARD],
            "received": received.sum(axis=0),
            "sent": sent.sum(axis=0),
            "in_flight": self._flights(placement.parts),
            "memory": memory,
            "memory_available": available,
        }
        if self.overflow_bandwidth is not None:
            breakdown["overflow"] = overflow
        return Evaluation(math.inf if math.isnan(objective) else objective, breakdown, tuple(faults))

    def _communication(self, placement: Placement) -> tuple[FloatArray, FloatArray]:
        """Return seconds received and sent per phase and part, shapes (2, S)."""
        parts, part = placement.parts, placement.part
        if self.charge == "edge":
            received, sent = edge_traffic(self.graph, part, parts, self.link)
        elif self.routing == "adjacent":
            traffic = boundary_traffic(self.graph, part, parts)
            seconds = np.stack([traffic.time_at(s, (self.link, self.link)) for s in range(parts + 1)], axis=1)
            received, sent = seconds[:, :-1].copy(), seconds[:, 1:].copy()
        else:
            received, sent = direct_traffic(self.graph, part, parts, self.link, once=self.send == "once")
        for table in (received, sent):
            table[:, ~self.device_pays[placement.devices]] = 0.0
            if not self.has_backward:
                table[BACKWARD] = 0.0
        return received, sent

    def _objective(
        self, received: FloatArray, compute: FloatArray, sent: FloatArray, overflow: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the objective, and the load of each part."""
        terms = np.stack((received, compute, sent))
        if self.overlap == "sum":
            phases = terms.sum(axis=0)
            total = phases.sum(axis=0)
        else:
            phases = terms.max(axis=0)
            total = terms.sum(axis=1).max(axis=0)
        if self.objective == "bottleneck":
            total = total + overflow
            return float(total.max()), total
        return float(phases[FORWARD].max() + phases[BACKWARD].max()), phases.sum(axis=0)

    def _flights(self, parts: int) -> IntArray:
        return stage_flights(parts, **self._flight_rule)

    def _memory(self, placement: Placement) -> FloatArray:
        """Return the bytes that each part needs, shape (S,)."""
        graph, c, parts = self.graph, self.configuration, placement.parts

        def total(table: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(placement.part, table[c], parts), dtype=np.float64)

        workspace = np.zeros(parts)
        np.maximum.at(workspace, placement.part, graph.workspace_bytes[c])
        return device_bytes(
            np.arange(parts),
            parameters=total(graph.parameter_bytes),
            static=total(graph.static_bytes),
            activations=stage_activation_bytes(total(graph.activation_bytes), 0.0, self._flights(parts)),
            workspace=workspace,
            state_factor=self.state_factor,
        )

    def _memory_faults(self, devices: IntArray, memory: FloatArray, available: FloatArray) -> list[Violation]:
        return [
            Violation(
                "memory",
                f"{self.cluster.label(int(devices[s]))} needs {memory[s]:.6g} bytes and has {available[s]:.6g}",
                device=int(devices[s]),
                needed=float(memory[s]),
                available=float(available[s]),
            )
            for s in np.flatnonzero(memory > available * (1 + 1e-12)).tolist()
        ]
