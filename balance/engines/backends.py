"""Engines: solving a PuLP model with another back end of PuLP, as honestly as that can be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from balance.engines.outcome import EngineOutcome, EngineStatus
from balance.engines.silence import no_stdout
from balance.limits import Run, StopReason
from balance.problems.model.errors import MissingDependencyError, OptionError, SolverError
from balance.problems.model.fields import nearest

if TYPE_CHECKING:
    import pulp


def solve_with_backend(model: pulp.LpProblem, run: Run, backend: str, start: Mapping[str, float]) -> EngineOutcome:
    """Minimise a model with a back end that PuLP knows; PuLP neither passes a bound on nor stops when asked.

    Parameters
    ----------
    model
        The model; its variables take the values that were found.
    run
        Time limit, gap and threads, as far as the back end takes them.
    backend
        Name that PuLP knows.
    start
        Values by name to start from.

    Raises
    ------
    OptionError
        If PuLP has no back end of this name.
    MissingDependencyError
        If it is not installed.
    SolverError
        If it fails.
    """
    import pulp

    known = pulp.listSolvers()
    if backend not in known:
        raise OptionError(f"PuLP has no back end {backend!r}{nearest(backend, ['highs', *known])}", option=backend)
    probe = pulp.getSolver(backend, msg=False)
    if not probe.available():
        raise MissingDependencyError(f"PuLP's back end {backend!r} is not installed on this machine")
    settings: dict[str, Any] = {"threads": run.threads, "warmStart": bool(start)}
    if run.gap > 0:
        settings["gapRel"] = run.gap
    if math.isfinite(run.remaining()):
        settings["timeLimit"] = max(run.remaining(), 1e-3)
    taken = inspect.signature(type(probe).__init__).parameters  # not every back end has every setting
    solver = type(probe)(msg=False, **{key: value for key, value in settings.items() if key in taken})
    for variable in model.variables():
        if variable.name in start:
            variable.setInitialValue(start[variable.name])
    try:
        with no_stdout():
            status = model.solve(solver)
    except pulp.PulpError as error:
        raise SolverError(f"PuLP's back end {backend!r} failed: {error}") from error
    stats = {"engine": f"PuLP {backend}", "columns": len(model.variables()), "rows": len(model.constraints())}
    reason = run.stop_reason if run.should_stop() else None
    if status == pulp.LpStatusInfeasible:
        return EngineOutcome(EngineStatus.infeasible, bound=math.inf, stats=stats)
    if status == pulp.LpStatusUnbounded:
        return EngineOutcome(EngineStatus.unbounded, stats=stats)
    if status != pulp.LpStatusOptimal:
        return EngineOutcome(EngineStatus.unknown, stop_reason=reason or StopReason.time_limit, stats=stats)
    values = {
        v.name: float(round(v.varValue or 0.0)) if v.cat != pulp.LpContinuous else float(v.varValue or 0.0)
        for v in model.variables()
    }
    objective = float(pulp.value(model.objective))
    # PuLP says "optimal" of whatever was found; only the status of the solution tells a proof.
    if model.sol_status == pulp.LpSolutionOptimal and run.gap == 0:
        return EngineOutcome(EngineStatus.optimal, objective, objective, values, StopReason.finished, stats)
    why = reason or (StopReason.gap if model.sol_status == pulp.LpSolutionOptimal else StopReason.time_limit)
    return EngineOutcome(EngineStatus.feasible, objective, -math.inf, values, why, stats)
