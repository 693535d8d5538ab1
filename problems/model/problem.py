"""Model room: what a formal problem is, and what evaluating a solution gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import FormatError, ProblemError
from balance.problems.model.fields import Fields
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import IntArray


@dataclass(frozen=True)
class Violation:
    """One rule of a problem that a solution (or every solution) breaks.

    Parameters
    ----------
    rule
        Short name of the rule, such as ``memory`` or ``colocation``.
    message
        Sentence for people, with names and numbers.
    operator, stage, device
        Where, as far as it applies.
    needed, available
        The numbers that disagree, in SI units.
    """

    rule: str
    message: str
    operator: int | None = None
    stage: int | None = None
    device: int | None = None
    needed: float | None = None
    available: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary without the absent fields."""
        cells = dataclasses.asdict(self)
        return {k: v for k, v in cells.items() if v is not None and not (isinstance(v, float) and math.isinf(v))}

    @classmethod
    def from_json(cls, data: Any) -> Violation:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        row = Fields(data, "violation")
        violation = cls(
            row.text("rule"),
            row.text("message"),
            row.integer("operator", None),
            row.integer("stage", None),
            row.integer("device", None),
            row.number("needed", None, least=None),
            row.number("available", None, least=None),
        )
        row.done()
        return violation


@dataclass(frozen=True)
class Evaluation:
    """What a problem's evaluator says of a solution.

    Parameters
    ----------
    objective
        Its value, minimised; infinity when it cannot be computed.
    breakdown
        Named arrays, usually one entry per stage or device, in SI units.
    violations
        Broken rules; empty for a feasible solution.
    """

    objective: float
    breakdown: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Base of every formal problem: a graph, a cluster and parameters, all that defines what is asked.

    A subclass is a frozen dataclass named after its module (``problems/cut.py`` holds ``CutProblem`` with
    ``name = "cut"``). Its docstring is the formal statement and `evaluate` is the ground truth.

    Parameters
    ----------
    graph
        What is split.
    cluster
        What it is split over.
    """

    name: ClassVar[str]
    solution_type: ClassVar[type]
    objective_unit: ClassVar[str] = "s"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published cost models by name: values of parameters."""
    objectives: ClassVar[Mapping[str, int]] = {}
    """Objectives that it answers for a graph and devices, with its place among the problems that answer the same: the
    lowest is tried first. It leaves a question to the next one by raising `LinearisationError` or `OptionError`. A
    problem without objectives is asked by its class only."""

    graph: CostGraph
    cluster: Cluster

    def __getstate__(self) -> dict[str, Any]:
        # What was derived and kept (cached properties) may be large and is derived again: a pickle holds the question.
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def evaluate(self, solution: Any) -> Evaluation:
        """Return objective, breakdown and violations of a solution; never trusts the solver that made it."""
        raise ProblemError(f"problem {self.name!r} has no evaluator")

    @cached_property
    def device_kind(self) -> IntArray:
        """Row of each device in the graph's time tables, shape (p,)."""
        rows = np.array([self.graph.kind_index(kind) for kind in self.cluster.kinds], dtype=np.int64)
        return np.asarray(rows[self.cluster.kind])

    @classmethod
    def parameters(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the parameters beside graph and cluster, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if f.name not in ("graph", "cluster")}

    def solution_from_json(self, data: Any) -> Any:
        """Build a solution from what its `to_json` returned.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        return self.solution_type.from_json(data)  # type: ignore[attr-defined]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary: name, the graph's hash, cluster and parameters."""
        return {
            "name": self.name,
            "graph": self.graph.hash,
            "cluster": self.cluster.to_json(),
            "parameters": {key: _plain(getattr(self, key)) for key in self.parameters()},
        }

    @classmethod
    def from_json(cls, data: Any, graph: CostGraph) -> Problem:
        """Restore a problem over its graph.

        Raises
        ------
        FormatError
            If a field is malformed or the graph is not the one that the problem was stated on.
        """
        top = Fields(data, "problem")
        if top.text("name") != cls.name:
            top.fail("name", f"is {top.data['name']!r}, expected {cls.name!r}")
        stored = top.text("graph")
        if stored != graph.hash:
            raise FormatError(
                f"the problem was stated on a graph with hash {stored[:12]}, but the given graph has "
                f"{graph.hash[:12]}: give the graph that was solved",
                field="problem.graph",
            )
        inner = top.inner("parameters")
        values: dict[str, Any] = {}
        for key in cls.parameters():
            value = inner.take(key, None)
            if value is not None:
                values[key] = _restored(value)
        inner.done()
        cluster = Cluster.from_json(top.take("cluster"))
        top.done()
        try:
            return cls(graph=graph, cluster=cluster, **values)
        except (ProblemError, TypeError) as error:
            raise FormatError(str(error), field="problem.parameters") from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(cell) for cell in value]
    if isinstance(value, float) and math.isinf(value):
        return None
    return value


def _restored(value: Any) -> Any:
    return tuple(_restored(cell) for cell in value) if isinstance(value, list) else value
