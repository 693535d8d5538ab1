"""Model room: the simulator, the meaning of a schedule. Predicted step times come from here and from no formula."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.model.actions import LETTERS, Kind
from balance.problems.model.cluster import Cluster
from balance.problems.model.completeness import check_completeness, refuse_deadlock, where
from balance.problems.model.errors import OptionError, PlanError, ScheduleError
from balance.problems.model.fields import meant
from balance.problems.model.footprint import Footprint
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.playback import player
from balance.problems.model.schedule import Schedule
from balance.problems.model.stage_costs import Hops, hops, lanes, stage_seconds
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.timeline import Timeline
from balance.problems.model.traffic import boundary_traffic
from balance.problems.model.transfers import Transfers

SENDS = ("buffered", "rendezvous")


def simulate(
    plan: Plan,
    graph: CostGraph,
    cluster: Cluster,
    *,
    sends: str = "buffered",
    overhead: float = 0.0,
    durations: ArrayLike | None = None,
    training: bool | None = None,
    state_factor: float = 1.0,
    backend: str = "none",
) -> Timeline:
    """Return what every device and link does in one synchronous step of a plan.

    **Actions.** A device does the actions of its schedule row one by one, in order. The forward pass of a stage needs
    the activations of the stage before it for the same micro-batch; a backward pass (or input gradient) the gradient
    of the stage after it, on the last stage its own forward pass; a weight gradient its own input gradient. An action
    starts as soon as the device is free and what it needs is there, and takes the sum of the graph's times of its
    stage's operators for their configuration and the device's kind, divided by the device's speed. A stage that
    recomputes does its forward pass again in each backward pass. With replicas, each does its share of the
    micro-batch in that share of the time and the slowest counts. Synchronising parameters and the optimizer's step
    are no part of it.

    **Transfers.** Everything that crosses a boundary between stages travels together, and what skips stages passes
    through each stage between (``routing="adjacent"``). A transfer takes as long as the boundary's traffic over the
    link, latency and bandwidth or given seconds (`balance.problems.model.traffic`), one at a time per directed pair
    of devices. Between stages on the same device it takes no time.

    **Sends.** ``"buffered"``: a transfer begins when the action that makes it has ended and the link is free; the
    device goes on at once. ``"rendezvous"``: a transfer begins once the receiver asks for it too. A device asks for
    what its next action needs when it has finished the action before, together with sending that one's result. It
    waits for its send to be done before the next action if that goes the other way (backward after forward or forward
    after backward), and before its next send otherwise: what torch's ``Schedule1F1B`` does on gloo, and on nccl with
    large messages.

    **Memory.** See `Timeline.memory` and `balance.problems.model.memory`.

    Parameters
    ----------
    plan
        Stages, devices, micro-batches and schedule.
    graph
        Its costs.
    cluster
        Its devices and links.
    sends
        ``"buffered"`` or ``"rendezvous"``.
    overhead
        Seconds that the runtime takes before each action, in which the device does nothing else.
    durations
        Measured seconds instead of the graph's: by stage and kind, shape (n_stages, kinds) with the columns of
        `balance.problems.model.actions.Kind` as far as they are used (2: forward, backward); or of every action in the
        order of the schedule's arrays, device by device, shape (A,).
    training
        Whether there are backward passes; by default as the plan's own `Schedule`, or else as the graph.
    state_factor
        Bytes held per parameter byte: weights, gradients, optimizer state.
    backend
        Whose receive buffers count: ``"none"`` or ``"torch"``.

    Raises
    ------
    PlanError
        If the plan does not fit the graph or the cluster.
    ScheduleError
        If the schedule does not fit the plan, is incomplete, or deadlocks with these sends.
    ClusterError
        If bytes have to cross a link whose speed is not known.
    OptionError
        If an option has an unknown value.

    Examples
    --------
    >>> graph = CostGraph.chain([1.0, 1.0], backward=[2.0, 2.0])
    >>> simulate(Plan.chain([0, 1, 2], microbatches=4), graph, Cluster.uniform(2)).step_time
    15.0
    """
    if sends not in SENDS:
        raise OptionError(f"sends={sends!r} is not one of {', '.join(SENDS)}{meant(str(sends), SENDS)}")
    for name, value in (("overhead", overhead), ("state_factor", state_factor)):
        if not 0 <= value < math.inf:
            raise OptionError(f"{name} must be finite and not negative, got {value}")
    _check_plan(plan, graph)
    home, leader = lanes(plan, cluster)
    schedule = _schedule(plan, graph, home, cluster.n_devices, training)
    table, each = _durations(plan, graph, cluster, schedule, durations)
    traffic = boundary_traffic(graph, plan.stage_of(graph.n_operators), plan.n_stages)
    ways = hops(plan, cluster, traffic, home, training=schedule.training)
    start, end, transfers = _played(schedule, home, table, each, ways, sends, overhead)
    footprint = Footprint.of(
        plan, graph, traffic, training=schedule.training, state_factor=state_factor, backend=backend
    )
    return Timeline.of(
        schedule,
        start,
        end,
        transfers=transfers,
        footprint=footprint,
        leader=leader,
        microbatch_size=plan.microbatch_size,
    )


def _check_plan(plan: Plan, graph: CostGraph) -> None:
    """Check that the stages hold every operator once and that data goes through them in order."""
    n = graph.n_operators
    for s, stage in enumerate(plan.stages):
        if len(stage.operators) and stage.operators[-1] >= n:
            v = int(stage.operators[-1])
            raise PlanError(f"stage {s} holds operator {v}, but the graph has {n}", stage=s, operator=v)
        if len(stage.operators) and not 0 <= stage.columns.min() <= stage.columns.max() < len(graph.configurations):
            raise PlanError(
                f"stage {s} uses configuration {int(stage.columns.max())}; the graph has {len(graph.configurations)}",
                stage=s,
            )
        if stage.evict_to is not None:
            raise PlanError(
                f"stage {s} evicts to stage {stage.evict_to}; the simulator does not play evictions", stage=s
            )
    part = plan.stage_of(n)
    if (part < 0).any():
        v = int(np.argmax(part < 0))
        raise PlanError(f"operator {graph.label(v)} is in no stage of the plan", operator=v)
    tensors = graph.tensors
    producer, reader = tensors.edge_producer, tensors.consumers
    late = graph.is_backward
    ahead = ~late[producer] & ~late[reader] & (part[producer] > part[reader])
    back = late[producer] & late[reader] & (part[producer] < part[reader])
    if (ahead | back).any():
        i = int(np.argmax(ahead | back))
        u, v = int(producer[i]), int(reader[i])
        raise PlanError(
            f"operator {graph.label(u)} in stage {int(part[u])} makes what {graph.label(v)} in stage {int(part[v])} "
            f"reads, against the order of the stages",
            operator=u,
        )


def _schedule(plan: Plan, graph: CostGraph, home: IntArray, n_devices: int, training: bool | None) -> Schedule:
    """Return the plan's schedule with a row for every device of the cluster, complete."""
    if isinstance(plan.schedule, str):
        from balance.problems.model.templates import build_schedule

        backward = graph.style != "inference" if training is None else training
        schedule = build_schedule(plan.schedule, plan.n_stages, plan.microbatches, home, backward)
    else:
        schedule = plan.schedule
        if (schedule.n_stages, schedule.microbatches) != (plan.n_stages, plan.microbatches):
            raise ScheduleError(
                f"the schedule is for {schedule.n_stages} stages and {schedule.microbatches} micro-batches, the plan "
                f"has {plan.n_stages} and {plan.microbatches}"
            )
        check_completeness(schedule)
        moved = np.flatnonzero(schedule.home != home)
        if len(moved):
            s = int(moved[0])
            raise ScheduleError(
                f"the schedule runs stage {s} on device {int(schedule.home[s])}, the plan on device {int(home[s])}",
                stage=s,
            )
        if training is not None and training != schedule.training:
            raise ScheduleError(
                f"training={training}, but the schedule {'has' if schedule.training else 'has no'} backward passes"
            )
        if (schedule.kind >= Kind.EVICT).any():
            raise ScheduleError("the simulator does not play evictions and loads (E and L)")
    if schedule.n_devices < n_devices:
        rest = np.full(n_devices - schedule.n_devices, schedule.n_actions)
        schedule = Schedule(
            schedule.stage,
            schedule.microbatch,
            schedule.kind,
            np.concatenate((schedule.offsets, rest)),
            n_stages=schedule.n_stages,
            microbatches=schedule.microbatches,
        )
    return schedule


