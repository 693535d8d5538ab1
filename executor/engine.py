"""Executor room: the only module that touches torch.distributed.pipelining, whose interface is still alpha.

It builds one manual `PipelineStage` per rank with static shapes (so that torch runs no inference step of its own), the
schedule around it, and records when each action starts and ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from balance.executor.activations import SavedBytes
from balance.executor.clocks import Clock, Stamp
from balance.executor.modules import Loss, TensorShape
from balance.executor.rank import Context
from balance.executor.status import Phase
from balance.problems.model.errors import ExecutionError

# What the gradients, losses and spans were compared with a single process on; widen after running tests/executor.
TESTED_TORCH = ((2, 13), (2, 14))
SCHEDULES = ("gpipe", "1f1b", "forward-only")

FORWARD, BACKWARD = 0, 1


def check_version(version: str = torch.__version__) -> None:
    """Refuse a torch whose pipelining this engine was not tested with.

    Raises
    ------
    ExecutionError
        It names the installed and the tested versions.
    """
    parts = version.split("+")[0].split(".")
    found = (int(parts[0]), int(parts[1]))
    low, high = TESTED_TORCH
    if not low <= found < high:
        raise ExecutionError(
            f"torch {version} is installed; running plans is tested with torch >= {low[0]}.{low[1]}, "
            f"< {high[0]}.{high[1]}, since torch.distributed.pipelining changes between releases; install one of them",
            installed=version,
        )


@dataclass
class Action:
    """One recorded action.

    Parameters
    ----------
    kind
        FORWARD or BACKWARD.
    microbatch
        Its micro-batch.
    start, end
        Stamps of the clock.
    """

    kind: int
    microbatch: int
    start: Stamp
    end: Stamp


class MemoryTracker:
    """Counts what a stage holds during one step: the activations of micro-batches in flight.

    Parameters
    ----------
    held
        Tensors that do not count as activations: parameters, buffers, the batch and the receive buffers.
    """

    def __init__(self, held: Sequence[torch.Tensor]) -> None:
        self._held = list(held)
        self._live: dict[int, dict[int, torch.UntypedStorage]] = {}
        self.peak_bytes = 0
        self.peak_in_flight = 0

    def saving(self) -> SavedBytes:
        """Return a context manager that collects what autograd saves."""
        return SavedBytes(self._held)

    def add(self, microbatch: int, saved: SavedBytes, output: object = None) -> None:
        """Note that a micro-batch keeps these storages, and its output, until its backward pass."""
        live = self._live.setdefault(microbatch, {})
        live.update(saved.storages)
        if isinstance(output, torch.Tensor):
            storage = output.untyped_storage()
            live[storage.data_ptr()] = storage
        together = {address: storage for kept in self._live.values() for address, storage in kept.items()}
        self.peak_bytes = max(self.peak_bytes, sum(storage.nbytes() for storage in together.values()))
        self.peak_in_flight = max(self.peak_in_flight, len(self._live))

    def remove(self, microbatch: int) -> None:
        """Note that a micro-batch has let go of them."""
        self._live.pop(microbatch, None)


class Recorder:
    """Actions of the current step, and what they tell the watchdog.

    Parameters
    ----------
    context
        The rank.
    clock
        The clock of its device.
    stage
        Stage number.
    """

    def __init__(self, context: Context, clock: Clock, stage: int) -> None:
        self.context = context
        self.clock = clock
        self.stage = stage
        self.step: int | None = None
        self.actions: list[Action] = []
        self.tracker: MemoryTracker | None = None

    def begin_step(self, step: int) -> None:
        """Forget the last step."""
        self.step = step
        self.actions = []
        self.context.mark(Phase.WAITING, stage=self.stage, step=step)

    def begin(self, kind: int, microbatch: int) -> None:
        """Note the start of an action."""
        self.context.mark(Phase.COMPUTING, stage=self.stage, kind=kind, microbatch=microbatch, step=self.step)
        now = self.clock.stamp()
        self.actions.append(Action(kind, microbatch, now, now))

    def end(self) -> None:
        """Note the end of the latest action; called again, it moves that end (a loss belongs to its forward)."""
        action = self.actions[-1]
        action.end = self.clock.stamp()
        self.context.mark(
            Phase.WAITING, stage=self.stage, kind=action.kind, microbatch=action.microbatch, step=self.step
        )


class _RecordedStage(PipelineStage):
    """A manual stage that reports every action."""

    recorder: Recorder

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run one forward action."""
        tracker = self.recorder.tracker
        self.recorder.begin(FORWARD, fwd_chunk_id)
        if tracker is None:
            output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        else:
            with tracker.saving() as saved:
                output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
            tracker.add(fwd_chunk_id, saved, output)
        self.recorder.end()
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """Run one backward action."""
        if not self.has_backward:  # forward-only runs pass here too
            return
        self.recorder.begin(BACKWARD, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self.recorder.end()
        if self.recorder.tracker is not None:
            self.recorder.tracker.remove(bwd_chunk_id)

    def receive_buffers(self) -> list[torch.Tensor]:
        """Return the buffers that torch keeps for incoming activations and gradients, one per micro-batch."""
        rows = [*self.args_recv_info.values(), *self.grad_recv_info.values()]
        return [info.buffer for row in rows for info in row if info.buffer is not None]


class _Contiguous(torch.nn.Module):
    """End of a stage: the process group sends contiguous tensors only, and a module may return a transposed view."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the tensor itself if it is contiguous, else a copy that is."""
        return value.contiguous()


class StageEngine:
    """One rank's stage and schedule.

    Parameters
    ----------
    module
        The stage's part of the model, on its device.
    context
        The rank; its number is the stage's number.
    clock
        Clock of the device.
    schedule
        One of ``SCHEDULES``.
    microbatches
        Micro-batches per step.
    loss_fn
        Mean loss of one micro-batch; None in forward-only runs.
    received, sent
        Kinds of the stage's input and output tensor.
    """

    def __init__(
        self,
        module: torch.nn.Sequential,
        context: Context,
        clock: Clock,
        *,
        schedule: str,
        microbatches: int,
        loss_fn: Loss | None,
        received: TensorShape,
        sent: TensorShape,
    ) -> None:
        check_version()
        device = torch.device(context.device)
        self.module = module
        self.training = loss_fn is not None
        self.microbatches = microbatches
        self.recorder = Recorder(context, clock, context.rank)
        last = context.rank == context.world_size - 1
        self.stage = _RecordedStage(
            module if last else torch.nn.Sequential(module, _Contiguous()),
            context.rank,
            context.world_size,
            device,
            input_args=(received.example(device),),
            output_args=(sent.example(device),),
        )
        self.stage.recorder = self.recorder
        self._loss_fn = loss_fn
        kind = Schedule1F1B if schedule == "1f1b" else ScheduleGPipe  # without a loss, GPipe is forward-only
        self.schedule = kind(self.stage, microbatches, loss_fn=self._loss if self.training else None)

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        assert self._loss_fn is not None  # only given to the schedule when there is one
        tracker = self.recorder.tracker
        if tracker is None:
            loss = self._loss_fn(output, target)
        else:
            with tracker.saving() as saved:
                loss = self._loss_fn(output, target)
            tracker.add(self.recorder.actions[-1].microbatch, saved)
        self.recorder.end()
        return loss

    def step(
        self, step: int, inputs: torch.Tensor | None, target: torch.Tensor | None, *, outputs: bool = False
    ) -> tuple[list[float], torch.Tensor | None]:
        """Run one step.

        Parameters
        ----------
        step
            Its number, for the watchdog.
        inputs
            The whole batch on the first stage, None elsewhere.
        target
            The whole target on the last stage of a training run, None elsewhere.
        outputs
            Whether the last stage keeps and joins its outputs.

        Returns
        -------
        losses
            Loss of each micro-batch on the last stage, empty elsewhere.
        outputs
            The joined outputs on the last stage if asked for.
        """
        self.recorder.begin_step(step)
        arguments = (inputs,) if self.stage.is_first else ()
        if not self.training:
            with torch.no_grad():
                result = self.schedule.step(*arguments, return_outputs=outputs)
            return [], result
        if not self.stage.is_last:
            self.schedule.step(*arguments, return_outputs=False)
            return [], None
        losses: list[torch.Tensor] = []
        result = self.schedule.step(*arguments, target=target, losses=losses, return_outputs=outputs)
        return [float(loss.detach()) for loss in losses], result


def backward_input(
    output: torch.Tensor,
    gradient: torch.Tensor | None,
    received: torch.Tensor,
    weights: Sequence[torch.nn.Parameter],
) -> tuple[torch.Tensor | None, Any]:
    """Run the input-gradient part as the runtime splits it; returns the gradient and what the weight part needs."""
    from torch.distributed.pipelining._backward import stage_backward_input

    gradients, groups = stage_backward_input(
        [output], None if gradient is None else [gradient], [received], _each(weights)
    )
    return gradients[0], groups


def backward_weight(weights: Sequence[torch.nn.Parameter], groups: Any) -> None:
    """Run the weight-gradient part that `backward_input` left."""
    from torch.distributed.pipelining._backward import stage_backward_weight

    stage_backward_weight(_each(weights), groups)


def _each(weights: Sequence[torch.nn.Parameter]) -> Iterator[torch.nn.Parameter]:
    return iter(weights)
