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
    ObjectiveOption,
)
from balance.cli.parameters import (
    BackendOption,
    ChargeOption,
    ChunksOption,
    ConfigurationOption,
    ContiguityOption,
    DeviceOrderOption,
    FreeKindsOption,
    IdleOption,
    InFlightOption,
    LeavesOption,
    MaxStagesOption,
    MicrobatchesOption,
    OverflowBandwidthOption,
    OverlapOption,
    PresetOption,
    RecomputeOption,
    RegionsOption,
    RoutingOption,
    ScheduleOption,
    SendOption,
    SetOption,
    StateFactorOption,
    problem_settings,
)
from balance.problems.model.errors import OptionError
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
    objective, preset, bandwidth, latency
        As in `balance.solve`, in SI units; None leaves them to the file or the default.
    microbatches, schedule, state_factor, recompute, regions, contiguity, device_order, idle, max_stages, chunks
        Parameters of the problem, as in `balance.solve`.
    overlap, routing, send, charge, free_kinds, in_flight, overflow_bandwidth, leaves, backend, configuration
        As those above.
    settings
        More parameters, as ``NAME=VALUE``.
    """

    file: GraphArgument
    devices: DevicesOption = None
    devices_file: DevicesFileOption = None
    objective: ObjectiveOption = None
    preset: PresetOption = None
    bandwidth: BandwidthOption = None
    latency: LatencyOption = None
    microbatches: MicrobatchesOption = None
    schedule: ScheduleOption = None
    state_factor: StateFactorOption = None
    recompute: RecomputeOption = None
    regions: RegionsOption = None
    contiguity: ContiguityOption = None
    device_order: DeviceOrderOption = None
    idle: IdleOption = None
    max_stages: MaxStagesOption = None
    chunks: ChunksOption = None
    overlap: OverlapOption = None
    routing: RoutingOption = None
    send: SendOption = None
    charge: ChargeOption = None
    free_kinds: FreeKindsOption = None
    in_flight: InFlightOption = None
    overflow_bandwidth: OverflowBandwidthOption = None
    leaves: LeavesOption = None
    backend: BackendOption = None
    configuration: ConfigurationOption = None
    settings: SetOption = None
    format: FormatOption = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the problem that are given, by name; those of `settings` included.

        Raises
        ------
        OptionError
            If a setting is malformed, unknown or given twice.
        """
        # Typer gives an empty list for an option that can be repeated and is not there.
        given = {name: getattr(self, name) for name in OWN_PARAMETERS}
        given = {name: value for name, value in given.items() if value is not None and value != []}
        settings = problem_settings(self.settings or (), {**given, "objective": self.objective})
        return {**given, **settings}

    def problem(self, output: Output) -> Problem:
        """Read the files, state the problem, and pass on what the reader has to say about the numbers.

        Raises
        ------
        BalanceError
            If a file cannot be read or the options do not fit it.
        """
        from balance.question import pose

        parameters = self.parameters()
        objective = parameters.pop("objective", self.objective)
        instance = load_instance(self.file, self.format)
        devices = load_devices(self.devices, self.devices_file)
        if devices is None and instance.cluster is None:
            raise OptionError(f"{self.file} names no devices: give --devices COUNT or --devices-file CLUSTER.json")
        kinds = instance.graph.kinds
        if isinstance(devices, int) and len(kinds) > 1:
            raise OptionError(
                f"--devices {devices} is not clear: {self.file} has costs for the kinds {', '.join(kinds)}; say which "
                f"device is of which kind with --devices-file"
            )
        problem, notes = pose(
            instance,
            devices,
            objective=objective,
            bandwidth=self.bandwidth,
            latency=self.latency,
            parameters=parameters,
            preset=self.preset,
        )
        for note in notes:
            output.note(f"note: {note}")
        return problem


_AROUND = ("file", "format", "devices", "devices_file", "objective", "preset", "bandwidth", "latency", "settings")
NAMED = tuple(field.name for field in dataclasses.fields(Question) if field.name not in ("file", "settings"))
"""What the library takes as an argument and the command as an option of the same name."""
OWN_PARAMETERS = tuple(field.name for field in dataclasses.fields(Question) if field.name not in _AROUND)
"""Parameters of problems that have an option of their own."""


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
