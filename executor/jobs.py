"""Executor room: what runs on a rank: build its stage, run steps, account for what was held, hand back the record."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from balance.executor.activations import held_tensors
from balance.executor.clocks import Clock, CudaClock, clock_for
from balance.executor.engine import Action, MemoryTracker, StageEngine
from balance.executor.modules import Loss, TensorShape, bytes_of
from balance.executor.passes import MakeOptimizer
from balance.executor.rank import Context
from balance.executor.record import RankRecord
from balance.executor.status import Phase
from balance.problems.model.errors import ExecutionError

# ru_maxrss is in KiB on Linux and in bytes on macOS.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class StageTask:
    """What a rank needs to build and run its stage of one plan.

    Parameters
    ----------
    modules, names
        Its part of the model, and the names of these modules in the model.
    schedule, microbatches
        As in the engine.
    loss_fn, optimizer
        None in forward-only runs.
    received, sent
        Tensors of one micro-batch at its two boundaries.
    inputs, targets
        Whole batches on the first and the last stage, nothing elsewhere.
    collect
        What to bring back besides the record.
    seed
        Seed of the run; what a step draws depends on it, the step and the stage alone.
    """

    modules: list[torch.nn.Module]
    names: list[str]
    schedule: str
    microbatches: int
    loss_fn: Loss | None
    optimizer: MakeOptimizer | None
    received: TensorShape
    sent: TensorShape
    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    collect: tuple[str, ...]
    seed: int


@dataclass
class _Stage:
    task: StageTask
    engine: StageEngine
    optimizer: torch.optim.Optimizer | None
    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    actions: list[list[Action]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    times: list[tuple[float, float, float]] = field(default_factory=list)
    spans: list[list[tuple[float, float]]] = field(default_factory=list)
    cpu: list[list[float | None]] = field(default_factory=list)
    outputs: torch.Tensor | None = None


def set_up(context: Context, name: str, task: StageTask) -> None:
    """Build the stage of the plan `name` and keep it on the rank."""
    context.mark(Phase.PREPARING, stage=context.rank)
    device = torch.device(context.device)
    module = torch.nn.Sequential(*task.modules).to(device)
    module.zero_grad(set_to_none=True)
    engine = StageEngine(
        module,
        context,
        clock_for(context.device),
        schedule=task.schedule,
        microbatches=task.microbatches,
        loss_fn=task.loss_fn,
        received=task.received,
        sent=task.sent,
    )
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = task.optimizer(trained) if task.optimizer is not None and trained else None
    inputs = tuple(one.to(device) for one in task.inputs)
    targets = tuple(one.to(device) for one in task.targets)
    context.store[name] = _Stage(task, engine, optimizer, inputs, targets)


def take_steps(context: Context, names: list[str], steps: int) -> None:
    """Run the steps of all plans in turn, in the opposite order at every other step."""
    for step in range(steps):
        for name in names if step % 2 == 0 else names[::-1]:
            stage: _Stage = context.store[name]
            _one_step(context, stage, step, outputs="outputs" in stage.task.collect and step == steps - 1)


def _one_step(context: Context, stage: _Stage, step: int, *, outputs: bool) -> None:
    engine, clock = stage.engine, stage.engine.recorder.clock
    inputs, targets = _batch(stage, step)
    if engine.training:
        # Zeroed in place: a run accumulates into gradients that are there, as the profile does.
        engine.module.zero_grad(set_to_none=False)
    # Neither other plans that take turns nor what ran before on these ranks changes what is drawn.
    torch.manual_seed(stage.task.seed + context.rank + step * context.world_size)
    clock.settle()
    context.barrier()
    if isinstance(clock, CudaClock):
        clock.anchor()
    start = clock.stamp()
    losses, result = engine.step(step, inputs, targets, outputs=outputs)
    end = clock.stamp()
    if stage.optimizer is not None:
        context.mark(Phase.OPTIMIZING, stage=context.rank, step=step)
        stage.optimizer.step()
    finish = clock.stamp()
    clock.settle()
    context.mark(Phase.WAITING, stage=context.rank, step=step)
    if any(not np.isfinite(loss) for loss in losses):
        raise ExecutionError(f"the loss of step {step} is not finite: {losses}")
    stage.times.append((clock.seconds(start), clock.seconds(end), clock.seconds(finish)))
    stage.actions.append(engine.recorder.actions)
    stage.spans.append([_span(action, clock) for action in engine.recorder.actions])
    stage.cpu.append([clock.cpu_seconds(action.start, action.end) for action in engine.recorder.actions])
    stage.losses.append(losses)
    if outputs and result is not None:
        stage.outputs = result.detach().cpu()


def _batch(stage: _Stage, step: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    inputs, targets = stage.inputs, stage.targets
    return (inputs[step % len(inputs)] if inputs else None, targets[step % len(targets)] if targets else None)


def _span(action: Action, clock: Clock) -> tuple[float, float]:
    return clock.seconds(action.start), clock.seconds(action.end)


def finish(context: Context, name: str) -> tuple[RankRecord, dict[str, Any]]:
    """Return the rank's record of the plan `name` and what was to be collected, and forget the stage."""
    stage: _Stage = context.store.pop(name)
    collected = _collected(stage)
    memory = _memory(context, stage)
    first = stage.actions[0]
    times, spans = np.array(stage.times), np.array(stage.spans)
    known = all(cell is not None for row in stage.cpu for cell in row)
    record = RankRecord(
        rank=context.rank,
        device=context.device,
        start=times[:, 0],
        end=times[:, 1],
        finish=times[:, 2],
        kind=np.array([action.kind for action in first], dtype=np.int64),
        microbatch=np.array([action.microbatch for action in first], dtype=np.int64),
        action_start=spans[:, :, 0],
        action_end=spans[:, :, 1],
        losses=np.array(stage.losses, dtype=np.float64),
        memory_bytes=memory,
        resident_bytes=float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT),
        action_cpu=np.array(stage.cpu, dtype=np.float64) if known else None,
    )
    return record, collected


