"""Command line: the parameters of a problem, each as an option of its own, and ``--set`` for those without one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from balance.cli import units
from balance.cli.options import QUESTION, parser
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest

_COST = "How it is costed"


def _counts(text: str) -> tuple[int, ...]:
    """Return the whole numbers of a text such as ``4,3,2``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise OptionError(f"{text!r} is no list of whole numbers; write for example 4,3,2")
    return tuple(int(part) for part in parts)


PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="A published cost model, such as device-placement-2020, mtpp or per-edge. Default: the file's own.",
        rich_help_panel=QUESTION,
    ),
]
MicrobatchesOption = Annotated[
    int | None,
    typer.Option("--microbatches", "-m", min=1, help="Micro-batches per step.", rich_help_panel=QUESTION),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="gpipe, 1f1b, interleaved-1f1b or forward-only.",
        rich_help_panel=QUESTION,
    ),
]
StateFactorOption = Annotated[
    float | None,
    typer.Option(
        "--state-factor",
        min=0.0,
        help="Bytes held per parameter byte: 1 in inference, 4 for fp32 Adam.",
        rich_help_panel=QUESTION,
    ),
]
RecomputeOption = Annotated[
    str | None,
    typer.Option("--recompute", metavar="WHEN", help="never, always or choose.", rich_help_panel=QUESTION),
]
RegionsOption = Annotated[
    str | None,
    typer.Option(
        "--regions",
        metavar="HOW",
        help="Parallel regions of a graph that is no chain: refuse, or whole to keep each on one device.",
        rich_help_panel=QUESTION,
    ),
]
ContiguityOption = Annotated[
    str | None,
    typer.Option(
        "--contiguity",
        metavar="HOW",
        help="Of what a device gets of a graph that is no chain: acyclic (a pipeline), convex or none.",
        rich_help_panel=QUESTION,
    ),
]
DeviceOrderOption = Annotated[
    str | None,
    typer.Option(
        "--device-order",
        metavar="ORDER",
        help="given: stages use the devices in the order they are listed; free: in any order.",
        rich_help_panel=QUESTION,
    ),
]
IdleOption = Annotated[
    bool | None,
    typer.Option("--idle/--no-idle", help="Whether devices may stay without work.", rich_help_panel=QUESTION),
]
MaxStagesOption = Annotated[
    int | None,
    typer.Option("--max-stages", min=1, help="Most devices that may be used.", rich_help_panel=QUESTION),
]
ChunksOption = Annotated[
    int | None,
    typer.Option("--chunks", min=1, help="Stages per device, for interleaved-1f1b.", rich_help_panel=QUESTION),
]
OverlapOption = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        metavar="HOW",
        help="sum: communication adds to compute; max: it runs beside it.",
        rich_help_panel=_COST,
    ),
]
RoutingOption = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="HOW",
        help="adjacent: what skips a stage passes through it; direct: it goes straight.",
        rich_help_panel=_COST,
    ),
]
SendOption = Annotated[
    str | None,
    typer.Option(
        "--send",
        metavar="HOW",
        help="each: the sender pays for each stage that receives a tensor; once: a single time.",
        rich_help_panel=_COST,
    ),
]
ChargeOption = Annotated[
    str | None,
    typer.Option(
        "--charge",
        metavar="WHAT",
        help="tensor: a tensor is paid once per device that it touches; edge: once per producer and reader.",
        rich_help_panel=_COST,
    ),
]
FreeKindsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--free-kinds",
        metavar="KIND",
        help="A kind of devices that pays for no communication; repeat it.",
        rich_help_panel=_COST,
    ),
]
InFlightOption = Annotated[
    Any,
    typer.Option(
        "--in-flight",
        metavar="4,3,2",
        parser=parser(_counts),
        help="Micro-batches in flight with 0, 1, 2, ... stages after, instead of the schedule's; the last one repeats.",
        rich_help_panel=_COST,
    ),
]
OverflowBandwidthOption = Annotated[
    float | None,
    typer.Option(
        "--overflow-bandwidth",
        metavar="10GB/s",
        parser=parser(units.bandwidth),
        help="What does not fit the memory is streamed at this bandwidth, with its unit. Default: it must fit.",
        rich_help_panel=_COST,
    ),
]
LeavesOption = Annotated[
    str | None,
    typer.Option(
        "--leaves",
        metavar="HOW",
        help="merge: an operator without any time joins its only neighbour; keep: it does not.",
        rich_help_panel=_COST,
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Whose receive buffers count as memory: none or torch.",
        rich_help_panel=_COST,
    ),
]
ConfigurationOption = Annotated[
    int | None,
    typer.Option("--configuration", min=0, help="Column of the graph's cost tables.", rich_help_panel=_COST),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any parameter of the problem by its name, as 'problems NAME' lists them, with a JSON value in SI units; "
        "repeat it.",
        rich_help_panel=_COST,
    ),
]


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Return values by name from ``NAME=VALUE`` texts; a value that is no JSON is taken as text.

    Raises
    ------
    OptionError
        If a text has no name or no ``=``, or a name comes twice.

    Examples
    --------
    >>> parse_settings(["overlap=max", "in_flight=[2, 1]", "state_factor=4"])
    {'overlap': 'max', 'in_flight': [2, 1], 'state_factor': 4}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise OptionError(f"--set takes NAME=VALUE, got {setting!r}", option="set")
        if name in found:
            raise OptionError(f"--set {name} is given twice", option=name)
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
        except RecursionError:
            raise OptionError(f"the value of --set {name} is nested too deeply", option=name) from None
    return found


def problem_settings(settings: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that ``--set`` gives.

    Parameters
    ----------
    settings
        ``NAME=VALUE`` texts.
    given
        What the options of their own say by the name of the parameter; None where they say nothing.

    Raises
    ------
    OptionError
        If a text is malformed, no problem has a parameter of this name, or an option gives it as well.
    """
    found = parse_settings(settings)
    known = known_parameters() if found else ()
    for name, value in found.items():
        if name.replace("-", "_") in known and name not in known:
            raise OptionError(f"there is no parameter {name!r}: it is {name.replace('-', '_')!r}", option=name)
        if name not in known:
            close = nearest(name, known)
            every = "" if "known:" in close else f"; known: {', '.join(known)}"
            raise OptionError(f"--set {name}: no problem has a parameter of this name{close}{every}", option=name)
        if given.get(name) is not None:
            raise OptionError(f"give --{name.replace('_', '-')} or --set {name}, not both", option=name)
        if value is None:
            raise OptionError(f"--set {name}=null says nothing: leave it out", option=name)
    return found


def known_parameters() -> tuple[str, ...]:
    """Return the name of every parameter of every registered problem, each once."""
    from balance.registry import list_problems

    return tuple(dict.fromkeys(name for kind in list_problems() for name in kind.parameters()))
