"""Command line: options that several verbs share, each defined once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from balance.cli import units
from balance.problems.model.errors import OptionError

Parsed = TypeVar("Parsed")


def parser(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Turn a unit error into a usage error that names the option."""

    def parsed(text: str) -> Parsed:
        try:
            return parse(str(text))
        except OptionError as error:
            raise typer.BadParameter(str(error)) from None

    return parsed


def file_to_write(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work, not after it; a callback of options and arguments."""
    if path is not None:
        if path.is_dir():
            raise typer.BadParameter(f"{path} is a folder")
        folder = path.parent
        if not folder.is_dir():
            raise typer.BadParameter(
                f"{folder} is no folder" if folder.exists() else f"the folder {folder} does not exist"
            )
        if not os.access(folder, os.W_OK):
            raise typer.BadParameter(f"the folder {folder} cannot be written")
    return path


def folder_to_fill(path: Path | None) -> Path | None:
    """Refuse a folder that cannot be made or filled before the work, not after it; a callback of options."""
    if path is not None:
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not there.is_dir():
            raise typer.BadParameter(f"{there} is no folder")
        if not os.access(there, os.W_OK):
            raise typer.BadParameter(f"the folder {there} cannot be written")
    return path


MOST_DEVICES = 100_000
"""Equal devices that are made up from a number; more of them need a file."""

QUESTION = "What is asked"
_SEARCH = "How it is searched"
_FILES = "Files"

GraphArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Graph or instance, in any format that 'formats' lists.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Format of FILE; found out from its content by default.")
]

DevicesOption = Annotated[
    int | None,
    typer.Option(
        "--devices",
        "-d",
        min=1,
        max=MOST_DEVICES,
        help="Number of equal devices. Default: the file's own.",
        rich_help_panel=QUESTION,
    ),
]
DevicesFileOption = Annotated[
    Path | None,
    typer.Option(
        "--devices-file",
        metavar="CLUSTER.json",
        help='Cluster, or a list of devices such as [{"kind": "gpu", "count": 4, "memory_bytes": 8e10}].',
        rich_help_panel=QUESTION,
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="bottleneck, fw-bw-bottleneck, step-time, cost or latency. Default: bottleneck, or the file's own.",
        rich_help_panel=QUESTION,
    ),
]
BandwidthOption = Annotated[
    float | None,
    typer.Option(
        "--bandwidth",
        metavar="25GB/s",
        parser=parser(units.bandwidth),
        help="Bandwidth between any two devices, with its unit.",
        rich_help_panel=QUESTION,
    ),
]
LatencyOption = Annotated[
    float | None,
    typer.Option(
        "--latency",
        metavar="10us",
        parser=parser(units.seconds),
        help="Latency between any two devices, with its unit.",
        rich_help_panel=QUESTION,
    ),
]
SolverOption = Annotated[
    str, typer.Option("--solver", metavar="NAME", help="A solver that 'solvers' lists.", rich_help_panel=_SEARCH)
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        "-t",
        metavar="30s",
        parser=parser(units.seconds),
        help="Stop after this long with the best plan found, with its unit.",
        rich_help_panel=_SEARCH,
    ),
]
GapOption = Annotated[
    float,
    typer.Option(
        "--gap", min=0.0, help="Stop when objective and bound are this close, relatively.", rich_help_panel=_SEARCH
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random choice.", rich_help_panel=_SEARCH)]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; 1 is deterministic. Default: all cores.", rich_help_panel=_SEARCH),
]
NodeLimitOption = Annotated[
    int | None,
    typer.Option("--node-limit", min=1, help="Search nodes after which a tree search stops.", rich_help_panel=_SEARCH),
]
IncumbentOption = Annotated[
    Path | None,
    typer.Option(
        "--incumbent",
        metavar="PLAN",
        help="Plan or result file to start from; the answer is never worse.",
        rich_help_panel=_SEARCH,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]

SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="RESULT.json",
        callback=file_to_write,
        help="Write the whole result here.",
        rich_help_panel=_FILES,
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="PLAN.json",
        callback=file_to_write,
        help="Write the plan alone here.",
        rich_help_panel=_FILES,
    ),
]
