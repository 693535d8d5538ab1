"""Cut wing: why a cut problem has no solution, in names and numbers."""

from __future__ import annotations

import numpy as np

from balance.cut.tables import CutTables
from balance.problems.model.problem import Violation

MOST = 8  # reasons of one kind that are listed


def reasons(tables: CutTables) -> tuple[Violation, ...]:
    """Return why no solution exists, for a problem that was proved to have none; at least one reason."""
    return obvious(tables) or (
        Violation(
            "packing",
            f"every block of operators fits some device, but no division of the {tables.n} blocks fits all of the "
            f"{tables.problem.cluster.n_devices} devices at once (memory, kinds and order taken together)",
        ),
    )


def obvious(tables: CutTables) -> tuple[Violation, ...]:
    """Return what single blocks, pins and totals show to be impossible; empty if nothing does."""
    return tuple(_pins(tables) or _unhosted(tables) or _too_large(tables) or _total(tables))


def _members(tables: CutTables, b: int) -> tuple[int, str]:
    """Return the first operator of a block, and the block's name for messages."""
    members = np.flatnonzero(tables.block == b)
    label = tables.problem.graph.label(int(members[0]))
    more = len(members) - 1
    return int(members[0]), f"operator {label}" + (f" with the {more} that must stay with it" if more else "")


def _pins(tables: CutTables) -> list[Violation]:
    """Return blocks whose operators are pinned to different devices."""
    graph, cluster = tables.problem.graph, tables.problem.cluster
    home: dict[int, int] = {}
    found = []
    for v in np.flatnonzero(graph.pinned >= 0).tolist():
        u = home.setdefault(int(tables.block[v]), v)
        if graph.pinned[u] != graph.pinned[v]:
            found.append(
                Violation(
                    "pinned",
                    f"operators {graph.label(u)} and {graph.label(v)} must stay together, but are pinned to "
                    f"{cluster.label(int(graph.pinned[u]))} and {cluster.label(int(graph.pinned[v]))}",
                    operator=v,
                    device=int(graph.pinned[v]),
                )
            )
    return found[:MOST]


def _unhosted(tables: CutTables) -> list[Violation]:
    problem, graph, c = tables.problem, tables.problem.graph, tables.problem.configuration
    hosted = np.isfinite(graph.forward[:, c]) & np.isfinite(graph.backward[:, c])
    found = []
    for b in np.flatnonzero(tables.barred.all(axis=0))[:MOST].tolist():
        v, name = _members(tables, b)
        members = np.flatnonzero(tables.block == b)
        pins = problem.graph.pinned[members]
        pin = int(pins.max())
        hosts = [kind for k, kind in enumerate(graph.kinds) if bool(hosted[k, members].all())]
        if pin >= 0:
            why = f"is pinned to {problem.cluster.label(pin)} of kind {problem.cluster.device(pin).kind!r}"
        else:
            why = f"finds no device that hosts all of it (the cluster has kinds {', '.join(problem.cluster.kinds)})"
        found.append(
            Violation(
                "kind",
                f"{name} {why}; it runs on {', '.join(hosts) or 'no kind at all'}",
                operator=v,
                device=pin if pin >= 0 else None,
            )
        )
    return found


def _too_large(tables: CutTables) -> list[Violation]:
    """Return blocks that fit no device which may host them, even with one micro-batch in flight."""
    need = tables.held + tables.kept * _least_flight(tables) + tables.workspace
    room = np.where(tables.barred, -np.inf, tables.capacity[:, None]).max(axis=0)
    found = []
    for b in np.flatnonzero(need > room * (1 + 1e-12))[:MOST].tolist():
        v, name = _members(tables, b)
        best = int(np.argmax(np.where(tables.barred[:, b], -np.inf, tables.capacity)))
        device = tables.type_devices[best][0]
        found.append(
            Violation(
                "memory",
                f"{name} needs {need[b]:.6g} bytes, and the largest device that may host it, "
                f"{tables.problem.cluster.label(device)}, has {room[b]:.6g}",
                operator=v,
                device=device,
                needed=float(need[b]),
                available=float(room[b]),
            )
        )
    return found


def _total(tables: CutTables) -> list[Violation]:
    """Return what all devices together lack."""
    largest = np.sort(np.repeat(tables.capacity, tables.counts))[::-1][: tables.most_stages]
    need = float(tables.held.sum() + tables.kept.sum() * _least_flight(tables))
    room = float(largest.sum())
    if need <= room * (1 + 1e-9):
        return []
    return [
        Violation(
            "memory",
            f"all operators together need {need:.6g} bytes, the {len(largest)} largest devices have {room:.6g}",
            needed=need,
            available=room,
        )
    ]


def _least_flight(tables: CutTables) -> int:
    return min(tables.problem.flight(after) for after in range(tables.problem.cluster.n_devices))
