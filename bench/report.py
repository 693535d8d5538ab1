"""Bench room: rows to a page of Markdown; a pure function of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from balance.bench.journal import check_row

Row = Mapping[str, Any]


def report(rows: Iterable[Row]) -> str:
    """Return a Markdown page: the figures against their targets, the solves, the failures, and where they come from.

    Of rows with the same key and version the last one counts. Objectives and bounds are in the unit of the problem,
    which stands beside the objective.

    Raises
    ------
    FormatError
        If something is no row of a campaign.
    """
    latest = {(row["key"], row["version"]): row for row in map(check_row, rows)}
    ordered = sorted(
        latest.values(), key=lambda row: (str(row.get("name")), str(row.get("key")), str(row.get("version")))
    )
    figures = [row for row in ordered if row.get("kind") == "measure" and row.get("figure")]
    failed = [row for row in ordered if row.get("status") in ("failed", "killed")]
    solves = [row for row in ordered if row.get("kind") == "solve" and row not in failed]
    parts = ["# Benchmark report", _origin(ordered)]
    if figures:
        parts += ["## Figures", _figures(figures)]
    if solves:
        parts += ["## Solves", _solves(solves)]
    quality = _quality(solves)
    if quality:
        parts += ["## Bound over objective", quality]
    if failed:
        parts += ["## Failures", _failures(failed)]
    return "\n\n".join(parts) + "\n"


def seconds_text(value: float | None) -> str:
    """Return seconds with a unit that keeps them readable."""
    if value is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} s"


def figure_text(value: float | None, unit: str) -> str:
    """Return a figure in its unit."""
    if value is None:
        return "-"
    return seconds_text(value) if unit == "s" else f"{value / 1e6:.4g} MB"


def _origin(rows: Sequence[Row]) -> str:
    origins: dict[str, int] = {}
    for row in rows:
        made = row.get("provenance") or {}
        versions, machine = made.get("versions", {}), made.get("machine", {})
        tools = ", ".join(f"{name} {number}" for name, number in versions.items())
        where = f"{machine.get('processor') or machine.get('architecture')}, {machine.get('cores')} cores"
        commit = (
            f", commit {made['commit'][:12]}{'+changes' if '+' in made['commit'] else ''}" if made.get("commit") else ""
        )
        text = f"{tools}{commit}, code {made.get('code', 'unknown')}; {where}"
        origins[text] = origins.get(text, 0) + 1
    return "\n".join(f"{count} rows: {text}" for text, count in origins.items()) or "No rows."


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: int = 0) -> str:
    """Return a Markdown table; columns from `right` on are aligned to the right (0: none)."""
    rule = ["---:" if right and i >= right else "---" for i in range(len(columns))]
    lines = [columns, rule, *([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figures(rows: Sequence[Row]) -> str:
    cells = []
    for row in rows:
        figure = row["figure"]
        met = {True: "yes", False: "**no**", None: ""}[figure["met"]]
        limit = "" if figure["limit"] is None else f"< {figure_text(figure['limit'], figure['unit'])}"
        size = ", ".join(f"{key} {value}" for key, value in figure["parameters"].items())
        least, most = (figure_text(pick(figure["samples"]), figure["unit"]) for pick in (min, max))
        cells.append(
            (row["name"], size, figure_text(figure["value"], figure["unit"]), f"{least} to {most}", limit, met)
        )
    return _table(("figure", "size", "median", "range", "target", "met"), cells, right=2)


def _solves(rows: Sequence[Row]) -> str:
    cells = []
    for row in rows:
        gap = row.get("gap")
        objective, bound = row.get("objective"), row.get("bound")
        cells.append(
            (
                row["name"],
                row.get("problem"),
                row.get("solver"),
                row.get("seed"),
                row["status"] + ("" if row.get("stop_reason") in (None, "finished") else f" ({row['stop_reason']})"),
                "-" if objective is None else f"{objective:.6g} {row.get('unit', '')}".rstrip(),
                "-" if bound is None else f"{bound:.6g}",
                "-" if gap is None else f"{100 * gap if abs(gap) > 1e-9 else 0:.3g} %",  # the rest is rounding
                seconds_text(row.get("seconds")),
            )
        )
    columns = ("instance", "problem", "solver", "seed", "status", "objective", "bound", "gap", "time")
    return _table(columns, cells, right=5)


def _quality(rows: Sequence[Row]) -> str:
    """Return, by group of instances (``set/size/law``) and solver, how close bounds come to objectives."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts = str(row["name"]).split("/")
        if len(parts) > 3:
            groups.setdefault(("/".join(parts[:-1]), str(row.get("solver"))), []).append(row)
    cells = []
    for (group, solver), members in sorted(groups.items()):
        solved = [row for row in members if row.get("objective")]
        ratios = [max(float(row.get("bound") or 0.0), 0.0) / float(row["objective"]) for row in solved]
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 0 else 0.0
        optimal = sum(row["status"] == "optimal" for row in solved)
        cells.append((group, solver, len(members), f"{mean:.4f}", f"{min(ratios):.4f}", f"{optimal / len(solved):.0%}"))
    if not cells:
        return ""
    columns = ("group", "solver", "instances", "geometric mean", "least", "proved optimal")
    return _table(columns, cells, right=2)


def _failures(rows: Sequence[Row]) -> str:
    cells = [
        (
            row["key"],
            row["status"],
            (row.get("error") or {}).get("type", ""),
            (row.get("error") or {}).get("message", ""),
        )
        for row in rows
    ]
    return _table(("cell", "status", "error", "message"), cells)
