"""Model room: timelines, when every action and transfer of a step runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.actions import Action, Kind
from balance.problems.model.errors import ScheduleError
from balance.problems.model.footprint import Footprint
from balance.problems.model.schedule import HELD, Schedule
from balance.problems.model.tensors import FloatArray, IntArray, frozen
from balance.problems.model.transfers import Transfers

__all__ = ["Timeline", "Transfers"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Timeline:
    """When every action of one step runs, simulated or measured; 25 bytes per action.

    Parameters
    ----------
    device, stage, microbatch, kind
        The actions, shape (A,), in any order; they are kept device by device, in the order of `start`.
    start, end
        Seconds since the step began, shape (A,).
    n_devices
        Number of devices; some may do nothing.
    transfers
        Messages between devices; none where they were not measured.
    footprint
        What the stages hold; without it memory is not known.
    leader
        Shape (n_devices,): device whose row a device shares. The devices of a replicated stage act as one, so only
        the first of them has actions of its own.
    microbatch_size
        Samples per micro-batch, where known.

    Raises
    ------
    ScheduleError
        If shapes disagree, an action ends before it starts, or a time is no number.

    Examples
    --------
    >>> timeline = Timeline(
    ...     device=[0, 0], stage=[0, 0], microbatch=[0, 0], kind=[0, 1], start=[0.0, 2.0], end=[1.0, 4.0]
    ... )
    >>> timeline.step_time, timeline.busy.tolist(), timeline.bubble_fraction
    (4.0, [3.0], 0.25)
    """

    schedule: Schedule
    start: FloatArray
    end: FloatArray
    transfers: Transfers
    footprint: Footprint | None
    leader: IntArray
    microbatch_size: float | None

    def __init__(
        self,
        *,
        device: ArrayLike,
        stage: ArrayLike,
        microbatch: ArrayLike,
        kind: ArrayLike,
        start: ArrayLike,
        end: ArrayLike,
        n_devices: int | None = None,
        transfers: Transfers | None = None,
        footprint: Footprint | None = None,
        leader: ArrayLike | None = None,
        microbatch_size: float | None = None,
    ) -> None:
        home = np.asarray(device, dtype=np.int64)
        begin, finish = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
        if not home.shape == begin.shape == finish.shape or home.ndim != 1:
            raise ScheduleError(f"device, start and end have shapes {home.shape}, {begin.shape} and {finish.shape}")
        count = n_devices if n_devices is not None else int(home.max(initial=0)) + 1
        if len(home) and not 0 <= home.min() <= home.max() < count:
            stray = int(home.min() if home.min() < 0 else home.max())
            raise ScheduleError(f"an action is on device {stray}, but there are {count} devices")
        order = np.lexsort((finish, begin, home))
        try:
            columns = [np.asarray(column)[order] for column in (stage, microbatch, kind)]
        except IndexError:
            raise ScheduleError(f"stage, microbatch and kind need {len(home)} entries, one per action") from None
        offsets = np.searchsorted(home[order], np.arange(count + 1))
        schedule = Schedule(columns[0], columns[1], columns[2], offsets)
        self._fill(schedule, begin[order], finish[order], transfers, footprint, leader, microbatch_size)

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        start: FloatArray,
        end: FloatArray,
        *,
        transfers: Transfers | None = None,
        footprint: Footprint | None = None,
        leader: ArrayLike | None = None,
        microbatch_size: float | None = None,
    ) -> Timeline:
        """Return the timeline of a schedule whose actions run at these times, shape (A,); nothing is copied."""
        self = cls.__new__(cls)
        self._fill(schedule, start, end, transfers, footprint, leader, microbatch_size)
        return self

    def _fill(
        self,
        schedule: Schedule,
        start: FloatArray,
        end: FloatArray,
        transfers: Transfers | None,
        footprint: Footprint | None,
        leader: ArrayLike | None,
        microbatch_size: float | None,
    ) -> None:
        bad = ~((start >= 0) & (end >= start) & (end < np.inf))
        if bad.any():
            i = int(np.argmax(bad))
            raise ScheduleError(f"{schedule.at(i)} runs from {start[i]} s to {end[i]} s, which is not a span of time")
        put = object.__setattr__
        put(self, "schedule", schedule)
        for name, column in (("start", start), ("end", end)):
            column.flags.writeable = False
            put(self, name, column)
        put(self, "transfers", transfers if transfers is not None else Transfers.none())
        put(self, "footprint", footprint)
        put(self, "leader", frozen(np.arange(schedule.n_devices) if leader is None else leader, np.int64))
        put(self, "microbatch_size", microbatch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        columns = (self.schedule, self.start, self.end, self.transfers, self.footprint, self.leader)
        return (_rebuild, (*columns, self.microbatch_size))

    # -- actions -----------------------------------------------------------------------------------------------

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.leader)

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return self.schedule.n_stages

    @property
    def microbatches(self) -> int:
        """Micro-batches of the step."""
        return self.schedule.microbatches

    @property
    def device(self) -> NDArray[np.int32]:
        """Device of each action, shape (A,)."""
        return self.schedule.device

    @property
    def stage(self) -> NDArray[np.int32]:
        """Stage of each action, shape (A,)."""
        return self.schedule.stage

    @property
    def microbatch(self) -> NDArray[np.int32]:
        """Micro-batch of each action, shape (A,)."""
        return self.schedule.microbatch

    @property
    def kind(self) -> NDArray[np.int8]:
        """Kind of each action, see `balance.problems.model.actions.Kind`, shape (A,)."""
        return self.schedule.kind

    def span(self, device: int) -> slice:
        """Return which actions a device does, or shares with its leader."""
        if not 0 <= device < self.n_devices:
            raise ScheduleError(f"there is no device {device}; the timeline has {self.n_devices}", device=device)
        row = int(self.leader[device])
        return slice(int(self.schedule.offsets[row]), int(self.schedule.offsets[row + 1]))

    def actions(self, device: int) -> Iterator[tuple[Action, float, float]]:
        """Yield (action, start, end) of a device in order."""
        part = self.span(device)
        return ((self.schedule.at(i), float(self.start[i]), float(self.end[i])) for i in range(part.start, part.stop))

    # -- figures -----------------------------------------------------------------------------------------------

    @property
    def step_time(self) -> float:
        """End of the last action, in seconds."""
        return float(self.end.max(initial=0.0))

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second when step follows step, or None where the size of a micro-batch is unknown."""
        if self.microbatch_size is None or self.step_time == 0:
            return None
        return self.microbatches * self.microbatch_size / self.step_time

    @cached_property
    def busy(self) -> FloatArray:
        """Seconds that each device works, shape (n_devices,); replicas wait for their slowest and count as working."""
        own = np.bincount(self.device, self.end - self.start, self.schedule.n_devices)
        return frozen(own[self.leader])

    @property
    def used(self) -> NDArray[np.bool_]:
        """Whether a device has anything to do, shape (n_devices,)."""
        return np.asarray(np.diff(self.schedule.offsets)[self.leader] > 0)

    @property
    def bubble_fraction(self) -> float:
        """Part of the step in which the devices that have work wait, on average over them."""
        share = self.busy[self.used]
        return 1.0 - float(share.mean()) / self.step_time if len(share) and self.step_time > 0 else 0.0

    def bubbles(self, device: int) -> FloatArray:
        """Return when a device waits, rows of (start, end) in seconds, from 0 to the end of the step."""
        part = self.span(device)
        left = np.concatenate(([0.0], np.maximum.accumulate(self.end[part])))
        right = np.concatenate((self.start[part], [self.step_time]))
        return np.stack([left, right], axis=1)[right > left]

    # -- memory ------------------------------------------------------------------------------------------------

    @cached_property
    def peak_memory(self) -> FloatArray:
        """Bytes that each device needs, by the formula of `balance.problems.model.memory`; nan where not known.

        Shape (n_devices,). Each of its stages counts with its own peak: with several stages on a device, which need not
        reach it at the same moment, `memory` may stay below.
        """
        if self.footprint is None:
            return frozen(np.full(self.n_devices, np.nan))
        return frozen(self.footprint.peak(self.schedule.peak_in_flight(), self.n_devices))

    def memory(self, device: int) -> tuple[FloatArray, FloatArray]:
        """Return how much memory a device holds over time.

        Parameters
        ----------
        device
            Which.

        Returns
        -------
        times, bytes : numpy.ndarray
            ``bytes[i]`` is held from ``times[i]`` until ``times[i + 1]``; both start with time 0 and have the length of
            one plus two per action. Times repeat where one action follows another at once.

        Raises
        ------
        ScheduleError
            If the timeline does not know what its stages hold.
        """
        if self.footprint is None:
            raise ScheduleError("this timeline knows no memory: it was made without a footprint")
        part = self.span(device)
        stage, kind = self.stage[part], self.kind[part]
        held = np.full(2 * len(stage) + 1, self.footprint.resident(device))
        change = HELD[kind]
        for s, share in self.footprint.shares(device):
            mine = stage == s
            moves = np.zeros(len(held))
            # What is taken up is there from the start of its action, what is let go stays until the end of its action.
            moves[1::2] = mine * np.maximum(change, 0)
            moves[2::2] = mine * (np.minimum(change, 0) if self.schedule.training else -1)
            held += np.cumsum(moves) * (self.footprint.kept[s] * share)
            held[1::2] += (mine & (kind < Kind.EVICT)) * (self.footprint.working[s] * share)
        times = np.zeros(len(held))
        times[1::2], times[2::2] = self.start[part], self.end[part]
        return times, held

    # -- other tools -------------------------------------------------------------------------------------------

    def to_chrome_trace(self, *, name: str = "step", process: int = 0) -> dict[str, Any]:
        """Return the timeline in the Trace Event Format that chrome://tracing and Perfetto read.

        Parameters
        ----------
        name
            Label of the step.
        process
            Number that keeps apart several timelines in one file.

        Returns
        -------
        dict
            JSON-ready. Each device has a track for its actions, each directed link one for its transfers (spans of
            one track never overlap), each device whose memory is known a counter. Times are in microseconds.
        """
        from balance.problems.model.trace_events import trace_events

        return {"traceEvents": trace_events(self, name, process), "displayTimeUnit": "ms"}

    def __repr__(self) -> str:
        return (
            f"Timeline({self.schedule.n_actions} actions on {self.n_devices} devices, step {self.step_time:.6g} s, "
            f"bubble {self.bubble_fraction:.1%})"
        )


def _rebuild(
    schedule: Schedule,
    start: FloatArray,
    end: FloatArray,
    transfers: Transfers,
    footprint: Footprint | None,
    leader: IntArray,
    microbatch_size: float | None,
) -> Timeline:
    return Timeline.of(
        schedule,
        start,
        end,
        transfers=transfers,
        footprint=footprint,
        leader=leader,
        microbatch_size=microbatch_size,
    )
