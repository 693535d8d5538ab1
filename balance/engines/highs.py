"""Engines: models stated in PuLP, solved by HiGHS with its bound, limits and incumbents; or by any PuLP back end.

PuLP itself calls a solve that ran out of time "Optimal" and hides the bound, so the model is handed to ``highspy`` as
arrays, and status, bound and incumbent are read from HiGHS.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.engines.arrays import ModelArrays
from balance.engines.backends import solve_with_backend
from balance.engines.outcome import EngineOutcome, EngineStatus
from balance.engines.silence import no_stdout
from balance.limits import Run, StopReason, relative_gap
from balance.problems.model.errors import MissingDependencyError, OptionError, ProblemError, SolverError
from balance.problems.model.fields import nearest

if TYPE_CHECKING:
    import pulp

TOLERANCE = 1e-9
"""Feasibility and optimality, in units of the scaled model; HiGHS's own 1e-6 would blur what "optimal" means."""


Decode = Callable[[Mapping[str, float]], tuple[Any, float]]


def solve_model(
    model: pulp.LpProblem,
    run: Run,
    *,
    backend: str = "highs",
    start: Mapping[str, float] | None = None,
    decode: Decode | None = None,
    options: Mapping[str, Any] | None = None,
) -> EngineOutcome:
    """Minimise a PuLP model within the limits of a run.

    Parameters
    ----------
    model
        The model; it is not changed, unless another back end than HiGHS solves it.
    run
        Limits, gap, seed and threads; asked all the time whether to stop.
    backend
        ``"highs"``, or a solver name that PuLP knows. Those neither tell a bound nor stop when asked; a bound is known
        only when they prove an optimum.
    start
        Values of some or all variables by name, to start from.
    decode
        Turns values into (solution, objective in the problem's own unit). Give it if the model is the whole problem
        and in its unit: incumbents and bounds are then reported to `run` as they are found.
    options
        Further HiGHS options by name.

    Returns
    -------
    EngineOutcome
        An optimum is only called so when it was proved. ``bound`` is there whatever happened.

    Raises
    ------
    ProblemError
        If the model maximises or has no objective.
    OptionError
        If HiGHS does not know an option or its value.
    SolverError
        If the engine fails.
    """
    import pulp

    if model.sense != pulp.LpMinimize:
        raise ProblemError("models are minimised; turn the objective round")
    if model.objective is None:
        raise ProblemError("the model has no objective")
    if run.should_stop():
        return EngineOutcome(EngineStatus.unknown, stop_reason=run.stop_reason or StopReason.time_limit)
    if backend.lower() == "highs":
        return _Highs(ModelArrays.of(model), run, decode).solve(start or {}, options or {})
    if options:
        raise OptionError("options= are HiGHS options; other back ends take none")
    return solve_with_backend(model, run, backend, start or {})


def write_mps(model: pulp.LpProblem, path: str | Path) -> None:
    """Write a model as MPS; the file is replaced only when the new one is complete."""
    _write(path, model.writeMPS)


def write_lp(model: pulp.LpProblem, path: str | Path) -> None:
    """Write a model in the LP format; the file is replaced only when the new one is complete."""
    _write(path, model.writeLP)


