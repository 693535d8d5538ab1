"""Chain wing: why a chain problem has no plan, in names and numbers."""

from __future__ import annotations

import numpy as np

from balance.chain.tables import ChainTables
from balance.problems.chain import ChainProblem
from balance.problems.model.problem import Violation
from balance.problems.model.traffic import BACKWARD, FORWARD

MOST = 8  # reasons of one kind that are listed


def reasons(problem: ChainProblem) -> tuple[Violation, ...]:
    """Return why no plan exists; at least one reason for an infeasible problem, at most a few of each kind.

    Single items are looked at first (no device hosts them, or none has the memory), then pins, then totals; if all of
    these are fine, the last reason tells how far the longest possible stages reach.
    """
    tables = ChainTables(problem)
    found = _unhosted(tables) or _too_large(tables)
    if found:
        return tuple(found)
    found = _counts(tables) + _rounds(tables) + _pins(tables) + _total(tables)
    return tuple(found or [_packing(tables)])


def _first(tables: ChainTables, item: int) -> int:
    """Return the first operator of an item."""
    return int(tables.order[tables.starts[item]])


def _named(tables: ChainTables, item: int) -> str:
    """Return an item's name for messages."""
    size = int(tables.starts[item + 1] - tables.starts[item])
    label = tables.problem.graph.label(_first(tables, item))
    return f"operator {label}" if size == 1 else f"operator {label} with the {size - 1} that must stay with it"


def _unhosted(tables: ChainTables) -> list[Violation]:
    problem, graph = tables.problem, tables.problem.graph
    c = problem.configuration
    hosted = np.isfinite(graph.forward[:, c]) & np.isfinite(graph.backward[:, c])
    nowhere = np.flatnonzero((np.diff(tables.barred, axis=1) > 0).all(axis=0))
    found = []
    for item in nowhere[:MOST].tolist():
        v = _first(tables, item)
        pin = int(graph.pinned[v])
        hosts = [kind for kind, ok in zip(graph.kinds, hosted[:, v], strict=True) if ok]
        if pin >= 0:
            why = f"is pinned to {problem.cluster.label(pin)} of kind {problem.cluster.device(pin).kind!r}"
        else:
            why = f"finds no device that hosts all of it (the cluster has kinds {', '.join(problem.cluster.kinds)})"
        found.append(
            Violation(
                "kind",
                f"{_named(tables, item)} {why}; {graph.label(v)} runs on {', '.join(hosts) or 'no kind at all'}",
                operator=v,
                device=pin if pin >= 0 else None,
            )
        )
    return found


def stage_bytes(tables: ChainTables, i: int, j: int, after: int, recompute: bool) -> float:
    """Return the bytes of a stage of items i..j - 1 with `after` stages after it, by the one memory formula."""
    costs, y = tables.costs, float(tables.flights[min(after, len(tables.flights) - 1)])
    kept = costs.kept[j] - costs.kept[i]
    held = costs.held[j] - costs.held[i] + float(costs.scratch[i:j].max(initial=0.0))
    buffers = costs.buffers[FORWARD, i] + costs.buffers[BACKWARD, j]
    return float(held + buffers + (y * costs.inputs[i] + kept if recompute else y * kept))


def _least_bytes(tables: ChainTables, i: int, j: int, after: int) -> float:
    options = {"never": (False,), "always": (True,), "choose": (False, True)}[tables.problem.recompute]
    return min(stage_bytes(tables, i, j, after, option) for option in options)


def _too_large(tables: ChainTables) -> list[Violation]:
    if not tables.limited:
        return []
    problem = tables.problem
    memory = np.array([problem.cluster.memory_bytes[int(devices[0])] for devices in tables.members])
    barred = np.diff(tables.barred, axis=1) > 0
    room = np.where(barred, -1.0, memory[:, None])
    best = room.argmax(axis=0)
    found = []
    for item in range(tables.n):
        needed, available = _least_bytes(tables, item, item + 1, 0), float(room[best[item], item])
        if needed > available * (1 + 1e-12):
            device = int(tables.members[int(best[item])][0])
            found.append(
                Violation(
                    "memory",
                    f"{_named(tables, item)} needs {needed:.6g} bytes alone in a stage; the largest device that hosts "
                    f"it, {problem.cluster.label(device)}, has {available:.6g}",
                    operator=_first(tables, item),
                    device=device,
                    needed=needed,
                    available=available,
                )
            )
            if len(found) == MOST:
                break
    return found


