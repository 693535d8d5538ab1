"""Model room: micro-batches in flight in a stage, by the number of stages after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balance.problems.model.tensors import IntArray


def step_microbatches(microbatches: int | None, stages: int) -> int:
    """Return the micro-batches of a step with `stages` stages: those given, or enough to fill the pipeline."""
    return microbatches if microbatches is not None else 2 * stages


def stage_flight(
    after: int, *, schedule: str, microbatches: int | None, given: Sequence[int] | None, backward: bool
) -> int:
    """Return the micro-batches in flight in a stage with `after` stages after it, one stage per device.

    Parameters
    ----------
    after
        Number of stages after it.
    schedule
        ``"gpipe"``, or one that keeps as few as it can, like ``"1f1b"``.
    microbatches
        Micro-batches per step; None: unknown, and under GPipe counted as 1.
    given
        Counts by number of stages after, instead of the schedule's; the last one repeats.
    backward
        Whether there is a backward pass to keep anything for.
    """
    if given is not None:
        return given[min(after, len(given) - 1)]
    if not backward:
        return 1
    if schedule == "gpipe":
        return microbatches or 1
    return after + 1 if microbatches is None else min(microbatches, after + 1)


def stage_flights(
    stages: int, *, schedule: str, microbatches: int | None, given: Sequence[int] | None, backward: bool
) -> IntArray:
    """Return the micro-batches in flight of each stage of a pipeline, shape (stages,).

    The parameters are those of `stage_flight`; with the number of stages known, so are GPipe's micro-batches.
    """
    if schedule == "gpipe" and given is None and backward:
        return np.full(stages, step_microbatches(microbatches, stages))
    return np.array(
        [
            stage_flight(stages - 1 - s, schedule=schedule, microbatches=microbatches, given=given, backward=backward)
            for s in range(stages)
        ],
        dtype=np.int64,
    )
