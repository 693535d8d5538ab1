"""Command line: ``solve``, ``bound`` and ``compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from balance.cli.console import Output, time_text
from balance.cli.errors import Code
from balance.cli.options import (
    GapOption,
    JsonOption,
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
    save: SaveOption = None,
    plan: PlanOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Split a graph over devices, and prove how good the split is."""
    from balance import solve as answer

    output = Output(as_json)
    problem = question.problem(output)
    with ProgressView(quiet) as view:
        result = answer(
            problem,
            solver=solver,
            time_limit=time_limit,
            gap=gap,
            seed=seed,
            threads=threads,
            on_progress=view.update,
        )
    if save is not None:
        result.save(save)
    if plan is not None and result.solution is not None:
        result.solution.save(plan)
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
    as_json: JsonOption = False,
) -> None:
    """Give lower bounds on the objective, without solving."""
    from balance import lower_bounds

    output = Output(as_json)
    problem = question.problem(output)
    bounds = lower_bounds(problem)
    best = max(bounds.values(), default=None)
    output.data({"problem": problem.name, "graph": problem.graph.hash, "bounds": dict(bounds), "best": best})
    output.table(
        ("bound", "value"),
        [(name, time_text(value)) for name, value in bounds.items()],
        right=("value",),
    )


@asks
def compare(
    question: Question,
    solvers: Annotated[
        list[str] | None, typer.Option("--solver", metavar="NAME", help="A solver; repeat it. Default: all that can.")
    ] = None,
    time_limit: TimeLimitOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run several solvers on the same problem and put their answers side by side."""
    from balance import compare as race

    output = Output(as_json)
    problem = question.problem(output)
    results = race(problem, solvers=solvers or None, time_limit=time_limit, seed=seed, threads=threads)
    if solvers or not quiet:
        for name, why in results.failures.items():
            output.note(f"{name}: {why}")
    output.data([result.to_json() for result in results])
    rows: list[tuple[Any, ...]] = [
        (
            result.provenance["options"]["solver"],
            str(result.status),
            time_text(result.objective),
            time_text(result.bound),
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
