"""Executor room: time every module of a chain under the conditions of a pipeline run.

A repetition is one micro-batch through the whole chain. Several micro-batches stay in flight, gradients accumulate into
existing `.grad`, and forward and backward passes alternate as 1F1B alternates them, because a module that is timed on
its own, with warm caches and no live buffers, is up to a fifth faster than in a run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from balance.executor.clocks import Clock, Stamp
from balance.executor.engine import backward_input, backward_weight
from balance.executor.modules import Loss, checked_output, first_owners, module_names
from balance.problems.model.tensors import FloatArray

Mark = Callable[[int], None]
MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class PassOptions:
    """How a chain is timed.

    Parameters
    ----------
    training
        Forward and backward, or forward only.
    repeats, warmup
        Counted and uncounted repetitions.
    in_flight
        Micro-batches between their forward and their backward pass.
    split_backward
        Whether the backward pass runs as an input and a weight part.
    """

    training: bool
    repeats: int
    warmup: int
    in_flight: int
    split_backward: bool


@dataclass(frozen=True)
class Samples:
    """Measured seconds, each (repeats, n); what was not measured is None.

    Parameters
    ----------
    forward, backward, backward_input, backward_weight, optimizer
        Seconds of each repetition and module.
    timed_seconds, cpu_seconds
        Sum over all of them but the optimizer's, and for how much of it the thread ran on a CPU; None on accelerators.
    """

    forward: FloatArray
    backward: FloatArray | None = None
    backward_input: FloatArray | None = None
    backward_weight: FloatArray | None = None
    optimizer: FloatArray | None = None
    timed_seconds: float = 0.0
    cpu_seconds: float | None = None


@dataclass
class _Flight:
    inputs: list[torch.Tensor | None]
    outputs: list[torch.Tensor | None]
    repeat: int


Spans = list[tuple[Stamp, Stamp]]


class _Chain:
    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        batch: torch.Tensor,
        target: torch.Tensor | None,
        loss_fn: Loss | None,
        clock: Clock,
        mark: Mark,
    ) -> None:
        self.modules = modules
        self.names = module_names(modules)
        self.batch = batch
        self.target = target
        self.loss_fn = loss_fn
        self.clock = clock
        self.mark = mark
        self.weights = [[p for p in module.parameters() if p.requires_grad] for module in modules]

    def forward(self, repeat: int) -> tuple[_Flight, Spans]:
        flight = _Flight([], [], repeat)
        spans: Spans = []
        # What comes from another stage lies in a receive buffer of its own for each micro-batch.
        value = self.batch.detach().clone().requires_grad_() if self.batch.requires_grad else self.batch
        for i, module in enumerate(self.modules):
            self.mark(i)
            start = self.clock.stamp()
            output = checked_output(module(value), self.names[i])
            result = output
            if i == len(self.modules) - 1 and self.loss_fn is not None and self.target is not None:
                result = self.loss_fn(output, self.target)
            spans.append((start, self.clock.stamp()))
            flight.inputs.append(value)
            flight.outputs.append(result)
            value = output.detach().requires_grad_(output.requires_grad)
        return flight, spans

    def backward(self, flight: _Flight) -> Spans:
        spans: Spans = []
        gradient: torch.Tensor | None = None
        for i in reversed(range(len(self.modules))):
            self.mark(i)
            output, received = flight.outputs[i], flight.inputs[i]
            assert output is not None and received is not None  # each flight is run backward once
            gradient = self._start(output) if i == len(self.modules) - 1 else gradient
            start = self.clock.stamp()
            if _runs_backward(output, gradient):
                torch.autograd.backward(output, gradient)
            gradient, received.grad = received.grad, None
            # Letting go of the last tensors of the pass is part of its time, in a run as well.
            flight.outputs[i] = flight.inputs[i] = output = received = None
            spans.append((start, self.clock.stamp()))
        return spans[::-1]

    def split_backward(self, flight: _Flight) -> tuple[Spans, Spans]:
        inputs: Spans = []
        weights: Spans = []
        later: list[tuple[int, object | None, torch.Tensor, torch.Tensor | None]] = []
        gradient: torch.Tensor | None = None
        for i in reversed(range(len(self.modules))):
            self.mark(i)
            output, received = flight.outputs[i], flight.inputs[i]
            assert output is not None and received is not None  # each flight is run backward once
            gradient = self._start(output) if i == len(self.modules) - 1 else gradient
            start = end = self.clock.stamp()
            groups, outer = None, gradient
            # The runtime gives the first stage no input part: its weight part is the whole backward pass. So it is
            # with a module behind frozen ones, whose input needs no gradient either.
            if i > 0 and received.requires_grad and _runs_backward(output, gradient):
                gradient, groups = backward_input(output, gradient, received, self.weights[i])
                end = self.clock.stamp()
            inputs.append((start, end))
            later.append((i, groups, output, outer))
        for i, groups, output, outer in later:
            start = self.clock.stamp()
            if groups is not None:
                backward_weight(self.weights[i], groups)
            elif _runs_backward(output, outer):
                torch.autograd.backward(output, outer)
            weights.append((start, self.clock.stamp()))
        return inputs[::-1], weights[::-1]

    def _start(self, output: torch.Tensor) -> torch.Tensor | None:
        return None if output.dim() == 0 else torch.ones_like(output)


def _runs_backward(output: torch.Tensor, gradient: torch.Tensor | None) -> bool:
    """Whether a gradient goes through an output; none comes back from a module that does not use its input."""
    return output.requires_grad and (gradient is not None or output.dim() == 0)


def time_chain(
    modules: Sequence[torch.nn.Module],
    batch: torch.Tensor,
    target: torch.Tensor | None,
    loss_fn: Loss | None,
    optimizer: MakeOptimizer | None,
    options: PassOptions,
    clock: Clock,
    mark: Mark,
    together: Callable[[], None] = lambda: None,
) -> Samples:
    """Time the modules, all of them once per repetition.

    Parameters
    ----------
    modules
        On their device, in training or evaluation mode as they shall be timed; their gradients are changed, and with
        an optimizer their parameters.
    batch, target
        One micro-batch, on the same device. A batch that requires a gradient stands for what another stage sends.
    loss_fn
        Mean loss; belongs to the last module. None: the backward pass starts from ones.
    optimizer
        Builds the optimizer of one module, or None.
    options
        See `PassOptions`.
    clock
        Clock of the device.
    mark
        Called with the index of each module before it runs.
    together
        Called before each repetition; processes that are timed at once wait for each other here, as stages of a
        pipeline do.
    """
    chain = _Chain(modules, batch, target, loss_fn, clock, mark)
    total = options.warmup + options.repeats
    forward: list[Spans] = []
    backward: list[Spans] = []
    weight: list[Spans] = []
    if not options.training:
        with torch.no_grad():
            for repeat in range(total):
                together()
                forward.append(chain.forward(repeat)[1])
        clock.settle()
        kept = forward[options.warmup :]
        return Samples(_seconds(kept, clock), None, None, None, None, *_sums(kept, clock))
    for parameters in chain.weights:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    flights: deque[_Flight] = deque()
    for repeat in range(total):
        together()
        flight, spans = chain.forward(repeat)
        forward.append(spans)
        flights.append(flight)
        while len(flights) >= options.in_flight or (repeat == total - 1 and flights):
            oldest = flights.popleft()
            if options.split_backward:
                first, second = chain.split_backward(oldest)
                backward.append(first)
                weight.append(second)
            else:
                backward.append(chain.backward(oldest))
    clock.settle()
    keep = slice(options.warmup, None)
    steps = None if optimizer is None else _optimizer_seconds(chain, optimizer, options, clock, together)
    if options.split_backward:
        return Samples(
            _seconds(forward[keep], clock),
            None,
            _seconds(backward[keep], clock),
            _seconds(weight[keep], clock),
            steps,
            *_sums([*forward[keep], *backward[keep], *weight[keep]], clock),
        )
    sums = _sums([*forward[keep], *backward[keep]], clock)
    return Samples(_seconds(forward[keep], clock), _seconds(backward[keep], clock), None, None, steps, *sums)


def _optimizer_seconds(
    chain: _Chain, optimizer: MakeOptimizer, options: PassOptions, clock: Clock, together: Callable[[], None]
) -> FloatArray:
    # A parameter that several modules share is stepped once, as by the optimizer of a run.
    owned = [[p for p in parameters if p.requires_grad] for parameters in first_owners(chain.modules)]
    built = [optimizer(parameters) if parameters else None for parameters in owned]
    rows: list[Spans] = []
    for _ in range(options.warmup + options.repeats):
        row: Spans = []
        together()
        for i, one in enumerate(built):
            chain.mark(i)
            start = clock.stamp()
            if one is not None:
                one.step()
            row.append((start, clock.stamp()))
        rows.append(row)
    clock.settle()
    return _seconds(rows[options.warmup :], clock)


def _sums(rows: Sequence[Spans], clock: Clock) -> tuple[float, float | None]:
    """Return the seconds of all spans together, and how much of that the thread ran on a CPU."""
    spans = [span for row in rows for span in row]
    ran = [clock.cpu_seconds(start, end) for start, end in spans]
    known = [cell for cell in ran if cell is not None]
    total = sum(clock.seconds(end) - clock.seconds(start) for start, end in spans)
    return total, sum(known) if len(known) == len(spans) else None


def _seconds(rows: Sequence[Spans], clock: Clock) -> FloatArray:
    return np.array([[clock.seconds(end) - clock.seconds(start) for start, end in row] for row in rows])
