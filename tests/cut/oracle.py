"""Exhaustive oracle for cut problems: every assignment, and for pipelines every order of the used devices.

It is written from the problem's statement and shares no code with the evaluator or the solvers: nets, edges, paths and
bytes are walked one by one, in plain Python.
"""

from __future__ import annotations

import itertools
import math

from balance.problems.cut import CutProblem

FREE = 1e-9  # seconds below which an operator takes no time


def _late(problem, v):
    return problem.graph.style == "operators" and bool(problem.graph.is_backward[v])


def _backward(problem):
    return problem.graph.style != "inference" and problem.schedule != "forward-only"


def classes(problem: CutProblem) -> list[int]:
    """Return the class of each operator: colocation, and joined leaves where asked."""
    graph = problem.graph
    label = {}
    name = []
    for v in range(graph.n_operators):
        key = ("label", int(graph.colocation[v])) if graph.colocation[v] >= 0 else ("alone", v)
        name.append(label.setdefault(key, len(label)))
    if problem.leaves != "merge" or problem.contiguity != "acyclic":
        return name
    while True:
        name = _contract_cycles(problem, name)
        edges = order(problem, name)
        for leaf in sorted(set(name)):
            around = {b for a, b in edges if a == leaf} | {a for a, b in edges if b == leaf}
            if len(around) == 1 and _joins(problem, name, leaf):
                (mate,) = around
                name = [mate if x == leaf else x for x in name]
                break
        else:
            return name


def _joins(problem, name, leaf):
    graph, c = problem.graph, problem.configuration
    own = [v for v in range(graph.n_operators) if name[v] == leaf]
    for tensor in graph.tensors:
        ahead = tensor.producer in own and not graph.is_backward[tensor.producer]
        if ahead and any(graph.is_backward[r] for r in tensor.consumers):
            return False
    for table in (graph.forward, graph.backward):
        for k in range(len(graph.kinds)):
            if not sum(float(table[k, c, v]) for v in own) < FREE:
                return False
    return True


def _contract_cycles(problem, name):
    """Return classes in which those on a cycle of the order are one."""
    edges = order(problem, name)
    nodes = sorted(set(name))
    reach = {a: {a} for a in nodes}
    for _ in nodes:
        for a, b in edges:
            for x in nodes:
                if a in reach[x]:
                    reach[x] |= reach[b]
    first = {a: min(b for b in nodes if b in reach[a] and a in reach[b]) for a in nodes}
    return [first[x] for x in name]


def order(problem: CutProblem, name: list[int]) -> set[tuple[int, int]]:
    """Return the pairs of classes whose order a pipeline keeps."""
    graph = problem.graph

    def mated(v):  # by colocation alone: joined leaves and fused cycles make no mates
        label = graph.colocation[v]
        together = [u for u in range(graph.n_operators) if u == v or (label >= 0 and graph.colocation[u] == label)]
        return any(not _late(problem, u) for u in together)

    pairs = set()
    for tensor in graph.tensors:
        u = tensor.producer
        for v in tensor.consumers:
            if not _late(problem, u) and not _late(problem, v):
                pairs.add((name[u], name[v]))
            elif _late(problem, u) and _late(problem, v) and not (mated(u) and mated(v)):
                pairs.add((name[v], name[u]))
    return {(a, b) for a, b in pairs if a != b}


