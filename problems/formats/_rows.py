"""Format room: nodes and edges as rows of a JSON file, and the text of such files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from balance.problems.model.errors import FormatError
from balance.problems.model.fields import Fields, plain
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import IntArray


def node_rows(top: Fields) -> tuple[list[Fields], list[int], dict[int, int]]:
    """Return the rows of `nodes`, their ids, and the position of each id.

    Raises
    ------
    FormatError
        If there are none, or an id is missing, no whole number or doubled.
    """
    rows = [Fields(row, f"nodes[{i}]") for i, row in enumerate(top.items("nodes"))]
    if not rows:
        top.fail("nodes", "is empty")
    ids = [row.integer("id", least=None) for row in rows]
    index: dict[int, int] = {}
    for i, node in enumerate(ids):
        if index.setdefault(node, i) != i:
            rows[i].fail("id", f"is {node}, which nodes[{index[node]}] has already")
    return rows, ids, index


def edge_rows(top: Fields, index: Mapping[int, int]) -> list[tuple[Fields, int, int]]:
    """Return the rows of `edges` with the positions of their ends.

    Raises
    ------
    FormatError
        If an end dangles, or an edge joins a node to itself.
    """
    rows = []
    for i, data in enumerate(top.items("edges")):
        row = Fields(data, f"edges[{i}]")
        ends = []
        for key in ("sourceId", "destId"):
            node = row.integer(key, least=None)
            if node not in index:
                row.fail(key, f"names node {node}, which does not exist")
            ends.append(index[node])
        if ends[0] == ends[1]:
            row.fail("destId", f"joins node {row.data['destId']} to itself")
        rows.append((row, ends[0], ends[1]))
    return rows


def other_fields(row: Fields, known: Sequence[str]) -> dict[str, Any]:
    """Return the fields that the model has no place for, after a check that they can be written again."""
    return {key: plain(value, row.path(key)) for key, value in row.data.items() if key not in known}


def dumped(data: Any, *, indent: int | None = None) -> str:
    """Return the text of a JSON file; without `indent` on one line.

    Raises
    ------
    FormatError
        If it holds what JSON cannot express: a graph's `source` may hold anything.
    """
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(data, allow_nan=False, indent=indent, separators=separators) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"holds a value that JSON cannot express: {error}", field="source") from None


def plan_stages(graph: CostGraph, plan: Plan) -> IntArray:
    """Return the stage of every operator, -1 for one that is in none.

    Raises
    ------
    FormatError
        If the plan is of a larger graph.
    """
    n = graph.n_operators
    if max((int(stage.operators.max(initial=-1)) for stage in plan.stages), default=-1) >= n:
        raise FormatError(f"the plan holds operators that the graph of {n} operators does not have")
    return plan.stage_of(n)
