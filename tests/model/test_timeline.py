"""Timelines: what a runtime measured is checked, and what comes out of a pickle is as it went in."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.timeline import Timeline


def uniform(
    stages: int, count: int, f: float, b: float, h: float, schedule: str | Schedule = "1f1b", **options: Any
) -> Timeline:
    """Simulate equal stages with equal hops."""
    graph = CostGraph.chain(np.full(stages, f), backward=np.full(stages, b), seconds=h)
    plan = Plan.chain(range(stages + 1), microbatches=count, schedule=schedule)
    return simulate(plan, graph, Cluster.uniform(stages), **options)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"start": [0.0]}, "shapes"),
        ({"end": [-1.0, 1.0]}, "not a span of time"),
        ({"start": [float("nan"), 1.0]}, "not a span of time"),
        ({"device": [0, 3]}, "there are 2 devices"),
        ({"stage": [0]}, "one per action"),
    ],
)
def test_measured_timelines_are_checked(columns: dict[str, Any], says: str) -> None:
    """What a runtime measured may be wrong; actions may come in any order."""
    good = {
        "device": [1, 0], "stage": [1, 0], "microbatch": [0, 0], "kind": [0, 0], "start": [1.0, 0.0], "end": [2.0, 1.0],
    }  # fmt: skip
    timeline = Timeline(**good, n_devices=2)
    assert timeline.device.tolist() == [0, 1]
    assert timeline.start.tolist() == [0, 1]
    with pytest.raises(ScheduleError, match=says):
        Timeline(**{**good, **columns}, n_devices=2)


def test_stray_devices_of_measured_actions_are_named() -> None:
    """Below 0 as well as beyond the last."""
    row = {"stage": [0, 0], "microbatch": [0, 0], "kind": [0, 1], "start": [0.0, 1.0], "end": [1.0, 2.0]}
    for devices, stray in (([-1, 0], "-1"), ([0, 7], "7")):
        with pytest.raises(ScheduleError, match=f"on device {stray}, but there are 2"):
            Timeline(device=devices, n_devices=2, **row)


def test_compact_and_picklable() -> None:
    """An action takes at most 32 bytes, and a timeline survives pickling."""
    timeline = uniform(8, 64, 1.0, 2.0, 0.5)
    size = sum(
        column.nbytes
        for column in (
            timeline.schedule.stage, timeline.schedule.microbatch, timeline.schedule.kind, timeline.start, timeline.end,
        )
    )  # fmt: skip
    assert size / timeline.schedule.n_actions <= 32
    again = pickle.loads(pickle.dumps(timeline))
    assert (again.step_time, again.peak_memory.tolist()) == (timeline.step_time, timeline.peak_memory.tolist())
