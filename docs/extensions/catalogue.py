"""Sphinx extension: pages on problems, solvers, formats and commands, written from the registries at build time.

A new problem, solver, format or command appears in the documentation without an edit there.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import balance
from balance.problems.formats import list_formats

NOTE = "<!-- Written from the registry when the documentation is built. -->\n"


def first_line(thing: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    cells = [list(heads), ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def directive(name: str, target: str, *options: str) -> str:
    """Return a reStructuredText directive inside a Markdown page."""
    lines = [f".. {name}:: {target}", *(f"   :{option}:" for option in options)]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def solver_rows(problem: type[Any]) -> list[tuple[str, ...]]:
    """Return one row per solver of a problem."""
    return [
        (
            f"`{solver.name}`",
            "yes" if solver.exact else "no",
            "yes" if solver.proves_bound else "no",
            ", ".join(f"`{name}`" for name in solver.needs) or "none",
            first_line(type(solver)),
        )
        for solver in balance.list_solvers(problem.name)
    ]


SOLVER_HEADS = ("solver", "exact", "proves a bound", "needs", "how")


def problem_page(problem: type[Any]) -> str:
    """Return the page of one problem: statement, solvers, lower bounds."""
    wing = f"balance.{problem.name}"
    parts = [
        NOTE,
        f"# {problem.name}\n",
        f"Stated by `{problem.__module__}.{problem.__name__}`, answered in `{wing}`. Objective in "
        f"{problem.objective_unit}. From the command line: `dnn-balance problems {problem.name}`.\n",
        "## Statement\n",
        directive("autoclass", f"{problem.__module__}.{problem.__name__}", "no-members", "no-index"),
        "## Solvers\n",
        table(SOLVER_HEADS, solver_rows(problem)),
    ]
    package = importlib.import_module(wing)
    modules = sorted(entry.name for entry in pkgutil.iter_modules(package.__path__) if not entry.name.startswith("_"))
    parts.append("\n## Modules of the wing\n")
    parts.append(
        table(
            ("module", "what it holds"),
            [(f"`{wing}.{name}`", first_line(importlib.import_module(f"{wing}.{name}"))) for name in modules],
        )
    )
    return "\n".join(parts)


def command_rows(command: Any) -> list[tuple[str, ...]]:
    """Return one row per argument and option of a command."""
    return [
        (", ".join(f"`{word}`" for word in (*row.opts, *row.secondary_opts)), getattr(row, "help", None) or "")
        if row.param_type_name == "option"
        else (f"`{row.make_metavar(None) if not row.metavar else row.metavar}`", getattr(row, "help", None) or "")
        for row in command.params
    ]


def command_sections(command: Any, name: str) -> list[str]:
    """Return the sections of a command and of those below it."""
    below = getattr(command, "commands", {})
    help_text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\f", "")
    parts = [f"## {name}\n", f"{help_text}\n"]
    if command.params:
        parts.append(table(("argument or option", "meaning"), command_rows(command)))
    for key in sorted(below):
        parts.extend(command_sections(below[key], f"{name} {key}"))
    return parts


def command_page() -> str:
    """Return the page of the command line."""
    from typer.main import get_command

    from balance.cli.app import app

    return "\n".join(
        [
            NOTE,
            "# Command line\n",
            "`python -m balance` is the same as `dnn-balance`. Answers go to standard output and everything else to "
            "standard error; with `--json` standard output holds one JSON document. Exit codes: 0 solved or done, 1 "
            "failed, 2 wrong use or bad input, 3 infeasible, 4 nothing found, 130 interrupted.\n",
            *command_sections(get_command(app), "dnn-balance"),
        ]
    )


def pages() -> dict[str, str]:
    """Return every generated page by its path below the documentation's folder."""
    problems = list(balance.list_problems())
    found = {f"problems/{problem.name}.md": problem_page(problem) for problem in problems}
    found["problems/index.md"] = "\n".join(
        [
            NOTE,
            "# Problems\n",
            "What is asked, as formal statements. Each is a frozen dataclass over a graph and a cluster, and its "
            "`evaluate` is the only judge of a solution.\n",
            table(
                ("problem", "objective in", "what is asked"),
                [(f"[{kind.name}]({kind.name}.md)", kind.objective_unit, first_line(kind)) for kind in problems],
            ),
            "\n```{toctree}\n:hidden:\n",
            *(kind.name for kind in problems),
            "```\n",
        ]
    )
    found["solvers.md"] = "\n".join(
        [
            NOTE,
            "# Solvers\n",
            "An exact solver proves its answer when it is given the time. A solver that *proves a bound* reports one "
            "even when it is stopped. `solve(..., solver=NAME)` runs one by name; `dnn-balance solvers` shows this "
            "table.\n",
            *(
                f"## {kind.name}\n\nOf the problem [{kind.name}](problems/{kind.name}.md).\n\n"
                f"{table(SOLVER_HEADS, solver_rows(kind))}"
                for kind in problems
            ),
        ]
    )
    found["formats.md"] = "\n".join(
        [
            NOTE,
            "# File formats\n",
            "`read(path)` finds the format from the file's content, then from its name; `dnn-balance convert` changes "
            "one into another. A broken file gives a `FormatError` with the path and the line or field.\n",
            table(
                ("format", "endings", "written"),
                [
                    (
                        f"[{kind.name}](#{kind.name})",
                        ", ".join(f"`{s}`" for s in kind.suffixes),
                        "yes" if kind.writes else "no",
                    )
                    for kind in list_formats()
                ],
            ),
            *(f"\n## {kind.name}\n\n{kind.description}\n" for kind in list_formats()),
        ]
    )
    found["command-line.md"] = command_page()
    return found


def write_pages(app: Sphinx) -> None:
    """Write what has changed and remove pages of problems that are gone."""
    source = Path(app.srcdir)
    wanted = pages()
    for name, text in wanted.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in sorted((source / "problems").glob("*.md")):
        if path.relative_to(source).as_posix() not in wanted:
            path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", write_pages)
    return {"version": balance.__version__, "parallel_read_safe": True, "parallel_write_safe": True}
