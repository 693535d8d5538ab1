"""Executor room: what a run achieved, next to what was predicted for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from balance.executor.display import show_percent, show_seconds
from balance.executor.record import RankRecord
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ExecutionError, FormatError
from balance.problems.model.fields import Fields
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray
from balance.wording import show_bytes, show_share

if TYPE_CHECKING:
    from balance.problems.model.timeline import Timeline

SCHEMA = "dnn-balance/run-report"
VERSION = 1


@dataclass(frozen=True, eq=False)
class RunReport:
    """Predicted against achieved, for one plan.

    The first step is a warm-up and never counts; "achieved" is the median of the others.

    Parameters
    ----------
    plan
        What ran.
    records
        One per rank.
    samples
        Samples per step.
    training
        Whether backward passes ran.
    graph, cluster
        What the prediction is made from; without them there is none.
    sends, overhead
        As in `simulate`.
    state_factor
        Bytes held per parameter byte.
    optimizer
        Whether steps ended with an optimizer step; its predicted time is in ``graph.source["optimizer_seconds"]``.
    machine
        Device, threads, versions, and how loaded the machine was.
    collected
        Gradients, parameters or outputs that were asked for; not saved.

    Raises
    ------
    ExecutionError
        If the records do not belong to the plan.
    """

    plan: Plan
    records: tuple[RankRecord, ...]
    samples: int
    training: bool
    graph: CostGraph | None = None
    cluster: Cluster | None = None
    sends: str = "rendezvous"
    overhead: float = 0.0
    state_factor: float = 1.0
    optimizer: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict)
    collected: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.records) != self.plan.n_stages or len({len(record.start) for record in self.records}) != 1:
            raise ExecutionError(
                f"{len(self.records)} rank records do not fit a plan of {self.plan.n_stages} stages, or their numbers "
                f"of steps differ"
            )
        if self.steps < 2:
            raise ExecutionError("a report needs at least two steps: the first is a warm-up")

    # -- achieved ----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps run, the warm-up included."""
        return len(self.records[0].start)

    @cached_property
    def step_seconds(self) -> FloatArray:
        """Time of every step, first start to last finish over the ranks, shape (steps,)."""
        starts = np.min([record.start for record in self.records], axis=0)
        return np.asarray(np.max([record.finish for record in self.records], axis=0) - starts)

    @property
    def achieved_step(self) -> float:
        """Median step time in seconds, the first step left out."""
        return float(np.median(self.step_seconds[1:]))

    @property
    def samples_per_second(self) -> float:
        """Samples per second at the median step time."""
        return self.samples / self.achieved_step

    @cached_property
    def typical_step(self) -> int:
        """The counted step whose time is nearest to the median."""
        return 1 + int(np.argmin(np.abs(self.step_seconds[1:] - self.achieved_step)))

    @property
    def losses(self) -> FloatArray:
        """Mean loss of every step, shape (steps,); nan in forward-only runs."""
        losses = self.records[-1].losses
        return np.asarray(losses.mean(axis=1)) if losses.size else np.full(self.steps, np.nan)

    def achieved_seconds(self, kind: int) -> FloatArray:
        """Return the median seconds of an action of a kind (0 forward, 1 backward) on each stage, shape (stages,)."""
        return np.array([_median(record.durations[1:, record.kind == kind]) for record in self.records])

    @property
    def achieved_busy(self) -> FloatArray:
        """Share of the step in which each rank computes, its optimizer step included, median, shape (stages,)."""
        shares = [
            (record.durations.sum(axis=1) + record.finish - record.end)[1:] / self.step_seconds[1:]
            for record in self.records
        ]
        return np.asarray(np.median(shares, axis=1))

    @property
    def achieved_bubble(self) -> float:
        """Share of the step in which a rank waits, on average."""
        return 1.0 - float(self.achieved_busy.mean())

    @property
    def achieved_memory(self) -> FloatArray:
        """Peak bytes of each rank, shape (stages,); see `RankRecord`."""
        return np.array([record.memory_bytes["peak"] for record in self.records])

    # -- predicted ---------------------------------------------------------------------------------------------

    @cached_property
    def predicted(self) -> Timeline | None:
        """The simulated step, made from the profile; None without graph and cluster."""
        from balance.executor.prediction import predict

        return predict(self)

    @cached_property
    def predicted_optimizer(self) -> FloatArray:
        """Seconds of each stage's optimizer step by the profile, shape (stages,); 0 where none ran or is known."""
        known = None if self.graph is None else self.graph.source.get("optimizer_seconds")
        if not self.optimizer or known is None:
            return np.zeros(self.plan.n_stages)
        each = np.asarray(known, dtype=np.float64)
        return np.array([each[stage.operators].sum() for stage in self.plan.stages])

    @property
    def predicted_step(self) -> float | None:
        """Simulated step time: the last rank's end of schedule and optimizer step."""
        if self.predicted is None:
            return None
        return self._finish_of(self.predicted, self.predicted_optimizer)

    @property
    def predicted_samples_per_second(self) -> float | None:
        """Samples per second at the predicted step time."""
        return None if self.predicted_step is None else self.samples / self.predicted_step

    @property
    def error(self) -> float | None:
        """Predicted over achieved step time, less 1; negative: predicted too fast."""
        return None if self.predicted_step is None else self.predicted_step / self.achieved_step - 1.0

    @cached_property
    def structure_error(self) -> float | None:
        """Error that is left when the simulator gets each step's own durations, median over the counted steps.

        What it lacks to `error` comes from durations that differ from the profile.
        """
        from balance.executor.prediction import simulate_step

        errors = []
        for step in range(1, self.steps):
            timeline = simulate_step(self, step)
            if timeline is None:
                return None
            optimizer = np.array([record.finish[step] - record.end[step] for record in self.records])
            errors.append(self._finish_of(timeline, optimizer) / float(self.step_seconds[step]) - 1.0)
        return float(np.median(errors))

    @property
    def on_cpu(self) -> float | None:
        """Share of the actions' time in which the ranks ran on a CPU; None on accelerators.

        On a machine of one's own it is near 1; the rest went to other programs, or to the rank's other threads.
        """
        ran = [record.action_cpu for record in self.records]
        whole = sum(float(record.durations[1:].sum()) for record in self.records)
        if any(cells is None for cells in ran) or whole <= 0:
            return None
        return sum(float(cells[1:].sum()) for cells in ran if cells is not None) / whole

    @property
    def duration_error(self) -> float | None:
        """Profiled over achieved seconds of a step's actions, all stages together, less 1."""
        if self.predicted is None:
            return None
        achieved = np.median(sum(record.durations.sum(axis=1)[1:] for record in self.records))
        return float((self.predicted.end - self.predicted.start).sum() / achieved) - 1.0

    def explanation(self) -> list[str]:
        """Return sentences that say where the error comes from; none without a prediction."""
        from balance.executor.explanation import explain

        return explain(self)

    def predicted_seconds(self, kind: int) -> FloatArray | None:
        """Return the seconds of an action of a kind (0 forward, 1 backward) on each stage, shape (stages,)."""
        timeline = self.predicted
        if timeline is None:
            return None
        seconds = timeline.end - timeline.start
        chosen = timeline.kind == kind
        return np.array([_median(seconds[chosen & (timeline.stage == s)]) for s in range(self.plan.n_stages)])

    @property
    def predicted_busy(self) -> FloatArray | None:
        """Share of the predicted step in which each stage computes, its optimizer step included, shape (stages,)."""
        timeline, step = self.predicted, self.predicted_step
        if timeline is None or step is None:
            return None
        seconds = timeline.end - timeline.start
        busy = np.array([seconds[timeline.stage == s].sum() for s in range(self.plan.n_stages)])
        return np.asarray((busy + self.predicted_optimizer) / step)

    @property
    def predicted_bubble(self) -> float | None:
        """Share of the predicted step in which a stage waits, on average."""
        busy = self.predicted_busy
        return None if busy is None else 1.0 - float(busy.mean())

    @property
    def predicted_memory(self) -> FloatArray | None:
        """Peak bytes of each stage's device, shape (stages,)."""
        return None if self.predicted is None else np.asarray(self.predicted.peak_memory[self.plan.devices])

    @cached_property
    def achieved(self) -> Timeline:
        """The step whose time is nearest to the median, as a timeline."""
        from balance.executor.prediction import achieved_timeline

        return achieved_timeline(self, self.typical_step)

    def timelines(self) -> dict[str, Timeline]:
        """Return the predicted (where there is one) and the achieved timeline by these names."""
        both = {"predicted": self.predicted, "achieved": self.achieved}
        return {name: timeline for name, timeline in both.items() if timeline is not None}

    def _finish_of(self, timeline: Timeline, optimizer: FloatArray) -> float:
        ends = [float(timeline.end[timeline.stage == s].max()) for s in range(self.plan.n_stages)]
        return float(np.max(np.array(ends) + optimizer))

    # -- tables ------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return a few lines for people."""
        cuts = " | ".join(str(len(stage.operators)) for stage in self.plan.stages)
        lines = [
            f"{self.plan.n_stages} stages ({cuts} modules), {self.plan.microbatches} micro-batches, {self.steps} steps",
            f"step: predicted {show_seconds(self.predicted_step)}, achieved {show_seconds(self.achieved_step)}"
            f" (error {show_percent(self.error)}, structure error {show_percent(self.structure_error)})",
            f"samples per second: {self.samples_per_second:.2f}; bubble: predicted "
            f"{show_share(self.predicted_bubble)}, achieved {show_share(self.achieved_bubble)}",
        ]
        lines += self.explanation()
        lines += ["  ".join(row) for row in self.device_rows()]
        return "\n".join(lines)

    def action_rows(self) -> list[tuple[str, ...]]:
        """Return stage, device, modules, action, predicted, achieved and error of each stage's actions, as text."""
        rows = []
        for kind, word in ((0, "forward"), (1, "backward")):
            if kind == 1 and not self.training:
                continue
            predicted, achieved = self.predicted_seconds(kind), self.achieved_seconds(kind)
            for s, stage in enumerate(self.plan.stages):
                first, last = int(stage.operators[0]), int(stage.operators[-1])
                guess = None if predicted is None else float(predicted[s])
                wrong = guess / float(achieved[s]) - 1.0 if guess is not None and achieved[s] > 0 else None
                times = show_seconds(guess), show_seconds(float(achieved[s])), show_percent(wrong)
                rows.append((str(s), self.records[s].device, f"{first}..{last}", word, *times))
        return sorted(rows, key=lambda row: int(row[0]))

    def device_rows(self) -> list[tuple[str, ...]]:
        """Return stage, predicted and achieved busy share, predicted and measured peak memory, as text."""
        busy, memory = self.predicted_busy, self.predicted_memory
        return [
            (
                f"stage {s}",
                show_share(None if busy is None else float(busy[s])),
                show_share(float(self.achieved_busy[s])),
                show_bytes(None if memory is None else float(memory[s])),
                show_bytes(float(self.achieved_memory[s])),
            )
            for s in range(self.plan.n_stages)
        ]

    def conditions(self) -> dict[str, str]:
        """Return what the run took place under, as text."""
        shown = {key: f"{cell:.3g}" if isinstance(cell, float) else str(cell) for key, cell in self.machine.items()}
        counted = "allocator" if self.machine.get("device") == "cuda" else "counted tensors"
        return {**shown, "steps counted": str(self.steps - 1), "memory": counted, "sends": self.sends}

    # -- saving ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version; ``metrics`` repeats the figures for other readers."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "plan": self.plan.to_json(),
            "graph": None if self.graph is None else self.graph.to_json(),
            "cluster": None if self.cluster is None else self.cluster.to_json(),
            "records": [record.to_json() for record in self.records],
            "samples": self.samples,
            "training": self.training,
            "sends": self.sends,
            "overhead": self.overhead,
            "state_factor": self.state_factor,
            "optimizer": self.optimizer,
            "machine": dict(self.machine),
            "metrics": self._metrics(),
        }

    def _metrics(self) -> dict[str, Any]:
        figures = {
            "predicted_step_seconds": self.predicted_step,
            "achieved_step_seconds": self.achieved_step,
            "error": self.error,
            "structure_error": self.structure_error,
            "duration_error": self.duration_error,
            "on_cpu": self.on_cpu,
            "samples_per_second": self.samples_per_second,
            "predicted_bubble": self.predicted_bubble,
            "achieved_bubble": self.achieved_bubble,
        }
        memory = self.predicted_memory
        return {
            **figures,
            "predicted_memory_bytes": None if memory is None else memory.tolist(),
            "achieved_memory_bytes": self.achieved_memory.tolist(),
        }

    @classmethod
    def from_json(cls, data: Any) -> RunReport:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        top = Fields(data)
        top.schema(SCHEMA, VERSION)
        graph, cluster = top.take("graph", None), top.take("cluster", None)
        try:
            report = cls(
                plan=Plan.from_json(top.take("plan")),
                records=tuple(RankRecord.from_json(r, f"records[{i}]") for i, r in enumerate(top.items("records"))),
                samples=top.integer("samples", least=1),
                training=top.flag("training"),
                graph=None if graph is None else CostGraph.from_json(graph),
                cluster=None if cluster is None else Cluster.from_json(cluster),
                sends=top.text("sends"),
                overhead=top.number("overhead"),
                state_factor=top.number("state_factor"),
                optimizer=top.flag("optimizer"),
                machine=top.inner("machine").data,
            )
        except ExecutionError as error:
            raise FormatError(error.message) from None
        top.take("metrics", None)
        top.done()
        return report

    def save(self, path: str | Path) -> None:
        """Write the report as JSON; the file is replaced only when the new one is complete."""
        from balance.problems.model.files import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> RunReport:
        """Read a report that `save` wrote.

        Raises
        ------
        FormatError
            If the file is not such a report.
        """
        from balance.problems.model.files import read_json

        return read_json(path, cls.from_json)


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if values.size else 0.0
