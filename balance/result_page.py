"""Front door: a result as people read it: the page of `Result.summary` and the rows of its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.limits import StopReason
from balance.problems.model.plan import Assignment, Plan
from balance.status import Status
from balance.wording import show_bytes, show_seconds, show_share, show_table

if TYPE_CHECKING:
    from balance.result import Result

MOST_ROWS = 40
"""Stages or devices on a page before the middle ones are left out."""

MOST_RUNS = 3
"""Runs of operators in a cell before the others are counted."""

_FRAME_ONLY = ("count", "forward", "backward", "received", "sent", "in_flight")
_SHOWN = {"load": show_seconds, "memory": show_bytes, "memory_available": show_bytes, "overflow": show_seconds}


def summary_page(result: Result) -> str:
    """Return status, objective, bound and gap, solver, and stages, devices or the reasons, a line each."""
    lines = [_headline(result)]
    if result.status is not Status.infeasible:
        proof = f" ({result.bound_name})" if result.bound_name and math.isfinite(result.bound) else ""
        lines.append(f"bound   {_value(result, result.bound)}{proof}, gap {show_share(result.gap)}")
    why = result.provenance.get("why")
    lines.append(f"solver  {result.solver or '-'} in {show_seconds(result.seconds)}{f': {why}' if why else ''}")
    lines.extend(f"note    {note}" for note in result.provenance.get("notes", ()))
    lines.extend(f"reason  {reason.message}" for reason in result.reasons)
    lines.extend(_table_lines(result))
    return "\n".join(lines)


def table_rows(result: Result) -> list[dict[str, Any]]:
    """Return what each part of the solution holds and the evaluator's figures for it.

    A part is a stage of a plan, a used device of an assignment, and for other solutions an entry of the evaluator's
    columns.
    """
    if result.solution is None:
        return []
    figures = {} if result.evaluation is None else result.evaluation.breakdown
    label = result.problem.cluster.label
    if isinstance(result.solution, Plan):
        stages = result.solution.stages
        parts = [
            {
                "stage": s,
                "operators": _runs(result, stage.operators),
                "count": len(stage.operators),
                "device": ", ".join(label(d).strip("'") for d in stage.devices),
                **({"recompute": stage.recompute} if any(other.recompute for other in stages) else {}),
            }
            for s, stage in enumerate(stages)
        ]
    elif isinstance(result.solution, Assignment):
        order = np.argsort(result.solution.device, kind="stable")
        used, first = np.unique(result.solution.device[order], return_index=True)
        held = np.split(order, first[1:]) if len(used) else []
        parts = [
            {"device": label(d).strip("'"), "operators": _runs(result, own), "count": len(own)}
            for d, own in zip(used.tolist(), held, strict=True)
        ]
        if len(used) < (every := result.problem.cluster.n_devices):  # figures of every device: those of the used ones
            figures = {key: column[used] if np.shape(column) == (every,) else column for key, column in figures.items()}
    else:
        size = max((len(column) for column in figures.values() if np.ndim(column) == 1), default=0)
        parts = [{"part": i} for i in range(size)]
    columns = {key: column for key, column in figures.items() if np.shape(column) == (len(parts),)}
    return [
        {**part, **{key: _scalar(column[i]) for key, column in columns.items() if key not in part}}
        for i, part in enumerate(parts)
    ]


def _headline(result: Result) -> str:
    because = "" if result.stop_reason is StopReason.finished else f" ({str(result.stop_reason).replace('_', ' ')})"
    if result.objective is None:
        return f"{result.status}{because}: {'no solution exists' if result.reasons else 'no solution was found'}"
    rate = _rate(result, result.objective)
    return f"{result.status}{because}: {_value(result, result.objective)}{f', {rate}' if rate else ''}"


def _value(result: Result, value: float) -> str:
    unit = result.problem.objective_unit
    if unit == "s" or not math.isfinite(value):
        return show_seconds(value)
    return f"{value:.6g} {unit}".rstrip()


def _rate(result: Result, seconds: float) -> str:
    """Return the steady throughput behind a bottleneck."""
    asked = getattr(result.problem, "objective", "")
    if asked not in ("bottleneck", "fw-bw-bottleneck") or not seconds or not math.isfinite(seconds):
        return ""
    size = result.solution.microbatch_size if isinstance(result.solution, Plan) else None
    count, what = (1.0, "micro-batches/s") if size is None else (size, "samples/s")
    return f"{count / seconds:.6g} {what}"


def _table_lines(result: Result) -> list[str]:
    rows = table_rows(result)
    if not rows:
        return []
    heads = [key for key in rows[0] if key not in _FRAME_ONLY]
    cells = [_cells(row, heads) for row in rows]
    if len(cells) > MOST_ROWS:
        half = MOST_ROWS // 2
        cells = [*cells[:half], ["..."] + [""] * (len(heads) - 1), *cells[-half:]]
    titles = [{"memory_available": "of"}.get(key, key) for key in heads]
    return ["", *show_table(titles, cells, right=("stage", "part", "load", "memory", "of", "overflow"))]


def _cells(row: Mapping[str, Any], heads: list[str]) -> list[str]:
    return [_SHOWN.get(key, str)(row[key]) for key in heads]


def _runs(result: Result, operators: Any) -> str:
    """Return operators as runs of neighbours in the graph's order, such as ``0..3, 7``."""
    ids = np.sort(np.asarray(operators, dtype=np.int64))
    if not len(ids):
        return "none"
    names = result.problem.graph.names

    def show(first: int, last: int) -> str:
        if names is not None:
            return names[first] if first == last else f"{names[first]} .. {names[last]}"
        return str(first) if first == last else f"{first}..{last}"

    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    text = ", ".join(show(int(run[0]), int(run[-1])) for run in runs[:MOST_RUNS])
    left = sum(len(run) for run in runs[MOST_RUNS:])
    return f"{text} and {left} more" if left else text


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
