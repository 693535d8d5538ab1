"""Front door: ask a question, get an answer with a proof: `solve`, `lower_bounds`, `check`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from balance.answer import answer
from balance.limits import OnProgress, Run
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest
from balance.problems.model.graph import CostGraph
from balance.problems.model.problem import Evaluation, Problem
from balance.proof import Proof
from balance.proof import prove as prove_again
from balance.question import Devices, Question, names_of, pose, refuse_unknown
from balance.registry import list_bounds
from balance.result import Result
from balance.status import is_closed

_QUESTION = ("devices", "objective", "bandwidth", "latency", "preset")
_SEARCH = ("solver", "time_limit", "gap", "seed", "threads", "incumbent", "on_progress", "node_limit")


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a call's arguments that are parameters of a problem."""
    apart = ("what", "unknown", *_QUESTION, *_SEARCH)
    return {name: value for name, value in options.items() if name not in apart}


def solve(
    what: Question,
    /,
    devices: Devices | None = None,
    *,
    objective: str | None = None,
    solver: str = "auto",
    time_limit: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
    incumbent: Any = None,
    on_progress: OnProgress | None = None,
    node_limit: int | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    microbatches: int | None = None,
    schedule: str | None = None,
    state_factor: float | None = None,
    recompute: str | None = None,
    device_order: str | None = None,
    idle: bool | None = None,
    overlap: str | None = None,
    routing: str | None = None,
    send: str | None = None,
    free_kinds: Sequence[str] | None = None,
    in_flight: Sequence[int] | None = None,
    chunks: int | None = None,
    backend: str | None = None,
    configuration: int | None = None,
    regions: str | None = None,
    contiguity: str | None = None,
    charge: str | None = None,
    leaves: str | None = None,
    max_stages: int | None = None,
    overflow_bandwidth: float | None = None,
    preset: str | None = None,
    **unknown: Never,
) -> Result:
    """Split a graph over devices, and prove how good the split is.

    Cheap bounds and heuristics run first, exact methods after them within the limits; what a solver returns is
    evaluated again by the problem before it counts. Ctrl-C ends the search and returns the best so far; a second one
    raises.

    Parameters
    ----------
    what
        A `CostGraph`, an `Instance` or the path of a file (their devices and preset are used unless told otherwise),
        or any `Problem`, which already says everything that is asked.
    devices
        A number (of devices of the graph's only kind, memory unlimited), a list of `Device`, or a `Cluster`.
    objective
        ``"bottleneck"`` (the default: seconds of the busiest device per micro-batch), ``"fw-bw-bottleneck"``,
        ``"step-time"``, ``"cost"`` or ``"latency"``.
    solver
        Name of a solver that `list_solvers` knows; ``"auto"``: chosen by the problem's size and features.
    time_limit
        Seconds, building the problem included. The best solution found is returned; native code has two more seconds
        to stop.
    gap
        Relative distance of objective and bound at which the search may end; 0: not before a proof.
    seed
        Seed of every random choice.
    threads
        Threads to use; default: all cores. One thread and no time limit give the same plan every time.
    incumbent
        A solution (or a `Result`) to start from; the answer is never worse.
    on_progress
        Called with a `balance.limits.Progress` after each improvement; a true return value ends the search.
    node_limit
        Search nodes after which a tree search stops.
    bandwidth, latency
        Bytes per second and seconds of a link between any two devices, instead of what the devices say.
    microbatches, schedule, state_factor, recompute, device_order, idle, overlap, routing, send
        Parameters of the problem, see `balance.problems.chain.ChainProblem`; default: the instance's, then the
        problem's.
    free_kinds, in_flight, chunks, backend, configuration, regions
        As those above.
    contiguity, charge, leaves, max_stages, overflow_bandwidth
        Parameters of `balance.problems.cut.CutProblem`, which answers for graphs that are no chains, and for chains
        where one of these is given.
    preset
        A published cost model, such as ``"device-placement-2020"`` or ``"mtpp"``: a problem and its parameters. The
        options above change single ones.
    **unknown
        Nothing: a name that is not listed here raises.

    Returns
    -------
    Result
        With status, solution, objective, bound and gap. An infeasible problem is a status, not an exception.

    Raises
    ------
    OptionError
        For an unknown option (the nearest known one is named) or a value out of range.
    ProblemError
        If this states no problem, or the solver cannot answer it.
    SolverNotFoundError
        If there is no such solver, or none for this problem.
    SolverError
        If a solver's answer does not hold.

    Examples
    --------
    >>> from balance import CostGraph, solve
    >>> result = solve(CostGraph.chain([3.0, 1.0, 2.0, 2.0]), 2)
    >>> str(result.status), result.objective, [stage.operators.tolist() for stage in result.solution.stages]
    ('optimal', 4.0, [[0, 1], [2, 3]])
    """
    parameters = _parameters(locals())
    refuse_unknown(unknown, (*_QUESTION, *parameters, *_SEARCH), "solve")
    run = Run(time_limit, gap, seed, threads, None, on_progress, node_limit)
    problem, notes = pose(
        what,
        devices,
        objective=objective,
        bandwidth=bandwidth,
        latency=latency,
        parameters=parameters,
        preset=preset,
    )
    return answer(problem, run, solver, incumbent, notes)


