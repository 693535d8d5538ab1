"""Command line: ``profile`` a model and ``run`` a plan on torch.distributed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from balance.cli.console import Output, time_text
from balance.cli.inputs import answer_and_graph, load_cluster, load_instance, load_plan
from balance.cli.options import DevicesFileOption, FormatOption, JsonOption, file_to_write, folder_to_fill
from balance.cli.workload import load_workload
from balance.problems.formats import write
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import MissingDependencyError, OptionError
from balance.wording import show_bytes, show_share

if TYPE_CHECKING:
    from balance.executor.report import RunReport

_MODEL_HELP = (
    "Function that returns model, inputs and optionally targets, loss_fn and optimizer (a mapping, or a tuple in this "
    "order)."
)
DeviceOption = Annotated[str, typer.Option("--device", help="cpu (gloo) or cuda (nccl).")]
InferenceOption = Annotated[bool, typer.Option("--inference", help="Forward only.")]
RankThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Threads per process.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds without progress before a run ends.")]


def profile(
    model: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help=_MODEL_HELP)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="GRAPH.json", callback=file_to_write, help="Where the cost graph goes."),
    ],
    microbatch_size: Annotated[
        int | None, typer.Option("--microbatch-size", min=1, help="Samples per micro-batch. Default: all inputs.")
    ] = None,
    device: DeviceOption = "cpu",
    inference: InferenceOption = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Counted repetitions.")] = 20,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            "-d",
            min=2,
            help="Profile in this many processes at once, as they will run, and measure the link between them; the "
            "file then also holds these devices.",
        ),
    ] = None,
    threads: RankThreadsOption = 1,
    timeout: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Measure a model's modules and write its cost graph."""
    _need_torch()
    from balance.executor import measure_links
    from balance.executor import profile as measure

    workload = load_workload(model)
    count = _samples(workload.inputs) if microbatch_size is None else microbatch_size
    if count > _samples(workload.inputs):
        raise OptionError(f"--microbatch-size {count} is more than the {_samples(workload.inputs)} inputs of {model}")
    graph = measure(
        workload.model,
        workload.inputs[:count],
        target=None if workload.targets is None or inference else workload.targets[:count],
        loss_fn=None if inference else workload.loss_fn,
        optimizer=None if inference else workload.optimizer,
        device=device,
        training=not inference,
        repeats=repeats,
        processes=devices,
        threads=threads,
        timeout=timeout,
        name=model,
    )
    output = Output(as_json)
    cluster = None
    if devices is not None:
        link = measure_links(processes=devices, device=device, threads=threads, timeout=timeout)
        cluster = Cluster.uniform(devices, kind=graph.kinds[0], latency=link.latency, bandwidth=link.bandwidth)
    write(Instance(graph, cluster, name=model), out, "native")
    output.data(
        {
            "file": out,
            "operators": graph.n_operators,
            "hash": graph.hash,
            "source": graph.source,
            "cluster": None if cluster is None else cluster.to_json(),
        }
    )
    forward, backward = graph.forward[0, 0], graph.backward[0, 0]
    output.table(
        ("operator", "forward", "backward", "parameters", "activations"),
        [
            (
                graph.label(i),
                time_text(forward[i]),
                time_text(backward[i]),
                show_bytes(graph.parameter_bytes[0, i]),
                show_bytes(graph.activation_bytes[0, i]),
            )
            for i in range(graph.n_operators)
        ],
        right=("forward", "backward", "parameters", "activations"),
    )
    if cluster is not None:
        output.text(f"link: latency {time_text(link.latency)}, bandwidth {show_bytes(link.bandwidth)}/s")
    output.note(f"written to {out}")


def run(
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", help="Plan or result file. GRAPH may also come first: they are told apart by content."
        ),
    ],
    model: Annotated[str, typer.Option("--model", metavar="MODULE:FUNCTION", help=_MODEL_HELP)],
    graph: Annotated[
        Path | None, typer.Argument(metavar="GRAPH", help="Cost graph to predict with, such as a profile.")
    ] = None,
    graph_option: Annotated[Path | None, typer.Option("--graph", metavar="GRAPH", help="The same as GRAPH.")] = None,
    graph_format: FormatOption = None,
    devices_file: DevicesFileOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="REPORT.json", callback=file_to_write, help="Write the report here."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", metavar="DIR", callback=folder_to_fill, help="Write page, pictures and traces into this folder."
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=2, help="Steps to run; the first is a warm-up.")] = 12,
    device: DeviceOption = "cpu",
    inference: InferenceOption = False,
    threads: RankThreadsOption = 1,
    timeout: TimeoutOption = 60.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every rank.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a plan, one process per stage, and compare predicted with achieved."""
    _need_torch()
    from balance.executor import run as execute

    if graph is None:
        graph = graph_option
    elif graph_option is not None:
        raise OptionError(f"give the graph once: {graph} or --graph {graph_option}")
    if graph is not None:
        plan, graph = answer_and_graph(plan, graph)
    instance = None if graph is None else load_instance(graph, graph_format)
    chosen = load_plan(plan, None if instance is None else instance.graph)
    cluster = None
    if devices_file is not None:
        cluster = load_cluster(devices_file)
    elif instance is not None:
        cluster = chosen.cluster or instance.cluster
    workload = load_workload(model)
    report = execute(
        chosen.plan,
        workload.model,
        workload.inputs,
        None if inference else workload.targets,
        loss_fn=None if inference else workload.loss_fn,
        optimizer=None if inference else workload.optimizer,
        steps=steps,
        training=not inference,
        graph=None if instance is None else instance.graph,
        cluster=cluster,
        device=device,
        threads=threads,
        timeout=timeout,
        seed=seed,
    )
    output = Output(as_json)
    written = [str(path) for path in (out, page) if path is not None]
    try:
        if out is not None:
            report.save(out)
        if page is not None:
            from balance.executor.page import write_report

            written[-1] = str(write_report(report, page))
    finally:  # a full disk does not cost the figures, nor a closed pipe the files
        _show(output, report)
    if written:
        output.note(f"written to {' and '.join(written)}")


def _show(output: Output, report: RunReport) -> None:
    """Print predicted and achieved, per action, per device and per step."""
    output.data(report.to_json())
    output.table(
        ("stage", "device", "modules", "action", "predicted", "achieved", "error"),
        report.action_rows(),
        right=("predicted", "achieved", "error"),
    )
    output.table(
        ("stage", "busy predicted", "busy achieved", "memory predicted", "memory measured"),
        report.device_rows(),
        right=("busy predicted", "busy achieved", "memory predicted", "memory measured"),
    )
    output.text(
        f"step: predicted {time_text(report.predicted_step)}, achieved {time_text(report.achieved_step)} "
        f"(error {show_share(report.error)}); {report.samples_per_second:.6g} samples per second"
    )


def _samples(inputs: Any) -> int:
    try:
        return int(inputs.shape[0])
    except (AttributeError, IndexError, TypeError):
        raise OptionError(
            f"inputs must be a tensor with samples along its first dimension, got {type(inputs).__name__}"
        ) from None


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            "this needs PyTorch, which is not installed; pip install 'dnn-balance[executor]' brings it",
            extra="executor",
        )
