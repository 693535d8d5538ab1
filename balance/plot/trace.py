"""Plot room: timelines as files that chrome://tracing and Perfetto open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from balance.plot.panels import named
from balance.problems.model.files import write_json
from balance.problems.model.timeline import Timeline


def chrome_trace(
    timeline: Timeline | Sequence[Timeline], path: str | Path, *, labels: Sequence[str] | None = None
) -> None:
    """Write one timeline, or several one below the other, in the Trace Event Format.

    Parameters
    ----------
    timeline
        What to write.
    path
        File; it is replaced only when the new one is complete.
    labels
        One name per timeline.

    Raises
    ------
    OptionError
        If there is no timeline, or the labels do not fit.
    """
    events: list[dict[str, Any]] = []
    for process, (name, one) in enumerate(named(timeline, labels, default="step")):
        events += one.to_chrome_trace(name=name, process=process)["traceEvents"]
    write_json(path, {"traceEvents": events, "displayTimeUnit": "ms"})