def _write(path: str | Path, writer: Callable[[str], Any]) -> None:
    target = Path(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        part = Path(folder) / target.name
        writer(str(part))
        os.replace(part, target)


# -- HiGHS -----------------------------------------------------------------------------------------------------------

_local = threading.local()  # HiGHS has one pool of workers for each thread that solves


class _Highs:
    """One solve."""

    def __init__(self, arrays: ModelArrays, run: Run, decode: Decode | None) -> None:
        self.arrays, self.run, self.decode = arrays, run, decode
        self.failure: Exception | None = None

    def solve(self, start: Mapping[str, float], options: Mapping[str, Any]) -> EngineOutcome:
        highs = _silent_highs()
        try:
            _prepare_threads(self.run.threads)
            self._configure(highs, self.run.threads, options)
            self._load(highs, start)
            self._listen(highs)
            highs.run()
            self._confirm(highs, options)
            if self.failure is not None:
                raise self.failure
            return self._read(highs)
        finally:
            highs.clearCallbacks()
            highs.clear()

    def _configure(self, highs: Any, threads: int, options: Mapping[str, Any]) -> None:
        settings: dict[str, Any] = {
            "threads": threads,
            "random_seed": self.run.seed % 2**31,
            "mip_rel_gap": self.run.gap,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": TOLERANCE,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
        if math.isfinite(self.run.remaining()):
            settings["time_limit"] = self.run.remaining()
        if self.run.node_limit is not None:
            settings["mip_max_nodes"] = min(self.run.node_limit, 2**31 - 1)  # its own type ends there
        for name, value in {**settings, **options}.items():
            # HiGHS answers an unknown name or a bad value with a status that nobody would see.
            if str(highs.setOptionValue(name, value)) != "HighsStatus.kOk":
                known = [key for key in dir(highs.getOptions()) if not key.startswith("_")]
                hint = f"does not take the value {value!r}" if name in known else f"is unknown{nearest(name, known)}"
                raise OptionError(f"HiGHS option {name!r} {hint}", option=name, value=value)

    def _load(self, highs: Any, start: Mapping[str, float]) -> None:
        highspy, a = _library(), self.arrays
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(a.names), len(a.starts) - 1
        lp.col_cost_, lp.offset_ = a.cost, a.offset
        lp.col_lower_, lp.col_upper_ = a.lower, a.upper
        lp.row_lower_, lp.row_upper_ = a.row_lower, a.row_upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = a.starts, a.indices, a.values
        if a.integer.any():
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(flag)] for flag in a.integer]
        if highs.passModel(lp) == highspy.HighsStatus.kError:
            raise SolverError("HiGHS refuses the model")
        if start:
            position = {name: j for j, name in enumerate(a.names)}
            unknown = [name for name in start if name not in position]
            if unknown:
                raise OptionError(f"start names variable {unknown[0]!r}, which the model does not have")
            columns = np.array([position[name] for name in start], dtype=np.int32)
            values = np.array([start[name] for name in start], dtype=np.float64) / a.scale[columns]
            highs.setSolution(len(columns), columns, values)

    def _confirm(self, highs: Any, options: Mapping[str, Any]) -> None:
        """Ask again without presolve where it calls a mixed-integer model infeasible.

        HiGHS 1.16's presolve has done so to feasible models in which a row's slack is as small as the tolerance.
        """
        infeasible = highs.getModelStatus() == _library().HighsModelStatus.kInfeasible
        if not infeasible or not self.arrays.integer.any() or options.get("presolve") == "off" or self.failure:
            return
        highs.clearSolver()
        highs.setOptionValue("presolve", "off")
        if math.isfinite(self.run.remaining()):
            highs.setOptionValue("time_limit", max(self.run.remaining(), 0.01))
        highs.run()

    def _listen(self, highs: Any) -> None:
        for interrupt in (highs.cbMipInterrupt, highs.cbSimplexInterrupt, highs.cbIpmInterrupt):
            interrupt.subscribe(self._ask)
        if self.decode is not None and self.arrays.integer.any():
            highs.cbMipImprovingSolution.subscribe(self._improved)

    def _ask(self, event: Any) -> None:
        """Tell HiGHS to stop when the run says so, and the run what HiGHS has proved."""
        if self.decode is not None and self.arrays.integer.any():
            bound = float(event.data_out.mip_dual_bound)
            if math.isfinite(bound):
                self.run.report(bound=bound * self.arrays.unit)
        if self.failure is not None or self.run.should_stop():
            event.interrupt()

    def _improved(self, event: Any) -> None:
        assert self.decode is not None  # only subscribed with one
        try:
            solution, objective = self.decode(self.arrays.named(np.array(event.data_out.mip_solution)))
        except Exception as error:  # native code stands between here and the caller: kept, and raised after the solve
            self.failure = error
            return
        if objective < math.inf:  # else rounding let something through that is no solution
            self.run.report(objective=objective, solution=solution)

    def _read(self, highs: Any) -> EngineOutcome:
        status, info, mip = highs.getModelStatus(), highs.getInfo(), bool(self.arrays.integer.any())
        kinds = _library().HighsModelStatus
        stats = {
            "engine": f"HiGHS {highs.version()}",
            "columns": len(self.arrays.names),
            "rows": len(self.arrays.starts) - 1,
            "nodes": max(int(info.mip_node_count), 0),
            "simplex_iterations": max(int(info.simplex_iteration_count), 0),
            "unit": self.arrays.unit,
        }
        if status == kinds.kInfeasible:
            return EngineOutcome(EngineStatus.infeasible, bound=math.inf, stats=stats)
        if status in (kinds.kUnbounded, kinds.kUnboundedOrInfeasible):
            return EngineOutcome(EngineStatus.unbounded, stats=stats)
        reasons = {
            kinds.kOptimal: StopReason.finished,
            kinds.kModelEmpty: StopReason.finished,
            kinds.kTimeLimit: StopReason.time_limit,
            kinds.kIterationLimit: StopReason.iteration_limit,
            kinds.kSolutionLimit: StopReason.node_limit,
            kinds.kMemoryLimit: StopReason.memory_limit,
            kinds.kInterrupt: self.run.stop_reason or StopReason.interrupted,
            kinds.kHighsInterrupt: self.run.stop_reason or StopReason.interrupted,
        }
        if status not in reasons:
            raise SolverError(f"HiGHS failed: {highs.modelStatusToString(status)}")
        reason, proved = reasons[status], status in (kinds.kOptimal, kinds.kModelEmpty)
        # A limit before the first incumbent leaves a "solution" that is none: only what HiGHS calls feasible counts.
        found = (info.primal_solution_status == 2 and math.isfinite(info.objective_function_value)) or proved
        objective = float(info.objective_function_value) * self.arrays.unit if found else math.inf
        if status == kinds.kModelEmpty:  # HiGHS forgets the constant of an objective without columns
            objective = self.arrays.offset * self.arrays.unit
        bound = float(info.mip_dual_bound) * self.arrays.unit if mip else objective if proved else -math.inf
        if not math.isfinite(bound):
            bound = objective if proved else -math.inf
        if proved and self.run.gap > 0 and relative_gap(objective, bound) > TOLERANCE:
            reason, proved = StopReason.gap, False
        values = self.arrays.named(np.array(highs.getSolution().col_value)) if found else None
        outcome = EngineStatus.optimal if proved else EngineStatus.feasible if found else EngineStatus.unknown
        return EngineOutcome(outcome, objective, bound, values, reason, stats)


def _prepare_threads(wanted: int) -> None:
    """Have HiGHS make a pool of the wanted size in this thread: it keeps the first one, and fails if asked for more."""
    if getattr(_local, "pool", wanted) != wanted:
        _library().Highs.resetGlobalScheduler(True)
    _local.pool = wanted


def _library() -> Any:
    """Return the module of HiGHS; its own annotations are too partial to be checked against."""
    try:
        import highspy
    except ImportError as error:
        raise MissingDependencyError("mixed-integer models are solved by HiGHS: pip install highspy") from error
    return highspy


_banner = threading.Lock()
_greeted = False


def _silent_highs() -> Any:
    """Return a HiGHS object that prints nothing; its first constructor in a process greets on file descriptor 1."""
    global _greeted
    make = _library().Highs
    with _banner:
        if _greeted:
            highs = make()
        else:
            with no_stdout():
                highs = make()
            _greeted = True
    highs.setOptionValue("output_flag", False)
    return highs
