"""Command line: options that several verbs share, each defined once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from balance.cli import units
from balance.problems.model.errors import OptionError


def _parser(parse: Callable[[str], float]) -> Callable[[str], float]:
    """Turn a unit error into a usage error that names the option."""

    def parsed(text: str) -> float:
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
        if not path.parent.is_dir():
            raise typer.BadParameter(f"the folder {path.parent} does not exist")
    return path


_QUESTION = "What is asked"
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
        "--devices", "-d", min=1, help="Number of equal devices. Default: the file's own.", rich_help_panel=_QUESTION
    ),
]
DevicesFileOption = Annotated[
    Path | None,
    typer.Option(
        "--devices-file",
        metavar="CLUSTER.json",
        help='Cluster, or a list of devices such as [{"kind": "gpu", "count": 4, "memory_bytes": 8e10}].',
        rich_help_panel=_QUESTION,
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="bottleneck, fw-bw-bottleneck, step-time, cost or latency. Default: bottleneck, or the file's own.",
        rich_help_panel=_QUESTION,
    ),
]
BandwidthOption = Annotated[
    float | None,
    typer.Option(
        "--bandwidth",
        metavar="25GB/s",
        parser=_parser(units.bandwidth),
        help="Bandwidth between any two devices, with its unit.",
        rich_help_panel=_QUESTION,
    ),
]
LatencyOption = Annotated[
    float | None,
    typer.Option(
        "--latency",
        metavar="10us",
        parser=_parser(units.seconds),
        help="Latency between any two devices, with its unit.",
        rich_help_panel=_QUESTION,
    ),
]
MicrobatchesOption = Annotated[
    int | None,
    typer.Option("--microbatches", "-m", min=1, help="Micro-batches per step.", rich_help_panel=_QUESTION),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="gpipe, 1f1b, interleaved-1f1b or forward-only.",
        rich_help_panel=_QUESTION,
    ),
]
StateFactorOption = Annotated[
    float | None,
    typer.Option(
        "--state-factor",
        min=0.0,
        help="Bytes held per parameter byte: 1 in inference, 4 for fp32 Adam.",
        rich_help_panel=_QUESTION,
    ),
]
RecomputeOption = Annotated[
    str | None,
    typer.Option("--recompute", metavar="WHEN", help="never, always or choose.", rich_help_panel=_QUESTION),
]
RegionsOption = Annotated[
    str | None,
    typer.Option(
        "--regions",
        metavar="HOW",
        help="Parallel regions of a graph that is no chain: refuse, or whole to keep each on one device.",
        rich_help_panel=_QUESTION,
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
        parser=_parser(units.seconds),
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
