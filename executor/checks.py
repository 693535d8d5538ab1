"""Executor room: everything about a run that torch would not check, or only after the ranks are up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from balance.executor.engine import SCHEDULES, check_version
from balance.executor.modules import Loss, TensorShape, boundary_shapes, check_loss, module_names, shared_parameters
from balance.executor.sending import compact
from balance.problems.model.errors import OptionError, PlanError, ScheduleError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan


@dataclass(frozen=True)
class Batches:
    """The data of a run: whole batches, used in turn by the steps.

    Parameters
    ----------
    inputs
        Input batches, samples along the first dimension.
    targets
        As many target batches, or none.
    """

    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]

    @property
    def samples(self) -> int:
        """Samples per step."""
        return int(self.inputs[0].shape[0])


@dataclass(frozen=True)
class Layout:
    """A plan made ready for the ranks.

    Parameters
    ----------
    cuts
        Module boundaries of the stages, (stages + 1,).
    schedule
        One of the engine's schedules.
    microbatches
        Micro-batches per step.
    shapes
        Tensors at the n + 1 module boundaries, of one micro-batch.
    devices
        Device index of each stage.
    """

    cuts: tuple[int, ...]
    schedule: str
    microbatches: int
    shapes: tuple[TensorShape, ...]
    devices: tuple[int, ...]


def gather_batches(
    inputs: torch.Tensor | Sequence[torch.Tensor], targets: torch.Tensor | Sequence[torch.Tensor] | None
) -> Batches:
    """Return the data of a run.

    Raises
    ------
    OptionError
        If something is not a tensor or sizes disagree.
    """
    first = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    second: tuple[torch.Tensor, ...] = ()
    if targets is not None:
        second = (targets,) if isinstance(targets, torch.Tensor) else tuple(targets)
    if not first or not all(isinstance(one, torch.Tensor) and one.dim() >= 1 for one in (*first, *second)):
        raise OptionError("inputs and targets are tensors, or lists of them (one batch per step, used in turn)")
    if second and len(second) != len(first):
        raise OptionError(f"{len(first)} input batches come with {len(second)} target batches")
    for word, tensors in (("input", first), ("target", second)):
        kinds = sorted({f"{tuple(one.shape)} {one.dtype}" for one in tensors})
        if len(kinds) > 1:
            raise OptionError(f"all {word} batches must have the same shape and type, got {', '.join(kinds)}")
    if second and first[0].shape[0] != second[0].shape[0]:
        raise OptionError(f"a batch has {first[0].shape[0]} inputs and {second[0].shape[0]} targets")
    return Batches(tuple(compact(one).detach() for one in first), tuple(compact(one).detach() for one in second))


def lay_out(
    plan: Plan,
    modules: Sequence[torch.nn.Module],
    batches: Batches,
    training: bool,
    loss_fn: Loss | None = None,
    graph: CostGraph | None = None,
) -> Layout:
    """Check that a plan can run a model on data, and return what the ranks need.

    Raises
    ------
    PlanError
        If the plan does not fit the model or needs what the engine cannot do (replicas, recomputation, several stages
        on a device); it names the stage.
    ScheduleError
        If the schedule is not one of the engine's or has too few micro-batches.
    OptionError
        If the batch does not fit.
    GraphError
        If a module fails on one micro-batch.
    ExecutionError
        If torch is not a tested version.
    """
    check_version()
    cuts = _cuts(plan, modules)
    if graph is not None and graph.n_operators != len(modules):
        raise PlanError(f"the cost graph has {graph.n_operators} operators, the model {len(modules)} modules")
    devices = tuple(plan.devices)
    if len(set(devices)) != len(devices):
        twice = next(d for d in devices if devices.count(d) > 1)
        raise PlanError(
            f"device {twice} holds {devices.count(twice)} stages; this engine runs one stage per device (gpipe, 1f1b)",
            device=twice,
        )
    labels = shared_parameters(modules)
    names = module_names(modules)
    stage_of = plan.stage_of(len(modules))
    for i, label in enumerate(labels):
        if label >= 0 and stage_of[i] != stage_of[label]:
            raise PlanError(
                f"modules {names[label]} and {names[i]} share parameters but are on stages {stage_of[label]} and "
                f"{stage_of[i]}: their gradients would be wrong; keep them on one stage",
                operator=i,
            )
    schedule = _schedule_name(plan, training)
    count = plan.microbatches
    if schedule == "1f1b" and count < plan.n_stages:
        raise ScheduleError(
            f"1f1b needs at least as many micro-batches as stages, got {count} for {plan.n_stages} stages; use more "
            f"micro-batches or the gpipe schedule"
        )
    if batches.samples < count or batches.samples % count:
        raise OptionError(
            f"a batch of {batches.samples} samples does not split into {count} equal micro-batches; "
            f"give a multiple of {count}"
        )
    size = batches.samples // count
    if plan.microbatch_size is not None and plan.microbatch_size != size:
        raise OptionError(
            f"the plan is for micro-batches of {plan.microbatch_size:g} samples, but {batches.samples} samples in "
            f"{count} micro-batches are {size} each"
        )
    if graph is not None:
        _check_configurations(plan, graph, size)
    shapes = boundary_shapes(modules, batches.inputs[0][:size], training)
    if training and not shapes[-1].requires_grad:
        raise OptionError("the model has no parameter that needs a gradient; run it with training=False")
    if training and loss_fn is not None and batches.targets:
        check_loss(loss_fn, shapes[-1], batches.targets[0][:size], training)
    return Layout(cuts, schedule, count, tuple(shapes), devices)


def _cuts(plan: Plan, modules: Sequence[torch.nn.Module]) -> tuple[int, ...]:
    cuts = [0]
    for s, stage in enumerate(plan.stages):
        if len(stage.replicas) != 1 or len(stage.devices) != 1:
            raise PlanError(
                f"stage {s} has {len(stage.replicas)} replicas on devices {list(stage.devices)}; this engine runs each "
                f"stage on one device; solve for as many stages as devices",
                stage=s,
            )
        if stage.recompute or stage.evict_to is not None:
            raise PlanError(
                f"stage {s} asks for recomputation or eviction, which this engine does not do; solve without them",
                stage=s,
            )
        if len(stage.operators) == 0:
            raise PlanError(f"stage {s} is empty; torch's pipeline needs a module on every stage", stage=s)
        first, last = int(stage.operators[0]), int(stage.operators[-1])
        if first != cuts[-1] or last - first + 1 != len(stage.operators):
            raise PlanError(
                f"stage {s} holds operators {first} to {last} ({len(stage.operators)} of them) where the chain goes on "
                f"at operator {cuts[-1]}; stages must follow the model's order without holes",
                stage=s,
            )
        cuts.append(last + 1)
    if cuts[-1] != len(modules):
        raise PlanError(f"the plan splits {cuts[-1]} operators, but the model has {len(modules)} modules")
    return tuple(cuts)


def _check_configurations(plan: Plan, graph: CostGraph, size: int) -> None:
    for s, stage in enumerate(plan.stages):
        for column in stage.columns.tolist():
            if column >= len(graph.configurations):
                raise PlanError(f"stage {s} uses configuration {column} of a graph with fewer", stage=s)
            chosen = graph.configurations[column]
            if chosen.microbatch_size is not None and chosen.microbatch_size != size:
                raise PlanError(
                    f"the graph's costs are for micro-batches of {chosen.microbatch_size:g} samples, the run's are of "
                    f"{size}: profile with as many samples as a micro-batch has",
                    stage=s,
                )
            if chosen.tensor_parallel > 1 or chosen.recompute:
                raise PlanError(
                    f"stage {s} uses configuration {column} (tensor parallel degree {chosen.tensor_parallel}"
                    f"{', recomputation' if chosen.recompute else ''}), which this engine does not do; "
                    f"solve on a graph without such configurations",
                    stage=s,
                )


def _schedule_name(plan: Plan, training: bool) -> str:
    schedule = plan.schedule
    if not isinstance(schedule, str):
        schedule = _recognised(plan)
    if schedule not in SCHEDULES:
        raise ScheduleError(
            f"this engine runs the schedules {', '.join(SCHEDULES)}, not {schedule!r}"
            f"{nearest(schedule, SCHEDULES)}; solve again with schedule= one of them"
        )
    if training and schedule == "forward-only":
        raise ScheduleError("the plan's schedule is forward-only; run it with training=False")
    return schedule if training else "forward-only"


def _recognised(plan: Plan) -> str:
    from balance.problems.model.schedule import Schedule
    from balance.problems.model.templates import build_schedule

    assert isinstance(plan.schedule, Schedule)  # the caller has handled names
    rows = plan.schedule.rows()
    for name in SCHEDULES:
        training = name != "forward-only"
        known = build_schedule(name, plan.n_stages, plan.microbatches, devices=plan.devices, training=training)
        if known.rows() == rows:
            return name
    raise ScheduleError(
        f"the plan's schedule is a list of actions that is none of {', '.join(SCHEDULES)}, the ones this engine "
        f"runs; give the plan one of these names"
    )
