"""Engines: CP-SAT models, solved within the limits of a run, with bounds and incumbents reported as they come."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from balance.engines.outcome import EngineOutcome, EngineStatus
from balance.limits import Run, StopReason
from balance.problems.model.errors import SolverError

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

POLL = 0.1
"""Seconds between two looks at whether to stop."""

Read = Callable[[Callable[[Any], bool]], tuple[Any, float]]


def solve_cp(model: cp_model.CpModel, run: Run, *, read: Read, scale: float) -> EngineOutcome:
    """Minimise a CP-SAT model within the limits of a run.

    Parameters
    ----------
    model
        The model; its objective is the problem's, times `scale` and rounded down.
    run
        Limits, gap, seed and threads. One thread is searched in CP-SAT's interleaved mode, which is deterministic as
        long as no limit ends it.
    read
        Given a function that tells the value of a literal, returns (solution, objective in the problem's own unit);
        infinity where rounding let something through that is no solution.
    scale
        Units of the model's objective per unit of the problem's.

    Returns
    -------
    EngineOutcome
        ``values`` holds the solution under the name ``"solution"``; the bound is in the problem's unit. The status is
        that of the model: an optimum of it may be no solution of the problem, and then there are no values.

    Raises
    ------
    SolverError
        If the model is invalid.
    """
    from ortools.sat.python import cp_model

    if run.should_stop():
        return EngineOutcome(EngineStatus.unknown, stop_reason=run.stop_reason or StopReason.time_limit)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.random_seed = run.seed % (2**31)
    parameters.num_workers = max(run.threads, 1)
    parameters.interleave_search = run.threads == 1
    parameters.log_search_progress = False
    # Two steps of OR-Tools 9.15 read integers of more than 31 bits wrongly, and then prove what is not true:
    # - presolve adds up coefficients in 32 bits when it looks at at-most-one constraints inside linear ones
    #   (google/or-tools issue 5293), which makes wrong optima;
    # - the search for "greater than at least one of" calls feasible models with enforced linear constraints infeasible.
    # Without them no mismatch is known, with coefficients of up to 50 bits; `tests/engines` holds an instance of each.
    parameters.presolve_inclusion_work_limit = 0
    parameters.auto_detect_greater_than_at_least_one_of = False
    if math.isfinite(run.remaining()):
        parameters.max_time_in_seconds = max(run.remaining(), 0.01)
    if run.gap > 0:
        parameters.relative_gap_limit = run.gap
    best: list[tuple[Any, float]] = []
    failure: list[Exception] = []

    class Listener(cp_model.CpSolverSolutionCallback):
        """Hears every improvement."""

        def on_solution_callback(self) -> None:
            try:
                solution, objective = read(self.boolean_value)
                if objective < math.inf and (not best or objective < best[0][1]):
                    best[:] = [(solution, objective)]
                    run.report(objective=objective, solution=solution)
            except Exception as error:  # raised again outside the native code
                failure.append(error)
                self.stop_search()
            if run.should_stop():
                self.stop_search()

    solver.best_bound_callback = lambda value: run.report(bound=value / scale)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL):
            if run.should_stop():
                solver.stop_search()

    watcher = threading.Thread(target=watch, name="balance-cp-sat", daemon=True)
    watcher.start()
    try:
        status = solver.solve(model, Listener())
    finally:
        done.set()
        watcher.join()
    if failure:
        raise failure[0]
    if status == cp_model.MODEL_INVALID:
        raise SolverError(f"CP-SAT calls the model invalid: {model.validate()}")
    if status == cp_model.INFEASIBLE:
        return EngineOutcome(EngineStatus.infeasible, bound=math.inf, stats=_stats(solver))
    bound = solver.best_objective_bound / scale
    if status == cp_model.UNKNOWN:
        reason = run.stop_reason or StopReason.time_limit
        return EngineOutcome(EngineStatus.unknown, bound=bound, stop_reason=reason, stats=_stats(solver))
    proved = status == cp_model.OPTIMAL and not (run.gap > 0 and solver.objective_value > solver.best_objective_bound)
    reason = (
        StopReason.finished if proved else run.stop_reason or (StopReason.gap if run.gap else StopReason.time_limit)
    )
    return EngineOutcome(
        EngineStatus.optimal if proved else EngineStatus.feasible,
        objective=best[0][1] if best else math.inf,
        bound=bound,
        values={"solution": best[0][0]} if best else None,
        stop_reason=reason,
        stats=_stats(solver),
    )


def _stats(solver: Any) -> dict[str, Any]:
    return {"engine": "CP-SAT", "branches": int(solver.num_branches), "conflicts": int(solver.num_conflicts)}
