"""Model room: plans, stages in pipeline order with how they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.assignment import Assignment
from balance.problems.model.errors import FormatError, PlanError, ScheduleError
from balance.problems.model.fields import Fields
from balance.problems.model.stages import LARGEST_STAGE, Replica, Stage, stage_from_json
from balance.problems.model.tensors import IntArray

if TYPE_CHECKING:
    from balance.problems.model.schedule import Schedule

__all__ = ["LARGEST_STAGE", "SCHEMA", "VERSION", "Assignment", "Plan", "Replica", "Stage"]

SCHEMA = "dnn-balance/plan"
VERSION = 1


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
                tuple(stage_from_json(row, i) for i, row in enumerate(top.items("stages"))),
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
