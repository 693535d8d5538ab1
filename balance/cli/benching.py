"""Command line: ``bench``, figures and campaigns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from balance.cli.console import Output, error_console
from balance.cli.errors import Code
from balance.cli.options import JsonOption, file_to_write
from balance.cli.streams import writing
from balance.problems.model.errors import OptionError

JOURNAL = "rows.jsonl"
PAGE = "report.md"

bench_app = typer.Typer(
    name="bench",
    help="Measure figures and run campaigns of instances, solvers and seeds; report and list them.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OutArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help=f"Folder of a campaign, or its {JOURNAL}.", exists=False)
]


@bench_app.callback()
def bench(
    context: typer.Context,
    suite: Annotated[str | None, typer.Option("--suite", help="A suite that 'bench list' shows.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help=f"Folder for {JOURNAL} and {PAGE}, resumed if they are there. Default: none."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="TEXT", help="Only cells whose name contains this.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", min=0.0, metavar="SECONDS", help="Seconds per solve.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads per solve.")] = 1,
    check_targets: Annotated[
        bool, typer.Option("--check-targets", help="End with 1 when a target is missed, not only when a cell failed.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run cells again whose row is a failure.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a suite, one process per cell, and append one row per cell; a killed campaign goes on where it was."""
    if context.invoked_subcommand is not None:
        if suite is not None:
            raise OptionError(f"--suite belongs to 'bench' itself, not to 'bench {context.invoked_subcommand}'")
        return
    if suite is None:
        raise OptionError("say which suite: bench --suite smoke --out DIR; 'bench list' shows what there is")
    if out is not None:
        _campaign(suite, out, only, time_limit, threads, check_targets, retry_failed, as_json)
        return
    # Nothing to resume: a look at the code as it is now.
    with tempfile.TemporaryDirectory(prefix="dnn-balance-bench-") as folder:
        _campaign(suite, Path(folder), only, time_limit, threads, check_targets, retry_failed, as_json)


def _campaign(
    suite: str,
    out: Path,
    only: str | None,
    time_limit: float | None,
    threads: int,
    check_targets: bool,
    retry_failed: bool,
    as_json: bool,
) -> None:
    from balance.bench.campaign import Cell, run_campaign
    from balance.bench.journal import Journal
    from balance.bench.report import report
    from balance.bench.suites import cells, find_suite
    from balance.problems.model.files import write_text

    output = Output(as_json)
    chosen = find_suite(suite)
    todo = [
        cell
        for cell in cells(chosen, threads=threads, time_limit=time_limit, on_skip=output.note)
        if only is None or only in cell.name
    ]
    if not todo:
        raise OptionError(f"suite {suite!r} has nothing to run" + (f" whose name contains {only!r}" if only else ""))
    out.mkdir(parents=True, exist_ok=True)
    journal = out / JOURNAL
    console = error_console()
    count = 0

    def started(cell: Cell) -> None:
        nonlocal count
        count += 1
        console.print(f"[{count}/{len(todo)}] {cell.key}", markup=False)

    tally = run_campaign(
        todo,
        journal,
        suite=suite,
        on_start=started,
        on_row=lambda row: console.print(f"    {outcome(row)}", markup=False),
        retry_failed=retry_failed,
    )
    page = report(Journal(journal).rows())
    write_text(out / PAGE, page)
    if tally.repaired:
        output.note(f"a torn last line of {tally.repaired} bytes was cut off {journal}; its cell ran again")
    output.data(
        {
            "suite": suite,
            "journal": str(journal),
            "report": str(out / PAGE),
            "run": tally.run,
            "skipped": tally.skipped,
            "failed": tally.failed,
            "missed_targets": tally.missed,
            "rows": tally.rows,
        }
    )
    output.text(report(tally.rows))
    output.text(
        f"{tally.run} cells run, {tally.skipped} already there, {tally.failed} failed, {tally.missed} targets missed"
    )
    if tally.failed or (check_targets and tally.missed):
        raise typer.Exit(Code.FAILED)


def outcome(row: Mapping[str, Any]) -> str:
    """Return one line about a row."""
    from balance.bench.report import figure_text, seconds_text

    if row["status"] in ("failed", "killed"):
        return f"{row['status']}: {row['error']['message']}"
    if row["kind"] == "measure":
        figure = row["figure"]
        words = figure_text(figure["value"], figure["unit"])
        if figure["met"] is None:
            return words
        return (
            f"{words} (target {figure_text(figure['limit'], figure['unit'])}: {'met' if figure['met'] else 'MISSED'})"
        )
    objective = "-" if row["objective"] is None else f"{row['objective']:.6g}"
    return f"{row['status']} {objective} in {seconds_text(row['seconds'])}"


@bench_app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List suites, figures and instances."""
    from balance.bench.discovery import list_specs
    from balance.bench.instances import list_instances
    from balance.bench.report import figure_text
    from balance.bench.suites import SUITES

    output = Output(as_json)
    specs, instances = list_specs(), list_instances()
    output.data(
        {
            "suites": [{"name": suite.name, "about": suite.about} for suite in SUITES],
            "figures": [
                {
                    "name": spec.name,
                    "measures": spec.measures,
                    "unit": spec.unit,
                    "limit": None if spec.target is None else spec.target.limit,
                    "full": dict(spec.full),
                    "smoke": dict(spec.smoke),
                }
                for spec in specs
            ],
            "instances": [{"name": instance.name, "about": instance.about} for instance in instances],
        }
    )
    output.table(("suite", "what it is"), [(suite.name, suite.about) for suite in SUITES])
    output.text("")
    output.table(
        ("figure", "target", "what it measures"),
        [
            (
                spec.name,
                "" if spec.target is None else f"< {figure_text(spec.target.limit, spec.unit)}",
                spec.measures,
            )
            for spec in specs
        ],
    )
    output.text("")
    output.table(("instance", "what it is"), [(instance.name, instance.about) for instance in instances])


@bench_app.command("report")
def report_command(
    where: OutArgument,
    to: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.md", callback=file_to_write, help="Write the page here.")
    ] = None,
) -> None:
    """Print the Markdown report of a campaign."""
    from balance.bench.journal import Journal
    from balance.bench.report import report
    from balance.problems.model.files import write_text

    path = where / JOURNAL if where.is_dir() else where
    if not path.is_file():
        raise OptionError(f"{path} does not exist; a campaign writes it: bench --suite smoke --out {where}")
    page = report(Journal(path).rows())
    if to is None:
        with writing():
            typer.echo(page, nl=False)
    else:
        write_text(to, page)