def value(problem: CutProblem, device: tuple[int, ...], sequence: tuple[int, ...]) -> float:
    """Return the objective of operators on devices; infinity if a rule is broken.

    Parameters
    ----------
    problem
        The problem.
    device
        Device of each operator.
    sequence
        The used devices, from the first stage to the last (in any order where stages have none).
    """
    graph, c, n = problem.graph, problem.configuration, problem.graph.n_operators
    name = classes(problem)
    place = {d: s for s, d in enumerate(sequence)}
    if problem.max_stages is not None and len(sequence) > problem.max_stages:
        return math.inf
    if any(device[u] != device[v] for u in range(n) for v in range(u) if name[u] == name[v]):
        return math.inf
    if any(graph.pinned[v] >= 0 and graph.pinned[v] != device[v] for v in range(n)):
        return math.inf
    if problem.contiguity == "acyclic":
        where = {name[v]: place[device[v]] for v in range(n)}
        if any(where[a] > where[b] for a, b in order(problem, name)):
            return math.inf
    if problem.contiguity == "convex" and not _convex(problem, device):
        return math.inf
    loads = {}
    for d in sequence:
        kind, speed = graph.kinds.index(problem.cluster.device(d).kind), problem.cluster.device(d).speed
        own = [v for v in range(n) if device[v] == d]
        phases = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        for v in own:
            if math.isinf(graph.forward[kind, c, v]) or math.isinf(graph.backward[kind, c, v]):
                return math.inf
            late = 1 if _late(problem, v) else 0
            if late == 0 or _backward(problem):
                phases[late][1] += float(graph.forward[kind, c, v]) / speed
            if _backward(problem):
                phases[1][1] += float(graph.backward[kind, c, v]) / speed
        loads[d] = phases
    for tensor in graph.tensors:
        _charge(problem, tensor, device, place, loads)
    total = []
    for s, d in enumerate(sequence):
        if problem.cluster.device(d).kind in problem.free_kinds:
            for phase in loads[d]:
                phase[0] = phase[2] = 0.0
        own = [v for v in range(n) if device[v] == d]
        after = len(sequence) - 1 - s
        need = sum(
            problem.state_factor * float(graph.parameter_bytes[c, v])
            + float(graph.static_bytes[c, v])
            + _flight(problem, after) * float(graph.activation_bytes[c, v])
            for v in own
        ) + max(float(graph.workspace_bytes[c, v]) for v in own)
        over = need - problem.cluster.device(d).memory_bytes
        if problem.overflow_bandwidth is None and over > 1e-9:
            return math.inf
        streamed = max(over, 0.0) / problem.overflow_bandwidth if problem.overflow_bandwidth else 0.0
        terms = [a + b for a, b in zip(*loads[d], strict=True)]
        total.append((sum(terms) if problem.overlap == "sum" else max(terms)) + streamed)
    if problem.objective == "bottleneck":
        return max(total)
    combine = sum if problem.overlap == "sum" else max
    return sum(max(combine(loads[d][phase]) for d in sequence) for phase in (0, 1))


def _flight(problem, after):
    if problem.in_flight is not None:
        return problem.in_flight[min(after, len(problem.in_flight) - 1)]
    if problem.contiguity != "acyclic" or not _backward(problem):
        return 1
    if problem.schedule == "gpipe":
        return problem.microbatches or 1
    return after + 1 if problem.microbatches is None else min(after + 1, problem.microbatches)


def _charge(problem, tensor, device, place, loads):
    """Add what a tensor costs to the devices that it touches."""

    def seconds(size, given):
        if given is not None:
            return given
        if size <= 0:
            return 0.0
        return problem.cluster.inter.latency + size / problem.cluster.inter.bandwidth

    ahead = seconds(tensor.bytes, tensor.seconds)
    back = seconds(tensor.gradient_bytes, tensor.gradient_seconds)
    late = _late(problem, tensor.producer)
    home = device[tensor.producer]
    readers = sorted({device[r] for r in tensor.consumers} - {home})
    for phase, cost in ((1 if late else 0, ahead), (1, back)):
        if phase == 1 and not _backward(problem):
            continue
        if problem.charge == "edge":
            for r in tensor.consumers:
                if device[r] != home:
                    loads[device[r]][phase][0] += cost
                    loads[home][phase][2] += cost
        elif problem.routing == "adjacent":
            stages = [place[d] for d in (home, *readers)]
            for d, s in place.items():
                if min(stages) < s <= max(stages):
                    loads[d][phase][0] += cost
                if min(stages) <= s < max(stages):
                    loads[d][phase][2] += cost
        elif readers:
            for d in readers:
                loads[d][phase][0] += cost
            loads[home][phase][2] += cost * (1 if problem.send == "once" else len(readers))


def _convex(problem, device):
    """Whether no path of forward operators leaves a device and comes back, by walking all paths."""
    follow = {}
    for tensor in problem.graph.tensors:
        if not problem.graph.is_backward[tensor.producer]:
            heads = [r for r in tensor.consumers if not problem.graph.is_backward[r]]
            follow.setdefault(tensor.producer, []).extend(heads)

    def comes_back(v, home, left):
        if device[v] == home and left:
            return True
        return any(comes_back(u, home, left or device[u] != home) for u in follow.get(v, []))

    return not any(comes_back(v, device[v], False) for v in follow)


def optimum(problem: CutProblem) -> float:
    """Return the least objective over all solutions; infinity if none is feasible."""
    best = math.inf
    for device in itertools.product(range(problem.cluster.n_devices), repeat=problem.graph.n_operators):
        used = sorted(set(device))
        sequences = itertools.permutations(used) if problem.contiguity == "acyclic" else [tuple(used)]
        for sequence in sequences:
            best = min(best, value(problem, device, tuple(sequence)))
    return best
