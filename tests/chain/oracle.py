"""Exhaustive oracle for chain problems: every division, device order and recomputation, in plain Python.

It shares no code with the evaluator or the solvers: nets are walked one by one, memory is added up term by term.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from balance.problems.chain import ChainProblem


def _items(problem):
    position = problem.linearisation.position
    return [[int(v) for v in np.flatnonzero(position == item)] for item in range(problem.linearisation.n_items)]


def _link_seconds(problem, a, b, size):
    cluster = problem.cluster
    if a == b or size <= 0:
        return 0.0
    if cluster.links == "none":
        raise AssertionError("a transfer without a link")
    link = cluster.link(a, b)
    return link.latency + size / link.bandwidth


def value(problem: ChainProblem, stages, devices, flags):
    """Return (objective, feasible) of stages (lists of operators) on devices with recomputation flags."""
    graph, cluster, c = problem.graph, problem.cluster, problem.configuration
    count = len(stages)
    backward = graph.style != "inference" and problem.schedule != "forward-only"
    if not backward:
        flags = [False] * count
    where = {v: s for s, ops in enumerate(stages) for v in ops}
    loads = {}  # device -> phase -> [received, compute, sent]
    for d in devices:
        loads[d] = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    for s, ops in enumerate(stages):
        d = devices[s]
        k = graph.kinds.index(cluster.device(d).kind)
        total = [0.0, 0.0]
        for v in ops:
            if math.isinf(graph.forward[k, c, v]) or (graph.pinned[v] >= 0 and graph.pinned[v] != d):
                return math.inf, False
            f, b = graph.forward[k, c, v], graph.backward[k, c, v]
            if graph.style == "operators":
                total[1 if graph.is_backward[v] else 0] += f
            else:
                total[0] += f
                total[1] += b
        if flags[s]:
            total[1] += total[0]
        if not backward:
            total[1] = 0.0
        for phase in (0, 1):
            loads[d][phase][1] += total[phase] / cluster.device(d).speed
    inputs, gradients = [0.0] * count, [0.0] * count
    for tensor in graph.tensors:
        home = where[tensor.producer]
        readers = {where[r] for r in tensor.consumers}
        low, high = min(readers | {home}), max(readers | {home})
        late = graph.style == "operators" and bool(graph.is_backward[tensor.producer])
        parts = [(1 if late else 0, tensor.bytes, tensor.seconds), (1, tensor.gradient_bytes, tensor.gradient_seconds)]
        for phase, size, seconds in parts:
            if phase == 1 and not backward:
                continue

            def cost(a, b, size=size, seconds=seconds):
                if a == b:
                    return 0.0
                return seconds if seconds is not None else _link_seconds(problem, a, b, size)

            for boundary in range(low + 1, high + 1):
                if phase == 0:
                    inputs[boundary] += size
                else:
                    gradients[boundary - 1] += size
            if problem.routing == "adjacent":
                for boundary in range(low + 1, high + 1):
                    a, b = devices[boundary - 1], devices[boundary]
                    way = (a, b) if phase == 0 else (b, a)  # gradients go back
                    loads[a][phase][2] += cost(*way)
                    loads[b][phase][0] += cost(*way)
            else:
                away = [r for r in sorted(readers) if devices[r] != devices[home]]
                for r in away:
                    loads[devices[r]][phase][0] += cost(devices[home], devices[r])
                ways = (1 if away else 0) if problem.send == "once" else len(away)
                if away:
                    loads[devices[home]][phase][2] += ways * cost(devices[home], devices[away[0]])
    for d in loads:
        if cluster.device(d).kind in problem.free_kinds:
            for phase in (0, 1):
                loads[d][phase][0] = loads[d][phase][2] = 0.0
    need = dict.fromkeys(devices, 0.0)
    scratch = dict.fromkeys(devices, 0.0)
    flights = problem.flights(count)
    for s, ops in enumerate(stages):
        d = devices[s]
        kept = sum(graph.activation_bytes[c, v] for v in ops)
        need[d] += sum(problem.state_factor * graph.parameter_bytes[c, v] + graph.static_bytes[c, v] for v in ops)
        need[d] += flights[s] * inputs[s] + kept if flags[s] else flights[s] * kept
        if problem.backend == "torch":
            need[d] += problem.microbatches * (inputs[s] + gradients[s])
        scratch[d] = max(scratch[d], *(graph.workspace_bytes[c, v] for v in ops))
    for d in need:
        if need[d] + scratch[d] > cluster.device(d).memory_bytes * (1 + 1e-12):
            return math.inf, False
    combine = sum if problem.overlap == "sum" else max
    if problem.objective == "bottleneck":
        if problem.overlap == "sum":
            return max(sum(map(sum, load)) for load in loads.values()), True
        return max(max(a + b for a, b in zip(*load, strict=True)) for load in loads.values()), True
    return sum(max(combine(load[phase]) for load in loads.values()) for phase in (0, 1)), True


def solutions(problem: ChainProblem):
    """Yield every (stages, devices, flags)."""
    items = _items(problem)
    n, p = len(items), problem.cluster.n_devices
    for count in range(1, n + 1):
        if problem.chunks > 1:
            if count % problem.chunks:
                continue
            used = count // problem.chunks
        else:
            used = count
        if used > p or (not problem.idle and used != p):
            continue
        orders = itertools.combinations if problem.device_order == "given" else itertools.permutations
        for inner in itertools.combinations(range(1, n), count - 1):
            cuts = (0, *inner, n)
            stages = [[v for item in items[a:b] for v in item] for a, b in itertools.pairwise(cuts)]
            for chosen in orders(range(p), used):
                devices = [chosen[s % used] for s in range(count)]
                options = {"never": [False], "always": [True], "choose": [False, True]}[problem.recompute]
                for flags in itertools.product(options, repeat=count):
                    yield stages, devices, flags


def optimum(problem: ChainProblem) -> float:
    """Return the least objective over all solutions; infinity if none is feasible."""
    return min((value(problem, *solution)[0] for solution in solutions(problem)), default=math.inf)
