"""Command line: ``convert`` between file formats and ``generate`` instances."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from balance.cli.console import Output
from balance.cli.inputs import load_instance, load_plan
from balance.cli.listing import first_line
from balance.cli.options import FormatOption, GraphArgument, JsonOption, file_to_write
from balance.cli.parameters import parse_settings
from balance.problems.formats import list_formats, write
from balance.problems.instance import Instance
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest


def convert(
    file: GraphArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", callback=file_to_write, help="File to write.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help="Format to write; by OUT's ending by default.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="PLAN", help="Plan or result to write along, in formats that hold one."),
    ] = None,
    format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a graph or instance and write it in another format."""
    output = Output(as_json)
    to = format_to_write(out, to)
    instance = load_instance(file, format)
    for note in instance.notes:
        output.note(f"note: {note}")
    lost = write(instance, out, to, solution=None if plan is None else load_plan(plan, instance.graph).plan)
    for loss in lost:
        output.note(f"lost: {loss}")
    output.data(
        {
            "in": file,
            "format": instance.format,
            "out": out,
            "lost": list(lost),
            "operators": instance.graph.n_operators,
            "tensors": instance.graph.n_tensors,
            "hash": instance.graph.hash,
        }
    )
    output.text(
        f"{instance.graph.n_operators} operators and {instance.graph.n_tensors} tensors from {file} "
        f"({instance.format}) to {out}"
    )


def generate(
    family: Annotated[
        str | None, typer.Argument(metavar="FAMILY", help="Which generator; without it they are listed.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="An argument of the generator; repeat it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="OUT", callback=file_to_write, help="File to write. Default: only describe it."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help="Format to write; by OUT's ending by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an instance of a seeded family, or list the families and their arguments."""
    output = Output(as_json)
    known = generators()
    if family is None:
        output.data(
            [{"name": name, "about": first_line(make), "arguments": _shown(make)} for name, make in known.items()]
        )
        output.table(
            ("family", "what it is", "arguments"),
            [
                (name, first_line(make), " ".join(f"{k}={v}" for k, v in _shown(make).items()))
                for name, make in known.items()
            ],
        )
        return
    if family not in known:
        raise OptionError(f"there is no family {family!r}{nearest(family, known)}")
    if out is not None:
        to = format_to_write(out, to)
    made = known[family](**parse_arguments(known[family], settings or []))
    instance = made if isinstance(made, Instance) else Instance(made, name=made.name)
    if out is not None:
        for loss in write(instance, out, to):
            output.note(f"lost: {loss}")
        output.note(f"written to {out}")
    graph = instance.graph
    output.data({"family": family, "operators": graph.n_operators, "tensors": graph.n_tensors, "hash": graph.hash})
    output.text(instance.summary())


def format_to_write(out: Path, to: str | None) -> str:
    """Return the name of the format to write: `to`, or the one that a file's ending stands for.

    Raises
    ------
    OptionError
        If no format that can be written has this name, or none is known by this ending.
    """
    known = {format.name: format for format in list_formats() if format.writes}
    if to is not None:
        if to not in known:
            raise OptionError(f"there is no format {to!r} that can be written{nearest(to, known)}", option="to")
        return to
    by_ending: dict[str, str] = {}
    for name, format in known.items():
        for ending in format.suffixes:
            by_ending.setdefault(ending, name)  # as in `write`: the first one is meant
    ending = out.suffix.lower()
    if ending not in by_ending:
        endings = ", ".join(f"{ending} ({name})" for ending, name in by_ending.items())
        how = f"ends in {ending!r}, which stands for no format" if ending else "has no ending that stands for a format"
        raise OptionError(f"{out} {how}: use {endings}, or say which with --to: {', '.join(known)}", option="to")
    return by_ending[ending]


def generators() -> dict[str, Callable[..., Any]]:
    """Return the generators of `balance.problems.instances` by name."""
    from balance.problems import instances

    return {generator.name: generator.make for generator in instances.list_generators()}


def _shown(make: Callable[..., Any]) -> dict[str, str]:
    parameters = inspect.signature(make).parameters.values()
    return {p.name: "..." if p.default is inspect.Parameter.empty else repr(p.default) for p in parameters}


def parse_arguments(make: Callable[..., Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return keyword arguments of a generator from ``name=value`` texts; values are numbers, booleans, null or text.

    Raises
    ------
    OptionError
        If a text has no ``=``, the generator has no such argument, or one that it needs is missing.
    """
    parameters = inspect.signature(make).parameters
    found: dict[str, Any] = {}
    for name, value in parse_settings(settings).items():
        if name not in parameters:
            raise OptionError(f"{make.__name__} has no argument {name!r}{nearest(name, parameters)}")
        found[name] = value
    missing = [p.name for p in parameters.values() if p.default is inspect.Parameter.empty and p.name not in found]
    if missing:
        raise OptionError(f"{make.__name__} needs --set {missing[0]}=...")
    return found
