"""Plot room: the parts of a Gantt picture, drawn into axes that the caller made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.actions import Kind
from balance.problems.model.errors import OptionError
from balance.problems.model.tensors import FloatArray
from balance.problems.model.timeline import Timeline
from balance.wording import byte_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue for forward, orange and its neighbours for backward: told apart by the colour-blind and in grey print.
COLOURS = {
    Kind.FORWARD: ("forward", "#7aa6d8"),
    Kind.BACKWARD: ("backward", "#f0a35e"),
    Kind.INPUT: ("input gradient", "#f0a35e"),
    Kind.WEIGHT: ("weight gradient", "#b8cf7e"),
    Kind.EVICT: ("evict", "#b9a3cf"),
    Kind.LOAD: ("load", "#d8c8e6"),
}
BUBBLE = "#b0b0b0"
TRANSFER = "#404040"
HEIGHT = 0.76
"""Height of a bar; devices lie 1 apart."""

RASTER = 4_000
"""Shapes above which a part of a vector picture is drawn in pixels."""

SHORT = 2e-3
"""Part of the step below which a bubble is left white."""

NUMBERS = 1_500
"""Most numbers written into one chart."""


def named(
    timeline: Timeline | Sequence[Timeline], labels: Sequence[str] | None, default: str = ""
) -> list[tuple[str, Timeline]]:
    """Return timelines with their labels.

    Raises
    ------
    OptionError
        If there is no timeline, something else is among them, or the labels do not fit.
    """
    many = [timeline] if isinstance(timeline, Timeline) else list(timeline)
    if not many or not all(isinstance(one, Timeline) for one in many):
        raise OptionError("give a Timeline or a list of them")
    if labels is None:
        labels = [default if len(many) == 1 else f"timeline {i + 1}" for i in range(len(many))]
    if isinstance(labels, str) or len(labels) != len(many):
        raise OptionError(f"labels={labels!r} do not fit {len(many)} timelines; give one each")
    return list(zip(labels, many, strict=True))


def draw_chart(ax: Axes, timeline: Timeline, factor: float, inches: tuple[float, float], limit: float) -> list[Kind]:
    """Draw actions, bubbles and transfers; return the kinds of action drawn.

    Parameters
    ----------
    ax
        Where.
    timeline
        What.
    factor
        Of the unit of time.
    inches
        Width and height of the axes, which decide what numbers fit.
    limit
        End of the axis of time, in seconds.
    """
    from matplotlib.colors import to_rgb

    devices = timeline.n_devices
    _draw_bubbles(ax, timeline, factor)
    spans = [timeline.span(d) for d in range(devices)]
    chosen = np.concatenate([np.arange(p.start, p.stop) for p in spans])
    rows = np.repeat(np.arange(devices), [p.stop - p.start for p in spans])
    kinds = timeline.kind[chosen]
    first = np.array([int(timeline.stage[p].min()) if p.stop > p.start else 0 for p in spans])
    chunk = timeline.stage[chosen] != first[rows]
    left, right = timeline.start[chosen] * factor, timeline.end[chosen] * factor
    drawn = [kind for kind in Kind if bool((kinds == kind).any())]
    for kind in drawn:
        # Later stages of a device are paler than its first.
        for later, strength in ((False, 1.0), (True, 0.55)):
            mask = (kinds == kind) & (chunk == later)
            colour = tuple(1 - strength * (1 - part) for part in to_rgb(COLOURS[kind][1]))
            _boxes(ax, left[mask], right[mask], rows[mask], facecolor=colour, zorder=3)
    _draw_numbers(ax, timeline, chosen, rows, left, right, inches, limit * factor)
    _draw_transfers(ax, timeline, factor)
    ax.set_xlim(0, limit * factor)
    ax.set_ylim(devices - 0.4, -0.6)
    step = max(1, -(-devices // max(int(inches[1] / 0.16), 1)))
    ax.set_yticks(range(0, devices, step), [f"device {d}" for d in range(0, devices, step)])
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    return drawn


def draw_memory(ax: Axes, timeline: Timeline, factor: float, limit: float) -> None:
    """Draw the memory of every device over time, and its highest value as text at the axis."""
    from matplotlib import colormaps

    curves = [timeline.memory(d) for d in range(timeline.n_devices)]
    highest = max(float(held.max()) for _, held in curves)
    unit, size = byte_unit(highest)
    colours = colormaps["viridis"](np.linspace(0, 0.88, timeline.n_devices))
    for d, (moments, amounts) in enumerate(curves):
        # Where one action follows another at once, only what then holds is drawn.
        stays = np.append(np.diff(moments) > 1e-9 * limit, True)
        times, held = moments[stays], amounts[stays]
        line = ax.step(
            np.append(times, limit) * factor,
            np.append(held, held[-1]) / size,
            where="post",
            color=colours[d],
            linewidth=1.1,
            label=f"device {d}",
        )[0]
        line.set_rasterized(len(times) > RASTER)
    ax.set_ylim(0, highest / size * 1.08 if highest > 0 else 1)
    ax.set_ylabel(f"memory [{unit}]")
    ax.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    if timeline.n_devices > 1:
        lines = ax.get_lines()
        ax.legend(
            handles=lines if len(lines) <= 8 else [lines[0], lines[-1]],
            loc="upper left",
            bbox_to_anchor=(1.005, 1.04),
            frameon=False,
            fontsize=7,
            handlelength=1.2,
        )
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def legend_entries(kinds: Sequence[Kind], *, bubbles: bool, transfers: bool) -> list[Any]:
    """Return handles for a legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(facecolor=COLOURS[kind][1], label=COLOURS[kind][0]) for kind in kinds]
    if bubbles:
        handles.append(Patch(facecolor="white", edgecolor=BUBBLE, hatch="////", linewidth=0, label="bubble"))
    if transfers:
        handles.append(Line2D([], [], color=TRANSFER, linewidth=0.7, label="transfer"))
    return handles


