"""Executor room: why a prediction was off, in sentences: the structure, the work, or a core that was not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from balance.executor.display import show_percent
from balance.wording import show_share

if TYPE_CHECKING:
    from balance.executor.report import RunReport

# Less than this share of the time on a CPU: other programs had the cores, or the rank waited for its own threads.
SHARED = 0.9


def explain(report: RunReport) -> list[str]:
    """Return sentences that take a report's error apart; none without a prediction.

    The error has two sources: the simulator's structure (what it says when it is given the run's own durations) and
    durations that differ from the profile. On CPU the second is split again by the thread's CPU time: work that took
    more or less, or waiting for a core.
    """
    structure, durations = report.structure_error, report.duration_error
    if structure is None or durations is None:
        return []
    lines = [
        f"The simulator fed with the durations of the run itself is off by {show_percent(structure)}; the profile's "
        f"durations, summed over a step, by {show_percent(durations)}."
    ]
    profiled, ran = profiled_on_cpu(report), report.on_cpu
    if profiled is None or ran is None:
        return lines
    work = (1.0 + durations) * profiled / ran - 1.0
    lines.append(
        f"By CPU time they are off by {show_percent(work)}: actions ran on a CPU for {show_share(profiled)} of their "
        f"time in the profile and {show_share(ran)} in the run."
    )
    if min(profiled, ran) < SHARED and report.machine.get("threads") == 1:
        lines.append("The rest they waited for a core that other programs had; repeat on a quiet machine.")
    return lines


def profiled_on_cpu(report: RunReport) -> float | None:
    """Return the share of the profile's time in which its threads ran on a CPU, if the graph tells."""
    profile = None if report.graph is None else report.graph.source.get("profile")
    share = profile.get("on_cpu") if isinstance(profile, dict) else None
    return float(share) if isinstance(share, (int, float)) and share > 0 else None
