"""Executor room: profile a chain of modules into a cost graph that a plan can be solved on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from balance.executor.activations import activation_bytes
from balance.executor.clocks import clock_for
from balance.executor.launch import Ranks, device_index, device_kind, device_names
from balance.executor.modules import (
    Loss,
    Model,
    TensorShape,
    as_modules,
    boundaries,
    bytes_of,
    check_loss,
    first_owners,
    module_names,
    shared_parameters,
)
from balance.executor.passes import MakeOptimizer, Mark, PassOptions, Samples, time_chain
from balance.executor.pressure import Pressure
from balance.executor.rank import Context
from balance.executor.sending import check_sendable, compact
from balance.executor.status import Phase
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import FloatArray


@dataclass(frozen=True)
class _Task:
    """What one process measures: all modules, or those of one stage."""

    modules: list[torch.nn.Module]
    batch: torch.Tensor
    target: torch.Tensor | None
    loss_fn: Loss | None
    optimizer: MakeOptimizer | None
    options: PassOptions


def profile(
    model: Model,
    example_batch: torch.Tensor,
    *,
    target: torch.Tensor | None = None,
    loss_fn: Loss | None = None,
    device: str = "cpu",
    training: bool = True,
    repeats: int = 20,
    warmup: int = 4,
    in_flight: int | None = None,
    split_backward: bool = False,
    optimizer: MakeOptimizer | None = None,
    cuts: Sequence[int] | None = None,
    processes: int | None = None,
    ranks: Ranks | None = None,
    threads: int = 1,
    pin: bool = False,
    timeout: float = 60.0,
    name: str = "",
) -> CostGraph:
    """Measure a chain of modules and return its cost graph.

    The model itself is left as it was: copies are measured, in the mode (``train()`` or ``eval()``) that it is in.

    Parameters
    ----------
    model
        An `nn.Sequential` or a list of modules, each taking and returning one tensor.
    example_batch
        One micro-batch of input, the samples along the first dimension.
    target, loss_fn
        The micro-batch's target and the mean loss ``loss_fn(output, target)``; the loss is part of the last module.
        Without them the backward pass starts from a gradient of ones.
    device
        ``"cpu"`` or ``"cuda"``; in this process ``"cuda:k"`` picks one.
    training
        Forward and backward (a layer graph), or forward only (an inference graph).
    repeats, warmup
        Counted and uncounted repetitions; each runs every module once.
    in_flight
        Micro-batches held between forward and backward, as the pipeline will hold them. By default 2, and with `cuts`
        what 1F1B holds: on stage s of p stages p - s.
    split_backward
        Also time the backward pass as the input and weight parts of torch's zero-bubble schedules.
    optimizer
        Builds an optimizer from a list of parameters, such as ``partial(torch.optim.AdamW, lr=1e-3)``; its time per
        module goes into ``source["optimizer_seconds"]``.
    cuts
        Module boundaries ``0 = q_0 < q_1 < ... < q_p = n`` of p stages: profile in p processes at once, each only the
        modules of its stage, as a run holds them. The best ground to predict that very plan from, and the only one for
        a model that does not fit one device. The boundary tensors come from one pass on CPU.
    processes
        Profile in this many processes at once, each the whole model: to predict runs of k processes before there is a
        plan, profile with ``processes=k``, since ranks slow each other down. None: in this process, or as `cuts` say.
    ranks
        Processes that are already there, instead of new ones; their device, threads and cores then count.
    threads, pin, timeout
        As in `Ranks`.
    name
        Name of the graph.

    Returns
    -------
    CostGraph
        One operator per module, named by index and type; kind ``"cpu"`` or ``"cuda"``; one tensor per boundary; times
        are medians over the repetitions of all processes, scaled by one factor per kind of action so that they add up
        to what a whole repetition typically takes. Spread, factors and conditions are in ``source``.

    Raises
    ------
    GraphError
        If the model is not such a chain or a module fails; it names the module.
    OptionError
        If an option is out of range, or the loss does not fit the model's output.
    ExecutionError
        If the model cannot be sent to the profiling processes, or one of them fails or hangs.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> graph = profile(model, torch.zeros(4, 8), repeats=3, warmup=1)
    >>> graph.names, graph.kinds, graph.parameter_bytes[0].tolist()
    (('0:Linear', '1:ReLU'), ('cpu',), [288.0, 0.0])
    """
    modules = as_modules(model)
    _check(repeats, warmup, in_flight, threads, example_batch, target, loss_fn, training)
    stages = _stages(cuts, len(modules))
    here = ranks is None and processes is None and cuts is None
    kind, index = ranks.kind if ranks is not None else "", None
    if ranks is None:
        kind, index = device_kind(device), device_index(device)
        if index is not None and not here:
            raise OptionError(f"device {device!r} picks one device for this process; for several give {kind!r}")
    count = None if here else ranks.world_size if ranks is not None else len(stages) if processes is None else processes
    if cuts is not None and count != len(stages):
        raise OptionError(f"cuts of {len(stages)} stages are profiled in as many processes, got {count}")
    shapes, kept_values = boundaries(modules, compact(example_batch).detach(), training, [first for first, _ in stages])
    if loss_fn is not None and target is not None:
        check_loss(loss_fn, shapes[-1], target, training)
    tasks = [
        _Task(
            modules[first:end],
            compact(kept_values[first]),
            None if target is None or end < len(modules) else compact(target),
            loss_fn if end == len(modules) else None,
            optimizer if training else None,
            PassOptions(
                training,
                repeats,
                warmup,
                in_flight if in_flight is not None else 2 if cuts is None else len(stages) - s,
                split_backward,
            ),
        )
        for s, (first, end) in enumerate(stages)
    ]
    rows = [(task,) for task in (tasks if cuts is not None else tasks * (count if count is not None else 1))]
    with Pressure() as pressure:
        if here:
            with _threads(threads):
                chosen = device_names(kind, 1, None if index is None else [index])[0]
                measured = [_measure(tasks[0], chosen, lambda module: None, lambda: None)]
        else:
            check_sendable(modules, loss_fn, optimizer)
            with (
                nullcontext(ranks)
                if ranks is not None
                else Ranks(len(rows), device=kind, threads=threads, pin=pin, timeout=timeout) as running
            ):
                measured = running.call(_profile_rank, rows)
    source: dict[str, Any] = {
        "profile": {
            "torch": torch.__version__,
            "device": kind,
            "processes": count,
            "threads": threads if ranks is None else ranks.threads,
            "repeats": repeats,
            "warmup": warmup,
            "in_flight": [task.options.in_flight for task in tasks],
            "cuts": None if cuts is None else [0, *(end for _, end in stages)],
            "training": training,
            "microbatch_size": int(example_batch.shape[0]),
            "statistic": "median, scaled so that the chain's total is its trimmed mean",
            "machine": pressure.to_json(),
            "on_cpu": on_cpu([samples for samples, _ in measured]),
        },
        "output_bytes": [shape.bytes for shape in shapes[1:]],
    }
    groups = [measured] if cuts is None else [[one] for one in measured]
    kept = [cell for group in groups for cell in group[0][1]]
    samples = [[samples for samples, _ in group] for group in groups]
    return _graph(modules, samples, shapes, kept, kind, training, source, int(example_batch.shape[0]), name)


def on_cpu(samples: Sequence[Samples]) -> float | None:
    """Return the share of the timed seconds in which the timing threads ran on a CPU; None on accelerators."""
    if any(one.cpu_seconds is None for one in samples):
        return None
    timed = sum(one.timed_seconds for one in samples)
    return sum(one.cpu_seconds or 0.0 for one in samples) / timed if timed > 0 else None


def _stages(cuts: Sequence[int] | None, modules: int) -> list[tuple[int, int]]:
    if cuts is None:
        return [(0, modules)]
    bounds = [int(cut) for cut in cuts]
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != modules or any(a >= b for a, b in pairwise(bounds)):
        raise OptionError(f"cuts rise from 0 to the number of modules, {modules}, got {bounds}")
    return list(pairwise(bounds))


def _graph(
    modules: list[torch.nn.Module],
    groups: list[list[Samples]],
    shapes: list[TensorShape],
    kept: list[int],
    kind: str,
    training: bool,
    source: dict[str, Any],
    microbatch_size: int,
    name: str,
) -> CostGraph:
    """Build the graph; `groups` holds the samples of each stage (or of the chain), from all its processes."""
    spread: dict[str, Any] = {}

    def typical(field: str) -> FloatArray | None:
        parts = [[getattr(one, field) for one in group] for group in groups]
        if any(part is None for group in parts for part in group):
            return None
        seconds, spread[field] = pooled(parts)
        return seconds

    forward, backward = typical("forward"), typical("backward")
    first, second, steps = typical("backward_input"), typical("backward_weight"), typical("optimizer")
    assert forward is not None  # every pass times its forward
    if backward is None and first is not None and second is not None:
        backward = first + second
    source["spread_seconds"] = spread
    if steps is not None:
        source["optimizer_seconds"] = steps.tolist()
    owned = first_owners(modules)
    trained = [bytes_of([p for p in parameters if p.requires_grad]) for parameters in owned]
    frozen = [bytes_of([p for p in parameters if not p.requires_grad]) for parameters in owned]
    buffers = [bytes_of(list(module.buffers())) for module in modules]
    inner = shapes[1:-1]
    table = {}
    if first is not None and second is not None:
        table = {"backward_input": first[None], "backward_weight": second[None]}
    labels = shared_parameters(modules)
    return CostGraph.chain(
        forward[None],
        bytes=np.array([shape.bytes for shape in inner], dtype=np.float64),
        gradient_bytes=np.array([shape.bytes if shape.requires_grad else 0 for shape in inner], dtype=np.float64),
        backward=0.0 if backward is None else backward[None],
        parameter_bytes=np.array(trained, dtype=np.float64),
        static_bytes=np.add(frozen, buffers, dtype=np.float64),
        activation_bytes=np.array(kept, dtype=np.float64),
        sync_bytes=np.array(trained if training else [0] * len(modules), dtype=np.float64),
        kinds=(kind,),
        configurations=(Configuration(microbatch_size=float(microbatch_size)),),
        names=module_names(modules),
        colocation=labels if any(label >= 0 for label in labels) else None,
        name=name,
        source=source,
        **table,
    )


def pooled(groups: Sequence[Sequence[FloatArray]]) -> tuple[FloatArray, dict[str, Any]]:
    """Return typical seconds of each module, shape (n,), and their spread.

    Parameters
    ----------
    groups
        For each run of modules the samples of the processes that timed it, each (repeats, modules of the run).
    """
    seconds, columns, scales = [], [], []
    for parts in groups:
        cells = np.concatenate(parts)
        middle = np.median(cells, axis=0)
        scale = typical_total(cells) / middle.sum() if middle.sum() > 0 else 1.0
        seconds.append(middle * scale)
        scales.append(float(scale))
        columns.append([*np.percentile(cells, [25, 50, 75], axis=0), cells.mean(axis=0), cells.min(axis=0)])
    names = ("quartile_1", "median", "quartile_3", "mean", "minimum")
    spread = {name: np.concatenate([row[k] for row in columns]).tolist() for k, name in enumerate(names)}
    each = [np.median(part, axis=0).tolist() for parts in groups for part in parts]
    return np.concatenate(seconds), {"scale": scales, **spread, "per_process": each}


def typical_total(seconds: FloatArray) -> float:
    """Return the mean over repetitions of the chain's total, without the lowest and highest tenth of them.

    Where other programs take a core away now and then, most short modules are spared in most repetitions: the sum of
    medians then leaves out time that every whole repetition, like every step of a run, does pay.

    Parameters
    ----------
    seconds
        Shape (repeats, n).
    """
    totals = np.sort(seconds.sum(axis=1))
    cut = len(totals) // 10
    return float(totals[cut : len(totals) - cut].mean())


def _check(
    repeats: int,
    warmup: int,
    in_flight: int | None,
    threads: int,
    batch: torch.Tensor,
    target: torch.Tensor | None,
    loss_fn: Loss | None,
    training: bool,
) -> None:
    if repeats < 1 or warmup < 0 or (in_flight is not None and in_flight < 1) or threads < 1:
        raise OptionError(
            f"repeats, in_flight and threads are at least 1 and warmup at least 0, got {repeats}, {in_flight}, "
            f"{threads} and {warmup}"
        )
    if not isinstance(batch, torch.Tensor) or batch.dim() < 1 or batch.shape[0] < 1:
        raise OptionError("example_batch must be a tensor with at least one sample along its first dimension")
    if training and (target is None) != (loss_fn is None):
        raise OptionError("give target= and loss_fn= together, or neither")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(task: _Task, device: str, mark: Mark, together: Callable[[], None]) -> tuple[Samples, list[int]]:
    """Return the times and the bytes kept for the backward pass; both depend on the device's kernels."""
    where = torch.device(device)
    modules = [module.to(where) for module in copy.deepcopy(task.modules)]
    batch = task.batch.detach().to(where).requires_grad_(task.batch.requires_grad)
    target = None if task.target is None else task.target.to(where)
    kept = [0] * len(modules)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []), torch.enable_grad():
        if task.options.training:
            kept = activation_bytes(modules, batch, target, task.loss_fn)
        clock = clock_for(device)
        samples = time_chain(modules, batch, target, task.loss_fn, task.optimizer, task.options, clock, mark, together)
    return samples, kept


def _profile_rank(context: Context, task: _Task) -> tuple[Samples, list[int]]:
    context.mark(Phase.PREPARING)
    context.barrier()

    def together() -> None:
        # On an accelerator a rank slows no other one down, and waiting would empty its queue.
        if context.device == "cpu":
            context.mark(Phase.WAITING)
            context.barrier()

    return _measure(task, context.device, lambda module: context.mark(Phase.PROFILING, stage=module), together)
