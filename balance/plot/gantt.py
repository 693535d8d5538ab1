"""Plot room: Gantt pictures of timelines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from balance.plot.panels import draw_chart, draw_memory, legend_entries, named
from balance.problems.model.actions import Kind
from balance.problems.model.errors import MissingDependencyError, OptionError
from balance.problems.model.fields import nearest
from balance.problems.model.files import write_bytes
from balance.problems.model.timeline import Timeline
from balance.wording import show_seconds, show_share, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 10.0
"""Inches."""


def gantt(
    timeline: Timeline | Sequence[Timeline],
    path: str | Path | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    labels: Sequence[str] | None = None,
    memory: bool = True,
) -> Figure:
    """Draw what every device does over time: a row per device, bubbles hatched, transfers as thin lines between rows.

    Parameters
    ----------
    timeline
        One timeline, or several to compare one below the other on the same axis of time.
    path
        File to write; the ending decides the format (``.svg``, ``.png``, ``.pdf``). It is replaced only when the new
        one is complete.
    ax
        Axes to draw one timeline into, without memory; by default a new figure. No window is opened in either case.
    title
        Above the picture.
    labels
        One name per timeline, such as ``["predicted", "achieved"]``.
    memory
        Whether to draw memory over time below each timeline that knows it.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; in a notebook it shows itself.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    OptionError
        If labels, axes or the file's ending do not fit.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingDependencyError(
            "pictures need matplotlib: pip install 'dnn-balance[plot]'", extra="plot"
        ) from None
    rows = named(timeline, labels)
    if ax is not None and len(rows) > 1:
        raise OptionError(f"ax= holds one timeline, got {len(rows)}; leave it out to compare several")
    target = None if path is None else _target(path)
    # Text stays text, and ids do not depend on chance, so that equal timelines give equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dnn-balance", "font.size": 8.5}):
        figure = _into(ax, rows[0], title) if ax is not None else _figure(rows, title, memory)
        if target is not None:
            _save(figure, target)
    return figure


def _figure(rows: list[tuple[str, Timeline]], title: str | None, memory: bool) -> Figure:
    from matplotlib.figure import Figure

    limit = max(one.step_time for _, one in rows) or 1.0
    unit, size = time_unit(limit)
    factor = 1 / size
    panels: list[tuple[str, Timeline, bool]] = []
    heights: list[float] = []
    for name, one in rows:
        panels.append((name, one, False))
        heights.append(min(max(0.34 * one.n_devices, 0.9), 8.0))
        if memory and one.footprint is not None and bool((one.peak_memory > 0).any()):
            panels.append((name, one, True))
            heights.append(1.15)
    head = 0.32 if title else 0.0  # the title has a line of its own, so that it may be long
    margin, gap, left, right = 0.6 + head, 0.4, 0.85, 0.85
    height = sum(heights) + gap * (len(heights) - 1) + margin + 0.5
    figure = Figure(figsize=(WIDTH, height))
    width = WIDTH - left - right
    kinds: list[Kind] = []
    lower = height - margin
    axes: list[Any] = []
    for (name, one, is_memory), tall in zip(panels, heights, strict=True):
        lower -= tall
        ax = figure.add_axes((left / WIDTH, lower / height, width / WIDTH, tall / height))
        lower -= gap
        axes.append(ax)
        if is_memory:
            ax.set_xlim(0, limit * factor)
            draw_memory(ax, one, factor, limit)
        else:
            kinds += [kind for kind in draw_chart(ax, one, factor, (width, tall), limit) if kind not in kinds]
            ax.set_title(_caption(name, one), loc="left", fontsize=8.5, pad=3)
    for ax in axes[:-1]:
        ax.tick_params(axis="x", labelbottom=False)
    axes[-1].set_xlabel(f"time [{unit}]")
    handles = legend_entries(sorted(kinds), bubbles=True, transfers=any(len(one.transfers) > 0 for _, one in rows))
    figure.legend(
        handles=handles, loc="upper right", ncols=len(handles), frameon=False, fontsize=8,
        bbox_to_anchor=(1 - right / WIDTH, 1 - (head + 0.02) / height), handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip
    if title:
        figure.text(left / WIDTH, 1 - 0.1 / height, title, fontsize=11, va="top")
    return figure


def _into(ax: Axes, row: tuple[str, Timeline], title: str | None) -> Figure:
    from matplotlib.figure import Figure

    name, timeline = row
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)  # axes of a figure, maybe inside a subfigure
    limit = timeline.step_time or 1.0
    unit, size = time_unit(limit)
    factor = 1 / size
    box = ax.get_window_extent()
    draw_chart(ax, timeline, factor, (box.width / figure.dpi, box.height / figure.dpi), limit)
    ax.set_xlabel(f"time [{unit}]")
    ax.set_title(title if title is not None else _caption(name, timeline), loc="left")
    return figure


def _caption(name: str, timeline: Timeline) -> str:
    figures = f"step {show_seconds(timeline.step_time)}, bubble {show_share(timeline.bubble_fraction)}"
    if timeline.samples_per_second is not None:
        figures += f", {timeline.samples_per_second:.4g} samples/s"
    return f"{name}: {figures}" if name else figures


def _target(path: str | Path) -> Path:
    from matplotlib.backend_bases import FigureCanvasBase

    target = Path(path)
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    ending = target.suffix.lower().removeprefix(".")
    if ending not in known:
        raise OptionError(f"{target.name!r} has no ending of a picture format{nearest(ending, known)}", path=str(path))
    return target


def _save(figure: Figure, target: Path) -> None:
    """Draw the picture in memory, then write the file whole."""
    ending = target.suffix.lower().removeprefix(".")
    dateless = {"Date": None} if ending == "svg" else {"CreationDate": None} if ending == "pdf" else None
    picture = io.BytesIO()
    figure.savefig(picture, format=ending, dpi=150, metadata=dateless)
    write_bytes(target, picture.getvalue())
