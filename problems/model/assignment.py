"""Model room: assignments, operators to devices without an order of stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.model.errors import PlanError
from balance.problems.model.fields import Fields, integer
from balance.problems.model.tensors import IntArray, positions


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