def _collected(stage: _Stage) -> dict[str, Any]:
    wanted = stage.task.collect
    result: dict[str, Any] = {}
    named = [
        (f"{name}.{inner}", parameter)
        for name, module in zip(stage.task.names, stage.engine.module, strict=True)
        for inner, parameter in module.named_parameters()
    ]
    if "gradients" in wanted:
        result["gradients"] = {key: p.grad.detach().cpu().clone() for key, p in named if p.grad is not None}
    if "parameters" in wanted:
        result["parameters"] = {key: p.detach().cpu().clone() for key, p in named}
    if "outputs" in wanted and stage.outputs is not None:
        result["outputs"] = stage.outputs
    return result


def _memory(context: Context, stage: _Stage) -> dict[str, float]:
    """Run one more step, not timed, and count what is held: torch on CPU keeps no account of its memory."""
    engine = stage.engine
    buffers = engine.stage.receive_buffers()
    module = engine.module
    parts = {
        "parameters": float(bytes_of(held_tensors(module))),
        "gradients": float(bytes_of([p.grad for p in module.parameters() if p.grad is not None])),
        "optimizer": float(_optimizer_bytes(stage.optimizer)),
        "receive_buffers": float(bytes_of(buffers)),
    }
    cuda = context.device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        others = torch.cuda.memory_allocated() - sum(parts.values())
    tracker = MemoryTracker([*held_tensors(module), *buffers, *stage.inputs, *stage.targets])
    engine.recorder.tracker = tracker
    inputs, targets = _batch(stage, 0)
    context.barrier()
    engine.step(len(stage.times), inputs, targets)
    engine.recorder.tracker = None
    parts["activations"] = float(tracker.peak_bytes) if engine.training else 0.0
    parts["peak"] = sum(parts.values())
    if cuda:
        torch.cuda.synchronize()
        parts["peak"] = float(torch.cuda.max_memory_allocated()) - others
    parts["in_flight"] = float(tracker.peak_in_flight) if engine.training else 1.0
    return parts


def _optimizer_bytes(optimizer: torch.optim.Optimizer | None) -> int:
    if optimizer is None:
        return 0
    cells = [cell for state in optimizer.state.values() for cell in state.values()]
    return bytes_of([cell for cell in cells if isinstance(cell, torch.Tensor)])
