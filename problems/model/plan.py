"""Model room: plans (stages in pipeline order) and assignments (operators to devices, no order)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import FormatError, PlanError, ScheduleError
from balance.problems.model.fields import Fields, integer, number
from balance.problems.model.tensors import IntArray, frozen, positions

if TYPE_CHECKING:
    from balance.problems.model.schedule import Schedule

SCHEMA = "dnn-balance/plan"
VERSION = 1
LARGEST_STAGE = 50_000_000
"""Operators; a file that asks for more is refused instead of filling the memory."""


@dataclass(frozen=True)
class Replica:
    """One copy of a stage.

    Parameters
    ----------
    devices
        Devices that run it together; more than one is a tensor-parallel group.
    share
        Its part of each micro-batch; the shares of a stage's replicas add up to 1.
    """

    devices: tuple[int, ...]
    share: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(int(d) for d in self.devices))
        if not self.devices or min(self.devices) < 0 or len(set(self.devices)) != len(self.devices):
            raise PlanError(f"a replica needs distinct device indices, at least one, got {self.devices}")
        if not 0 < self.share <= 1:
            raise PlanError(f"a replica's share of the micro-batch must be in (0, 1], got {self.share}")


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a pipeline.

    Parameters
    ----------
    operators
        Sorted operator positions, shape (size,); may be empty where the problem allows it.
    replicas
        Its copies.
    configuration
        Column of the graph's cost tables: one for all operators, or shape (size,).
    recompute
        Whether the stage keeps only its inputs and computes its activations again in the backward pass.
    evict_to
        Stage that holds this stage's evicted activations, or None.

    Raises
    ------
    PlanError
        If operators repeat, shares do not add up to 1 or a device serves two replicas.
    """

    operators: IntArray
    replicas: tuple[Replica, ...]
    configuration: int | IntArray = 0
    recompute: bool = False
    evict_to: int | None = None

    def __post_init__(self) -> None:
        operators = positions(self.operators, "operators of a stage", PlanError)
        if len(operators) > 1 and not bool((operators[1:] > operators[:-1]).all()):
            operators = np.sort(operators)
            if bool((operators[1:] == operators[:-1]).any()):
                at = int(np.argmax(operators[1:] == operators[:-1]))
                raise PlanError(f"operator {int(operators[at])} is twice in one stage", operator=int(operators[at]))
        object.__setattr__(self, "operators", frozen(operators, np.int64))
        object.__setattr__(self, "replicas", tuple(self.replicas))
        if not self.replicas:
            raise PlanError("a stage needs at least one replica, that is one device")
        total = sum(replica.share for replica in self.replicas)
        if abs(total - 1.0) > 1e-9:
            raise PlanError(f"the shares of a stage's replicas add up to {total:.12g}, not to 1")
        devices = [d for replica in self.replicas for d in replica.devices]
        if len(set(devices)) != len(devices):
            raise PlanError(f"a device serves two replicas of one stage: {devices}")
        if not isinstance(self.configuration, (int, np.integer)):
            columns = positions(self.configuration, "configurations of a stage", PlanError)
            if columns.shape != operators.shape:
                raise PlanError(f"{len(columns)} configurations for the {len(operators)} operators of a stage")
            object.__setattr__(self, "configuration", columns)
        else:
            object.__setattr__(self, "configuration", int(self.configuration))

    @property
    def devices(self) -> tuple[int, ...]:
        """Every device of the stage, replica by replica."""
        return tuple(d for replica in self.replicas for d in replica.devices)

    @property
    def device(self) -> int:
        """The device of a stage that has only one.

        Raises
        ------
        PlanError
            If it has several.
        """
        if len(self.devices) != 1:
            raise PlanError(f"the stage runs on {len(self.devices)} devices, not on one")
        return self.devices[0]

    @property
    def columns(self) -> IntArray:
        """Configuration of each operator, shape (size,)."""
        return np.broadcast_to(np.asarray(self.configuration, dtype=np.int64), self.operators.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stage) and self.to_json() == other.to_json()

    def __reduce__(self) -> tuple[Any, ...]:  # through the constructor: arrays are pickled without their read-only flag
        return (Stage, (self.operators, self.replicas, self.configuration, self.recompute, self.evict_to))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; consecutive operators are written as one range."""
        operators: Any = self.operators.tolist()
        if len(operators) > 2 and operators[-1] - operators[0] == len(operators) - 1:
            operators = {"first": operators[0], "last": operators[-1]}
        single = isinstance(self.configuration, int)
        return {
            "operators": operators,
            "replicas": [{"devices": list(r.devices), "share": r.share} for r in self.replicas],
            "configuration": self.configuration if single else np.asarray(self.configuration).tolist(),
            "recompute": self.recompute,
            "evict_to": self.evict_to,
        }


@dataclass(frozen=True, eq=False)
class Plan:
    """Stages in pipeline order, with how they are run.

    Parameters
    ----------
    stages
        The stages; one device may hold several of them.
    microbatches
        Micro-batches per step.
    microbatch_size
        Samples per micro-batch, or None when unknown.
    schedule
        Name of a schedule template, or a `Schedule`.

    Raises
    ------
    PlanError
        If there is no stage, an operator is in two stages, or a number is out of range.

    Examples
    --------
    >>> plan = Plan.chain([0, 2, 5])
    >>> [stage.operators.tolist() for stage in plan.stages], plan.devices
    ([[0, 1], [2, 3, 4]], [0, 1])
    """

    stages: tuple[Stage, ...]
    microbatches: int = 1
    microbatch_size: float | None = None
    schedule: str | Schedule = "1f1b"

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.stages:
            raise PlanError("a plan needs at least one stage")
        if self.microbatches < 1:
            raise PlanError(f"a plan needs at least one micro-batch, got {self.microbatches}")
        if self.microbatch_size is not None and not 0 < self.microbatch_size < float("inf"):
            raise PlanError(f"the micro-batch size must be positive, got {self.microbatch_size}")
        everything = np.concatenate([stage.operators for stage in self.stages])
        if len(everything) and everything.min() < 0:
            raise PlanError(f"operator positions are not negative, got {int(everything.min())}")
        ordered = np.sort(everything)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            v = int(ordered[int(np.argmax(twice))])
            homes = [s for s, stage in enumerate(self.stages) if v in stage.operators]
            raise PlanError(f"operator {v} is in stages {homes[0]} and {homes[1]}", operator=v)
        for s, stage in enumerate(self.stages):
            if stage.evict_to is not None and not (0 <= stage.evict_to < len(self.stages) and stage.evict_to != s):
                raise PlanError(f"stage {s} evicts to stage {stage.evict_to}, which is not another stage")

    @classmethod
    def chain(
        cls,
        cuts: Sequence[int] | IntArray,
        devices: Sequence[int] | None = None,
        *,
        order: IntArray | None = None,
        recompute: Sequence[bool] | None = None,
        configuration: int = 0,
        microbatches: int = 1,
        microbatch_size: float | None = None,
        schedule: str | Schedule = "1f1b",
    ) -> Plan:
        """Build a plan of consecutive operators.

        Parameters
        ----------
        cuts
            Stage boundaries ``0 = q_0 <= q_1 <= ... <= q_p = n``; stage b holds positions ``q_b .. q_{b+1} - 1``.
        devices
            Device of each stage; 0, 1, ... by default.
        order
            Operator at each position; the operators' own order by default.
        recompute
            Whether each stage recomputes.
        configuration
            Column of the graph's cost tables, the same for all stages.
        microbatches, microbatch_size, schedule
            As in `Plan`.

        Raises
        ------
        PlanError
            If the cuts do not rise from 0 or lengths disagree.
        """
        bounds = np.asarray(cuts, dtype=np.int64)
        if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or bool((np.diff(bounds) < 0).any()):
            raise PlanError(f"cuts rise from 0 to the number of operators, got {bounds.tolist()}")
        p = len(bounds) - 1
        places = list(range(p)) if devices is None else [int(d) for d in devices]
        if len(places) != p or (recompute is not None and len(recompute) != p):
            raise PlanError(f"{p} stages need {p} devices and recompute flags, got {len(places)}")
        ids = np.arange(bounds[-1]) if order is None else np.asarray(order)
        return cls(
            tuple(
                Stage(
                    ids[bounds[b] : bounds[b + 1]],
                    (Replica((places[b],)),),
                    configuration,
                    recompute=bool(recompute[b]) if recompute is not None else False,
                )
                for b in range(p)
            ),
            microbatches=microbatches,
            microbatch_size=microbatch_size,
            schedule=schedule,
        )

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def devices(self) -> list[int]:
        """Device of each stage; for plans without replicas.

        Raises
        ------
        PlanError
            If a stage runs on several devices.
        """
        return [stage.device for stage in self.stages]

    def stage_of(self, n: int) -> IntArray:
        """Return the stage of each of n operators, shape (n,); -1 where none holds it."""
        result = np.full(n, -1, dtype=np.int64)
        for s, stage in enumerate(self.stages):
            result[stage.operators[stage.operators < n]] = s
        return result

    def replace(self, **changes: Any) -> Plan:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version."""
        schedule = self.schedule if isinstance(self.schedule, str) else self.schedule.to_json()
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "stages": [stage.to_json() for stage in self.stages],
            "microbatches": self.microbatches,
            "microbatch_size": self.microbatch_size,
            "schedule": schedule,
        }

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed, or the plan breaks a rule.
        """
        top = Fields(data)
        top.schema(SCHEMA, VERSION)
        schedule = top.take("schedule", "1f1b")
        if not isinstance(schedule, str):
            from balance.problems.model.schedule import Schedule

            try:
                schedule = Schedule.from_json(schedule)
            except ScheduleError as error:
                raise FormatError(error.message, field="schedule", **error.facts) from None
        try:
            plan = cls(
                tuple(_stage(row, i) for i, row in enumerate(top.items("stages"))),
                microbatches=top.integer("microbatches", 1, least=1),
                microbatch_size=top.number("microbatch_size", None),
                schedule=schedule,
            )
        except PlanError as error:
            raise FormatError(error.message, **error.facts) from None
        top.done()
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON; the file is replaced only when the new one is complete."""
        from balance.problems.model.files import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote.

        Raises
        ------
        FormatError
            If the file is not such a plan.
        """
        from balance.problems.model.files import read_json

        return read_json(path, cls.from_json)


def _stage(data: Any, i: int) -> Stage:
    row = Fields(data, f"stages[{i}]")
    operators = row.take("operators")
    ids: NDArray[np.int64]
    if isinstance(operators, dict):
        span = Fields(operators, row.path("operators"))
        first, last = span.integer("first"), span.integer("last")
        span.done()
        if last < first:
            span.fail("last", f"is {last}, which does not follow first = {first}")
        if last - first >= LARGEST_STAGE:
            span.fail("last", f"makes a stage of more than {LARGEST_STAGE} operators")
        ids = np.arange(first, last + 1)
    elif isinstance(operators, list):
        ids = np.array([integer(v, f"{row.path('operators')}[{j}]") for j, v in enumerate(operators)], dtype=np.int64)
    else:
        row.fail("operators", "expected a list of positions or {first, last}")
    replicas = []
    for j, cell in enumerate(row.items("replicas")):
        part = Fields(cell, f"{row.path('replicas')}[{j}]")
        devices = tuple(integer(d, f"{part.path('devices')}[{k}]") for k, d in enumerate(part.items("devices")))
        replicas.append(Replica(devices, number(part.take("share", 1.0), part.path("share"))))
        part.done()
    configuration = row.take("configuration", 0)
    where = row.path("configuration")
    columns: Any = (
        np.array([integer(c, f"{where}[{j}]") for j, c in enumerate(configuration)], dtype=np.int64)
        if isinstance(configuration, list)
        else integer(configuration, where)
    )
    stage = Stage(ids, tuple(replicas), columns, row.flag("recompute", False), row.integer("evict_to", None))
    row.done()
    return stage


@dataclass(frozen=True, eq=False)
class Assignment:
    """Operators to devices without an order of stages: it has no timeline and cannot be run as a pipeline.

    Parameters
    ----------
    device
        Device of each operator, shape (n,).
    """

    device: IntArray

    def __init__(self, device: ArrayLike) -> None:
        object.__setattr__(self, "device", positions(device, "devices of an assignment", PlanError))
        if len(self.device) and self.device.min() < 0:
            v = int(np.argmax(self.device < 0))
            raise PlanError(f"operator {v} is assigned to device {int(self.device[v])}; give an index", operator=v)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assignment) and np.array_equal(self.device, other.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Assignment, (self.device,))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version."""
        return {"schema": "dnn-balance/assignment", "version": 1, "device": self.device.tolist()}

    @classmethod
    def from_json(cls, data: Any) -> Assignment:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        top = Fields(data)
        top.schema("dnn-balance/assignment", 1)
        devices = [integer(d, f"device[{i}]") for i, d in enumerate(top.items("device"))]
        top.done()
        return cls(devices)
