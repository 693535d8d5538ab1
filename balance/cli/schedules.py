"""Command line: ``simulate`` a plan and ``plot`` its schedule."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balance.cli.console import Output, time_text
from balance.cli.inputs import answer_and_graph, load_cluster, load_instance, load_plan
from balance.cli.options import (
    MOST_DEVICES,
    BandwidthOption,
    DevicesFileOption,
    FormatOption,
    JsonOption,
    LatencyOption,
    file_to_write,
)
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import OptionError
from balance.question import linked
from balance.wording import show_bytes, show_share

if TYPE_CHECKING:
    from balance.problems.model.timeline import Timeline

PICTURES = (".svg", ".png", ".pdf", ".html", ".json")

PlanArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PLAN", help="Plan or result file. GRAPH may also come first: they are told apart by content."
    ),
]
GraphPath = Annotated[Path, typer.Argument(metavar="GRAPH", help="Graph or instance that the plan is for.")]
SendsOption = Annotated[
    str,
    typer.Option("--sends", metavar="HOW", help="buffered or rendezvous; how a sender waits for its receiver."),
]


def _timeline(
    plan: Path,
    graph: Path,
    format: str | None,
    devices_file: Path | None,
    bandwidth: float | None,
    latency: float | None,
    sends: str,
) -> Timeline:
    from balance.problems.model.simulate import simulate as run

    instance = load_instance(graph, format)
    loaded = load_plan(plan, instance.graph)
    cluster = load_cluster(devices_file) if devices_file is not None else loaded.cluster or instance.cluster
    if cluster is None:
        # A plan file names device numbers only; enough equal devices of the graph's kind are what it can mean.
        if len(instance.graph.kinds) > 1:
            raise OptionError(
                f"the graph has costs for the kinds {', '.join(instance.graph.kinds)}; say which device is what with "
                f"--devices-file, or give a result file"
            )
        count = 1 + max(device for stage in loaded.plan.stages for device in stage.devices)
        if count > MOST_DEVICES:
            raise OptionError(f"{plan} names device {count - 1}; say what the devices are with --devices-file")
        cluster = Cluster.uniform(count, kind=instance.graph.kinds[0])
    return run(
        loaded.plan,
        instance.graph,
        linked(cluster, bandwidth, latency),
        sends=sends,
        state_factor=loaded.state_factor,
        backend=loaded.backend,
    )


def simulate(
    plan: PlanArgument,
    graph: GraphPath,
    devices_file: DevicesFileOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = None,
    sends: SendsOption = "buffered",
    format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate one step of a plan: its time, what each device does, and the memory it needs."""
    plan, graph = answer_and_graph(plan, graph)
    timeline = _timeline(plan, graph, format, devices_file, bandwidth, latency, sends)
    output = Output(as_json)
    peak = timeline.peak_memory
    output.data(
        {
            "step_time": timeline.step_time,
            "samples_per_second": timeline.samples_per_second,
            "bubble_fraction": timeline.bubble_fraction,
            "devices": [
                {"device": d, "busy": timeline.busy[d], "peak_memory": peak[d]} for d in range(timeline.n_devices)
            ],
        }
    )
    rate = timeline.samples_per_second
    output.text(
        f"step {time_text(timeline.step_time)}, bubble {show_share(timeline.bubble_fraction)}"
        + ("" if rate is None else f", {rate:.6g} samples per second")
    )
    step = timeline.step_time or 1.0
    output.table(
        ("device", "busy", "share", "peak memory"),
        [
            (d, time_text(timeline.busy[d]), show_share(timeline.busy[d] / step), show_bytes(peak[d]))
            for d in range(timeline.n_devices)
        ],
        right=("busy", "share", "peak memory"),
    )


def plot(
    plan: PlanArgument,
    graph: GraphPath,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            callback=file_to_write,
            help="Picture (.svg, .png, .pdf), page (.html) or Chrome trace (.json).",
        ),
    ],
    devices_file: DevicesFileOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = None,
    sends: SendsOption = "buffered",
    format: FormatOption = None,
) -> None:
    """Draw the schedule of a plan as a Gantt picture, a page or a trace for a browser."""
    from balance.plot import chrome_trace, gantt
    from balance.problems.model.files import write_text

    ending = out.suffix.lower()
    if ending not in PICTURES:
        raise OptionError(f"--out {out} ends in {ending!r}; known endings are {', '.join(PICTURES)}")
    plan, graph = answer_and_graph(plan, graph)
    timeline = _timeline(plan, graph, format, devices_file, bandwidth, latency, sends)
    if ending == ".json":
        chrome_trace(timeline, out)
    elif ending == ".html":
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder, "plan.svg")
            gantt(timeline, picture)
            write_text(out, _page(picture.read_text(encoding="utf-8"), timeline, f"{plan.name} on {graph.name}"))
    else:
        gantt(timeline, out)
    Output().text(f"written to {out}")


def _page(picture: str, timeline: Timeline, title: str) -> str:
    """Return a self-contained page with the picture and the figures below it."""
    # The XML declaration and document type of a stand-alone picture have no place inside a page.
    drawing = picture[picture.index("<svg") :]
    rows = "".join(
        f"<tr><td>{d}</td><td>{time_text(timeline.busy[d])}</td><td>{show_bytes(timeline.peak_memory[d])}</td></tr>"
        for d in range(timeline.n_devices)
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font-family:sans-serif;margin:2em}svg{max-width:100%;height:auto}"
        "td,th{padding:0 1em 0 0;text-align:right}</style></head><body>\n"
        f"<h1>{html.escape(title)}</h1>\n{drawing}\n"
        f"<p>Step {time_text(timeline.step_time)}, bubble {show_share(timeline.bubble_fraction)}.</p>\n"
        f"<table><tr><th>device</th><th>busy</th><th>peak memory</th></tr>{rows}</table>\n</body></html>\n"
    )
