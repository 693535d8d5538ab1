"""Model room: the stages of a plan, and the replicas that run one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.errors import PlanError
from balance.problems.model.fields import Fields, integer, number
from balance.problems.model.tensors import IntArray, frozen, positions

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


def stage_from_json(data: Any, i: int) -> Stage:
    """Build stage `i` from what its `to_json` returns.

    Raises
    ------
    FormatError
        If a field is missing, unknown or malformed.
    PlanError
        If the stage breaks a rule.
    """
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
