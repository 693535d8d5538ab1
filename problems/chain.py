"""Problem room: cutting a chain of operators into consecutive stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from balance.problems.model.chain_figures import communication_seconds, compute_seconds, device_loads, memory_bytes
from balance.problems.model.chain_rules import broken_structure, unhostable
from balance.problems.model.errors import ProblemError, ScheduleError
from balance.problems.model.flight import stage_flight, stage_flights, step_microbatches
from balance.problems.model.linearise import REGIONS, Linearisation, linearise
from balance.problems.model.memory import BACKENDS
from balance.problems.model.parameters import amount, check_question, choice, column, count, counts, flag, words
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.problems.model.tensors import IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, timed_by_links, transfers_of

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

    **No backward pass.** Inference graphs have none, and ``schedule="forward-only"`` runs none on any graph: no
    backward seconds, no gradient transfers and receive buffers, nothing recomputed (`recompute` then reads ``"never"``,
    and the flags of a plan's stages mean nothing), :math:`y_u = 1`. `state_factor` stays as it is given.

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
        Decides the micro-batches in flight: ``"1f1b"``, ``"gpipe"``, ``"interleaved-1f1b"``, or ``"forward-only"``,
        which runs no backward pass.
    microbatches
        Micro-batches per step. None: enough to fill the pipeline, twice the number of stages in the plans that are
        returned and in the figures reported for them; under ``"gpipe"`` memory limits need a number.
    in_flight
        In-flight counts by number of stages after, instead of the schedule's; the last one repeats. The schedule must
        be able to run the stages all the same.
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
        If a parameter is of a wrong type or out of range, or the graph has transfers and the cluster no link speed.
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
    objectives: ClassVar[Mapping[str, int]] = {"bottleneck": 10, "fw-bw-bottleneck": 10}

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
        check_question(self.graph, self.cluster)
        put = object.__setattr__
        for key, options in _CHOICES.items():
            put(self, key, choice(key, getattr(self, key), options))
        put(self, "idle", flag("idle", self.idle))
        put(self, "free_kinds", words("free_kinds", self.free_kinds))
        if self.microbatches is not None:
            put(self, "microbatches", count("microbatches", self.microbatches))
        put(self, "chunks", count("chunks", self.chunks))
        if self.in_flight is not None:
            put(self, "in_flight", counts("in_flight", self.in_flight))
        put(self, "state_factor", amount("state_factor", self.state_factor))
        put(self, "configuration", column(self.configuration, self.graph))
        self._check_combinations()
        if not self.has_backward:
            put(self, "recompute", "never")
        _ = self.linearisation  # refuses graphs that are not chains

    def _check_combinations(self) -> None:
        if (self.chunks > 1) != (self.schedule == "interleaved-1f1b"):
            raise ProblemError(
                f"chunks={self.chunks} with schedule={self.schedule!r}: interleaved-1f1b takes at least 2 chunks, "
                f"other schedules take 1"
            )
        unknown = self.microbatches is None and self.in_flight is None
        if self.schedule == "gpipe" and unknown and self.has_backward and self._limited:
            raise ProblemError("memory under gpipe depends on microbatches: give microbatches=")
        if self.backend == "torch" and self.microbatches is None:
            raise ProblemError("the torch backend keeps one receive buffer per micro-batch: give microbatches=")
        if self.cluster.n_devices > 1 and self.cluster.links == "none" and self.needs_links:
            raise ProblemError(
                "tensors have bytes but no link speed is known: give bandwidth= (bytes per second) and latency= "
                "(seconds), or a cluster with links"
            )
        if self.routing == "direct" and self.cluster.links not in ("uniform", "none"):
            raise ProblemError("routing='direct' needs the same link between all devices; use routing='adjacent'")

    # -- derived facts -----------------------------------------------------------------------------------------

    @cached_property
    def linearisation(self) -> Linearisation:
        """The graph as a chain of items."""
        return linearise(self.graph, self.regions)

    @property
    def n_operators_pinned(self) -> int:
        """Number of pinned operators."""
        return int((self.graph.pinned >= 0).sum())

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward pass: a training graph, and a schedule that runs it."""
        return self.graph.style != "inference" and self.schedule != "forward-only"

    @cached_property
    def needs_links(self) -> bool:
        """Whether some transfer is timed by a link."""
        return timed_by_links(self.graph, training=self.has_backward)

    @cached_property
    def communicates(self) -> bool:
        """Whether any transfer takes time."""
        sent = transfers_of(self.graph, training=self.has_backward)
        return self.needs_links or any(bool((seconds > 0).any()) for _, seconds in sent)

    @property
    def _limited(self) -> bool:
        return bool(np.isfinite(self.cluster.memory_bytes).any())

    def flight(self, after: int) -> int:
        """Return the micro-batches in flight in a stage with `after` stages after it (one chunk per device)."""
        return stage_flight(
            after,
            schedule=self.schedule,
            microbatches=self.microbatches,
            given=self.in_flight,
            backward=self.has_backward,
        )

    def flights(self, stages: int) -> IntArray:
        """Return the micro-batches in flight of each stage of a pipeline of `stages` stages, shape (stages,)."""
        if self.in_flight is None and self.has_backward and self.chunks > 1:
            return np.array([self._scheduled(stages, s) for s in range(stages)], dtype=np.int64)
        return stage_flights(
            stages,
            schedule=self.schedule,
            microbatches=self.microbatches,
            given=self.in_flight,
            backward=self.has_backward,
        )

    def step_microbatches(self, stages: int) -> int:
        """Return the micro-batches of a step with `stages` stages: `microbatches`, or enough to fill the pipeline."""
        return step_microbatches(self.microbatches, stages)

    def _scheduled(self, stages: int, stage: int) -> int:
        from balance.problems.model.templates import in_flight

        count = self.step_microbatches(stages)
        return in_flight(self.schedule, stages, count, stage, chunks=self.chunks, training=self.has_backward)

    def schedule_refusal(self, stages: int) -> str | None:
        """Return why the schedule cannot run `stages` stages with these micro-batches, or None if it can.

        Given counts in flight (`in_flight`) and inference change what is kept, not what the schedule can run.
        """
        if self.chunks == 1:
            return None
        try:
            self._scheduled(stages, 0)
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
        broken = list(broken_structure(self, solution))
        if broken:
            return Evaluation(math.inf, {}, tuple(broken))
        devices = np.array(solution.devices, dtype=np.int64)
        compute = compute_seconds(self, solution, devices)
        for s, v in zip(*unhostable(self, solution, devices), strict=True):
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
        received, sent = communication_seconds(self, solution, devices)
        used, group = np.unique(devices, return_inverse=True)
        by_device = np.zeros((3, 2, len(used)))
        for row, table in enumerate((received, compute, sent)):
            for phase in (FORWARD, BACKWARD):
                np.add.at(by_device[row, phase], group, table[phase])
        objective, load = device_loads(self, by_device)
        memory = memory_bytes(self, solution, devices, group)
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
