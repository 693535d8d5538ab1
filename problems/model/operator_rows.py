"""Model room: cost graphs operator by operator, from rows to tables and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.errors import GraphError
from balance.problems.model.operators import BYTES, TIMES, Operator
from balance.problems.model.tensors import FloatArray

if TYPE_CHECKING:
    from balance.problems.model.graph import CostGraph


def operator_tables(rows: Sequence[Operator], kinds: Sequence[str] | None) -> dict[str, Any]:
    """Return what the constructor of `CostGraph` takes for these operators, in one configuration.

    Parameters
    ----------
    rows
        The operators.
    kinds
        Device kinds; by default those that the rows name, in the order of appearance.

    Raises
    ------
    GraphError
        If a cell is no number, a kind is not among `kinds`, or some operators only have the parts of the backward pass.
    """
    seen = dict.fromkeys(k for row in rows for t in TIMES for k in _mapping_keys(getattr(row, t)))
    kind_names = tuple(kinds) if kinds is not None else (tuple(seen) or ("device",))
    unknown = [k for k in seen if k not in kind_names]
    if unknown:
        raise GraphError(f"costs are given for kind {unknown[0]!r}, which is not among the kinds {kind_names}")
    tables: dict[str, Any] = {key: _seconds(rows, key, kind_names) for key in TIMES}
    for key in BYTES:
        tables[key] = np.array([_real(getattr(row, key), row.name, key) for row in rows], dtype=np.float64)
    return {
        **tables,
        "kinds": kind_names,
        "names": [row.name for row in rows],
        "colocation": [row.colocation for row in rows],
        "pinned": [row.pinned for row in rows],
        "is_backward": [row.is_backward for row in rows],
    }


def operator_row(graph: CostGraph, i: int) -> Operator:
    """Return operator `i` with the costs of the first configuration on the kinds that host it."""
    hosts = graph.hosts[:, 0, i]

    def times(table: FloatArray | None) -> dict[str, float] | None:
        if table is None:
            return None
        return {kind: float(table[k, 0, i]) for k, kind in enumerate(graph.kinds) if hosts[k]}

    label, pin = int(graph.colocation[i]), int(graph.pinned[i])
    return Operator(
        name=graph.names[i] if graph.names is not None else f"#{i}",
        forward=times(graph.forward) or {},
        backward=times(graph.backward) or {},
        backward_input=times(graph.backward_input),
        backward_weight=times(graph.backward_weight),
        **{key: float(getattr(graph, key)[0, i]) for key in BYTES},
        colocation=None if label < 0 else label,
        pinned=None if pin < 0 else pin,
        is_backward=bool(graph.is_backward[i]),
    )


def _seconds(rows: Sequence[Operator], key: str, kinds: tuple[str, ...]) -> FloatArray | None:
    """Return a table of seconds, shape (K, n), or None where no operator has this part of the backward pass."""
    cells = [getattr(row, key) for row in rows]
    without = [i for i, cell in enumerate(cells) if cell is None]
    if without and len(without) == len(cells) and key in ("backward_input", "backward_weight"):
        return None
    if without:
        raise GraphError(
            f"operator {rows[without[0]].name!r} has no {key}; give it for every operator", operator=without[0]
        )
    table = np.empty((len(kinds), len(rows)))
    for i, cell in enumerate(cells):
        for k, kind in enumerate(kinds):
            value = cell.get(kind, np.inf) if isinstance(cell, Mapping) else cell
            table[k, i] = _real(value, rows[i].name, key)
    return table if rows or key in ("forward", "backward") else None


def _real(value: Any, name: str, key: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"operator {name!r} has {key} = {value!r}, which is not a number", field=key) from None


def _mapping_keys(cell: Any) -> list[str]:
    return list(cell) if isinstance(cell, Mapping) else []
