"""Command line: ``check``, evaluate a result file again with the problem's own evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from balance.cli.console import Output, amount_text
from balance.cli.errors import Code
from balance.cli.inputs import answer_and_graph, load_graph
from balance.cli.options import FormatOption, JsonOption


def check(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="Result file that 'solve --save' wrote. GRAPH may also come first: they are told apart by content.",
        ),
    ],
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="The graph that was solved, in any format.")],
    format: FormatOption = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Prove the bound again too, where there is a cheap way to.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a result file again; ends with 1 if the plan breaks a rule or its numbers do not hold."""
    from balance.front import check as again
    from balance.result import Result

    result, graph = answer_and_graph(result, graph)
    loaded = Result.load(result, load_graph(graph, format))
    found = again(loaded, prove=prove)
    evaluation = found.evaluation
    output = Output(as_json)
    output.data(
        {
            "valid": found.valid,
            "status": loaded.status,
            "objective": loaded.objective,
            "evaluated": None if evaluation is None else evaluation.objective,
            "bound": loaded.bound,
            "faults": list(found.faults),
            **({} if found.proof is None else {"proof": {"proved": found.proof.proved, "text": found.proof.text}}),
            "breakdown": {} if evaluation is None else dict(evaluation.breakdown),
        }
    )
    for fault in found.faults:
        output.note(f"fault: {fault}")
    if found.proof is not None and found.proof.proved is not False:
        output.text(found.proof.text)
    if evaluation is None:
        output.text(f"the result has no solution to check (status {loaded.status})")
    elif found.valid:
        unit = loaded.problem.objective_unit
        output.text(
            f"valid: objective {amount_text(evaluation.objective, unit)}, bound {amount_text(loaded.bound, unit)}"
        )
    if not found.valid:
        raise typer.Exit(Code.FAILED)
