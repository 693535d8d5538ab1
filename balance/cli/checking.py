"""Command line: ``check``, evaluate a result file again with the problem's own evaluator."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from balance.cli.console import Output, time_text
from balance.cli.errors import Code
from balance.cli.inputs import load_graph
from balance.cli.options import FormatOption, JsonOption

# Relative difference at which a stored objective counts as another number; sums may be taken in another order.
TOLERANCE = 1e-9


def check(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="Result file that 'solve --save' wrote.")],
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="The graph that was solved, in any format.")],
    format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a result file again; ends with 1 if the plan breaks a rule or its numbers do not hold."""
    from balance.result import Result

    loaded = Result.load(result, load_graph(graph, format))
    problem = loaded.problem
    faults: list[str] = []
    evaluation = None
    if loaded.solution is not None:
        evaluation = problem.evaluate(loaded.solution)
        faults += [violation.message for violation in evaluation.violations]
        stored = math.nan if loaded.objective is None else loaded.objective
        if not math.isclose(stored, evaluation.objective, rel_tol=TOLERANCE, abs_tol=0.0):
            faults.append(
                f"the file says that the objective is {stored:.12g}, the evaluator says {evaluation.objective:.12g}"
            )
        if loaded.bound is not None and loaded.bound > evaluation.objective * (1 + 1e-6) + 1e-9:
            faults.append(f"the bound {loaded.bound:.12g} is above the plan's objective {evaluation.objective:.12g}")
    output = Output(as_json)
    output.data(
        {
            "valid": not faults,
            "status": loaded.status,
            "objective": loaded.objective,
            "evaluated": None if evaluation is None else evaluation.objective,
            "bound": loaded.bound,
            "faults": faults,
            "breakdown": {} if evaluation is None else dict(evaluation.breakdown),
        }
    )
    for fault in faults:
        output.note(f"fault: {fault}")
    if evaluation is None:
        output.text(f"the result has no solution to check (status {loaded.status})")
    elif not faults:
        output.text(f"valid: objective {time_text(evaluation.objective)}, bound {time_text(loaded.bound)}")
    if faults:
        raise typer.Exit(Code.FAILED)
