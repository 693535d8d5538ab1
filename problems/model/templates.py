"""Model room: schedules by name. A template is one function that gives the row of one device.

Names: ``gpipe`` (all forward passes, then all backward passes; Huang et al. 2019), ``1f1b`` (as few micro-batches in
flight as keep the pipeline full; Narayanan et al. 2019), ``interleaved-1f1b`` (several stages per device; Narayanan
et al. 2021) and ``forward-only``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.actions import Kind
from balance.problems.model.errors import OptionError, ScheduleError
from balance.problems.model.fields import nearest
from balance.problems.model.schedule import HELD, LARGEST, Schedule
from balance.problems.model.tensors import IntArray, positions


@dataclass(frozen=True, eq=False)
class Arrangement:
    """What a template is filled with.

    Parameters
    ----------
    home
        Device of each stage, shape (S,).
    microbatches
        M.
    """

    home: IntArray
    microbatches: int

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.home)

    def stages(self, device: int) -> IntArray:
        """Return the stages of a device, ascending."""
        return np.flatnonzero(self.home == device)


@dataclass(frozen=True, eq=False)
class Row:
    """The work of one device, forward and backward, and how the two are merged.

    Parameters
    ----------
    forward, backward
        Pairs (stages, micro-batches) of arrays, each in order, all of the same length n.
    warmup
        Forward passes before the first backward pass. Then forward and backward passes alternate until no forward
        pass is left.
    """

    forward: tuple[IntArray, IntArray]
    backward: tuple[IntArray, IntArray]
    warmup: int

    def merged(self, training: bool) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
        """Return stages, micro-batches and kinds in the order of execution."""
        count = len(self.forward[0])
        if not training:
            return (
                self.forward[0].astype(np.int32),
                self.forward[1].astype(np.int32),
                np.zeros(count, dtype=np.int8),
            )
        steps = np.arange(count)
        warmup = min(self.warmup, count)
        # Forward pass k comes after k forward passes and, once they alternate, k - warmup backward passes.
        ahead = steps + np.maximum(steps - warmup, 0)
        back = steps + np.minimum(steps + warmup + 1, count)
        stage, microbatch = np.empty(2 * count, dtype=np.int32), np.empty(2 * count, dtype=np.int32)
        kind = np.empty(2 * count, dtype=np.int8)
        for place, (stages, batches), what in (
            (ahead, self.forward, Kind.FORWARD),
            (back, self.backward, Kind.BACKWARD),
        ):
            stage[place], microbatch[place], kind[place] = stages, batches, what
        return stage, microbatch, kind


def _gpipe(plan: Arrangement, device: int) -> Row:
    """All forward passes, stage after stage, then all backward passes in the order of micro-batches."""
    stages, m = plan.stages(device), np.arange(plan.microbatches)
    batches = np.tile(m, len(stages))
    ahead, back = np.repeat(stages, len(m)), np.repeat(stages[::-1], len(m))
    return Row((ahead, batches), (back, batches), warmup=len(ahead))


def _one_forward_one_backward(plan: Arrangement, device: int) -> Row:
    """Alternate as soon as the first backward pass can come: S - 1 - s forward passes earlier than it."""
    stages = plan.stages(device)
    if len(stages) > 1:
        raise ScheduleError(
            f"1f1b runs one stage per device, but device {device} holds the stages {', '.join(map(str, stages[:8]))}; "
            f"interleaved-1f1b and gpipe run several",
            device=device,
        )
    m = np.arange(plan.microbatches)
    work = np.repeat(stages, len(m)), m[: len(m) * len(stages)]
    return Row(work, work, warmup=plan.n_stages - 1 - int(stages[0]) if len(stages) else 0)


def _interleaved(plan: Arrangement, device: int) -> Row:
    """Work in rounds: each stage of the device takes a round of micro-batches before the next stage does.

    The order is that of Megatron-LM and of torch's ``ScheduleInterleaved1F1B``: with M micro-batches on P devices
    there are ``max(1, M // P)`` rounds of equal size, and ``(V - 1) * round + 2 * (P - 1 - rank)`` forward passes to
    begin with.
    """
    stages, m = plan.stages(device), plan.microbatches
    if not len(stages):
        return Row((stages, stages), (stages, stages), 0)
    devices, chunks = plan.n_stages // len(stages), len(stages)
    first = plan.home[:devices]
    if (
        devices * chunks != plan.n_stages
        or len(set(first.tolist())) != devices
        or (plan.home != np.tile(first, chunks)).any()
    ):
        raise ScheduleError(
            f"interleaved-1f1b lays its stages over the devices in rounds, such as 0, 1, 0, 1; "
            f"{plan.n_stages} stages on devices {plan.home[:16].tolist()} do not go round"
        )
    rounds = max(1, m // devices)
    if m % rounds:
        below, above = m // devices * devices, -(-m // devices) * devices
        raise ScheduleError(
            f"interleaved-1f1b needs rounds of equal size: {m} micro-batches on {devices} devices make {rounds} "
            f"rounds, which {m} does not divide into; use {below} or {above} micro-batches",
            microbatches=m,
            devices=devices,
        )
    size, step = m // rounds, np.arange(m * chunks)
    local = step // size % chunks
    batches = step // (size * chunks) * size + step % size
    rank = int(np.argmax(first == device))
    return Row(
        (stages[local], batches),
        (stages[chunks - 1 - local], batches),
        warmup=(chunks - 1) * size + 2 * (devices - 1 - rank),
    )


_TEMPLATES: dict[str, Callable[[Arrangement, int], Row]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved-1f1b": _interleaved,
    "forward-only": _gpipe,
}


def list_schedules() -> tuple[str, ...]:
    """Return the names that `build_schedule` knows."""
    return tuple(_TEMPLATES)


def build_schedule(
    name: str,
    n_stages: int,
    microbatches: int,
    devices: Sequence[int] | IntArray | None = None,
    training: bool = True,
    chunks: int | None = None,
) -> Schedule:
    """Return the schedule of a template.

    Parameters
    ----------
    name
        One of `list_schedules`.
    n_stages
        Number of stages.
    microbatches
        Micro-batches per step.
    devices
        Device of each stage, shape (n_stages,); rows of devices without a stage are empty. By default the stages go
        round over ``n_stages / chunks`` devices.
    training
        Whether backward passes run; ``forward-only`` never has any.
    chunks
        Stages per device, where `devices` is not given; 1 by default.

    Raises
    ------
    OptionError
        If the name is unknown; the message has the nearest known one.
    ScheduleError
        If the template cannot run these stages, devices or micro-batches.

    Examples
    --------
    >>> build_schedule("1f1b", 2, 2).rows()
    [['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1', '1B1']]
    """
    template = _template(name)
    plan = _arrange(name, n_stages, microbatches, devices, chunks)
    count = int(plan.home.max()) + 1
    rows = [template(plan, d).merged(training and name != "forward-only") for d in range(count)]
    columns = [np.concatenate([row[c] for row in rows]) for c in range(3)]
    for column in columns:
        column.flags.writeable = False  # so that the schedule takes them over without a copy
    return Schedule(
        columns[0],
        columns[1],
        columns[2],
        np.concatenate(([0], np.cumsum([len(row[0]) for row in rows], dtype=np.int64))),
        n_stages=n_stages,
        microbatches=microbatches,
    )


def in_flight(
    name: str, n_stages: int, microbatches: int, stage: int, chunks: int | None = None, training: bool = True
) -> int:
    """Return how many micro-batches a stage holds at its peak: what `Schedule.peak_in_flight` gives for the template.

    Parameters
    ----------
    name, n_stages, microbatches, chunks, training
        As in `build_schedule`.
    stage
        Stage, counted from 0.

    Raises
    ------
    OptionError, ScheduleError
        As `build_schedule`, and if there is no such stage.

    Examples
    --------
    >>> [in_flight("1f1b", 4, 8, s) for s in range(4)], in_flight("gpipe", 4, 8, 0)
    ([4, 3, 2, 1], 8)
    """
    template = _template(name)
    plan = _arrange(name, n_stages, microbatches, None, chunks)
    if not 0 <= stage < n_stages:
        raise ScheduleError(f"there is no stage {stage}; there are {n_stages}", stage=stage)
    row = template(plan, int(plan.home[stage]))
    if not training or name == "forward-only":
        return 1
    stages, _, kinds = row.merged(training=True)
    return int(np.cumsum(HELD[kinds[stages == stage]]).max())


def _template(name: str) -> Callable[[Arrangement, int], Row]:
    if name not in _TEMPLATES:
        raise OptionError(f"there is no schedule {name!r}{nearest(str(name), _TEMPLATES)}", name=name)
    return _TEMPLATES[name]


def _arrange(
    name: str, n_stages: int, microbatches: int, devices: Sequence[int] | IntArray | None, chunks: int | None
) -> Arrangement:
    for what, count in (("n_stages", n_stages), ("microbatches", microbatches), ("chunks", chunks or 1)):
        if count != int(count) or not 1 <= count <= LARGEST:
            raise ScheduleError(f"{what} must be a whole number of at least 1, got {count}")
    if n_stages * microbatches > LARGEST // 2:
        raise ScheduleError(
            f"{n_stages} stages with {microbatches} micro-batches are too many actions for one schedule"
        )
    if devices is None:
        per_device = int(chunks or 1)
        if n_stages % per_device:
            raise ScheduleError(
                f"{n_stages} stages do not divide into {per_device} chunks per device; use a multiple of {per_device}"
            )
        return Arrangement(np.arange(n_stages) % (n_stages // per_device), microbatches)
    home = positions(devices, "devices of a schedule", ScheduleError)
    if len(home) != n_stages or home.min() < 0:
        raise ScheduleError(f"{name} needs the device of each of {n_stages} stages, got {home[:16].tolist()}")
    if chunks is not None and chunks * len(set(home.tolist())) != n_stages:
        raise ScheduleError(
            f"{n_stages} stages on {len(set(home.tolist()))} devices are not {chunks} chunks per device"
        )
    return Arrangement(home, microbatches)