def _durations(
    plan: Plan, graph: CostGraph, cluster: Cluster, schedule: Schedule, durations: ArrayLike | None
) -> tuple[FloatArray, FloatArray]:
    """Return seconds by stage and kind, shape (S, kinds), and by action, shape (A,) or empty."""
    none: FloatArray = np.zeros(0)
    kinds = [k for k in Kind if bool((schedule.kind == k).any())]
    if durations is None:
        return stage_seconds(plan, graph, cluster, split=Kind.INPUT in kinds), none
    try:
        given = np.array(durations, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(f"durations must hold numbers: {error}") from None
    if given.shape != (schedule.n_actions,) and not (
        given.ndim == 2 and given.shape[0] == plan.n_stages and max(kinds, default=0) < given.shape[1] <= len(LETTERS)
    ):
        raise OptionError(
            f"durations have shape {given.shape}; give ({plan.n_stages}, kinds) with a column for each of "
            f"{', '.join(LETTERS[: max(kinds, default=0) + 1])}, or one for each of the {schedule.n_actions} actions"
        )
    if not ((given >= 0) & (given < np.inf)).all():
        raise OptionError("durations must be finite and not negative")
    return (given, none) if given.ndim == 2 else (np.zeros((plan.n_stages, len(LETTERS))), given)


def _played(
    schedule: Schedule, home: IntArray, table: FloatArray, each: FloatArray, ways: Hops, sends: str, overhead: float
) -> tuple[FloatArray, FloatArray, Transfers]:
    """Return start and end of all actions, shape (A,), and the transfers."""
    actions, count = schedule.n_actions, schedule.microbatches
    start, end = np.zeros(actions), np.zeros(actions)
    phases, boundaries = np.nonzero(ways.slot >= 0)  # in the order of the slots
    begin, finish = np.zeros((len(phases), count)), np.zeros((len(phases), count))
    forward, backward = where(schedule)
    at, lacks = player(actions)(
        schedule.stage,
        schedule.microbatch,
        schedule.kind,
        schedule.offsets,
        home,
        count,
        forward,
        backward,
        table,
        each,
        ways.seconds,
        ways.slot,
        ways.link,
        sends == "rendezvous",
        overhead,
        start,
        end,
        begin,
        finish,
        np.zeros(actions if sends == "rendezvous" else 0),
    )
    how = " (each sender waits for its receiver; sends='buffered' may run it)" if sends == "rendezvous" else ""
    refuse_deadlock(schedule, at, lacks, how)
    before, after = boundaries - 1, boundaries
    source, target = np.where(phases == 0, before, after), np.where(phases == 0, after, before)
    transfers = Transfers(
        home[source],
        home[target],
        source,
        target,
        phases,
        ways.bytes[phases, boundaries],
        begin,
        finish,
    )
    return start, end, transfers
