"""Engines: a PuLP model as arrays, scaled so that absolute tolerances mean the same whatever the units are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.errors import ProblemError
from balance.problems.model.tensors import FloatArray, IntArray

if TYPE_CHECKING:
    import pulp


@dataclass(frozen=True, eq=False)
class ModelArrays:
    """A model of n columns and m rows; column j is measured in ``scale[j]``, the objective in `unit`."""

    names: list[str]
    cost: FloatArray
    offset: float
    lower: FloatArray
    upper: FloatArray
    integer: np.ndarray[Any, np.dtype[np.bool_]]
    starts: IntArray
    indices: IntArray
    values: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray
    scale: FloatArray
    unit: float

    @classmethod
    def of(cls, model: pulp.LpProblem) -> ModelArrays:
        """Return a model's arrays, scaled.

        Raises
        ------
        ProblemError
            If two variables have the same name.
        """
        import pulp

        variables = model.variables()
        position = {variable.name: j for j, variable in enumerate(variables)}
        if len(position) != len(variables):
            raise ProblemError("two variables of the model have the same name")
        n = len(variables)
        lower = np.array([-np.inf if v.lowBound is None else v.lowBound for v in variables], dtype=np.float64)
        upper = np.array([np.inf if v.upBound is None else v.upBound for v in variables], dtype=np.float64)
        integer = np.array([v.cat != pulp.LpContinuous for v in variables], dtype=np.bool_)
        cost = np.zeros(n)
        for variable, factor in model.objective.items():
            cost[position[variable.name]] = factor
        starts, indices, values, right, sense = [0], [], [], [], []
        for row in model.constraints():
            for variable, factor in row.items():
                if factor:
                    indices.append(position[variable.name])
                    values.append(float(factor))
            starts.append(len(indices))
            right.append(-float(row.constant))
            sense.append(row.sense)
        rhs, direction = np.array(right, dtype=np.float64), np.array(sense, dtype=np.int64)
        arrays = cls(
            names=[variable.name for variable in variables],
            cost=cost,
            offset=float(model.objective.constant or 0.0),
            lower=lower,
            upper=upper,
            integer=integer,
            starts=np.array(starts, dtype=np.int64),
            indices=np.array(indices, dtype=np.int64),
            values=np.array(values, dtype=np.float64),
            row_lower=np.where(direction == pulp.LpConstraintLE, -np.inf, rhs),
            row_upper=np.where(direction == pulp.LpConstraintGE, np.inf, rhs),
            scale=np.ones(n),
            unit=1.0,
        )
        return arrays._scaled()

    @property
    def _floating(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Columns that have no size of their own: continuous, without an upper bound."""
        return ~self.integer & np.isinf(self.upper)

    def _rows(self) -> IntArray:
        """Row of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def _typical(self) -> FloatArray:
        """Return a size that each floating column may have, shape (n,): the largest beside it in its rows.

        Seconds and bytes in one model differ by many orders; a size is therefore read off the factors of bounded
        columns and the right-hand sides, column by column.
        """
        rows, floating = self._rows(), self._floating[self.indices]
        sizes = np.abs(self.values)
        right = np.where(np.isfinite(self.row_lower), self.row_lower, self.row_upper)
        beside = np.abs(np.where(np.isfinite(right), right, 0.0))
        np.maximum.at(beside, rows[~floating], sizes[~floating])
        typical = np.zeros(len(self.names))
        np.maximum.at(typical, self.indices[floating], beside[rows[floating]] / sizes[floating])
        known = (typical > 0) & np.isfinite(typical)
        watched = known & (self.cost != 0)
        usual = float(typical[watched if watched.any() else known].max(initial=0.0)) or 1.0
        return np.where(known, typical, usual)

    def _scaled(self) -> ModelArrays:
        """Measure each floating column in its typical size, the objective likewise, and bring rows near 1.

        HiGHS's tolerances are absolute; without this a model in microseconds would be "solved" by anything. Scales are
        powers of two: no digit changes.
        """
        sizes = self._typical()
        scale = np.array(
            [_power_of_two(size) if flag else 1.0 for size, flag in zip(sizes, self._floating, strict=True)]
        )
        step = float(np.abs(self.cost * scale).max(initial=0.0))
        step = _power_of_two(step) if step > 0 else 1.0
        values = self.values * scale[self.indices]
        largest = np.zeros(len(self.starts) - 1)
        np.maximum.at(largest, self._rows(), np.abs(values))
        factor = np.array([1.0 / _power_of_two(size) if size > 0 else 1.0 for size in largest.tolist()])
        return replace(
            self,
            cost=self.cost * scale / step,
            offset=self.offset / step,
            lower=self.lower / scale,
            upper=self.upper / scale,
            values=values * factor[self._rows()],
            row_lower=self.row_lower * factor,
            row_upper=self.row_upper * factor,
            scale=scale,
            unit=step,
        )

    def named(self, columns: FloatArray) -> dict[str, float]:
        """Return a point by name, in the model's own measure; integer columns are rounded."""
        rounded = np.where(self.integer, np.round(columns), columns) * self.scale
        return dict(zip(self.names, rounded.tolist(), strict=True))


def _power_of_two(size: float) -> float:
    return math.ldexp(1.0, math.frexp(size)[1] - 1)
