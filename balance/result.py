"""Front door: the one object that answers: a solution, what was proved about it, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.limits import StopReason, relative_gap
from balance.problems.model.errors import FormatError, MissingDependencyError, OptionError, PlanError
from balance.problems.model.fields import Fields, number, plain
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.result_page import summary_page, table_rows
from balance.status import Status, contract_fault

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

    from balance.problems.model.timeline import Timeline

SCHEMA = "dnn-balance/result"
VERSION = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What `solve` returns. The constructor refuses combinations that claim more than was proved.

    Parameters
    ----------
    problem
        What was asked.
    status, stop_reason
        What is known, and why the search ended.
    solution
        The best solution found, or None.
    objective
        Its value by the problem's own evaluator; None without a solution.
    bound
        Proved lower bound on every solution; minus infinity if nothing is known, infinity if there is no solution.
    bound_name
        What proved it.
    solver
        Name of the solver whose answer this is, or that proved that there is none; ``"incumbent"`` where nothing better
        than the warm start was found. Without an answer, what was asked for: a name or ``"auto"``.
    seed
        Seed of every random choice.
    seconds
        From the call to the answer, stating the problem included.
    timings
        Seconds of the parts: ``state`` (building the problem), ``bounds``, one entry for each solver that ran,
        ``evaluate``.
    trace
        Every improvement as (seconds, objective, bound); infinite where unknown.
    provenance
        ``versions``, ``options``, ``why`` (why this solver), ``refused`` (why not the others), ``notes``, ``stats``.
    evaluation
        What the evaluator says of the solution, with its figures per stage; None without a solution.
    reasons
        Why there is no solution.

    Raises
    ------
    ValueError
        If the combination breaks the status contract.

    Examples
    --------
    >>> from balance import CostGraph, solve
    >>> result = solve(CostGraph.chain([1.0, 2.0, 3.0]), 2)
    >>> str(result.status), result.objective, result.gap
    ('optimal', 3.0, 0.0)
    """

    problem: Problem
    status: Status
    stop_reason: StopReason
    solution: Any = None
    objective: float | None = None
    bound: float = -math.inf
    bound_name: str = ""
    solver: str = ""
    seed: int = 0
    seconds: float = 0.0
    timings: Mapping[str, float] = field(default_factory=dict)
    trace: tuple[tuple[float, float, float], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    reasons: tuple[Violation, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "stop_reason", StopReason(self.stop_reason))
        fault = contract_fault(
            self.status,
            self.stop_reason,
            solved=self.solution is not None,
            objective=self.objective,
            bound=self.bound,
            explained=bool(self.reasons),
        )
        if fault:
            raise ValueError(f"a result must not claim this: {fault}")

    @property
    def gap(self) -> float:
        """``(objective - bound) / objective``: 0 when both are 0, infinity when either is unknown."""
        return relative_gap(self.objective, self.bound)

    def __repr__(self) -> str:
        return (
            f"<Result: {self.status} ({self.stop_reason}), objective {self.objective}, bound {self.bound}, "
            f"solver {self.solver!r}>"
        )

    # -- reading -----------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return a compact page for people: status, objective, bound, gap, solver, stages or devices, or reasons."""
        return summary_page(self)

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per stage (per used device for assignments) as a pandas frame; empty without a solution.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingDependencyError("frames need pandas: pip install 'dnn-balance[bench]'") from error
        return pandas.DataFrame(table_rows(self))

    def timeline(
        self,
        *,
        sends: str = "buffered",
        overhead: float = 0.0,
        durations: ArrayLike | None = None,
        training: bool | None = None,
        state_factor: float | None = None,
        backend: str | None = None,
    ) -> Timeline:
        """Return the simulated timeline of the plan; see `balance.simulate` for the options.

        Parameters
        ----------
        sends, overhead, durations, training
            As in `balance.simulate`.
        state_factor, backend
            As in `balance.simulate`; by default those of the problem.

        Raises
        ------
        PlanError
            If there is no plan, or the solution is one without an order of stages.
        """
        from balance.problems.model.simulate import simulate

        if self.solution is None:
            raise PlanError(f"there is no plan to draw a timeline of: the result is {self.status}")
        if not isinstance(self.solution, Plan):
            raise PlanError(
                f"a solution of type {type(self.solution).__name__} has no timeline: it says where operators run, but "
                f"not in which stages and order; a pipeline has them: ask with contiguity='acyclic'"
            )
        return simulate(
            self.solution,
            self.problem.graph,
            self.problem.cluster,
            sends=sends,
            overhead=overhead,
            durations=durations,
            training=training,
            state_factor=getattr(self.problem, "state_factor", 1.0) if state_factor is None else state_factor,
            backend=getattr(self.problem, "backend", "none") if backend is None else backend,
        )

    # -- files -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary in SI units; what is infinite or unknown is null."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "status": str(self.status),
            "stop_reason": str(self.stop_reason),
            "objective": _finite(self.objective),
            "bound": _finite(self.bound),
            "gap": _finite(self.gap),
            "bound_name": self.bound_name,
            "solver": self.solver,
            "seed": self.seed,
            "seconds": self.seconds,
            "timings": dict(self.timings),
            "solution": None if self.solution is None else self.solution.to_json(),
            "problem": self.problem.to_json(),
            "provenance": {"graph": self.problem.graph.hash, **_jsonable(self.provenance)},
            "trace": [[_finite(cell) for cell in row] for row in self.trace],
            "reasons": [reason.to_json() for reason in self.reasons],
        }

    @classmethod
    def from_json(cls, data: Any, graph: CostGraph) -> Result:
        """Restore a result over the graph that was solved; the solution is evaluated again.

        Nothing is believed that the status contract forbids, but the numbers are kept as they stand: `balance.check`
        compares them with the evaluator.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed, the graph is another one, or the status claims more than the
            numbers allow.
        OptionError
            If it is no graph.
        """
        from balance.registry import problem_type

        if not isinstance(graph, CostGraph):
            raise OptionError(f"a result is read over the CostGraph that was solved, got {type(graph).__name__}")
        top = Fields(data)
        top.schema(SCHEMA, VERSION)
        asked = top.inner("problem")
        try:
            kind = problem_type(asked.text("name"))
        except ValueError as error:
            raise FormatError(str(error), field="problem.name") from None
        problem = kind.from_json(asked.data, graph)
        status = Status(top.choice("status", [s.value for s in Status]))
        stored = top.take("solution", None)
        try:
            solution = None if stored is None else problem.solution_from_json(stored)
        except FormatError as error:
            where = f"solution.{error.field}" if error.field else "solution"
            raise FormatError(error.reason, field=where, **error.facts) from None
        bound = top.number("bound", None, least=None)
        top.take("gap", None)  # follows from objective and bound
        values: dict[str, Any] = {
            "status": status,
            "stop_reason": StopReason(top.choice("stop_reason", [s.value for s in StopReason])),
            "objective": top.number("objective", None, least=None),
            "bound": (math.inf if status is Status.infeasible else -math.inf) if bound is None else bound,
            "bound_name": top.text("bound_name", ""),
            "solver": top.text("solver", ""),
            "seed": top.integer("seed", 0),
            "seconds": top.number("seconds", 0.0),
            "timings": {key: number(value, f"timings.{key}") for key, value in _object(top, "timings").items()},
            "trace": tuple(_step(row, i) for i, row in enumerate(top.items("trace", []))),
            "provenance": plain(_object(top, "provenance"), "provenance"),
            "reasons": tuple(Violation.from_json(row) for row in top.items("reasons", [])),
        }
        top.done()
        try:
            evaluation = None if solution is None else problem.evaluate(solution)
            return cls(problem=problem, solution=solution, evaluation=evaluation, **values)
        except FormatError:
            raise
        except ValueError as error:
            raise FormatError(str(error), field="status") from None

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; the file is replaced only when the new one is complete.

        Raises
        ------
        OSError
            If the folder does not exist or cannot be written.
        """
        from balance.problems.model.files import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, graph: CostGraph) -> Result:
        """Read a result that `save` wrote, over the graph that was solved.

        Raises
        ------
        FormatError
            As `from_json`, with the path.
        """
        from balance.problems.model.files import read_json

        return read_json(path, lambda data: cls.from_json(data, graph))


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(cell) for key, cell in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(cell) for cell in value]
    if isinstance(value, np.ndarray):
        return _jsonable(value.tolist())
    value = _scalar(value)
    if isinstance(value, float):
        return _finite(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _object(top: Fields, name: str) -> dict[str, Any]:
    value = top.take(name, {})
    if not isinstance(value, dict):
        top.fail(name, f"expected an object, got {type(value).__name__}")
    return value


def _step(row: Any, i: int) -> tuple[float, float, float]:
    where = f"trace[{i}]"
    if not isinstance(row, list) or len(row) != 3:
        raise FormatError("expected [seconds, objective, bound]", field=where)
    seconds, objective, bound = row
    return (
        number(seconds, f"{where}[0]"),
        math.inf if objective is None else number(objective, f"{where}[1]", least=None),
        -math.inf if bound is None else number(bound, f"{where}[2]", least=None),
    )
