"""Command line: the verbs, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from balance.cli import checking, doctor, files, listing, running, schedules, solving
from balance.cli.benching import bench_app
from balance.cli.console import Output
from balance.cli.errors import CommandGroup, context_settings

app = typer.Typer(
    cls=CommandGroup,
    help="Split a neural network over devices, and know how good the split is.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings=context_settings(),
    epilog="Exit codes: 0 solved or done, 1 failed, 2 wrong use or bad input, 3 infeasible, 4 nothing found, "
    "130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        from balance.bench.provenance import versions

        Output().text(f"dnn-balance {versions().get('dnn-balance', '(not installed)')}")
        raise typer.Exit


@app.callback()
def _top(
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error was raised instead of a sentence.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Split a neural network over devices, and know how good the split is."""


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Answer": (solving.solve, checking.check, solving.bound, solving.compare),
    "Look": (schedules.simulate, schedules.plot, listing.problems, listing.solvers, listing.formats),
    "Files": (files.convert, files.generate),
    "Devices": (running.profile, running.run),
    "This installation": (doctor.doctor,),
}

for _panel, _verbs in _PANELS.items():
    for _verb in _verbs:
        app.command(_verb.__name__, rich_help_panel=_panel)(_verb)
app.add_typer(bench_app, rich_help_panel="This installation")
