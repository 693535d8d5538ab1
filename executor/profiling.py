"""Executor room: profile a chain of modules into a cost graph that a plan can be solved on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from balance.executor.activations import Loss, activation_bytes
from balance.executor.clocks import clock_for
from balance.executor.launch import Ranks, device_kind, device_names
from balance.executor.modules import (
    Model,
    as_modules,
    boundary_shapes,
    bytes_of,
    module_names,
    shared_parameters,
)
from balance.executor.passes import MakeOptimizer, Mark, PassOptions, Samples, time_chain
from balance.executor.pressure import Pressure
from balance.executor.rank import Context
from balance.executor.status import Phase
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import FloatArray


@dataclass(frozen=True)
class _Task:
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
    in_flight: int = 2,
    split_backward: bool = False,
    optimizer: MakeOptimizer | None = None,
    processes: int | None = None,
    ranks: Ranks | None = None,
    threads: int = 1,
    pin: bool = False,
    timeout: float = 60.0,
    name: str = "",
) -> CostGraph:
    """Measure a chain of modules and return its cost graph.

    The model itself is left as it was: copies are measured.

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
        ``"cpu"`` or ``"cuda"`` (``"cuda:k"`` picks one).
    training
        Forward and backward (a layer graph), or forward only (an inference graph).
    repeats, warmup
        Counted and uncounted repetitions; each runs every module once.
    in_flight
        Micro-batches held between forward and backward, as the pipeline will hold them.
    split_backward
        Also time the backward pass as the input and weight parts of torch's zero-bubble schedules.
    optimizer
        Builds an optimizer from a list of parameters, such as ``partial(torch.optim.AdamW, lr=1e-3)``; its time per
        module goes into ``source["optimizer_seconds"]``.
    processes
        Profile in this many processes at once, each the whole model: to predict a run of k processes, profile with
        ``processes=k``, since ranks slow each other down. None: in this process.
    ranks
        Processes that are already there, instead of `processes`; their device, threads and cores then count.
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
        If an option is out of range.
    ExecutionError
        If a profiling process fails or hangs.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> graph = profile(model, torch.zeros(4, 8), repeats=3, warmup=1)
    >>> graph.names, graph.kinds, graph.parameter_bytes[0].tolist()
    (('0:Linear', '1:ReLU'), ('cpu',), [288.0, 0.0])
    """
    modules = as_modules(model)
    _check(repeats, warmup, in_flight, example_batch, target, loss_fn, training)
    kind = device_kind(device) if ranks is None else ranks.kind
    shapes = boundary_shapes(modules, example_batch, training)
    options = PassOptions(training, repeats, warmup, in_flight, split_backward)
    task = _Task(modules, example_batch, target, loss_fn, optimizer if training else None, options)
    with Pressure() as pressure:
        if ranks is not None:
            measured = ranks.call(_profile_rank, [(task,)] * ranks.world_size)
        elif processes is not None:
            with Ranks(processes, device=kind, threads=threads, pin=pin, timeout=timeout) as own:
                measured = own.call(_profile_rank, [(task,)] * processes)
        else:
            wanted = [int(device.split(":")[1])] if ":" in device and kind == "cuda" else None
            with _threads(threads):
                measured = [_measure(task, device_names(kind, 1, wanted)[0], lambda module: None)]
    count = ranks.world_size if ranks is not None else processes
    source: dict[str, Any] = {
        "profile": {
            "torch": torch.__version__,
            "device": kind,
            "processes": count,
            "threads": threads if ranks is None else ranks.threads,
            "repeats": repeats,
            "warmup": warmup,
            "in_flight": in_flight,
            "training": training,
            "microbatch_size": int(example_batch.shape[0]),
            "statistic": "median, scaled so that the chain's total is its trimmed mean",
            "machine": pressure.to_json(),
        },
        "output_bytes": [shape.bytes for shape in shapes[1:]],
    }
    samples, kept = [one for one, _ in measured], measured[0][1]
    return _graph(modules, samples, shapes, kept, kind, options, source, int(example_batch.shape[0]), name)


def _graph(
    modules: list[torch.nn.Module],
    samples: list[Samples],
    shapes: list[Any],
    kept: list[int],
    kind: str,
    options: PassOptions,
    source: dict[str, Any],
    microbatch_size: int,
    name: str,
) -> CostGraph:
    spread: dict[str, Any] = {}

    def median(field: str) -> FloatArray | None:
        parts = [getattr(one, field) for one in samples]
        if any(part is None for part in parts):
            return None
        pooled = np.concatenate(parts)
        low, middle, high = np.percentile(pooled, [25, 50, 75], axis=0)
        scale = typical_total(pooled) / middle.sum() if middle.sum() > 0 else 1.0
        spread[field] = {
            "scale": float(scale),
            "median": middle.tolist(),
            "quartile_1": low.tolist(),
            "quartile_3": high.tolist(),
            "mean": pooled.mean(axis=0).tolist(),
            "minimum": pooled.min(axis=0).tolist(),
            "per_process": [np.median(part, axis=0).tolist() for part in parts],
        }
        return np.asarray(middle * scale, dtype=np.float64)

    forward, backward = median("forward"), median("backward")
    first, second, steps = median("backward_input"), median("backward_weight"), median("optimizer")
    assert forward is not None  # every pass times its forward
    if backward is None and first is not None and second is not None:
        backward = first + second
    source["spread_seconds"] = spread
    if steps is not None:
        source["optimizer_seconds"] = steps.tolist()
    trained = [bytes_of([p for p in module.parameters() if p.requires_grad]) for module in modules]
    frozen = [bytes_of([p for p in module.parameters() if not p.requires_grad]) for module in modules]
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
        sync_bytes=np.array(trained if options.training else [0] * len(modules), dtype=np.float64),
        kinds=(kind,),
        configurations=(Configuration(microbatch_size=float(microbatch_size)),),
        names=module_names(modules),
        colocation=labels if any(label >= 0 for label in labels) else None,
        name=name,
        source=source,
        **table,
    )


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
    in_flight: int,
    batch: torch.Tensor,
    target: torch.Tensor | None,
    loss_fn: Loss | None,
    training: bool,
) -> None:
    if repeats < 1 or warmup < 0 or in_flight < 1:
        raise OptionError(
            f"repeats and in_flight are at least 1 and warmup at least 0, got {repeats}, {in_flight} and {warmup}"
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


def _measure(task: _Task, device: str, mark: Mark) -> tuple[Samples, list[int]]:
    """Return the times and the bytes kept for the backward pass; both depend on the device's kernels."""
    where = torch.device(device)
    modules = [module.to(where) for module in copy.deepcopy(task.modules)]
    batch = task.batch.detach().to(where)
    target = None if task.target is None else task.target.to(where)
    kept = [0] * len(modules)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []), torch.enable_grad():
        if task.options.training:
            kept = activation_bytes(modules, batch, target, task.loss_fn)
        clock = clock_for(device)
        samples = time_chain(modules, batch, target, task.loss_fn, task.optimizer, task.options, clock, mark)
    return samples, kept


def _profile_rank(context: Context, task: _Task) -> tuple[Samples, list[int]]:
    context.mark(Phase.PREPARING)
    context.barrier()
    return _measure(task, context.device, lambda module: context.mark(Phase.PROFILING, stage=module))
