"""Command line: ``problems``, ``solvers`` and ``formats``, what there is."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from balance.cli.console import Output
from balance.cli.options import JsonOption
from balance.problems.formats import list_formats
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def _default(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else list(value)


def problems(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the whole statement of this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the formal problems, or show the statement of one."""
    from balance import list_problems

    kinds = {kind.name: kind for kind in list_problems()}
    output = Output(as_json)
    if name is not None:
        if name not in kinds:
            raise OptionError(f"there is no problem {name!r}{nearest(name, kinds)}")
        kind = kinds[name]
        statement = inspect.getdoc(kind) or ""
        defaults = {key: _default(field.default) for key, field in kind.parameters().items()}
        output.data({"name": name, "statement": statement, "parameters": defaults})
        output.text(statement)
        return
    rows = [(kind.name, kind.objective_unit, first_line(kind)) for kind in kinds.values()]
    output.data([{"name": key, "unit": unit, "about": about} for key, unit, about in rows])
    output.table(("problem", "unit", "what is asked"), rows)


def solvers(
    problem: Annotated[str | None, typer.Argument(metavar="PROBLEM", help="Only solvers of this problem.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the solvers, and what each of them proves and needs."""
    from balance import list_solvers

    output = Output(as_json)
    found = list_solvers() if problem is None else list_solvers(problem)
    cells: list[dict[str, Any]] = [
        {
            "problem": solver.problem.name,
            "name": solver.name,
            "exact": solver.exact,
            "proves_bound": solver.proves_bound,
            "needs": list(solver.needs),
            "about": first_line(type(solver)),
        }
        for solver in found
    ]
    output.data(cells)
    output.table(
        ("problem", "solver", "exact", "bound", "needs", "how"),
        [
            (
                cell["problem"],
                cell["name"],
                "yes" if cell["exact"] else "no",
                "yes" if cell["proves_bound"] else "no",
                ", ".join(cell["needs"]),
                cell["about"],
            )
            for cell in cells
        ],
    )


def formats(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show what is kept and lost by this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the file formats, or describe one."""
    known = {format.name: format for format in list_formats()}
    if name is not None and name not in known:
        raise OptionError(f"there is no file format {name!r}{nearest(name, known)}")
    shown = list(known.values()) if name is None else [known[name]]
    output = Output(as_json)
    output.data(
        [
            {
                "name": format.name,
                "suffixes": list(format.suffixes),
                "writes": format.writes,
                "description": format.description,
            }
            for format in shown
        ]
    )
    if name is not None:
        output.text(known[name].description)
        return
    output.table(
        ("format", "endings", "written", "what it is"),
        [
            (
                format.name,
                " ".join(format.suffixes),
                "yes" if format.writes else "no",
                " ".join(format.description.split(". ", 1)[0].split()).rstrip(".") + ".",
            )
            for format in shown
        ],
    )
