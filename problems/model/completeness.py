"""Model room: whether a schedule does all of its work once, and whether the devices can get through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.actions import LETTERS, Action, Kind
from balance.problems.model.errors import ScheduleError
from balance.problems.model.playback import player
from balance.problems.model.tensors import FloatArray, IntArray

if TYPE_CHECKING:
    from balance.problems.model.schedule import Schedule


def check_completeness(schedule: Schedule) -> None:
    """Check that every stage is on one device and does all of its work exactly once.

    Raises
    ------
    ScheduleError
        It names the first action at fault.
    """
    # Counting comes first: it bounds the numbers of stages and micro-batches by that of actions.
    cells = schedule.stage.astype(np.int64) * schedule.microbatches + schedule.microbatch
    forward = _counts(schedule, cells, Kind.FORWARD, (Kind.FORWARD,))
    device = schedule.device
    split = np.flatnonzero(schedule.home[schedule.stage] != device)
    if len(split):
        i = int(split[0])
        s = int(schedule.stage[i])
        raise ScheduleError(
            f"stage {s} is on devices {int(device[i])} and {int(schedule.home[s])}; all of its actions must be on one "
            f"device",
            stage=s,
        )
    _each_once(schedule, forward, Kind.FORWARD)
    if not schedule.training:
        return
    _counts(schedule, cells, Kind.BACKWARD, (Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT))
    total = schedule.n_stages * schedule.microbatches
    whole, inputs, weights = (
        np.bincount(cells[schedule.kind == kind], minlength=total) for kind in (Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT)
    )
    for bad, message in (
        (weights > inputs, "{W} is there without {I} (more weight gradients than input gradients)"),
        (inputs > weights, "{I} is there without {W} (more input gradients than weight gradients)"),
        (whole + inputs == 0, "{B} is missing (or {I} with {W})"),
        ((whole > 0) & (inputs > 0), "{B} and {I} do the same work"),
        (whole > 1, "{B} is there more than once"),
        (inputs > 1, "{I} is there more than once"),
    ):
        if bad.any():
            s, m = divmod(int(np.argmax(bad)), schedule.microbatches)
            names = {letter: f"{s}{letter}{m}" for letter in LETTERS}
            raise ScheduleError(message.format(**names), stage=s, microbatch=m)
    _check_evictions(schedule, cells)


def _counts(schedule: Schedule, cells: IntArray, name: Kind, kinds: tuple[Kind, ...]) -> IntArray:
    """Return how often each (stage, micro-batch) has one of `kinds`, once there are enough of them at all."""
    chosen = cells[np.isin(schedule.kind, kinds)]
    total = schedule.n_stages * schedule.microbatches
    if len(chosen) < total:
        # Some cell up to the number of actions is free; looking no further keeps hostile sizes from filling the memory.
        seen = np.zeros(len(chosen) + 1, dtype=bool)
        seen[chosen[chosen <= len(chosen)]] = True
        s, m = divmod(int(np.argmin(seen)), schedule.microbatches)
        raise ScheduleError(
            f"{Action(s, name, m)} is missing: there are {schedule.n_stages} stages and {schedule.microbatches} "
            f"micro-batches",
            stage=s,
            microbatch=m,
        )
    return np.bincount(chosen, minlength=total)


def _each_once(schedule: Schedule, counts: IntArray, kind: Kind) -> None:
    if bool((counts == 1).all()):
        return
    s, m = divmod(int(np.argmax(counts != 1)), schedule.microbatches)
    action = Action(s, kind, m)
    times = int(counts[s * schedule.microbatches + m])
    raise ScheduleError(
        f"{action} is missing" if times == 0 else f"{action} is there {times} times", stage=s, microbatch=m
    )


def _check_evictions(schedule: Schedule, cells: IntArray) -> None:
    """Evictions are rare, so they are looked at one by one: F, then E, then L, then B (or I)."""
    moves = np.flatnonzero(schedule.kind >= Kind.EVICT)
    if not len(moves):
        return
    forward, backward = where(schedule)
    out: dict[int, int] = {}
    back: dict[int, int] = {}
    for i in moves.tolist():
        table = out if schedule.kind[i] == Kind.EVICT else back
        if table.setdefault(int(cells[i]), i) != i:
            raise ScheduleError(f"{schedule.at(i)} is there more than once")
    for cell, i in (out | back).items():
        e, ll = out.get(cell), back.get(cell)
        if e is None or ll is None:
            raise ScheduleError(f"{schedule.at(i)} is alone: an eviction and its load come together")
        if not forward[cell] < e < ll < backward[cell]:
            raise ScheduleError(
                f"{schedule.at(e)} and {schedule.at(ll)} must lie in this order between forward and backward pass"
            )


def where(schedule: Schedule) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the positions of forward and of (whole or input-gradient) backward passes by ``stage * M + microbatch``.

    Returns
    -------
    forward, backward : numpy.ndarray
        Shape (S * M,); `backward` is empty in schedules without backward passes. The schedule must be complete.
    """
    result = []
    for kinds in ((Kind.FORWARD,), (Kind.BACKWARD, Kind.INPUT)):
        index = np.flatnonzero(np.isin(schedule.kind, kinds)).astype(np.int32)
        table = np.zeros(schedule.n_stages * schedule.microbatches if len(index) else 0, dtype=np.int32)
        table[schedule.stage[index].astype(np.int64) * schedule.microbatches + schedule.microbatch[index]] = index
        result.append(table)
    return result[0], result[1]