def state_problem(
    what: Question,
    /,
    devices: Devices | None = None,
    *,
    objective: str | None = None,
    bandwidth: float | None = None,
    latency: float | None = None,
    microbatches: int | None = None,
    schedule: str | None = None,
    state_factor: float | None = None,
    recompute: str | None = None,
    device_order: str | None = None,
    idle: bool | None = None,
    overlap: str | None = None,
    routing: str | None = None,
    send: str | None = None,
    free_kinds: Sequence[str] | None = None,
    in_flight: Sequence[int] | None = None,
    chunks: int | None = None,
    backend: str | None = None,
    configuration: int | None = None,
    regions: str | None = None,
    contiguity: str | None = None,
    charge: str | None = None,
    leaves: str | None = None,
    max_stages: int | None = None,
    overflow_bandwidth: float | None = None,
    preset: str | None = None,
    **unknown: Never,
) -> Problem:
    """Return the problem that `solve` would answer, for other questions about it; the options are those of `solve`.

    Raises
    ------
    OptionError
        For an unknown option or a value out of range.
    ProblemError
        If this states no problem.
    """
    parameters = _parameters(locals())
    refuse_unknown(unknown, (*_QUESTION, *parameters), "state_problem")
    problem, _ = pose(
        what,
        devices,
        objective=objective,
        bandwidth=bandwidth,
        latency=latency,
        parameters=parameters,
        preset=preset,
    )
    return problem


def lower_bounds(
    what: Question,
    /,
    devices: Devices | None = None,
    *,
    names: Sequence[str] | None = None,
    time_limit: float | None = None,
    **unknown: Never,
) -> dict[str, float]:
    """Return named lower bounds that apply to a problem, the largest first, without solving.

    Parameters
    ----------
    what, devices
        As in `solve`; for other options of the question, hand over a `Problem`.
    names
        Bounds to compute, in any order; `balance.registry.list_bounds` knows them. Default: those that are cheap.
    time_limit
        Seconds for each of the expensive ones, which return what they have proved by then; default: their own.
    **unknown
        Nothing: a name that is not listed here raises.

    Returns
    -------
    dict
        Value by name; infinity where a bound proves that there is no solution.

    Raises
    ------
    OptionError
        If there is no bound of a name.

    Examples
    --------
    >>> from balance import CostGraph, lower_bounds
    >>> {name: round(value, 6) for name, value in lower_bounds(CostGraph.chain([3.0, 1.0, 2.0]), 2).items()}["average"]
    3.0
    """
    refuse_unknown(unknown, ("devices", "names", "time_limit"), "lower_bounds")
    problem, _ = pose(what, devices, objective=None, bandwidth=None, latency=None, parameters={})
    known = {bound.name: bound for bound in list_bounds(problem)}
    wanted = None if names is None else names_of((names,) if isinstance(names, str) else names, "names")
    for name in wanted or ():
        if name not in known:
            raise OptionError(f"problem {problem.name!r} has no bound {name!r}{nearest(name, known)}", option="names")
    chosen = [bound for bound in known.values() if (bound.is_cheap if wanted is None else bound.name in wanted)]
    values = {bound.name: bound(problem, None if time_limit is None else Run(time_limit)) for bound in chosen}
    return dict(
        sorted(
            ((name, value) for name, value in values.items() if value > -math.inf),
            key=lambda item: (-item[1], item[0]),
        )
    )


# -- checking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """What a second look at a result found.

    Parameters
    ----------
    evaluation
        What the evaluator says; None where there is no solution.
    faults
        Sentences on what does not hold; empty for a sound result.
    proof
        What came of proving the bound again; None if that was not asked.
    """

    evaluation: Evaluation | None
    faults: tuple[str, ...] = ()
    proof: Proof | None = None

    @property
    def valid(self) -> bool:
        """Whether everything holds."""
        return not self.faults


def check(result: Result | str | Path, graph: CostGraph | None = None, *, prove: bool = False) -> Check:
    """Evaluate a result again, with nothing but the graph that was solved.

    Parameters
    ----------
    result
        A result, or the path of one that `Result.save` wrote.
    graph
        The graph; needed for a path, compared by its hash for a result.
    prove
        Whether the bound is proved again too, where that is cheap; see `balance.proof.prove`.

    Raises
    ------
    OptionError
        If the graph is missing, or something else is given.
    FormatError
        If the file is broken or belongs to another graph.

    Examples
    --------
    >>> from balance import CostGraph, check, solve
    >>> check(solve(CostGraph.chain([3.0, 1.0, 2.0]), 2)).valid
    True
    """
    if graph is not None and not isinstance(graph, CostGraph):
        raise OptionError(f"check needs the graph that was solved, got {type(graph).__name__}", option="graph")
    if not isinstance(result, Result):
        if not isinstance(result, (str, Path)):
            raise OptionError(f"check takes a Result or the path of one, got {type(result).__name__}", option="result")
        if graph is None:
            raise OptionError("check(path, graph) needs the graph that was solved")
        result = Result.load(result, graph)
    faults: list[str] = []
    if graph is not None and graph.hash != result.problem.graph.hash:
        faults.append(f"the result is for a graph with hash {result.problem.graph.hash[:12]}, not {graph.hash[:12]}")
    proof = prove_again(result) if prove else None
    if proof is not None and proof.proved is False:
        faults.append(proof.text)
    if result.solution is None:
        return Check(None, tuple(faults), proof)
    evaluation = result.problem.evaluate(result.solution)
    faults.extend(violation.message for violation in evaluation.violations)
    stored = math.nan if result.objective is None else result.objective
    # Sums may be taken in another order elsewhere; a relative 1e-9 is more than that changes.
    if not math.isclose(stored, evaluation.objective, rel_tol=1e-9, abs_tol=0.0):
        faults.append(
            f"the result says that the objective is {stored:.12g}, the evaluator says {evaluation.objective:.12g}"
        )
    if result.bound > evaluation.objective and not is_closed(result.bound, evaluation.objective):
        faults.append(f"the bound {result.bound:.12g} is above the objective {evaluation.objective:.12g}")
    return Check(evaluation, tuple(faults), proof)
