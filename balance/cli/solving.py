"""Command line: ``solve``, ``bound`` and ``compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from balance.cli.console import Output, amount_text, time_text
from balance.cli.errors import Code
from balance.cli.inputs import load_solution
from balance.cli.options import (
    GapOption,
    IncumbentOption,
    JsonOption,
    NodeLimitOption,
    PlanOption,
    QuietOption,
    SaveOption,
    SeedOption,
    SolverOption,
    ThreadsOption,
    TimeLimitOption,
)
from balance.cli.progress import ProgressView
from balance.cli.question import Question, asks
from balance.wording import show_share

if TYPE_CHECKING:
    from balance.result import Result


@asks
def solve(
    question: Question,
    solver: SolverOption = "auto",
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    node_limit: NodeLimitOption = None,
    incumbent: IncumbentOption = None,
    save: SaveOption = None,
    plan: PlanOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Split a graph over devices, and prove how good the split is."""
    from balance import solve as answer
    from balance.problems.model.files import write_json

    output = Output(as_json)
    problem = question.problem(output)
    start = None if incumbent is None else load_solution(incumbent, problem)
    with ProgressView(quiet) as view:
        result = answer(
            problem,
            solver=solver,
            time_limit=time_limit,
            gap=gap,
            seed=seed,
            threads=threads,
            incumbent=start,
            node_limit=node_limit,
            on_progress=view.update,
        )
    try:
        if save is not None:
            result.save(save)
        if plan is not None and result.solution is not None:
            write_json(plan, result.solution.to_json())
    finally:  # a full disk does not cost the answer, nor a closed pipe the file
        output.data(result.to_json())
        output.text(result.summary())
    written = [str(path) for path in (save, plan if result.solution is not None else None) if path is not None]
    if written:
        output.note(f"written to {' and '.join(written)}")
    code = exit_code(result)
    if code:
        raise typer.Exit(code)


def exit_code(result: Result) -> int:
    """Return the exit code that a result's status asks for."""
    if result.solution is not None:
        return Code.DONE
    if str(result.status) == "infeasible":
        return Code.INFEASIBLE
    return Code.INTERRUPTED if str(result.stop_reason) == "interrupted" else Code.NOTHING_FOUND


@asks
def bound(
    question: Question,
    names: Annotated[
        list[str] | None, typer.Option("--bound", metavar="NAME", help="A bound; repeat it. Default: all cheap ones.")
    ] = None,
    time_limit: TimeLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give lower bounds on the objective, without solving."""
    from balance import lower_bounds

    output = Output(as_json)
    problem = question.problem(output)
    bounds = lower_bounds(problem, names=names or None, time_limit=time_limit)
    best = max(bounds.values(), default=None)
    output.data({"problem": problem.name, "graph": problem.graph.hash, "bounds": dict(bounds), "best": best})
    output.table(
        ("bound", "value"),
        [(name, amount_text(value, problem.objective_unit)) for name, value in bounds.items()],
        right=("value",),
    )


@asks
def compare(
    question: Question,
    solvers: Annotated[
        list[str] | None, typer.Option("--solver", metavar="NAME", help="A solver; repeat it. Default: all that can.")
    ] = None,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run several solvers on the same problem and put their answers side by side."""
    from balance import compare as race

    output = Output(as_json)
    problem = question.problem(output)
    results = race(problem, solvers=solvers or None, time_limit=time_limit, gap=gap, seed=seed, threads=threads)
    if solvers or not quiet:
        for name, why in results.failures.items():
            output.note(f"{name}: {why}")
    output.data([result.to_json() for result in results])
    rows: list[tuple[Any, ...]] = [
        (
            result.provenance["options"]["solver"],
            str(result.status),
            amount_text(result.objective, problem.objective_unit),
            amount_text(result.bound, problem.objective_unit),
            show_share(result.gap),
            time_text(result.seconds),
        )
        for result in results
    ]
    columns = ("solver", "status", "objective", "bound", "gap", "time")
    output.table(columns, rows, right=columns[2:])
    codes = [exit_code(result) for result in results]
    if not codes:
        raise typer.Exit(Code.FAILED)
    if all(codes):
        raise typer.Exit(codes[0])
