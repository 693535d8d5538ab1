"""Front door: what a solver is given besides its problem: limits, seed, threads, a warm start, and who listens."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from balance.problems.model.errors import OptionError

MOST_THREADS = 1024
"""Threads that may be asked for; engines fail with more in ways that are hard to understand."""


class StopReason(StrEnum):
    """Why a search ended."""

    finished = "finished"
    """The method ran to its end: a proof, or all that a heuristic does."""
    gap = "gap"
    """The requested gap was reached."""
    time_limit = "time_limit"
    """The time was over."""
    node_limit = "node_limit"
    """The allowed number of search nodes was reached."""
    iteration_limit = "iteration_limit"
    """The allowed number of iterations was reached."""
    memory_limit = "memory_limit"
    """The allowed memory was used up."""
    interrupted = "interrupted"
    """The user stopped it: Ctrl-C, `Run.interrupt`, or a progress callback that returned true."""

    @property
    def is_limit(self) -> bool:
        """Whether it is one of the four limits."""
        return self in _LIMITS


_LIMITS = frozenset((StopReason.time_limit, StopReason.node_limit, StopReason.iteration_limit, StopReason.memory_limit))


def relative_gap(objective: float | None, bound: float | None) -> float:
    """Return ``(objective - bound) / objective``: 0 when both are 0, infinity when either is unknown.

    Examples
    --------
    >>> relative_gap(4.0, 3.0), relative_gap(0.0, 0.0), relative_gap(None, 3.0)
    (0.25, 0.0, inf)
    """
    if objective is None or bound is None or not math.isfinite(objective) or not math.isfinite(bound):
        return math.inf
    if objective == bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else math.inf


@dataclass(frozen=True)
class Progress:
    """What a search says of itself while it runs.

    Parameters
    ----------
    seconds
        Seconds since the start.
    objective
        Value of the incumbent; None while there is none.
    bound
        Best proved lower bound; None while there is none.
    gap
        Relative distance between the two; None while either is unknown.
    solver
        Who says so.
    """

    seconds: float
    objective: float | None
    bound: float | None
    gap: float | None
    solver: str = ""


OnProgress = Callable[[Progress], object]


class Run:
    """What a solver is given besides its problem.

    A solver asks `should_stop` now and then, hands what it finds to `report`, and draws every random number from `rng`.
    Its clock starts when it is made. Safe to use from several threads.

    Parameters
    ----------
    time_limit
        Seconds from now; None: no limit.
    gap
        Relative gap at which the search may end; 0: not before a proof.
    seed
        Seed of every random choice.
    threads
        Threads to use; None: all cores of this process. One thread is the deterministic mode.
    incumbent
        A feasible solution to start from.
    on_progress
        Called with a `Progress` after each improvement, in the thread of the solver; a true return value stops the
        search.
    node_limit
        Search nodes after which a tree search stops.

    Raises
    ------
    OptionError
        If a number is out of range.

    Examples
    --------
    >>> run = Run(gap=0.1)
    >>> run.report(objective=10.0, bound=8.0, solution="a plan")
    >>> run.should_stop()
    False
    >>> run.report(bound=9.5)
    >>> run.should_stop(), str(run.stop_reason)
    (True, 'gap')
    """

    def __init__(
        self,
        time_limit: float | None = None,
        gap: float = 0.0,
        seed: int = 0,
        threads: int | None = None,
        incumbent: Any = None,
        on_progress: OnProgress | None = None,
        node_limit: int | None = None,
    ) -> None:
        self.time_limit = None if time_limit is None else _number("time_limit", time_limit, "seconds")
        self.gap = _number("gap", gap, "a relative distance such as 0.01")
        self.seed = _whole("seed", seed, 0)
        self.threads = available_cores() if threads is None else _whole("threads", threads, 1, MOST_THREADS)
        self.node_limit = None if node_limit is None else _whole("node_limit", node_limit, 1)
        if on_progress is not None and not callable(on_progress):
            raise OptionError(f"on_progress must be a function of one argument, got {on_progress!r}")
        self.incumbent = incumbent
        self.solver = ""
        self.alone = True  # whether no other solver is still to come; a heuristic without end then uses all the time
        self.failure: BaseException | None = None
        self._on_progress = on_progress
        self._start = time.perf_counter()
        self._lock = threading.RLock()
        self._best: tuple[Any, float] | None = None
        self._objective = math.inf
        self._bound = -math.inf
        self._bound_name = ""
        self._trace: list[tuple[float, float, float]] = []
        self._stop: StopReason | None = None
        self._closed = False

    # -- time and stopping -------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Return seconds since the start."""
        return time.perf_counter() - self._start

    def remaining(self) -> float:
        """Return seconds until the time limit, never below 0; infinity without a limit."""
        return math.inf if self.time_limit is None else max(self.time_limit - self.elapsed(), 0.0)

    def should_stop(self) -> bool:
        """Return whether to stop; once true it stays true, and `stop_reason` says why."""
        if self._stop is None and self.time_limit is not None and self.elapsed() >= self.time_limit:
            self._settle(StopReason.time_limit)
        return self._stop is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the search is to stop; None while it may go on."""
        return self._stop

    def interrupt(self) -> None:
        """Ask the search to stop and to return what it has; may be called from any thread or a signal handler."""
        # No lock: a signal handler may run while this very thread holds it.
        if self._stop is None:
            self._stop = StopReason.interrupted

    def close(self) -> None:
        """Take no more reports: the answer has been handed out, whatever a solver left behind still says."""
        with self._lock:
            self._closed = True

    def _settle(self, reason: StopReason) -> None:
        if self._stop is None:
            self._stop = reason

    # -- what is known -----------------------------------------------------------------------------------------

    @property
    def best(self) -> tuple[Any, float] | None:
        """Best reported solution with its objective; None while there is none."""
        return self._best

    @property
    def objective(self) -> float:
        """Least reported objective; infinity while there is none."""
        return self._objective

    @property
    def bound(self) -> float:
        """Largest reported lower bound; minus infinity while there is none."""
        return self._bound

    @property
    def bound_name(self) -> str:
        """What proved `bound`."""
        return self._bound_name

    @property
    def trace(self) -> tuple[tuple[float, float, float], ...]:
        """Every improvement as (seconds, objective, bound); infinite where unknown."""
        return tuple(self._trace)

    def report(
        self,
        *,
        objective: float | None = None,
        bound: float | None = None,
        solution: Any = None,
        bound_name: str | None = None,
    ) -> None:
        """Say what has been found; only improvements are kept.

        Parameters
        ----------
        objective
            Value of `solution`; alone, it is shown as progress but no incumbent comes of it.
        bound
            A proved lower bound on every solution.
        solution
            A solution with that objective.
        bound_name
            What proved the bound; default: the running solver's name.
        """
        with self._lock:
            if self._closed:
                return
            improved = False
            if objective is not None and not math.isnan(objective):
                objective = float(objective)
                if solution is not None and (self._best is None or objective < self._best[1]):
                    self._best = (solution, objective)
                    improved = True
                if objective < self._objective:
                    self._objective = objective
                    improved = True
            if bound is not None and bound > self._bound:
                self._bound = float(bound)
                self._bound_name = bound_name or self.solver
                improved = True
            if not improved:
                return
            self._trace.append((self.elapsed(), self._objective, self._bound))
            self._look_at_gap()
            self._tell()

    def _look_at_gap(self) -> None:
        if not math.isfinite(self._objective):
            return
        if self._bound >= self._objective:
            self._settle(StopReason.finished)
        elif self.gap > 0 and relative_gap(self._objective, self._bound) <= self.gap:
            self._settle(StopReason.gap)

    def _tell(self) -> None:
        if self._on_progress is None or self.failure is not None:
            return
        # A bound may be above the incumbent by rounding; that is no negative distance.
        gap = max(relative_gap(self._objective, self._bound), 0.0)
        progress = Progress(self.elapsed(), _known(self._objective), _known(self._bound), _known(gap), self.solver)
        try:
            wants_stop = bool(self._on_progress(progress))
        except BaseException as error:
            # A solver's native code may stand between here and the caller: kept, and raised at the front door.
            self.failure = error
            wants_stop = True
        if wants_stop:
            self.interrupt()

    # -- chance ------------------------------------------------------------------------------------------------

    def rng(self) -> np.random.Generator:
        """Return a new random generator made from the seed; each call starts the same sequence."""
        return np.random.default_rng(self.seed)


class Part(Run):
    """A share of another run's time, on its seed and threads; it stops when the other does.

    Parameters
    ----------
    whole
        The other run.
    among
        Into how many equal shares what remains of it is divided.
    seconds
        Most that the share may be.
    solving
        Whether a solver works in it: what it reports then goes to the whole run, whose incumbent and gap are its own.
    """

    def __init__(self, whole: Run, among: int = 1, seconds: float = math.inf, *, solving: bool = False) -> None:
        left = max(min(whole.remaining() / among, seconds), 0.0)
        super().__init__(
            None if math.isinf(left) else left,
            gap=whole.gap if solving else 0.0,
            seed=whole.seed,
            threads=whole.threads,
            node_limit=whole.node_limit,
        )
        self.whole, self.solving, self.solver = whole, solving, whole.solver
        self.alone = False

    @property
    def best(self) -> tuple[Any, float] | None:
        """Best reported solution with its objective; None while there is none."""
        return self.whole.best if self.solving else super().best

    @property
    def objective(self) -> float:
        """Least reported objective; infinity while there is none."""
        return self.whole.objective if self.solving else super().objective

    @property
    def bound(self) -> float:
        """Largest reported lower bound; minus infinity while there is none."""
        return self.whole.bound if self.solving else super().bound

    def report(
        self,
        *,
        objective: float | None = None,
        bound: float | None = None,
        solution: Any = None,
        bound_name: str | None = None,
    ) -> None:
        """Say what has been found, to the whole run if a solver works in this part."""
        if self.solving:
            self.whole.report(objective=objective, bound=bound, solution=solution, bound_name=bound_name)
        else:
            super().report(objective=objective, bound=bound, solution=solution, bound_name=bound_name)

    def should_stop(self) -> bool:
        """Return whether this share or the whole is used up."""
        if self.whole.should_stop():
            self.interrupt()
        return super().should_stop()


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # systems without affinity
        return os.cpu_count() or 1


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(name: str, value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise OptionError(f"{name} must be {what}, not negative; got {value!r}", option=name, value=value)
    return float(value)


def _whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}", option=name, value=value)
    if most is not None and value > most:
        raise OptionError(f"{name} must be at most {most}, got {value!r}", option=name, value=value)
    return int(value)
