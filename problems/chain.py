"""Problem room: cutting a chain of operators into consecutive stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from balance.problems.model.cluster import Link
from balance.problems.model.errors import ProblemError, ScheduleError
from balance.problems.model.fields import nearest
from balance.problems.model.linearise import REGIONS, Linearisation, linearise
from balance.problems.model.memory import BACKENDS, device_bytes, receive_buffer_bytes, stage_activation_bytes
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, boundary_traffic, direct_traffic

_CHOICES = {
    "objective": ("bottleneck", "fw-bw-bottleneck"),
    "device_order": ("given", "free"),
    "overlap": ("sum", "max"),
    "routing": ("adjacent", "direct"),
    "send": ("each", "once"),
    "recompute": ("never", "always", "choose"),
    "backend": BACKENDS,
    "regions": REGIONS,
    "schedule": ("1f1b", "gpipe", "forward-only", "interleaved-1f1b"),
}


@dataclass(frozen=True, kw_only=True)
class ChainProblem(Problem):
    r"""Cut a chain into consecutive stages so that the busiest device has as little to do as possible.

    **Sets.** Items :math:`1..N` of the linearised graph (see `balance.problems.model.linearise`), devices :math:`1..p`.

    **Parameters.** :math:`w^F_{ld}, w^B_{ld}`: forward and backward seconds of item l on device d (the graph's table
    for the device's kind, divided by its speed; infinite where it cannot be hosted). :math:`h^F_j(\ell), h^B_j(\ell)`:
    seconds to move everything that crosses boundary j over link :math:`\ell`, forward and backward; zero on devices of
    `free_kinds`. :math:`M_d`: memory. :math:`y_u`: micro-batches in flight in a stage with u stages after it.

    **Variables.** Cuts :math:`0 = q_0 < q_1 < ... < q_S = N` with :math:`S \le p`, a device :math:`\pi(s)` per stage,
    all different (increasing with ``device_order="given"``), and with ``recompute="choose"`` a flag per stage.

    **Objective.** ``"bottleneck"``: :math:`\min \max_s C_s`, with :math:`C_s = h_{q_{s-1}} + w(q_{s-1}, q_s) + h_{q_s}`
    over both phases (``overlap="sum"``) or the largest of the three terms (``"max"``). ``"fw-bw-bottleneck"``:
    :math:`\min (\max_s C^F_s + \max_s C^B_s)`. Seconds per micro-batch.

    **Constraints.** Memory of the device of stage s with u stages after it,
    ``state_factor * parameters + static + y_u * activations + largest workspace + receive buffers <= M_d``; with
    recomputation ``y_u * inputs + activations`` instead of ``y_u * activations``. Pinned operators are on their
    device. With ``idle=False`` every device is used. Several chunks (``chunks > 1``) put stage s on the device of stage
    ``s - D`` for every ``s >= D`` (D devices used, S a multiple of D); loads and memory are then summed per device.

    **Complexity.** Polynomial for a given device order (O(p N^2)); NP-hard with free order and many kinds of device,
    polynomial in N for a fixed number of kinds; with chunks, NP-hard in general (three-partition).

    **Special cases.** P1 (no tensors), P2 (equal devices), P3 (given order), P4 (free order), P5 (memory by schedule)
    of chains-on-chains partitioning. [Bokhari 1988; Nicol 1994; Pinar and Aykanat 2004; Benoit and Robert 2008.]

    Parameters
    ----------
    objective
        ``"bottleneck"`` or ``"fw-bw-bottleneck"``.
    device_order
        ``"given"``: stages use the devices in the cluster's order; ``"free"``: in any order.
    idle
        Whether devices may stay unused.
    overlap
        Whether communication adds to compute (``"sum"``) or runs beside it (``"max"``).
    routing
        ``"adjacent"``: what skips a stage passes through it; ``"direct"``: it goes straight (needs the same link
        between all devices).
    send
        With direct routing, whether the sender pays per receiving stage (``"each"``) or ``"once"``.
    free_kinds
        Device kinds that pay for no communication.
    schedule
        Decides the micro-batches in flight: ``"1f1b"``, ``"gpipe"``, ``"interleaved-1f1b"``, ``"forward-only"``.
    microbatches
        Micro-batches per step; None: enough to fill the pipeline.
    in_flight
        In-flight counts by number of stages after, instead of the schedule's; the last one repeats.
    chunks
        Stages per device, for ``"interleaved-1f1b"``.
    state_factor
        Bytes held per parameter byte (1 in inference, 4 for fp32 Adam).
    recompute
        ``"never"``, ``"always"`` or ``"choose"`` per stage.
    backend
        Rule of the receive buffers, see `balance.problems.model.memory`.
    configuration
        Column of the graph's cost tables.
    regions
        What to do with parallel regions, see `balance.problems.model.linearise.linearise`.

    Raises
    ------
    ProblemError
        If a parameter is out of range, or the graph has transfers and the cluster no link speed.
    LinearisationError
        If the graph is not a chain.

    Examples
    --------
    >>> from balance.problems.model.cluster import Cluster
    >>> from balance.problems.model.graph import CostGraph
    >>> problem = ChainProblem(graph=CostGraph.chain([3.0, 1.0, 1.0, 2.0]), cluster=Cluster.uniform(2))
    >>> problem.evaluate(Plan.chain([0, 1, 4])).objective
    4.0
    """

    name: ClassVar[str] = "chain"
    solution_type: ClassVar[type] = Plan

    objective: str = "bottleneck"
    device_order: str = "given"
    idle: bool = True
    overlap: str = "sum"
    routing: str = "adjacent"
    send: str = "each"
    free_kinds: tuple[str, ...] = ()
    schedule: str = "1f1b"
    microbatches: int | None = None
    in_flight: tuple[int, ...] | None = None
    chunks: int = 1
    state_factor: float = 1.0
    recompute: str = "never"
    backend: str = "none"
    configuration: int = 0
    regions: str = "refuse"

    def __post_init__(self) -> None:
        for key, options in _CHOICES.items():
            value = getattr(self, key)
            if value not in options:
                raise ProblemError(f"{key}={value!r} is not one of {', '.join(options)}{nearest(str(value), options)}")
        object.__setattr__(self, "free_kinds", tuple(self.free_kinds))
        if not self.graph.n_operators:
            raise ProblemError("the graph has no operators, so there is nothing to cut into stages")
        if self.microbatches is not None:
            object.__setattr__(self, "microbatches", _count("microbatches", self.microbatches))
        object.__setattr__(self, "chunks", _count("chunks", self.chunks))
        if self.in_flight is not None:
            object.__setattr__(self, "in_flight", tuple(_count("in_flight", y) for y in self.in_flight))
            if not self.in_flight:
                raise ProblemError("in_flight must hold at least one count, got none")
        if not 0 <= self.state_factor < math.inf:
            raise ProblemError(f"state_factor must be finite and not negative, got {self.state_factor}")
        if not 0 <= self.configuration < len(self.graph.configurations):
            raise ProblemError(
                f"configuration {self.configuration} does not exist; the graph has {len(self.graph.configurations)}"
            )
        if (self.chunks > 1) != (self.schedule == "interleaved-1f1b"):
            raise ProblemError(
                f"chunks={self.chunks} with schedule={self.schedule!r}: interleaved-1f1b takes at least 2 chunks, "
                f"other schedules take 1"
            )
        if self.schedule == "gpipe" and self.microbatches is None and self.in_flight is None and self._limited:
            raise ProblemError("memory under gpipe depends on microbatches: give microbatches=")
        if self.backend == "torch" and self.microbatches is None:
            raise ProblemError("the torch backend keeps one receive buffer per micro-batch: give microbatches=")
        kinds = self.graph.kinds
        unknown = [kind for kind in self.cluster.kinds if kind not in kinds]
        if unknown:
            raise ProblemError(
                f"the graph has no costs for device kind {unknown[0]!r}; it has costs for {', '.join(kinds)}"
            )
        if self.n_operators_pinned and int(self.graph.pinned.max()) >= self.cluster.n_devices:
            v = int(np.argmax(self.graph.pinned))
            raise ProblemError(
                f"operator {self.graph.label(v)} is pinned to device {int(self.graph.pinned[v])}, but the cluster has "
                f"{self.cluster.n_devices} devices",
                operator=v,
            )
        if self.cluster.n_devices > 1 and self.cluster.links == "none" and self.needs_links:
            raise ProblemError(
                "tensors have bytes but no link speed is known: give bandwidth= (bytes per second) and latency= "
                "(seconds), or a cluster with links"
            )
        if self.routing == "direct" and self.cluster.links not in ("uniform", "none"):
            raise ProblemError("routing='direct' needs the same link between all devices; use routing='adjacent'")
        _ = self.linearisation  # refuses graphs that are not chains

    # -- derived facts -----------------------------------------------------------------------------------------

    @cached_property
    def linearisation(self) -> Linearisation:
        """The graph as a chain of items."""
        return linearise(self.graph, self.regions)

    @property
    def n_operators_pinned(self) -> int:
        """Number of pinned operators."""
        return int((self.graph.pinned >= 0).sum())

    @cached_property
    def needs_links(self) -> bool:
        """Whether some transfer is timed by a link."""
        tensors = self.graph.tensors
        ahead = (tensors.bytes > 0) & np.isnan(tensors.seconds)
        back = (tensors.gradient_bytes > 0) & np.isnan(tensors.gradient_seconds)
        return bool((ahead | back).any())

    @cached_property
    def communicates(self) -> bool:
        """Whether any transfer takes time."""
        tensors = self.graph.tensors
        given = bool((np.nan_to_num(tensors.seconds) + np.nan_to_num(tensors.gradient_seconds) > 0).any())
        return given or self.needs_links

    @property
    def _limited(self) -> bool:
        return bool(np.isfinite(self.cluster.memory_bytes).any())

    @cached_property
    def device_kind(self) -> IntArray:
        """Row of each device in the graph's time tables, shape (p,)."""
        rows = np.array([self.graph.kind_index(kind) for kind in self.cluster.kinds], dtype=np.int64)
        return np.asarray(rows[self.cluster.kind])

    def flight(self, after: int) -> int:
        """Return the micro-batches in flight in a stage with `after` stages after it (one chunk per device)."""
        if self.in_flight is not None:
            return self.in_flight[min(after, len(self.in_flight) - 1)]
        if self.graph.style == "inference" or self.schedule == "forward-only":
            return 1
        if self.schedule == "gpipe":
            return self.microbatches or 1
        return after + 1 if self.microbatches is None else min(self.microbatches, after + 1)

    def flights(self, stages: int) -> IntArray:
        """Return the micro-batches in flight of each stage of a pipeline of `stages` stages, shape (stages,)."""
        if self.chunks == 1 or self.in_flight is not None or self.graph.style == "inference":
            return np.array([self.flight(stages - 1 - s) for s in range(stages)], dtype=np.int64)
        from balance.problems.model.templates import in_flight

        count = self.microbatches if self.microbatches is not None else 2 * stages
        return np.array(
            [in_flight(self.schedule, stages, count, s, chunks=self.chunks) for s in range(stages)], dtype=np.int64
        )

    def schedule_refusal(self, stages: int) -> str | None:
        """Return why the schedule cannot run `stages` stages with these micro-batches, or None if it can."""
        if self.chunks == 1:
            return None
        try:
            self.flights(stages)
        except ScheduleError as error:
            return error.message
        return None

    # -- evaluation --------------------------------------------------------------------------------------------

    def evaluate(self, solution: Any) -> Evaluation:
        """Return the objective of a plan, its figures per stage, and every rule that it breaks.

        The breakdown holds, per stage: ``device``, ``load``, ``forward``, ``backward`` (seconds of compute),
        ``received``, ``sent`` (seconds of communication), ``in_flight``, ``memory`` and ``memory_available`` (bytes
        of the stage's device).
        """
        if not isinstance(solution, Plan):
            return Evaluation(math.inf, {}, (Violation("type", f"expected a Plan, got {type(solution).__name__}"),))
        broken = list(self._structure(solution))
        if broken:
            return Evaluation(math.inf, {}, tuple(broken))
        devices = np.array(solution.devices, dtype=np.int64)
        compute = self._compute(solution, devices)
        for s, v in zip(*_unhostable(self, solution, devices), strict=True):
            broken.append(
                Violation(
                    "kind",
                    f"operator {self.graph.label(v)} cannot run on {self.cluster.label(int(devices[s]))} of kind "
                    f"{self.cluster.device(int(devices[s])).kind!r}",
                    operator=v,
                    stage=s,
                    device=int(devices[s]),
                )
            )
        received, sent = self._communication(solution, devices)
        used, group = np.unique(devices, return_inverse=True)
        by_device = np.zeros((3, 2, len(used)))
        for row, table in enumerate((received, compute, sent)):
            for phase in (FORWARD, BACKWARD):
                np.add.at(by_device[row, phase], group, table[phase])
        objective, load = self._objective(by_device)
        memory = self._memory(solution, devices, group)
        available = self.cluster.memory_bytes[devices]
        for s in range(solution.n_stages):
            if memory[s] > available[s] * (1 + 1e-12):
                broken.append(
                    Violation(
                        "memory",
                        f"{self.cluster.label(int(devices[s]))} needs {memory[s]:.6g} bytes for stage {s} "
                        f"and has {available[s]:.6g}",
                        stage=s,
                        device=int(devices[s]),
                        needed=float(memory[s]),
                        available=float(available[s]),
                    )
                )
        breakdown = {
            "device": devices,
            "load": load[group],
            "forward": compute[FORWARD],
            "backward": compute[BACKWARD],
            "received": received.sum(axis=0),
            "sent": sent.sum(axis=0),
            "in_flight": self.flights(solution.n_stages),
            "memory": memory,
            "memory_available": available,
        }
        return Evaluation(math.inf if math.isnan(objective) else objective, breakdown, tuple(broken))

    def _structure(self, plan: Plan) -> list[Violation]:
        """Return broken rules that leave nothing to compute."""
        n, p = self.graph.n_operators, self.cluster.n_devices
        broken: list[Violation] = []
        for s, stage in enumerate(plan.stages):
            if not len(stage.operators):
                return [Violation("empty", f"stage {s} has no operator", stage=s)]
            if int(stage.operators[-1]) >= n:
                v = int(stage.operators[-1])
                return [Violation("unknown", f"stage {s} has operator {v}, but the graph has {n}", stage=s, operator=v)]
            if len(stage.devices) != 1:
                return [Violation("replicas", f"stage {s} has several devices; a chain stage has one", stage=s)]
            if stage.device >= p:
                return [
                    Violation("unknown", f"stage {s} is on device {stage.device}, but the cluster has {p}", stage=s)
                ]
            if bool((stage.columns != self.configuration).any()):
                return [Violation("configuration", f"stage {s} uses another configuration", stage=s)]
            if (stage.recompute and self.recompute == "never") or (not stage.recompute and self.recompute == "always"):
                broken.append(Violation("recompute", f"stage {s} does not recompute as the problem asks", stage=s))
        stage_of = plan.stage_of(n)
        if bool((stage_of < 0).any()):
            v = int(np.argmax(stage_of < 0))
            return [Violation("missing", f"operator {self.graph.label(v)} is in no stage", operator=v)]
        broken.extend(self._order(plan, stage_of))
        pinned = self.graph.pinned
        if self.n_operators_pinned:
            home = np.array(plan.devices)[stage_of]
            for v in np.flatnonzero((pinned >= 0) & (home != pinned)).tolist():
                broken.append(
                    Violation(
                        "pinned",
                        f"operator {self.graph.label(v)} is pinned to {self.cluster.label(int(pinned[v]))} but is on "
                        f"{self.cluster.label(int(home[v]))}",
                        operator=v,
                        device=int(home[v]),
                    )
                )
        return broken

    def _order(self, plan: Plan, stage_of: IntArray) -> list[Violation]:
        """Return broken rules of order: items whole, stages consecutive, devices as asked."""
        position = self.linearisation.position
        broken: list[Violation] = []
        by_item = np.argsort(position, kind="stable")
        steps = np.diff(stage_of[by_item])
        same_item = np.diff(position[by_item]) == 0
        apart = np.flatnonzero(same_item & (steps != 0))
        if len(apart):
            u, v = int(by_item[apart[0]]), int(by_item[apart[0] + 1])
            broken.append(
                Violation(
                    "colocation",
                    f"operators {self.graph.label(u)} and {self.graph.label(v)} stay together but are in stages "
                    f"{stage_of[u]} and {stage_of[v]}",
                    operator=u,
                )
            )
        back = np.flatnonzero(~same_item & ((steps < 0) | (steps > 1)))
        if len(back) and not broken:
            u, v = int(by_item[back[0]]), int(by_item[back[0] + 1])
            broken.append(
                Violation(
                    "order",
                    f"stages are not consecutive: operator {self.graph.label(u)} is in stage {stage_of[u]}, its "
                    f"successor {self.graph.label(v)} in stage {stage_of[v]}",
                    operator=v,
                )
            )
        devices = plan.devices
        stages, used = len(devices), len(set(devices))
        first = devices[: stages // self.chunks]
        if devices != first * self.chunks:
            broken.append(
                Violation("devices", f"{stages} stages do not form {self.chunks} rounds over the same devices")
            )
        elif used != len(first):
            twice = next(d for d in first if first.count(d) > 1)
            broken.append(
                Violation("devices", f"{self.cluster.label(twice)} holds more stages than it may", device=twice)
            )
        elif self.device_order == "given" and first != sorted(first):
            broken.append(Violation("devices", f"stages use the devices in the order {first}, not in the given one"))
        if not self.idle and used != self.cluster.n_devices:
            unused = next(d for d in range(self.cluster.n_devices) if d not in set(devices))
            broken.append(Violation("idle", f"{self.cluster.label(unused)} is not used", device=unused))
        refusal = None if broken else self.schedule_refusal(stages)
        if refusal is not None:
            broken.append(Violation("schedule", refusal))
        return broken

    def _compute(self, plan: Plan, devices: IntArray) -> FloatArray:
        """Return compute seconds per phase and stage, shape (2, S); recomputing adds forward time to the backward."""
        graph, c = self.graph, self.configuration
        result = np.zeros((2, plan.n_stages))
        for s, stage in enumerate(plan.stages):
            kind, speed = self.device_kind[devices[s]], self.cluster.speed[devices[s]]
            forward = graph.forward[kind, c, stage.operators]
            backward = graph.backward[kind, c, stage.operators]
            if graph.style == "operators":
                late = graph.is_backward[stage.operators]
                result[:, s] = forward[~late].sum(), forward[late].sum() + backward.sum()
            else:
                result[:, s] = forward.sum(), backward.sum()
            if stage.recompute:
                result[BACKWARD, s] += result[FORWARD, s]
            result[:, s] /= speed
        return result

    def _communication(self, plan: Plan, devices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return seconds at the left and right side of each stage per phase, shapes (2, S)."""
        stages = plan.n_stages
        left, right = np.zeros((2, stages)), np.zeros((2, stages))
        if stages > 1 and self.communicates:
            part = plan.stage_of(self.graph.n_operators)
            if self.routing == "direct":
                link = self.cluster.inter or Link()
                left, right = direct_traffic(self.graph, part, stages, link, once=self.send == "once", device=devices)
            else:
                traffic = boundary_traffic(self.graph, part, stages)
                for s in range(1, stages):
                    a, b = int(devices[s - 1]), int(devices[s])
                    # Without a link every transfer has given seconds (checked when the problem is made).
                    ways = (Link(), Link()) if self.cluster.links == "none" else self.cluster.both_ways(a, b)
                    seconds = traffic.time_at(s, ways) if a != b else np.zeros(2)
                    right[:, s - 1] = seconds
                    left[:, s] = seconds
        free = np.array([kind in self.free_kinds for kind in self.cluster.kinds])[self.cluster.kind[devices]]
        return np.where(free, 0.0, left), np.where(free, 0.0, right)

    def _objective(self, by_device: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective and the load per used device from (received, compute, sent) x phase x device."""
        if self.overlap == "sum":
            phases = by_device.sum(axis=0)
            total = phases.sum(axis=0)
        else:
            phases = by_device.max(axis=0)
            total = by_device.sum(axis=1).max(axis=0)
        if self.objective == "bottleneck":
            return float(total.max()), total
        return float(phases[FORWARD].max() + phases[BACKWARD].max()), phases.sum(axis=0)

    def _memory(self, plan: Plan, devices: IntArray, group: IntArray) -> FloatArray:
        """Return the bytes that the device of each stage needs, shape (S,)."""
        graph, c = self.graph, self.configuration
        stages = plan.n_stages

        def per_stage(table: FloatArray) -> FloatArray:
            return np.array([table[c, stage.operators].sum() for stage in plan.stages])

        def largest(table: FloatArray) -> FloatArray:
            return np.array([table[c, stage.operators].max() for stage in plan.stages])

        traffic = boundary_traffic(graph, plan.stage_of(graph.n_operators), stages).bytes
        held = stage_activation_bytes(
            per_stage(graph.activation_bytes),
            traffic[FORWARD, :-1],
            self.flights(stages),
            np.array([stage.recompute for stage in plan.stages]),
        )
        buffers = receive_buffer_bytes(
            self.backend, self.microbatches or 1, traffic[FORWARD, :-1], traffic[BACKWARD, 1:]
        )
        by_device = device_bytes(
            group,
            parameters=per_stage(graph.parameter_bytes),
            static=per_stage(graph.static_bytes),
            activations=held,
            workspace=largest(graph.workspace_bytes),
            buffers=buffers,
            state_factor=self.state_factor,
        )
        return by_device[group]


def _count(key: str, value: Any) -> int:
    """Return a count of at least 1 as an int; fractions are refused, not cut off."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or not 1 <= value < math.inf or value != int(value):
        raise ProblemError(f"{key} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _unhostable(problem: ChainProblem, plan: Plan, devices: IntArray) -> tuple[list[int], list[int]]:
    """Return stages and operators where the stage's device cannot host the operator."""
    stages: list[int] = []
    operators: list[int] = []
    for s, stage in enumerate(plan.stages):
        kind = problem.device_kind[devices[s]]
        cells = kind, problem.configuration, stage.operators
        unhosted = np.isinf(problem.graph.forward[cells]) | np.isinf(problem.graph.backward[cells])
        for v in stage.operators[unhosted].tolist():
            stages.append(s)
            operators.append(v)
    return stages, operators
