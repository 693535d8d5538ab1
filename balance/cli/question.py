"""Command line: the question that ``solve``, ``bound`` and ``compare`` share: a file and what is asked of it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, get_type_hints

from balance.cli.console import Output
from balance.cli.inputs import load_devices, load_instance
from balance.cli.options import (
    BandwidthOption,
    DevicesFileOption,
    DevicesOption,
    FormatOption,
    GraphArgument,
    LatencyOption,
    MicrobatchesOption,
    ObjectiveOption,
    RecomputeOption,
    RegionsOption,
    ScheduleOption,
    StateFactorOption,
)
from balance.problems.model.problem import Problem

Rest = ParamSpec("Rest")


@dataclass(frozen=True)
class Question:
    """What a user asks on the command line; each field is one option.

    Parameters
    ----------
    file
        Graph or instance.
    format
        Its format, or None.
    devices, devices_file
        Devices instead of the file's own.
    objective, bandwidth, latency, microbatches, schedule, state_factor, recompute, regions
        As in `balance.solve`, in SI units; None leaves them to the file or the default.
    """

    file: GraphArgument
    devices: DevicesOption = None
    devices_file: DevicesFileOption = None
    objective: ObjectiveOption = None
    bandwidth: BandwidthOption = None
    latency: LatencyOption = None
    microbatches: MicrobatchesOption = None
    schedule: ScheduleOption = None
    state_factor: StateFactorOption = None
    recompute: RecomputeOption = None
    regions: RegionsOption = None
    format: FormatOption = None

    def problem(self, output: Output) -> Problem:
        """Read the files, state the problem, and pass on what the reader has to say about the numbers.

        Raises
        ------
        BalanceError
            If a file cannot be read or the options do not fit it.
        """
        from balance.front import state_problem

        instance = load_instance(self.file, self.format)
        for note in instance.notes:
            output.note(f"note: {note}")
        return state_problem(
            instance,
            load_devices(self.devices, self.devices_file),
            objective=self.objective,
            bandwidth=self.bandwidth,
            latency=self.latency,
            microbatches=self.microbatches,
            schedule=self.schedule,
            state_factor=self.state_factor,
            recompute=self.recompute,
            regions=self.regions,
        )


def asks(verb: Callable[Concatenate[Question, Rest], None]) -> Callable[..., None]:
    """Give a verb every option of a `Question`; the verb itself takes the question as its first argument."""
    hints = get_type_hints(Question, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(Question)
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    ]

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        question = Question(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        verb(question, **given)  # type: ignore[call-arg]  # the verb's own options, checked by Typer

    # Typer reads the command line off the signature.
    command.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
    return command
