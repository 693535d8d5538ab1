"""Front door: running bounds and solvers on a problem: the ladder, the watch over time and Ctrl-C, and the judgement.

No solver is believed: every solution is evaluated by its problem before it counts, and a bound above a solution that
exists is an error.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from balance.limits import Part, Run, StopReason
from balance.problems.model.errors import BalanceError, OptionError, ProblemError, SolverError, SolverNotFoundError
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.registry import get_solver, ladder, list_bounds
from balance.solver import DIRECT, Bound, Outcome, Solver
from balance.status import ABSOLUTE, RELATIVE, is_closed

GRACE = 2.0
"""Seconds that a solver has to stop after it was told to; then the best so far is returned without it."""

SEARCH = 70
"""Rank from which solvers search exhaustively; bounds that take long run before the first of them."""

DEEP = 30.0
"""Seconds that such bounds take in all."""

SMALL = 50
"""Operators; below, such bounds take as long as the search."""

LARGE = 20_000
"""Operators; above, bounds do not run ahead of a solver that needs none of them."""

ROUNDING = 1e-9
"""Relative difference between what an exact solver and the evaluator add up for one and the same solution."""


class Search:
    """One question on its way to an answer.

    Parameters
    ----------
    problem
        What is asked.
    run
        The limits.
    """

    def __init__(self, problem: Problem, run: Run) -> None:
        self.problem, self.run = problem, run
        self.solution: Any = None
        self.evaluation: Evaluation | None = None
        self.solver = ""
        self.reasons: tuple[Violation, ...] = ()
        self.infeasible = False
        self.bound, self.bound_name = -math.inf, ""
        self.last = StopReason.finished
        self.timings: dict[str, float] = {}
        self.stats: dict[str, Any] = {}
        self.notes: list[str] = []
        self.why = ""
        self.refused: dict[str, str] = {}
        self._hopeless = ""
        self._deep = False

    @property
    def objective(self) -> float:
        """Value of the best solution; infinity while there is none."""
        return math.inf if self.evaluation is None else self.evaluation.objective

    # -- choosing ----------------------------------------------------------------------------------------------

    def choose(self, name: str) -> tuple[Solver, ...]:
        """Return the solvers to run, in order, and keep the reason.

        Raises
        ------
        SolverNotFoundError
            If there is none of this name, or none that can answer this problem.
        ProblemError
            If the named one cannot answer this problem.
        """
        problem = self.problem
        if not isinstance(name, str):
            raise OptionError(f"solver must be a name, got {name!r}; list_solvers() shows the names", option="solver")
        if name != "auto":
            solver = get_solver(problem, name)
            refusal = solver.accepts(problem)
            if refusal is not None:
                others = ", ".join(other.name for other in ladder(problem)[0])
                raise ProblemError(
                    f"solver {name!r} cannot answer this problem: {refusal}"
                    + (f"; these can: {others}" if others else ""),
                    solver=name,
                )
            self.why = "asked for by name"
            return (solver,)
        able, self.refused = ladder(problem)
        if not able:
            why = "; ".join(f"{key}: {text}" for key, text in self.refused.items()) or "it has no solver"
            raise SolverNotFoundError(
                f"no solver can answer this {problem.name!r} problem ({why})", refused=self.refused
            )
        order = ", ".join(solver.name for solver in able)
        self.why = (
            "the only one that can answer this" if len(able) == 1 else f"first by rank of those that can ({order})"
        )
        return able

    def warm_start(self, incumbent: Any) -> None:
        """Take a solution to start from; the answer is never worse.

        Raises
        ------
        ProblemError
            If it breaks a rule of the problem.
        """
        evaluation = self.problem.evaluate(incumbent)
        if evaluation.violations or not math.isfinite(evaluation.objective):
            raise ProblemError(f"the incumbent is no solution of this problem: {_first(evaluation)}")
        self.run.incumbent = incumbent
        self.solution, self.evaluation, self.solver = incumbent, evaluation, "incumbent"
        self.run.solver = "incumbent"
        self.run.report(objective=evaluation.objective, solution=incumbent)

    # -- running -----------------------------------------------------------------------------------------------

    def execute(self, solvers: Sequence[Solver]) -> None:
        """Run bounds and solvers until the question is answered or the run says stop."""
        if self._bounds_first(solvers[0]):
            self._run_bounds()
        for place, solver in enumerate(solvers):
            if self.run.should_stop() or self._answered():
                return
            if len(solvers) > 1 and solver.rank(self.problem) >= SEARCH:
                self._run_expensive_bounds()
                if self.run.should_stop() or self._answered():
                    return
            left = len(solvers) - place
            self.run.alone = left == 1
            shared = left > 1 and solver.rank(self.problem) >= SEARCH  # searches share what is left of the time
            self._run_solver(solver, Part(self.run, left, solving=True) if shared else self.run)
            if self.infeasible or (solver.exact and self.last is StopReason.finished):
                return

    def _answered(self) -> bool:
        return math.isfinite(self.objective) and is_closed(self.objective, self.bound)

    def _bounds_first(self, first: Solver) -> bool:
        direct = first.exact and first.proves_bound and first.rank(self.problem) < DIRECT
        return not direct or self.problem.graph.n_operators <= LARGE

    def _run_bounds(self) -> None:
        began = time.perf_counter()
        self.run.solver = "bounds"
        for bound in list_bounds(self.problem):
            if not bound.is_cheap:
                continue
            if self.run.should_stop():
                break
            value = self._value(bound, self.run)
            if value == math.inf:
                self._hopeless = bound.name  # an exact solver may say why; if none does, this is the reason
            else:
                self._take_bound(value, bound.name)
        self.timings["bounds"] = time.perf_counter() - began

    def _value(self, bound: Bound, run: Run) -> float:
        try:
            return bound(self.problem, run)
        except BalanceError:
            raise
        except Exception as error:  # whatever it is, the reader must learn which bound it was
            raise SolverError(f"bound {bound.name!r} failed: {type(error).__name__}: {error}") from error

    def _run_expensive_bounds(self) -> None:
        """Compute the bounds that take long, once, before exact searches begin: a quarter of the time, in equal parts.

        In all they take `DEEP` seconds at most; small problems are searched as soon.
        """
        waiting = [bound for bound in list_bounds(self.problem) if not bound.is_cheap and bound.in_ladder]
        if self._deep or not waiting or not math.isfinite(self.objective) or self.problem.graph.n_operators < SMALL:
            return
        self._deep = True
        began = time.perf_counter()
        share = min(self.run.remaining() / 4, DEEP)
        for place, bound in enumerate(waiting):
            if self.run.should_stop() or self._answered():
                break
            left = (share - (time.perf_counter() - began)) / (len(waiting) - place)
            part = Part(self.run, seconds=min(left, bound.seconds or math.inf))
            self._take_bound(self._value(bound, part), bound.name)
        self.timings["expensive bounds"] = time.perf_counter() - began

    def _run_solver(self, solver: Solver, run: Run) -> None:
        began = time.perf_counter()
        self.run.solver = solver.name
        try:
            outcome = solver.solve(self.problem, run)
        except BalanceError:
            raise
        except MemoryError:
            outcome = Outcome(stop_reason=StopReason.memory_limit)
        except Exception as error:  # third parties' solvers may raise anything; the reader must learn which one it was
            raise SolverError(
                f"solver {solver.name!r} failed: {type(error).__name__}: {error}", solver=solver.name
            ) from error
        if not isinstance(outcome, Outcome):
            raise SolverError(f"solver {solver.name!r} returned {type(outcome).__name__}, not an Outcome")
        self.timings[solver.name] = time.perf_counter() - began
        if outcome.stats:
            self.stats[solver.name] = dict(outcome.stats)
        self.last = StopReason(outcome.stop_reason)
        self._judge(solver, outcome)

    def _judge(self, solver: Solver, outcome: Outcome) -> None:
        """Take from an outcome what holds."""
        name = solver.name
        if outcome.proved_infeasible:
            if outcome.solution is not None or self.run.best is not None:
                raise SolverError(f"solver {name!r} says that there is no solution, but there is one", solver=name)
            self.infeasible, self.solver, self.bound_name = True, name, name
            self.reasons = tuple(outcome.infeasible) or (
                Violation("infeasible", f"solver {name!r} proved that there is no solution, and gave no reason"),
            )
            return
        self._take_solution(outcome.solution, name)
        self.rescue(name)
        bound = float(outcome.bound)
        if math.isnan(bound):
            raise SolverError(f"solver {name!r} returned a bound that is no number", solver=name)
        exact = solver.exact and self.last is StopReason.finished and outcome.solution is not None
        if exact and math.isclose(bound, self.objective, rel_tol=ROUNDING, abs_tol=0.0):
            bound = self.objective  # one number, added up in two orders
        if bound == math.inf and self.solution is None:
            return  # a limit, and no proof: an outcome says `proved_infeasible` if it has one
        self._take_bound(bound, outcome.bound_name or name)

    def rescue(self, name: str) -> None:
        """Take the best solution and bound that the running solver has reported, whatever became of it."""
        if self.bound < self.run.bound < math.inf:
            self._take_bound(self.run.bound, self.run.bound_name)
        best = self.run.best
        if best is None or (best[0] is not self.solution and best[1] >= self.objective):
            return
        solution, claimed = best
        evaluation = self.evaluation if solution is self.solution else self._take_solution(solution, name)
        assert evaluation is not None  # there is one for every solution that was taken
        if not math.isclose(evaluation.objective, claimed, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            raise SolverError(
                f"solver {name!r} reported the objective {claimed:.12g}; it is {evaluation.objective:.12g}",
                solver=name,
            )

    def _take_solution(self, solution: Any, name: str) -> Evaluation | None:
        if solution is None or solution is self.solution:
            return None
        began = time.perf_counter()
        evaluation = self.problem.evaluate(solution)
        self.timings["evaluate"] = self.timings.get("evaluate", 0.0) + time.perf_counter() - began
        if evaluation.violations or not math.isfinite(evaluation.objective):
            raise SolverError(
                f"solver {name!r} returned a solution that breaks a rule: {_first(evaluation)}",
                solver=name,
                violations=evaluation.violations,
            )
        if evaluation.objective < self.objective or self.solution is None:
            self.solution, self.evaluation, self.solver = solution, evaluation, name
            self.run.report(objective=evaluation.objective, solution=solution)
        return evaluation

    def _take_bound(self, value: float, name: str) -> None:
        if math.isnan(value):
            raise SolverError(f"bound {name!r} is no number")
        if value <= self.bound:
            return
        self.bound, self.bound_name = value, name
        self.run.report(bound=value, bound_name=name)

    def settle(self) -> None:
        """Bring bound and objective together at the end, and refuse a bound that a solution contradicts."""
        if self._hopeless and self.solution is None and not self.infeasible and not self.run.should_stop():
            self.infeasible, self.bound_name = True, self._hopeless
            self.reasons = (
                Violation("bound", f"the lower bound {self._hopeless!r} is infinite: there is no solution"),
            )
        if self.solution is None:
            return
        if self._hopeless:
            raise SolverError(f"bound {self._hopeless!r} says that there is no solution, but there is one")
        if self.bound > self.objective:
            if self.bound - self.objective > ABSOLUTE + RELATIVE * abs(self.objective):
                raise SolverError(
                    f"bound {self.bound_name!r} claims {self.bound:.12g}, but solver {self.solver!r} has a solution "
                    f"of {self.objective:.12g}",
                    bound=self.bound_name,
                    solver=self.solver,
                )
            self.bound = self.objective  # a true bound is not above a solution: the excess is rounding


def _first(evaluation: Evaluation) -> str:
    if evaluation.violations:
        more = len(evaluation.violations) - 1
        return evaluation.violations[0].message + (f" (and {more} more)" if more else "")
    return f"its objective is {evaluation.objective}"


# -- the watch -------------------------------------------------------------------------------------------------------


def supervise(run: Run, work: Callable[[], None]) -> bool:
    """Do the work in a thread of its own while this one watches the time and Ctrl-C.

    Native code does not look at limits or signals as often as one would wish. When the run says stop, the work has
    `GRACE` seconds to end.

    Returns
    -------
    bool
        Whether the work ended; otherwise its thread is left behind, and nothing that it still reports counts.
    """
    error: list[BaseException] = []
    done = threading.Event()

    def body() -> None:
        try:
            work()
        except BaseException as caught:  # raised again in the caller's thread
            error.append(caught)
        finally:
            done.set()

    thread = threading.Thread(target=body, name="balance-search", daemon=True)
    deadline = math.inf
    with _interruptible(run):
        try:
            thread.start()
            # The clock is looked at twenty times a second; the end of the work is noticed at once.
            while not done.wait(min(0.05, max(run.remaining(), 0.001)) if deadline == math.inf else 0.05):
                if run.should_stop() and deadline == math.inf:
                    deadline = time.perf_counter() + GRACE
                if time.perf_counter() > deadline:
                    break
        except BaseException:
            run.interrupt()  # a second Ctrl-C: whoever still works is asked to stop
            raise
    ended = done.is_set()
    if ended:
        thread.join()
        if error:
            raise error[0]
    return ended


@contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    """Let the first Ctrl-C ask the search to stop; the second one raises, as it would have without us."""
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):  # another thread, or a program that ignores the signal or handles it outside Python
        yield
        return

    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            before(number, frame)
        pressed = True
        run.interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
