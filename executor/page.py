"""Executor room: the self-contained page of a report, with both timelines as a picture."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from balance.executor.display import show_percent, show_seconds
from balance.plot import chrome_trace, gantt
from balance.problems.model.errors import MissingDependencyError
from balance.problems.model.files import write_text
from balance.wording import show_share

if TYPE_CHECKING:
    from balance.executor.report import RunReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; } figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
.note { color: #666; }
"""


def write_report(report: RunReport, folder: str | Path) -> Path:
    """Write page, JSON, picture and trace of a report into a folder, which is made if needed.

    Without matplotlib the page has no picture and says so.

    Returns
    -------
    Path
        The page, ``report.html``; beside it ``report.json``, ``timelines.svg`` and ``trace.json`` (Chrome trace
        format), both with the predicted step above the achieved one. Each file is replaced only when its new content
        is complete.
    """
    return _write(report, Path(folder))[0]


def _write(report: RunReport, home: Path) -> tuple[Path, str]:
    """Write a report; returns its page and the page's body, which a comparison shows again."""
    home.mkdir(parents=True, exist_ok=True)
    timelines = report.timelines()
    chrome_trace(list(timelines.values()), home / "trace.json", labels=list(timelines))
    picture = _picture(report)
    if picture is not None:
        write_text(home / "timelines.svg", picture)
    report.save(home / "report.json")
    page, body = home / "report.html", _report_body(report, picture)
    write_text(page, document("Predicted and achieved", [body]))
    return page, body


def write_comparison(reports: Mapping[str, RunReport], folder: str | Path, *, notes: Sequence[str] = ()) -> Path:
    """Write one page that compares several reports, and each report in a folder of its own below.

    Parameters
    ----------
    reports
        By name; the first is the baseline.
    folder
        Made if needed.
    notes
        Sentences for the top of the page.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    baseline = next(iter(reports.values())).achieved_step
    rows = []
    parts = []
    taken: set[str] = set()
    for name, report in reports.items():
        stem = label = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-") or "report"
        while label.lower() in taken:  # two names may differ in what a folder's name cannot hold
            label = f"{stem}-{len(taken) + 1}"
        taken.add(label.lower())
        body = _write(report, home / label)[1]
        rows.append(
            [
                name,
                " | ".join(str(len(stage.operators)) for stage in report.plan.stages),
                show_seconds(report.predicted_step),
                show_seconds(report.achieved_step),
                show_percent(report.error),
                f"{report.samples_per_second:.2f}",
                f"{baseline / report.achieved_step:.2f}",
            ]
        )
        parts.append(f"<h2>{html.escape(name)}</h2>" + body)
    head = ["plan", "modules per stage", "predicted step", "achieved step", "error", "samples/s", "speed-up"]
    top = "".join(f"<p>{html.escape(note)}</p>" for note in notes) + table(head, rows)
    page = home / "index.html"
    write_text(page, document("Plans compared", [top, *parts]))
    return page


def _picture(report: RunReport) -> str | None:
    """Return both timelines as one ``<svg>`` element, or None without matplotlib."""
    timelines = report.timelines()
    with TemporaryDirectory(prefix="dnn-balance-") as folder:
        path = Path(folder) / "gantt.svg"
        try:
            gantt(list(timelines.values()), path, labels=list(timelines), memory=False)
        except MissingDependencyError:
            return None
        text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]  # without the XML head, which HTML does not know


def document(title: str, parts: Sequence[str]) -> str:
    """Return a whole HTML page around ready-made parts."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table of plain texts."""
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _report_body(report: RunReport, picture: str | None) -> str:
    rows = [
        [
            "step time",
            show_seconds(report.predicted_step),
            show_seconds(report.achieved_step),
            show_percent(report.error),
        ],
        [
            "samples per second",
            _rate(report.predicted_samples_per_second),
            f"{report.samples_per_second:.2f}",
            "",
        ],
        ["bubble", show_share(report.predicted_bubble), show_share(report.achieved_bubble), ""],
    ]
    parts = [table(["", "predicted", "achieved", "error"], rows)]
    if sentences := report.explanation():
        parts.append(f'<p class="note">{html.escape(" ".join(sentences))}</p>')
    head = ["stage", "device", "modules", "action", "predicted", "achieved", "error"]
    parts.append(table(head, [list(row) for row in report.action_rows()]))
    head = ["stage", "predicted busy", "achieved busy", "predicted peak memory", "measured peak memory"]
    parts.append(table(head, [list(row) for row in report.device_rows()]))
    absent = "<p class=\"note\">Pictures need matplotlib: pip install 'dnn-balance[plot]'</p>"
    parts.append(absent if picture is None else f"<figure>{picture}</figure>")
    facts = ", ".join(f"{key}: {value}" for key, value in report.conditions().items())
    parts.append(f'<p class="note">{html.escape(facts)}</p>')
    return "\n".join(parts)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