def _counts(tables: ChainTables) -> list[Violation]:
    problem, p = tables.problem, tables.problem.cluster.n_devices
    if tables.n < problem.chunks:
        return [
            Violation(
                "devices",
                f"a device holds {problem.chunks} stages, but the chain has only {tables.n} items; use fewer chunks",
                needed=float(problem.chunks),
                available=float(tables.n),
            )
        ]
    if problem.idle or tables.n >= p * problem.chunks:
        return []
    each = f" for {problem.chunks} stages each" if problem.chunks > 1 else ""
    return [
        Violation(
            "idle",
            f"{p} devices must all be used{each}, but the chain has only {tables.n} items; allow idle devices",
            needed=float(p * problem.chunks),
            available=float(tables.n),
        )
    ]


def _rounds(tables: ChainTables) -> list[Violation]:
    """Look for micro-batches that the schedule runs on no number of devices."""
    problem, p = tables.problem, tables.problem.cluster.n_devices
    most = min(p, tables.n // problem.chunks)
    refusals = [problem.schedule_refusal(d * problem.chunks) for d in range(1 if problem.idle else p, most + 1)]
    stated = [refusal for refusal in refusals if refusal is not None]
    return [Violation("schedule", stated[-1])] if stated and len(stated) == len(refusals) else []


def _pins(tables: ChainTables) -> list[Violation]:
    problem, graph = tables.problem, tables.problem.graph
    seen: dict[int, int] = {}  # device -> last item pinned to it
    last = -1
    for item in range(tables.n):
        pins = graph.pinned[tables.order[tables.starts[item] : tables.starts[item + 1]]]
        pins = np.unique(pins[pins >= 0])
        if len(pins) > 1:
            a, b = (problem.cluster.label(int(d)) for d in pins[:2])
            return [
                Violation(
                    "pinned", f"{_named(tables, item)} is pinned to both {a} and {b}", operator=_first(tables, item)
                )
            ]
        if not len(pins):
            continue
        device = int(pins[0])
        label = problem.cluster.label(device)
        if problem.chunks == 1 and last >= 0 and device != last and device in seen:
            return [
                Violation(
                    "pinned",
                    f"{_named(tables, item)} is pinned to {label} like {_named(tables, seen[device])}, but an operator "
                    f"between them is pinned elsewhere",
                    operator=_first(tables, item),
                    device=device,
                )
            ]
        if problem.chunks == 1 and problem.device_order == "given" and device < last:
            return [
                Violation(
                    "pinned",
                    f"{_named(tables, item)} is pinned to {label}, which comes before "
                    f"{problem.cluster.label(last)} of an earlier operator; the device order is given",
                    operator=_first(tables, item),
                    device=device,
                )
            ]
        seen[device], last = item, device
    return []


def _total(tables: ChainTables) -> list[Violation]:
    if not tables.limited:
        return []
    memory = tables.problem.cluster.memory_bytes
    needed, available = float(tables.costs.held[-1]), float(memory.sum())
    if needed <= available * (1 + 1e-12):
        return []
    message = (
        f"parameters, their states and static bytes add up to {needed:.6g}; all devices together have {available:.6g}"
    )
    return [Violation("memory", message, needed=needed, available=available)]


def _packing(tables: ChainTables) -> Violation:
    """Fill devices from the last stage on as far as they hold, and tell where the memory runs out.

    If it never does, no single number tells why: kinds, pins and the order of the devices count as well.
    """
    problem, cluster = tables.problem, tables.problem.cluster
    devices = list(range(cluster.n_devices - 1, -1, -1))
    if problem.device_order == "free":
        devices.sort(key=lambda d: (-float(cluster.memory_bytes[d]), d))
    end, needed, stuck = tables.n, 0.0, devices[0]
    for after, device in enumerate(devices):
        q, memory = int(tables.device_class[device]), float(cluster.memory_bytes[device])
        start = end
        while start > 0 and tables.barred[q, end] == tables.barred[q, start - 1]:
            size = _least_bytes(tables, start - 1, end, after)
            if size > memory * (1 + 1e-12):
                needed, stuck = size, device
                break
            start -= 1
        end = start
        if end == 0:
            break
    if needed == 0:
        used = "up to" if problem.idle else "all of"
        return Violation(
            "devices",
            f"no division over {used} the {cluster.n_devices} devices in {problem.device_order} order is possible: "
            f"kinds, pins and memory together rule out every one",
        )
    item = max(end - 1, 0)
    return Violation(
        "memory",
        f"no division into at most {cluster.n_devices} stages fits: packed from the end, {cluster.label(stuck)} would "
        f"need {needed:.6g} bytes to take {_named(tables, item)} and has {float(cluster.memory_bytes[stuck]):.6g}",
        operator=_first(tables, item),
        device=stuck,
        needed=needed,
        available=float(cluster.memory_bytes[stuck]),
    )
