"""Executor room: run plans on torch.distributed and bring back what happened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from balance.executor.checks import Batches, Layout, gather_batches, lay_out
from balance.executor.jobs import StageTask, finish, set_up, take_steps
from balance.executor.launch import Ranks, device_kind, device_names
from balance.executor.modules import Loss, Model, as_modules
from balance.executor.passes import MakeOptimizer
from balance.executor.prediction import predicted_timeline
from balance.executor.pressure import Pressure
from balance.executor.report import RunReport
from balance.executor.sending import check_sendable
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import OptionError, PlanError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan

COLLECTIBLE = ("gradients", "parameters", "outputs")


def run(
    plan: Plan,
    model: Model,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    targets: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    loss_fn: Loss | None = None,
    optimizer: MakeOptimizer | None = None,
    steps: int = 12,
    training: bool = True,
    graph: CostGraph | None = None,
    cluster: Cluster | None = None,
    device: str = "cpu",
    threads: int = 1,
    pin: bool = False,
    timeout: float = 60.0,
    seed: int = 0,
    sends: str = "rendezvous",
    overhead: float = 0.0,
    state_factor: float | None = None,
    collect: Collection[str] = (),
    ranks: Ranks | None = None,
) -> RunReport:
    """Run a plan in one process per stage and report predicted against achieved.

    Call it from a script's ``if __name__ == "__main__":`` block: the ranks are spawned and import the script again.

    Parameters
    ----------
    plan
        Stages of consecutive modules, one per device; schedule ``"gpipe"``, ``"1f1b"`` or ``"forward-only"``. Stage s
        runs on rank s, on CUDA on the plan's device index.
    model
        An `nn.Sequential` or a list of modules. Each rank gets a copy of its part; the model itself is not changed.
        Its modules keep the mode (``train()`` or ``eval()``) they are in; batch norm sees one micro-batch at a time.
    inputs, targets
        A whole batch of ``microbatches x microbatch size`` samples, or a list of batches that the steps use in turn.
    loss_fn
        Mean loss ``loss_fn(output, target)`` of a micro-batch; needed in training. The step's gradient is that of the
        mean over the micro-batches.
    optimizer
        Builds an optimizer from a list of parameters, such as ``partial(torch.optim.AdamW, lr=1e-3)``; its step is part
        of the step time. None: gradients are computed and dropped.
    steps
        Steps to run, at least 2; the first is a warm-up and does not count, so 12 steps give 11 samples. Medians of
        fewer than 10 are a look, not a measurement.
    training
        Forward and backward, or forward only.
    graph, cluster
        Profile and links to predict with; without them the report has no prediction.
    device
        ``"cpu"`` (gloo) or ``"cuda"`` (nccl).
    threads, pin, timeout
        As in `Ranks`.
    seed
        What a step draws (dropout) depends on this, the step and the stage alone.
    sends, overhead
        As in `simulate`; gloo moves a message once its receiver asks for it, which is ``"rendezvous"``.
    state_factor
        Copies of the parameters that a stage holds: by default weights alone in inference, else weights, gradients and
        what the optimizer keeps.
    collect
        What to bring back in ``report.collected``: ``"gradients"`` and ``"parameters"`` after the last step (by name),
        ``"outputs"`` of the last step (forward-only runs).
    ranks
        Processes that are already there; their device, threads, cores and timeout then count.

    Returns
    -------
    RunReport
        See there.

    Raises
    ------
    PlanError, ScheduleError, OptionError, GraphError
        If plan, model and data do not fit; found before any process is started.
    ExecutionError
        If torch is not a tested version, or a rank fails, dies or makes no progress for `timeout` seconds; it carries
        rank, stage and action.
    """
    reports = run_plans(
        {"plan": plan},
        model,
        inputs,
        targets,
        loss_fn=loss_fn,
        optimizer=optimizer,
        steps=steps,
        training=training,
        graph=graph,
        cluster=cluster,
        device=device,
        threads=threads,
        pin=pin,
        timeout=timeout,
        seed=seed,
        sends=sends,
        overhead=overhead,
        state_factor=state_factor,
        collect=collect,
        ranks=ranks,
    )
    return reports["plan"]


def run_plans(
    plans: Mapping[str, Plan],
    model: Model,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    targets: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    loss_fn: Loss | None = None,
    optimizer: MakeOptimizer | None = None,
    steps: int = 12,
    training: bool = True,
    graph: CostGraph | Mapping[str, CostGraph] | None = None,
    cluster: Cluster | None = None,
    device: str = "cpu",
    threads: int = 1,
    pin: bool = False,
    timeout: float = 60.0,
    seed: int = 0,
    sends: str = "rendezvous",
    overhead: float = 0.0,
    state_factor: float | None = None,
    collect: Collection[str] = (),
    ranks: Ranks | None = None,
) -> dict[str, RunReport]:
    """Run several plans of one model in turn, step by step, in the same processes.

    A machine's speed drifts; plans that take turns are hit alike and can be compared. All plans need the same number of
    stages, on CUDA on the same devices. Parameters, result and errors are those of `run`, by name of the plan; `graph`
    may also be one graph per plan by name, such as profiles made with the plan's own ``cuts=``.
    """
    modules = as_modules(model)
    wanted = tuple(collect)
    for one in wanted:
        if one not in COLLECTIBLE:
            raise OptionError(f"cannot collect {one!r}{nearest(one, COLLECTIBLE)}")
    batches = gather_batches(inputs, targets)
    _check(plans, batches, loss_fn, steps, training, wanted)
    graphs = _graphs(plans, graph)
    layouts = {name: lay_out(plan, modules, batches, training, loss_fn, graphs[name]) for name, plan in plans.items()}
    world = next(iter(plans.values())).n_stages
    for name, plan in plans.items():
        if plan.n_stages != world or (ranks is not None and plan.n_stages != ranks.world_size):
            have = world if ranks is None else ranks.world_size
            raise PlanError(f"plan {name!r} has {plan.n_stages} stages, but {have} ranks run: one rank per stage")
    factor = state_factor if state_factor is not None else _state_factor(optimizer, training)
    names = list(model._modules) if isinstance(model, torch.nn.Module) else [str(i) for i in range(len(modules))]
    for name, plan in plans.items():
        if (known := graphs[name]) is not None and cluster is not None:
            predicted_timeline(  # what cannot be predicted is said now, not after the run
                plan,
                known,
                cluster,
                samples=batches.samples,
                training=training,
                sends=sends,
                overhead=overhead,
                state_factor=factor,
            )
    check_sendable(modules, loss_fn, optimizer)
    own = None
    if ranks is not None:
        _check_devices(layouts, ranks.devices)
    else:
        devices = next(iter(layouts.values())).devices if device_kind(device) == "cuda" else None
        _check_devices(layouts, device_names(device_kind(device), world, devices))
        own = Ranks(world, device=device, devices=devices, threads=threads, pin=pin, timeout=timeout, seed=seed)
    with own if own is not None else nullcontext(ranks) as running:
        assert running is not None  # one of the two was given
        with Pressure() as pressure:
            for name, layout in layouts.items():
                tasks = _tasks(layout, modules, names, batches, loss_fn, optimizer, training, wanted, seed)
                running.call(set_up, [(name, task) for task in tasks])
            running.call(take_steps, [(list(plans), steps)] * world)
        results = {name: running.call(finish, [(name,)] * world) for name in plans}
        where, count = running.kind, running.threads
    return {
        name: RunReport(
            plan=plan,
            records=tuple(record for record, _ in results[name]),
            samples=batches.samples,
            training=training,
            graph=graphs[name],
            cluster=cluster,
            sends=sends,
            overhead=overhead,
            state_factor=factor,
            optimizer=optimizer is not None and training,
            machine={
                "device": where,
                "threads": count,
                "torch": torch.__version__,
                "plans_in_turn": len(plans),
                **pressure.to_json(),
            },
            collected=_merge([collected for _, collected in results[name]]),
        )
        for name, plan in plans.items()
    }


def _check(
    plans: Mapping[str, Plan],
    batches: Batches,
    loss_fn: Loss | None,
    steps: int,
    training: bool,
    wanted: tuple[str, ...],
) -> None:
    if not plans:
        raise OptionError("give at least one plan")
    if steps < 2:
        raise OptionError(f"steps must be at least 2, since the first is a warm-up, got {steps}")
    if training and (loss_fn is None or not batches.targets):
        raise OptionError("training needs targets and loss_fn=; give both or set training=False")
    if not training and "gradients" in wanted:
        raise OptionError("a forward-only run has no gradients to collect")
    if training and "outputs" in wanted:
        raise OptionError("outputs are collected in forward-only runs; keeping them in training costs memory and time")


def _graphs(
    plans: Mapping[str, Plan], graph: CostGraph | Mapping[str, CostGraph] | None
) -> dict[str, CostGraph | None]:
    if not isinstance(graph, Mapping):
        return dict.fromkeys(plans, graph)
    for name in graph:
        if name not in plans:
            raise OptionError(f"graph= has an entry {name!r}, which is no plan{nearest(name, list(plans))}")
    return {name: graph.get(name) for name in plans}


def _check_devices(layouts: Mapping[str, Layout], names: Sequence[str]) -> None:
    """Check that stage s of every plan is on the device of rank s; on CPU all ranks are alike."""
    for name, layout in layouts.items():
        for s, (planned, there) in enumerate(zip(layout.devices, names, strict=True)):
            if there.startswith("cuda") and there != f"cuda:{planned}":
                raise PlanError(
                    f"plan {name!r} has stage {s} on device {planned}, but rank {s} runs on {there}; all plans of "
                    f"a run, and ranks that are already there, need the same devices in the same order",
                    stage=s,
                )


def _state_factor(optimizer: MakeOptimizer | None, training: bool) -> float:
    """Return weights + gradients + what the optimizer keeps, in copies of the parameters; found on a small trial."""
    if not training:
        return 1.0
    if optimizer is None:
        return 2.0
    parameter = torch.nn.Parameter(torch.zeros(8, 8))
    parameter.grad = torch.zeros(8, 8)
    try:
        trial = optimizer([parameter])
        trial.step()
    except Exception as error:  # a user's function may raise anything; the message says what was tried
        raise OptionError(
            f"optimizer= must build an optimizer from a list of parameters, whose step() needs no argument; a trial "
            f"gave {type(error).__name__}: {error}"
        ) from None
    kept = [cell for state in trial.state.values() for cell in state.values() if isinstance(cell, torch.Tensor)]
    return 2.0 + sum(1.0 for cell in kept if cell.numel() == parameter.numel())


def _tasks(
    layout: Layout,
    modules: list[torch.nn.Module],
    names: list[str],
    batches: Batches,
    loss_fn: Loss | None,
    optimizer: MakeOptimizer | None,
    training: bool,
    collect: tuple[str, ...],
    seed: int,
) -> list[StageTask]:
    last = len(layout.cuts) - 2
    return [
        StageTask(
            modules[first:end],
            names[first:end],
            layout.schedule,
            layout.microbatches,
            loss_fn if training else None,
            optimizer if training else None,
            layout.shapes[first],
            layout.shapes[end],
            batches.inputs if s == 0 else (),
            batches.targets if s == last and training else (),
            collect,
            seed,
        )
        for s, (first, end) in enumerate(zip(layout.cuts[:-1], layout.cuts[1:], strict=True))
    ]


def _merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if isinstance(value, dict):
                merged.setdefault(key, {}).update(value)
            else:
                merged[key] = value
    return merged
