"""Tests of the memory formula, and that the simulator's memory curves reach it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import OptionError, ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.memory import device_bytes, receive_buffer_bytes, stage_activation_bytes
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import in_flight
from balance.problems.model.tensors import Tensor
from balance.problems.model.timeline import Timeline


def chain(n: int, **changes: Any) -> CostGraph:
    """Return a chain in which no two operators are equal."""
    v = np.arange(n)
    return CostGraph.chain(
        1.0 + v % 3,
        **{
            "backward": 2.0 + v % 2,
            "bytes": 3.0 + v[:-1],
            "gradient_bytes": 5.0 + v[:-1],
            "parameter_bytes": 1000.0 + 10 * v,
            "activation_bytes": 100.0 + v,
            "static_bytes": 7.0 * v,
            "workspace_bytes": 40.0 - v % 5,
            **changes,
        },
    )


def test_formula_by_hand() -> None:
    """Two stages on device 1 add up; of their workspaces only the larger counts; recomputing keeps inputs."""
    held = stage_activation_bytes([10.0, 20.0, 30.0], [0.0, 4.0, 5.0], [3, 2, 1], [False, True, False])
    assert held.tolist() == [30.0, 2 * 4 + 20, 30.0]
    buffers = receive_buffer_bytes("torch", 4, [0.0, 4.0, 5.0], [3.0, 2.0, 0.0])
    assert buffers.tolist() == [12.0, 24.0, 20.0]
    assert receive_buffer_bytes("none", 4, [1.0], [1.0]).tolist() == [0.0]
    total = device_bytes(
        [1, 0, 1],
        parameters=[100.0, 200.0, 300.0],
        static=[1.0, 2.0, 3.0],
        activations=held,
        workspace=[50.0, 60.0, 70.0],
        buffers=buffers,
        state_factor=4.0,
        n_devices=3,
    )
    assert total.tolist() == [800 + 2 + 28 + 60 + 24, 400 + 1 + 30 + 12 + 1200 + 3 + 30 + 20 + 70, 0]
    with pytest.raises(OptionError, match="did you mean 'torch'"):
        receive_buffer_bytes("troch", 1, [1.0], [1.0])


def simulated(devices: int, chunks: int, count: int, schedule: str, **options: Any) -> tuple[Plan, Timeline]:
    """Simulate equal numbers of operators per stage."""
    stages = devices * chunks
    plan = Plan.chain(
        [2 * s for s in range(stages + 1)],
        [s % devices for s in range(stages)],
        recompute=options.pop("recompute", None),
        microbatches=count,
        schedule=schedule,
    )
    cluster = Cluster.uniform(devices, latency=0.1, bandwidth=100.0)
    return plan, simulate(plan, chain(2 * stages), cluster, **options)


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "forward-only"])
@pytest.mark.parametrize("backend", ["none", "torch"])
@pytest.mark.parametrize("recompute", [False, True])
def test_curves_reach_the_formula(devices: int, schedule: str, backend: str, recompute: bool) -> None:
    """With one stage per device, the highest point of each curve is what formula and evaluator say."""
    count = 6
    flags = [recompute] * devices
    _, timeline = simulated(devices, 1, count, schedule, backend=backend, state_factor=4.0, recompute=flags)
    problem = ChainProblem(
        graph=chain(2 * devices),
        cluster=Cluster.uniform(devices, latency=0.1, bandwidth=100.0),
        schedule=schedule,
        microbatches=count,
        state_factor=4.0,
        backend=backend,
        recompute="always" if recompute else "never",
    )
    plan = Plan.chain([2 * s for s in range(devices + 1)], recompute=flags, microbatches=count, schedule=schedule)
    expected = problem.evaluate(plan).breakdown["memory"]
    np.testing.assert_allclose(timeline.peak_memory, expected, rtol=1e-12)
    highest = [timeline.memory(d)[1].max() for d in range(devices)]
    np.testing.assert_allclose(highest, timeline.peak_memory, rtol=1e-12)


@pytest.mark.parametrize(("devices", "chunks", "count"), [(1, 2, 4), (2, 2, 4), (3, 2, 6), (4, 3, 8), (2, 4, 8)])
def test_interleaved_counts_each_stage_at_its_own_peak(devices: int, chunks: int, count: int) -> None:
    """Formula and evaluator agree; the curve, which knows when the peaks are, stays below."""
    plan, timeline = simulated(devices, chunks, count, "interleaved-1f1b", state_factor=2.0)
    flights = [in_flight("interleaved-1f1b", plan.n_stages, count, s, chunks=chunks) for s in range(plan.n_stages)]
    assert timeline.schedule.peak_in_flight().tolist() == flights
    graph = chain(2 * plan.n_stages)
    problem = ChainProblem(
        graph=graph,
        cluster=Cluster.uniform(devices, latency=0.1, bandwidth=100.0),
        schedule="interleaved-1f1b",
        microbatches=count,
        chunks=max(chunks, 2),
        state_factor=2.0,
    )
    by_stage = problem.evaluate(plan).breakdown["memory"]
    np.testing.assert_allclose(timeline.peak_memory[plan.devices], by_stage, rtol=1e-12)
    for d in range(devices):
        assert timeline.memory(d)[1].max() <= timeline.peak_memory[d] * (1 + 1e-12)


@pytest.mark.parametrize(("devices", "chunks"), [(2, 2), (4, 2), (4, 3), (8, 4)])
def test_interleaved_curve_is_that_of_the_literature(devices: int, chunks: int) -> None:
    """Rank r holds (V - 1) P + 2 (P - 1 - r) + 1 activations of a chunk at once (Narayanan et al. 2021)."""
    stages = devices * chunks
    graph = CostGraph.chain(np.ones(stages), backward=np.ones(stages), activation_bytes=1.0)
    plan = Plan.chain(
        range(stages + 1),
        [s % devices for s in range(stages)],
        microbatches=4 * devices,
        schedule="interleaved-1f1b",
    )
    timeline = simulate(plan, graph, Cluster.uniform(devices))
    for r in range(devices):
        assert timeline.memory(r)[1].max() == (chunks - 1) * devices + 2 * (devices - 1 - r) + 1


def test_curve_by_hand() -> None:
    """One stage, two micro-batches: every step of the curve."""
    graph = CostGraph(
        forward=[1.0], backward=[2.0], activation_bytes=[10.0], parameter_bytes=[5.0], workspace_bytes=[3.0]
    )
    plan = Plan.chain([0, 1], microbatches=2, schedule="gpipe")
    times, held = simulate(plan, graph, Cluster.uniform(1), state_factor=2.0).memory(0)
    assert times.tolist() == [0, 0, 1, 1, 2, 2, 4, 4, 6]
    assert held.tolist() == [10, 23, 20, 33, 30, 33, 20, 23, 10]


def test_recomputing_stage_holds_one_working_set() -> None:
    """Inputs stay per micro-batch, activations are there while an action runs."""
    graph = CostGraph(
        forward=[1.0, 1.0],
        backward=[1.0, 1.0],
        activation_bytes=[0.0, 10.0],
        tensors=[Tensor(0, (1,), seconds=0.0, bytes=4.0)],
    )
    plan = Plan.chain([0, 1, 2], recompute=[False, True], microbatches=2, schedule="gpipe")
    timeline = simulate(plan, graph, Cluster.uniform(2))
    assert timeline.memory(1)[1].tolist() == [0, 14, 4, 18, 8, 18, 4, 14, 0]
    assert timeline.end[timeline.device == 1].tolist() == [2, 3, 5, 7]


def test_replicas_hold_their_share() -> None:
    """Parameters are whole on every replica, what grows with the micro-batch is shared out."""
    graph = CostGraph.chain([4.0, 4.0], backward=[4.0, 4.0], parameter_bytes=100.0, activation_bytes=8.0)
    stages = (Stage([0], (Replica((0,), 0.25), Replica((2,), 0.75))), Stage([1], (Replica((1,)),)))
    timeline = simulate(Plan(stages, microbatches=3), graph, Cluster.uniform(4))
    assert timeline.peak_memory.tolist() == [100 + 2 * 2, 100 + 8, 100 + 2 * 6, 0]
    assert [timeline.memory(d)[1].max() for d in range(4)] == timeline.peak_memory.tolist()


def test_measured_timelines_know_no_memory() -> None:
    """Without a footprint memory is not a number, and asking for the curve is an error."""
    timeline = Timeline(device=[0], stage=[0], microbatch=[0], kind=[0], start=[0.0], end=[1.0])
    assert np.isnan(timeline.peak_memory).all()
    with pytest.raises(ScheduleError, match="knows no memory"):
        timeline.memory(0)