def check_progress(schedule: Schedule) -> None:
    """Check that a complete schedule can be played to its end when messages are buffered.

    Raises
    ------
    ScheduleError
        If there is a deadlock; it shows the actions that wait for each other.
    """
    forward, backward = where(schedule)
    nothing: FloatArray = np.zeros((2, schedule.n_stages + 1))
    nowhere: IntArray = np.full((2, schedule.n_stages + 1), -1, dtype=np.int64)
    scratch = np.zeros((0, schedule.microbatches))
    at, lacks = player(schedule.n_actions)(
        schedule.stage,
        schedule.microbatch,
        schedule.kind,
        schedule.offsets,
        schedule.home,
        schedule.microbatches,
        forward,
        backward,
        np.zeros((schedule.n_stages, len(LETTERS))),
        np.zeros(0),
        nothing,
        nowhere,
        nowhere,
        False,
        0.0,
        np.zeros(schedule.n_actions),
        np.zeros(schedule.n_actions),
        scratch,
        scratch.copy(),
        np.zeros(0),
    )
    refuse_deadlock(schedule, at, lacks)


def refuse_deadlock(schedule: Schedule, at: IntArray, lacks: IntArray, how: str = "") -> None:
    """Raise if some device did not get through its row.

    Parameters
    ----------
    schedule
        What was played.
    at, lacks
        From `balance.problems.model.playback.play`.
    how
        Words that follow "deadlock" in the message.

    Raises
    ------
    ScheduleError
        With the cycle of waiting actions in the message and, written, in the fact ``cycle``.
    """
    stuck = np.flatnonzero(at < schedule.offsets[1:])
    if not len(stuck):
        return
    path: list[int] = []
    d = int(stuck[0])
    while d not in path:
        path.append(d)
        d = int(schedule.home[schedule.stage[lacks[d]]])
    cycle: list[str] = []
    parts: list[str] = []
    for waiting in path[path.index(d) :]:
        head, lack = int(at[waiting]), int(lacks[waiting])
        other = int(schedule.home[schedule.stage[lack]])
        text = f"{schedule.at(head)} waits for {schedule.at(lack)}"
        cycle.append(str(schedule.at(head)))
        if lack != at[other]:
            text += f", which comes after {schedule.at(int(at[other]))} on device {other}"
            cycle.append(str(schedule.at(lack)))
        parts.append(text)
    raise ScheduleError(f"deadlock{how}: {'; '.join(parts)}", cycle=tuple(cycle))
