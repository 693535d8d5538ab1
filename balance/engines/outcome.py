"""Engines: what an engine says of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from balance.limits import StopReason


class EngineStatus(StrEnum):
    """What an engine proved or found."""

    optimal = "optimal"
    """The optimum, to the engine's tolerance."""
    feasible = "feasible"
    """A solution, not proved to be best."""
    infeasible = "infeasible"
    """There is none."""
    unbounded = "unbounded"
    """The objective falls without end: a mistake in the model."""
    unknown = "unknown"
    """Stopped before anything was found."""


@dataclass(frozen=True)
class EngineOutcome:
    """An engine's answer to a model.

    Parameters
    ----------
    status
        What was proved or found.
    objective
        Of the solution, as the engine computes it; infinity without one.
    bound
        Proved lower bound; infinity for an infeasible model, minus infinity if nothing is known.
    values
        Value of each variable by name, whole for integer variables; None without a solution.
    stop_reason
        Why the engine ended.
    stats
        ``nodes``, ``simplex_iterations``, ``columns``, ``rows``, ``engine``, ``unit``.
    """

    status: EngineStatus
    objective: float = math.inf
    bound: float = -math.inf
    values: Mapping[str, float] | None = None
    stop_reason: StopReason = StopReason.finished
    stats: Mapping[str, Any] = field(default_factory=dict)
