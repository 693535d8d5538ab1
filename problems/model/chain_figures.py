"""Model room: seconds and bytes of a plan of a chain problem, by which it is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from balance.problems.model.cluster import Link
from balance.problems.model.memory import device_bytes, receive_buffer_bytes, stage_activation_bytes
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray, IntArray
from balance.problems.model.traffic import BACKWARD, FORWARD, boundary_traffic, direct_traffic

if TYPE_CHECKING:
    from balance.problems.chain import ChainProblem


def compute_seconds(problem: ChainProblem, plan: Plan, devices: IntArray) -> FloatArray:
    """Return compute seconds per phase and stage, shape (2, S); recomputing adds forward time to the backward."""
    graph, c = problem.graph, problem.configuration
    result = np.zeros((2, plan.n_stages))
    for s, stage in enumerate(plan.stages):
        kind, speed = problem.device_kind[devices[s]], problem.cluster.speed[devices[s]]
        forward = graph.forward[kind, c, stage.operators]
        backward = graph.backward[kind, c, stage.operators]
        if graph.style == "operators":
            late = graph.is_backward[stage.operators]
            result[:, s] = forward[~late].sum(), forward[late].sum() + backward.sum()
        else:
            result[:, s] = forward.sum(), backward.sum()
        if not problem.has_backward:
            result[BACKWARD, s] = 0.0
        elif stage.recompute:
            result[BACKWARD, s] += result[FORWARD, s]
        result[:, s] /= speed
    return result


def communication_seconds(problem: ChainProblem, plan: Plan, devices: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return seconds at the left and right side of each stage per phase, shapes (2, S)."""
    stages = plan.n_stages
    left, right = np.zeros((2, stages)), np.zeros((2, stages))
    if stages > 1 and problem.communicates:
        part = plan.stage_of(problem.graph.n_operators)
        if problem.routing == "direct":
            link = problem.cluster.inter or Link()
            left, right = direct_traffic(
                problem.graph,
                part,
                stages,
                link,
                once=problem.send == "once",
                device=devices,
                training=problem.has_backward,
            )
        else:
            traffic = boundary_traffic(problem.graph, part, stages, training=problem.has_backward)
            for s in range(1, stages):
                a, b = int(devices[s - 1]), int(devices[s])
                # Without a link every transfer has given seconds (checked when the problem is made).
                ways = (Link(), Link()) if problem.cluster.links == "none" else problem.cluster.both_ways(a, b)
                seconds = traffic.time_at(s, ways) if a != b else np.zeros(2)
                right[:, s - 1] = seconds
                left[:, s] = seconds
    free = np.array([kind in problem.free_kinds for kind in problem.cluster.kinds])[problem.cluster.kind[devices]]
    return np.where(free, 0.0, left), np.where(free, 0.0, right)


def device_loads(problem: ChainProblem, by_device: FloatArray) -> tuple[float, FloatArray]:
    """Return the objective and the load per used device from (received, compute, sent) x phase x device."""
    if problem.overlap == "sum":
        phases = by_device.sum(axis=0)
        total = phases.sum(axis=0)
    else:
        phases = by_device.max(axis=0)
        total = by_device.sum(axis=1).max(axis=0)
    if problem.objective == "bottleneck":
        return float(total.max()), total
    return float(phases[FORWARD].max() + phases[BACKWARD].max()), phases.sum(axis=0)


def memory_bytes(problem: ChainProblem, plan: Plan, devices: IntArray, group: IntArray) -> FloatArray:
    """Return the bytes that the device of each stage needs, shape (S,)."""
    graph, c = problem.graph, problem.configuration
    stages = plan.n_stages

    def per_stage(table: FloatArray) -> FloatArray:
        return np.array([table[c, stage.operators].sum() for stage in plan.stages])

    def largest(table: FloatArray) -> FloatArray:
        return np.array([table[c, stage.operators].max() for stage in plan.stages])

    part = plan.stage_of(graph.n_operators)
    traffic = boundary_traffic(graph, part, stages, training=problem.has_backward).bytes
    held = stage_activation_bytes(
        per_stage(graph.activation_bytes),
        traffic[FORWARD, :-1],
        problem.flights(stages),
        np.array([stage.recompute and problem.has_backward for stage in plan.stages]),
    )
    buffers = receive_buffer_bytes(
        problem.backend, problem.microbatches or 1, traffic[FORWARD, :-1], traffic[BACKWARD, 1:]
    )
    by_device = device_bytes(
        group,
        parameters=per_stage(graph.parameter_bytes),
        static=per_stage(graph.static_bytes),
        activations=held,
        workspace=largest(graph.workspace_bytes),
        buffers=buffers,
        state_factor=problem.state_factor,
    )
    return by_device[group]
