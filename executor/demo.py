"""Executor room: the main job end to end on a small GPT-like model; ``python -m balance.executor.demo``.

It profiles the model in two processes, measures the link between them, asks `solve` for a proven plan, profiles again
as that plan and an even split divide the modules, runs both in turn, and writes a page that shows predicted against
achieved. The first profile has every module on both cores, so that the plan does not depend on which core is slower;
the others have on each core what a run has there, so that the prediction does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from balance.executor.display import show_percent, show_seconds
from balance.executor.launch import Ranks
from balance.executor.links import measure_links
from balance.executor.models import gpt, token_loss
from balance.executor.page import write_comparison
from balance.executor.profiling import profile
from balance.executor.report import RunReport
from balance.executor.runner import run_plans
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import BalanceError, OptionError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.wording import show_bytes

RANKS = 2
# Share of the time with a task waiting for a CPU; two ranks on two idle cores stay far below it.
BUSY = 0.15
EVEN, OURS = "even split", "our plan"
VOCABULARY, CONTEXT, WIDTH, BLOCKS = 8192, 128, 256, 6


@dataclass(frozen=True)
class Effort:
    """How much the demo measures.

    Parameters
    ----------
    microbatches, microbatch_size
        Of one step.
    repeats
        Repetitions of the profile.
    """

    microbatches: int
    microbatch_size: int
    repeats: int


FULL, FULL_STEPS = Effort(microbatches=8, microbatch_size=3, repeats=12), 12
FAST, FAST_STEPS = Effort(microbatches=4, microbatch_size=2, repeats=6), 4


def even_cuts(modules: int, stages: int) -> list[int]:
    """Return the boundaries of a split into equal numbers of modules.

    Examples
    --------
    >>> even_cuts(8, 2), even_cuts(7, 3)
    ([0, 4, 8], [0, 2, 5, 7])
    """
    return [round(s * modules / stages) for s in range(stages + 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m balance.executor.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for page, pictures and traces")
    parser.add_argument("--steps", type=int, help="steps per plan, the first is a warm-up (default 12)")
    parser.add_argument("--fast", action="store_true", help="fewer and smaller steps: a look, not a measurement")
    options = parser.parse_args(arguments)
    effort = FAST if options.fast else FULL
    steps = options.steps if options.steps is not None else FAST_STEPS if options.fast else FULL_STEPS
    try:
        if steps < 2:
            raise OptionError(f"--steps must be at least 2, since the first is a warm-up, got {steps}")
        demonstrate(options.out, effort, steps)
    except (BalanceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def demonstrate(out: Path, effort: Effort, steps: int) -> dict[str, RunReport]:
    """Run the demo, print what it finds, and return the reports of the even split and of our plan."""
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)  # now, not after a minute's work
    model = gpt(vocabulary=VOCABULARY, context=CONTEXT, width=WIDTH, blocks=BLOCKS)
    generator = torch.Generator().manual_seed(0)
    batch = effort.microbatches * effort.microbatch_size
    tokens = torch.randint(VOCABULARY, (batch, CONTEXT + 1), generator=generator)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    size = effort.microbatch_size
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    print(
        f"GPT-like model: embedding, {BLOCKS} blocks of width {WIDTH}, head of {VOCABULARY} tokens; "
        f"{effort.microbatches} micro-batches of {size} x {CONTEXT} tokens, 1f1b, {RANKS} processes, one thread each"
    )
    with Ranks(RANKS, pin=True) as ranks:
        measured = partial(
            profile,
            model,
            inputs[:size],
            target=targets[:size],
            loss_fn=token_loss,
            optimizer=optimizer,
            repeats=effort.repeats,
            ranks=ranks,
            name="demo GPT",
        )
        graph = measured(in_flight=RANKS)
        link = measure_links(ranks=ranks)
        print(f"link: latency {link.latency * 1e3:.2f} ms, bandwidth {link.bandwidth / 1e9:.2f} GB/s")
        _print_profile(graph)
        cluster = Cluster.uniform(RANKS, kind="cpu", latency=link.latency, bandwidth=link.bandwidth)
        ours, proof = _solved(graph, cluster, effort)
        print(f"our plan: {proof}")
        even = Plan.chain(
            even_cuts(graph.n_operators, RANKS), microbatches=effort.microbatches, microbatch_size=float(size)
        )
        plans = {EVEN: even, OURS: ours}
        graphs = {
            name: measured(cuts=[0, *(int(stage.operators[-1]) + 1 for stage in plan.stages)])
            for name, plan in plans.items()
        }
        print(f"running both plans in turn, {steps} steps each ...", flush=True)
        reports = run_plans(
            plans,
            model,
            inputs,
            targets,
            loss_fn=token_loss,
            optimizer=optimizer,
            steps=steps,
            graph=graphs,
            cluster=cluster,
            ranks=ranks,
        )
    print(_table(reports))
    for name, report in reports.items():
        print(f"{name}: {' '.join(report.explanation())}")
    warnings = _warnings(reports)
    for warning in warnings:
        print(warning)
    notes = [f"Our plan: {proof}.", *warnings]
    page = write_comparison(reports, out, notes=notes)
    print(f"page: {page} ({time.perf_counter() - began:.0f} s in all)")
    return reports


def _solved(graph: CostGraph, cluster: Cluster, effort: Effort) -> tuple[Plan, str]:
    from balance import solve

    result = solve(graph, cluster, objective="bottleneck", microbatches=effort.microbatches, schedule="1f1b")
    plan = result.solution
    if not isinstance(plan, Plan):
        raise BalanceError(f"no plan was found: {result.summary()}")
    plan = plan.replace(
        microbatches=effort.microbatches, microbatch_size=float(effort.microbatch_size), schedule="1f1b"
    )
    proof = (
        f"{result.status} by {result.solver}, bottleneck {show_seconds(result.objective)} per micro-batch, bound "
        f"{show_seconds(result.bound)}, gap {result.gap * 100:.2g} %"
    )
    return plan, proof


def _print_profile(graph: CostGraph) -> None:
    print(f"{'module':<14}{'forward':>12}{'backward':>12}{'parameters':>14}{'activations':>14}")
    for i in range(graph.n_operators):
        print(
            f"{graph.names[i] if graph.names else i:<14}{show_seconds(graph.forward[0, 0, i]):>12}"
            f"{show_seconds(graph.backward[0, 0, i]):>12}{show_bytes(graph.parameter_bytes[0, i]):>14}"
            f"{show_bytes(graph.activation_bytes[0, i]):>14}"
        )


def _warnings(reports: dict[str, RunReport]) -> list[str]:
    """Say so when the figures are as much about other programs on the machine as about the plans."""
    stalled = next(iter(reports.values())).machine.get("stalled")
    if stalled is None or stalled < BUSY:
        return []
    return [
        f"The machine was busy: for {stalled * 100:.0f} % of the run some task waited for a CPU, so the figures are "
        f"also about what else ran; repeat on a quiet machine."
    ]


def _table(reports: dict[str, RunReport]) -> str:
    head = f"{'':<12}{'cuts':>8}{'predicted step':>18}{'achieved step':>18}{'error':>10}{'samples/s':>12}"
    lines = [head]
    for name, report in reports.items():
        cuts = "|".join(str(len(stage.operators)) for stage in report.plan.stages)
        lines.append(
            f"{name:<12}{cuts:>8}{show_seconds(report.predicted_step):>18}{show_seconds(report.achieved_step):>18}"
            f"{show_percent(report.error):>10}{report.samples_per_second:>12.2f}"
        )
    first, second = reports.values()
    lines.append(f"our plan runs {first.achieved_step / second.achieved_step:.2f} times as fast as the even split")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
