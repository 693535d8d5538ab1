"""Executor room: the simulator's word on a run: before it, from the profile; after it, from the run's own durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.simulate import simulate
from balance.problems.model.tensors import FloatArray
from balance.problems.model.timeline import Timeline

if TYPE_CHECKING:
    from balance.executor.report import RunReport


def predicted_timeline(
    plan: Plan,
    graph: CostGraph,
    cluster: Cluster,
    *,
    samples: int,
    training: bool,
    sends: str,
    overhead: float,
    state_factor: float,
    durations: FloatArray | None = None,
) -> Timeline:
    """Return the simulated step of a plan as this engine runs it; parameters and errors as in `simulate`."""
    played = plan if training else plan.replace(schedule="forward-only")
    return simulate(
        played.replace(microbatch_size=samples / plan.microbatches),
        graph,
        cluster,
        sends=sends,
        overhead=overhead,
        durations=durations,
        training=training,
        state_factor=state_factor,
        backend="torch",
    )


def predict(report: RunReport, durations: FloatArray | None = None) -> Timeline | None:
    """Return the simulated step of a report's plan, or None without graph and cluster.

    Parameters
    ----------
    report
        What ran.
    durations
        Seconds of each action in the order of the schedule's arrays, instead of the graph's.
    """
    if report.graph is None or report.cluster is None:
        return None
    return predicted_timeline(
        report.plan,
        report.graph,
        report.cluster,
        samples=report.samples,
        training=report.training,
        sends=report.sends,
        overhead=report.overhead,
        state_factor=report.state_factor,
        durations=durations,
    )


def simulate_step(report: RunReport, step: int) -> Timeline | None:
    """Return the simulated step made from the durations that the actions had in one step of the run itself."""
    # The simulator counts actions device by device, the records are in the order of the stages.
    rows = [report.records[s].durations[step] for s in np.argsort(report.plan.devices)]
    return predict(report, np.concatenate(rows))


def achieved_timeline(report: RunReport, step: int) -> Timeline:
    """Return one step of the run as a timeline; messages are not measured and not in it."""
    records = report.records
    origin = min(float(record.start[step]) for record in records)
    sizes = [len(record.kind) for record in records]
    return Timeline(
        device=np.repeat(report.plan.devices, sizes),
        stage=np.repeat(np.arange(len(records)), sizes),
        microbatch=np.concatenate([record.microbatch for record in records]),
        kind=np.concatenate([record.kind for record in records]),
        start=np.concatenate([record.action_start[step] for record in records]) - origin,
        end=np.concatenate([record.action_end[step] for record in records]) - origin,
        n_devices=max(report.plan.devices) + 1 if report.cluster is None else report.cluster.n_devices,
        microbatch_size=report.samples / report.plan.microbatches,
    )