def _boxes(ax: Axes, left: FloatArray, right: FloatArray, rows: Any, **style: Any) -> None:
    from matplotlib.collections import PolyCollection

    if not len(left):
        return
    low, high = rows - HEIGHT / 2, rows + HEIGHT / 2
    corners = np.stack(
        [np.stack(corner, axis=-1) for corner in ((left, low), (right, low), (right, high), (left, high))], axis=1
    )
    # A white edge parts neighbours, but would swallow bars once there are many.
    edge = {"edgecolor": "white", "linewidth": 0.5 if len(left) < 600 else 0.15} if len(left) < RASTER else {}
    boxes = PolyCollection(list(corners), **{**edge, "linewidth": edge.get("linewidth", 0), **style})
    boxes.set_rasterized(len(left) > RASTER)
    ax.add_collection(boxes)


def _draw_bubbles(ax: Axes, timeline: Timeline, factor: float) -> None:
    spans, rows = [], []
    for d in np.flatnonzero(timeline.used).tolist():
        waits = timeline.bubbles(d)
        spans.append(waits[waits[:, 1] - waits[:, 0] > SHORT * timeline.step_time] * factor)
        rows.append(np.full(len(spans[-1]), d))
    if spans:
        every = np.concatenate(spans)
        _boxes(
            ax, every[:, 0], every[:, 1], np.concatenate(rows), facecolor="none", edgecolor=BUBBLE, hatch="////",
            linewidth=0, zorder=1,
        )  # fmt: skip


def _draw_numbers(
    ax: Axes,
    timeline: Timeline,
    chosen: Any,
    rows: Any,
    left: FloatArray,
    right: FloatArray,
    inches: tuple[float, float],
    limit: float,
) -> None:
    """Write the micro-batch into every bar that is wide and high enough for it."""
    size = min(8.0, 72 * inches[1] / max(timeline.n_devices, 1) * HEIGHT * 0.55)
    if size < 4.5 or limit <= 0:
        return
    numbers = timeline.microbatch[chosen]
    digits = np.char.str_len(numbers.astype(str)) if len(numbers) else np.zeros(0)
    room = (right - left) / limit * inches[0] * 72
    fits = np.flatnonzero(room >= digits * size * 0.62 + 1.5)
    if len(fits) > NUMBERS:
        return
    for i in fits.tolist():
        ax.text(
            (left[i] + right[i]) / 2,
            rows[i],
            str(int(numbers[i])),
            ha="center",
            va="center_baseline",
            fontsize=size,
            color="#202020",
            zorder=4,
            clip_on=True,
        )


def _draw_transfers(ax: Axes, timeline: Timeline, factor: float) -> None:
    from matplotlib.collections import LineCollection

    transfers = timeline.transfers
    if not len(transfers):
        return
    source, target = transfers.source, transfers.target
    down = np.where(target > source, HEIGHT / 2, -HEIGHT / 2)
    ends = np.stack(
        [
            np.stack([transfers.start * factor, source + down], axis=1),
            np.stack([transfers.end * factor, target - down], axis=1),
        ],
        axis=1,
    )
    lines = LineCollection(list(ends), colors=TRANSFER, linewidths=0.6 if len(ends) < 1000 else 0.2, zorder=2)
    lines.set_rasterized(len(ends) > RASTER)
    ax.add_collection(lines)
